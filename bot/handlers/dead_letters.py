"""What people are told of what was set aside: a row that could not be handled, a session that does not verify."""

from __future__ import annotations

from collections.abc import Sequence

from bot.intents.session_rows import direct_row, note_row
from bot.rendering import phrases
from engine.journal.records import Head, InboxRow, Row
from engine.language.codec import decode
from engine.run.engine import Engine


class DeadLetters:
    """Makes the intents for rows that are set aside."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def told(self, row: InboxRow) -> Sequence[Row]:
        """The intents that say it; none for what nobody did, as when a channel was archived."""
        # Tried again under another id, and failed again: that is said again.
        key, thread = f"dead:{row.key}:{row.id}", await self._thread(row)
        if thread is not None:
            _, channel, thread_ts = thread.split(":", 2)
            return [note_row(key, thread, channel, thread_ts, phrases.dead_letter_text(row.key))]
        person = decode(row.payload).get("user")
        return [direct_row(key, person, phrases.dead_letter_text(row.key))] if person else ()

    async def _thread(self, row: InboxRow) -> str | None:
        if row.thread_key is not None or row.session_id is None:
            return row.thread_key
        head = await self._engine.head(row.session_id)
        return head.thread_key


def quarantine_rows(head: Head, reason: str) -> Sequence[Row]:
    """What the thread is told when its session's records do not verify."""
    return _note(head, "quarantine", phrases.quarantine_text(head.flow_name, head.session_id))


def newer_rows(head: Head) -> Sequence[Row]:
    """What the thread is told when its session is left to a newer release."""
    return _note(head, "newer", phrases.newer_text(head.flow_name, head.session_id))


def _note(head: Head, about: str, text: str) -> Sequence[Row]:
    if head.thread_key is None:
        return ()
    _, channel, thread_ts = head.thread_key.split(":", 2)
    return [note_row(f"{about}:{head.session_id}", head.thread_key, channel, thread_ts, text)]
