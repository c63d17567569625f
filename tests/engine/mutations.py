"""Single mutations of a history: what somebody, or a fault, could have made of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from engine.journal.events import Event, decode_event
from engine.journal.fold import evolve
from engine.journal.state import State
from engine.language.codec import Json
from engine.language.errors import MalformedJournal

SAID = {
    "timestamp": "the clock is only in events: no other fact says what time it was",
    "definition": "a digest of a tool as its server or file says it, with which later calls are compared",
    "due_at": "a time that followed from that clock and the flow's text",
    **dict.fromkeys(
        ("actor", "thread", "shown", "to", "packages"),
        "a fact from outside of the session",
    ),
    **dict.fromkeys(
        (
            "output",
            "price",
            "error",
            "message",
            "reason",
            "content",
            "saved",
            "usage",
            "cost",
            "model",
            "stop_reason",
        ),
        "what a node, a person or a model said",
    ),
    **dict.fromkeys(("values", "before", "covers", "nonce"), "what was put before people"),
    **dict.fromkeys(
        ("body", "files", "drop", "dropped"), "what a runner made of a request, and what the API said of it"
    ),
    "unpaid": "whether a provider refused a call before any answer",
    "collected": "what a pass contributed",
    "given": "what the session was started with",
    "parent_session_id": "where the session comes from: the chain of MACs proves it",
    "input": "a configuration, or what a model wrote: what stood in the flow's expressions",
    "inputs": "what a called flow was given",
    "agent": "the settings of an agent",
    "prompt": "a question: its kind, number and path are compared, and have tests of their own",
    "answer": "what a person said; that it was offered, and the votes in it, have tests of their own",
    "vote": "what a person said",
    "interrupted": "whether a model was stopped",
    "key": "a row of the inbox",
    "frames": "places in a text that is not here",
    "nodes": "places in a text that is not here",
    "limit": "that a condition still held at a limit: its value is in no event",
    "epoch": "a number of the store: another store begins again",
    "flow_digest": "which text was pinned: `sayso verify` compares it with the text",
    "injected_messages": "counts what the events after it say",
    "on_conflict": "a word of the flow's text",
}
"""Fields whose value nobody can tell from the other events, and why. All others are derived and checked."""


TEXT = {
    "node_type": "the type that the text gives a node",
    "tool": "the place of a tool in the text's list of an agent's tools",
    "taken": "the edges of the text",
    "jump": "the loop edges of the text",
    "reset": "what comes after a node in the text",
    "unreached": "the nodes that the text has behind the one that failed",
    "list_id": "names a list of the text",
}
"""Fields that only the flow's text knows: the fold believes them, `sayso verify` does not."""


def is_said(event: Event, name: str) -> bool:
    """Whether nobody can tell this field's value."""
    if event.type == "container:iterationStarted" or (event.type, name) == ("flow:started", "input"):
        return name == "timestamp"
    unknown = (
        ("prompt:requested", "prompt_id"),
        ("session:start", "session_id"),
        # What a grant of another run is bound to is in its row.
        ("grant:given", "wide"),
        ("grant:used", "grant"),
        ("grant:used", "prompt_id"),
        ("grant:revoked", "grant"),
    )
    if event.type == "agent:outcome" and name in ("text", "max_tokens", "brief"):
        return True
    return name in SAID or (event.type, name) in unknown


class Mutant(NamedTuple):
    """A history with one thing wrong; `at` is the place in the list from which it differs."""

    name: str
    at: int
    events: list[Event]


def _numbered(events: Sequence[Event], at: int) -> list[Event]:
    return [*events[:at], *(replace(event, seq=seq) for seq, event in enumerate(events[at:], at + 1))]


def orders(events: Sequence[Event]) -> Iterator[Mutant]:
    """One event deleted, doubled, swapped with the next one, or given another number."""
    for at, event in enumerate(events):
        told = f"{event.seq} {event.type}"
        if at < len(events) - 1:
            yield Mutant(f"delete {told}", at, _numbered([*events[:at], *events[at + 1 :]], at))
            swapped = [*events[:at], events[at + 1], event, *events[at + 2 :]]
            yield Mutant(f"swap {told} and {events[at + 1].type}", at, _numbered(swapped, at))
        yield Mutant(f"double {told}", at, _numbered([*events[: at + 1], event, *events[at + 1 :]], at))
        for seq in (event.seq + 1, event.seq - 1, 0):
            yield Mutant(f"renumber {told}", at, [*events[:at], replace(event, seq=seq), *events[at + 1 :]])


def fields(events: Sequence[Event]) -> Iterator[Mutant]:
    """One field of one event wrong: an id or a path that is another's or nobody's, a number one off, a word of the same
    kind, nothing where there was something."""
    others = _values(events)
    for at, event in enumerate(events):
        for field in event.__struct_fields__:
            if field == "seq" or is_said(event, field):
                continue
            for wrong in _wrong(event, field, others):
                try:
                    made = decode_event(replace(event, **{field: wrong}).to_bytes())
                except MalformedJournal:
                    continue
                name = f"{event.seq} {event.type}.{field} = {wrong!r}, not {getattr(event, field)!r}"
                yield Mutant(name, at, [*events[:at], made, *events[at + 1 :]])


def _values(events: Sequence[Event]) -> dict[str, list[Any]]:
    """What is in a field somewhere in the history."""
    found: dict[str, dict[Any, None]] = {}
    for event in events:
        for field in event.__struct_fields__:
            value = getattr(event, field)
            if isinstance(value, str):
                found.setdefault(field, {})[value] = None
    return {name: list(values) for name, values in found.items()}


_WORDS = {
    "status": ("complete", "failed", "aborted"),
    "outcome": ("complete", "failed", "aborted", "approve", "fail"),
    "kind": ("foreach", "loop", "parallel", "switch", "flow", "agent"),
    "purpose": ("wait", "deadline", "retry", "timeout", "remind", "escalate", "unreachable"),
    "source": ("prompt", "person", "engine", "model"),
    "role": ("user", "assistant"),
    "vote": ("approve", "reject"),
}


def _wrong(event: Event, name: str, others: dict[str, list[Any]]) -> list[Json]:
    value: Any = getattr(event, name)
    made: list[Json] = [None]
    if isinstance(value, str):
        made += [*others[name][:4], "foreign", *_WORDS.get(name, ())]
    elif isinstance(value, bool):
        made += [not value]
    elif isinstance(value, int):
        made += [value + 1, value - 1]
    elif isinstance(value, list):
        made += [[], value[:-1], [*value, "foreign"]]
    elif isinstance(value, dict):
        made += [{}, {**value, "foreign": 1}]
    elif value is None and name in others:
        made += others[name][:2]
    return [wrong for wrong in made if wrong != value or type(wrong) is not type(value)]


class Prefixes:
    """Folds a mutant from where it differs."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._states = [State()]
        for event in events:
            self._states.append(evolve(self._states[-1], event))

    @property
    def last(self) -> State:
        """What the history itself folds to."""
        return self._states[-1]

    def fold(self, mutant: Mutant) -> State | None:
        """What the mutant folds to, or None where the fold refuses it."""
        state = self._states[mutant.at]
        try:
            for event in mutant.events[mutant.at :]:
                state = evolve(state, event)
        except MalformedJournal:
            return None
        return state
