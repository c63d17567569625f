"""Background tasks that fail: which are started again, and which error ends them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import pairwise

import pytest

from engine.language.errors import (
    Corrupt,
    KeyMissing,
    SchemaTooNew,
    StorageBroken,
    StorageBusy,
    StoreSuspended,
)
from engine.run.supervision import supervised
from tests.support.inprocess import play


def grouped(error: Exception) -> Exception:
    """An error as a group of tasks raises it."""
    return ExceptionGroup("tasks", [ExceptionGroup("inner", [error])])


@pytest.mark.parametrize("wrap", [lambda error: error, grouped])
@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (OSError(24, "Too many open files"), False),
        (RuntimeError("a fault of ours"), False),
        (StorageBusy("locked"), False),
        (Corrupt("one row"), False),
        (StorageBroken("the disk"), True),
        (StoreSuspended("restored"), True),
        (KeyMissing("no key"), True),
        (SchemaTooNew("newer"), True),
    ],
)
def test_only_a_lost_store_ends_a_task(
    error: Exception, lost: bool, wrap: Callable[[Exception], Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """Every other failure is reported, and the work begins again."""
    begun = []

    async def work() -> None:
        begun.append(1)
        if len(begun) < 3:
            raise wrap(error)

    if lost:
        with pytest.raises(type(error)):
            play(lambda: supervised("the work", work))
    else:
        play(lambda: supervised("the work", work))
    assert len(begun) == (1 if lost else 3)
    assert [each.levelno for each in caplog.records] == [logging.ERROR] * (0 if lost else 2)
    ours = isinstance(error, RuntimeError)
    assert all(bool(each.exc_info) == ours for each in caplog.records)


def test_a_task_that_keeps_failing_is_started_less_and_less_often() -> None:
    """The wait doubles up to a minute, and begins again after the task ran for longer."""

    async def story() -> list[float]:
        clock, starts = asyncio.get_running_loop().time, []

        async def work() -> None:
            starts.append(clock())
            if len(starts) == 14:
                await asyncio.sleep(600)
            if len(starts) == 16:
                raise StorageBroken("the end")
            raise OSError

        with pytest.raises(StorageBroken):
            await supervised("the work", work)
        return starts

    starts = play(story)
    waits = [round(after - before, 2) for before, after in pairwise(starts)]
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60, 60, 600.05, 0.1]
