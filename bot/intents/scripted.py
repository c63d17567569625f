"""Says in threads that a script answers in the place of Claude. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bot.intents.session_rows import note_row
from engine.journal.events import ContainerStarted, Event
from engine.journal.records import PutOutbox
from engine.journal.state import State

SCRIPTED = (
    "🎭 _A script answers here in the place of Claude. It says the same each time, whatever you write._"
)


def scripted_rows(before: State, after: State, events: Sequence[Event]) -> list[PutOutbox]:
    """What tells a thread that nobody thinks about what is asked: once, before the first agent says anything."""
    thread = after.thread or {}
    begun = any(isinstance(event, ContainerStarted) and event.kind == "agent" for event in events)
    if not begun or not thread.get("key"):
        return []
    key, lane = f"scripted:{after.session_id}", str(thread["key"])
    return [note_row(key, lane, thread["channel"], thread["threadTs"], SCRIPTED, session_id=after.session_id)]
