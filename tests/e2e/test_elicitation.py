"""What an MCP server asks people for, as they meet it in the thread: a form, a page to open, and a kill while it is open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import prefork
from tests.support.acting import Workspace
from tests.support.bot import ROOT, opened, running_bot, start_flow
from tests.support.claude_server import Reply, call, claude_server, text

FLOW = """
flow: restarts
nodes:
  - id: do
    type: agent
    with:
      prompt: "Restart the database."
      tools: [{mcp: {server: ops, tools: [restart]}}]
"""


@pytest.mark.process
async def test_a_form_of_a_server_is_filled_in_after_a_kill(workspace: Workspace, tmp_path: Path) -> None:
    """`kill -9` while the card is open: it is filled in afterwards, mistakes are shown at their field, nobody is asked
    again, and the tool runs once with what was filled in."""
    command, *args = prefork.front(str(ROOT / "tests/support/mcp_server.py"), read=("uvicorn",))
    server = {"command": command, "args": args, "cwd": str(ROOT)}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"ops": server}}))
    file = tmp_path / "ran"
    restart = call("ops__restart", {"service": "db", "file": str(file)}, "toolu_1")
    async with claude_server() as claude:
        claude.queue(Reply([restart], "tool_use"), text("It is restarted."))
        env = {"SAYSO_MCP_CONFIG": str(tmp_path / "mcp.json"), **claude.environ()}
        async with running_bot(workspace, tmp_path, {"restarts": FLOW}, **env) as bot:
            thread = await start_flow(workspace, "ana", "ops", "restarts")
            card = await thread.says("ops asks:")
            await bot.kill()
            await bot.start()
            await thread.press("ana", card, "Fill in…")
            view = await opened(workspace, "ana")
            wrong = await workspace.submit_view("ana", view["id"], {"field:force": "Yes"})
            assert wrong["errors"].keys() == {"field:start_at"}
            filled = {"field:start_at": "noon"}
            assert await workspace.submit_view("ana", view["id"], filled) == {"closed": True}
            await thread.says("It is restarted.")
            assert thread.count("ops asks:") == 1
    assert claude.refused == []
    assert "db: at noon, True" in str(claude.requests[1].body["messages"][-1])
    assert file.read_text() == "db at noon, True\n"
