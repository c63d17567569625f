"""What people are told of a row that could not be handled: in its thread, else whoever sent it."""

from __future__ import annotations

from collections.abc import Sequence

from bot import words
from bot.intents import direct_row, note_row
from engine.codec import decode
from engine.engine import Engine
from engine.storage.port import InboxRow, Row


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
            return [note_row(key, thread, channel, thread_ts, words.dead_letter_text(row.key))]
        person = decode(row.payload).get("user")
        return [direct_row(key, person, words.dead_letter_text(row.key))] if person else ()

    async def _thread(self, row: InboxRow) -> str | None:
        if row.thread_key is not None or row.session_id is None:
            return row.thread_key
        head = await self._engine.head(row.session_id)
        return head.thread_key
