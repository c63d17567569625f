"""Processes of their own: the command line, timed as a whole, and the bot against a local workspace."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.floor import MILLISECONDS
from tests.support.acting import Workspace

ROOT = Path(__file__).resolve().parents[1]
SAYSO = (sys.executable, "-m", "bot.cli")
CALM_SECONDS = 0.3
"""Without a read for so long a bot has read all."""
START_SECONDS = 60.0
"""How long a bot may take to be ready."""
CATCH_UP_SECONDS = 600.0
"""How long it may take from then on to read what it may have missed: with many sessions that is many threads."""


def environment(**more: str) -> dict[str, str]:
    """The environment of a process that sees nothing of this installation's settings. It keeps what it compiles, as an
    installed program has it: else each process would compile all that it imports."""
    hidden = ("SAYSO_", "SLACK_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **more}


def timed(command: Sequence[str], folder: Path, *, code: int = 0, **more: str) -> tuple[float, str]:
    """Run a program to its end: milliseconds and what it wrote. Raises `RuntimeError` for another exit code."""
    begin, env = time.perf_counter(), environment(**more)
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    taken = (time.perf_counter() - begin) * MILLISECONDS
    if done.returncode != code:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return taken, done.stdout


def bare_python(folder: Path) -> float:
    """Milliseconds of a Python that does nothing: the floor of every process."""
    return timed((sys.executable, "-c", "pass"), folder)[0]


def resident_megabytes(pid: int) -> float:
    """The memory of a process that is in RAM, in MB (10⁶ bytes)."""
    text = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True
    ).stdout
    return int(text) * 1024 / 1e6


class Bot:
    """`sayso start` in a process of its own. What it writes is kept in `lines`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []

    async def ready(self) -> None:
        """Return once it says that it is ready: connected, and done with what it may have missed."""
        assert self.process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            while line := await self.process.stdout.readline():
                self.lines.append(line.decode(errors="replace").rstrip())
                if self.lines[-1].startswith("Ready"):
                    return
        raise RuntimeError("the bot ended before it was ready:\n" + "\n".join(self.lines))

    async def read_on(self) -> None:
        """Keep reading what it writes, so that it never waits for us."""
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.lines.append(line.decode(errors="replace").rstrip())

    async def stop(self) -> int:
        """SIGTERM, and wait for its end; the exit code."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        return await self.process.wait()


@asynccontextmanager
async def running_bot(workspace: Workspace, home: Path, flows: Path, **more: str) -> AsyncIterator[Bot]:
    """A bot that serves these flows and is ready; it is stopped at the end. `more` is for its environment."""
    env = environment(
        **more,
        SLACK_BOT_TOKEN=workspace.bot_token,
        SLACK_APP_TOKEN=workspace.app_token,
        SLACK_API_URL=workspace.api_url,
        SAYSO_HOME=str(home),
        SAYSO_FLOWS=str(flows),
    )
    process = await asyncio.create_subprocess_exec(
        *SAYSO,
        "start",
        cwd=home,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    bot = Bot(process)
    reader: asyncio.Task[None] | None = None
    try:
        await bot.ready()
        reader = asyncio.create_task(bot.read_on())
        yield bot
    finally:
        await bot.stop()
        if reader is not None:
            await reader


async def caught_up(workspace: Workspace) -> None:
    """The bot reads each channel that it is in, and the threads in which something was said; return once it has looked
    at all channels and reads no more."""
    mine = {
        name for name, channel in workspace.state.channels.items() if workspace.bot_user_id in channel.members
    }
    looked, last, seen = 0, time.perf_counter(), set[str]()

    def all_read() -> bool:
        nonlocal looked, last
        for call in workspace.calls[looked:]:
            looked += 1
            if call.method in ("conversations.history", "conversations.replies"):
                last = time.perf_counter()
                seen.add(call.args["channel"])
        return seen >= mine and time.perf_counter() - last > CALM_SECONDS

    await workspace.wait_for(all_read, timeout=CATCH_UP_SECONDS)
