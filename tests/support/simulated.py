"""Stories about a whole bot in simulated time, told with the same acts as those about processes and sockets."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec
from unittest.mock import patch

from engine.nodes.runtime import shell
from engine.nodes.runtime.process import Command, Ended
from tests.support.acting import Acts, Admin
from tests.support.inprocess import Town, play, town

P = ParamSpec("P")


def simulated(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test in simulated time. Programs that a flow runs are real, and take none of it."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with patch.object(shell, "run_command", _at_once):
            play(lambda: test(*args, **kwargs))

    return run


async def _at_once(
    command: Command,
    *,
    timeout: float | None,
    aborted: asyncio.Event,
    grace: float,
    stdout: Callable[[bytes], None],
    stderr: Callable[[bytes], None],
) -> Ended:
    """Run a program to its end while everything else freezes: what `run_command` does on a real loop."""
    done = subprocess.run(  # noqa: ASYNC221 - nothing else is to happen meanwhile
        command.argv,
        executable=command.executable,
        env=dict(command.env),
        cwd=command.cwd,
        input=(command.stdin or "").encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    stdout(done.stdout)
    stderr(done.stderr)
    return Ended("exit", done.returncode, 0.0)


class TownWorkspace(Acts):
    """The workspace of a town, with the acts of people in it."""

    def __init__(self, place: Town) -> None:
        self.core, self.state = place.core, place.core.state
        self.admin = Admin(place.core)
        self._people, self._interactions, self._web_api = place.people, place.hands, place.web


@asynccontextmanager
async def inhabited_town(
    folder: Path, flows: Mapping[str, str] | Path, **settings: Any
) -> AsyncIterator[tuple[TownWorkspace, Town]]:
    """A workspace and a bot that serves these flows (name → YAML, or a folder); `close` and `open` stop and start it."""
    async with town(folder, flows, **settings) as bot:
        yield TownWorkspace(bot), bot
