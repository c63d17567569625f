"""MCP servers that ask people in the middle of a call, and their resources, over real servers of the SDK's and a plain one."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.decide.agents import call_to_node
from engine.decide.commands import Answer, Due, Shown
from engine.journal.state import Asked, State
from engine.language.errors import InvalidAnswer
from engine.models.scripted import provider_for, script_from
from engine.models.turn_runner import TurnRunner
from engine.nodes.runtime import mcp_asks
from engine.nodes.runtime.mcp import McpServers
from engine.storage.open import MemoryStore, open_store
from tests.support import prefork
from tests.support.engine import ANA, EngineRig, running

ROOT = Path(__file__).resolve().parents[3]
FLOW = """
flow: ask
nodes:
  - id: agent
    type: agent
    with:
      prompt: "Do it."
      tools: [{mcp: {server: tools, tools: [%s]}}]
"""


def program(name: str = "mcp_server") -> dict[str, Any]:
    """A server that is a program of the SDK's, or a plain one."""
    command, *args = prefork.front(str(ROOT / "tests/support" / f"{name}.py"), read=("uvicorn",))
    return {"command": command, "args": args, "cwd": str(ROOT)}


@asynccontextmanager
async def engine(
    folder: Path, entry: dict[str, Any], tool: str, *, store: Any = None, **given: Any
) -> AsyncIterator[tuple[EngineRig, McpServers]]:
    """An engine whose agent calls this tool once and then ends."""
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"tools": entry}}))
    servers = McpServers(folder / "mcp.json", lambda name: "", ["pay.example.com"])
    script = script_from([{"tools": [{"name": f"tools__{tool}", "input": given}]}, {"text": "Done."}])
    runners: dict[str, Any] = {"turn": TurnRunner(lambda ctx: provider_for(script, ctx), servers.mcp_tools)}
    home, kept = folder / "home", store or MemoryStore()
    async with running(kept, home, runners={**runners, "mcp": servers}) as rig:
        yield rig, servers
        await servers.close()


async def asked(rig: EngineRig, session_id: str, kind: str = "elicit") -> Asked:
    """The question that the session waits for."""
    state = await rig.engine.parked(session_id)
    (prompt_id,) = state.open_prompts
    assert state.prompts[prompt_id].kind == kind, state.prompts[prompt_id].message
    return state.prompts[prompt_id]


async def answer(rig: EngineRig, session_id: str, prompt: Asked, key: str = "k1", **said: Any) -> State:
    """Answer it, and wait until nothing works for the session."""
    await rig.engine.apply(session_id, Answer(prompt.prompt_id, ANA, key, **said))
    return await rig.engine.parked(session_id)


async def told(rig: EngineRig, session_id: str) -> str:
    """What the model was told of its call."""
    events = await rig.engine.journal(session_id)
    (result,) = [event for event in events if event.type == "agent:toolResult"]
    return "\n".join(block["text"] for block in result.content)  # type: ignore[attr-defined]


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[Any]:
    """Starts a server of the SDK over HTTP, instead of the one before."""
    processes: list[prefork.Forked] = []

    async def start(port: int = 0) -> str:
        while processes:
            process = processes.pop()
            process.kill()
            await asyncio.to_thread(process.communicate)
        words = ["-m", "tests.support.mcp_server", "http", str(port)]
        processes.append(
            prefork.start(words, cwd=ROOT, env=os.environ, stderr=2, read=("mcp.server", "uvicorn"))
        )
        assert processes[0].stdout is not None
        return (await asyncio.to_thread(processes[0].stdout.readline)).strip()

    yield start
    for process in processes:
        process.kill()
        await asyncio.to_thread(process.communicate)


FILLED = {"start_at": "noon", "force": True}


async def test_a_form_of_a_server_is_a_question_and_its_values_are_the_servers(tmp_path: Path) -> None:
    """People fill in the server's form, by its own rules, and the tool runs once with what they said."""
    file = tmp_path / "ran"
    async with engine(tmp_path, program(), "restart", service="db", file=str(file)) as (rig, _):
        session_id = await rig.start(FLOW % "restart")
        prompt = await asked(rig, session_id)
        assert "*tools asks:* When may db be restarted?" in prompt.message
        with pytest.raises(InvalidAnswer):
            await answer(rig, session_id, prompt, values={"force": True})
        assert not file.exists()
        state = await answer(rig, session_id, prompt, values=FILLED)
        assert state.status == "complete", state.error
        assert "db: at noon, True" in await told(rig, session_id)
    assert file.read_text() == "db at noon, True\n"


