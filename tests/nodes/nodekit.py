"""What the tests of nodes share: a context, a condition to wait for, and what is left of a process group."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.errors import SaysoError
from engine.nodes.port import NodeContext

PYTHON = sys.executable


class Context:
    """Builds a `NodeContext` in a temporary folder and keeps what the runner told it."""

    def __init__(self, folder: Path, secrets: Mapping[str, str] | None = None) -> None:
        self.secrets = dict(secrets or {})
        self.lines: list[str] = []
        self.aborted = asyncio.Event()
        self.workdir = folder / "work"
        self.flow_dir = folder / "flows"
        self.flow_dir.mkdir()

    def build(self, **changes: Any) -> NodeContext:
        """The context, with these fields changed."""
        fields: dict[str, Any] = {
            "session_id": "session-0badcafe",
            "path": "rollout[2]/apply",
            "idempotency_key": "session-0badcafe:rollout[2]/apply",
            "attempt": 1,
            "workdir": self.workdir,
            "flow_dir": self.flow_dir,
            "secret": self.secret,
            "timeout": None,
            "aborted": self.aborted,
            "progress": self.lines.append,
            "grace": 5.0,
        }
        return NodeContext(**{**fields, **changes})

    def secret(self, name: str) -> str:
        """As the engine does it: an error of ours for a name that is not set."""
        if name not in self.secrets:
            raise SaysoError(f"secret {name} is not set: set SAYSO_SECRET_{name}")
        return self.secrets[name]


async def until(condition: Callable[[], Any], within: float = 20) -> Any:
    """Wait for another process to make something true; returns it, or fails after `within` s."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not (value := condition()):
        assert loop.time() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.01)
    return value


def runs(pid: int) -> bool:
    """Whether this process still runs; one that waits to be collected by its parent does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        if os.path.isdir("/proc/self"):
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True
    return state not in "ZX"
