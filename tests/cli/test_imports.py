"""Who loads what. What only agents need is loaded by agents only: Anthropic's SDK takes a second to import, `mcp` nearly
as long; and what a session does not need is not loaded for it, since a start is mostly imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.storage.leases import lease
from tests.support import prefork

HEAVY = (
    "anthropic",
    "cryptography",
    "engine.storage.vault",
    "mcp",
    "jsonschema",
    "httpx2",
    "engine.models.turn_runner",
)
OF_AGENTS = (
    "engine.decide.agents.conversation",
    "engine.decide.agents.tool_calls",
    "engine.decide.agents.model_request",
    "engine.decide.agents.budget",
    "engine.models.turn_runner",
    "engine.nodes.types.agent",
    "engine.nodes.runtime.mcp",
    "engine.messages.turns",
    "engine.messages.prices",
)
"""What of the engine takes part in conversations."""
RARE = ("engine.decide.past", "engine.run.export")
"""What few commands need."""
OF_FLOWS = (
    "pydantic",
    "yaml",
    "jinja2",
    "engine.flow.reading",
    "engine.flow.document",
    "engine.nodes.types.fields",
    "engine.nodes.types.ask",
    "engine.nodes.types.shell",
)
"""What is needed to read a flow, or to check what a node is given."""
OF_ENGINES = ("asyncio", "ssl", "subprocess", "engine.run.engine", "engine.flow.checks.all")
"""What is needed to take a step."""
SELDOM = ("zoneinfo", "tempfile", "html", "difflib", "random", "engine.nodes.runtime.redact")
"""What of Python's own few sessions need."""
OF_NODES = (
    "engine.nodes.runtime.http",
    "aiohttp",
    "engine.nodes.runtime.python",
    "engine.nodes.runtime.files",
    "engine.nodes.types.message",
)
"""What a flow of questions and programs does not have."""
PROBE = """
import sys
try:
    {body}
except SystemExit as end:
    assert end.code in (0, None, 3), end.code
print("LOADED", *[name for name in {heavy!r} if name in sys.modules])
"""
FLOW = """
flow: plain
nodes:
  - {id: one, type: shell, with: {run: [echo, one]}}
  - {id: ask, type: ask, with: {message: How?}}
"""
SAYSO = "from bot.cli import main; sys.argv = ['sayso', *{words!r}]; main()"


def loaded(body: str, cwd: Path, heavy: tuple[str, ...] = HEAVY) -> list[str]:
    """Which of the heavy modules a process has that did this."""
    script = PROBE.format(body=body, heavy=heavy)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.rpartition("LOADED")[2].split()


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--home", "home", "run", "plain.yml", "--no-input"],
        ["--home", "home", "validate", "."],
        ["--home", "home", "sessions", "list"],
    ],
    ids=["help", "run", "validate", "sessions"],
)
def test_a_command_without_an_agent_loads_nothing_of_agents(words: list[str], tmp_path: Path) -> None:
    """No SDK of a model, no MCP, no JSON Schema: whoever runs no agent does not wait for them."""
    (tmp_path / "plain.yml").write_text(FLOW)
    assert loaded(SAYSO.format(words=words), tmp_path) == []


def test_the_bot_starts_without_what_agents_need(tmp_path: Path) -> None:
    """The process that serves Slack loads the SDK when its first agent asks, not before."""
    assert loaded("import bot.serve.main, bot.serve.dev", tmp_path) == []


def test_the_engine_is_imported_without_what_only_some_sessions_need(tmp_path: Path) -> None:
    """What programs import reads no flow and checks no node: no pydantic, no YAML, no Jinja, nothing of agents."""
    heavy = (*OF_AGENTS, *RARE, *OF_FLOWS, *OF_NODES, *SELDOM, "engine.nodes.runtime.shell")
    assert loaded("from engine import Runtime, load_flow", tmp_path, heavy) == []


def test_a_list_of_sessions_takes_neither_an_event_loop_nor_a_flow(tmp_path: Path) -> None:
    """It reads rows: with an open session, and with one that failed, whose state tells why."""
    (tmp_path / "plain.yml").write_text(FLOW)
    (tmp_path / "failing.yml").write_text(
        "flow: failing\nnodes: [{id: f, type: fail, with: {message: No}}]\n"
    )
    for file in ("plain.yml", "failing.yml"):
        run = ["-m", "bot.cli", "--home", "home", "run", file, "--no-input"]
        prefork.run(run, cwd=tmp_path, env=os.environ)
    words = ["--home", "home", "sessions", "list", "--all"]
    assert loaded(SAYSO.format(words=words), tmp_path, (*OF_FLOWS, *OF_ENGINES, *OF_AGENTS, *OF_NODES)) == []


