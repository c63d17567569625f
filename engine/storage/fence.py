"""The fence before effects: whether what a process does outside of its store may still happen.

Records are fenced by epochs: a process that was frozen while others took its work over cannot write. A program that it
starts, a request or a message has no epoch. So whoever is about to have an effect asks the fence right before it, without
I/O: is the last confirmed sign of life younger than the lease, and has no gap lain between the signs since the work began?
The second question is for a process whose sign of life runs first when it wakes. Gaps are counted, as *generations*: work
remembers the one under which it began.

Time is taken before a sign is given, from a clock that continues while the machine sleeps. Where only the kernel can end a
lease (a locked file), nobody takes the work of a process that lives, however long it slept: its generation never changes.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from engine.language.errors import FenceLost, StorageBroken, StorageError

_ASK_AGAIN_SECONDS = 0.1
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Without such a clock (macOS), the other one keeps running while the machine sleeps."""


def boottime() -> float:
    """Seconds of a clock that only goes forward, also while the machine sleeps."""
    return time.clock_gettime(_BOOTTIME)


class Fence(Protocol):
    """Lease of this process as the store knows it, without I/O, for any thread."""

    def generation(self) -> int:
        """Return the generation that work remembers when it begins; it changes after each gap between signs of life."""

    def holds(self, generation: int) -> bool:
        """True if work of that generation may have effects now."""


class Signs:
    """The signs of life that a process gives, where others take it for dead after `limit` seconds without one."""

    def __init__(self, limit: float, clock: Callable[[], float] = boottime) -> None:
        self.clock = clock
        """Read it before a sign is given, for `confirmed`."""
        self.generation = 0
        self._limit = limit
        self._last = self._since = float("-inf")

    def confirmed(self, given: float) -> None:
        """A sign that was given at this time has arrived, not later than now."""
        if self.clock() - self._last > self._limit:
            self.generation += 1
            self._since = given
        self._last = given

    def lost(self) -> None:
        """Others count this process as dead."""
        self._last = float("-inf")

    def fresh(self) -> bool:
        """True if nobody can have taken this process for dead yet."""
        return self.clock() - self._last < self._limit

    def unbroken(self) -> float:
        """For how many seconds there has been no gap; 0 while there is one."""
        return self.clock() - self._since if self.fresh() else 0.0


class WorkPermit:
    """The right of one piece of work to have effects; see `engine.nodes.runtime.effects`.

    `still` asks the store whether the work is this process's: a gap may have been the store's, and nobody was there to take
    it over. Where it is left out, work that was begun before a gap is left to whoever begins it again.
    """

    def __init__(
        self, fence: Fence, generation: int, still: Callable[[], Awaitable[bool]] | None = None
    ) -> None:
        self._fence, self._generation, self._still = fence, generation, still

    def holds(self) -> bool:
        """See `Permit.holds`."""
        return self._fence.holds(self._generation)

    async def ask(self) -> None:
        """See `Permit.ask`. While the store is away, the work waits."""
        while not self.holds():
            generation = self._fence.generation()
            try:
                if self._still is None or not await self._still():
                    raise FenceLost
                self._generation = generation
            except StorageBroken:
                raise FenceLost from None
            except StorageError:
                pass
            if not self.holds():
                import asyncio  # whoever only reads a store has no loop

                await asyncio.sleep(_ASK_AGAIN_SECONDS)
