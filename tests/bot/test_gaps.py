"""Reading after gaps, where one of several processes reads for all."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bot.serve.gaps import READ, Gaps
from bot.serve.roles import Replica
from engine.storage.lanes import CHORES, Lane
from engine.storage.rows import GAP
from tests.bot.test_catchup import reading
from tests.support.engine import until
from tests.support.workspace import running_workspace


@pytest.mark.parametrize("heard", ["before anything is read", "after all is read"])
async def test_a_gap_that_is_heard_while_another_one_is_read_is_read_at_once(heard: str) -> None:
    """It needs no further gap, and no wait as after a failed read: others wait with what they take until it is read."""
    async with running_workspace() as workspace, reading(workspace) as (catchup, store):
        replica = Replica(catchup.writer, "all")
        replica.shared = True
        replica.has[CHORES] = cast(Lane, None)
        slack = cast(Any, SimpleNamespace(reopened=None))
        gaps = Gaps(replica, catchup.writer, slack, catchup, clock=lambda: 1.0, taken=lambda: None)
        gaps._connected.set()
        run, runs = catchup.run, 0

        async def interrupted() -> int:
            """Read; the first time a handler hears of another gap meanwhile."""
            nonlocal runs
            runs += 1
            found = await run() if heard == "after all is read" else 0
            if runs == 1:
                await gaps.note()
                await gaps.hear()
            return await run() if heard == "before anything is read" else found

        catchup.run = interrupted  # type: ignore[method-assign]
        leading = asyncio.create_task(gaps.lead())
        await until(lambda: runs >= 1 and store.marks.ts(READ) == store.marks.ts(GAP) is not None, within=10)
        assert catchup.complete
        leading.cancel()
        with suppress(asyncio.CancelledError):
            await leading
