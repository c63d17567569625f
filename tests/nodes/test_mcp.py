"""Tools of MCP servers, against processes over stdio and over HTTP: over HTTP with the server of the SDK."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.language.errors import SaysoError
from engine.nodes.runtime import mcp, mcp_servers
from engine.nodes.runtime.mcp import McpServers
from engine.nodes.runtime.mcp_calls import OpenCall
from engine.nodes.runtime.mcp_servers import McpUnconfigured, find, servers
from engine.nodes.runtime.runner import Completed, Failed, Interrupted, Outcome
from engine.run.flow_files import load_flows
from tests.nodes.nodekit import PYTHON, Context, runs, until
from tests.support import prefork

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests/support/mcp_plain.py"
OF_THE_SDK = ROOT / "tests/support/mcp_server.py"
SECRET = "a-token-that-nobody-may-see"


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """A context whose session may use one secret."""
    return Context(tmp_path, {"TOKEN": SECRET})


class Kit:
    """A configuration file in a folder, and the servers that it names."""

    def __init__(self, context: Context, folder: Path) -> None:
        self.context, self.folder, self.file = context, folder, folder / "mcp.json"
        self.processes: list[prefork.Forked] = []
        self.servers = McpServers(self.file, context.secret)

    def write(self, **entries: Any) -> None:
        """Say which servers there are."""
        self.file.write_text(json.dumps({"mcpServers": entries}))

    def stdio(self, program: Sequence[str] = (PYTHON, str(PROGRAM)), **more: Any) -> None:
        """A server `tools` that is a program."""
        env = {"TOKEN": "${SAYSO_SECRET_TOKEN}"}
        self.write(tools={"command": program[0], "args": program[1:], "env": env, **more})

    async def http(self, port: int = 0) -> int:
        """A server `tools` that is reached over HTTP; returns its port."""
        process = prefork.start(
            ["-m", "tests.support.mcp_server", "http", str(port)],
            cwd=ROOT,
            env=os.environ,
            stderr=2,
            read=("mcp.server", "uvicorn"),
        )
        self.processes.append(process)
        assert process.stdout is not None
        url = (await asyncio.to_thread(process.stdout.readline)).strip()
        self.write(tools={"url": url, "headers": {"Authorization": "Bearer ${SAYSO_SECRET_TOKEN}"}})
        return int(url.rpartition(":")[2].removesuffix("/mcp"))

    async def end_http(self) -> None:
        """End the server over HTTP at once."""
        process = self.processes.pop()
        process.kill()
        await asyncio.to_thread(process.communicate)

    async def call(self, tool: str, server: str = "tools", timeout: float = 60, **arguments: Any) -> Outcome:
        """Call a tool as a node does."""
        config = {"server": server, "tool": tool, "arguments": arguments}
        return await self.servers(config, self.context.build(timeout=timeout))

    async def text(self, tool: str, **arguments: Any) -> str:
        """The text that a call gave, which must have completed."""
        outcome = await self.call(tool, **arguments)
        assert isinstance(outcome, Completed), outcome
        return "\n".join(part["text"] for part in outcome.output["content"] if part["type"] == "text")


@pytest.fixture
async def kit(context: Context, tmp_path: Path) -> AsyncIterator[Kit]:
    """A kit whose connections and processes end with the test."""
    kit = Kit(context, tmp_path)
    yield kit
    await kit.servers.close()
    while kit.processes:
        await kit.end_http()


@pytest.fixture(params=["stdio", "http"])
async def served(request: pytest.FixtureRequest, kit: Kit) -> Kit:
    """A server of either kind."""
    if request.param == "http":
        await kit.http()
    else:
        kit.stdio()
    return kit


# --- both kinds ----------------------------------------------------------------------------------------


async def test_a_tool_is_listed_and_called(served: Kit) -> None:
    """A server says what its tools are, and a call gives text and the structured value."""
    tools = {tool.name: tool for tool in await served.servers.list_tools("tools")}
    assert tools["add"].description == "Adds two numbers."
    assert set(tools["add"].input_schema["properties"]) == {"a", "b"}
    outcome = await served.call("add", a=1, b=2)
    assert outcome == Completed(
        {"content": [{"type": "text", "text": "3"}], "isError": False, "structured": {"result": 3}}
    )


async def test_a_result_that_64_bits_cannot_hold_is_told(kit: Kit) -> None:
    """A structured value with an integer that would become another one fails the call, in words."""
    kit.stdio()
    outcome = await kit.call("add", a=2**63, b=2**63)
    assert isinstance(outcome, Failed)
    assert "beyond 64 bits" in outcome.message


async def test_a_program_of_the_sdk_is_listed_and_called(kit: Kit) -> None:
    """The same with a program that uses the SDK."""
    kit.stdio(prefork.front(str(OF_THE_SDK), read=("uvicorn",)))
    tools = {tool.name: tool for tool in await kit.servers.list_tools("tools")}
    assert tools["add"].description == "Adds two numbers."
    outcome = await kit.call("add", a=1, b=2)
    assert isinstance(outcome, Completed)
    assert outcome.output["structured"] == {"result": 3}


async def test_the_model_knows_tools_by_server_and_name(kit: Kit) -> None:
    """Only wanted tools are given, as `<server>__<tool>`; one that the server does not have is told."""
    kit.stdio()
    assert [tool.name for tool in await kit.servers.mcp_tools("tools", ["add"])] == ["tools__add"]
    with pytest.raises(SaysoError, match=r"has no tool ad \(did you mean `?add"):
        await kit.servers.mcp_tools("tools", ["ad"])


async def test_an_error_of_a_tool_is_a_result(served: Kit) -> None:
    """What a tool says went wrong is for the model to read, and no failure of the node."""
    for tool, arguments in (("broken", {"word": "x"}), ("add", {"a": "x"})):
        outcome = await served.call(tool, **arguments)
        assert isinstance(outcome, Completed), outcome
        assert outcome.output["isError"] is True


async def test_one_connection_serves_all_calls(served: Kit) -> None:
    """Calls at the same time and one after another are answered by the same process."""
    pids = {text.split()[0] for text in await asyncio.gather(*(served.text("whoami") for _ in range(5)))}
    pids.add((await served.text("whoami")).split()[0])
    assert len(pids) == 1


async def test_pictures_and_what_is_neither(kit: Kit, tmp_path: Path) -> None:
    """A picture that the model can see is kept; of any other its kind is told."""
    kit.stdio()
    outcome = await kit.call("note", file=str(tmp_path / "notes"))
    assert isinstance(outcome, Completed)
    text, picture, other = outcome.output["content"]
    assert (text["text"], picture["type"], picture["mimeType"]) == ("noted", "image", "image/png")
    assert "image/tiff" in other["text"]


async def test_what_is_too_much_is_cut(kit: Kit) -> None:
    """A text of two million characters is kept as its head and tail, with how much is missing."""
    kit.stdio()
    text = await kit.text("large")
    assert len(text) < 300_000
    assert "characters left out" in text


async def test_a_call_that_takes_too_long_is_interrupted(served: Kit, tmp_path: Path) -> None:
    """After the node's timeout nobody knows what the tool did; the connection still serves others."""
    # The connection is before: where it takes all the time, nothing was sent, and the call simply failed.
    assert await served.text("add", a=1, b=2) == "3"
    outcome = await served.call("wait", timeout=0.3, file=str(tmp_path / "began"))
    assert isinstance(outcome, Interrupted)
    assert outcome.reason == "timeout"
    assert await served.text("add", a=1, b=1) == "2"


