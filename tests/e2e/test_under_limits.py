"""The bot in a workspace that enforces Slack's limits: a minute of the loads that `bench/slack_load.py` measures."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from bench.report import quantile
from bench.slack_load import EDIT, limited_town, listening, spell_of, until_asked
from bench.slack_town import Load, finished
from tests.support.simulated import simulated


@simulated
async def test_no_question_waits_for_the_limits_of_edits(tmp_path: Path) -> None:
    """With 24 flows of two questions a minute the next question comes at once, and buttons go within half a minute."""
    async with limited_town(tmp_path, 2) as (load, _):
        await finished(await load.steady(24, 1.0), 60.0)
        assert load.unfinished() == load.doubled() == 0
        assert quantile(load.to_next(), 0.99) <= 2.0
        assert max(load.to_disarmed(by_press=True)) <= 2.0
        assert max(load.to_disarmed(by_press=False)) <= 30.0
        assert load.refused_share() == 0.0


@simulated
async def test_after_a_refusal_one_call_tries_and_two_lines_say_so(tmp_path: Path) -> None:
    """Edits are refused for ten seconds: one call finds that out, one finds out that it has ended; questions do not wait."""
    async with limited_town(tmp_path, 2) as (load, _):
        flows = asyncio.ensure_future(load.steady(16, 1.0))
        await asyncio.sleep(20)
        begin = load.clock()
        with listening() as told:
            load.workspace.faults.ratelimit(EDIT, retry_after=10, seconds=10)
            await finished(await flows, 60.0)
        assert spell_of(load.calls(begin), EDIT) == (1, 1)
        assert len(told.lines) == 2
        assert max(load.to_next(begin)) <= 2.0


@simulated
async def test_status_names_what_is_used_up_and_how_long_it_takes(tmp_path: Path) -> None:
    """While Slack refuses edits `/sayso status` says of which method, how many calls wait and for how long; after that
    nothing of it."""
    async with limited_town(tmp_path, 2) as (load, _):
        flows = asyncio.ensure_future(load.steady(16, 1.0))
        await asyncio.sleep(20)
        load.workspace.faults.ratelimit(EDIT, retry_after=30, seconds=30)
        await asyncio.sleep(20)
        told = await said_by_status(load)
        assert re.search(
            r"Slack's limit of `chat.update` is used up: [1-9]\d* calls? waits?, up to [1-9]\d s\.", told
        )
        await finished(await flows, 60.0)
        await asyncio.sleep(60)
        assert "limit" not in await said_by_status(load)


async def said_by_status(load: Load) -> str:
    """The answer to `/sayso status`."""
    answer = await load.workspace.slash("ana", load.channels[0], "/sayso", "status")
    return str((answer or {})["text"])


@simulated
async def test_a_burst_of_threads_is_asked_in_half_a_minute(tmp_path: Path) -> None:
    """200 flows begin at once in ten channels: the posts of a channel bind, and nothing that all of them look up."""
    async with limited_town(tmp_path, 10) as (load, town):
        begin, tasks = load.clock(), [asyncio.ensure_future(load.start(n, answers=0)) for n in range(200)]
        await until_asked(load, 200, 60.0)
        assert load.clock() - begin <= 25.0
        assert [call.method for call in town.calls].count("users.info") == 1
        await finished(tasks, 0.0)
