"""What a flow refers to and this installation lacks is said before anybody is asked for anything."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from bot.compose import lacks as module
from bot.compose.lacks import Lacks, lacks
from bot.config.settings import load_settings
from bot.start.form import StartForm
from engine.flow import Flow
from engine.flow.load import load_flow
from engine.nodes.runtime.secrets import SecretSource

CALLED = load_flow(
    "flow: deep\nnodes: [{id: a, type: shell, with: {run: [x], env: {A: '{{ secrets.DEEP }}'}}}]"
)
FLOW = """
flow: f
tools:
  logs:
    description: Logs
    type: http
    with: {url: "http://h/{{ secrets.TOOL }}"}
nodes:
  - {id: env, type: shell, with: {run: [x], env: {A: "{{ secrets.SET }}", B: "{{ secrets.ENV }}"}}}
  - {id: web, type: http, with: {method: POST, url: "http://h", headers: {A: "Bearer {{ secrets.HEAD }}"}, query: {q: "{{ secrets.QUERY }}"}, json: {a: ["{{ secrets.JSON }}"]}}}
  - {id: agent, type: agent, with: {prompt: Why?, tools: [logs, {mcp: {server: grafana, tools: [query]}}, {mcp: {server: none, tools: [query]}}]}}
  - {id: call, type: flow, with: {flow: deep}}
finally:
  - {id: bye, type: shell, with: {run: [x], env: {A: "{{ secrets.FINALLY }}"}}}
"""


def test_all_that_is_missing_is_named(tmp_path: Path) -> None:
    """Secrets of all kinds of references, of tools, called flows and `finally`, of MCP servers, and the key for Claude."""
    (tmp_path / "mcp.json").write_text(
        '{"mcpServers": {"grafana": {"url": "http://g", "headers": {"A": "${SAYSO_SECRET_MCP}"}}}}'
    )
    environ = {
        "SAYSO_SECRET_SET": "x",
        "SAYSO_HOME": str(tmp_path),
        "SAYSO_MCP_CONFIG": str(tmp_path / "mcp.json"),
    }
    settings = load_settings(environ, cwd=tmp_path)
    told = list(lacks(load_flow(FLOW, flows={"deep": CALLED}.get), settings, SecretSource(environ, None).get))
    secrets = ("DEEP", "ENV", "FINALLY", "HEAD", "JSON", "QUERY", "TOOL")
    assert [text.split(":")[0] for text in told[:-3]] == [f"secret {name} is not set" for name in secrets]
    assert told[-3:-1] == [
        "MCP server grafana: secret MCP is not set: set SAYSO_SECRET_MCP",
        f"MCP server none: there is no MCP server none in {tmp_path}/mcp.json (expected one of: grafana)",
    ]
    assert "ANTHROPIC_API_KEY" in told[-1]


async def test_a_card_does_not_wait_for_a_program_that_gives_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that takes long is asked once, and what it says is on the next card."""
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.0)
    asked, said = [], threading.Event()

    def secret(name: str) -> str:
        asked.append(name)
        said.wait()
        return SecretSource({}, None).get(name)

    find = Lacks(load_settings({"SAYSO_HOME": str(tmp_path)}, cwd=tmp_path), secret, lambda: 0.0)
    assert [await find(CALLED), await find(CALLED)] == [(), ()]
    said.set()
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 20.0)
    async with asyncio.timeout(20):
        assert await find(CALLED) == ("secret DEEP is not set: set SAYSO_SECRET_DEEP",)
    assert asked == ["DEEP"]


async def test_a_form_before_a_start_says_it() -> None:
    """Above the fields, so that nobody fills in what cannot end; a form where nothing is missing has no such line."""
    flow = load_flow("flow: f\ninputs: {who: {}}\nnodes: [{id: a, type: noop}]")
    missing = ["secret TOKEN is not set"]

    async def lacks(flow: Flow) -> list[str]:
        return missing

    nobody: Any = None
    form = StartForm(nobody, nobody, nobody, nobody, lacks, nobody)
    first = (await form.page_about(flow, {"flow": "f", "user": "U1"}))["blocks"]
    assert first[0]["elements"][0]["text"] == "⚠️ Missing, but needed later: secret TOKEN is not set"
    missing.clear()
    assert (await form.page_about(flow, {"flow": "f", "user": "U1"}))["blocks"] == first[1:]