async def test_a_session_that_leaves_does_not_wait(served: Kit, tmp_path: Path) -> None:
    """The abort signal cuts a call at once."""
    began = tmp_path / "began"
    call = asyncio.ensure_future(served.call("wait", file=str(began)))
    await until(lambda: os.path.exists(began))
    served.context.aborted.set()
    outcome = await asyncio.wait_for(call, 5)
    assert isinstance(outcome, Interrupted)
    assert outcome.reason == "cut"


async def test_a_server_that_dies_in_a_call_leaves_it_open(served: Kit, tmp_path: Path) -> None:
    """When the answer is lost nobody knows what happened, and the call is not made again."""
    outcome = await served.call("die", file=str(tmp_path / "began"))
    assert isinstance(outcome, Interrupted), outcome
    assert outcome.reason == "cut"


# --- programs ------------------------------------------------------------------------------------------


async def test_a_program_that_died_is_started_again(kit: Kit) -> None:
    """The next call after the end of a server starts a new one."""
    kit.stdio()
    first = int((await kit.text("whoami")).split()[0])
    os.kill(first, signal.SIGKILL)
    connection = kit.servers._open["tools"]
    await asyncio.wait_for(connection.ended.wait(), 10)
    second = int((await kit.text("whoami")).split()[0])
    assert second != first


