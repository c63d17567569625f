"""`sayso mcp` with the official client, over real pipes and sockets."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CLIENT_CAPABILITIES_META_KEY,
    CallToolRequestParams,
    CallToolResult,
    Request,
    RequestParams,
    Result,
)

from bot.gate.client import Client as GateClient
from bot.gate.client import NoGate
from bot.gate.mcp_server import _KNOWN_SECONDS, _MOST_KNOWN, TASKS, Door, _Verifier
from tests.gate.conftest import Gate, gated
from tests.gate.test_hooks import Hooks, event
from tests.support import prefork
from tests.support.acting import Workspace
from tests.support.bot import ROOT, ThreadView, counted, words

pytestmark = pytest.mark.process
WRITING = {"schema", "validate", "explain", "test", "save"}

FLOW = """
flow: release
description: Releases a version.
inputs:
  version: {{type: string}}
  dry: {{type: boolean, default: false}}
nodes:
  - id: count
    type: shell
    with: {{script: 'echo "$V" >> "$LOG"', env: {{LOG: "{log}", V: "{{{{ inputs.version }}}}"}}}}
  - id: ask
    type: ask
    with: {{message: "Which channel?", who: [ben@example.com]}}
"""


def program(gate: Gate, env: dict[str, str]) -> StdioServerParameters:
    """The server as a client starts it."""
    command, *args = prefork.front("-m", "bot.cli", "mcp")
    return StdioServerParameters(command=command, args=args, env=env, cwd=gate.folder)


@asynccontextmanager
async def stdio(gate: Gate) -> AsyncIterator[ClientSession]:
    """A client with a server of its own over pipes."""
    env = {**Hooks(gate, await gate.url()).env, "PYTHONPATH": str(ROOT)}
    server = program(gate, env)
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield session


async def call(session: ClientSession, name: str, **given: Any) -> dict[str, Any]:
    """What a tool gives."""
    result = await session.call_tool(name, given)
    assert not result.is_error, result.content
    told: dict[str, Any] = result.structured_content or {}
    return told


async def test_the_tools_and_listed_flows_have_types(workspace: Workspace, tmp_path: Path) -> None:
    """Three tools of the gate, and the flows that gate.yml lists, with their inputs, beside those that write flows."""
    async with (
        gated(workspace, tmp_path, flows={"release": FLOW.format(log=tmp_path / "log")}) as gate,
        stdio(gate) as session,
    ):
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert sorted(tools.keys() - WRITING) == [
            "ask_human",
            "check_request",
            "flow_release",
            "request_approval",
        ]
        schema = tools["flow_release"].input_schema
        assert (schema["properties"]["dry"]["type"], schema["required"]) == ("boolean", ["version"])
        assert all(tool.output_schema is not None for tool in tools.values())
        outputs = (tools["flow_release"].output_schema or {})["properties"]["outputs"]["properties"]
        assert outputs["ask"]["properties"]["text"]["type"] == ["string"]
        assert outputs["count"]["properties"]["exit_code"]["type"] == ["number"]
        wrong = await call(session, "flow_release", version=3, key="k")
        assert (wrong["state"], "version" in wrong["reason"]) == ("denied", True)


async def test_a_question_is_answered_by_choice_form_and_words(gate: Gate) -> None:
    """Ana answers what her agent asks; the answers are typed."""
    async with stdio(gate) as session:
        asked = asyncio.create_task(
            call(session, "ask_human", message="Which colour?", choices=["red", "blue"], key="k1")
        )
        thread = await gate.thread()
        await thread.press("ana", await thread.says("Which colour?"), "blue")
        told = await asked
        assert (told["state"], told["answer"]["value"]) == ("answered", "blue")
        assert (
            await call(session, "ask_human", message="Which colour?", choices=["red", "blue"], key="k1")
            == told
        )
        asked = asyncio.create_task(call(session, "ask_human", message="And why? {{ secrets.X }}"))
        message = await thread.says("And why?")
        assert "{{ secrets.X }}" in words(message)
        await thread.reply("ana", "It is calm.")
        assert (await asked)["answer"]["text"] == "It is calm."
        refused = await session.call_tool("ask_human", {"message": "x", "choices": ["{{ secrets.X }}"]})
        assert refused.is_error


async def test_a_question_without_a_key_is_a_new_one_each_time(gate: Gate) -> None:
    """Asked and answered, the same question is asked again, and its answer has a key of its own."""
    async with stdio(gate) as session:
        told = []
        for number, colour in enumerate(("red", "blue"), 1):
            asked = asyncio.create_task(call(session, "ask_human", message="Which colour?"))
            thread = await gate.thread()

            def shown(number: int = number, thread: ThreadView = thread) -> bool:
                return thread.count("Which colour?") >= number

            await gate.workspace.wait_for(shown, timeout=20)
            await thread.reply("ana", colour)
            told.append(await asked)
        assert [one["answer"]["text"] for one in told] == ["red", "blue"]
        assert told[0]["key"] != told[1]["key"]


class Between(GateClient):
    """A gate where people decide between the asking and the first look at the task."""

    def __init__(self, url: str, token: str, press: Callable[[], None]) -> None:
        super().__init__(url, token)
        self.press = press

    def post(self, do: str, **given: Any) -> dict[str, Any]:
        """The answer to one request."""
        if do == "look":
            self.press()
        return super().post(do, **given)


async def test_an_allow_before_the_first_look_at_a_task_is_handed_out_with_it(gate: Gate) -> None:
    """The task that is complete at once has what was allowed, and nothing hands that out again."""
    loop = asyncio.get_running_loop()

    async def allow() -> None:
        thread = await gate.thread()
        await thread.approve("ben", await thread.asks())
        await thread.says("Approved")

    def press() -> None:
        asyncio.run_coroutine_threadsafe(allow(), loop).result(30)

    door = Door(lambda ctx: Between(url, gate.token, press), "s")
    url = await gate.url()
    taken = {CLIENT_CAPABILITIES_META_KEY: {"extensions": {TASKS: {}}}}
    given = {"tool": "restart", "arguments": {"host": "web-3"}, "key": "k"}
    params = CallToolRequestParams(name="request_approval", arguments=given)
    told = await door._call(SimpleNamespace(meta=taken), params)
    assert told["status"] == "completed"
    assert told["result"]["structuredContent"]["arguments"] == {"host": "web-3"}
    again = await gate.post("look", request=told["taskId"], take=True)
    assert again[1]["state"] == "denied"


async def test_a_token_is_remembered_for_a_time_and_a_wrong_one_is_not(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate is asked about a token once in a while, and about no more tokens than a bound is anything kept."""
    asked: list[str] = []
    now = [0.0]

    def post(self: GateClient, do: str, **given: Any) -> dict[str, Any]:
        asked.append(self.token)
        if self.token == "wrong":
            raise NoGate("unknown")
        return {}

    monkeypatch.setattr(GateClient, "post", post)
    monkeypatch.setattr("bot.gate.mcp_server.time", SimpleNamespace(monotonic=lambda: now[0]))
    verifier = _Verifier("http://127.0.0.1:1")
    for token, counts in (("good", True), ("good", True), ("wrong", False), ("wrong", False)):
        assert (await verifier.verify_token(token) is not None) == counts
    assert asked == ["good", "wrong", "wrong"]
    now[0] = _KNOWN_SECONDS + 1
    await verifier.verify_token("good")
    assert asked[3:] == ["good"]
    for number in range(_MOST_KNOWN + 5):
        await verifier.verify_token(f"t{number}")
    assert len(verifier._known) == _MOST_KNOWN


