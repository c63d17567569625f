"""The fold of a session's journal: `evolve` is the only way in which a state comes to be.

States are values: an event gives a new one that shares what did not change (persistent maps), so a step that fails to
commit is undone by forgetting it. The cost of an event does not depend on how much has completed.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from engine.journal.events import Event
from engine.journal.state import Owed, State
from engine.journal.transitions import step
from engine.language.errors import MalformedJournal


def evolve(state: State, event: Event) -> State:
    """The state after an event. Raises `MalformedJournal`, naming the event, for what cannot follow."""
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
    """What is owed after this event, of what was owed before it. Raises `MalformedJournal` where something else is."""
    first = state.owed[0]
    if event.timestamp != state.updated_at:
        raise MalformedJournal(
            f"it is of another time than the step that it is in: {_told(first)} is missing"
        )
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
"""What may stand before something that is owed; else it is that the session is woken by it."""


def _told(owed: Owed) -> str:
    what = " or ".join(owed.types)
    return f"{what} of {owed.id or owed.path}" if owed.id or owed.path else what


def derive_state(events: Iterable[Event], start: State | None = None) -> State:
    """The fold over a whole journal, or over the events after a snapshot."""
    state = start if start is not None else State()
    for event in events:
        state = evolve(state, event)
    return state
