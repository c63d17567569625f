"""Shows the text of agents while it comes. Only how it looks: what is lost here is written once it is whole.

The first words have a row put in the outbox, which posts them; from then on the message is edited, not more often than
Slack takes. A turn that begins again shows its new text in the place
of the old one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import count

from bot.intents.agent_rows import agent_of, text_key, writing_row
from bot.outbound.agent_messages import LiveText, Pieces
from bot.outbound.calls import EDIT, Hold
from bot.outbound.posts import Ledger, Sessions, posted_of
from bot.wire.budget import Urgency, urgency
from bot.wire.client import Permanent, RateLimited, SlackFault
from engine.journal.events import AgentCompacted, Closure, Event, NodeRetried, Start
from engine.journal.records import OutboxRow
from engine.journal.state import State
from engine.language.codec import Json
from engine.language.errors import FenceLost, SaysoError
from engine.messages.turns import Finished, TextDelta, ThinkingDelta, TurnEvent

log = logging.getLogger("sayso.outbound")

STREAM_EVENTS = (Start, NodeRetried, AgentCompacted, Closure)
"""The events that change what is shown of texts that come."""
AGAIN_SECONDS = 1.0
"""After how long an edit is tried again that failed."""
_KEPT = 100
"""Texts of ended sessions that are kept: their last rows may not be sent yet."""


@dataclass(eq=False, repr=False)
class Streams:
    """Hears what models say and shows it. `told` is called when the outbox has something new."""

    ledger: Ledger
    pieces: Pieces
    sessions: Sessions
    _: KW_ONLY
    told: Callable[[], None]
    sends: Callable[[], bool] = lambda: True
    """Returns True if this process posts in a channel. If another one does, the text appears once it is whole."""
    _ended: list[tuple[str, str]] = field(default_factory=list, init=False)
    _tasks: dict[tuple[str, str], asyncio.Task[None]] = field(default_factory=dict, init=False)

    # --- hearing -------------------------------------------------------------------------------------------

    def heard(self, session_id: str, path: str, event: TurnEvent) -> None:
        """A turn says something: `Executor.on_stream`. Must be called on the event loop."""
        key = (session_id, path)
        live = self.pieces.lives.get(key)
        if isinstance(event, TextDelta | ThinkingDelta):
            if live is None:
                live = self.pieces.lives[key] = LiveText(session_id, path)
            if live.closed:
                return
            live.blocks[event.index] = live.blocks.get(event.index, "") + event.text
            if key not in self._tasks:
                task = asyncio.get_running_loop().create_task(self._run(live), name=f"live:{path}")
                self._tasks[key] = task
                task.add_done_callback(lambda _: self._tasks.pop(key, None))
            live.changed.set()
        elif isinstance(event, Finished) and live is not None:
            live.changed.set()

    def happened(self, state: State, events: Sequence[Event]) -> None:
        """Events of a session: a turn that begins again says everything again, and what has ended says nothing more."""
        for event in events:
            live = self.pieces.lives.get((state.session_id, str(getattr(event, "path", None) or "")))
            if live is not None and isinstance(event, Start | NodeRetried):
                live.blocks.clear()
                live.changed.set()
            if isinstance(event, AgentCompacted):
                self.pieces.lives.pop((state.session_id, event.turn), None)
        if state.ended:
            for session_id, turn in list(self.pieces.lives):
                if session_id == state.session_id:
                    self._close(self.pieces.lives[session_id, turn])
                    self._ended.append((session_id, turn))
        for key in self._ended[:-_KEPT]:
            self.pieces.lives.pop(key, None)
        del self._ended[:-_KEPT]

    def _close(self, live: LiveText) -> None:
        live.closed = True
        live.changed.set()

    def stop(self) -> None:
        """Show nothing more."""
        for task in list(self._tasks.values()):
            task.cancel()

    # --- showing -------------------------------------------------------------------------------------------

    async def _run(self, live: LiveText) -> None:
        try:
            state = await self._state(live)
            if state is None:
                self._close(live)
                return
            while not live.closed:
                live.changed.clear()
                if live.text.strip():
                    # Each part that has begun has a row, which the outbox posts.
                    rows = [writing_row(state, live.turn, part) for part in range(len(live.parts))]
                    missing = [row for row in rows if await self.ledger.row(row.key) is None]
                    if missing:
                        await self.ledger.put(missing)
                        self.told()
                await self._show(live)
                if not live.changed.is_set():
                    await live.changed.wait()
        except (SaysoError, FenceLost) as error:
            log.warning("the text of %s is not streamed: %s", live.turn, error)
            self._close(live)
        except Exception:
            # A fault of ours in what is for the eye only: the whole text comes from the journal.
            log.exception("the text of %s is not streamed", live.turn)
            self._close(live)

    async def _state(self, live: LiveText) -> State | None:
        """The session, if its thread is in Slack and this turn speaks to it: not one that sums a conversation up."""
        state = await self.sessions.state(live.session_id)
        run = state.nodes.get(live.turn)
        request: Json = run.input if run is not None and isinstance(run.input, dict) else {}
        key = str((state.thread or {}).get("key") or "")
        live.channel = key.split(":")[1] if key else ""
        if not key or not self.sends() or request.get("purpose") == "compact":
            return None
        container = state.containers.get(agent_of(live.turn))
        live.structured = bool(container and container.agent and container.agent.structured)
        return state

    async def _show(self, live: LiveText) -> None:
        """Bring the messages of a text up to date; those that are posted."""
        for part, row in await self._posted(live):
            try:
                await self._bring(live, part, row)
            except Permanent as fault:
                log.info("a message of %s is no longer edited: %s", live.turn, fault)
                live.over.add(part)
            except (SlackFault, Hold) as problem:
                log.info("a message of %s is edited later: %s", live.turn, problem)
                live.changed.set()
                if not isinstance(problem, RateLimited):
                    await asyncio.sleep(AGAIN_SECONDS)

    async def _posted(self, live: LiveText) -> list[tuple[int, OutboxRow]]:
        """The parts that can be edited: posted, and not written for good. Of a call that failed also those that it has no
        words for any more."""
        found = []
        for part in count():
            key = text_key(live.session_id, live.turn, part)
            row = await self.ledger.row(key)
            if row is None:
                break
            if posted_of(row) is not None and part not in live.over and not live.closed:
                found.append((part, row))
        return found

    async def _bring(self, live: LiveText, part: int, row: OutboxRow) -> None:
        """Show what has come by the time that its turn has."""
        where, budget = posted_of(row), self.pieces.calls.budget
        with urgency(Urgency.PROGRESS):
            async with budget.reserved(EDIT):
                lock = self.pieces.lock(row.lane)
                if not lock.locked():
                    async with lock:
                        if where is None or part in live.over or live.closed:
                            return
                        if not self.sends():
                            self._close(live)
                            return
                        await self.pieces.draw(where, await self.pieces.standing(row))
                        return
        # Whoever changes this thread may wait for the turn that was reserved here.
        live.changed.set()
        await asyncio.sleep(AGAIN_SECONDS)
