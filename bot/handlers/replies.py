"""What people say and press, carried out: one engine command, committed together with the row that asked for it.

A reply that answers a question in its thread: `Replies.reply` has the session's `PromptState`, and calls
`Engine.resume(session, message)`, which loads the snapshot. A refusal is told to its author only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from bot.inbound import decisions
from bot.outbound.notices import Notices, held, whispered
from bot.rendering import phrases
from bot.rendering.text import escape
from bot.wire.downloads import IncomingFiles, NotNow
from bot.wire.users import LookupFailed, People
from engine.decide.commands import Answer, Command, Steer
from engine.decide.policy import Gate, authorize
from engine.journal.records import Consumed, Head, InboxRow
from engine.journal.state import State
from engine.language.actors import Actor
from engine.language.codec import Json, decode
from engine.language.errors import InvalidAnswer, Refused, SessionError
from engine.nodes.runtime.folder import FileRefused
from engine.run.engine import Engine
from prompt_state import store as prompts
from prompt_state.question_row import PromptState


def takes_messages(state: State) -> bool:
    """Whether an agent is under way that hears what people say."""
    if state.ended or state.phase == "finalizing":
        return False
    return any(
        run.agent is not None and run.error is None and path in state.active
        for path, run in state.containers.items()
    )


def told_later(state: State, command: Command) -> str | None:
    """What people are told whose words count and change nothing yet; None where they do."""
    if state.phase == "held" and isinstance(command, Answer | Steer):
        return phrases.RECORDED if isinstance(command, Answer) else phrases.KEPT
    waits = state.phase == "waiting" and bool(state.open_prompts)
    return phrases.LATER if waits and isinstance(command, Steer) else None


async def steerable(engine: Engine, gate: Gate, actor: Actor, heads: Sequence[Head]) -> tuple[str, ...]:
    """The sessions of a thread with an agent that takes messages from this person."""
    found = []
    for head in heads:
        if head.quarantined is None and head.status in ("running", "paused"):
            state = await engine.state(head.session_id)
            allowed = authorize(actor, "steer", gate.target(state.actor, True)).allowed
            if allowed and takes_messages(state):
                found.append(head.session_id)
    return tuple(found)


class Replies:
    """Turns rows into commands of the engine."""

    def __init__(
        self, engine: Engine, people: People, notices: Notices, files: IncomingFiles | None = None
    ) -> None:
        self._engine = engine
        self._people = people
        self._notices = notices
        self._files = files

    async def reply(
        self,
        row: InboxRow,
        data: dict[str, Json],
        actor: Actor,
        prompt: PromptState,
        text: str,
        nonce: str | None = None,
    ) -> bool:
        """Answer a question with words, and with the files that came with them where it takes some: those are fetched
        before it counts."""
        sent = data.get("files") or []
        if sent and prompt.accepts_files and self._files is not None:
            try:
                files = await self._files.fetch(prompt, sent, data["ts"])
            except NotNow as error:
                return held(row, error)
            except FileRefused as error:
                return await self._notices.tell(row, data, escape(str(error)), "refused")
            answer = Answer(prompt.prompt_id, actor, row.key, text=text or None, files=files, nonce=nonce)
            return await self.do(row, data, prompt.session_id, answer)
        if nonce is not None:
            answer = Answer(prompt.prompt_id, actor, row.key, text=text, nonce=nonce)
            return await self.do(row, data, prompt.session_id, answer)
        state = await self._told(
            row,
            data,
            self._engine.resume(
                prompt.session_id,
                text,
                actor=actor,
                prompt_id=prompt.prompt_id,
                key=row.key,
                consumed=[Consumed(row.id, "applied")],
            ),
        )
        if state is not None and state.phase == "held":
            await self._say(row, data, phrases.RECORDED)
        return True

    async def do(self, row: InboxRow, data: dict[str, Json], session_id: str, command: Command) -> bool:
        """Carry out any command with this row."""
        consumed = [Consumed(row.id, "applied")]
        state = await self._told(row, data, self._engine.apply(session_id, command, consumed=consumed))
        later = None if state is None else told_later(state, command)
        if state is not None and isinstance(command, Steer) and data.get("files"):
            later = " ".join(filter(None, (phrases.WORDS_ONLY, later)))
        if later is not None:
            await self._say(row, data, later)
        return True

    async def carry_out(self, row: InboxRow, data: dict[str, Json], make: Callable[[Actor], Command]) -> bool:
        """What was submitted about the prompt `data["promptId"]`, as whoever submitted it."""
        prompt = await self._engine.writer.call(prompts.find, self._engine.store, data["promptId"])
        if prompt is None:
            gone = "This question is not known here any more."
            return await self._notices.whisper(row, data, gone, "refused")
        if not prompt.open:
            return await self._notices.whisper(row, data, phrases.closed_text(prompt), "refused")
        try:
            actor = await self._people.actor(data, entries=[*(prompt.approvers or ()), *(prompt.who or ())])
            command = await self._people.informed(make(actor), data["channel"])
        except LookupFailed as error:
            return await self._notices.not_looked_up(row, data, error)
        return await self.do(row, data, prompt.session_id, command)

    async def _told(self, row: InboxRow, data: dict[str, Json], work: Awaitable[State]) -> State | None:
        """The state after a command; None where it was refused, and its author was told."""
        try:
            return await work
        except InvalidAnswer as error:
            if row.kind != decisions.MESSAGE:
                await self._notices.whisper(row, data, str(error), "refused")
            else:
                await self._notices.tell(row, data, escape(str(error)), "refused")
        except (Refused, SessionError) as error:
            await self._notices.whisper(row, data, str(error), "refused")
        return None

    async def _say(self, row: InboxRow, data: dict[str, Json], text: str) -> None:
        """What comes later is told; the row was consumed together with what it said."""
        told = whispered(row, data, text)
        await self._engine.writer.call(self._engine.store.consume, [], self._engine.now(), [told])


async def edited(engine: Engine, notices: Notices, row: InboxRow) -> bool:
    """An edit changes nothing. Whoever edits what was used is told so, once; while that is not decided, it waits. What was
    missed and read later with these very words is no edit to anybody here."""
    data = decode(row.payload)
    key = f"message:{data['team']}:{data['channel']}:{data['ts']}"
    before = await engine.writer.call(engine.store.inbox_row, key)
    if before is not None and before.outcome is None:
        return False
    said = decode(before.payload) if before is not None else {}
    # An edit that adds a mention comes as a mention too, which counts for nothing.
    heard = before is not None and not said.get("edited")
    text = phrases.edited_text(before.outcome if before is not None and heard else None)
    read_so = heard and said.get("text") == data.get("text")
    if text is None or read_so:
        await notices.consume(row, "ignored")
        return True
    return await notices.whisper(row, data, text, "told")