@pytest.mark.parametrize("word", ["decline", "cancel"])
async def test_a_form_can_be_turned_down(tmp_path: Path, word: str) -> None:
    """The server is told that people declined, or did not say."""
    async with engine(tmp_path, program(), "restart", service="db", file=str(tmp_path / "ran")) as (rig, _):
        session_id = await rig.start(FLOW % "restart")
        await answer(rig, session_id, await asked(rig, session_id), value=word)
        assert f"db: {word}" in await told(rig, session_id)


async def test_an_answer_outlives_the_process_and_the_server(tmp_path: Path, http: Any) -> None:
    """Sayso and the server both end while the question is open: the server has forgotten its state, and asks the same again,
    which has its answer: nobody is asked twice, and the tool runs once."""
    file, url = tmp_path / "ran", await http()
    entry = {"url": url}
    given: dict[str, Any] = {"service": "db", "file": str(file)}

    def store() -> Any:
        return open_store(f"sqlite:///{tmp_path / 'sayso.db'}", b"k" * 32)

    async with engine(tmp_path, entry, "restart", store=store(), **given) as (rig, _):
        session_id = await rig.start(FLOW % "restart")
        prompt = await asked(rig, session_id)
    await http(int(url.rpartition(":")[2].removesuffix("/mcp")))
    async with engine(tmp_path, entry, "restart", store=store(), **given) as (rig, _):
        state = await answer(rig, session_id, prompt, values=FILLED)
        assert state.status == "complete", state.error
        journal = await rig.engine.journal(session_id)
    assert file.read_text() == "db at noon, True\n"
    reasons = [event.reason for event in journal if event.type == "node:interrupted"]  # type: ignore[attr-defined]
    assert reasons == ["asks", "left"]
    # What is sent is in the journal before: the state that the server gave last.
    saved = [event.saved for event in journal if event.type == "node:interrupted"]  # type: ignore[attr-defined]
    assert saved[0]["state"] != saved[1]["state"]


async def test_a_page_is_shown_whole_and_only_of_hosts_that_are_allowed(tmp_path: Path) -> None:
    """The whole address is in the question; a host that nobody allowed is a failure that says so."""
    page = "https://pay.example.com/x?order=7"
    async with engine(tmp_path, program(), "pay", url=page) as (rig, _):
        session_id = await rig.start(FLOW % "pay")
        prompt = await asked(rig, session_id)
        assert page in prompt.message
        await answer(rig, session_id, prompt, value="accept")
        assert "paid: accept" in await told(rig, session_id)
    async with engine(tmp_path, program(), "pay", url="https://pay.example.com.evil.io/") as (rig, _):
        session_id = await rig.start(FLOW % "pay")
        await rig.engine.parked(session_id)
        assert "SAYSO_LINK_HOSTS does not list that host" in await told(rig, session_id)


async def test_a_server_asks_ten_times_at_most(tmp_path: Path) -> None:
    """One that comes to no end fails the call, which the model reads."""
    async with engine(tmp_path, program(), "endless") as (rig, _):
        session_id = await rig.start(FLOW % "endless")
        for number in range(mcp_asks.MOST_ROUNDS):
            await answer(rig, session_id, await asked(rig, session_id), f"k{number}", value="accept")
        assert "without finishing" in await told(rig, session_id)


async def test_a_server_gets_no_model(tmp_path: Path) -> None:
    """Sampling is refused: nobody is asked, and the model reads why."""
    async with engine(tmp_path, program(), "think") as (rig, _):
        session_id = await rig.start(FLOW % "think")
        await rig.engine.parked(session_id)
        assert "sampling/createMessage, which is refused" in await told(rig, session_id)


# --- servers of 2025-11-25 ---------------------------------------------------------------------------------


