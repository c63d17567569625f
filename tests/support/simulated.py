"""Stories about a whole bot in simulated time, told with the same acts as those about processes and sockets."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, ParamSpec
from unittest.mock import patch

from engine.nodes.runtime import shell
from engine.nodes.runtime.process import Command, Ended
from tests.support.acting import Acts, Admin
from tests.support.inprocess import Town, play, town

P = ParamSpec("P")
Flows = Mapping[str, str] | Path
"""Flows by name, or a folder with them."""
Story = Callable[..., Coroutine[Any, Any, None]]


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
    folder: Path, flows: Flows, **settings: Any
) -> AsyncIterator[tuple[TownWorkspace, Town]]:
    """A workspace and a bot that serves these flows (name → YAML, or a folder); `close` and `open` stop and start it."""
    async with town(folder, flows, **settings) as bot:
        yield TownWorkspace(bot), bot


def in_town(
    flows: Flows | Callable[[Path], Flows], **settings: Any
) -> Callable[[Story], Callable[..., None]]:
    """A test in a town of its own, in simulated time, with these flows (or what is made of the test's folder). It names
    what it takes: `workspace` for the acts of people, `bot` or `place` for the town, and fixtures."""

    def decorate(story: Story) -> Callable[..., None]:
        wanted = signature(story).parameters

        @simulated
        async def run(tmp_path: Path, **fixtures: Any) -> None:
            served = flows(tmp_path) if callable(flows) else flows
            async with inhabited_town(tmp_path, served, **settings) as (workspace, bot):
                own = {"tmp_path": tmp_path, "workspace": workspace, "bot": bot, "place": bot}
                given = own | fixtures
                await story(**{name: given[name] for name in wanted})

        own = ("tmp_path", "workspace", "bot", "place")
        asked = [Parameter(name, Parameter.KEYWORD_ONLY) for name in wanted if name not in own]
        found = wraps(story)(run)
        found.__signature__ = signature(run).replace(  # type: ignore[attr-defined]  # of the fixtures
            parameters=[Parameter("tmp_path", Parameter.POSITIONAL_OR_KEYWORD), *asked]
        )
        return found

    return decorate
