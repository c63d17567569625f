"""A database that lost acknowledged work: nothing of it runs until a person released it, and every thread is told."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.e2e.test_slice import two_steps
from tests.support import prefork
from tests.support.acting import Workspace
from tests.support.bot import ROOT, counted, running_bot, start_flow

pytestmark = pytest.mark.process


async def sayso(home: Path, *arguments: str) -> tuple[int, str]:
    """A command on that home: its exit code, and all that it printed."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
    words = ["-m", "bot.cli", "--home", str(home), *arguments]
    done = await asyncio.to_thread(prefork.run, words, cwd=ROOT, env=environ, merged=True)
    return done.returncode, done.stdout


async def test_a_log_that_was_lost_suspends_the_store(workspace: Workspace, tmp_path: Path) -> None:
    """After a kill that loses the log, the bot starts nothing, its thread is told once, and commands exit with 10; once released, it continues."""
    log, home = tmp_path / "log", tmp_path / "home"
    async with running_bot(workspace, tmp_path, two_steps(log)) as bot:
        thread = await start_flow(workspace, "ana", "ops", "steps", says="What now?")
        code, text = await sayso(home, "backup", str(tmp_path / "backup"))
        assert (code, "1 session" in text) == (0, True)
        await thread.reply("ana", "carry-on")
        await thread.says("All is done")
        assert counted(log) == ["before", "after:carry-on"]
        await bot.kill()
        (home / "sayso.db-wal").unlink()
        (home / "sayso.db").write_bytes((tmp_path / "backup").read_bytes())
        await bot.launch()
        await thread.says("is suspended")
        code, text = await sayso(home, "doctor")
        assert (code, "`question` waits for an answer" in text) == (1, True)
        session_id = next(word for word in text.split() if word.startswith("session-"))
        code, text = await sayso(home, "sessions", "abort", session_id)
        assert (code, "sayso store release" in text) == (10, True)
        await bot.kill()
        await bot.launch()
        await bot.said("suspended")
        assert counted(log) == ["before", "after:carry-on"]
        code, text = await sayso(home, "store", "release")
        assert (code, session_id in text) == (0, True)
        # The reply is in the thread, so it is read again; a person has been told that its step may run once more.
        await workspace.wait_for(lambda: counted(log) == ["before", *["after:carry-on"] * 2])
    assert thread.count("is suspended") == 1
