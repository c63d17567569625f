"""Waiting for something that may be aborted meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

GRACE = 0.5
"""Seconds that what was aborted has to clean up after itself."""


class Aborted(Exception):
    """The signal was set; what was waited for has been cancelled."""


class Abortable:
    """Runs one thing after the other until a signal is set. `close` it at the end."""

    def __init__(self, signal: asyncio.Event | None) -> None:
        self._signal = signal
        self._waiter = None if signal is None else asyncio.ensure_future(signal.wait())

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of this work. Raises `Aborted` when the signal is set first, or was set before."""
        if self._waiter is None or self._signal is None:
            return await work
        if self._signal.is_set():
            work.close()
            raise Aborted
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._waiter}, return_when=asyncio.FIRST_COMPLETED)
            if self._signal.is_set():
                raise Aborted
            return task.result()
        finally:
            await _stop(task)

    def close(self) -> None:
        """Wait for the signal no longer."""
        if self._waiter is not None:
            self._waiter.cancel()


async def _stop(task: asyncio.Future[Any]) -> None:
    """Cancel what still runs and give it a moment; what it raised then interests nobody."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=GRACE)
    if task.done() and not task.cancelled():
        task.exception()
