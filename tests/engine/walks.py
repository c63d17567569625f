"""Random flows and random commands: what the property tests of the core walk through."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson
from hypothesis import strategies as st

from engine.decide.agents.kinds import KINDS
from engine.decide.commands import (
    Abort,
    Answer,
    Begin,
    Claimed,
    Command,
    Due,
    Edit,
    Gone,
    HandOver,
    Hold,
    Message,
    NodeBroke,
    NodeCut,
    NodeDone,
    Reachable,
    Resume,
    Revoke,
    Shown,
    Start,
    Steer,
    Unreachable,
)
from engine.decide.decide import carry_out
from engine.decide.step import Step
from engine.journal.events import Event
from engine.journal.state import State
from engine.language.errors import Refused, SessionError
from tests.engine import walk_agents
from tests.support.engine import ANA, BEN, SESSION, Scenario, check_invariants, flow_of

_COMMON: dict[str, st.SearchStrategy[Any]] = {
    "if": st.sampled_from(
        ["{{ inputs.yes }}", "{{ not inputs.yes }}", "{{ inputs.word == 'a' }}", "{{ '1' | fromjson }}"]
    ),
    "on_error": st.sampled_from(["fail", "continue", "ask"]),
    "on_crash": st.sampled_from(["again", "ask"]),
}
_CLOCKS: dict[str, Any] = {
    "remind_every": "1m",
    "escalate": [{"after": "1m", "to": [BEN.id], "may_answer": True}, {"after": "1h", "to": ["@sre"]}],
}
_FORM: dict[str, Any] = {"properties": {"n": {"type": "integer", "default": 1}}}
_WITH: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "noop": st.just({}),
    "set": st.sampled_from([{"x": "{{ inputs.word }}"}, {"x": "{{ inputs.missing.deep }}"}]).map(
        lambda with_: with_ if "missing" not in with_["x"] else {"x": "{{ ('{}' | fromjson).deep }}"}
    ),
    "fail": st.just({"message": "no"}),
    "wait": st.just({"for": "1m"}),
    "agent": walk_agents.agents(),
    "message": st.just({"text": "Hello"}),
    "shell": st.just({"run": ["ls"]}),
    "http": st.sampled_from([{"url": "http://e.org"}, {"url": "http://e.org", "method": "POST"}]),
    "ask": st.sampled_from(
        [
            {"message": "How?"},
            {"message": "Which?", "choices": ["a", "b"], "timeout": "1m"},
            {"message": "How?", "timeout": "1m", "on_timeout": "default", "default": "x"},
            {"message": "How?", **_CLOCKS, "timeout": "2h"},
            {"message": "How many?", "form": {"properties": {"n": {"type": "integer"}}, "required": ["n"]}},
        ]
    ),
    "approval": st.sampled_from(
        [
            {"message": "Go?", "approvers": ["channel"]},
            {"message": "Go?", "approvers": ["channel"], "timeout": "1m", "on_timeout": "approve"},
            {"message": "Go?", "approvers": ["channel"], **_CLOCKS, "required": 2, "veto": "majority"},
            {"message": "Go?", "approvers": ["channel"], "form": _FORM, "editable": ["n"], "required": 2},
        ]
    ),
}


_CONTAINERS = ("foreach", "loop", "parallel", "switch")


@st.composite
def _nodes(draw: st.DrawFn, prefix: str = "n", depth: int = 0) -> list[dict[str, Any]]:
    """A few nodes; containers of containers down to a depth of two. Ids are unique in the whole flow."""
    offered = sorted(_WITH) + (list(_CONTAINERS) if depth < 2 else [])
    kinds = draw(st.lists(st.sampled_from(offered), min_size=1, max_size=5 - 2 * depth))
    nodes = []
    for index, kind in enumerate(kinds):
        extra = {name: draw(values) for name, values in _COMMON.items() if draw(st.integers(0, 3)) == 0}
        if kind in _CONTAINERS:
            extra.pop("on_crash", None)
            extra |= draw(_inside(kind, f"{prefix}{index}", depth + 1))
        else:
            extra["with"] = draw(_WITH[kind])
        if kind in ("shell", "http") and draw(st.integers(0, 2)) == 0:
            extra["retry"] = {
                "attempts": 3,
                "delay": "1m",
                "backoff": draw(st.sampled_from(["fixed", "exponential"])),
            }
        name = f"{prefix}{index}"
        if draw(st.integers(0, 7)) == 0:
            extra["on_error"] = f"goto:{prefix}{draw(st.sampled_from(range(len(kinds))))}"
        if draw(st.integers(0, 7)) == 0:
            extra["on_failure"] = draw(_nodes(f"{name}f_", 2))
        nodes.append({"id": name, "type": kind, **extra})
    return nodes


@st.composite
def _graph(draw: st.DrawFn, nodes: list[dict[str, Any]]) -> dict[str, Any]:
    """The edges of a list, now and then: forward ones with gates and conditions, and perhaps one that leads back."""
    if len(nodes) < 2 or draw(st.integers(0, 2)):
        return {}
    ids = [node["id"] for node in nodes]
    gates = {name: draw(st.sampled_from(["any", "all"])) for name in ids}
    pairs = [(a, b) for place, b in enumerate(ids) for a in ids[:place]]
    conditions = [{}, {"when": "{{ inputs.yes }}"}, {"when": "{{ inputs.word == 'b' }}"}]
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    edges = [{"from": a, "to": b, "gate": gates[b], **draw(st.sampled_from(conditions))} for a, b in chosen]
    if draw(st.booleans()):
        a, b = draw(st.sampled_from(chosen))
        edges.append({"from": b, "to": a, "type": "loop", "max_iterations": draw(st.integers(1, 2))})
    return {"edges": edges}


@st.composite
def _inside(draw: st.DrawFn, kind: str, name: str, depth: int) -> dict[str, Any]:
    """What a container has beside its id."""
    match kind:
        case "foreach":
            with_ = {
                "items": draw(st.sampled_from([[], ["x"], [1, 2, 3]])),
                "concurrency": draw(st.integers(1, 2)),
            }
            body = draw(_nodes(f"{name}_", depth))
            return {"with": with_, "body": body, **draw(_graph(body))}
        case "loop":
            ends = st.sampled_from(["{{ index >= 2 }}", "{{ index >= 1 }}"])
            with_ = {"until": draw(ends), "max_iterations": draw(st.integers(1, 3))}
            with_["on_limit"] = draw(st.sampled_from(["fail", "continue"]))
            return {"with": with_, "body": draw(_nodes(f"{name}_", depth))}
        case "parallel":
            branches = {key: draw(_nodes(f"{name}{key}_", depth)) for key in ("l", "r")}
            return {"with": {"mode": draw(st.sampled_from(["fail_fast", "collect"]))}, "branches": branches}
        case _:
            case = draw(st.sampled_from(["{{ inputs.word }}", "z"]))
            return {"with": {"on": case}, "cases": {"a": draw(_nodes(f"{name}_", depth))}}


@st.composite
def _last(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A few nodes for the end, where nobody is asked."""
    kinds = draw(st.lists(st.sampled_from(["shell", "set", "wait", "fail"]), min_size=1, max_size=3))
    more = st.sampled_from([{}, {"on_crash": "again"}, {"on_error": "continue"}])
    return [
        {"id": f"last{index}", "type": kind, "with": draw(_WITH[kind]), **draw(more)}
        for index, kind in enumerate(kinds)
    ]


