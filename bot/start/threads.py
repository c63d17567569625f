"""Flows whose thread begins with a message of the bot: by a slash command, a form, a schedule, or `start-flow`.

A row that wishes for one posts the message; once that stands (or Slack refused it), a second row starts the flow.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace

from bot.inbound import decisions
from bot.intents.session_rows import direct_row
from bot.outbound.notices import Notices, held, retried
from bot.rendering.phrases import not_begun_text, root_text
from bot.rendering.text import escape
from bot.start.schedules import WANTED, WANTED_ROOTED
from bot.start.starter import Refusal, Starter, Wish, in_thread, nowhere, on_message, to_presser
from bot.wire.users import Channels, LookupFailed, UnknownPerson
from engine.journal.records import InboxRow, Row
from engine.language.actors import Actor
from engine.language.codec import Json, decode
from engine.run.engine import Engine

log = logging.getLogger("sayso.start")


@dataclass(eq=False, repr=False)
class ThreadStarts:
    """Begins threads, and starts flows in them.

    `admins` are told what nobody else would notice.
    """

    engine: Engine
    starter: Starter
    channels: Channels
    notices: Notices
    team: str
    admins: Collection[str] = ()

    def handlers(self) -> dict[str, Callable[[InboxRow], Awaitable[bool]]]:
        """By kind of inbox row."""
        return {
            decisions.ROOTED: self.rooted,
            WANTED: retried(self.wanted),
            WANTED_ROOTED: self.wanted_rooted,
        }

    # --- by a person in Slack ------------------------------------------------------------------------------

    async def begin(self, row: InboxRow, data: dict[str, Json], flow: str, inputs: dict[str, Json]) -> bool:
        """Start a flow for whoever pressed or commanded it."""
        wish = Wish(flow, inputs, data)
        try:
            wish = replace(wish, actor=await self.starter.person(wish))
        except UnknownPerson as error:
            return await self.notices.not_looked_up(row, data, error)
        except LookupFailed as error:
            return held(row, error)
        payload = {**data, "flow": flow, "inputs": inputs}
        text = root_text(data["user"], flow)
        told = to_presser(row, data)
        return await self.starter.begin_thread(row, wish, decisions.ROOTED, payload, text, told)

    async def rooted(self, row: InboxRow) -> bool:
        """The message stands: start the flow in its thread."""
        data = decode(row.payload)
        if "refused" not in data:
            ts = data["posted"]["ts"]
            wish = Wish(data["flow"], data["inputs"], data)
            return await self.starter.start(row, wish, ts, in_thread(row, data, ts))
        place = f"<#{data['channel']}>"
        text = not_begun_text(f"*{escape(data['flow'])}*", place, escape(data["refused"]))
        if data.get("responseUrl"):
            return await self.starter.refuse(row, Refusal(text), to_presser(row, data))
        said = direct_row(f"direct:{row.key}", data["user"], text)
        return await self.starter.refuse(row, Refusal(text), lambda refusal: [said])

    # --- by a schedule, or from the command line -----------------------------------------------------------

    async def wanted(self, row: InboxRow) -> bool:
        """A flow that is wanted in a channel. Whoever waits for the answer at the terminal reads it in the row."""
        data = decode(row.payload)
        channel = await self.channels.id_of(data["place"])
        if channel is None:
            return await self._not_rooted(row, {**data, "channel": None, "refused": "not_in_channel"})
        payload = {**data, "team": self.team, "channel": channel}
        wish = Wish(data["flow"], data["inputs"], payload, actor=_wisher(data))
        text = f"{data['icon']} *{escape(data['flow'])}* · {escape(data['why'])}"
        return await self.starter.begin_thread(row, wish, WANTED_ROOTED, payload, text, nowhere)

    async def wanted_rooted(self, row: InboxRow) -> bool:
        """The message stands: start the flow in its thread."""
        data = decode(row.payload)
        if "refused" in data:
            return await self._not_rooted(row, data)
        ts = data["posted"]["ts"]
        wish = Wish(data["flow"], data["inputs"], data, actor=_wisher(data))
        return await self.starter.start(row, wish, ts, on_message(row, data, ts))

    async def _not_rooted(self, row: InboxRow, data: Mapping[str, Json]) -> bool:
        """Slack refused the message: the command line reads it in the row, of a schedule the admins are told."""
        words = not_begun_text(data["flow"], data["place"], data["refused"])
        log.error("%s", words)
        told: list[Row] = []
        if not data.get("local"):
            channel, day = data["channel"], self.engine.now()[:10]
            place = f"<#{channel}>" if channel else escape(data["place"])
            text = not_begun_text(f"*{escape(data['flow'])}*", place, escape(data["refused"]))
            scope = f"{data['flow']}:{data['place']}:{day}"
            told = [
                direct_row(f"unrooted:{admin}:{scope}", admin, f"⛔ {text} ({escape(data['why'])})")
                for admin in sorted(self.admins)
                if not admin.startswith("@")
            ]
        return await self.starter.refuse(row, Refusal(escape(words)), lambda refusal: told)


def _wisher(data: Mapping[str, Json]) -> Actor:
    """Whoever called `start-flow`, else the schedule."""
    return Actor.local(data["local"]) if data.get("local") else Actor.itself("schedule", "a schedule")
