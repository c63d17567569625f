"""The permit before effects: every kind of node checks it right before each effect and each automatic retry."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from engine.language.errors import FenceLost
from engine.models.scripted import ScriptedProvider
from engine.models.turn_runner import TurnRunner
from engine.nodes.api import node
from engine.nodes.runtime import effects
from engine.nodes.runtime.effects import under
from engine.nodes.runtime.http import http
from engine.nodes.runtime.mcp import McpServers
from engine.nodes.runtime.runner import Runner
from engine.nodes.runtime.table import runners
from engine.nodes.types import registry
from tests.nodes.nodekit import PYTHON, Context
from tests.nodes.test_node_http import serve
from tests.support.fencing import Lasting

ROOT = Path(__file__).resolve().parents[2]


class Kit:
    """A folder in which effects are seen."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.context = folder, Context(folder)
        self.log = folder / "log"

    async def run(self, runner: Runner, config: dict[str, Any], effects: int) -> None:
        """Run a node that may have so many effects and wants one more."""
        with under(Lasting(effects)), pytest.raises(FenceLost):
            await runner(config, self.context.build())

    def done(self) -> int:
        """How many effects were seen in the log."""
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


async def a_program(kit: Kit) -> int:
    """`shell`."""
    await kit.run(runners()["shell"], {"script": f"echo ran >> {kit.log}"}, 0)
    return kit.done()


async def a_request(kit: Kit) -> int:
    """`http`."""
    async with serve() as seen:
        await kit.run(http, {"method": "POST", "url": seen.url, "allow_hosts": ["127.0.0.1"]}, 0)
        return len(seen.requests)


async def a_redirect(kit: Kit) -> int:
    """`http` that is sent elsewhere: the second request is not made."""

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": "/again"})

    async with serve(elsewhere) as seen:
        await kit.run(http, {"method": "PUT", "url": seen.url, "allow_hosts": ["127.0.0.1"]}, 1)
        return len(seen.requests) - 1


def _write(log: str) -> None:
    with Path(log).open("a") as file:
        file.write("ran\n")


async def _write_later(log: str) -> None:
    _write(log)


async def a_function(kit: Kit) -> int:
    """`python`, before its module is loaded, and after that."""
    config = {"call": f"{__name__}:_write", "args": {"log": str(kit.log)}}
    await kit.run(runners()["python"], config, 0)
    await kit.run(runners()["python"], config, 1)
    await kit.run(runners()["python"], {**config, "call": f"{__name__}:_write_later"}, 1)
    return kit.done()


async def a_type_of_the_user(kit: Kit) -> int:
    """A node type of a package, or of the program."""

    @node("noted")
    async def noted(log: str) -> dict[str, Any]:
        _write(log)
        return {}

    try:
        await kit.run(runners()["noted"], {"log": str(kit.log)}, 0)
    finally:
        registry.forget()
    return kit.done()


async def a_file(kit: Kit) -> int:
    """`write_file`."""
    await kit.run(runners()["write_file"], {"path": "note.txt", "content": "ran"}, 0)
    return len(list(kit.context.workdir.glob("*")))


async def a_tool(kit: Kit) -> int:
    """`mcp`: neither is the server's program started, nor a server called that runs."""
    file = kit.folder / "mcp.json"
    program = {"command": PYTHON, "args": [str(ROOT / "tests/support/mcp_plain.py")]}
    file.write_text(json.dumps({"mcpServers": {"tools": program}}))
    servers = McpServers(file, kit.context.secret)
    config = {"server": "tools", "tool": "note", "arguments": {"file": str(kit.log)}}
    try:
        assert await servers.list_tools("tools")
        await kit.run(servers, config, 0)
        return kit.done()
    finally:
        await servers.close()


class Counted(ScriptedProvider):
    """Counts what it is asked."""

    asked = 0

    def stream(self, *args: Any, **named: Any) -> Any:
        """See `Provider.stream`."""
        self.asked += 1
        return super().stream(*args, **named)


async def a_model(kit: Kit) -> int:
    """A turn."""
    provider = Counted([])
    asked: dict[str, Any] = {
        "model": "claude-sonnet-5-5",
        "maxTokens": 500,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Why?"}]}],
    }
    runner = TurnRunner(lambda ctx: provider)
    await kit.run(runner, asked, 0)
    return provider.asked


KINDS: list[Callable[[Kit], Awaitable[int]]] = [
    a_program,
    a_request,
    a_redirect,
    a_function,
    a_type_of_the_user,
    a_file,
    a_tool,
    a_model,
]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_node_whose_permit_is_lost_has_no_effect(
    kind: Callable[[Kit], Awaitable[int]], tmp_path: Path
) -> None:
    """It ends without an outcome and without any visible effect."""
    assert await kind(Kit(tmp_path)) == 0


async def test_a_program_of_tools_is_not_started_for_lost_work(tmp_path: Path) -> None:
    """The first call of a server starts it: that is an effect of its own."""
    kit = Kit(tmp_path)
    file, script = kit.folder / "mcp.json", f"open({str(kit.log)!r}, 'a').write('started\\n')"
    file.write_text(json.dumps({"mcpServers": {"tools": {"command": PYTHON, "args": ["-c", script]}}}))
    servers = McpServers(file, kit.context.secret)
    with under(Lasting(0)):
        await servers({"server": "tools", "tool": "note"}, kit.context.build())
    await servers.close()
    assert kit.done() == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_an_effect_without_a_check_is_noticed(
    kind: Callable[[Kit], Awaitable[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A permit that is never asked lets each of them run."""

    async def unasked(self: Lasting) -> None:
        return

    monkeypatch.setattr(Lasting, "ask", unasked)
    with pytest.raises(BaseException, match="DID NOT RAISE"):
        await kind(Kit(tmp_path))
    assert effects.permitted()