@st.composite
def flows(draw: st.DrawFn) -> str:
    """The text of a small flow (JSON, which is YAML)."""
    inputs = {
        "yes": {"type": "boolean", **({"default": True} if draw(st.booleans()) else {})},
        "word": {"type": "string", "default": "a"},
        "note": {"type": "string", "required": False},
    }
    limits = {"deadline": "1h", "max_node_runs": 60}
    nodes = draw(_nodes())
    document = {"flow": "walk", "inputs": inputs, "limits": limits, "nodes": nodes, **draw(_graph(nodes))}
    document["tools"] = walk_agents.TOOLS
    if draw(st.integers(0, 2)) == 0:
        document["finally"] = draw(_last())
    return orjson.dumps(document).decode()


@dataclass
class Walk:
    """A run of a random flow under random commands; invariants were checked after every command."""

    case: Scenario
    refusals: int = 0
    _step: Step | None = None

    @property
    def events(self) -> list[Event]:
        """The journal."""
        return self.case.events

    def step(self, command: Command, begin: bool) -> None:
        """Carry a command out, or be refused; what begins is due."""
        case = self.case
        if isinstance(command, Claimed):
            case.epoch += 1
        before = len(case.events)
        case.entropy = f"step-{before}"
        at_once = self._at_once(command, begin)
        try:
            case.only(command)
        except (Refused, SessionError):
            self.refusals += 1
        if begin and case.state.seq:
            case.only(Begin())
        assert case.events[before:] == at_once
        check_invariants(case.flow, case.events, case.state, case.epoch)
        walk_agents.check_conversations(case.flow, case.state)

    def _at_once(self, command: Command, begin: bool) -> list[Event]:
        """What the command and what begins after it write in one step, which looks only where something happened since the
        step before."""
        earlier, state = self._step, self.case.state
        if earlier is not None and earlier.state == state:
            state = earlier.state
        step = Step(self.case.flow, state, self.case._facts(), KINDS, earlier)
        with suppress(Refused, SessionError):
            carry_out(step, command)
        if begin and step.state.seq:
            carry_out(step, Begin())
        self._step = step
        return step.events


