"""Redrawing of cards beside a session's own steps: progress of running nodes, and a queue that moved up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from bot.faces.run import Behind
from bot.intents.session_rows import card_row
from engine.decide import limits
from engine.journal.events import Closure, Event, LockAcquired
from engine.journal.state import State
from engine.language.errors import SaysoError
from engine.run.engine import Engine
from engine.storage.group_commit import Writer

log = logging.getLogger("sayso.outbound")

queue_log = logging.getLogger("sayso.queues")


async def behind(writer: Writer, state: State) -> Behind | None:
    """Return the session ahead; None for one that waits for no lock, or whose turn it is. Raises `StorageError`."""
    if state.lock is None or not limits.pending(state):
        return None
    found = limits.standing(await writer.call(writer.store.locks.rows, state.lock.name), state.session_id)
    return None if found is None else Behind(*found)


class Queues:
    """Hears of every step of an engine, and has the cards of a queue that moved drawn again."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tasks: set[asyncio.Task[None]] = set()
        engine.subscribe(self._heard, LockAcquired, Closure)

    def _heard(self, state: State, events: Sequence[Event]) -> None:
        if state.lock is not None:
            task = asyncio.get_running_loop().create_task(self._redraw(state.lock.name))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _redraw(self, name: str) -> None:
        writer = self._engine.writer
        try:
            queue = await writer.call(writer.store.locks.rows, name)
            heads = [await writer.call(writer.store.sessions.head, row.session_id) for row in queue[1:]]
            rows = [
                card_row(head.session_id, head.seq) for head in heads if head is not None and head.thread_key
            ]
            if rows:
                await writer.call(writer.store.consume, (), self._engine.now(), rows)
        except SaysoError as error:
            queue_log.warning("the cards of the runs that wait for lock %s were not updated: %s", name, error)


CARD_SECONDS = 3.0
"""The least time between two edits of a card because of what a node says."""


class Meters:
    """Asks for a card to be drawn again when a node says how far it is. Construct it on the running event loop."""

    def __init__(self, engine: Engine, told: Callable[[], None], *, seconds: float = CARD_SECONDS) -> None:
        self._engine = engine
        self._told = told
        self._seconds = seconds
        self._waiting: dict[str, asyncio.Task[None]] = {}
        engine.executor.on_meter = self._moved

    def _moved(self, session_id: str) -> None:
        if session_id not in self._waiting:
            task = asyncio.create_task(self._draw(session_id), name=f"meter:{session_id}")
            self._waiting[session_id] = task
            task.add_done_callback(lambda _: self._waiting.pop(session_id, None))

    async def _draw(self, session_id: str) -> None:
        """Draw it now; what is said meanwhile is drawn when its time has come."""
        shown = None
        while shown != (now := dict(self._engine.executor.meters.get(session_id) or {})):
            if now:
                await self._put(session_id)
            shown = now
            await asyncio.sleep(self._seconds)

    async def _put(self, session_id: str) -> None:
        try:
            state = await self._engine.state(session_id)
            if (state.thread or {}).get("key") and not state.ended:
                await self._engine.writer.call(
                    self._engine.store.consume, [], self._engine.now(), [card_row(session_id, state.seq)]
                )
                self._told()
        except SaysoError as error:
            log.info("the card of %s is not updated: %s", session_id, error)
