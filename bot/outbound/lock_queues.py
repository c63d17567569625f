"""Keeps the cards of sessions that wait for a lock right: when somebody leaves a queue, those behind move up.

A card is drawn from the store when it is sent, so all that is written here is that it has to be drawn again. What a
crash loses is one such note: the card then tells an older place until its session goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from bot.intents.session_rows import card_row
from bot.rendering.locks import Behind
from engine.decide import locks
from engine.journal.events import Event, LockAcquired, SessionEnd
from engine.journal.state import State
from engine.language.errors import SaysoError
from engine.run.engine import Engine
from engine.storage.group_commit import Writer

log = logging.getLogger("sayso.queues")


async def behind(writer: Writer, state: State) -> Behind | None:
    """Whom a session waits for; None for one that waits for no lock, or whose turn it is. Raises `StorageError`."""
    if state.lock is None or not locks.pending(state):
        return None
    found = locks.standing(await writer.call(writer.store.locks, state.lock.name), state.session_id)
    return None if found is None else Behind(*found)


class Queues:
    """Hears of every step of an engine, and has the cards of a queue that moved drawn again."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tasks: set[asyncio.Task[None]] = set()
        engine.subscribe(self._heard)

    def _heard(self, state: State, events: Sequence[Event]) -> None:
        if state.lock is not None and any(isinstance(event, LockAcquired | SessionEnd) for event in events):
            task = asyncio.get_running_loop().create_task(self._redraw(state.lock.name))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _redraw(self, name: str) -> None:
        writer = self._engine.writer
        try:
            queue = await writer.call(writer.store.locks, name)
            heads = [await writer.call(writer.store.head, row.session_id) for row in queue[1:]]
            rows = [
                card_row(head.session_id, head.seq) for head in heads if head is not None and head.thread_key
            ]
            if rows:
                await writer.call(writer.store.consume, (), self._engine.now(), rows)
        except SaysoError as error:
            log.warning("the cards of those who wait for lock %s were not drawn again: %s", name, error)