async def test_a_server_that_asks_within_the_call_gets_its_answer(tmp_path: Path) -> None:
    """The call stays open while people are asked, for two minutes."""
    async with engine(tmp_path, program("mcp_plain"), "confirm") as (rig, _):
        session_id = await rig.start(FLOW % "confirm")
        prompt = await asked(rig, session_id)
        assert (prompt.timeout_seconds, prompt.on_timeout) == (mcp_asks.OPEN_SECONDS, "cancel")
        await answer(rig, session_id, prompt, values={"sure": True})
        assert '{"action": "accept", "content": {"sure": true}}' in await told(rig, session_id)


async def test_such_a_server_is_told_that_nobody_answered(tmp_path: Path) -> None:
    """After two minutes the question goes away, and the call ends with that."""
    async with engine(tmp_path, program("mcp_plain"), "confirm") as (rig, _):
        session_id = await rig.start(FLOW % "confirm")
        prompt = await asked(rig, session_id)
        await rig.engine.apply(session_id, Shown(prompt.prompt_id, {"terminal": True}))
        (timer,) = (await rig.engine.state(session_id)).timers
        rig.clock.advance(mcp_asks.OPEN_SECONDS + 1)
        await rig.engine.apply(session_id, Due(timer))
        state = await rig.engine.parked(session_id)
        assert state.status == "complete", state.error
        assert '{"action": "cancel"}' in await told(rig, session_id)


async def test_an_open_call_that_was_lost_is_an_interruption(tmp_path: Path) -> None:
    """Where the process ends while the question is open nobody knows what the call did, and it is not made again."""
    store = f"sqlite:///{tmp_path / 'sayso.db'}"
    plain = program("mcp_plain")
    async with engine(tmp_path, plain, "confirm", store=open_store(store, b"k" * 32)) as (rig, _):
        session_id = await rig.start(FLOW % "confirm")
        prompt = await asked(rig, session_id)
    async with engine(tmp_path, plain, "confirm", store=open_store(store, b"k" * 32)) as (rig, _):
        await answer(rig, session_id, prompt, values={"sure": True})
        assert "may or may not have taken effect" in (await asked(rig, session_id, "interrupted")).message


# --- resources ---------------------------------------------------------------------------------------------

READS = FLOW.replace("tools: [%s]", 'resources: ["docs://runbooks/*", "docs://hosts/*"]')


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("docs://runbooks/restart", "(resource docs://runbooks/restart)\nLook first. &lt;/tool_output>"),
        ("docs://hosts/db", "db is a host"),
        ("docs://private/salaries", "is not allowed here. Allowed are: `docs://runbooks/*`"),
        ("docs://runbooks/../private/salaries", "is not allowed here"),
        ("docs://runbooks/%252e%252e/private/salaries", "is not allowed here"),
        ("docs://runbooks/none", "The call failed"),
    ],
)
async def test_a_resource_is_read_as_data_where_the_flow_allows_it(
    tmp_path: Path, uri: str, said: str
) -> None:
    """What is in it reaches the model between marks; other addresses are refused, however they are written."""
    async with engine(tmp_path, program(), "resource", uri=uri) as (rig, _):
        session_id = await rig.start(READS)
        state = await rig.engine.parked(session_id)
        assert state.status == "complete", state.error
        found = await told(rig, session_id)
        opened = await rig.engine.journal(session_id)
    assert said in found
    assert "too much" not in found
    (body,) = [event.body for event in opened if event.type == "agent:opened"]  # type: ignore[attr-defined]
    assert [tool["name"] for tool in body["tools"]] == ["tools__resources", "tools__resource"]


async def test_resources_are_listed_as_far_as_they_may_be_read(tmp_path: Path) -> None:
    """The model learns addresses, names and descriptions of what the flow allows, templates too, and of nothing else."""
    async with engine(tmp_path, program(), "resources") as (rig, _):
        session_id = await rig.start(READS)
        await rig.engine.parked(session_id)
        found = await told(rig, session_id)
    assert "docs://runbooks/restart · Restart · How to restart a service. · text/markdown" in found
    assert "docs://hosts/{name}" in found
    assert "private" not in found


async def test_a_fault_in_what_may_be_read_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeded fault: without the allow-list the model reads what nobody named."""
    monkeypatch.setattr(call_to_node, "may_read", lambda uri, patterns: True)
    with pytest.raises(AssertionError):
        await test_a_resource_is_read_as_data_where_the_flow_allows_it(
            tmp_path, "docs://private/salaries", "is not allowed here"
        )
