"""The bot with its sessions in Postgres: killed, started elsewhere, beside another one, and while the server restarts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from engine.storage.lanes import LIMIT_SECONDS
from tests.cli.clikit import Cli
from tests.e2e.test_slice import two_steps
from tests.support import postgres
from tests.support.acting import Workspace
from tests.support.bot import BotProcess, counted, running_bot, start_flow
from tests.support.pgbouncer import pooled

pytestmark = pytest.mark.process
KEY = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def env() -> dict[str, str]:
    """The settings of a bot on a new database."""
    return {"SAYSO_DATABASE_URL": postgres.new_database("template0"), "SAYSO_SECRET_KEY": KEY}


def elsewhere(workspace: Workspace, tmp_path: Path, env: dict[str, str]) -> BotProcess:
    """A bot on another machine, which has another home."""
    home = tmp_path / "elsewhere"
    home.mkdir()
    return BotProcess(workspace, home, tmp_path / "flows", **env)


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server that nobody else uses."""
    server = postgres.server(postgres.folder("restarted"))
    yield server
    server.cleanup()


async def test_a_reply_after_kill_9_goes_on_on_another_machine(
    workspace: Workspace, tmp_path: Path, env: dict[str, str]
) -> None:
    """The bot is killed, and a bot with another home continues: every node has run once."""
    log = tmp_path / "log"
    async with running_bot(workspace, tmp_path, two_steps(log), **env) as bot:
        thread = await start_flow(workspace, "ana", "ops", "steps", says="What now?")
        await bot.kill()
        other = elsewhere(workspace, tmp_path, env)
        try:
            await other.start()
            await thread.reply("ana", "carry-on")
            await thread.says("All is done")
        finally:
            await other.close()
    assert counted(log) == ["before", "after:carry-on"]


async def test_a_health_check_asks_the_server(
    workspace: Workspace, tmp_path: Path, env: dict[str, str]
) -> None:
    """From any machine: whether a bot serves the database, and not for longer than it lives."""
    cli = Cli(tmp_path)
    cli.env = env
    async with running_bot(workspace, tmp_path, two_steps(tmp_path / "log"), **env) as bot:
        alive = await asyncio.to_thread(cli.run, "doctor", "--live")
        assert (alive.code, "`sayso start`, process" in alive.out) == (0, True), alive
        await bot.kill()
        with psycopg.connect(env["SAYSO_DATABASE_URL"], autocommit=True) as raw:
            raw.execute("UPDATE workers SET beat = beat - %s * interval '1 s'", (LIMIT_SECONDS,))
        dead = await asyncio.to_thread(cli.run, "doctor", "--live")
    assert (dead.code, dead.out) == (1, "No process serves the database.\n"), dead


TOLD = re.compile(
    r"WARNING sayso\.storage: Postgres database \S+ at \S+ (does not answer|answers again after)"
)


@pytest.mark.parametrize("behind", ["its own address", pytest.param("a pooler", marks=pytest.mark.long)])
async def test_an_outage_is_told_once_when_it_begins_and_once_when_it_is_over(
    workspace: Workspace, tmp_path: Path, own_server: Any, behind: str
) -> None:
    """The server restarts, and is away for eight seconds, in which somebody replies: no process ends, and the log says no more."""
    log = tmp_path / "log"
    with ExitStack() as stack:
        url = own_server.get_uri()
        if behind == "a pooler":
            url = stack.enter_context(pooled(url)).url
        env = {"SAYSO_DATABASE_URL": url, "SAYSO_SECRET_KEY": KEY}
        async with running_bot(workspace, tmp_path, two_steps(log), **env) as bot:
            thread = await start_flow(workspace, "ana", "ops", "steps", says="What now?")
            bot.lines.clear()
            await asyncio.to_thread(postgres.restart, own_server)
            await asyncio.sleep(3)
            restarted = [match[1] for line in bot.lines if (match := TOLD.search(line))]
            assert (len(restarted), len(bot.lines)) in ((0, 0), (2, 2)), bot.lines
            bot.lines.clear()
            await asyncio.to_thread(postgres.stop, own_server)
            await asyncio.sleep(4)
            await thread.reply("ana", "carry-on")
            await asyncio.sleep(4)
            await asyncio.to_thread(postgres.start, own_server)
            await thread.says("All is done", timeout=40)
            await asyncio.sleep(1.5)
            away = [match[1] for line in bot.lines if (match := TOLD.search(line))]
            assert away == ["does not answer", "answers again after"], bot.lines
            assert len(bot.lines) == 2, bot.lines
            assert bot.process.returncode is None
    assert counted(log) == ["before", "after:carry-on"]


async def test_a_bot_behind_a_pooler_is_killed_and_goes_on_elsewhere(
    workspace: Workspace, tmp_path: Path, env: dict[str, str]
) -> None:
    """The pooler restarts in between, and once more under the other one: every node has run once."""
    log = tmp_path / "log"
    with pooled(env["SAYSO_DATABASE_URL"]) as pooler:
        env["SAYSO_DATABASE_URL"] = pooler.url
        async with running_bot(workspace, tmp_path, two_steps(log), **env) as bot:
            thread = await start_flow(workspace, "ana", "ops", "steps", says="What now?")
            await bot.kill()
            pooler.stop()
            pooler.start()
            other = elsewhere(workspace, tmp_path, env)
            try:
                await other.start()
                pooler.stop()
                pooler.start()
                await thread.reply("ana", "carry-on")
                await thread.says("All is done")
            finally:
                await other.close()
    assert counted(log) == ["before", "after:carry-on"]
