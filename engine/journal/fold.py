"""The fold of a session's journal: `evolve` is the only way in which a state comes to be.

States are values: an event gives a new one that shares what did not change (persistent maps), so a step that fails to
commit is undone by forgetting it. The cost of an event does not depend on how much has completed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from msgspec.structs import replace

from engine.journal.events import EVENTS, Event
from engine.journal.folds import agents, containers, grants, nodes, outcomes, prompts, session
from engine.journal.grammar import OWES, still_owed
from engine.journal.state import State
from engine.journal.transitions import step
from engine.language.errors import MalformedJournal


def _of_events(*modules: ModuleType) -> dict[str, Callable[[State, Any], Any]]:
    """The function for each event, in the first of these modules that has one. It is named as the event's class is:
    `prompt_shown` for `PromptShown`."""
    found = {}
    for name, kind in EVENTS.items():
        function = re.sub(r"(?<!^)([A-Z])", r"_\1", kind.__name__).lower()
        found[name] = next(getattr(module, function) for module in modules if hasattr(module, function))
    return found


_FOLDS = _of_events(agents, outcomes, containers, grants, nodes, prompts, session)
"""Each gives the state after its event, or raises `MalformedJournal` with the reason why the event cannot follow. What an
event means for an agent comes before what it means for any node."""


def evolve(state: State, event: Event) -> State:
    """The state after an event. Raises `MalformedJournal`, naming the event, for what cannot follow."""
    if event.seq != state.seq + 1:
        raise MalformedJournal(f"event {event.seq} ({event.type}) does not follow event {state.seq}")
    try:
        phase = step(state.phase, event.transition)
        owed = still_owed(state, event) if state.owed else ()
        kind = event.type
        moved: State = _FOLDS[kind](state, event)
    except MalformedJournal as error:
        raise MalformedJournal(f"event {event.seq} ({event.type}): {error}") from None
    owes = OWES.get(kind)
    if owes is not None:
        owed = owes(state, event) + owed
    return replace(moved, phase=phase, seq=event.seq, updated_at=event.timestamp, owed=owed)


def derive_state(events: Iterable[Event], start: State | None = None) -> State:
    """The fold over a whole journal, or over the events after a snapshot."""
    state = start if start is not None else State()
    for event in events:
        state = evolve(state, event)
    return state