async def test_a_client_that_is_killed_asks_again_with_its_key_and_gets_the_answer(gate: Gate) -> None:
    """The whole client is killed while it waits; people answer meanwhile; a new client gets it, once."""
    env = {**os.environ, **Hooks(gate, await gate.url()).env}
    server = prefork.front("-m", "bot.cli", "mcp")
    script = f"""
import asyncio, json
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
async def main():
    server = StdioServerParameters(command={server[0]!r}, args={server[1:]!r}, env={env!r})
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        given = {{"tool": "restart", "arguments": {{"host": "web-3"}}, "key": "k"}}
        result = await session.call_tool("request_approval", given)
        print(json.dumps(result.structured_content))
asyncio.run(main())
"""
    command = prefork.front("-c", script, read=("mcp.client.stdio",))

    async def client() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *command, env=env, cwd=gate.folder, stdout=asyncio.subprocess.PIPE, start_new_session=True
        )

    first = await client()
    thread = await gate.thread()
    message = await thread.asks()
    os.killpg(first.pid, signal.SIGKILL)
    await first.wait()
    await gate.bot.kill()
    await gate.bot.start()
    await thread.approve("ben", message)
    async with stdio(gate) as session:
        told = await call(session, "request_approval", tool="restart", arguments={"host": "web-3"}, key="k")
        assert (told["state"], told["arguments"]) == ("allowed", {"host": "web-3"})
        looked = await call(session, "check_request", request=told["request"])
        assert looked["state"] == "allowed"
        other = await session.call_tool(
            "request_approval", {"tool": "restart", "arguments": {"host": "web-4"}, "key": "k"}
        )
        assert other.is_error
    assert thread.count("wants to use") == 1


