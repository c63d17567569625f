"""Backoff: what a store refuses for now is tried again, later each time, and nothing else is.

A database that another program has locked, a full disk and a failed read may be well again in a moment. Damage, a broken
device, a suspended store and another owner are not waited out: those errors are raised at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

from engine.language.errors import RowRefused, StorageBusy, StorageError, StorageFull
from engine.storage.errors import (
    ConnectionLost,
    ServerUnusable,
    StoreClosed,
    StoreFailure,
    WriterClosed,
    WriterNotStarted,
)

log = logging.getLogger("sayso.storage")
T = TypeVar("T")

FIRST_SECONDS = 0.05
MOST_SECONDS = 5.0
TOLD_SECONDS = 1.0
"""Seconds after which a wait is logged."""


def delays(most: float = MOST_SECONDS) -> Iterator[float]:
    """Seconds to wait before each further attempt: doubled up to `most`."""
    delay = FIRST_SECONDS
    while True:
        yield delay
        delay = min(delay * 2, most)


def passes(error: BaseException) -> bool:
    """True if an error of the store may be gone at the next attempt: not one of a store that this process has closed."""
    if isinstance(error, WriterClosed | WriterNotStarted | StoreClosed):
        return False
    passing = StoreFailure | RowRefused | StorageBusy | StorageFull
    return type(error) is StorageError or isinstance(error, passing)


def is_away(error: BaseException | None) -> bool:
    """True if an error means that a server is away, which the store tells once when it begins and once when it has ended."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_away, error.exceptions))
    return error is not None and (
        isinstance(error, ServerUnusable | ConnectionLost) or is_away(error.__cause__)
    )


def is_busy(error: BaseException) -> bool:
    """True if another program holds the database, the only temporary error of opening it."""
    return isinstance(error, StorageBusy)


class Patience:
    """SQLite's busy handler for a process that ends once its work is done: it waits this many seconds for another program, and
    says so once."""

    def __init__(self, file: Path, seconds: float) -> None:
        self._file, self._seconds = file, seconds
        self._delays, self._since, self._told = delays(), 0.0, False

    def __call__(self, asked: int) -> bool:
        """True to try once more; `asked` is 0 for a lock that is waited for from now on."""
        now = time.monotonic()
        if asked == 0:
            self._delays, self._since = delays(), now
        left = self._since + self._seconds - now
        if left <= 0:
            return False
        if not self._told and now - self._since > TOLD_SECONDS:
            self._told = True
            log.warning("%s is held by another program; waiting %d s for it at most", self._file, left)
        time.sleep(min(next(self._delays), left, 1.0))
        return True


async def waited_out(
    work: Callable[[], Awaitable[T]],
    what: str,
    going_on: Callable[[], bool] = lambda: True,
    passing: Callable[[BaseException], bool] = passes,
) -> T:
    """The outcome of `work`, tried until the store takes it. Raises an error that is not `passing`, and any once `going_on` is
    over."""
    import asyncio  # not for those who only read

    for delay in delays():
        try:
            return await work()
        except StorageError as error:
            if not passing(error) or not going_on():
                raise
            log.error("%s waits: %s", what, error)
        await asyncio.sleep(delay)
    raise AssertionError("delays never end")
