"""How long it takes until others continue with what a process did that was stopped: the same measurement of sayso and of a peer."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

PAUSE = 0.01
TAKEN_SECONDS = 120.0
"""How long others may take."""


class Log:
    """Lines that work writes when it begins: its name, the process, and the time."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def lines(self) -> list[list[str]]:
        """All lines so far."""
        return [line.split() for line in self.file.read_text().splitlines()] if self.file.exists() else []

    def times(self) -> dict[str, float]:
        """When each piece of work began last."""
        return {words[0]: float(words[-1]) for words in self.lines()}

    async def until(self, count: int) -> list[list[str]]:
        """The lines, once there are so many."""
        async with asyncio.timeout(TAKEN_SECONDS):
            while len(self.lines()) < count:  # noqa: ASYNC110 - processes of their own
                await asyncio.sleep(PAUSE)
        return self.lines()


async def takeovers(
    log: Log,
    count: int,
    begin: Callable[[], Awaitable[object]],
    stop: Callable[[int], None],
    mend: Callable[[list[int]], Awaitable[None]],
) -> list[float]:
    """Begin two pieces of work, stop the processes that do them, one after the other at any moment of a second, and again;
    the seconds until another process began each piece."""
    chance, taken = random.Random(7), list[float]()
    while len(taken) < count:
        before = len(log.lines())
        await asyncio.gather(begin(), begin())
        by_process: dict[int, str] = {}
        for name, process, _ in (await log.until(before + 2))[before:]:
            by_process.setdefault(int(process), name)
        stopped = {}
        for process, name in by_process.items():
            await asyncio.sleep(chance.random())
            stopped[name] = time.time()
            stop(process)
        await log.until(before + 4)
        began = log.times()
        taken += [began[name] - at for name, at in stopped.items()]
        await mend(list(by_process))
    return taken
