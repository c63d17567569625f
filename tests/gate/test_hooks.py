"""Hooks as programs run them: a process, a call on its standard input, one JSON or a block."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from bot.gate.hook import keep, read_record, record_of, scripts_of
from tests.gate.conftest import Gate
from tests.support import prefork
from tests.support.bot import ROOT

pytestmark = pytest.mark.process


def sayso(*words: str) -> list[str]:
    """The command line for whoever starts programs."""
    return prefork.front("-m", "bot.cli", *words)


def event(command: str, call: str = "toolu_1", name: str = "PreToolUse", **more: Any) -> dict[str, Any]:
    """What Claude Code gives a hook."""
    return {
        "session_id": "5e55-10n",
        "transcript_path": "",
        "cwd": "/",
        "prompt_id": "p1",
        "permission_mode": "default",
        "hook_event_name": name,
        "tool_name": "Bash",
        "tool_input": {"command": command},
        "tool_use_id": call,
        **more,
    }


class Hooks:
    """Hooks of an agent that has the token of a gate, and a folder for its state."""

    def __init__(self, gate: Gate, url: str) -> None:
        self.gate = gate
        self.state = gate.folder / "state"
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.env = {
            "PATH": path,
            "PYTHONPATH": str(ROOT),
            "HOME": str(gate.folder),
            "XDG_STATE_HOME": str(self.state),
            "SAYSO_GATE_URL": url,
            "SAYSO_GATE_TOKEN": gate.token,
        }

    async def run(self, given: Any, *words: str, **env: str) -> subprocess.CompletedProcess[bytes]:
        """Run a hook to its end."""
        data = given if isinstance(given, bytes) else json.dumps(given).encode()
        command = sayso("gate", "hook", *words)
        return await asyncio.to_thread(
            subprocess.run, command, input=data, env={**self.env, **env}, capture_output=True, check=False
        )

    async def decision(self, given: dict[str, Any], *words: str) -> tuple[str, str, Any]:
        """What it decides, why, and with which input."""
        done = await self.run(given, *words)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)["hookSpecificOutput"]
        assert told["hookEventName"] == "PreToolUse"
        return told["permissionDecision"], told["permissionDecisionReason"], told.get("updatedInput")

    def resume(self, program: Path, *words: str) -> subprocess.CompletedProcess[str]:
        """Look once at what was deferred."""
        command = sayso("gate", "resume", "--once", *words)
        env = {**self.env, "SAYSO_CLAUDE": str(program)}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
async def hooks(gate: Gate) -> Hooks:
    """An agent with hooks."""
    return Hooks(gate, await gate.url())


async def test_a_hook_says_what_rules_decide(hooks: Hooks) -> None:
    """Allow with the input that may run, and deny with the reason."""
    allowed = await hooks.decision(event("git status -s"))
    assert allowed == ("allow", "Allowed by gate.yml.", {"command": "git status -s"})
    denied = await hooks.decision(event("x", "toolu_2", tool_name="mcp__db__delete"))
    assert denied[:2] == ("deny", "Denied by gate.yml. Deletions go through the runbook.")


def test_a_hook_loads_nothing_heavy() -> None:
    """Neither MCP, nor models, nor Slack, nor the rest of sayso."""
    script = "import sys, bot.gate.hook; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", script], text=True, cwd=ROOT).split()
    assert not {name.split(".")[0] for name in loaded} & {
        "mcp",
        "anthropic",
        "slack_sdk",
        "engine",
        "yaml",
        "ssl",
    }


async def test_a_press_while_it_waits_is_the_decision(hooks: Hooks) -> None:
    """People allow, and the hook prints the input that was approved."""
    waiting = asyncio.create_task(hooks.decision(event("make deploy"), "--wait", "30"))
    thread = await hooks.gate.thread()
    await thread.approve("ben", await thread.asks())
    decision, reason, given = await waiting
    assert (decision, given) == ("allow", {"command": "make deploy"})
    assert reason.startswith("Allowed by Ben")


async def test_a_call_is_deferred_alone_and_never_in_a_subagent(hooks: Hooks) -> None:
    """A second call of the same message is denied in writing; so is one of a subagent, and every one of Codex."""
    assert (await hooks.decision(event("make a"), "--wait", "0"))[0] == "defer"
    decision, reason, _ = await hooks.decision(event("make b", "toolu_2"), "--wait", "0")
    assert (decision, "Ask again" in reason) == ("deny", True)
    other = event("make c", "toolu_3", session_id="sub", agent_id="agent-1")
    assert (await hooks.decision(other, "--wait", "0"))[0] == "deny"
    codex = event("make d", "toolu_4", session_id="codex")
    assert (await hooks.decision(codex, "--client", "codex", "--wait", "0"))[0] == "deny"
    later = event("make e", "toolu_5", prompt_id="p2")
    assert (await hooks.decision(later, "--wait", "0"))[0] == "defer", (
        "the call of the prompt before was lost"
    )


async def test_whatever_goes_wrong_is_a_block_with_a_word(hooks: Hooks) -> None:
    """Exit 2, a word on standard error, and nothing on standard output."""
    good = event("git status")
    twice = b'{"session_id": "s", "session_id": "s"}'
    cases: list[tuple[Any, tuple[str, ...], dict[str, str]]] = [
        (good, ("--wait", "0"), {"SAYSO_GATE_URL": "http://127.0.0.1:1"}),
        (good, ("--wait", "0"), {"SAYSO_GATE_URL": "nonsense"}),
        (good, (), {"SAYSO_GATE_TOKEN": "guess"}),
        (good, (), {"SAYSO_GATE_TOKEN": ""}),
        (good, ("--client", "vim"), {}),
        (good, ("--wait",), {}),
        (good, ("--wait", "soon"), {}),
        (b"", (), {}),
        (b"garbage", (), {}),
        (b"[]", (), {}),
        (twice, (), {}),
        (b'{"x": NaN}', (), {}),
        ({**good, "tool_input": "git status"}, (), {}),
        ({**good, "hook_event_name": "Stop"}, (), {}),
        ({**good, "session_id": "../../x", "tool_input": {"command": "y"}}, ("--wait", "0"), {}),
        ({key: value for key, value in good.items() if key != "tool_name"}, (), {}),
    ]
    for given, words, env in cases:
        done = await hooks.run(given, *words, **env)
        assert (done.returncode, done.stdout) == (2, b""), (given, words, env)
        assert done.stderr.startswith(b"sayso gate: blocked. "), done.stderr
    (hooks.gate.folder / "gate.yml").write_text("gate: [")
    done = await hooks.run(good)
    assert (done.returncode, done.stdout) == (2, b"")


async def test_the_same_call_with_another_input_is_blocked(hooks: Hooks) -> None:
    """A transcript that was edited between the question and the resume runs nothing."""
    assert (await hooks.decision(event("make a"), "--wait", "0"))[0] == "defer"
    done = await hooks.run(event("make b"), "--wait", "0")
    assert (done.returncode, b"other arguments" in done.stderr) == (2, True)


AGENT = """#!{python}
# Stands in for `claude -p --resume`: it fires the hook again for its deferred call, and runs what is allowed.
import json, os, subprocess, sys
with open({event!r}) as stream:
    given = stream.read()
