"""Damaged journals, a socket that is gone for a while, and scopes that the app lacks: never a wrong resume."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.serve.identity import StartFailed
from tests.e2e.test_slice import two_steps
from tests.support.acting import Workspace
from tests.support.bot import counted, running_bot, start_flow
from tests.support.inprocess import Town
from tests.support.simulated import TownWorkspace, in_town, inhabited_town, simulated


@simulated
async def test_a_damaged_journal_sets_the_session_aside_and_the_thread_is_told(tmp_path: Path) -> None:
    """After one changed byte in a journal row, the session never runs again, its thread is told, and other sessions continue."""
    log = tmp_path / "log"
    async with inhabited_town(tmp_path, two_steps(log)) as (workspace, bot):
        thread = await start_flow(workspace, "ana", "ops", "steps", says="What now?")
        other = await start_flow(workspace, "ana", "releases", "steps", says="What now?")
        await bot.close()
        bot.damage_a_journal()
        await bot.open()
        await thread.reply("ana", "on")
        await other.reply("ana", "on")
        await workspace.wait_for(lambda: thread.find("is on hold") or other.find("is on hold"), timeout=20)
        damaged, sound = (thread, other) if thread.find("is on hold") else (other, thread)
        await sound.says("All is done")
        assert damaged.find("All is done") is None
    assert counted(log) == ["before", "before", "after:on"]


@pytest.mark.process
async def test_a_reply_during_a_reconnect_is_found(workspace: Workspace, tmp_path: Path) -> None:
    """Sockets are cut and connections refused for a while: a reply from then is found by the read after the reconnect, and
    the next one is heard."""
    log = tmp_path / "log"
    async with running_bot(workspace, tmp_path, two_steps(log)):
        thread = await start_flow(workspace, "ana", "ops", "steps", says="What now?")
        await workspace.settled()
        workspace.faults.go_away("refuse")
        await workspace.wait_for(lambda: not workspace.core.sockets.connections)
        await thread.reply("ana", "between")
        calls = len(workspace.calls)
        await workspace.wait_for(lambda: len(workspace.calls) > calls + 1, timeout=40)
        workspace.faults.come_back()
        await thread.says("All is done", timeout=60)
        assert "dropped" in [delivery.state for delivery in workspace.deliveries]
        await start_flow(workspace, "ana", "ops", "steps", says="What now?")
    assert counted(log) == ["before", "after:between", "before"]


@in_town(lambda folder: two_steps(folder / "log"))
async def test_a_missing_scope_is_named_and_only_the_vital_ones_are_fatal(
    workspace: TownWorkspace, bot: Town, caplog: pytest.LogCaptureFixture
) -> None:
    """Without usergroups:read the bot says what will not work and runs; without chat:write it does not start."""
    full = ["app_mentions:read", "channels:history", "groups:history", "im:history", "chat:write", "commands"]
    reading = ["channels:read", "groups:read", "users:read", "users:read.email"]
    assert "usergroups:read" not in caplog.text
    await bot.close()
    workspace.faults.set_scopes([*full, *reading])
    await bot.open()
    assert "usergroups:read" in caplog.text
    await start_flow(workspace, "ana", "ops", "steps", says="What now?")
    await bot.close()
    workspace.faults.set_scopes([scope for scope in [*full, *reading] if scope != "chat:write"])
    with pytest.raises(StartFailed, match="chat:write"):
        await bot.open()


@in_town(lambda folder: two_steps(folder / "log"))
async def test_a_server_that_does_not_name_scopes_is_no_error(workspace: TownWorkspace, bot: Town) -> None:
    """When answers have no scopes header the bot starts and works."""
    await bot.close()
    workspace.faults.set_scopes(None, announce=False)
    await bot.open()
    await start_flow(workspace, "ana", "ops", "steps", says="What now?")


@simulated
async def test_a_damaged_session_whose_question_was_never_confirmed_is_set_aside_too(tmp_path: Path) -> None:
    """Damage is noticed also where only the outbox looks at the session: its answer to the post had been lost."""
    async with inhabited_town(tmp_path, two_steps(tmp_path / "log")) as (workspace, bot):
        workspace.faults.effect_then_fail("chat.postMessage", times=1)
        workspace.faults.fail("conversations.replies", times=1_000)
        thread = await start_flow(workspace, "ana", "ops", "steps")
        await workspace.wait_for(lambda: len(thread.messages()) >= 2)
        await bot.close()
        workspace.faults.clear()
        bot.damage_a_journal()
        await bot.open()
        await thread.says("is on hold")
        await thread.reply("ana", "status")
        await thread.reply("ana", "on")
        await workspace.settled()
    assert thread.find("All is done") is None