async def test_a_program_ends_with_its_connections(kit: Kit) -> None:
    """Closing ends the process, and the next call starts another."""
    kit.stdio()
    pid = int((await kit.text("whoami")).split()[0])
    await kit.servers.close()
    await until(lambda: not runs(pid))
    assert int((await kit.text("whoami")).split()[0]) != pid


async def test_a_changed_configuration_is_used_by_the_next_call(kit: Kit, tmp_path: Path) -> None:
    """A server whose entry has changed is started again with what is there now."""
    kit.stdio()
    assert str(tmp_path) in await kit.text("whoami")
    (tmp_path / "other").mkdir()
    kit.stdio(cwd="other")
    assert str(tmp_path / "other") in await kit.text("whoami")


async def test_a_secret_reaches_the_server_and_comes_back_as_a_mark(kit: Kit) -> None:
    """The program has the value in its environment; in what it says the value is taken out, everywhere."""
    kit.stdio()
    outcome = await kit.call("whoami")
    assert isinstance(outcome, Completed)
    assert "[secret TOKEN]" in outcome.output["content"][0]["text"]
    assert SECRET not in json.dumps(outcome.output)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"command": "no-such-program-anywhere"}, "cannot be used"),
        ({"command": PYTHON, "args": ["-c", "raise SystemExit('the database is gone')"]}, "the database is gone"),
        ({"command": PYTHON, "env": {"TOKEN": "${SAYSO_SECRET_OTHER}"}}, "secret OTHER is not set"),
        ({"url": "http://127.0.0.1:9/mcp"}, "cannot be used"),
    ],
)  # fmt: skip
async def test_a_server_that_does_not_start_is_a_failure_that_says_why(
    kit: Kit, entry: dict[str, Any], said: str
) -> None:
    """Nothing was asked of it yet, so the call failed, with the last words of a program."""
    kit.write(tools=entry)
    outcome = await kit.call("add")
    assert isinstance(outcome, Failed), outcome
    assert said in outcome.message
    with pytest.raises(SaysoError, match=said):
        await kit.servers.list_tools("tools")


# --- HTTP ----------------------------------------------------------------------------------------------


async def test_a_server_over_http_that_was_started_anew_serves_the_next_call(kit: Kit) -> None:
    """While it is away calls end without an answer; when it is back they are answered."""
    port = await kit.http()
    first = (await kit.text("whoami")).split()[0]
    await kit.end_http()
    assert isinstance(await kit.call("whoami"), Failed | Interrupted)
    await kit.http(port)
    assert (await kit.text("whoami")).split()[0] != first


# --- the file ------------------------------------------------------------------------------------------


def test_no_file_names_no_servers(tmp_path: Path) -> None:
    """Without the file there are no servers, and a wanted one is told to be missing."""
    assert servers(tmp_path / "mcp.json") == {}
    with pytest.raises(McpUnconfigured, match="lists none"):
        find(tmp_path / "mcp.json", "grafana")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"), ("[]", "mcpServers"), ('{"mcpServers": []}', "mcpServers"), ('{"mcpServers": {"a": {}}}', "either `command`"),
        ('{"mcpServers": {"a": {"command": "x", "url": "http://x"}}}', "either `command`"), ('{"mcpServers": {"a b": {"command": "x"}}}', "in the name"),
        ('{"mcpServers": {"a": {"command": "x", "arg": []}}}', "arg"), ('{"mcpServers": {"a": {"command": ["x"]}}}', "command"),
        ('{"mcpServers": {"a": {"url": "ftp://x"}}}', "url"), ('{"mcpServers": {"a": {"type": "sse", "url": "http://x"}}}', "type"),
        ('{"mcpServers": {"a": {"command": "x", "args": ["${SAYSO_SECRET_A}"]}}}', "only in values of `env` and `headers`"),
        ('{"mcpServers": {"a": {"url": "http://x/${SAYSO_SECRET_A}"}}}', "only in values of `env` and `headers`"),
        ('{"mcpServers": {"a": {"command": "x", "env": {"A": "${HOME}"}}}}', "is not supported"),
        ('{"mcpServers": {"a": {"command": "x", "env": {"A": "${SAYSO_SECRET_A"}}}}', "is not supported"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_says_where_and_why(tmp_path: Path, text: str, said: str) -> None:
    """Each mistake is named with the file and the server."""
    file = tmp_path / "mcp.json"
    file.write_text(text)
    with pytest.raises(McpUnconfigured, match=said) as error:
        servers(file)
    assert str(file) in str(error.value)


def test_a_name_that_is_nearly_right_is_suggested(tmp_path: Path) -> None:
    """The nearest name is in the error."""
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"grafana": {"command": "./serve"}}}')
    with pytest.raises(McpUnconfigured, match="grafana"):
        find(file, "grafna")
    assert find(file, "grafana").command == str(tmp_path / "serve")


