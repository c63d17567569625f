"""Flows that people start with a message to the bot or a slash command; who only asks gets told how sessions stand."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from bot.config.library import Library
from bot.inbound import decisions
from bot.inbound.triggers import BadLine, Listening, parse
from bot.outbound.notices import Notices, held
from bot.outbound.progress import behind
from bot.rendering import phrases
from bot.rendering.blocks import rendered
from bot.rendering.flow import around
from bot.rendering.notes import note, start_blocks
from bot.start.starter import Refusal, Starter, Wish, in_thread, to_presser
from bot.start.threads import ThreadStarts
from bot.wire.users import LookupFailed, People, UnknownPerson
from engine.journal.records import Head, InboxRow
from engine.journal.state import State
from engine.language.codec import Json, decode
from engine.language.errors import SchemaTooNew
from engine.run.engine import Engine
from prompt_state.question_row import PromptState
from prompt_state.routing import Message, control_word

_MOST_SHOWN = 30
_MOST_LIVING = 10_000


class SessionStatus:
    """Reads sessions; writes nothing."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def of(self, heads: Sequence[Head]) -> str:
        """Where these sessions stand; what was set aside is left out."""
        sound = [head for head in heads if head.quarantined is None]
        found = [(state, await self._engine.flow_of(state.session_id)) for state in await self._states(sound)]
        queued = {state.session_id: await behind(self._engine.writer, state) for state, _ in found}
        return phrases.status_text(found, self._engine.now(), queued)

    async def places(self, meant: Sequence[PromptState]) -> dict[str, str]:
        """Where these prompts stand in their sessions, as mrkdwn."""
        places = {}
        for prompt in meant:
            state = await self._engine.verified_state(prompt.session_id)
            flow = await self._engine.flow_of(prompt.session_id)
            places[prompt.prompt_id] = " › ".join(around(state, flow, prompt.path))
        return places

    async def running(self, channel: str) -> str:
        """What runs in a channel."""
        here = (await self._living_in(channel))[:_MOST_SHOWN]
        return phrases.running_text(await self._states(here))

    async def _states(self, heads: Sequence[Head]) -> list[State]:
        """How these sessions stand, but for those that are left to a newer release."""
        found = []
        for head in heads:
            with suppress(SchemaTooNew):
                found.append(await self._engine.verified_state(head.session_id))
        return found

    async def threads(self, channel: str) -> list[str]:
        """The threads of a conversation in which something goes on."""
        return list(dict.fromkeys(str(head.thread_key) for head in await self._living_in(channel)))

    async def _living_in(self, channel: str) -> list[Head]:
        heads = await self._engine.writer.call(
            self._engine.store.heads, statuses=("running", "paused"), limit=_MOST_LIVING
        )
        return [
            head
            for head in heads
            if head.quarantined is None and (head.thread_key or "").split(":")[1:2] == [channel]
        ]


def asks_about_flows(said: Message) -> bool:
    """Whether a message asks which flows there are, how they go, or how all this works."""
    return control_word(said.text) in ("help", "status") or said.text.lower() in ("list", "flows")


@dataclass(eq=False, repr=False)
class MessageStarts:
    """Begins flows for inbox rows, or says why not."""

    library: Library
    people: People
    home: decisions.Home
    starter: Starter
    threads: ThreadStarts
    status: SessionStatus
    notices: Notices

    # --- messages ------------------------------------------------------------------------------------------

    def concerned(self, said: Message, data: dict[str, Json], heads: Sequence[Head]) -> bool:
        """Whether a message is to begin a flow or asks about flows; `heads` are the sessions of its thread."""
        return self._calls_us(said, data) and not said.edited and (not heads or self.names_flow(said))

    def _calls_us(self, said: Message, data: dict[str, Json]) -> bool:
        """Whether a message may start something: in the thread of a direct message only with a mention, for there an
        answer may well begin with the name of a flow."""
        in_own_thread = data["direct"] and data["threadTs"]
        return f"<@{self.home.bot_user_id}" in data["text"] if in_own_thread else said.mentions_bot

    def names_flow(self, said: Message) -> bool:
        """Whether a message says which flow it is about, by its name or by words for which one listens."""
        first = said.text.split(maxsplit=1)[0].lower() if said.text else ""
        if first == "run" or first in self.library.refresh():
            return True
        return Listening(self.library.refresh()).mentioned(said.text) is not None

    async def by_message(self, row: InboxRow, data: dict[str, Json], said: Message) -> bool:
        """A message that is `concerned`: begin what it names, or say what it asks for."""
        if not said.text or asks_about_flows(said):
            try:
                actor = await self.people.actor(data, in_channel=True)
            except UnknownPerson as error:
                return await self.notices.nobody(row, error)
            except LookupFailed as error:
                return held(row, error)
            return await self.notices.look(row, data, actor, await self._about_flows(said, data["channel"]))
        flows = self.library.refresh()
        thread_ts = data["threadTs"] or data["ts"]
        told = in_thread(row, data, thread_ts)
        line = Listening(flows).mentioned(said.text) or parse(said.text, flows, self.library.faults())
        if isinstance(line, BadLine):
            return await self.starter.refuse(row, Refusal(line.message), told)
        wish = Wish(line.flow, line.inputs, data, in_channel=True)
        return await self.starter.start(row, wish, thread_ts, told)

    async def _about_flows(self, said: Message, channel: str) -> str:
        word = control_word(said.text)
        if word == "status":
            return await self.status.running(channel)
        flows = self.library.refresh()
        return phrases.help_text(flows) if not said.text or word == "help" else phrases.flows_text(flows)

    # --- slash commands ------------------------------------------------------------------------------------

    async def slash(self, row: InboxRow) -> bool:
        """`/sayso run NAME ...`: a message that the bot posts becomes the thread; the session starts there."""
        data = decode(row.payload)
        line = parse(data["text"], self.library.refresh(), self.library.faults())
        if isinstance(line, BadLine):
            return await self.starter.refuse(row, Refusal(line.message), to_presser(row, data))
        return await self.threads.begin(row, data, line.flow, dict(line.inputs))

    async def ask(self, decision: decisions.Ask) -> dict[str, Json]:
        """The answer to a slash command that changes nothing, as a message."""
        flows = self.library.refresh()
        if decision.word == "status":
            return {"text": note(await self.status.running(decision.data["channel"])).text}
        listed = decision.word in ("list", "flows")
        text = phrases.flows_text(flows) if listed else phrases.slash_help(flows, decision.word)
        blocks = start_blocks(text, flows)
        return {"text": rendered(text, blocks).text, "blocks": blocks}
