"""Time that passes only when nothing is left to do, and an event loop that lives in it."""

from __future__ import annotations

import asyncio
import heapq
from asyncio import base_events
from collections.abc import Callable
from typing import Any

MOST_TURNS = 5_000
"""Turns of the loop without time passing: more of them are a loop that never waits."""
MOST_SPINS = 20_000
"""The same for turns in which the loop would not even wait."""
STANDING = 8
"""Turns in which the tasks of a process that ends are thrown away."""


class Stuck(Exception):
    """Nothing can happen any more, or something happens forever without time passing."""


class Timeline:
    """What will happen outside the bot, in the order of its time. `now` is in seconds and starts at 0."""

    def __init__(self) -> None:
        self.now = 0.0
        self._coming: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0
        self._turns = self._spins = 0

    def spin(self) -> None:
        """A loop takes one more turn at this moment. Raises `Stuck`."""
        self._spins += 1
        if self._spins > MOST_SPINS:
            raise Stuck(f"{MOST_SPINS} turns at {self.now:.3f} that wait for nothing")

    def rest(self) -> None:
        """Count turns from here on."""
        self._turns = self._spins = 0

    def after(self, seconds: float, happen: Callable[[], None]) -> None:
        """Let something happen so many seconds from now."""
        self._serial += 1
        heapq.heappush(self._coming, (self.now + seconds, self._serial, happen))

    def advance(self, most: float | None) -> None:
        """Continue to the next thing that happens, or so many seconds if nothing happens before. Raises `Stuck`."""
        self._turns += 1
        if self._turns > MOST_TURNS:
            raise Stuck(f"{MOST_TURNS} turns at {self.now:.3f} without time passing")
        if most is not None and (not self._coming or self._coming[0][0] > self.now + most):
            self._to(self.now + most)
            return
        if not self._coming:
            raise Stuck(f"nothing is left to happen at {self.now:.3f}")
        when, _, happen = heapq.heappop(self._coming)
        self._to(when)
        happen()

    def _to(self, when: float) -> None:
        if when > self.now:
            self.now, self._turns, self._spins = when, 0, 0


class SimLoop(base_events.BaseEventLoop):
    """An event loop without files and sockets. Where a real one would wait for them, the timeline continues."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self._timeline = timeline
        self._selector = self
        self.drowsy = False
        """Whether this loop stops where it would wait, because another one lives in the same time."""

    def time(self) -> float:
        """Seconds of the timeline."""
        return self._timeline.now

    def select(self, timeout: float | None) -> list[Any]:
        """Called by the loop when it would wait for its sockets."""
        if self.drowsy and (timeout is None or timeout > 0):
            self.stop()
        elif timeout is None or timeout > 0:
            self._timeline.advance(timeout)
        else:
            self._timeline.spin()
        return []

    def due(self) -> float | None:
        """When something that this loop waits for is due; None where it is not waiting for anything."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]  # BaseEventLoop's heap
        return min((timer.when() for timer in timers if not timer.cancelled()), default=None)

    def bury(self) -> None:
        """Throw all tasks away, without a word."""
        self.set_exception_handler(lambda loop, context: None)
        for _ in range(STANDING):
            tasks = asyncio.all_tasks(self)
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # what asyncio itself sets
                task.cancel()
            if not tasks:
                break
            self.call_soon(self.stop)
            self.run_forever()

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        """There are no threads: what would run on one runs at once."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def _process_events(self, event_list: Any) -> None:
        return None

    def _write_to_self(self) -> None:
        return None
