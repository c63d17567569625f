"""Backoff: what a store refuses for now is tried again, later each time, and nothing else is.

A database that another program has locked, a full disk and a failed read may be well again in a moment. Damage, a broken
device, a suspended store and another owner are not waited out: those errors are raised at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from engine.errors import StorageError, StorageFull

log = logging.getLogger("sayso.storage")
T = TypeVar("T")

FIRST_SECONDS = 0.05
MOST_SECONDS = 5.0


def delays() -> Iterator[float]:
    """Seconds to wait before each further attempt: doubled up to `MOST_SECONDS`."""
    delay = FIRST_SECONDS
    while True:
        yield delay
        delay = min(delay * 2, MOST_SECONDS)


def passes(error: BaseException) -> bool:
    """Whether an error of the store may be gone at the next attempt."""
    return type(error) in (StorageError, StorageFull)


async def waited_out(
    work: Callable[[], Awaitable[T]], what: str, going_on: Callable[[], bool] = lambda: True
) -> T:
    """The outcome of `work`, tried until the store takes it. Raises an error that does not pass, and any once `going_on` is over."""
    for delay in delays():
        try:
            return await work()
        except StorageError as error:
            if not passes(error) or not going_on():
                raise
            log.error("%s waits: %s", what, error)
        await asyncio.sleep(delay)
    raise AssertionError("delays never end")