hook = [{python!r}, "-m", "bot.cli", "gate", "hook", "--wait", "0"]
done = subprocess.run(hook, input=given, capture_output=True, text=True)
decision = json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"]
with open({log!r}, "a") as stream:
    stream.write(f"{{os.getcwd()}} {{decision}}\\n")
if os.path.exists({mortal!r}):
    os.kill(os.getpid(), 9)
"""


async def test_a_deferred_call_goes_on_after_the_press_and_not_twice(hooks: Hooks, tmp_path: Path) -> None:
    """Through kills of the bot; and where the agent is killed while its command runs, people are asked again."""
    work, log, mortal = tmp_path / "work", tmp_path / "log", tmp_path / "mortal"
    work.mkdir()
    given = event("make deploy", cwd=str(work))
    (tmp_path / "event.json").write_text(json.dumps(given))
    program = tmp_path / "agent"
    names = {"event": str(tmp_path / "event.json"), "log": str(log), "mortal": str(mortal)}
    program.write_text(AGENT.format(python=sys.executable, **names))
    program.chmod(0o755)
    assert (await hooks.decision(given, "--wait", "0"))[0] == "defer"
    assert hooks.resume(program).returncode == 0
    assert not log.exists(), "nobody has decided"
    thread = await hooks.gate.thread()
    message = await thread.asks()
    await hooks.gate.bot.kill()
    await hooks.gate.bot.start()
    hooks.env["SAYSO_GATE_URL"] = await hooks.gate.url()
    await thread.approve("ben", message)
    mortal.touch()

    def went_on() -> bool:
        hooks.resume(program)
        return log.exists()

    await hooks.gate.workspace.wait_for(
        lambda: thread.count("Allowed") or thread.count("Approved"), timeout=20
    )
    assert await asyncio.to_thread(went_on)
    assert log.read_text() == f"{work} allow\n"
    mortal.unlink()
    # Claude Code fires the hook again for the call that was cut off: no second allow.
    assert (await hooks.decision(given, "--wait", "0"))[0] == "defer"
    assert hooks.resume(program).returncode == 0
    assert log.read_text() == f"{work} allow\n"
    await thread.says("may have run")


async def test_a_dialog_and_slack_race_and_the_first_answer_counts(hooks: Hooks, tmp_path: Path) -> None:
    """Pressed in Slack, the hook allows; answered at the terminal, the question in Slack closes."""
    given = event("make deploy", name="PermissionRequest")
    del given["tool_use_id"]
    waiting = asyncio.create_task(hooks.run(given, "--wait", "30"))
    thread = await hooks.gate.thread()
    await thread.approve("ben", await thread.asks())
    told = json.loads((await waiting).stdout)["hookSpecificOutput"]
    assert told["decision"] == {"behavior": "allow", "updatedInput": {"command": "make deploy"}}
    transcript = tmp_path / "transcript.jsonl"
    transcript.write_text("{}\n")
    other = {**given, "tool_input": {"command": "make docs"}, "transcript_path": str(transcript)}
    waiting = asyncio.create_task(hooks.run(other, "--wait", "30"))
    await thread.says("make docs")
    with transcript.open("a") as stream:
        stream.write('{"type":"tool_result"}\n')
    done = await waiting
    assert (done.returncode, done.stdout) == (0, b"")
    await thread.says("answered at the terminal")
    waiting = asyncio.create_task(hooks.run(other, "--wait", "30"))
    await hooks.gate.workspace.wait_for(lambda: thread.count("make docs") == 2, timeout=20)
    ran = event("make docs", name="PostToolUse")
    quiet = await hooks.run(ran, "--interactive")
    assert quiet.stdout == b"{}\n", "allowed at the terminal, it may run before the dialog is heard of"
    assert json.loads((await waiting).stdout)["hookSpecificOutput"]["decision"]["behavior"] == "deny"


async def test_what_ran_is_told_to_the_gate(hooks: Hooks) -> None:
    """`PostToolUse` with the input that was allowed is quiet, with another one an alarm."""
    assert (await hooks.decision(event("git status")))[0] == "allow"
    good = await hooks.run(event("git status", name="PostToolUse"))
    assert (good.returncode, good.stdout) == (0, b"{}\n")
    bad = await hooks.run(event("git push", name="PostToolUse"))
    assert b"alarm" in bad.stdout


async def test_doctor_tells_an_advice_from_a_boundary(hooks: Hooks) -> None:
    """The hook is tried, settings are read, and whoever can write the store is told that the gate is advice."""
    config = hooks.gate.folder / ".claude"
    config.mkdir()
    printed = hooks.gate.sayso("gate", "settings", "--wait", "60")
    assert json.loads(printed)["hooks"]["PreToolUse"][0]["hooks"][0]["timeout"] == 120
    doctor = sayso("gate", "doctor")

    def looked(**env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            doctor,
            env={**hooks.env, **env},
            cwd=hooks.gate.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    without = looked(SAYSO_HOME=str(hooks.gate.bot.home))
    assert (without.returncode, "does not ask the gate" in without.stdout) == (1, True)
    assert "can bypass the gate" in without.stdout
    (config / "settings.json").write_text(printed)
    good = looked(SAYSO_HOME=str(hooks.gate.folder / "elsewhere"), SAYSO_FLOWS="/nowhere/flows")
    assert good.returncode == 0, good.stdout
    assert f"can write {hooks.gate.bot.home}" in good.stdout, "the gate says where its files are"
    assert f"can write {config / 'settings.json'}: an agent" in good.stdout
    (config / "settings.json").write_text(printed.replace('"block"', '"allow"'))
    assert looked().returncode == 1
    assert "cannot be reached" in looked(SAYSO_GATE_URL="http://127.0.0.1:1").stdout


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("bash deploy.sh", ["deploy.sh"]),
        ("./deploy.sh --region eu", ["./deploy.sh"]),
        ("python3 -u x.py a", ["x.py"]),
        ("cd sub && ./y.sh | tee log", ["./y.sh"]),
        ("A=/b sudo bash -x deploy.sh; python x.py", ["deploy.sh", "x.py"]),
        ("set -e\n(./deploy.sh)", ["./deploy.sh"]),
        ("v=$(./deploy.sh)", ["./deploy.sh"]),
        ("cat deploy.sh", []),
        ("bash -c 'echo deploy.sh'", []),
        ("python -m x", []),
        ("bash missing.sh", []),
        ('echo "open', []),
        (sys.executable, []),
        ("bash -e deploy.sh", ["deploy.sh"]),
        ("sh -x deploy.sh", ["deploy.sh"]),
        ("bash -eu -o pipefail deploy.sh x.py", ["deploy.sh"]),
        ("bash -euo pipefail deploy.sh", ["deploy.sh"]),
        ("bash --norc +o posix -- deploy.sh", ["deploy.sh"]),
        ("bash --rcfile x.py deploy.sh", ["x.py", "deploy.sh"]),
        ("env A=1 bash deploy.sh", ["deploy.sh"]),
        ("/usr/bin/env -i A=1 bash -e deploy.sh", ["deploy.sh"]),
        ("/bin/bash ./deploy.sh", ["./deploy.sh"]),
        ("sudo -u root bash -e deploy.sh", ["deploy.sh"]),
        ("timeout 5 ./deploy.sh", ["./deploy.sh"]),
        ("sudo cat ./deploy.sh", []),
        ("if ! ./deploy.sh; then bash -e sub/y.sh; fi", ["./deploy.sh", "sub/y.sh"]),
        ("python3.12 -W ignore x.py", ["x.py"]),
        ("node --require ./x.py deploy.sh", ["./x.py", "deploy.sh"]),
        ("perl -ne print deploy.sh", []),
        ("2>&1 >log bash deploy.sh", ["deploy.sh"]),
        ("bash < deploy.sh", ["deploy.sh"]),
        ("cat deploy.sh | bash -s x", ["deploy.sh"]),
        ("tail -f deploy.sh > x.py", []),
        ("bash -lc 'cd sub; bash -e y.sh'", ["y.sh"]),
        ("bash -c ./deploy.sh", ["./deploy.sh"]),
        ('echo "$(bash deploy.sh)" `python x.py`', ["x.py", "deploy.sh"]),
        ("# don't\nbash deploy.sh", ["deploy.sh"]),
        ("# don't\n./deploy.sh\n# won't", ["./deploy.sh"]),
        ("echo a#b; bash deploy.sh", ["deploy.sh"]),
        ("bash \\\n -e deploy.sh", ["deploy.sh"]),
        ("bash <<EOF\n./deploy.sh\nEOF", ["./deploy.sh"]),
        ("(cd sub; true); ./deploy.sh", ["./deploy.sh"]),
    ],
)
def test_scripts_are_found_in_commands(tmp_path: Path, command: str, named: list[str]) -> None:
    """Those that a command runs by name; no data, no programs, nothing that is not there."""
    (tmp_path / "sub").mkdir()
    for name in ("deploy.sh", "x.py", "sub/y.sh"):
        (tmp_path / name).write_text("echo")
    found = scripts_of(command, str(tmp_path))
    assert list(found) == named
    assert all(told == {"sha256": sha256(b"echo").hexdigest(), "size": 4} for told in found.values())


def test_a_record_that_was_cut_off_keeps_no_call_from_being_deferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook that was killed while it wrote leaves the session as it was; a second call of the prompt is still refused."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = Path(record_of("s1"))
    path.parent.mkdir(parents=True)
    path.write_text('{"session": "s1", "ca')
    kept = [keep({"session": "s1", "call": call}, "r", {"prompt_id": "p", "cwd": "/"}) for call in "ab"]
    assert (kept, (read_record(str(path)) or {})["call"]) == ([True, False], "a")


AGENT_LOG = '#!/bin/sh\necho "$@" >> "{log}"\n'


async def test_what_the_gate_refuses_or_another_door_keeps_stops_no_session(
    hooks: Hooks, tmp_path: Path
) -> None:
    """Records of the agents' door, of an unknown request, and garbage are passed over, and the session behind them continues."""
    given = event("git push", cwd=str(tmp_path), session_id="zz")
    assert (await hooks.decision(given, "--wait", "0"))[0] == "defer"
    folder = hooks.state / "sayso" / "gate"
    record = json.loads((folder / "zz.json").read_text())
    (folder / "agents-all.json").write_text(json.dumps({"e1": {"session": "sesn_1"}}))
    (folder / "aa.json").write_text(
        json.dumps({**record, "session": "aa", "request": "gate:request:guess:0"})
    )
    (folder / "bb.json").write_text("[]")
    (folder / "cc.json").write_text("{")
    thread = await hooks.gate.thread()
    await thread.approve("ben", await thread.asks())
    await thread.says("Approved")
    program, log = tmp_path / "agent", tmp_path / "log"
    program.write_text(AGENT_LOG.format(log=log))
    program.chmod(0o755)
    done = hooks.resume(program)
    assert (log.read_text(), "Traceback" in done.stderr) == ("-p --resume zz\n", False)
    assert "aa is skipped: there is no such request" in done.stderr


