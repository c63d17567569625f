"""Many tools of MCP servers: Claude looks for those that it needs. With Anthropic's SDK against the strict local server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.decide.agents import model_request
from engine.flow.load import load_flow
from engine.journal.state import State
from engine.language.codec import Json
from engine.messages import request as requests
from engine.messages.turns import Tool
from engine.models import claude, turn_runner
from engine.models.claude import ClaudeProvider
from engine.models.turn_runner import TurnRunner
from engine.nodes.runtime.runner import Completed, NodeContext, Outcome
from engine.storage.open import MemoryStore
from tests.support.claude_rules import Refusal, check
from tests.support.claude_server import ClaudeServer, Failure, Raw, Reply, call, claude_server, text
from tests.support.engine import ANA, SESSION, EngineRig, running, shell_runners

FLOW = """
flow: many
nodes:
  - id: look
    type: agent
    with: {prompt: "What is open?", tools: [{mcp: {server: crm, tools: [%s]}}]%s}
"""
SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "tool_search_tool_bm25", "input": {"query": "t"}}
FOUND = {
    "type": "tool_search_tool_result",
    "tool_use_id": "srv_1",
    "content": {
        "type": "tool_search_tool_search_result",
        "tool_references": [{"type": "tool_reference", "tool_name": "crm__t3"}],
    },
}
CALL = Reply([SEARCH, FOUND, call("crm__t3", {}, "toolu_1")], "tool_use")


@dataclass
class Stage:
    """An engine, and the server that its agents ask."""

    rig: EngineRig
    server: ClaudeServer

    async def run(self, *replies: Reply | Failure | Raw, tools: int = 31, more: str = "") -> State:
        """Run an agent with so many tools of a server to its end."""
        self.server.queue(*replies)
        flow = FLOW % (", ".join(f"t{n}" for n in range(tools)), f", {more}" if more else "")
        await self.rig.engine.start(load_flow(flow, "many.yml"), {}, actor=ANA, session_id=SESSION)
        return await self.rig.engine.parked(SESSION)

    def tools(self, number: int = 0) -> list[dict[str, Any]]:
        """The tools of a request."""
        found: list[dict[str, Any]] = self.server.requests[number].body["tools"]
        return found


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """An engine whose MCP server has as many tools as are asked for."""

    async def listed(server: str, names: Sequence[str]) -> list[Tool]:
        return [Tool(f"{server}__{name}", f"Does {name}.", {"type": "object"}) for name in names]

    async def called(config: dict[str, Json], ctx: NodeContext) -> Outcome:
        said = {"type": "text", "text": f"{config['tool']} says yes"}
        return Completed({"content": [said], "isError": False, "structured": None})

    async with claude_server() as server:
        provider = ClaudeProvider(server.environ())
        runners = {**shell_runners(), "turn": TurnRunner(lambda ctx: provider, listed), "mcp": called}
        async with running(MemoryStore(), tmp_path, runners=runners) as rig:
            yield Stage(rig, server)
        await provider.close()


async def test_of_many_tools_the_model_looks_for_some(stage: Stage) -> None:
    """More than thirty are told of once they are looked for; what was found is called, and sent back as it came."""
    state = await stage.run(CALL, text("Three are open."))
    assert (state.status, stage.server.refused) == ("complete", [])
    first, second = stage.tools(0), stage.tools(1)
    assert first == second, "frozen"
    assert first[0]["type"] == "tool_search_tool_bm25_20251119"
    assert "cache_control" in first[0]
    assert all(tool["defer_loading"] and "cache_control" not in tool for tool in first[1:])
    said = stage.server.requests[1].body["messages"]
    assert said[1]["content"][:2] == [SEARCH, FOUND]
    assert "t3 says yes" in str(said[-1])


async def test_of_few_tools_the_model_is_told_at_once(stage: Stage) -> None:
    """Up to thirty are in the request as ever."""
    await stage.run(text("Nothing."), tools=30)
    assert not any("defer_loading" in tool or "type" in tool for tool in stage.tools())


@pytest.mark.parametrize(
    ("setting", "kind"), [("regex", "tool_search_tool_regex_20251119"), ("off", None), ("auto", None)]
)
async def test_a_flow_can_say_how(stage: Stage, setting: str, kind: str | None) -> None:
    """`tool_search` names the way, whatever number there is, or switches it off."""
    await stage.run(text("Nothing."), tools=2, more=f"tool_search: {setting}")
    assert stage.tools()[0].get("type") == kind


async def test_a_model_that_cannot_look_is_told_of_all(stage: Stage) -> None:
    """A refusal switches the search off, not the agent."""
    refused = Failure(400, "invalid_request_error", "tool_search_tool_bm25 is not supported by this model")
    state = await stage.run(refused, text("Nothing."))
    assert state.status == "complete", state.error
    assert [tool["name"] for tool in stage.tools(1)] == [f"crm__t{n}" for n in range(31)]


# --- the server refuses what the API refuses ---------------------------------------------------------------


def body(*tools: dict[str, Any], found: str | None = None) -> dict[str, Any]:
    """A request with these tools."""
    said: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
    if found is not None:
        content = {**FOUND["content"], "tool_references": [{"type": "tool_reference", "tool_name": found}]}  # type: ignore[dict-item]
        said += [{"role": "assistant", "content": [SEARCH, {**FOUND, "content": content}]}]
        said += [{"role": "user", "content": "go on"}]
    return {"model": "claude-sonnet-5-5", "max_tokens": 10, "messages": said, "tools": list(tools)}


LATER = {"name": "a", "input_schema": {"type": "object"}, "defer_loading": True}
LOOK = {"name": "tool_search_tool_bm25", "type": "tool_search_tool_bm25_20251119"}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (body(LATER), "All tools have defer_loading"),
        (body(LOOK, {**LATER, "cache_control": {"type": "ephemeral"}}), "defer_loading cannot"),
        (body({**LOOK, "defer_loading": True}, LATER), "defer_loading"),
        (body(LOOK, LATER, found="b"), "'b' not found"),
    ],
)
def test_the_server_refuses_what_the_api_refuses(wrong: dict[str, Any], why: str) -> None:
    """All tools deferred, a mark on one, a deferred search, something found that is not there."""
    with pytest.raises(Refusal, match=why):
        check(wrong, {})
    check(body(LOOK, LATER, found="a"), {})


@pytest.mark.parametrize(
    ("module", "name", "fault"),
    [
        (claude, "_told_marked", lambda tools, mark: claude._last_marked(tools, mark)),
        (turn_runner, "looked_for", lambda tools, how: requests.looked_for(tools, how)[1:]),
        (model_request, "MANY_TOOLS", 31),
    ],
)
async def test_a_fault_in_the_search_is_noticed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, fault: Any
) -> None:
    """Seeded faults: a mark on a tool that is told of later, no tool to look with, one tool too many at once."""
    monkeypatch.setattr(module, name, fault)
    with pytest.raises((AssertionError, KeyError)):
        await test_of_many_tools_the_model_looks_for_some(stage)
