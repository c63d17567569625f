"""Every kind of tool in a real conversation: a scripted model, real processes, files, servers, and one MCP server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from engine.models.scripted import Script, provider_for, script_from
from engine.models.turn_runner import TurnRunner
from engine.nodes.runtime.mcp import McpServers
from engine.nodes.runtime.secrets import SecretSource
from engine.storage.open import MemoryStore
from tests.nodes.nodekit import PYTHON
from tests.support.engine import EngineRig, running, shell_runners

SECRET = "a-token-that-nobody-may-see"
SERVER = Path(__file__).resolve().parents[2] / "support" / "mcp_plain.py"

FLOW = """
flow: look
nodes:
  - id: agent
    type: agent
    with:
      prompt: "Look around."
      tools:
        - shell: {{commands: [cat, "sh -c *"], env: {{TOKEN: "{{{{ secrets.TOKEN }}}}"}}}}
        - http:
            hosts: ["127.0.0.1:{port}"]
            headers: {{Authorization: "Bearer {{{{ secrets.TOKEN }}}}"}}
            query: {{key: "{{{{ secrets.TOKEN }}}}"}}
        - hook
        - read_file
        - write_file
        - mcp: {{server: tools, tools: [add, whoami]}}
tools:
  hook:
    description: Tells the hook.
    input: {{what: {{type: string}}}}
    type: http
    with:
      method: POST
      url: "http://127.0.0.1:{port}/hooks/{{{{ secrets.TOKEN }}}}"
      json: {{token: "{{{{ secrets.TOKEN }}}}", what: "{{{{ input.what }}}}"}}
"""


@asynccontextmanager
async def echo() -> AsyncIterator[int]:
    """A server that answers with all that it was given, credentials too; its port."""

    async def handle(request: web.Request) -> web.Response:
        credentials = request.headers.get("Authorization")
        return web.Response(text=f"{request.method} {request.path_qs} {credentials} {await request.text()}")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def engine(folder: Path, script: Script) -> AsyncIterator[EngineRig]:
    """An engine whose model says what the script says, with all runners."""
    source = SecretSource({"SAYSO_SECRET_TOKEN": SECRET}, None)
    entry = {"command": PYTHON, "args": [str(SERVER)], "env": {"TOKEN": "${SAYSO_SECRET_TOKEN}"}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"tools": entry}}))
    servers = McpServers(folder / "mcp.json", source.get)
    turns = TurnRunner(lambda ctx: provider_for(script, ctx), servers.mcp_tools)
    runners = {**shell_runners(), "turn": turns, "mcp": servers}
    async with running(MemoryStore(), folder / "home", runners=runners, secret=source.get) as rig:
        yield rig
        await servers.close()


async def results(rig: EngineRig, session_id: str) -> list[str]:
    """What the model was told of its calls, in the order in which it asked."""
    told = [event for event in await rig.engine.journal(session_id) if event.type == "agent:toolResult"]
    return [
        "\n".join(block["text"] for block in event.content)
        for event in sorted(told, key=lambda event: event.path or "")
    ]


def calls(*tools: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """A turn that calls these tools."""
    return {"tools": [{"name": name, "input": given} for name, given in tools]}


async def test_every_tool_does_its_work_and_no_secret_reaches_the_model(tmp_path: Path) -> None:
    """Files, a program, a request and a server's tools in one conversation: results come back as data, without secrets."""
    async with echo() as port:
        turns = [
            calls(
                ("write_file", {"path": "notes/a.txt", "content": "one\ntwo\n"}),
                ("shell", {"command": "sh -c 'echo \"token $TOKEN\" >&2; exit 3'"}),
                ("http", {"url": f"http://127.0.0.1:{port}/health"}),
                ("tools__add", {"a": 2, "b": 3}),
                ("tools__whoami", {}),
                ("hook", {"what": "disk"}),
            ),
            calls(("read_file", {"path": "notes/a.txt", "first_line": 2}), ("shell", {"command": "cat notes/a.txt"})),
            {"text": "Done."},
        ]  # fmt: skip
        async with engine(tmp_path, script_from(turns)) as rig:
            session_id = await rig.start(FLOW.format(port=port))
            state = await rig.engine.parked(session_id)
            assert state.status == "complete", state.error
            written, ran, asked, added, who, hooked, read, shown = await results(rig, session_id)
            journal = json.dumps([event.to_wire() for event in await rig.engine.journal(session_id)])
    assert "wrote 8 bytes to notes/a.txt" in written
    assert "exit code: 3" in ran
    assert "token [secret TOKEN]" in ran
    assert "status: 200" in asked
    assert "GET /health?key=[secret TOKEN] Bearer [secret TOKEN]" in asked
    assert "POST /hooks/[secret TOKEN] " in hooked
    assert '"token":"[secret TOKEN]","what":"disk"' in hooked
    assert added == '<tool_output tool="tools__add">\n5\n</tool_output>'
    assert "[secret TOKEN]" in who
    assert "lines 2 to 2 of 2\ntwo" in read
    assert "stdout:\none\ntwo" in shown
    assert SECRET not in journal


