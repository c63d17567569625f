"""Wake-ups, never truth: something may have become ready. A wake-up may be lost, late or doubled.

The local one is asyncio plus a look at the store: whoever is woken asks the store what there is to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

POLL_SECONDS = 0.2
"""How often the commits of other processes are looked for."""


class Wakeups(Protocol):
    """Delivers wake-ups to one process."""

    def notify(self) -> None:
        """Something became ready in this process."""

    async def wait(self, seconds: float | None) -> None:
        """Return at the next wake-up, or after so many seconds."""


class LocalWakeups:
    """Wakes for `notify()` in this process, and within `POLL_SECONDS` for commits of other processes."""

    def __init__(self, changed: Callable[[], Awaitable[bool]], poll_seconds: float = POLL_SECONDS) -> None:
        self._changed = changed
        self._poll = poll_seconds
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Something became ready in this process."""
        self._event.set()

    async def wait(self, seconds: float | None) -> None:
        """Return at the next wake-up, or after so many seconds (None: no limit)."""
        loop = asyncio.get_running_loop()
        end = None if seconds is None else loop.time() + seconds
        while not self._event.is_set():
            left = self._poll if end is None else min(self._poll, end - loop.time())
            if left <= 0:
                return
            try:
                async with asyncio.timeout(left):
                    await self._event.wait()
            except TimeoutError:
                if await self._changed():
                    return
        self._event.clear()
