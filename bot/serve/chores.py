"""Periodic tasks of a bot: retention, checks of its token, and records of exhausted rate limits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from slack_sdk.web.async_client import AsyncWebClient

from bot.compose import attesting, retention
from bot.config.settings import Settings
from bot.wire.budget import FULL, Budget
from bot.wire.client import AuthLost, classify
from engine.run import evidence
from engine.run.engine import Engine
from engine.storage.backoff import waited_out

log = logging.getLogger("sayso")

LIMITS_SECONDS = 5.0
"""Seconds between records of exhausted Slack methods."""

ATTEST_SECONDS = 5.0
"""Seconds between looks for sessions that ended."""

AGAIN_SECONDS = 60.0
"""Seconds until a checkpoint that could not be published is tried again."""

TOKEN_SECONDS = 60.0
"""Seconds between checks whether Slack still accepts the token."""


async def note_limits(budget: Budget, engine: Engine, seconds: Callable[[], float]) -> None:
    """Keep which methods of Slack are used up, for `sayso doctor`. Never returns."""
    while True:
        await asyncio.sleep(LIMITS_SECONDS)
        for full in budget.full():
            until = f"{seconds() + full.seconds:.6f}"
            mark = partial(engine.writer.call, engine.store.marks.move, FULL + full.method, until)
            await waited_out(mark, "a limit of Slack")


async def watch_token(bot: AsyncWebClient) -> None:
    """Check periodically that the token is accepted, also while nothing is sent. Raises `AuthLost` if it is not."""
    while True:
        await asyncio.sleep(TOKEN_SECONDS)
        try:
            await bot.auth_test()
        except Exception as error:
            fault = classify(error)
            if isinstance(fault, AuthLost):
                log.critical("%s", fault)
                raise fault from error
            log.info("could not check the token with Slack: %s", fault)


async def keep_house(settings: Settings, engine: Engine, now: Callable[[], str]) -> None:
    """Once an hour: delete sessions that ended longer ago than the retention, and snapshot files without one. Never returns."""
    while True:
        gone = await waited_out(lambda: _retained(settings, engine, now()), "deleting old sessions")
        if gone:
            log.info(
                "%d sessions that ended more than %g days ago were deleted", gone, settings.retention_days
            )
        await engine.tidy_files(settings.retention_days * 86400)
        await asyncio.sleep(retention.EVERY_SECONDS)


async def attest(
    settings: Settings, engine: Engine, now: Callable[[], str], seconds: Callable[[], float]
) -> None:
    """Make checkpoints: at the end of runs, and once an hour over all that continued. One that cannot be published is tried again.
    Never returns."""
    store, call = engine.store, engine.writer.call
    publisher, due, again = attesting.Publisher(settings.checkpoints), 0.0, 0.0
    note = await waited_out(lambda: call(attesting.newest, store), "the newest checkpoint")
    while True:
        since = attesting.since(now()) if seconds() < due else None
        ahead = partial(call, store.evidence.ahead, since)
        waiting = await waited_out(ahead, "sessions to attest")
        for session_id in waiting:  # one at a time: a long history is read while nothing else is written
            made = partial(call, evidence.attest_some, store, [session_id], now())
            note = await waited_out(made, "a checkpoint") or note
        due = due if since else seconds() + attesting.EVERY_SECONDS
        if settings.checkpoints and note is not None and seconds() >= again:
            published = await asyncio.to_thread(publisher.publish, note)
            note, again = (None, 0.0) if published else (note, seconds() + AGAIN_SECONDS)
        await asyncio.sleep(ATTEST_SECONDS)


async def _retained(settings: Settings, engine: Engine, now: str) -> int:
    """Run a round of the retention; returns the number of deleted sessions. Skipped after a clock jump."""
    if engine.clock_jumped():
        return 0
    kept = retention.Retention.of(settings, engine.store)
    return await retention.in_turn(retention.full_round(kept, now), engine.writer)