async def test_calls_that_are_not_allowed_do_nothing(tmp_path: Path) -> None:
    """A program, a host, a path and a tool that nobody named are refused in words for the model, and the talk continues."""
    (tmp_path / "outside").write_text("outside")
    turns = [
        calls(
            ("shell", {"command": f"rm {tmp_path / 'outside'}"}),
            ("shell", {"command": f"cat {tmp_path / 'outside'} | sh"}),
            ("http", {"url": "http://127.0.0.1:1/"}),
            ("read_file", {"path": "../../../outside"}),
            ("write_file", {"path": str(tmp_path / "outside"), "content": "x"}),
            ("read_file", {"path": "none"}),
            ("tools__add", {"a": "x"}),
        ),
        {"text": "I see."},
    ]
    async with engine(tmp_path, script_from(turns)) as rig:
        session_id = await rig.start(FLOW.format(port=9))
        state = await rig.engine.parked(session_id)
        told = await results(rig, session_id)
    assert state.status == "complete", state.error
    said = ("is not allowed here", "no shell runs", "Allowed hosts", "leads out", "outside the session", "there is no such file", "The tool says that the call failed")  # fmt: skip
    assert [part in text for part, text in zip(said, told, strict=True)] == [True] * 7, told
    assert (tmp_path / "outside").read_text() == "outside"


async def test_a_secret_that_a_tool_left_in_a_file_does_not_come_back(tmp_path: Path) -> None:
    """What one tool was given, another one finds; the model gets the mark from both, in clear text and encoded."""
    turns = [
        calls(("shell", {"command": "sh -c 'echo a $TOKEN > t; printf %s \"$TOKEN\" | base64 > b'"})),
        calls(("read_file", {"path": "t"}), ("read_file", {"path": "b"}), ("read_file", {"path": "none"})),
        {"text": "Done."},
    ]
    async with engine(tmp_path, script_from(turns)) as rig:
        session_id = await rig.start(FLOW.format(port=9))
        state = await rig.engine.parked(session_id)
        _, plain, encoded, none = await results(rig, session_id)
    written = (tmp_path / "home" / "sessions" / session_id / "t").read_text()
    assert (state.status, SECRET in written) == ("complete", True)
    assert "lines 1 to 1 of 1\na [secret TOKEN]\n" in plain
    assert "[secret TOKEN]" in encoded
    assert "there is no such file" in none


async def test_a_server_that_nobody_configured_is_asked_about_at_once(tmp_path: Path) -> None:
    """What only a person can set right is not tried again, and the error says what is missing."""
    async with engine(tmp_path, script_from([{"text": "never said"}])) as rig:
        (tmp_path / "mcp.json").write_text('{"mcpServers": {}}')
        session_id = await rig.start(FLOW.format(port=9))
        state = await rig.engine.parked(session_id)
        kinds = [event.type for event in await rig.engine.journal(session_id)]
    (prompt,) = state.prompts.values()
    assert "there is no MCP server tools" in prompt.message
    assert "node:retrying" not in kinds
