"""What control words do to the sessions of a thread. With several sessions each word is for all of them that its author
may steer; only where that is none its author is told why."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from bot.outbound.notices import Notices
from bot.rendering import phrases
from bot.rendering.text import escape
from bot.start.status import SessionStatus
from engine.decide.commands import Resume
from engine.decide.policy import Gate, authorize
from engine.journal.records import Head, InboxRow
from engine.journal.state import State
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.language.errors import InvalidAnswer, Refused, SessionError
from engine.run.engine import Engine
from prompt_state.routing import Control


class Controls:
    """Obeys control words."""

    def __init__(self, engine: Engine, gate: Gate, standing: SessionStatus, telling: Notices) -> None:
        self._engine = engine
        self._gate = gate
        self._status = standing
        self._notices = telling
        self._acts = {
            "pause": self._pause,
            "stop": self._pause,
            "resume": self._resume,
            "cancel": self._confirm_cancel,
        }

    async def obey(self, row: InboxRow, data: dict[str, Json], actor: Actor, said: Control) -> bool:
        """Do what was said."""
        if said.word == "help":
            return await self._notices.look(row, data, actor, phrases.thread_help())
        act = self._acts.get(said.word)
        if said.sessions and act is not None:
            return await act(row, data, actor, said)
        status = await self._status.of(await self._heads(row))
        return await self._notices.look(row, data, actor, status)

    async def _pause(self, row: InboxRow, data: dict[str, Json], actor: Actor, said: Control) -> bool:
        """Hold what goes on in this thread. Doing it once more changes nothing: a crash before the words is harmless."""

        async def pause(session_id: str) -> State:
            return await self._engine.pause(session_id, actor=actor, reason=phrases.by(actor))

        states, refusal = await self._each(said.sessions, pause)
        if not states:
            return await self._notices.whisper(row, data, refusal, "refused")
        return await self._notices.tell(row, data, phrases.paused_text(states, said.word), "applied")

    async def _resume(self, row: InboxRow, data: dict[str, Json], actor: Actor, said: Control) -> bool:
        """Let what is held here go on."""
        heads = await self._heads(row)
        held = [head.session_id for head in heads if head.phase == "held"]
        if not held:
            status = await self._status.of(heads)
            return await self._notices.look(row, data, actor, f"Nothing is paused here.\n{status}")

        async def resume(session_id: str) -> State:
            return await self._engine.apply(session_id, Resume(said.text or phrases.GO_ON, actor, row.key))

        try:
            states, refusal = await self._each(held, resume)
        except InvalidAnswer as error:
            return await self._notices.tell(row, data, escape(str(error)), "refused")
        if not states:
            return await self._notices.whisper(row, data, refusal, "refused")
        return await self._notices.tell(row, data, phrases.resumed_text(states), "applied")

    async def _confirm_cancel(
        self, row: InboxRow, data: dict[str, Json], actor: Actor, said: Control
    ) -> bool:
        """`cancel` in a thread asks before it ends anything; whoever may not end it is told so at once."""
        mine, refusal = [], "You may not cancel this."
        for session_id in said.sessions:
            state = await self._engine.verified_state(session_id)
            verdict = authorize(actor, "cancel", self._gate.target(state.actor, True))
            if verdict.allowed:
                mine.append((state.flow_name, session_id))
            refusal = verdict.reason or refusal
        if not mine:
            return await self._notices.whisper(row, data, refusal, "refused")
        text, blocks = phrases.confirm_cancel(mine)
        return await self._notices.tell(row, data, text, "told", blocks=blocks)

    async def _each(
        self, sessions: Iterable[str], act: Callable[[str], Awaitable[State]]
    ) -> tuple[list[State], str]:
        """The states of those sessions with which it could be done, and why not with the last other one."""
        states, refusal = [], ""
        for session_id in sessions:
            try:
                states.append(await act(session_id))
            except InvalidAnswer:
                raise
            except (Refused, SessionError) as error:
                refusal = str(error)
        return states, refusal

    async def _heads(self, row: InboxRow) -> list[Head]:
        heads = await self._engine.writer.call(self._engine.store.heads, thread_key=row.thread_key)
        return heads