def test_a_health_check_takes_no_more_than_a_list(tmp_path: Path) -> None:
    """It is asked twice a minute: no event loop, no database, no flow."""
    words = ["--home", "home", "doctor", "--live"]
    with lease(tmp_path / "home/sayso.db", "sayso start", "now"):
        assert loaded(SAYSO.format(words=words), tmp_path, (*OF_FLOWS, *OF_ENGINES, "apsw")) == []


def test_a_file_that_was_run_before_is_not_read_again(tmp_path: Path) -> None:
    """Its flow has a form in the store, as long as the text is the same and runs no code of its own."""
    (tmp_path / "plain.yml").write_text(FLOW)
    again = SAYSO.format(words=["--home", "home", "run", "plain.yml", "--no-input"])
    assert loaded(again, tmp_path, OF_FLOWS) != []
    assert loaded(again, tmp_path, (*OF_FLOWS, *OF_AGENTS, *OF_NODES, "slack_sdk", "slack_bolt")) == []
    (tmp_path / "plain.yml").write_text(FLOW.replace("How?", "Why?"))
    assert loaded(again, tmp_path, OF_FLOWS) != []


@pytest.mark.parametrize("way", ["resume", "answer"])
def test_an_answer_loads_only_what_its_session_needs(way: str, tmp_path: Path) -> None:
    """Going on with a question, a program and values in a new process reads no flow, and loads no other kind of node and
    nothing that is rare."""
    more = "  - {id: two, type: shell, with: {run: [echo, two]}}\n  - {id: three, type: set, with: {x: 3}}\n"
    (tmp_path / "plain.yml").write_text(FLOW + more)
    run = ["-m", "bot.cli", "--home", "home", "run", "plain.yml", "--no-input"]
    paused = prefork.run(run, cwd=tmp_path, env=os.environ)
    found = json.loads(paused.stdout)
    words = {
        "resume": ["sessions", "resume", found["sessionId"], "Fine", "--no-input"],
        "answer": ["prompts", "answer", found["prompts"][0]["promptId"], "Fine"],
    }
    heavy = (*HEAVY, *OF_AGENTS, *RARE, *OF_FLOWS, *OF_NODES, "slack_sdk", "slack_bolt")
    found = loaded(SAYSO.format(words=["--home", "home", *words[way]]), tmp_path, heavy)
    assert found == ["cryptography"]  # the run ends here, which is signed


PROGRAM = """
import asyncio
from engine import Actor, Runtime, node

@node("greet", on_crash="again")
def greet(who: str, times: int = 1) -> list[str]:
    return [who] * times

async def going() -> None:
    async with Runtime("sqlite:///greet.db") as runtime:
        await {work}

async def begin(runtime: Runtime) -> None:
    from engine import load_flow
    flow = "flow: f\\nnodes: [{{id: q, type: ask, with: {{message: Who}}}}, {{id: a, type: greet, with: {{who: ana}}}}]"
    await (await runtime.start(load_flow(flow), actor=Actor.local("ana"), session_id="session-1")).rest()

async def answer(runtime: Runtime) -> None:
    session = await runtime.session("session-1")
    await session.answer("Fine", actor=Actor.local("ana"))
    assert (await session.ended()).outputs["a"] == ["ana"], session.error

asyncio.run(going())
"""


def test_a_function_of_the_program_with_plain_parameters_takes_no_pydantic(tmp_path: Path) -> None:
    """Neither where it is made a node type, nor where its flow is read back, nor where it runs: the hints tell."""
    heavy = (*OF_FLOWS, *OF_AGENTS)
    for work, expected in (("begin(runtime)", True), ("answer(runtime)", False)):
        (tmp_path / "program.py").write_text(PROGRAM.format(work=work))
        found = loaded("import sys; sys.path.insert(0, '.'); import program", tmp_path, heavy)
        assert bool(found) is expected, found


def test_a_flow_with_an_agent_finds_what_agents_need(tmp_path: Path) -> None:
    """The kind of agents is loaded by the first who asks for it."""
    body = "from engine.decide.agents.kinds import KINDS{}"
    wanted = ("engine.decide.agents.conversation", "engine.decide.agents.tool_calls")
    assert loaded(body.format("; KINDS['flow']"), tmp_path, wanted) == []
    assert loaded(body.format("; KINDS['agent']"), tmp_path, wanted) == list(wanted)
