"""The fold: cuts, copies, malformed journals, and what an event costs."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import fields

from docs.generate import states
from engine.decide.commands import Hold, Resume
from engine.journal import events as ev
from engine.journal.events import EVENTS, Event, decode_event
from engine.journal.fold import derive_state, evolve
from engine.journal.phases import PHASES, Phase
from engine.journal.snapshot import (
    current_path,
    document,
    from_bytes,
    from_json,
    read_document,
    to_bytes,
    to_json,
)
from engine.journal.state import State
from engine.journal.transitions import TRANSITIONS
from engine.language.errors import MalformedJournal
from tests.engine.walks import Walk, walks
from tests.support.engine import ANA, START, Scenario, flow_of
from tests.support.proving import tries

KINDS: tuple[type[ev.Event], ...] = tuple(EVENTS.values())


@settings(max_examples=tries(60))
@given(walks())
def test_a_snapshot_and_the_tail_give_the_same_as_all_events(walk: Walk) -> None:
    """At every cut of every run: fold(all) == fold(snapshot of the first part + the rest)."""
    events = walk.events
    whole = derive_state(events)
    state = State()
    for cut, event in enumerate(events, 1):
        state = evolve(state, event)
        if cut % 3 == 0 or cut == len(events):
            restored = from_bytes(to_bytes(state))
            assert restored == state
            assert derive_state(events[cut:], restored) == whole
    assert whole == walk.case.state


@settings(max_examples=tries(60))
@given(walks())
def test_snapshots_and_events_are_what_their_bytes_say(walk: Walk) -> None:
    """Encoding and decoding changes nothing: neither an event nor a snapshot document."""
    for event in walk.events:
        assert decode_event(event.to_bytes()) == event
    state = walk.case.state
    from engine.language.codec import encode

    assert read_document(encode(document(state))) == state


def test_every_event_type_has_a_fold_and_a_place_in_the_table() -> None:
    """No event can be written that the table or the fold does not know."""
    names = {kind.type for kind in KINDS}
    assert names == {event.removesuffix("(held)") for _, event in TRANSITIONS}
    assert [kind for kind in KINDS if "fold" not in vars(kind)] == []


FAMILIES: dict[type[Event], str] = {
    ev.Start: "node:started container:childStarted",
    ev.Completion: "node:completed container:childCompleted",
    ev.Failure: "node:failing node:error node:retried",
    ev.Setback: "node:failing node:error node:retried node:interrupted",
    ev.AttemptOver: "node:completed container:childCompleted node:failing node:error node:retried node:interrupted"
    " agent:toolResult",
    ev.CallOutcome: "agent:message agent:compacted",
    ev.Closing: "prompt:answered prompt:expired prompt:cancelled",
    ev.Closure: "session:abort session:end",
    ev.Boundary: "session:start session:abort session:end",
}
"""The events that are meant where code names a family of them."""


@pytest.mark.parametrize(("family", "names"), FAMILIES.items(), ids=lambda one: getattr(one, "__name__", ""))
def test_a_family_has_the_events_that_are_meant(family: type[Event], names: str) -> None:
    """No event is left out of its family, and none is in another one."""
    assert {kind.type for kind in KINDS if issubclass(kind, family)} == set(names.split())


_SAMPLES: dict[str, Any] = {
    "status": "complete",
    "outcome": "complete",
    "epoch": 1,
    "node_index": 0,
    "ready": ["a"],
    "content": [{"type": "text", "text": "x"}],
}


def sample(kind: type[ev.Event], seq: int = 1) -> Event:
    """An event of that type with something in every field that must be there."""
    values: dict[str, Any] = {"seq": seq, "timestamp": START, "path": "a"}
    for field in fields(kind):
        if field.name not in values and field.required:
            values[field.name] = _SAMPLES.get(field.name) or _of(field.type)
    return kind(**values)  # type: ignore[return-value]  # every member of the union


def _of(annotation: Any) -> Any:
    if annotation == list[str]:
        return ["x"]
    if annotation is int:
        return 0
    if annotation == dict[str, int]:
        return {}
    if getattr(annotation, "__origin__", None) is dict:
        return {"kind": "ask"}
    choices = [value for value in get_args(annotation) if isinstance(value, str)]
    return choices[0] if choices else "x"


ILLEGAL = [(phase, kind) for phase in PHASES for kind in KINDS if (phase, kind.type) not in TRANSITIONS]


@pytest.mark.parametrize(("phase", "kind"), ILLEGAL, ids=lambda value: getattr(value, "__name__", str(value)))
def test_what_the_table_does_not_list_cannot_happen(phase: Phase, kind: type[ev.Event]) -> None:
    """An event outside of its phases is a malformed journal, and the error names event and phase."""
    event = sample(kind, 8)
    with pytest.raises(MalformedJournal, match=rf"event 8 \({event.type}\).*{phase}"):
        evolve(State(phase=phase, seq=7), event)


@pytest.mark.parametrize("seq", [0, 1, 2, 4, 5, -1])
def test_a_gap_or_a_repetition_is_malformed(seq: int) -> None:
    """Events follow one another without gap: after event 2 only event 3 can come."""
    with pytest.raises(MalformedJournal, match="does not follow event 2"):
        evolve(State(phase="running", seq=2), sample(ev.SessionMessage, seq))


def running_state() -> State:
    """A session with one started node, one completed node and an open prompt."""
    events: list[Any] = [
        ev.SessionStarted(
            seq=1,
            timestamp=START,
            session_id="s",
            flow_name="f",
            flow_digest="d",
            given={},
            actor={"id": "U1"},
        ),
        ev.FlowStarted(seq=2, timestamp=START, flow_name="f", input={}),
        ev.NodeStarted(
            seq=3, timestamp=START, path="a", node_id="a", node_type="noop", node_index=0, epoch=1, attempt=1
        ),
        ev.NodeCompleted(seq=4, timestamp=START, path="a", node_id="a", output=None),
        ev.NodeStarted(
            seq=5, timestamp=START, path="b", node_id="b", node_type="ask", node_index=1, epoch=1, attempt=1
        ),
        ev.PromptRequested(seq=6, timestamp=START, path="b", prompt_id="p", prompt={"kind": "ask"}),
        ev.PromptAnswered(
            seq=7, timestamp=START, path="b", prompt_id="p", actor={"id": "U1"}, answer={"value": 1}
        ),
    ]
    return derive_state(events)


FACT: dict[str, Any] = {"seq": 8, "timestamp": START}
NODE: dict[str, Any] = {"node_id": "x", "node_type": "noop", "node_index": 0, "epoch": 1, "attempt": 1}


@pytest.mark.parametrize(
    "event",
    [
        ev.FlowStarted(**FACT, flow_name="f", input={}),
        ev.NodeStarted(**FACT, path="a", **NODE),
        ev.NodeStarted(**FACT, path="b", **NODE),
        ev.NodeStarted(**FACT, **NODE),
        ev.NodeCompleted(**FACT, path="a", node_id="a"),
        ev.NodeCompleted(**FACT, path="never", node_id="never"),
        ev.NodeCompleted(**FACT, node_id="b"),
        ev.NodeFailed(**FACT, path="a", node_id="a", error={}, attempt=1),
        ev.NodeSkipped(**FACT, path="a", node_id="a", node_type="noop", reason="r"),
        ev.NodeSkipped(**FACT, path="b", node_id="b", node_type="noop", reason="r"),
        ev.NodeInterrupted(**FACT, path="a", node_id="a", reason="crash"),
        ev.NodeInterrupted(**FACT, path="never", node_id="never", reason="crash"),
        ev.PromptRequested(**FACT, path="b", prompt_id="p", prompt={"kind": "ask"}),
        ev.PromptRequested(**FACT, path="b", prompt_id="q", prompt={}),
        ev.PromptRequested(**FACT, prompt_id="q", prompt={"kind": "ask"}),
        ev.PromptShown(**FACT, prompt_id="p", shown={}),
        ev.PromptAnswered(**FACT, prompt_id="p", actor={}, answer={}),
        ev.PromptAnswered(**FACT, prompt_id="never", actor={}, answer={}),
        ev.PromptExpired(**FACT, prompt_id="p", outcome="fail"),
        ev.PromptCancelled(**FACT, prompt_id="p", reason="r"),
        ev.TimerSet(**FACT, timer_id="t", due_at=START, purpose="deadline", prompt_id="p"),
        ev.TimerFired(**FACT, timer_id="never"),
    ],
    ids=lambda event: f"{event.type} {event.path}",
)
def test_an_event_that_does_not_follow_is_malformed(event: Event) -> None:
    """A second start, an outcome of nothing, an answer to a closed prompt: the error names the event."""
    with pytest.raises(MalformedJournal, match=f"event 8 \\({event.type}\\)"):
        evolve(running_state(), event)


def test_a_session_ends_as_it_was_decided() -> None:
    """`session:end` with another status than the outcome is malformed."""
    failed = [
        ev.NodeFailed(seq=8, timestamp=START, path="b", node_id="b", error={}, attempt=1),
        ev.FlowFailed(seq=9, timestamp=START, path="b", error={}),
    ]
    with pytest.raises(MalformedJournal, match="ended as failed"):
        evolve(
            derive_state(failed, running_state()), ev.SessionEnd(seq=10, timestamp=START, status="complete")
        )


@pytest.mark.parametrize("missing", sorted(to_json(State())))
def test_a_snapshot_without_one_of_its_parts_is_malformed(missing: str) -> None:
    """A state document that lacks something the fold needs is refused, not guessed; projections may be absent."""
    projected = {
        "status", "currentNodeId", "currentNodeIndex", "containerStack", "loopCounters",
    }  # fmt: skip
    data = to_json(running_state())
    del data[missing]
    if missing in projected:
        assert from_json(data) == running_state()
    else:
        with pytest.raises(MalformedJournal):
            from_json(data)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"version":2}', b'{"version":1,"state":3}', b"\xff"])
def test_bytes_that_are_no_snapshot_are_malformed(data: bytes) -> None:
    """Whatever is in a snapshot row, reading it raises `MalformedJournal`."""
    with pytest.raises(MalformedJournal):
        read_document(data)
    with pytest.raises(MalformedJournal):
        from_bytes(data)


# --- what an event costs -----------------------------------------------------------------------------------

UNTOUCHED: dict[str, set[str]] = {
    "session:message": {"nodes", "active", "frames", "prompts", "open_prompts", "timers"},
    "prompt:requested": {"active", "frames", "timers", "messages", "seen"},
    "node:started": {"containers", "prompts", "open_prompts", "timers", "messages", "seen"},
    "node:completed": {"prompts", "open_prompts", "timers", "messages", "seen"},
    "node:interrupted": {"active", "frames", "prompts", "open_prompts", "timers", "messages", "seen"},
    "flow:paused": {"nodes", "active", "frames", "prompts", "open_prompts", "timers", "messages", "seen"},
    "flow:resumed": {"nodes", "active", "frames", "prompts", "open_prompts", "timers", "messages", "seen"},
    # The end of the time in which an answer can be taken back is noted in its prompt.
    "timer:fired": {"nodes", "active", "frames", "open_prompts", "messages", "seen"},
}


@settings(max_examples=tries(40))
@given(walks())
def test_what_an_event_does_not_touch_is_shared(walk: Walk) -> None:
    """The state after an event holds the very same maps for everything that the event is not about."""
    state = State()
    for event in walk.events:
        after = evolve(state, event)
        for name in UNTOUCHED.get(event.type, ()):
            assert getattr(after, name) is getattr(state, name), f"{event.type} copied {name}"
        state = after


@settings(max_examples=tries(5))
@given(st.integers(min_value=2, max_value=5))
def test_folding_an_event_shares_what_completed_long_ago(count: int) -> None:
    """After a thousand nodes, an event still shares every earlier outcome instead of copying it."""
    state = derive_state(
        [
            ev.SessionStarted(
                seq=1, timestamp=START, session_id="s", flow_name="f", flow_digest="d", given={}, actor={}
            ),
            ev.FlowStarted(seq=2, timestamp=START, flow_name="f", input={}),
        ]
    )
    for index in range(1000 + count):
        place: dict[str, Any] = {"path": f"n{index}", "node_id": f"n{index}"}
        started = ev.NodeStarted(
            seq=state.seq + 1,
            timestamp=START,
            **place,
            node_type="noop",
            node_index=index,
            epoch=1,
            attempt=1,
        )
        before = evolve(state, started)
        after = evolve(
            before, ev.NodeCompleted(seq=before.seq + 1, timestamp=START, **place, output={"n": index})
        )
        if index:
            assert after.nodes["n0"] is state.nodes["n0"]
        assert len(after.active) == 0
        state = after
    assert len(state.nodes) == 1000 + count


def test_the_diagram_says_what_the_table_says() -> None:
    """Every change of phase in the table is an arrow of the diagram, and nothing else is."""
    lines = states().removeprefix("```mermaid\n").splitlines()
    arrows = {tuple(line.split(":")[0].split(" --> ")) for line in map(str.strip, lines) if " --> " in line}
    moves = {(before, later) for (before, _), later in TRANSITIONS.items() if before != later}
    assert arrows == moves | {("[*]", "idle"), ("ended", "[*]")}
    assert lines[0] == "stateDiagram-v2"


def test_a_session_stands_at_its_oldest_wait() -> None:
    """`currentNodeId` is the oldest open prompt's node, else the oldest node that runs, else nothing."""
    state = running_state()
    assert current_path(state) == "b"
    assert to_json(state)["currentNodeIndex"] == 1
    ended = evolve(state, ev.NodeCompleted(seq=8, timestamp=START, path="b", node_id="b"))
    assert current_path(ended) is None
    assert (to_json(ended)["currentNodeId"], to_json(ended)["currentNodeIndex"]) == (None, 2)


def test_a_pause_in_a_later_visit_names_the_node() -> None:
    """Waiting, held and resumed on the second visit of a node: `nodeId` is its id, `path` says which visit it is."""
    case = Scenario(flow_of(AGAIN)).started()
    case.when(case.answer(text="no"))
    case.when(Hold(ANA, "lunch"))
    case.when(Resume("go on", ANA, "msg:1"))
    case.when(case.answer(text="yes"))
    places = [
        (event.type, event.node_id, event.path)
        for event in case.events
        if isinstance(event, ev.FlowPaused | ev.FlowResumed)
    ]
    assert {node_id for _, node_id, _ in places} == {"gate"}
    assert [path for name, _, path in places if name == "flow:paused"] == [
        "gate",
        *["gate~2"] * 3,
    ]


AGAIN = """
flow: again
nodes:
  - {id: gate, type: ask, with: {message: "Well?"}}
  - {id: done, type: noop}
edges:
  - {from: gate, to: gate, type: loop, when: "{{ nodes.gate.text == 'no' }}", max_iterations: 3}
  - {from: gate, to: done, when: "{{ nodes.gate.text != 'no' }}"}
"""
