"""What the folds of events share."""

from __future__ import annotations

from typing import Any

from immutables import Map

from engine.journal.events import Event
from engine.journal.state import Frame, State
from engine.language.errors import MalformedJournal


def path_of(event: Event) -> str:
    if event.path is None:
        raise MalformedJournal("has no path")
    return event.path


def frame_at(state: State, scope: str) -> Frame:
    frame = state.frames.get(scope)
    if frame is None:
        raise MalformedJournal(f"nothing goes on in {scope or 'the flow'}")
    return frame


def without(found: Map[Any, Any], key: Any) -> Map[Any, Any]:
    """A map without a key that may be in it."""
    return found.delete(key) if key in found else found
