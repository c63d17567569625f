"""Background tasks that fail are reported and started again, later each time. Only a lost store ends the process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from engine.language.errors import KeyMissing, SaysoError, SchemaTooNew, StorageBroken, StoreSuspended
from engine.storage.backoff import delays, is_away

log = logging.getLogger("sayso.service")

MOST_SECONDS = 60.0
"""The longest wait before another start. A task that ran longer than this begins with a short wait again."""


async def wait_at_most(seconds: float, event: asyncio.Event) -> None:
    """Return when the event is set, at the latest after so many seconds."""
    with contextlib.suppress(TimeoutError):
        # Not `wait_for`: on 3.11 it can swallow a cancellation that comes together with the result.
        async with asyncio.timeout(seconds):
            await event.wait()


def is_lost(error: BaseException) -> bool:
    """True if an error means that the store has become unusable."""
    return isinstance(error, StorageBroken | StoreSuspended | KeyMissing | SchemaTooNew)


async def supervised(
    name: str, work: Callable[[], Awaitable[None]], ends: Callable[[BaseException], bool] = is_lost
) -> None:
    """Do a task's work, and again after it failed. Raises an error that `ends` it, also one from inside a group."""
    clock, waits = asyncio.get_running_loop().time, delays(MOST_SECONDS)
    while True:
        begun = clock()
        try:
            await work()
            return
        except Exception as error:
            for each in _leaves(error):
                if ends(each):
                    raise each from None
            if clock() - begun > MOST_SECONDS:
                waits = delays(MOST_SECONDS)
            delay = next(waits)
            if not is_away(error):
                expected = all(isinstance(each, SaysoError | OSError) for each in _leaves(error))
                told = "; ".join(str(each) or type(each).__name__ for each in _leaves(error))
                log.error(
                    "%s failed, starting it again in %g s: %s", name, delay, told, exc_info=not expected
                )
        await asyncio.sleep(delay)


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for each in error.exceptions for leaf in _leaves(each)]
