"""Several real bots on one Postgres database, each a process with a home of its own."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from engine.storage.leases import Member
from engine.storage.postgres import PostgresStore, open_postgres
from tests.support import postgres
from tests.support.acting import Workspace
from tests.support.bot import BotProcess, flow_files

KEY = "0123456789abcdef0123456789abcdef"


class Fleet:
    """Bots, by the order of their starts. A test adds them, and ends each as it likes."""

    def __init__(
        self, workspace: Workspace, folder: Path, flows: dict[str, str], url: str, **env: str
    ) -> None:
        self.workspace, self.folder, self.url = workspace, folder, url
        self.env = {"SAYSO_DATABASE_URL": url, "SAYSO_SECRET_KEY": KEY, **env}
        self.bots: list[BotProcess] = []
        self._flows = flow_files(folder, flows)

    async def add(self, *roles: str, **env: str) -> list[BotProcess]:
        """Start one of each role at once, and wait until all are ready."""
        added = []
        for role in roles:
            home = self.folder / f"home{len(self.bots)}"
            home.mkdir()
            arguments = () if role == "all" else ("--role", role)
            bot = BotProcess(self.workspace, home, self._flows, arguments, **self.env | env)
            self.bots.append(bot)
            added.append(bot)
            await bot.launch()
        await asyncio.gather(*(bot.said("@sayso in", timeout=120) for bot in added))
        return added

    def kill(self, bot: BotProcess) -> None:
        """`kill -9`, with what runs in it."""
        os.killpg(bot.process.pid, signal.SIGKILL)

    def freeze(self, bot: BotProcess) -> None:
        """SIGSTOP."""
        os.kill(bot.process.pid, signal.SIGSTOP)

    def wake(self, bot: BotProcess) -> None:
        """SIGCONT."""
        os.kill(bot.process.pid, signal.SIGCONT)

    def database(self) -> closing[PostgresStore]:
        """The store, to look at."""
        return closing(open_postgres(self.url, KEY.encode()))

    def members(self) -> list[Member]:
        """Who serves, as the database says."""
        with self.database() as store:
            return [member for member in store.members() if member.role]

    def holder(self, name: str) -> BotProcess | None:
        """The bot that has this lane."""
        pids = {int(m.owner.split("-")[1]) for m in self.members() if name in m.lanes}
        return next((bot for bot in self.bots if bot.process.pid in pids), None)

    async def close(self) -> None:
        """Leave nothing running."""
        for bot in self.bots:
            if bot.process.returncode is None:
                self.wake(bot)
            await bot.close()


@asynccontextmanager
async def fleet(
    workspace: Workspace, folder: Path, flows: dict[str, str], *roles: str, url: str = "", **env: str
) -> AsyncIterator[Fleet]:
    """Bots of these roles, on a new database unless its URL is given."""
    found = Fleet(workspace, folder, flows, url or postgres.new_database("template0"), **env)
    try:
        await found.add(*roles)
        yield found
    finally:
        await found.close()
