"""A session as it is stored, for whoever only looks: that takes no event loop, and no engine."""

from __future__ import annotations

from datetime import UTC, datetime

from engine.journal.events import decode_event
from engine.journal.fold import derive_state
from engine.journal.snapshot import fold
from engine.journal.state import State
from engine.language import timestamps
from engine.storage.port import Store


def utc_now() -> str:
    """Now, as it is stored."""
    return timestamps.to_text(datetime.now(UTC))


def stored_state(store: Store, session_id: str) -> State:
    """The state of a session as an engine would load it, for whoever only looks.

    Raises `UnknownSession`, `Corrupt`, `MalformedJournal`.
    """
    state = fold(store.load(session_id))
    return state if state is not None else derive_state(map(decode_event, store.journal(session_id)))
