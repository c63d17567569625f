"""Carries out messages: inbox rows → engine commands, control words, and an explanation if nothing is done.

Replies, clicks, forms and files that answer a question become an `Answer`, and go through `Replies.do` to
`Engine.resume(session, message)`. The session is loaded from its snapshot: by that call, or earlier if the routing of a
reply needs the thread's sessions. Only the author sees a refusal.

Every row is consumed in the commit that it caused, or together with the explanation to its author. A row that cannot be
decided yet (a prompt that is being posted, a person who cannot be looked up) is held: it stays in the inbox.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from msgspec.structs import replace

from bot.config.library import Library
from bot.handlers.agents import ToAgents
from bot.inbound import decisions
from bot.inbound.lines import BadLine, StartLine
from bot.inbound.meaning import (
    Edited,
    Explain,
    Inform,
    MeantFor,
    Memory,
    Needs,
    RevokeGrant,
    Said,
    answerable,
    understand,
)
from bot.inbound.triggers import Listening
from bot.outbound.notices import Notices, held, whispered
from bot.rendering import phrases
from bot.rendering.notes import menu_blocks
from bot.rendering.text import escape, plain
from bot.start.from_slack import MessageStarts, SessionStatus
from bot.wire.client import IncomingFiles, NotNow
from bot.wire.users import LookupFailed, People
from engine.decide.agents.people import heard_in, hears_others, listens
from engine.decide.commands import Answer, Command, EndRest, Resume, Steer
from engine.decide.policy import authorize
from engine.journal.queries import agent_at, agents_under_way, resting
from engine.journal.records import Consumed, Head, InboxRow
from engine.journal.state import State
from engine.language.actors import Actor
from engine.language.codec import Json, decode
from engine.language.errors import InvalidAnswer, Refused, SessionError
from engine.nodes.runtime.folder import FileRefused
from prompt_state import question_row as prompts
from prompt_state.question_row import PromptState, may_act_on
from prompt_state.routing import Answer as TextAnswer
from prompt_state.routing import (
    Control,
    Hint,
    Hold,
    Listener,
    Menu,
    Overhear,
    Say,
    SessionView,
    Thread,
    WhichAgent,
)
from prompt_state.routing import Steer as SteerBy

log = logging.getLogger("sayso.conversation")


def told_later(state: State, command: Command) -> str | None:
    """Return the note for an author whose message takes effect later; None if it does now."""
    if state.phase == "held" and isinstance(command, Answer | Steer):
        return phrases.RECORDED if isinstance(command, Answer) else phrases.KEPT
    waits = state.phase == "waiting" and bool(state.open_prompts)
    return phrases.LATER if waits and isinstance(command, Steer) and command.to is not None else None


async def _listeners(
    notices: Notices, actor: Actor, heads: Sequence[Head]
) -> tuple[list[Listener], list[Listener]]:
    """Return the agents of a thread, with how each hears this person; and all agents in their flows, by name, since a
    state has only those in progress."""
    found: list[Listener] = []
    by_name: list[Listener] = []
    for head in heads:
        if head.quarantined is None and head.status in ("running", "paused"):
            flow = await notices.engine.sessions.flow(head.flow_digest)
            agents = [node for nodes in flow.lists.values() for node in nodes.nodes if node.type == "agent"]
            if not agents:
                continue
            state = await notices.engine.verified_state(head.session_id)
            paths = agents_under_way(state)
            may = authorize(actor, "steer", notices.gate.target(state.actor, True)).allowed
            most = heard_in(state, notices.engine.stepper.agents.listens)
            for path in paths:
                run, config = state.nodes[path], state.nodes[path].input or {}
                listener = Listener(
                    head.session_id,
                    path,
                    str(config.get("name") or run.node_id),
                    steered=may,
                    overhears=hears_others(config, actor, most),
                    by_mention=listens(config, most) == "mention",
                    rests=resting(state, path),
                    spoke=agent_at(state, path).spoke.get(actor.id, ""),
                )
                found.append(listener)
            for node in agents:
                name = str(node.config.get("name") or node.id)
                by_mention = listens(node.config, most) == "mention"
                by_name.append(Listener(head.session_id, name, name, may, by_mention=by_mention))
    return found, by_name


class Replies:
    """Turns rows into commands of the engine."""

    def __init__(self, people: People, notices: Notices, files: IncomingFiles | None = None) -> None:
        self._engine = notices.engine
        self._people = people
        self._notices = notices
        self._files = files
        self.agents = ToAgents(notices, self.do, files)

    async def reply(
        self,
        row: InboxRow,
        data: dict[str, Json],
        actor: Actor,
        prompt: PromptState,
        text: str,
        nonce: str | None = None,
    ) -> bool:
        """Answer a question with text, and with its files if it takes some: those are fetched before it counts. Files
        of an answer to an agent are shown to it."""
        sent, files = data.get("files") or [], None
        try:
            if sent and prompt.accepts_files and self._files is not None:
                files = await self._files.fetch(prompt, sent, data["ts"])
            elif sent:
                await self.agents.beside(row, data, actor, prompt.session_id, prompt.path)
        except NotNow as error:
            return held(row, error)
        except FileRefused as error:
            return await self._notices.tell(row, data, escape(str(error)), "refused")
        said = text if files is None else text or None
        answer = Answer(prompt.prompt_id, actor, row.key, text=said, files=files, nonce=nonce)
        return await self.do(row, data, prompt.session_id, answer)

    async def do(
        self,
        row: InboxRow,
        data: dict[str, Json],
        session_id: str,
        command: Command,
        *,
        told: str | None = None,
    ) -> bool:
        """Carry out any command with this row. `told` is the reply to its author once it is done."""
        consumed = [Consumed(row.id, "applied")]
        try:
            state = await self._engine.hear(session_id, command, consumed=consumed)
        except (InvalidAnswer, Refused, SessionError) as error:
            if isinstance(error, InvalidAnswer) and row.kind == decisions.MESSAGE:
                return await self._notices.tell(row, data, escape(str(error)), "refused")
            return await self._notices.whisper(row, data, str(error), "refused")
        words = (told, told_later(state, command))
        if any(words):
            await self._notices.put(whispered(row, data, "\n".join(filter(None, words))))
        return True

    async def carry_out(self, row: InboxRow, data: dict[str, Json], make: Callable[[Actor], Command]) -> bool:
        """Carry out a submission about the prompt `data["promptId"]` for its author."""
        prompt = answerable(await self._notices.prompt(data["promptId"]))
        if isinstance(prompt, str):
            return await self._notices.whisper(row, data, prompt, "refused")
        try:
            actor = await self._people.actor(data, entries=[*(prompt.approvers or ()), *(prompt.who or ())])
            command = await self._people.informed(make(actor), data["channel"])
        except LookupFailed as error:
            return await self._notices.not_looked_up(row, data, error)
        return await self.do(row, data, prompt.session_id, command)


@dataclass(eq=False, repr=False)
class Conversation:
    """Handles the inbox rows of messages."""

    people: People
    home: decisions.Home
    library: Library
    starts: MessageStarts
    replies: Replies
    status: SessionStatus
    notices: Notices

    async def message(self, row: InboxRow) -> bool:
        """A message: starts a flow, or means something in its thread, or is people talking."""
        data = decode(row.payload)
        known = Said(self.home, await self.notices.heads(row.thread_key))
        while True:
            match found := understand(data, known):
                case Needs("listening"):
                    listening = Listening(partial(dict, self.library.refresh()))
                    known = replace(known, listening=listening, faults=self.library.faults())
                case Needs("elsewhere"):
                    known = replace(known, elsewhere=await self.status.threads(data["channel"]))
                case MeantFor(key):
                    row, data = row.but(thread_key=key), {**data, "threadTs": key.split(":")[2]}
                    known = replace(known, sessions=await self.notices.heads(key))
                case Needs("thread"):
                    return await self._in_thread(row, data, known)
                case Explain(text, outcome):
                    return await self.notices.tell(row, data, text, outcome)
                case StartLine() | BadLine() | Inform() | RevokeGrant() | Memory():
                    return await self.starts.by_message(row, data, found)

    async def edited(self, row: InboxRow) -> bool:
        """Tell the author of an edit to a message that was used already that the edit does not count."""
        data = decode(row.payload)
        before = await self.notices.stored(f"message:{data['team']}:{data['channel']}:{data['ts']}")
        match understand(data, Edited(before)):
            case Hold():
                return False
            case Explain(text, outcome):
                return await self.notices.whisper(row, data, text, outcome)
            case _:
                return await self.notices.consume(row, "ignored")

    # --- replies in a thread -------------------------------------------------------------------------------

    async def _in_thread(self, row: InboxRow, data: dict[str, Json], known: Said) -> bool:
        """Route a message in a thread, once its author is known."""
        engine, of_thread = self.notices.engine, list[PromptState]()
        if row.thread_key:
            of_thread = await engine.writer.call(prompts.of_thread, engine.store.prompts, row.thread_key)
        named = [[*(prompt.who or ()), *(prompt.approvers or ())] for prompt in of_thread if prompt.open]
        actor = await self.people.actor(data, entries=[*chain(*named)], in_channel=True)
        thread = await self._thread(actor, known.sessions, of_thread)
        match found := understand(data, replace(known, thread=thread)):
            case Hold():
                return False
            case TextAnswer(prompt_id, text):
                return await self.replies.reply(row, data, actor, _by_id(thread.prompts, prompt_id), text)
            case Control():
                return await self._obey(row, data, actor, found)
            case SteerBy(session_id, path, text):
                return await self.replies.agents.say(
                    row, data, session_id, Steer(text, actor, row.key, to=path)
                )
            case Overhear():
                return await self.replies.agents.overhear(row, data, actor, found)
            case WhichAgent(agents):
                return await self.replies.agents.which(row, data, agents)
            case Menu(prompt_ids, _):
                meant = sorted(
                    (_by_id(thread.prompts, key) for key in prompt_ids), key=lambda one: one.number or 0
                )
                text = phrases.menu_text(meant, await self.status.places(meant))
                blocks = menu_blocks(text, meant, data["ts"], data["user"])
                return await self.notices.tell(row, data, text, "told", blocks=blocks)
            case Hint(kind):
                # Why a text answers nothing. The way to answer helps everybody; the fault of one reply concerns its author.
                text = phrases.hint_text(kind, [_by_id(thread.prompts, key) for key in found.prompt_ids])
                author = f":{data['user']}" if kind == "not_yours" else ""
                key = f"hint:{found.prompt_ids[0]}{author}" if found.once else None
                outcome = "hinted" if found.once else "told"
                if kind not in ("buttons", "files"):
                    return await self.notices.whisper(row, data, plain(text), outcome, key=key)
                return await self.notices.tell(row, data, text, outcome, key=key)
            case Say():
                status = await self.status.of(await self.notices.heads(row.thread_key))
                return await self.notices.look(row, data, actor, status)
            case _:
                return await self.notices.consume(row, "ignored")

    async def _thread(
        self, actor: Actor, sessions: Sequence[Head], of_thread: Sequence[PromptState]
    ) -> Thread:
        """Return the thread as routing needs it: its open questions, and this person's permissions."""
        # A quarantined session takes and awaits nothing; its thread was told.
        sound = {head.session_id: head for head in sessions if head.quarantined is None}
        asked = tuple(prompt for prompt in of_thread if prompt.session_id in sound)
        may_answer: frozenset[str] = frozenset()
        if asked:
            may_answer = may_act_on(actor, asked, self.notices.gate.target(asked[0].requester, True))
        # Unsolicited hints in the thread, including those of an earlier process.
        engine, hinted = self.notices.engine, set()
        for prompt in asked:
            is_hinted_at = prompt.status == "expired" or (prompt.open and not prompt.accepts_text)
            key = f"hint:{prompt.prompt_id}"
            if is_hinted_at and await engine.writer.call(engine.store.outbox.row, key) is not None:
                hinted.add(prompt.prompt_id)
        listeners, by_name = await _listeners(self.notices, actor, sessions)
        return Thread(
            sessions=tuple(SessionView(key, head.status, head.phase) for key, head in sound.items()),
            prompts=asked,
            may_answer=may_answer,
            agents=tuple(listeners),
            by_name=tuple(by_name),
            hinted=frozenset(hinted),
            author=actor.id,
        )

    # --- control words -------------------------------------------------------------------------------------

    async def _obey(self, row: InboxRow, data: dict[str, Json], actor: Actor, said: Control) -> bool:
        """Carry out a control word; without a session for it, describe the state."""
        engine, heads = self.notices.engine, await self.notices.heads(row.thread_key)
        match said.word if said.sessions else None:
            case "pause" | "stop":
                # Idempotent: a crash before the reply is harmless.
                pause = partial(engine.pause, actor=actor, reason=phrases.by(actor))
                told = phrases.paused_text
                return await self._each(row, data, said.sessions, pause, told)
            case "resume":
                held = [head.session_id for head in heads if head.phase == "held"]
                if held:
                    resume = Resume(said.text or phrases.GO_ON, actor, row.key)
                    act = partial(engine.apply, command=resume)
                    return await self._each(row, data, held, act, phrases.resumed_text)
                status = await self.status.of(heads)
                return await self.notices.look(row, data, actor, f"Nothing is paused here.\n{status}")
            case "cancel":
                # It is asked before a run ends; people who may not end it are told at once.
                mine, refusal = [], "You can't cancel this."
                for session_id in said.sessions:
                    state = await engine.verified_state(session_id)
                    verdict = authorize(actor, "cancel", self.notices.gate.target(state.actor, True))
                    if verdict.allowed:
                        mine.append((state.flow_name, session_id))
                    refusal = verdict.reason or refusal
                if not mine:
                    return await self.notices.whisper(row, data, refusal, "refused")
                text, blocks = phrases.confirm_cancel(mine)
                return await self.notices.tell(row, data, text, "told", blocks=blocks)
            case "done":
                end = partial(engine.apply, command=EndRest(actor, row.key))
                return await self._each(row, data, said.sessions, end, phrases.rest_over_text)
        text = phrases.thread_help() if said.word == "help" else await self.status.of(heads)
        return await self.notices.look(row, data, actor, text)

    async def _each(
        self,
        row: InboxRow,
        data: dict[str, Json],
        sessions: Iterable[str],
        act: Callable[[str], Awaitable[State]],
        told: Callable[[Sequence[State]], str],
    ) -> bool:
        """Apply it to each of these sessions and tell the thread; if none accepts it, tell the author why."""
        states, refusal = [], ""
        for session_id in sessions:
            try:
                states.append(await act(session_id))
            except InvalidAnswer as error:
                return await self.notices.tell(row, data, escape(str(error)), "refused")
            except (Refused, SessionError) as error:
                refusal = str(error)
        if not states:
            return await self.notices.whisper(row, data, refusal, "refused")
        return await self.notices.tell(row, data, told(states), "applied")


def _by_id(asked: Sequence[PromptState], prompt_id: str) -> PromptState:
    return next(prompt for prompt in asked if prompt.prompt_id == prompt_id)