def test_the_library_is_loaded_by_a_call_only() -> None:
    """Importing the module, and what puts an engine together, loads neither the client nor its HTTP library."""
    script = (
        "import sys, bot.compose.environment, engine.nodes.runtime.mcp;"
        "print([name for name in ('mcp', 'mcp_types', 'httpx2', 'starlette') if name in sys.modules])"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


# --- calls that stay open while people are asked -----------------------------------------------------------


async def test_a_server_hears_at_once_that_nobody_can_be_asked(kit: Kit) -> None:
    """It asks for a password within its call: that fails, and the server, which serves nobody meanwhile, continues."""
    kit.stdio()
    password = {"type": "object", "properties": {"password": {"type": "string"}}}
    outcome = await kit.call("confirm", schema=password)
    assert isinstance(outcome, Failed)
    assert "secrets" in outcome.message
    assert isinstance(await kit.call("add", a=1, b=2, timeout=5), Completed)


async def test_an_answer_that_comes_too_late_is_given_to_no_later_question() -> None:
    """The server has heard that the first was cancelled, and asks something else: people are asked that, too."""
    heard: list[Any] = []

    async def sent() -> str:
        for words in ("Really?", "Delete everything?"):
            heard.append((await call.ask(words)).action)
        return "done"

    call = OpenCall(sent())
    first = await call.next()
    first.answer.set_exception(TimeoutError())
    await until(lambda: heard == ["cancel"])
    call.answer({"action": "accept"})
    assert (await call.next()).params == "Delete everything?"
    call.answer({"action": "decline"})
    assert await call.next() == "done"
    assert heard == ["cancel", "decline"]


async def test_two_questions_at_once_are_put_one_after_the_other() -> None:
    """Each gets the answer that was given to it."""

    async def sent() -> list[str]:
        return [told.action for told in await asyncio.gather(call.ask("One?"), call.ask("Two?"))]

    call = OpenCall(sent())
    for words, action in (("One?", "accept"), ("Two?", "decline")):
        assert (await call.next()).params == words
        call.answer({"action": action})
    assert await call.next() == ["accept", "decline"]


async def test_a_secret_that_takes_long_holds_up_nobody(kit: Kit) -> None:
    """A program may give it, which takes seconds: it is asked away from the event loop."""
    asked = list[bool]()

    def secret(name: str) -> str:
        asked.append(threading.current_thread() is threading.main_thread())
        return SECRET

    kit.servers = McpServers(kit.file, secret)
    kit.stdio()
    assert isinstance(await kit.call("add", a=1, b=2), Completed)
    assert set(asked) == {False}


# --- without the package -------------------------------------------------------------------------------------


async def test_without_its_package_a_call_says_how_to_install_it(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server is started: a session that was begun with the package gets a sentence, and no traceback."""
    kit.stdio()
    monkeypatch.setattr(mcp, "is_installed", lambda: False)
    with pytest.raises(McpUnconfigured, match=r"pip install 'sayso\[mcp\]'"):
        await kit.servers.list_tools("tools")
    outcome = await kit.call("echo")
    assert isinstance(outcome, Failed)
    assert "pip install 'sayso[mcp]'" in outcome.message


@pytest.mark.parametrize("installed", [True, False])
def test_a_flow_that_needs_the_package_is_refused_without_it(
    tmp_path: Path, installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it is loaded, before anybody starts it; at its line, and with the command."""
    tool = "{mcp: {server: grafana, tools: [query]}}"
    for name, tools in (("ask", tool), ("plain", "ask_human")):
        agent = f"flow: {name}\nnodes:\n  - {{id: a, type: agent, with: {{prompt: x, tools: [{tools}]}}}}\n"
        (tmp_path / f"{name}.yml").write_text(agent)
    monkeypatch.setattr(mcp_servers, "is_installed", lambda: installed)
    flows, errors = load_flows(tmp_path)
    assert sorted(flows) == (["ask", "plain"] if installed else ["plain"])
    if not installed:
        (error,) = errors.values()
        assert str(error).startswith(f"{tmp_path / 'ask.yml'}:3:1: tools of MCP servers need a package")
        assert "pip install 'sayso[mcp]'" in str(error)
