"""Events of an app that is an agent of Slack's: its Messages tab was opened, one of its sessions was stopped."""

from __future__ import annotations

from dataclasses import dataclass

from bot.handlers.replies import Replies
from bot.inbound import decisions
from bot.intents.session_rows import suggest_row
from bot.outbound.notices import Notices
from bot.rendering.text import one_line
from bot.start.starter import Starter
from bot.wire.users import LookupFailed, People
from engine.decide.commands import Abort
from engine.journal.phases import ENDED
from engine.journal.records import InboxRow
from engine.language.codec import Json, decode
from engine.language.errors import SaysoError, StorageError
from engine.run.dispatcher import RowHandler

_MOST_PROMPTS = 4


@dataclass(eq=False, repr=False)
class AgentSurface:
    """Handles the inbox rows of these events."""

    people: People
    starter: Starter
    replies: Replies
    notices: Notices

    def handlers(self) -> dict[str, RowHandler]:
        """Return the handlers by kind of row."""
        return {decisions.TAB: self.tab, decisions.STOPPED: self.stopped}

    async def tab(self, row: InboxRow) -> bool:
        """Suggest the flows that this person may start here."""
        data = decode(row.payload)
        try:
            flows = await self.starter.startable(data, _MOST_PROMPTS)
        except LookupFailed:
            return await self.notices.consume(row, "ignored")
        prompts: list[Json] = [
            {"title": one_line(flow.description or flow.name, 75), "message": flow.name} for flow in flows
        ]
        return await self.notices.consume(row, "told", suggest_row(data["channel"], prompts))

    async def stopped(self, row: InboxRow) -> bool:
        """Cancel the runs in this thread that this person may cancel, like our own button."""
        data = decode(row.payload)
        heads = [head for head in await self.notices.heads(row.thread_key) if head.status not in ENDED]
        if not heads:
            return await self.notices.consume(row, "ignored")
        try:
            actor = await self.people.actor(data)
        except LookupFailed as error:
            return await self.notices.not_looked_up(row, data, error)
        abort = Abort(actor, "stopped in the thread")
        for head in heads[1:]:
            try:
                await self.notices.engine.apply(head.session_id, abort)
            except StorageError:
                raise
            except SaysoError:
                # The reason is reported for the last one.
                continue
        return await self.replies.do(row, data, heads[0].session_id, abort)