async def test_a_script_that_changes_is_asked_about_anew(hooks: Hooks, tmp_path: Path) -> None:
    """Changed before the call is resumed, or while people are asked: the old answer does not count."""
    script = tmp_path / "deploy.sh"
    script.write_text("echo one")
    given = event("bash deploy.sh", cwd=str(tmp_path))
    assert (await hooks.decision(given, "--wait", "0"))[0] == "defer"
    thread = await hooks.gate.thread()
    message = await thread.says("deploy.sh (8 bytes, SHA-256 " + sha256(b"echo one").hexdigest())
    await thread.approve("ben", message)
    await thread.says("Approved")
    script.write_text("rm -rf /")
    assert (await hooks.decision(given, "--wait", "0"))[0] == "defer"
    message = await thread.says("whose script has changed")
    assert sha256(b"rm -rf /").hexdigest() in message["text"]
    waiting = asyncio.create_task(hooks.decision(given, "--wait", "30"))
    await asyncio.sleep(1)
    script.write_text("echo two")
    await thread.approve("ben", message)
    assert (await waiting)[0] == "defer"
    await thread.says("may have run, whose script has changed")
    assert (await hooks.decision(given, "--wait", "0"))[0] == "defer"
    assert thread.count("wants to use") == 3


async def test_a_hook_that_is_killed_while_it_waits_leaves_one_question(hooks: Hooks) -> None:
    """Claude Code asks again under another id: it joins, gets the allow, and a third asking asks people."""
    killed = await asyncio.create_subprocess_exec(
        *sayso("gate", "hook", "--wait", "60"),
        env=hooks.env,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert killed.stdin is not None
    assert killed.stdout is not None
    killed.stdin.write(json.dumps(event("make deploy")).encode())
    killed.stdin.write_eof()
    thread = await hooks.gate.thread()
    message = await thread.asks()
    killed.kill()
    assert await killed.stdout.read() == b""
    await killed.wait()
    await thread.approve("ben", message)
    await thread.says("Approved")
    both = [hooks.decision(event("make deploy", call), "--wait", "0") for call in ("toolu_2", "toolu_3")]
    assert sorted([decision for decision, _, _ in await asyncio.gather(*both)]) == ["allow", "defer"]
    await hooks.gate.workspace.wait_for(lambda: thread.count("wants to use") == 2, timeout=20)
