"""How people begin flows: with a message to the bot, with a slash command, with a view. Who only asks gets told."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from bot.config.library import Library
from bot.inbound import decisions
from bot.inbound.start_command import BadLine, StartLine, parse
from bot.inbound.triggers import Listening
from bot.intents.session_rows import direct_row, respond_row, root_row
from bot.outbound.notices import Telling, held
from bot.rendering import phrases
from bot.rendering.blocks import rendered
from bot.rendering.notes import note
from bot.rendering.starts import start_blocks
from bot.rendering.text import escape, plain
from bot.start.starter import Starter
from bot.start.status import Standing
from bot.wire.users import LookupFailed, People, UnknownPerson
from engine.journal.records import Head, InboxRow
from engine.language.codec import Json, decode
from prompt_state.routing import Message, control_word

log = logging.getLogger("sayso.conversation")


def asks_about_flows(said: Message) -> bool:
    """Whether a message asks which flows there are, how they go, or how all this works."""
    return control_word(said.text) in ("help", "status") or said.text.lower() in ("list", "flows")


class Beginnings:
    """Begins flows for inbox rows, or says why not."""

    def __init__(
        self,
        library: Library,
        people: People,
        home: decisions.Home,
        starter: Starter,
        standing: Standing,
        telling: Telling,
    ) -> None:
        self._library = library
        self._people = people
        self._home = home
        self._starter = starter
        self._standing = standing
        self._telling = telling

    # --- messages ------------------------------------------------------------------------------------------

    def concerned(self, said: Message, data: dict[str, Json], heads: Sequence[Head]) -> bool:
        """Whether a message is to begin a flow or asks about flows; `heads` are the sessions of its thread."""
        return self._calls_us(said, data) and not said.edited and (not heads or self.names_flow(said))

    def _calls_us(self, said: Message, data: dict[str, Json]) -> bool:
        """Whether a message may start something: in the thread of a direct message only with a mention, for there an
        answer may well begin with the name of a flow."""
        in_own_thread = data["direct"] and data["threadTs"]
        return f"<@{self._home.bot_user_id}" in data["text"] if in_own_thread else said.mentions_bot

    def names_flow(self, said: Message) -> bool:
        """Whether a message says which flow it is about, by its name or by words for which one listens."""
        first = said.text.split(maxsplit=1)[0].lower() if said.text else ""
        if first == "run" or first in self._library.refresh():
            return True
        return Listening(self._library.refresh()).mentioned(said.text) is not None

    async def by_message(self, row: InboxRow, data: dict[str, Json], said: Message) -> bool:
        """A message that is `concerned`: begin what it names, or say what it asks for."""
        if not said.text or asks_about_flows(said):
            try:
                actor = await self._people.actor(data, in_channel=True)
            except UnknownPerson as error:
                return await self._telling.nobody(row, error)
            except LookupFailed as error:
                return held(row, error)
            return await self._telling.look(row, data, actor, await self._about_flows(said, data["channel"]))
        thread_ts = data["threadTs"] or data["ts"]
        return await self._start(row, data, said.text, thread_ts, in_channel=True)

    async def _about_flows(self, said: Message, channel: str) -> str:
        word = control_word(said.text)
        if word == "status":
            return await self._standing.running(channel)
        flows = self._library.refresh()
        return phrases.help_text(flows) if not said.text or word == "help" else phrases.flows_text(flows)

    # --- views and slash commands ---------------------------------------------------------------------------

    async def begin(self, row: InboxRow, data: dict[str, Json], flow: str, inputs: dict[str, Json]) -> bool:
        """Start a flow in the thread of a message that the bot posts; nothing is posted for whoever may not start it."""
        try:
            actor = await self._people.actor(data, entries=self._starter.entries(flow))
            refusal = await self._starter.refusal(data, actor, flow)
        except UnknownPerson as error:
            return await self._telling.not_looked_up(row, data, error)
        except LookupFailed as error:
            return held(row, error)
        if refusal is not None:
            if data.get("responseUrl"):
                return await self._answer_slash(row, data, refusal.text)
            return await self._telling.whisper(row, data, plain(refusal.text), "refused")
        payload: dict[str, Json] = {**data, "flow": flow, "inputs": inputs}
        then: dict[str, Json] = {"kind": decisions.ROOTED, "key": f"rooted:{row.key}", "payload": payload}
        text = phrases.root_text(data["user"], flow)
        await self._telling.consume(row, "rooting", root_row(f"root:{row.key}", data["channel"], text, then))
        return True

    async def slash(self, row: InboxRow) -> bool:
        """`/sayso run NAME ...`: a message that the bot posts becomes the thread; the session starts there."""
        data = decode(row.payload)
        line = parse(data["text"], self._library.refresh(), self._library.faults())
        if isinstance(line, BadLine):
            return await self._answer_slash(row, data, line.message)
        return await self.begin(row, data, line.flow, dict(line.inputs))

    async def rooted(self, row: InboxRow) -> bool:
        """The message of a slash command stands: start its session in that thread. Where Slack refused it, whoever asked
        is told."""
        data = decode(row.payload)
        if "refused" in data:
            return await self._not_rooted(row, data)
        line = StartLine(data["flow"], data["inputs"])
        return await self._start_line(row, data, line, data["posted"]["ts"])

    async def _not_rooted(self, row: InboxRow, data: dict[str, Json]) -> bool:
        place = f"<#{data['channel']}>"
        text = phrases.not_begun_text(f"*{escape(data['flow'])}*", place, escape(data["refused"]))
        if data.get("responseUrl"):
            return await self._answer_slash(row, data, text)
        await self._telling.consume(row, "refused", direct_row(f"direct:{row.key}", data["user"], text))
        return True

    async def _answer_slash(self, row: InboxRow, data: dict[str, Json], text: str) -> bool:
        await self._telling.consume(
            row, "refused", respond_row(f"respond:{row.key}", data["responseUrl"], text)
        )
        return True

    async def ask(self, decision: decisions.Ask) -> dict[str, Json]:
        """The answer to a slash command that changes nothing, as a message."""
        flows = self._library.refresh()
        if decision.word == "status":
            return {"text": note(await self._standing.running(decision.data["channel"])).text}
        listed = decision.word in ("list", "flows")
        text = phrases.flows_text(flows) if listed else phrases.slash_help(flows, decision.word)
        blocks = start_blocks(text, flows)
        return {"text": rendered(text, blocks).text, "blocks": blocks}

    # --- starting -------------------------------------------------------------------------------------------

    async def _start(
        self,
        row: InboxRow,
        data: dict[str, Json],
        text: str,
        thread_ts: str,
        *,
        in_channel: bool | None = None,
    ) -> bool:
        flows = self._library.refresh()
        line = Listening(flows).mentioned(text) or parse(text, flows, self._library.faults())
        return await self._start_line(row, data, line, thread_ts, in_channel=in_channel)

    async def _start_line(
        self,
        row: InboxRow,
        data: dict[str, Json],
        line: StartLine | BadLine,
        thread_ts: str,
        *,
        in_channel: bool | None = None,
    ) -> bool:
        if isinstance(line, BadLine):
            return await self._telling.tell(row, data, line.message, "refused", thread_ts=thread_ts)
        entries = self._starter.entries(line.flow)
        try:
            actor = await self._people.actor(data, entries=entries, in_channel=in_channel)
            refusal = await self._starter.start(row, data, actor, line.flow, line.inputs, thread_ts)
        except UnknownPerson as error:
            return await self._telling.nobody(row, error)
        except LookupFailed as error:
            log.warning("start %s is held: %s", row.key, error)
            return False
        return refusal is None or await self._telling.tell(
            row, data, refusal.text, "refused", thread_ts=thread_ts
        )
