"""What is done when people edit what they wrote: nothing, and they are told so where it matters."""

from __future__ import annotations

from dataclasses import dataclass

from bot.outbound.notices import Notices
from bot.rendering import phrases
from engine.journal.records import InboxRow
from engine.language.codec import decode
from engine.run.engine import Engine


@dataclass(frozen=True, slots=True)
class Edits:
    """Handles the inbox rows of edited messages."""

    engine: Engine
    telling: Notices

    async def edited(self, row: InboxRow) -> bool:
        """An edit changes nothing. Whoever edits what was used is told so, once; while that is not decided, it waits. What
        was missed and read later with these very words is no edit to anybody here."""
        data = decode(row.payload)
        key = f"message:{data['team']}:{data['channel']}:{data['ts']}"
        before = await self.engine.writer.call(self.engine.store.inbox_row, key)
        if before is not None and before.outcome is None:
            return False
        said = decode(before.payload) if before is not None else {}
        # An edit that adds a mention comes as a mention too, which counts for nothing.
        heard = before is not None and not said.get("edited")
        text = phrases.edited_text(before.outcome if before is not None and heard else None)
        read_so = heard and said.get("text") == data.get("text")
        if text is None or read_so:
            await self.telling.consume(row, "ignored")
            return True
        return await self.telling.whisper(row, data, text, "told")
