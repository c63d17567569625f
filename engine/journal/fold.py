"""The fold of a session's journal: `evolve` is the only way to derive a state.

States are values: an event yields a new one that shares unchanged parts (persistent maps), so a step that fails to
commit is undone by dropping it. The cost of an event does not depend on the number of completed nodes.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from engine.journal.events import Event
from engine.journal.state import Owed, State
from engine.journal.transitions import step
from engine.language.errors import MalformedJournal


def evolve(state: State, event: Event) -> State:
    """Return the state after an event. Raises `MalformedJournal`, naming the event, if it cannot follow."""
    if event.seq != state.seq + 1:
        raise MalformedJournal(f"event {event.seq} ({event.type}) does not follow event {state.seq}")
    try:
        phase = step(state.phase, event.transition)
        owed = _still_owed(state, event) if state.owed else ()
        moved = event.fold(state)
    except MalformedJournal as error:
        raise MalformedJournal(f"event {event.seq} ({event.type}): {error}") from None
    return replace(
        moved, phase=phase, seq=event.seq, updated_at=event.timestamp, owed=event.owes(state) + owed
    )


def _still_owed(state: State, event: Event) -> tuple[Owed, ...]:
    """Return the events that are still owed after this one. Raises `MalformedJournal` if another one is due."""
    first = state.owed[0]
    if event.timestamp != state.updated_at:
        raise MalformedJournal(f"its time differs from that of its step: {_told(first)} is missing")
    if event.type not in first.types:
        if event.type in _BETWEEN.get(first.types[0], ("flow:resumed",)):
            return state.owed
        raise MalformedJournal(f"before it {_told(first)} is missing")
    if first.path is not None and event.path != first.path:
        raise MalformedJournal(f"before it {_told(first)} is missing")
    if first.id is not None and first.id not in (getattr(event, name, None) for name in _IDS):
        raise MalformedJournal(f"before it {_told(first)} is missing")
    return state.owed[1:]


_IDS = ("timer_id", "prompt_id")
_BETWEEN = {"session:message": ("prompt:escalated",)}
"""Events that may come before an owed one; by default, the one that wakes the session."""


def _told(owed: Owed) -> str:
    what = " or ".join(owed.types)
    return f"{what} of {owed.id or owed.path}" if owed.id or owed.path else what


def derive_state(events: Iterable[Event], start: State | None = None) -> State:
    """The fold over a whole journal, or over the events after a snapshot."""
    state = start if start is not None else State()
    for event in events:
        state = evolve(state, event)
    return state
