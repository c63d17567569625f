"""Nothing follows a rejection, and nothing ends as a success that did not reach its end: every example, generated flows,
and the faults that these proofs see."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.scenarios.load import Flows, load_scenario
from bot.scenarios.play import Run, run
from engine.decide import edges as graphs
from engine.decide import replies
from engine.decide.commands import Answer, Begin, Due, NodeDone, Shown
from engine.decide.edges import DEAD
from engine.decide.question import conclude
from engine.decide.step import Step
from engine.flow import Flow
from engine.flow.checks.all import has_effects
from engine.journal.events import ChildStarted, Event, NodeStarted, PromptRequested
from engine.journal.fold import derive_state
from engine.journal.queries import is_rejection
from engine.journal.state import Asked, State, in_finally
from engine.language import timestamps
from engine.language.codec import Json
from tests.support.engine import BEN, Scenario
from tests.support.engine import given as core
from tests.support.proving import PROVE, sampled, tries

SCENARIOS = sorted((Path(__file__).parents[2] / "examples/scenarios").glob("*.yml"))
OUTCOMES: dict[str, Json] = {
    "message": {"channel": "C1", "ts": "1.2", "permalink": None},
    "http": {"status": 200, "headers": {}, "body": "", "json": None},
    "shell": {"stdout": "", "stderr": "", "exit_code": 0, "seconds": 0.0},
}


FEW = SCENARIOS[::4]
"""The examples of `make test`."""


@cache
def played(file: Path) -> tuple[Flow, Run]:
    """An example as its scenario plays it."""
    scenario = load_scenario(file, Flows())
    return scenario.flow, asyncio.run(run(scenario))


def at_gates(journal: tuple[Event, ...]) -> Iterator[tuple[State, Asked]]:
    """The session at each approval of its flow, where that was asked."""
    for number, event in enumerate(journal, 1):
        if (
            isinstance(event, PromptRequested)
            and event.prompt["kind"] == "approval"
            and not event.prompt.get("tool")
        ):
            state = derive_state(journal[:number])
            yield state, state.prompts[event.prompt_id]


def at(flow: Flow, state: State) -> Scenario:
    """The case that continues from there."""
    case = Scenario(flow)
    case.state, case.now = state, state.updated_at
    return case


def effects(case: Scenario, events: list[Event]) -> list[str]:
    """Where these events start something with effects that no `on_failure` and no `finally` has: those are the author's word."""
    nodes = {node.id: node for nodes in case.flow.lists.values() for node in nodes.nodes}
    started = [event for event in events if isinstance(event, NodeStarted | ChildStarted)]
    named = [
        (event.path or "", event.child_id if isinstance(event, ChildStarted) else event.node_id)
        for event in started
    ]
    found = [path for path, name in named if name in nodes and has_effects(nodes[name])]
    return [path for path in found if "!" not in path and not in_finally(path)]


def carried_on(case: Scenario) -> list[str]:
    """Carry on with a case until it rests or ends: everywhere where something with effects starts."""
    case._take(Begin())
    found = effects(case, case.last)
    running = [path for path in sorted(case.state.active) if case.state.nodes[path].type in OUTCOMES]
    for path in running:
        node = case.state.nodes[path]
        if node.status == "started" and path in case.state.active:
            case.when(NodeDone(path, node.attempt, OUTCOMES[node.type]))
            found += effects(case, case.last)
    return found + (carried_on(case) if running else [])


def rejected(case: Scenario, prompt: Asked) -> list[str]:
    """What starts after the approval is rejected."""
    case.last = []
    case._take(Answer(prompt.prompt_id, BEN, "reject", value="reject", reason="no"))
    return effects(case, case.last) + carried_on(case)


def expired(case: Scenario, prompt: Asked) -> list[str]:
    """What starts once the time for it has ended."""
    case._take(Shown(prompt.prompt_id, {"channel": "C1", "ts": "1.3"}))
    timer = next(
        t for t in case.state.timers.values() if t.prompt_id == prompt.prompt_id and t.purpose == "deadline"
    )
    case.now, case.last = timestamps.after(timer.due_at, 1), []
    case._take(Due(timer.timer_id))
    return effects(case, case.last) + carried_on(case)


