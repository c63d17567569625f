"""A part of the running bot that fails is reported and started again, and the bot continues serving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bot.handlers.catchup import CatchUp
from bot.outbound.outbox_worker import Outbound
from bot.serve import chores
from bot.serve.main import Bot
from bot.start.schedules import Schedules
from bot.views.home import HomeKind
from bot.wire.budget import Budget
from bot.wire.sockets import Sockets
from engine.language.errors import StorageBroken
from engine.run.dispatcher import Dispatcher
from tests.support.bot import start_flow
from tests.support.simulated import inhabited_town, simulated

FLOW = "flow: one\nnodes:\n  - {id: tell, type: message, with: {text: hello}}\n"
PARTS = {
    "outbound": (Outbound, "_look"),
    "service": (Dispatcher, "_sweep"),
    "chores": (Bot, "_lead"),
    "token": (chores, "watch_token"),
    "limits": (Budget, "full"),
    "sockets": (Sockets, "_silence"),
    "homes": (HomeKind, "run"),
    "catch-up": (CatchUp, "run"),
    "schedules": (Schedules, "look"),
    "housekeeping": (chores, "_retained"),
    "noticing gaps": (Bot, "_stored_marks"),
}


def fails_once(monkeypatch: pytest.MonkeyPatch, part: str, error: Exception) -> list[int]:
    """Let a part of the bot fail the first time; how often it was called, one entry a call."""
    owner, name = PARTS[part]
    calls, real = [], getattr(owner, name)

    def call(*args: Any, **given: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise error
        return real(*args, **given)

    monkeypatch.setattr(owner, name, call)
    return calls


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_fails_is_started_again(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names it, and flows run as before."""
    calls = fails_once(monkeypatch, part, OSError(24, "Too many open files"))

    @simulated
    async def story() -> None:
        async with inhabited_town(tmp_path, {"one": FLOW}) as (workspace, town):
            await town.until(lambda: len(calls) > 1, most=4000)
            await start_flow(workspace, "ana", "ops", "one", says="hello")

    story()
    failed = [
        each.getMessage() for each in caplog.records if " failed, starting it again" in each.getMessage()
    ]
    assert [text.partition(" failed")[0] for text in failed] == [part]


@pytest.mark.parametrize("part", PARTS)
def test_a_lost_store_ends_the_bot_whichever_part_notices(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends with what was said about the store, and not with a group of errors."""
    calls = fails_once(monkeypatch, part, StorageBroken("the disk is gone"))

    @simulated
    async def story() -> None:
        with pytest.raises(StorageBroken, match="the disk is gone"):
            async with inhabited_town(tmp_path, {"one": FLOW}) as (_, town):
                await town.until(lambda: calls, most=4000)
                await town.ended()

    story()


def test_a_bot_without_supervision_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seeded fault: where every error ends its part, the bot ends."""
    calls = fails_once(monkeypatch, "housekeeping", OSError(24, "Too many open files"))
    monkeypatch.setattr(Bot, "_is_over", lambda self, error: True)

    @simulated
    async def story() -> None:
        with pytest.raises(OSError, match="Too many open files"):
            async with inhabited_town(tmp_path, {"one": FLOW}) as (_, town):
                await town.until(lambda: calls)
                await town.ended()

    story()