async def test_a_flow_that_is_started_twice_with_one_key_runs_once(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Both get its outputs; with another key it runs again; one that is not listed does not run."""
    log = tmp_path / "log"
    flows = {"release": FLOW.format(log=log), "secret": "flow: secret\nnodes: [{id: x, type: noop}]\n"}
    async with gated(workspace, tmp_path, flows=flows) as gate, stdio(gate) as one, stdio(gate) as two:
        both = [
            asyncio.create_task(call(session, "flow_release", version="1.2", key="k"))
            for session in (one, two)
        ]
        thread = await gate.thread()
        await thread.says("Which channel?")
        await thread.reply("ben", "stable")
        first, second = await asyncio.gather(*both)
        assert first == second
        assert first["outputs"]["ask"]["text"] == "stable"
        assert counted(log) == ["1.2"]
        again = asyncio.create_task(call(one, "flow_release", version="1.2", key="other"))
        await gate.workspace.wait_for(lambda: len(counted(log)) == 2, timeout=20)
        await gate.workspace.wait_for(lambda: thread.count("Which channel?") >= 2, timeout=20)
        await thread.reply("ben", "edge")
        assert (await again)["outputs"]["ask"]["text"] == "edge"
        assert (await two.call_tool("flow_secret", {"key": "k"})).is_error


class Task(Result):
    """A task, as the extension tells it."""

    result_type: Literal["task"]
    task_id: str


class Looked(Result):
    """What `tasks/get` tells."""

    status: str
    result: dict[str, Any] | None = None


class TaskParams(RequestParams):
    """Of which task."""

    task_id: str


class OfTask(Request[TaskParams, str]):
    """A request about a task."""

    params: TaskParams


class Tasks(ClientExtension):
    """The client's side of the extension; the SDK has none yet. It keeps the ids of its tasks."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def ask(self, session: ClientSession, method: str, task_id: str) -> Looked:
        """One request about a task."""
        kind = Looked if method == "tasks/get" else Result
        sent: Any = await session.send_request(
            OfTask(method=method, params=TaskParams(task_id=task_id)), kind
        )
        return sent  # type: ignore[no-any-return]

    async def follow(self, task: Task, context: ClaimContext) -> CallToolResult:
        """Look until it has ended."""
        self.seen.append(task.task_id)
        told = await self.ask(context.session, "tasks/get", task.task_id)
        while told.status == "working":
            await asyncio.sleep(0.1)
            told = await self.ask(context.session, "tasks/get", task.task_id)
        assert told.status == "completed"
        return CallToolResult.model_validate(told.result)

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Of calls of tools."""
        return [ResultClaim(result_type="task", model=Task, resolve=self.follow)]


async def test_a_client_that_takes_tasks_gets_one_and_its_result_once(gate: Gate) -> None:
    """It survives a kill of the server; looked at again it hands nothing out; another token does not see it; it can be cancelled."""
    tasks = Tasks()
    env = {**Hooks(gate, await gate.url()).env, "PYTHONPATH": str(ROOT)}
    server = program(gate, env)
    given = {"tool": "restart", "arguments": {"host": "web-3"}, "key": "k"}
    async with Client(server, extensions=[tasks]) as client:
        asked = asyncio.create_task(client.call_tool("request_approval", given))
        thread = await gate.thread()
        message = await thread.asks()
        asked.cancel()
    async with Client(server, extensions=[tasks]) as client:
        [task_id] = tasks.seen
        assert (await tasks.ask(client.session, "tasks/get", task_id)).status == "working"
        await tasks.ask(client.session, "tasks/update", task_id)
        await thread.approve("ben", message)
        await thread.says("Approved")
        told = (await tasks.ask(client.session, "tasks/get", task_id)).result or {}
        assert told["structuredContent"]["arguments"] == {"host": "web-3"}
        again = (await tasks.ask(client.session, "tasks/get", task_id)).result or {}
        assert (again["structuredContent"]["state"], "arguments" in again["structuredContent"]) == (
            "denied",
            False,
        )
        asked = asyncio.create_task(client.call_tool("ask_human", {"message": "Which colour?"}))
        await thread.says("Which colour?")
        await gate.workspace.wait_for(lambda: len(tasks.seen) == 2, timeout=20)
        await tasks.ask(client.session, "tasks/cancel", tasks.seen[-1])
        assert ((await asked).structured_content or {})["state"] == "denied"
        await thread.says("The agent cancelled it")
        with pytest.raises(MCPError):
            await tasks.ask(client.session, "tasks/get", "gate:request:guess:0")
    other = server.model_copy(update={"env": {**env, "SAYSO_GATE_TOKEN": gate.login("codex:desk", "ben")}})
    async with Client(other, extensions=[tasks]) as client:
        with pytest.raises(MCPError):
            await tasks.ask(client.session, "tasks/get", task_id)


async def test_the_hook_and_the_server_see_one_call(gate: Gate) -> None:
    """What people allowed the hook is not asked about again: the id of the call reaches the gate."""
    hooks = Hooks(gate, await gate.url())
    given = {"tool": "restart", "arguments": {"host": "web-3"}, "reason": "It hangs."}
    call_of = event("", "toolu_9", tool_name="mcp__sayso__request_approval", tool_input=given)
    waiting = asyncio.create_task(hooks.decision(call_of, "--wait", "30"))
    thread = await gate.thread()
    await thread.approve("ben", await thread.says("request_approval"))
    assert (await waiting)[0] == "allow"
    meta: Any = {"claudecode/toolUseId": "toolu_9"}
    async with stdio(gate) as session:
        result = await session.call_tool("request_approval", given, meta=meta)
        told = result.structured_content or {}
        assert (told["state"], told["arguments"]) == ("allowed", {"host": "web-3"})


async def test_over_http_each_client_brings_its_token(gate: Gate) -> None:
    """Without one, or with a wrong one, it does not connect; with one it asks as that agent, and writes no flows."""
    hooks = Hooks(gate, await gate.url())
    command = prefork.front("-m", "bot.cli", "mcp", "--port", "0", read=("uvicorn",))
    server = await asyncio.create_subprocess_exec(
        *command,
        env={**hooks.env, "SAYSO_GATE_TOKEN": "", "PYTHONUNBUFFERED": "1"},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert server.stdout is not None
        url = (await server.stdout.readline()).decode().split()[1]
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        async with httpx2.AsyncClient() as plain:
            for headers in ({}, {"Authorization": "Bearer guess"}):
                answer = await plain.post(
                    url, content=body, headers={"Content-Type": "application/json", **headers}
                )
                assert answer.status_code == 401
        other = gate.login("codex:desk", "ben")
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {other}"}) as http,
            streamable_http_client(url, http_client=http) as (read, write, *_),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            assert not WRITING & {tool.name for tool in (await session.list_tools()).tools}
            asked = asyncio.create_task(
                call(
                    session,
                    "request_approval",
                    tool="restart",
                    arguments={"host": "web-3"},
                    reason="It hangs.",
                )
            )
            thread = await gate.thread()
            message = await thread.asks()
            assert "codex:desk" in words(message)
            await thread.approve("ben", message)
            await thread.approve("cleo", message)
            assert (await asked)["state"] == "allowed"
        tasks = Tasks()
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {other}"}) as http,
            Client(streamable_http_client(url, http_client=http), extensions=[tasks]) as client,
        ):
            answered = asyncio.create_task(client.call_tool("ask_human", {"message": "Which colour?"}))
            await thread.says("Which colour?")
            await thread.reply("ben", "blue")
            told = (await answered).structured_content or {}
            assert (told["answer"]["text"], len(tasks.seen)) == ("blue", 1)
    finally:
        server.kill()
        await server.wait()
