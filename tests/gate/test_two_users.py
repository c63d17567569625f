"""The asker cannot answer: the bot is one user of this machine and the agent another one. Needs root, to be both."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec
import pytest

from tests.gate.conftest import Gate, gated
from tests.gate.test_hooks import event
from tests.support.acting import Workspace
from tests.support.bot import ROOT

AGENT = 65534
"""The user id of the agent: nobody's on most machines."""
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users: the bot's and the agent's"),
]


PACKAGES = Path(msgspec.__file__).parents[1]


@cache
def python() -> str | None:
    """A Python that the agent's user can run: this one, or the system's of the same release."""
    system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    for program in (sys.executable, system):
        if Path(program).exists():
            with suppress(PermissionError):
                if run([program, "-c", "import bot.gate.rules"], "/").returncode == 0:
                    return program
    return None


def run(command: list[str], cwd: str, given: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """What a command does as the agent's user."""
    path = os.pathsep.join([str(ROOT), str(PACKAGES)])
    return subprocess.run(
        command,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path, "HOME": "/nonexistent", **env},
        cwd=cwd,
        input=given,
        user=AGENT,
        group=AGENT,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
async def apart(workspace: Workspace) -> AsyncIterator[Gate]:
    """A gate whose files another user can reach, as far as their own modes allow."""
    if python() is None:
        pytest.skip("no Python here that another user can run, with this checkout and its packages")
    with tempfile.TemporaryDirectory(prefix="sayso-two-users-") as name:
        os.chmod(name, 0o755)
        async with gated(workspace, Path(name)) as gate:
            yield gate


async def as_agent(gate: Gate, *words: str, given: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """What Python does with these words as the agent's user, who knows where everything of the bot is."""
    known = {"SAYSO_HOME": str(gate.bot.home), "SAYSO_USER": "ben", "SAYSO_GATE_TOKEN": gate.token}
    known["SAYSO_GATE_URL"] = await gate.url()
    return await asyncio.to_thread(run, [str(python()), *words], str(gate.folder), given, **{**known, **env})


async def test_an_agent_with_a_user_of_its_own_can_ask_and_answer_nothing(apart: Gate) -> None:
    """It asks through the hook; the store, the rules, tokens and commands that answer are closed to it. Ben's press counts."""
    hook = ["-m", "bot.cli", "gate", "hook", "--client", "codex", "--wait"]
    call = json.dumps(event("make deploy"))
    asked = await as_agent(apart, *hook, "0", given=call)
    assert "have not decided yet" in asked.stdout, asked.stderr
    thread = await apart.thread()
    message = await thread.asks()
    prompt = json.loads(apart.sayso("prompts", "list", "--json"))["prompts"][0]["promptId"]
    store, rules = str(apart.bot.home / "sayso.db"), str(apart.folder / "gate.yml")
    tries = (
        ["-m", "bot.cli", "prompts", "answer", prompt, "approve"],
        ["-m", "bot.cli", "gate", "login", "--agent", "mine", "--person", "U0LOCALBEN"],
        ["-c", f"import sqlite3; sqlite3.connect({store!r}).execute('CREATE TABLE mine (x)')"],
        ["-c", f"open({rules!r}, 'a')"],
        ["-c", f"import os; os.rename({rules!r}, {rules + '.mine'!r})"],
        ["-c", f"open({store!r}, 'rb')"],
    )
    for words in tries:
        done = await as_agent(apart, *words)
        assert done.returncode != 0, words
        assert any(why in done.stderr for why in ("another user", "denied", "unable to open")), done.stderr
    for do in ("answer", "approve", "allow", "press"):
        wanted = {
            "kind": "approval",
            "door": "codex",
            "session": "5e55-10n",
            "call": "toolu_1",
            "tool": "Bash",
        }
        assert (await apart.post(do, arguments={"command": "make deploy"}, **wanted))[0] == 400
    assert "have not decided yet" in (await as_agent(apart, *hook, "0", given=call)).stdout
    await thread.approve("ben", message)
    done = await as_agent(apart, *hook, "20", given=call)
    assert json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"] == "allow"


async def test_doctor_says_where_the_agent_could_answer(apart: Gate) -> None:
    """Apart it is a boundary; with rules that the agent can write it is advice."""
    doctor = ["-m", "bot.cli", "gate", "doctor"]
    told = await as_agent(apart, *doctor)
    assert "cannot write the store or gate.yml" in told.stdout, told.stdout + told.stderr
    (apart.folder / "gate.yml").chmod(0o666)
    told = await as_agent(apart, *doctor, SAYSO_HOME="/nonexistent")
    assert f"can write {apart.folder / 'gate.yml'}" in told.stdout
    assert "can bypass the gate" in told.stdout
