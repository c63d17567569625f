"""Another program holds the database while the bot serves: its loops wait, and continue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.serve import chores
from engine.storage import backoff, connection
from engine.storage.sqlite import open_sqlite
from tests.storage.test_storage_trouble import held
from tests.support.acting import Workspace
from tests.support.bot import bot_here, start_flow

pytestmark = pytest.mark.process

ASKS = {"asks": 'flow: asks\nnodes: [{id: why, type: ask, with: {message: "Why?"}}]\n'}


async def test_a_database_that_is_locked_at_the_start_is_waited_for(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first start writes whose store it is: while another program holds it the start waits, and then serves."""
    monkeypatch.setattr(connection, "BUSY_MILLISECONDS", 20)
    home = tmp_path / "home"
    home.mkdir()
    path = home / "sayso.db"
    open_sqlite(path).close()
    other = held(path)
    other.__enter__()
    refusals = 0

    def let_go() -> Iterator[float]:
        nonlocal refusals
        while True:
            yield 0.0
            refusals += 1
            if refusals == 2:
                other.__exit__(None, None, None)

    with monkeypatch.context() as patched:
        patched.setattr(backoff, "delays", let_go)
        async with bot_here(workspace, tmp_path, ASKS):
            await start_flow(workspace, "ana", "ops", "asks", says="Why?")
    assert refusals == 2


@pytest.mark.parametrize("loop", ["_note_heard", "keep_house"])
async def test_a_locked_database_does_not_end_the_bot(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    """The note of the last event and the hourly housekeeping are waited for, and the bot continues."""
    monkeypatch.setattr(connection, "BUSY_MILLISECONDS", 20)
    async with bot_here(workspace, tmp_path, ASKS) as bot:
        bot._heard = -1
        refused, loop_here, note = asyncio.Event(), asyncio.get_running_loop(), bot.engine.store.note_trouble

        def noted(text: str | None) -> None:
            note(text)
            loop_here.call_soon_threadsafe(refused.set)

        monkeypatch.setattr(bot.engine.store, "note_trouble", noted)
        with held(tmp_path / "home" / "sayso.db"):
            work = asyncio.create_task(
                bot._note_heard()
                if loop == "_note_heard"
                else chores.keep_house(bot.settings, bot.engine, bot.machine.now)
            )
            async with asyncio.timeout(20):
                await refused.wait()
            assert not work.done()
        await start_flow(workspace, "ana", "ops", "asks", says="Why?")
        if loop == "_note_heard":
            await work
        else:
            assert not work.done()
            work.cancel()
