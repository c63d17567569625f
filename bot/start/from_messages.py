"""Flows that people start with a message to the bot or a slash command; who only asks gets told."""

from __future__ import annotations

from collections.abc import Sequence

from bot.config.library import Library
from bot.inbound import decisions
from bot.inbound.start_command import BadLine, parse
from bot.inbound.triggers import Listening
from bot.outbound.notices import Notices, held
from bot.rendering import phrases
from bot.rendering.blocks import rendered
from bot.rendering.notes import note
from bot.rendering.starts import start_blocks
from bot.start.refusals import Refusal, in_thread, to_presser
from bot.start.starter import Starter, Wish
from bot.start.status import SessionStatus
from bot.start.threads import ThreadStarts
from bot.wire.users import LookupFailed, People, UnknownPerson
from engine.journal.records import Head, InboxRow
from engine.language.codec import Json, decode
from prompt_state.routing import Message, control_word


def asks_about_flows(said: Message) -> bool:
    """Whether a message asks which flows there are, how they go, or how all this works."""
    return control_word(said.text) in ("help", "status") or said.text.lower() in ("list", "flows")


class MessageStarts:
    """Begins flows for inbox rows, or says why not."""

    def __init__(
        self,
        library: Library,
        people: People,
        home: decisions.Home,
        starter: Starter,
        threads: ThreadStarts,
        standing: SessionStatus,
        telling: Notices,
    ) -> None:
        self._library = library
        self._people = people
        self._home = home
        self._starter = starter
        self._threads = threads
        self._status = standing
        self._notices = telling

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
                return await self._notices.nobody(row, error)
            except LookupFailed as error:
                return held(row, error)
            return await self._notices.look(row, data, actor, await self._about_flows(said, data["channel"]))
        flows = self._library.refresh()
        thread_ts = data["threadTs"] or data["ts"]
        told = in_thread(row, data, thread_ts)
        line = Listening(flows).mentioned(said.text) or parse(said.text, flows, self._library.faults())
        if isinstance(line, BadLine):
            return await self._starter.refuse(row, Refusal(line.message), told)
        wish = Wish(line.flow, line.inputs, data, in_channel=True)
        return await self._starter.start(row, wish, thread_ts, told)

    async def _about_flows(self, said: Message, channel: str) -> str:
        word = control_word(said.text)
        if word == "status":
            return await self._status.running(channel)
        flows = self._library.refresh()
        return phrases.help_text(flows) if not said.text or word == "help" else phrases.flows_text(flows)

    # --- slash commands ------------------------------------------------------------------------------------

    async def slash(self, row: InboxRow) -> bool:
        """`/sayso run NAME ...`: a message that the bot posts becomes the thread; the session starts there."""
        data = decode(row.payload)
        line = parse(data["text"], self._library.refresh(), self._library.faults())
        if isinstance(line, BadLine):
            return await self._starter.refuse(row, Refusal(line.message), to_presser(row, data))
        return await self._threads.begin(row, data, line.flow, dict(line.inputs))

    async def ask(self, decision: decisions.Ask) -> dict[str, Json]:
        """The answer to a slash command that changes nothing, as a message."""
        flows = self._library.refresh()
        if decision.word == "status":
            return {"text": note(await self._status.running(decision.data["channel"])).text}
        listed = decision.word in ("list", "flows")
        text = phrases.flows_text(flows) if listed else phrases.slash_help(flows, decision.word)
        blocks = start_blocks(text, flows)
        return {"text": rendered(text, blocks).text, "blocks": blocks}