@pytest.mark.parametrize("file", sampled(SCENARIOS, FEW), ids=lambda file: file.stem)
def test_no_example_does_anything_after_its_gate_says_no(file: Path, hit: Any) -> None:
    """No later step starts in any example after any of its approvals is rejected, or expires without approving."""
    flow, once = played(file)
    assert not once.failures
    for state, prompt in at_gates(once.events):
        assert rejected(at(flow, state), prompt) == []
        hit["gates of examples rejected"] += 1
        if prompt.on_timeout != "approve":
            assert expired(at(flow, state), prompt) == []
            hit["gates of examples expired"] += 1


def test_the_examples_have_gates() -> None:
    """The test above looks at something."""
    files = SCENARIOS if PROVE else FEW
    assert sum(len(list(at_gates(played(file)[1].events))) for file in files) >= (6 if PROVE else 2)


# --- generated flows --------------------------------------------------------------------------------------


def _node(kind: str, number: int, inner: list[dict[str, Any]]) -> dict[str, Any]:
    name = f"n{number}"
    match kind:
        case "foreach":
            return {"id": name, "type": "foreach", "with": {"items": [1, 2]}, "body": inner}
        case "loop":
            with_ = {"while": "{{ index < 2 }}", "max_iterations": 3}
            return {"id": name, "type": "loop", "with": with_, "body": inner}
        case "parallel":
            other = [{"id": f"{name}x", "type": "noop"}]
            return {"id": name, "type": "parallel", "branches": {"a": inner, "b": other}}
        case "switch":
            return {"id": name, "type": "switch", "with": {"on": "a"}, "cases": {"a": inner}}
    return {"id": name, "type": "shell", "retry": {"attempts": 2}, "with": {"run": ["do"]}}


@st.composite
def gated(draw: st.DrawFn) -> str:
    """A flow with an approval somewhere inside containers, and steps with effects before and behind it at every depth."""
    config = {"message": "Go?", "approvers": ["channel"]} | draw(
        st.sampled_from([{}, {"timeout": "5m", "on_timeout": "reject"}])
    )
    nodes: list[dict[str, Any]] = [{"id": "gate", "type": "approval", "with": config}]
    count = 0
    for kind in draw(st.lists(st.sampled_from(["foreach", "loop", "parallel", "switch"]), max_size=3)):
        nodes = [_node("shell", count, []), *nodes, _node("shell", count + 1, [])]
        nodes = [_node(kind, count + 2, nodes)]
        if draw(st.booleans()):
            nodes[0]["retry"] = {"attempts": 2}
        count += 3
    return json.dumps({"flow": "demo", "nodes": [*nodes, _node("shell", count, [])]})


def check_gated(text: str) -> None:
    """Nothing starts after a rejection, nor after the time is over where that rejects."""
    case = core(text).started()
    while not case.state.open_prompts:
        for path in sorted(case.state.active):
            if case.state.nodes[path].type == "shell":
                case.when(NodeDone(path, 1, OUTCOMES["shell"]))
    state, prompt = case.state, case.prompt
    for ends in (rejected, expired) if prompt.on_timeout == "reject" else (rejected,):
        after = at(case.flow, state)
        assert ends(after, prompt) == []
        assert (after.state.status, is_rejection(after.state.error)) == ("failed", True)


@settings(max_examples=tries(60))
@given(gated())
def test_no_generated_flow_does_anything_after_a_rejection(text: str) -> None:
    """Whatever stands around the approval, and whatever retries: 0 later effects, and the session fails."""
    check_gated(text)


@st.composite
def dead_ends(draw: st.DrawFn) -> str:
    """Graphs with dead branches and loop edges that are used up."""
    count = draw(st.integers(2, 6))
    nodes = [{"id": f"n{number}", "type": "noop"} for number in range(count)]
    pairs = [(a, b) for b in range(count) for a in range(b)]
    edges: list[dict[str, Json]] = []
    for a, b in draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True)):
        edges.append(
            {"from": f"n{a}", "to": f"n{b}", "when": draw(st.sampled_from(["{{ false }}", "{{ true }}"]))}
        )
        if draw(st.booleans()):
            when = draw(st.sampled_from(["{{ false }}", "{{ true }}"]))
            edges.append({"from": f"n{b}", "to": f"n{a}", "type": "loop", "max_iterations": 1, "when": when})
    return json.dumps({"flow": "demo", "nodes": nodes, "edges": edges})


