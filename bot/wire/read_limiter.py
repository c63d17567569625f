"""How often catch-up reads by itself.

Slack allows some fifty reads a minute with one method, in the whole workspace. A catch-up after a long absence would
use all of them for hours; a reply that somebody writes meanwhile, and the look for a post whose answer was lost, would
wait behind it. So it has a budget of its own below that limit, and stands back while anything else has to be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from bot.config.settings import Rate

_BURST = 4
"""The part of a budget, as a divisor, that may be used at once."""


class ReadBudget:
    """A token bucket for each method, what Slack asked to wait for, and who is in a hurry."""

    def __init__(
        self,
        rate: Rate | None,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`rate` is for each method; None is without a limit of our own. `clock` only goes forward."""
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._full = float(max(1, rate.most // _BURST)) if rate else 0.0
        self._buckets: dict[str, tuple[float, float]] = {}
        self._until: dict[str, float] = {}
        self._hurried = 0
        self._calm = asyncio.Event()
        self._calm.set()

    async def take(self, method: str) -> None:
        """Wait until catch-up may call this method once more."""
        while True:
            await self._calm.wait()
            wait = self._wait(method)
            if wait <= 0:
                return
            await self._sleep(wait)

    def block(self, method: str, seconds: float) -> None:
        """Slack asked to wait so long with this method."""
        self._until[method] = max(self._until.get(method, 0.0), self._clock() + seconds)

    @contextmanager
    def hurry(self) -> Iterator[None]:
        """Something waits for what is read in here: catch-up calls nothing meanwhile."""
        self._hurried += 1
        self._calm.clear()
        try:
            yield
        finally:
            self._hurried -= 1
            if not self._hurried:
                self._calm.set()

    def _wait(self, method: str) -> float:
        """For how many seconds to wait; at 0 a call is taken from the budget."""
        now = self._clock()
        blocked = self._until.get(method, now) - now
        if blocked > 0 or self._rate is None:
            return max(blocked, 0.0)
        a_second = self._rate.most / self._rate.seconds
        tokens, at = self._buckets.get(method, (self._full, now))
        tokens = min(self._full, tokens + (now - at) * a_second)
        if tokens < 1:
            return (1 - tokens) / a_second
        self._buckets[method] = (tokens - 1, now)
        return 0.0
