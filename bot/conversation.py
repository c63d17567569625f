"""What is done with what people said and pressed: inbox rows → engine commands, and words where nothing is done.

Every row is consumed in the commit of what it caused, or together with the words that tell its author why nothing
was caused. A row that cannot be decided yet (a prompt that is being posted, a person who cannot be looked up) is
held: it stays in the inbox.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from bot import inbound, words
from bot.controls import Controls, Voice
from bot.edits import Edits
from bot.flows import Library
from bot.incoming_files import IncomingFiles, NotNow
from bot.intents import direct_row, ephemeral_row, note_row, respond_row, root_row
from bot.listening import Listening
from bot.people import LookupFailed, People, UnknownPerson
from bot.presses import Hands, Presses
from bot.rendering.blocks import rendered
from bot.rendering.menus import menu_blocks
from bot.rendering.messages import note
from bot.rendering.starts import start_blocks
from bot.rendering.text import escape, for_reader, plain
from bot.standing import Standing
from bot.start_line import BadLine, StartLine, parse
from bot.starting import Starter
from bot.steering import steerable, told_later
from engine import clock, commands
from engine.actors import Actor
from engine.codec import Json, decode
from engine.commands import Answer, Command, Undo
from engine.engine import Engine
from engine.errors import InvalidAnswer, Refused, SessionError
from engine.nodes.folder import FileRefused
from engine.storage.port import Consumed, Head, InboxRow, PutOutbox, Row
from prompt_state import store as prompts
from prompt_state.errors import TooLong
from prompt_state.model import PromptState, thread_key
from prompt_state.policy import Gate, authorize, may_act_on
from prompt_state.routing import Answer as TextAnswer
from prompt_state.routing import (
    Chatter,
    Control,
    Hint,
    Hold,
    Ignore,
    Menu,
    Message,
    Note,
    Route,
    Say,
    SessionView,
    Steer,
    TakeBack,
    Thread,
    control_word,
    route,
)

log = logging.getLogger("sayso.conversation")

PATIENCE_SECONDS = 30.0
"""How long a press waits for facts about its author before that person is asked to press again."""


class Conversation:
    """Handlers for the inbox rows that Slack's payloads became."""

    def __init__(
        self,
        engine: Engine,
        library: Library,
        people: People,
        gate: Gate,
        home: inbound.Home,
        starter: Starter,
        files: IncomingFiles | None = None,
    ) -> None:
        self._engine = engine
        self._starter = starter
        self._library = library
        self._people = people
        self._gate = gate
        self._home = home
        self._files = files
        self._standing = Standing(engine)
        voice = Voice(self._tell, self._whisper, self._look)
        self._controls = Controls(engine, gate, self._standing, voice)
        hands = Hands(self._do, self._replied, self._whisper, self._consume, self._not_looked_up)
        self._edits = Edits(engine, self._whisper, self._consume)
        self._presses = Presses(engine, people, gate, home.bot_user_id, hands)

    def handlers(self) -> dict[str, Callable[[InboxRow], Awaitable[bool]]]:
        """By kind of inbox row."""
        return {
            inbound.MESSAGE: self.message,
            inbound.CLICK: self._presses.click,
            inbound.SLASH: self.slash,
            inbound.ROOTED: self.rooted,
            inbound.EDITED: self._edits.edited,
        }

    # --- messages ------------------------------------------------------------------------------------------

    async def message(self, row: InboxRow) -> bool:
        """A message: starts a flow, or means something in its thread, or is people talking."""
        data = decode(row.payload)
        heads = await self._heads(row.thread_key)
        try:
            said = inbound.said(data, self._home)
        except TooLong as error:
            return await self._tell(row, data, str(error), "too_long")
        if data["direct"] and not data["threadTs"] and not heads and self._meant_for_a_thread(said):
            keys = await self._standing.threads(data["channel"])
            if len(keys) > 1:
                return await self._tell(row, data, words.SEVERAL_HERE, "told")
            if keys:
                row, data = row._replace(thread_key=keys[0]), {**data, "threadTs": keys[0].split(":")[2]}
                said, heads = replace(said, thread_ts=data["threadTs"]), await self._heads(keys[0])
        if self._calls_us(said, data) and not said.edited and self._starts(said, heads):
            return await self._start_by_message(row, data, said)
        try:
            actor = await self._people.actor(data, entries=await self._entries(row), in_channel=True)
        except UnknownPerson as error:
            return await self._nobody(row, error)
        except LookupFailed as error:
            return _held(row, error)
        return await self._routed(row, data, said, actor, heads)

    def _calls_us(self, said: Message, data: dict[str, Json]) -> bool:
        """Whether a message may start something: in the thread of a direct message only with a mention, for there an
        answer may well begin with the name of a flow."""
        in_own_thread = data["direct"] and data["threadTs"]
        return f"<@{self._home.bot_user_id}" in data["text"] if in_own_thread else said.mentions_bot

    def _starts(self, said: Message, heads: Sequence[Head]) -> bool:
        """Whether an addressed message is about starting something."""
        return not heads or self._names_flow(said)

    def _names_flow(self, said: Message) -> bool:
        first = said.text.split(maxsplit=1)[0].lower() if said.text else ""
        if first == "run" or first in self._library.refresh():
            return True
        return Listening(self._library.refresh()).mentioned(said.text) is not None

    def _meant_for_a_thread(self, said: Message) -> bool:
        """Whether a direct message outside of every thread may be about what waits there: people answer where they are,
        and on a phone a thread is far away."""
        about_flows = control_word(said.text) in ("help", "status") or said.text.lower() in ("list", "flows")
        return bool(said.text or said.has_files) and not about_flows and not self._names_flow(said)

    async def _start_by_message(self, row: InboxRow, data: dict[str, Json], said: Message) -> bool:
        word = control_word(said.text)
        if not said.text or word in ("help", "status") or said.text.lower() in ("list", "flows"):
            try:
                actor = await self._people.actor(data, in_channel=True)
            except UnknownPerson as error:
                return await self._nobody(row, error)
            except LookupFailed as error:
                return _held(row, error)
            return await self._look(row, data, actor, await self._about_flows(word, said, data["channel"]))
        thread_ts = data["threadTs"] or data["ts"]
        return await self._start(row, data, said.text, thread_ts, in_channel=True)

    async def _about_flows(self, word: str | None, said: Message, channel: str) -> str:
        if word == "status":
            return await self._standing.running(channel)
        flows = self._library.refresh()
        return words.help_text(flows) if not said.text or word == "help" else words.flows_text(flows)

    async def _look(self, row: InboxRow, data: dict[str, Json], actor: Actor, text: str) -> bool:
        """Say how things stand, to whoever may see it."""
        verdict = authorize(actor, "status", self._gate.target({}, True))
        if not verdict.allowed:
            return await self._whisper(row, data, verdict.reason or "", "refused")
        return await self._tell(row, data, text, "told")

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
        line = Listening(flows).mentioned(text) or parse(text, flows)
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
            return await self._tell(row, data, line.message, "refused", thread_ts=thread_ts)
        entries = self._starter.entries(line.flow)
        try:
            actor = await self._people.actor(data, entries=entries, in_channel=in_channel)
            refusal = await self._starter.start(row, data, actor, line.flow, line.inputs, thread_ts)
        except UnknownPerson as error:
            return await self._nobody(row, error)
        except LookupFailed as error:
            log.warning("start %s is held: %s", row.key, error)
            return False
        return refusal is None or await self._tell(row, data, refusal.text, "refused", thread_ts=thread_ts)

    # --- replies in a thread -------------------------------------------------------------------------------

    async def _routed(
        self, row: InboxRow, data: dict[str, Json], said: Message, actor: Actor, heads: Sequence[Head]
    ) -> bool:
        # What was set aside takes nothing and waits for nothing; its thread was told.
        sound = {head.session_id for head in heads if head.quarantined is None}
        asked = [prompt for prompt in await self._prompts(row.thread_key) if prompt.session_id in sound]
        thread = Thread(
            sessions=tuple(
                SessionView(head.session_id, head.status, head.phase)
                for head in heads
                if head.session_id in sound
            ),
            prompts=tuple(asked),
            may_answer=self._may_answer(actor, asked),
            steerable=await steerable(self._engine, self._gate, actor, heads),
            hinted=await self._hinted(asked),
            author=actor.id,
        )
        found = route(said, thread)
        match found:
            case Hold():
                return False
            case TextAnswer(prompt_id, text):
                return await self._replied(row, data, actor, _by_id(asked, prompt_id), text)
            case Control():
                return await self._controls.obey(row, data, actor, found)
            case TakeBack(prompt_id):
                session_id = _by_id(asked, prompt_id).session_id
                return await self._do(row, data, session_id, Undo(prompt_id, actor, row.key))
            case Steer(session_id, text):
                return await self._do(row, data, session_id, commands.Steer(text, actor, row.key))
            case Chatter() | Ignore() | Note():
                await self._consume(row, "ignored")
                return True
            case Menu() | Hint() | Say():
                return await self._explain(row, data, actor, found, asked)

    async def _hinted(self, asked: Sequence[PromptState]) -> frozenset[str]:
        """The questions about which the thread was given a hint that nobody asked for, also by an earlier process."""
        found = [
            prompt.prompt_id
            for prompt in asked
            if prompt.status == "expired" or (prompt.open and not prompt.accepts_text)
        ]
        rows = [await self._engine.writer.call("outbox_row", f"hint:{prompt_id}") for prompt_id in found]
        return frozenset(key for key, row in zip(found, rows, strict=True) if row is not None)

    def _may_answer(self, actor: Actor, asked: Sequence[PromptState]) -> frozenset[str]:
        if not asked:
            return frozenset()
        requester = {"id": asked[0].requester_id, "name": asked[0].requester_name}
        return may_act_on(actor, asked, self._gate.target(requester, True))

    async def _explain(
        self,
        row: InboxRow,
        data: dict[str, Json],
        actor: Actor,
        found: Route,
        asked: Sequence[PromptState],
    ) -> bool:
        match found:
            case Menu(prompt_ids, _):
                meant = sorted((_by_id(asked, key) for key in prompt_ids), key=lambda one: one.number or 0)
                text = words.menu_text(meant, await self._standing.places(meant))
                blocks = menu_blocks(text, meant, data["ts"], data["user"])
                return await self._tell(row, data, text, "told", blocks=blocks)
            case Hint(kind, prompt_ids, once):
                text = words.hint_text(kind, [_by_id(asked, key) for key in prompt_ids])
                # How a question is answered helps everybody; what was wrong with one reply, its author.
                key = f"hint:{prompt_ids[0]}" if once else None
                outcome = "hinted" if once else "told"
                if kind not in ("buttons", "files"):
                    return await self._whisper(row, data, plain(text), outcome, key=key)
                return await self._tell(row, data, text, outcome, key=key)
            case _:
                status = await self._standing.of(await self._heads(row.thread_key))
                return await self._look(row, data, actor, status)

    # --- presses -------------------------------------------------------------------------------------------

    async def _not_looked_up(self, row: InboxRow, data: dict[str, Json], error: LookupFailed) -> bool:
        waited = clock.seconds_between(row.received_at, self._engine.now())
        if waited < PATIENCE_SECONDS and not isinstance(error, UnknownPerson):
            return False
        log.warning("press %s given up: %s", row.key, error)
        return await self._whisper(
            row, data, "Slack could not say who you are just now. Please press again.", "refused"
        )

    async def _answer(
        self,
        row: InboxRow,
        data: dict[str, Json],
        actor: Actor,
        prompt: PromptState,
        *,
        value: Json = None,
        text: str | None = None,
        nonce: str | None = None,
        files: list[Json] | None = None,
    ) -> bool:
        command = Answer(prompt.prompt_id, actor, row.key, value=value, text=text, nonce=nonce, files=files)
        return await self._do(row, data, prompt.session_id, command)

    async def _replied(
        self,
        row: InboxRow,
        data: dict[str, Json],
        actor: Actor,
        prompt: PromptState,
        text: str,
        nonce: str | None = None,
    ) -> bool:
        """A reply with its words, and with its files where the prompt takes some: they are fetched before it counts."""
        sent = data.get("files") or []
        if not (sent and prompt.accepts_files and self._files is not None):
            return await self._answer(row, data, actor, prompt, text=text, nonce=nonce)
        try:
            files = await self._files.fetch(prompt, sent, data["ts"])
        except NotNow as error:
            return _held(row, error)
        except FileRefused as error:
            return await self._tell(row, data, escape(str(error)), "refused")
        return await self._answer(row, data, actor, prompt, text=text or None, files=files, nonce=nonce)

    async def _do(self, row: InboxRow, data: dict[str, Json], session_id: str, command: Command) -> bool:
        """Carry a command out with this row; a refusal is told to its author only."""
        try:
            state = await self._engine.apply(session_id, command, consumed=[Consumed(row.id, "applied")])
        except InvalidAnswer as error:
            if row.kind != inbound.MESSAGE:
                return await self._whisper(row, data, str(error), "refused")
            return await self._tell(row, data, escape(str(error)), "refused")
        except (Refused, SessionError) as error:
            return await self._whisper(row, data, str(error), "refused")
        later = told_later(state, command)
        if later is not None:
            # The row was consumed together with what it said.
            told = _whispered(row, data, later)
            await self._engine.writer.call("consume", [], self._engine.now(), [told])
        return True

    # --- views ---------------------------------------------------------------------------------------------

    async def carry_out(self, row: InboxRow, data: dict[str, Json], make: Callable[[Actor], Command]) -> bool:
        """What was submitted about the prompt `data["promptId"]`, as whoever submitted it."""
        prompt = await self._prompt(data["promptId"])
        if prompt is None:
            return await self._whisper(row, data, "This question is not known here any more.", "refused")
        if not prompt.open:
            return await self._whisper(row, data, words.closed_text(prompt), "refused")
        try:
            actor = await self._people.actor(data, entries=[*(prompt.approvers or ()), *(prompt.who or ())])
            command = await self._people.informed(make(actor), data["channel"])
        except LookupFailed as error:
            return await self._not_looked_up(row, data, error)
        return await self._do(row, data, prompt.session_id, command)

    async def begin(self, row: InboxRow, data: dict[str, Json], flow: str, inputs: dict[str, Json]) -> bool:
        """Start a flow in the thread of a message that the bot posts; nothing is posted for whoever may not start it."""
        try:
            actor = await self._people.actor(data, entries=self._starter.entries(flow))
            refusal = await self._starter.refusal(data, actor, flow)
        except UnknownPerson as error:
            return await self._not_looked_up(row, data, error)
        except LookupFailed as error:
            return _held(row, error)
        if refusal is not None:
            if data.get("responseUrl"):
                return await self._answer_slash(row, data, refusal.text)
            return await self._whisper(row, data, plain(refusal.text), "refused")
        payload: dict[str, Json] = {**data, "flow": flow, "inputs": inputs}
        then: dict[str, Json] = {"kind": inbound.ROOTED, "key": f"rooted:{row.key}", "payload": payload}
        text = words.root_text(data["user"], flow)
        await self._consume(row, "rooting", root_row(f"root:{row.key}", data["channel"], text, then))
        return True

    # --- slash commands ------------------------------------------------------------------------------------

    async def slash(self, row: InboxRow) -> bool:
        """`/sayso run NAME ...`: a message that the bot posts becomes the thread; the session starts there."""
        data = decode(row.payload)
        line = parse(data["text"], self._library.refresh())
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
        text = words.not_begun_text(f"*{escape(data['flow'])}*", place, escape(data["refused"]))
        if data.get("responseUrl"):
            return await self._answer_slash(row, data, text)
        await self._consume(row, "refused", direct_row(f"direct:{row.key}", data["user"], text))
        return True

    async def _answer_slash(self, row: InboxRow, data: dict[str, Json], text: str) -> bool:
        await self._consume(row, "refused", respond_row(f"respond:{row.key}", data["responseUrl"], text))
        return True

    async def ask(self, decision: inbound.Ask) -> dict[str, Json]:
        """The answer to a slash command that changes nothing, as a message."""
        flows = self._library.refresh()
        if decision.word == "status":
            return {"text": note(await self._standing.running(decision.data["channel"])).text}
        listed = decision.word in ("list", "flows")
        text = words.flows_text(flows) if listed else words.slash_help(flows, decision.word)
        blocks = start_blocks(text, flows)
        return {"text": rendered(text, blocks).text, "blocks": blocks}

    # --- reading -------------------------------------------------------------------------------------------

    async def _heads(self, key: str | None) -> list[Head]:
        if key is None:
            return []
        heads: list[Head] = await self._engine.writer.call("heads", thread_key=key)
        return heads

    async def _prompts(self, key: str | None) -> list[PromptState]:
        return await self._engine.writer.call(prompts.of_thread, self._engine.store, key) if key else []

    async def _prompt(self, prompt_id: str) -> PromptState | None:
        return await self._engine.writer.call(prompts.find, self._engine.store, prompt_id)

    async def _entries(self, row: InboxRow) -> list[str]:
        asked = await self._prompts(row.thread_key)
        return [
            entry
            for prompt in asked
            if prompt.open
            for entry in (*(prompt.who or ()), *(prompt.approvers or ()))
        ]

    # --- telling -------------------------------------------------------------------------------------------

    async def _nobody(self, row: InboxRow, error: UnknownPerson) -> bool:
        """Words of somebody whom Slack does not know count for nothing, and hold up nobody else's."""
        log.warning("%s is ignored: %s", row.key, error)
        await self._consume(row, "ignored")
        return True

    async def _consume(self, row: InboxRow, outcome: str, *rows: Row) -> None:
        await self._engine.writer.call("consume", [Consumed(row.id, outcome)], self._engine.now(), list(rows))

    async def _tell(
        self,
        row: InboxRow,
        data: dict[str, Json],
        text: str,
        outcome: str,
        *,
        thread_ts: str | None = None,
        blocks: list[Json] | None = None,
        key: str | None = None,
    ) -> bool:
        """Say something in the thread, where everybody sees it; under the same `key` only once."""
        thread_ts = thread_ts or str(data.get("threadTs") or data.get("ts"))
        lane = thread_key(data["team"], data["channel"], thread_ts)
        said = note_row(key or f"note:{row.key}", lane, data["channel"], thread_ts, text, blocks=blocks)
        await self._consume(row, outcome, said)
        return True

    async def _whisper(
        self, row: InboxRow, data: dict[str, Json], text: str, outcome: str, *, key: str | None = None
    ) -> bool:
        """Tell only the author; under the same `key` only once."""
        await self._consume(row, outcome, _whispered(row, data, text, key))
        return True


def _whispered(row: InboxRow, data: dict[str, Json], text: str, key: str | None = None) -> PutOutbox:
    """Words for the author of a row only; they are no mrkdwn."""
    key = key or f"ephemeral:{row.key}"
    return ephemeral_row(key, data["channel"], data["user"], data.get("threadTs"), for_reader(text))


def _held(row: InboxRow, error: Exception) -> bool:
    """The row stays in the inbox and is tried again."""
    log.warning("%s is held: %s", row.key, error)
    return False


def _by_id(asked: Sequence[PromptState], prompt_id: str) -> PromptState:
    return next(prompt for prompt in asked if prompt.prompt_id == prompt_id)