def check_dead_end(text: str) -> None:
    """A graph completes only where a final node was reached and no loop edge would have been taken once more."""
    case = core(text).started()
    nodes, runs = case.flow.lists[""], {run.node_id: run for run in case.state.nodes.values()}
    reached = any(runs[name].reason != DEAD for name in nodes.finals if name in runs)
    wanted = [
        edge
        for edge in nodes.edges
        if edge.type == "loop" and edge.when is not None and edge.when.raw == "{{ true }}"
    ]
    used_up = any(edge.from_ in runs and runs[edge.from_].status == "completed" for edge in wanted)
    assert case.state.status == ("complete" if reached and not used_up else "failed")


@settings(max_examples=tries(100))
@given(dead_ends())
def test_no_generated_graph_ends_as_a_success_that_did_not_reach_its_end(text: str) -> None:
    """With limits, dead branches or unreached final nodes, no session is `complete`."""
    check_dead_end(text)


# --- seeded faults ----------------------------------------------------------------------------------------

GATE: dict[str, Json] = {
    "id": "gate",
    "type": "approval",
    "with": {"message": "Go?", "approvers": ["channel"]},
}
GATED = json.dumps({"flow": "demo", "nodes": [GATE, _node("shell", 0, [])]})
RETRIED = json.dumps(
    {
        "flow": "demo",
        "nodes": [{**_node("foreach", 1, [_node("shell", 0, []), GATE]), "retry": {"attempts": 2}}],
    }
)
TWO = [{"id": "n0", "type": "noop"}, {"id": "n1", "type": "noop"}]
BACK: dict[str, Json] = {"from": "n1", "to": "n0", "type": "loop", "max_iterations": 1, "when": "{{ true }}"}
USED_UP = json.dumps(
    {"flow": "demo", "nodes": TWO, "edges": [{"from": "n0", "to": "n1", "when": "{{ true }}"}, BACK]}
)
DEAD_END = json.dumps(
    {"flow": "demo", "nodes": TWO, "edges": [{"from": "n0", "to": "n1", "when": "{{ false }}"}]}
)


def _completes(step: Step, path: str, output: dict[str, Json]) -> None:
    step.complete(path, output)


def _only_presses(step: Step, path: str, output: dict[str, Json]) -> None:
    (conclude if output.get("by") else _completes)(step, path, output)


FAULTS: dict[str, tuple[Any, str, Any, Callable[[str], None], str]] = {
    "a rejection counts as completed": (replies, "conclude", _completes, check_gated, GATED),
    "only people reject, a timeout completes": (replies, "conclude", _only_presses, check_gated, GATED),
    "a loop edge that is used up is simply not taken": (graphs.limits, "edge_error", lambda *_: None, check_dead_end, USED_UP),
    "a graph ends wherever its edges are dead": (graphs, "_unreached", lambda *_: None, check_dead_end, DEAD_END),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_the_proof_sees_the_fault(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these faults makes its check fail."""
    module, attribute, fault, check, text = FAULTS[name]
    text = text.replace('["channel"]', '["channel"], "timeout": "5m", "on_timeout": "reject"')
    check(text)
    monkeypatch.setattr(module, attribute, fault)
    with pytest.raises(AssertionError):
        check(text)


def test_the_proof_sees_a_rejection_that_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container around it that is retried would ask, and do what is before it, once more."""
    check_gated(RETRIED)
    monkeypatch.setattr("engine.decide.step.REJECTED", "nothing")
    case = core(RETRIED).started()
    case.when(NodeDone("n1[0]/n0", 1, OUTCOMES["shell"]))
    case.when(case.answer("reject"))
    assert case.state.status == "paused"
