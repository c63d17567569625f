"""Waiting for something that may be aborted meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")

GRACE = 0.5
"""Seconds that closing something may take before it is left alone."""


class Aborted(Exception):
    """The signal was set; what was waited for has been cancelled."""


class Abortable:
    """Waits for one thing after the other until a signal is set. `close` it at the end.

    As `asyncio.timeout` does, it cancels the task that waits and takes the cancellation back: a task of its own for
    each of hundreds of events would cost more than the events.
    """

    def __init__(self, signal: asyncio.Event | None) -> None:
        self._signal = signal
        self._waiting: asyncio.Task[Any] | None = None
        self._cancelled = False
        self._watcher: asyncio.Future[Any] | None = None
        if signal is not None:
            self._watcher = asyncio.ensure_future(signal.wait())
            self._watcher.add_done_callback(self._on_signal)

    async def run(self, work: Awaitable[T]) -> T:
        """The result of this work. Raises `Aborted` when the signal is set before it is there."""
        task = asyncio.current_task()
        if self._signal is None or task is None:
            return await work
        if self._signal.is_set():
            asyncio.ensure_future(work).cancel()
            raise Aborted
        self._waiting, before = task, task.cancelling()
        try:
            return await work
        except asyncio.CancelledError:
            if self._cancelled and task.uncancel() <= before:
                raise Aborted from None
            raise
        finally:
            self._waiting = None

    def close(self) -> None:
        """Wait for the signal no longer."""
        if self._watcher is not None:
            self._watcher.cancel()

    def _on_signal(self, watcher: asyncio.Future[Any]) -> None:
        """Cancel who waits. The loop calls this, so that whoever waits is suspended and will hear of it there."""
        if self._waiting is not None and not watcher.cancelled():
            self._cancelled = True
            self._waiting.cancel()


async def settle(task: asyncio.Future[Any]) -> None:
    """Give a task a moment to end, then leave it cancelled; how it ended interests nobody."""
    await asyncio.wait({task}, timeout=GRACE)
    task.cancel()
    if task.done() and not task.cancelled():
        task.exception()
