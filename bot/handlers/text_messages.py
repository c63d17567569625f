"""What is done with what people said and pressed: inbox rows → engine commands, and words where nothing is done.

Every row is consumed in the commit of what it caused, or together with the words that tell its author why nothing
was caused. A row that cannot be decided yet (a prompt that is being posted, a person who cannot be looked up) is
held: it stays in the inbox.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from bot.config.library import Library
from bot.handlers.clicks import Hands, Presses
from bot.handlers.control_words import Controls
from bot.handlers.edits import Edits
from bot.handlers.steering import steerable, told_later
from bot.inbound import decisions, payloads
from bot.outbound.notices import Notices, held, whispered
from bot.rendering import phrases
from bot.rendering.menus import menu_blocks
from bot.rendering.text import escape, plain
from bot.start.from_messages import MessageStarts, asks_about_flows
from bot.start.starter import Starter
from bot.start.status import SessionStatus
from bot.start.threads import ThreadStarts
from bot.wire.downloads import IncomingFiles, NotNow
from bot.wire.users import LookupFailed, People, UnknownPerson
from engine.decide import commands
from engine.decide.commands import Answer, Command, Undo
from engine.decide.policy import Gate
from engine.journal.records import Consumed, Head, InboxRow
from engine.language.actors import Actor
from engine.language.codec import Json, decode
from engine.language.errors import InvalidAnswer, Refused, SessionError
from engine.nodes.runtime.folder import FileRefused
from engine.run.engine import Engine
from prompt_state import store as prompts
from prompt_state.errors import TooLong
from prompt_state.policy import may_act_on
from prompt_state.question_row import PromptState
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
    route,
)

log = logging.getLogger("sayso.conversation")


class Conversation:
    """Handlers for the inbox rows that Slack's payloads became."""

    def __init__(
        self,
        engine: Engine,
        library: Library,
        people: People,
        gate: Gate,
        home: decisions.Home,
        starter: Starter,
        threads: ThreadStarts,
        notices: Notices,
        files: IncomingFiles | None = None,
    ) -> None:
        self._engine = engine
        self._people = people
        self._gate = gate
        self._home = home
        self._files = files
        self._status = SessionStatus(engine)
        self._notices = notices
        self.beginnings = MessageStarts(library, people, home, starter, threads, self._status, notices)
        self._controls = Controls(engine, gate, self._status, self._notices)
        self._edits = Edits(engine, self._notices)
        hands = Hands(self._do, self._replied)
        self._presses = Presses(engine, people, gate, home.bot_user_id, self._notices, hands)

    def handlers(self) -> dict[str, Callable[[InboxRow], Awaitable[bool]]]:
        """By kind of inbox row."""
        return {
            decisions.MESSAGE: self.message,
            decisions.CLICK: self._presses.click,
            decisions.SLASH: self.beginnings.slash,
            decisions.EDITED: self._edits.edited,
        }

    # --- messages ------------------------------------------------------------------------------------------

    async def message(self, row: InboxRow) -> bool:
        """A message: starts a flow, or means something in its thread, or is people talking."""
        data = decode(row.payload)
        heads = await self._heads(row.thread_key)
        try:
            said = payloads.said(data, self._home)
        except TooLong as error:
            return await self._notices.tell(row, data, str(error), "too_long")
        if data["direct"] and not data["threadTs"] and not heads and self._meant_for_a_thread(said):
            keys = await self._status.threads(data["channel"])
            if len(keys) > 1:
                return await self._notices.tell(row, data, phrases.SEVERAL_HERE, "told")
            if keys:
                row, data = row._replace(thread_key=keys[0]), {**data, "threadTs": keys[0].split(":")[2]}
                said, heads = replace(said, thread_ts=data["threadTs"]), await self._heads(keys[0])
        if self.beginnings.concerned(said, data, heads):
            return await self.beginnings.by_message(row, data, said)
        try:
            actor = await self._people.actor(data, entries=await self._entries(row), in_channel=True)
        except UnknownPerson as error:
            return await self._notices.nobody(row, error)
        except LookupFailed as error:
            return held(row, error)
        return await self._routed(row, data, said, actor, heads)

    def _meant_for_a_thread(self, said: Message) -> bool:
        """Whether a direct message outside of every thread may be about what waits there: people answer where they are,
        and on a phone a thread is far away."""
        about_flows = asks_about_flows(said) or self.beginnings.names_flow(said)
        return bool(said.text or said.has_files) and not about_flows

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
                await self._notices.consume(row, "ignored")
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
        rows = [
            await self._engine.writer.call(self._engine.store.outbox_row, f"hint:{prompt_id}")
            for prompt_id in found
        ]
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
                text = phrases.menu_text(meant, await self._status.places(meant))
                blocks = menu_blocks(text, meant, data["ts"], data["user"])
                return await self._notices.tell(row, data, text, "told", blocks=blocks)
            case Hint(kind, prompt_ids, once):
                text = phrases.hint_text(kind, [_by_id(asked, key) for key in prompt_ids])
                # How a question is answered helps everybody; what was wrong with one reply, its author.
                key = f"hint:{prompt_ids[0]}" if once else None
                outcome = "hinted" if once else "told"
                if kind not in ("buttons", "files"):
                    return await self._notices.whisper(row, data, plain(text), outcome, key=key)
                return await self._notices.tell(row, data, text, outcome, key=key)
            case _:
                status = await self._status.of(await self._heads(row.thread_key))
                return await self._notices.look(row, data, actor, status)

    # --- carrying out ---------------------------------------------------------------------------------------

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
            return held(row, error)
        except FileRefused as error:
            return await self._notices.tell(row, data, escape(str(error)), "refused")
        return await self._answer(row, data, actor, prompt, text=text or None, files=files, nonce=nonce)

    async def _do(self, row: InboxRow, data: dict[str, Json], session_id: str, command: Command) -> bool:
        """Carry a command out with this row; a refusal is told to its author only."""
        try:
            state = await self._engine.apply(session_id, command, consumed=[Consumed(row.id, "applied")])
        except InvalidAnswer as error:
            if row.kind != decisions.MESSAGE:
                return await self._notices.whisper(row, data, str(error), "refused")
            return await self._notices.tell(row, data, escape(str(error)), "refused")
        except (Refused, SessionError) as error:
            return await self._notices.whisper(row, data, str(error), "refused")
        later = told_later(state, command)
        if isinstance(command, commands.Steer) and data.get("files"):
            later = " ".join(filter(None, (phrases.WORDS_ONLY, later)))
        if later is not None:
            # The row was consumed together with what it said.
            told = whispered(row, data, later)
            await self._engine.writer.call(self._engine.store.consume, [], self._engine.now(), [told])
        return True

    # --- views ---------------------------------------------------------------------------------------------

    async def carry_out(self, row: InboxRow, data: dict[str, Json], make: Callable[[Actor], Command]) -> bool:
        """What was submitted about the prompt `data["promptId"]`, as whoever submitted it."""
        prompt = await self._prompt(data["promptId"])
        if prompt is None:
            return await self._notices.whisper(
                row, data, "This question is not known here any more.", "refused"
            )
        if not prompt.open:
            return await self._notices.whisper(row, data, phrases.closed_text(prompt), "refused")
        try:
            actor = await self._people.actor(data, entries=[*(prompt.approvers or ()), *(prompt.who or ())])
            command = await self._people.informed(make(actor), data["channel"])
        except LookupFailed as error:
            return await self._notices.not_looked_up(row, data, error)
        return await self._do(row, data, prompt.session_id, command)

    # --- reading -------------------------------------------------------------------------------------------

    async def _heads(self, key: str | None) -> list[Head]:
        if key is None:
            return []
        heads = await self._engine.writer.call(self._engine.store.heads, thread_key=key)
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


def _by_id(asked: Sequence[PromptState], prompt_id: str) -> PromptState:
    return next(prompt for prompt in asked if prompt.prompt_id == prompt_id)
