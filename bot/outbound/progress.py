"""How far running nodes are, on the card: a look at what they say now, never recorded, and not too often."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from bot.intents.session_rows import card_row
from engine.language.errors import SaysoError
from engine.run.engine import Engine

log = logging.getLogger("sayso.outbound")

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
            log.info("the card of %s is not drawn again: %s", session_id, error)
