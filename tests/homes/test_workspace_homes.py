"""The home of a local workspace of a landed version: its threads go on with the bot of this release."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bot.cli.app import run
from bot.compose.environment import Machine
from bot.config.settings import load_settings
from bot.serve.dev import _settings
from bot.serve.main import Bot
from tests.homes.corpus import Old, SetClock, unpacked
from tests.support.acting import Workspace
from tests.support.bot import ThreadView
from tests.support.workspace import running_workspace

MADE = "2026-11-22T19:30:00+00:00"


class Threads:
    """The threads of an old workspace, with the bot of this release."""

    def __init__(self, old: Old, workspace: Workspace) -> None:
        self.old, self.workspace = old, workspace

    def of(self, flow: str, phase: str = "waiting") -> ThreadView:
        """The thread of the session of that flow in that phase."""
        (key,) = [head.thread_key for head in self.old.heads(flow) if head.phase == phase]
        _, channel, ts = str(key).split(":")
        return ThreadView(self.workspace, channel, ts)

    def session(self, flow: str, phase: str) -> str:
        """The session of that flow in that phase."""
        (found,) = [head.session_id for head in self.old.heads(flow) if head.phase == phase]
        return found


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[Threads]:
    """The bot on a copy of the home."""
    clock = SetClock(MADE)
    home = unpacked("4cdf2f0-dev", tmp_path) / "dev"
    async with running_workspace(persist_path=home / "workspace.json", clock=clock) as workspace:
        script = {"SAYSO_SCRIPT": str(tmp_path / "flows/agent.script.yml")}
        given = load_settings(script, cwd=tmp_path, home=str(home.parent), flows=str(tmp_path / "flows"))
        settings = _settings(given, home, workspace)
        machine = Machine(seconds=clock, started=lambda: None)
        bot = Bot(replace(settings, quiet_seconds=600), flows=[tmp_path / "flows"], machine=machine)
        running = asyncio.create_task(bot.run())
        try:
            await workspace.connected(2)
            yield Threads(Old(home, clock), workspace)
        finally:
            bot.stop()
            await running


async def test_an_approval_of_a_thread_keeps_the_meaning_that_its_text_had(tmp_path: Path) -> None:
    """Rejected, a flow that was pinned by a release without `on_reject` goes on, and says so."""
    async with serving(tmp_path) as threads:
        thread = threads.of("gate")
        await thread.press("ben", await thread.says("Ship it?"), "Reject")
        await thread.says("It was reject: shipped")


async def test_a_reply_answers_the_question_that_was_open(tmp_path: Path) -> None:
    """What was said before the upgrade is kept."""
    async with serving(tmp_path) as threads:
        thread = threads.of("two")
        await thread.reply("ana", "zwei")
        await thread.says("Both: one/zwei")


async def test_a_held_thread_keeps_a_reply_until_it_is_resumed(tmp_path: Path) -> None:
    """Nothing starts before somebody lets it go on."""
    async with serving(tmp_path) as threads:
        thread, session = threads.of("two", "held"), threads.session("two", "held")
        await thread.reply("ana", "zwei")
        await threads.workspace.wait_for(lambda: not threads.old.open(session))
        assert thread.find("Both: one/zwei") is None
        await thread.reply("ana", "resume")
        await thread.says("Both: one/zwei")


def test_a_session_of_the_local_workspace_is_found_without_its_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the page shows can be looked at from where `sayso dev` was started."""
    home = unpacked("4cdf2f0-dev", tmp_path)
    session = Old(home / "dev", SetClock(MADE)).heads("agent")[0].session_id
    monkeypatch.chdir(tmp_path)
    assert run(["--home", "home", "sessions", "show", session]) == 0
    assert "Which web?" in capsys.readouterr().out
    assert run(["--home", "home", "sessions", "show", "session-none"]) == 2


async def test_an_agent_goes_on_at_its_turn(tmp_path: Path) -> None:
    """Its question is answered, its next turn is the next of its script, and the tool that had run does not run again."""
    async with serving(tmp_path) as threads:
        thread, session = threads.of("agent"), threads.session("agent", "waiting")
        await thread.press("ana", await thread.says("Which web?"), "web-2")
        await thread.says("Found: It is the cache.")
        assert threads.old.started_twice(session) == []
