"""What only agents need is loaded by agents only: Anthropic's SDK takes a second to import, `mcp` nearly as long."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("anthropic", "mcp", "jsonschema", "httpx2", "engine.agents.runner")
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


def loaded(body: str, cwd: Path) -> list[str]:
    """Which of the heavy modules a process has that did this."""
    script = PROBE.format(body=body, heavy=HEAVY)
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
    assert loaded("import bot.process, bot.dev", tmp_path) == []