_OUTPUT = {"stdout": "", "stderr": "", "exit_code": 0, "seconds": 0.0}
_TEXTS = st.sampled_from(["yes", "a", "", "x" * 20000, "\ud800\x00", "{{ 1 }}"])
_VALUES = st.sampled_from(["a", "b", "approve", "reject", "done", "again", "abort", True, False, None, 3])
_KEYS = st.sampled_from([f"k{number}" for number in range(12)])
_WHO = st.sampled_from([ANA, BEN])


def is_turn(state: State, path: str) -> bool:
    """Whether this is a model call: what comes of it has a form of its own."""
    return path in state.nodes and state.nodes[path].type == "turn"


@st.composite
def commands(draw: st.DrawFn, case: Scenario) -> Command:
    """Any command, with names from this session most of the time."""
    state = case.state
    if not state.seq:
        given: dict[str, Any] = draw(st.sampled_from([{}, {"yes": True}, {"yes": "no", "word": "b"}]))
        return Start(SESSION, given, ANA)
    prompt_id = draw(st.sampled_from([*state.open_prompts, *state.prompts, "prompt-none"]))
    path = draw(st.sampled_from([*state.active, *state.nodes, "nowhere"]))
    attempt = draw(st.sampled_from([state.nodes[path].attempt if path in state.nodes else 1, 1, 2]))
    timer = draw(st.sampled_from([*state.timers, "timer-none"]))
    kind = draw(st.integers(0, 26))
    if walk_agents.calling(state) and (kind > 20 or (kind in (7, 8) and is_turn(state, path))):
        return draw(walk_agents.models(state))
    match kind:
        case 0 | 1:
            return Answer(prompt_id, draw(_WHO), draw(_KEYS), value=draw(_VALUES))
        case 2 | 3:
            return Answer(prompt_id, draw(_WHO), draw(_KEYS), text=draw(_TEXTS))
        case 4:
            return Message(draw(_TEXTS), draw(_WHO), draw(_KEYS))
        case 5:
            return Shown(prompt_id, {"ts": draw(_KEYS)})
        case 6:
            return Due(timer)
        case 7 | 8 if not is_turn(state, path):
            return NodeDone(path, attempt, draw(st.sampled_from([_OUTPUT, float("nan"), None])))
        case 9:
            return NodeBroke(path, attempt, {"type": "exit_code", "message": "no", "details": None})
        case 10:
            return NodeCut(path, attempt, draw(st.sampled_from(["cut", "timeout", "lost"])))
        case 11:
            return Claimed()
        case 12 if not state.launched:
            # Whoever performs a pause has let what was running leave first.
            return Hold(draw(_WHO))
        case 12:
            return Hold(draw(_WHO), waits=True)
        case 13:
            return Resume(draw(_TEXTS), draw(_WHO), draw(_KEYS))
        case 14:
            values = draw(st.dictionaries(st.sampled_from(["n", "m"]), st.integers(0, 3), max_size=2))
            made = [Edit(prompt_id, draw(_WHO), draw(_KEYS), values)]
            made += [Answer(prompt_id, draw(_WHO), draw(_KEYS), values=values)]
            return draw(st.sampled_from(made))
        case 15:
            return HandOver(prompt_id, draw(_WHO), draw(_KEYS), draw(st.sampled_from([ANA.id, BEN.id, "x"])))
        case 16:
            return Revoke(prompt_id, draw(_WHO), draw(_KEYS))
        case 17:
            shown = state.prompts[prompt_id].shown if prompt_id in state.prompts else None
            return Gone(prompt_id, str((shown or {}).get("ts")))
        case 18:
            return draw(st.sampled_from([Unreachable("is_archived"), Reachable()]))
        case 19:
            return Steer(draw(_TEXTS), draw(_WHO), draw(_KEYS))
        case _:
            return Abort(draw(_WHO)) if draw(st.integers(0, 4)) == 0 else Begin()


@st.composite
def walks(draw: st.DrawFn, longest: int = 25) -> Walk:
    """A random flow under up to so many random commands."""
    walk = Walk(Scenario(flow_of(draw(flows()))))
    for _ in range(draw(st.integers(1, longest))):
        if draw(st.integers(0, 3)) == 0:
            walk.case.later(draw(st.sampled_from([0.5, 60, 3600])))
        walk.step(draw(commands(walk.case)), begin=draw(st.integers(0, 4)) > 0)
    return walk
