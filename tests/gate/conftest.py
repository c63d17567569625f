"""A workspace, a bot that serves the gate as a process, and agents that ask over HTTP."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support import prefork
from tests.support.acting import Workspace
from tests.support.bot import ROOT, BotProcess, ThreadView, running_bot, words
from tests.support.workspace import running_workspace

RULES = """
gate: default
channel: "#ops"
flows: [release]
rules:
  - when: {tool: Bash, arguments: {command: "git status*"}}
    then: allow
  - when: {tool: "*delete*"}
    then: {deny: "Deletions go through the runbook."}
otherwise: {ask: {approvers: [ben@example.com, cleo@example.com], exclude_requester: true}}
"""


class Gate:
    """The gate of a bot that runs, and the token of an agent that works for Ana."""

    def __init__(self, bot: BotProcess, workspace: Workspace, folder: Path) -> None:
        self.bot, self.workspace, self.folder = bot, workspace, folder
        self.token = self.login()

    def login(self, agent: str = "claude-code:laptop", person: str = "ana") -> str:
        """A new token."""
        user = self.workspace.user(person).id
        return self.sayso("gate", "login", "--agent", agent, "--person", user).strip()

    def sayso(self, *words: str) -> str:
        """What a command prints, as the bot's user."""
        done = prefork.run(["-m", "bot.cli", *words], env=self.bot.env, cwd=self.folder)
        done.check_returncode()
        return done.stdout

    async def url(self) -> str:
        """Where agents ask."""
        return (await self.bot.said("gate:")).split()[1]

    async def post(self, do: str, token: str | None = None, **given: Any) -> tuple[int, dict[str, Any]]:
        """The status and the answer of a request; its arguments are told as bytes where they are bytes."""
        url, body = await self.url(), given.pop("body", None) or json.dumps(given).encode()
        headers = {"Authorization": f"Bearer {token or self.token}"}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{url}/gate/{do}", data=body, headers=headers) as answer,
        ):
            return answer.status, await answer.json()

    async def ask(self, command: str, call: str = "c1", wait: float = 0.0, **given: Any) -> dict[str, Any]:
        """The answer to a call of Bash."""
        wanted: dict[str, Any] = {
            "kind": "approval",
            "door": "claude",
            "session": "s1",
            "call": call,
            "tool": "Bash",
            "arguments": {"command": command},
            **given,
        }
        return (await self.post("ask", wait=wait, **wanted))[1]

    async def thread(self) -> ThreadView:
        """The thread of the agent's session."""

        def root() -> Any:
            return next((m for m in self.workspace.messages("ops") if "works for" in words(m)), None)

        return ThreadView(self.workspace, "ops", (await self.workspace.wait_for(root))["ts"])


def from_npm(factory: pytest.TempPathFactory, *packages: str) -> Path:
    """The folder of these packages, as npm installs them."""
    if shutil.which("npm") is None:
        pytest.skip(f"npm is not here, which brings {', '.join(packages)}")
    folder = factory.mktemp("npm")
    command = ["npm", "install", "--no-audit", "--no-fund", *packages]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "node_modules"


@pytest.fixture
async def workspace() -> AsyncIterator[Workspace]:
    """A new workspace with the default people and channels."""
    async with running_workspace() as started:
        yield started


@asynccontextmanager
async def gated(
    workspace: Workspace, folder: Path, rules: str = RULES, flows: dict[str, str] | None = None
) -> AsyncIterator[Gate]:
    """A bot with a gate."""
    (folder / "gate.yml").write_text(rules)
    async with running_bot(workspace, folder, flows or {}, SAYSO_GATE="0") as bot:
        yield Gate(bot, workspace, folder)


@pytest.fixture
async def gate(workspace: Workspace, tmp_path: Path) -> AsyncIterator[Gate]:
    """A bot with a gate."""
    async with gated(workspace, tmp_path) as started:
        yield started


__all__ = ["ROOT", "Gate", "gated"]
