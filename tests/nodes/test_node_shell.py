"""The shell node, against real processes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import stat
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from engine.nodes.runtime import process
from engine.nodes.runtime.runner import Interrupted
from engine.nodes.runtime.shell import shell
from tests.nodes.nodekit import (
    ENCODINGS,
    PYTHON,
    Context,
    bare,
    canaries,
    failure,
    interruption,
    output,
    rest_of,
    runs,
    until,
)
from tests.support.proving import tries


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """A context in a folder of its own."""
    return Context(tmp_path)


def python(code: str) -> dict[str, Any]:
    """A config that runs this Python code."""
    return {"run": [PYTHON, "-c", code]}


def real(path: Path) -> str:
    """A path without links, as `pwd -P` prints it."""
    return os.path.realpath(path)


def script(context: Context, name: str, text: str, mode: int = 0o755) -> Path:
    """A file beside the flow."""
    path = context.flow_dir / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


# --- what a program gets -------------------------------------------------------------------------------


async def test_output_has_both_texts_the_code_and_the_time(context: Context) -> None:
    """A program that ends with 0 completes with exactly stdout, stderr, exit_code and seconds."""
    got = output(await shell({"script": "echo out; echo err >&2"}, context.build()))
    assert got.pop("seconds") >= 0
    assert got == {"stdout": "out\n", "stderr": "err\n", "exit_code": 0}


async def test_environment_is_exactly_what_is_named(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program sees PATH, HOME, LANG, the ids and what `env` names, and nothing of ours."""
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-not-for-programs")
    got = output(await shell({"run": ["env"], "env": {"REGION": "eu", "COUNT": 3}}, context.build()))
    seen = dict(line.split("=", 1) for line in got["stdout"].splitlines())
    assert set(seen) == {
        "PATH",
        "HOME",
        "LANG",
        "SAYSO_IDEMPOTENCY_KEY",
        "SAYSO_SESSION_ID",
        "SAYSO_EXECUTION",
        "REGION",
        "COUNT",
    }
    assert seen["SAYSO_IDEMPOTENCY_KEY"] == "session-0badcafe:rollout[2]/apply"
    assert seen["SAYSO_SESSION_ID"] == "session-0badcafe"
    assert (seen["REGION"], seen["COUNT"]) == ("eu", "3")


BASH = '[[ "$0" == */sayso-* && $- == *e*u* ]] && echo "$BASH_VERSION"\nfalse\necho on'


@pytest.mark.parametrize(
    ("first", "rest", "code", "said"),
    [
        ("#!/bin/bash", BASH, 1, r"\d+\.\d.*\n"),
        ("#!/usr/bin/env bash", BASH, 1, r"\d+\.\d.*\n"),
        ("#!/usr/bin/env -S bash -x", BASH, 1, r"\d+\.\d.*\n"),
        ("#! /bin/bash -o pipefail", "false | cat\necho on", 1, ""),
        ("#!/bin/bash\r", "echo a", 0, r"a\n"),
        ("#!/usr/bin/env python3", "import sys; print(sys.argv[1:], 3 // 2)", 0, r"\[\] 1\n"),
        ("#!/bin/sh", "false\necho on", 1, ""),
        ("#!/bin/cat", "x", 0, r"#!/bin/cat\nx"),
        ("# no such line", "false\necho on", 1, ""),
    ],
)
async def test_the_first_line_of_a_script_says_what_runs_it(
    context: Context, first: str, rest: str, code: int, said: str
) -> None:
    """A script runs with the program and arguments that its first line names, a shell with `-eu` as well; else with `sh -eu`."""
    got = output(await shell({"script": f"{first}\n{rest}", "ok_codes": "any"}, context.build()))
    assert got["exit_code"] == code, got
    assert re.fullmatch(said, got["stdout"])


async def test_an_interpreter_that_is_not_there_is_a_failure(context: Context) -> None:
    """A first line that names no program fails the node, and runs nothing with another one."""
    failed = failure(await shell({"script": "#!/usr/bin/no-such-shell\necho on"}, context.build()))
    assert (failed.type, "no-such-shell" in failed.message) == ("not_found", True)


async def test_the_ids_cannot_be_replaced_by_the_flow(context: Context) -> None:
    """`env` may change PATH but not the idempotency key."""
    config = {
        "run": ["/usr/bin/env"],
        "env": {"SAYSO_IDEMPOTENCY_KEY": "mine", "PATH": "/nowhere"},
    }
    seen = output(await shell(config, context.build()))["stdout"].splitlines()
    assert "PATH=/nowhere" in seen
    assert "SAYSO_IDEMPOTENCY_KEY=session-0badcafe:rollout[2]/apply" in seen


async def test_cwd_is_the_sessions_own_folder(context: Context) -> None:
    """Without `cwd` a program runs in the session's folder, which is made on demand and only its owner's."""
    got = output(await shell({"run": ["pwd", "-P"]}, context.build()))
    assert got["stdout"].strip() == real(context.workdir)
    assert stat.S_IMODE(context.workdir.stat().st_mode) == 0o700


async def test_cwd_is_relative_to_the_flow_file(context: Context) -> None:
    """A relative `cwd` is meant from the flow file; one that does not exist is a clear failure."""
    (context.flow_dir / "service").mkdir()
    got = output(await shell({"run": ["pwd", "-P"], "cwd": "service"}, context.build()))
    assert got["stdout"].strip() == real(context.flow_dir / "service")
    refused = failure(await shell({"run": ["pwd"], "cwd": "sevice"}, context.build()))
    assert refused.type == "cwd"
    assert "sevice" in refused.message


async def test_relative_program_is_beside_the_flow_file(context: Context) -> None:
    """A program with a slash is found beside the flow file while it runs in the session's folder."""
    script(context, "tools/where.sh", '#!/bin/sh\npwd -P; echo "$1"\n')
    got = output(await shell({"run": ["./tools/where.sh", "a b;$(id)"]}, context.build()))
    assert got["stdout"] == f"{real(context.workdir)}\na b;$(id)\n"


async def test_a_run_list_never_meets_a_shell(context: Context) -> None:
    """Arguments arrive unchanged, whatever a shell would do with them."""
    nasty = ["$(touch pwned)", "`id`", "; rm x", "a\nb", "*", "", "é\u2603", '"', "\\"]
    config = {"run": [PYTHON, "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", *nasty]}
    got = output(await shell(config, context.build()))
    assert json.loads(got["stdout"]) == nasty
    assert not list(context.workdir.iterdir())


async def test_arguments_that_are_no_text_become_json(context: Context) -> None:
    """Numbers, truth values and lists appear as JSON; null is refused by its place."""
    got = output(await shell({"run": ["echo", 3, True, ["a", 1]]}, context.build()))
    assert got["stdout"] == '3 true ["a",1]\n'
    refused = failure(await shell({"run": ["echo", None]}, context.build()))
    assert refused.type == "invalid"
    assert "item 1 is null" in refused.message


async def test_script_stops_at_the_first_error_and_at_unset_names(context: Context) -> None:
    """A script runs with -e and -u."""
    stopped = failure(await shell({"script": "echo a; false; echo b"}, context.build()))
    assert (stopped.type, stopped.details["stdout"]) == ("exit_code", "a\n")
    unset = failure(await shell({"script": "echo $NOT_SET_HERE"}, context.build()))
    assert "NOT_SET_HERE" in unset.message


async def test_stdin_is_closed_unless_given(context: Context) -> None:
    """A program that reads its input gets nothing at all, or the text of `stdin`."""
    assert output(await shell({"run": ["cat"]}, context.build()))["stdout"] == ""
    assert output(await shell({"run": ["cat"], "stdin": "héllo"}, context.build()))["stdout"] == "héllo"


async def test_large_stdin_that_nobody_reads_blocks_nothing(context: Context) -> None:
    """A program may ignore megabytes of input, or answer with as many."""
    text = "x" * 5_000_000
    assert output(await shell({"run": ["true"], "stdin": text}, context.build()))["exit_code"] == 0
    config = {"run": ["cat"], "stdin": text, "max_output": 6_000_000}
    assert output(await shell(config, context.build()))["stdout"] == text


# --- how it ends ---------------------------------------------------------------------------------------


async def test_another_exit_code_is_a_failure_that_holds_the_output(context: Context) -> None:
    """A non-zero code fails as `exit_code` with the whole output in its details and stderr's last line in its message."""
    failed = failure(await shell({"script": "echo so far; echo 'no such host' >&2; exit 7"}, context.build()))
    assert failed.type == "exit_code"
    assert "exit code 7" in failed.message
    assert "no such host" in failed.message
    assert failed.details.pop("seconds") >= 0
    assert failed.details == {"stdout": "so far\n", "stderr": "no such host\n", "exit_code": 7}


async def test_ok_codes_decide_what_is_a_failure(context: Context) -> None:
    """A code in `ok_codes` completes, 0 included only when it is listed."""
    config = {"script": "exit $CODE", "ok_codes": [1, 2]}
    assert output(await shell({**config, "env": {"CODE": "2"}}, context.build()))["exit_code"] == 2
    assert failure(await shell({**config, "env": {"CODE": "0"}}, context.build())).type == "exit_code"


async def test_death_by_a_signal_is_a_negative_code(context: Context) -> None:
    """A program that is killed from outside fails with the signal as its negative exit code."""
    failed = failure(await shell({"script": "kill -9 $$"}, context.build()))
    assert failed.details["exit_code"] == -9
    assert "signal 9" in failed.message


async def test_bytes_that_are_not_text_are_replaced(context: Context) -> None:
    """Output that is not UTF-8 arrives with replacement characters."""
    got = output(
        await shell(python("import sys; sys.stdout.buffer.write(b'a\\xff\\xc3\\xa9\\xc3')"), context.build())
    )
    assert got["stdout"] == "a\ufffdé\ufffd"


@pytest.mark.parametrize(
    "config",
    [
        {"run": ["echo", "a\0b"]},
        {"run": ["ec\0ho"]},
        {"script": "echo a\0b"},
        {"run": ["env"], "env": {"A": "x\0y"}},
        {"run": ["pwd"], "cwd": "a\0b"},
    ],
)
async def test_nul_is_refused(context: Context, config: dict[str, Any]) -> None:
    """A NUL character anywhere in what is passed to a program is refused before anything runs."""
    refused = failure(await shell(config, context.build()))
    assert refused.type == "invalid"


async def test_an_empty_program_is_a_failure(context: Context) -> None:
    """A first item that an expression made empty names no program."""
    assert failure(await shell({"run": [""]}, context.build())).type == "invalid"


async def test_a_program_that_does_not_exist_names_the_nearest(context: Context) -> None:
    """A misspelt program fails with the nearest name, on PATH and beside the flow file."""
    on_path = failure(await shell({"run": ["unamme"]}, context.build()))
    assert on_path.type == "not_found"
    assert "did you mean uname?" in on_path.message
    script(context, "rollback.sh", "#!/bin/sh\n")
    beside = failure(await shell({"run": ["./rolback.sh"]}, context.build()))
    assert beside.type == "not_found"
    assert "did you mean ./rollback.sh?" in beside.message
    bare = failure(await shell({"run": ["rollback.sh"]}, context.build()))
    assert "write ./rollback.sh" in bare.message


async def test_programs_that_cannot_be_executed_say_why(context: Context) -> None:
    """A missing mode, a missing first line and a missing interpreter are told apart."""
    script(context, "plain.sh", "#!/bin/sh\n", 0o644)
    script(context, "bare", "echo hi\n")
    script(context, "odd", "#!/no/such/interpreter\n")
    plain = failure(await shell({"run": ["./plain.sh"]}, context.build()))
    assert plain.type == "not_executable"
    assert "chmod +x" in plain.message
    assert "#!/bin/sh" in failure(await shell({"run": ["./bare"]}, context.build())).message
    assert "interpreter" in failure(await shell({"run": ["./odd"]}, context.build())).message


async def test_arguments_that_are_too_large_point_to_stdin(context: Context) -> None:
    """More than the system takes as one argument is a failure that says what to do."""
    refused = failure(await shell({"run": ["true", "x" * 3_000_000]}, context.build()))
    assert refused.type == "invalid"
    assert "stdin" in refused.message


# --- much output ---------------------------------------------------------------------------------------


async def test_long_output_keeps_both_ends(context: Context) -> None:
    """Beyond `max_output` the beginning and the end stay, with the number of bytes left out between."""
    code = "print('BEGIN' + 'x' * 100_000 + 'END', end='')"
    got = output(await shell({**python(code), "max_output": 1000}, context.build()))
    assert got["stdout"].startswith("BEGINxx")
    assert got["stdout"].endswith("xxEND")
    assert "\n[… 99008 bytes left out …]\n" in got["stdout"]
    assert len(got["stdout"]) < 1100


async def test_a_gigabyte_of_output_needs_no_memory(context: Context) -> None:
    """1 GB on stdout (a sixth of it in `make test`) is read to its end while memory grows by less than 32 MiB."""
    before, size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, tries(1_000_000_000)
    config = {"run": ["head", "-c", str(size), "/dev/zero"], "env": {"TOKEN": {"$secret": "TOKEN"}}}
    context.secrets["TOKEN"] = "canary-0123456789"
    got = output(await shell(config, context.build()))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert f"[… {size - 262_144} bytes left out …]" in got["stdout"]
    assert grown < 32 * 1024


async def test_both_outputs_are_read_at_once(context: Context) -> None:
    """A program that fills stderr while nobody waits for it does not freeze."""
    code = "import sys; sys.stderr.write('e' * 1_000_000); sys.stdout.write('o' * 1_000_000)"
    got = output(await shell({**python(code), "max_output": 2_000_000}, context.build()))
    assert (len(got["stdout"]), len(got["stderr"])) == (1_000_000, 1_000_000)


async def test_progress_shows_complete_lines(context: Context) -> None:
    """The latest complete line of the output is passed on while the program runs."""
    reading = asyncio.create_task(
        shell(
            {"script": "echo 'step one'; printf part; while [ ! -e go ]; do sleep 0.02; done"},
            context.build(),
        )
    )
    await until(lambda: context.lines)
    (context.workdir / "go").touch()
    assert output(await reading)["stdout"] == "step one\npart"
    assert context.lines == ["step one"]


# --- leaving -------------------------------------------------------------------------------------------

FAMILY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[1] == "deaf" else signal.SIG_DFL)
if len(sys.argv) < 4:
    for n in range(3):
        subprocess.Popen([sys.executable, __file__, *sys.argv[1:], str(n)])
with open(f"{sys.argv[2]}/{os.getpid()}.tmp", "w"): pass
os.rename(f"{sys.argv[2]}/{os.getpid()}.tmp", f"{sys.argv[2]}/{os.getpid()}.pid")
print("ready", flush=True)
time.sleep(600)
"""


async def family(context: Context, kind: str) -> tuple[dict[str, Any], Path]:
    """A config that starts a process with three children, each of which leaves its id in a folder."""
    folder = context.flow_dir / "pids"
    folder.mkdir()
    path = script(context, "family.py", FAMILY)
    return {"run": [PYTHON, str(path), kind, str(folder)]}, folder


def pids(folder: Path) -> list[int]:
    """The ids that have been left, once there are all four."""
    found = [int(path.stem) for path in folder.glob("*.pid")]
    return found if len(found) == 4 else []


@pytest.mark.process
@pytest.mark.parametrize("kind", ["polite", "deaf"])
async def test_abort_leaves_no_process_of_the_group(context: Context, kind: str) -> None:
    """After an abort no process of the group is left, whether or not it reacts to SIGTERM."""
    config, folder = await family(context, kind)
    running = asyncio.create_task(shell(config, context.build(grace=0.5)))
    members = await until(lambda: pids(folder))
    assert all(runs(pid) for pid in members)
    context.aborted.set()
    ended = interruption(await running)
    assert ended.reason == "cut"
    assert [pid for pid in members if runs(pid)] == []
    assert "ready" in ended.details["stdout"]


@pytest.mark.process
async def test_a_polite_group_is_not_kept_waiting(context: Context) -> None:
    """When everybody heeds SIGTERM, leaving does not last as long as the grace."""
    config, folder = await family(context, "polite")
    running = asyncio.create_task(shell(config, context.build(grace=60)))
    await until(lambda: pids(folder))
    context.aborted.set()
    assert isinstance(await asyncio.wait_for(running, 20), Interrupted)


@pytest.mark.process
async def test_sigterm_comes_first(context: Context) -> None:
    """A program may clean up at SIGTERM; what it says then is still read."""
    config = {"script": "trap 'echo cleaned; exit 0' TERM; echo up; while :; do sleep 0.02; done"}
    running = asyncio.create_task(shell(config, context.build()))
    await until(lambda: context.lines == ["up"])
    context.aborted.set()
    assert interruption(await running).details["stdout"] == "up\ncleaned\n"


@pytest.mark.process
async def test_timeout_ends_the_group_and_is_an_interruption(context: Context) -> None:
    """Past its timeout the whole group is ended, and the outcome is `timeout`, not a failure."""
    config = {"script": "trap '' TERM; echo $$; (while :; do sleep 0.05; done) & echo $!; wait"}
    ended = interruption(await shell(config, context.build(timeout=2, grace=0.2)))
    assert ended.reason == "timeout"
    members = [int(line) for line in ended.details["stdout"].split()]
    assert len(members) == 2
    assert [pid for pid in members if runs(pid)] == []
    assert ended.details["exit_code"] == -9


@pytest.mark.process
async def test_children_that_outlive_their_parent_are_killed_too(context: Context) -> None:
    """A parent that heeds SIGTERM does not save children that ignore it."""
    script(context, "deaf.sh", '#!/bin/sh\ntrap "" TERM\necho $$ > "$1"; while :; do sleep 0.05; done\n')
    mark = context.flow_dir / "child"
    config = {"script": f"'{context.flow_dir}/deaf.sh' '{mark}' & wait"}
    running = asyncio.create_task(shell(config, context.build(grace=0.3)))
    child = int(await until(lambda: mark.exists() and mark.read_text().strip()))
    context.aborted.set()
    assert isinstance(await running, Interrupted)
    assert not runs(child)


DAEMON = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(3):
            os.close(number)
        open(sys.argv[1], "w").write(str(os.getpid()))
        os.execv("/bin/sleep", ["sleep", "600"])
    os._exit(0)
os.wait()
"""


@pytest.mark.process
def test_a_process_that_starts_another_program_is_found(tmp_path: Path) -> None:
    """For a moment it has no environment: it is not a stranger then."""
    again = tmp_path / "again"
    again.write_text('#!/bin/sh\nexec "$0"\n')
    again.chmod(0o700)
    with subprocess.Popen([again], env={"PATH": os.environ["PATH"], process.MARK: "mine"}) as running:
        mark = f"{process.MARK}=mine".encode()
        found = Counter(process._is_marked(running.pid, mark) for _ in range(tries(20_000)))
        running.kill()
    assert found == {True: tries(20_000)}


@pytest.mark.process
@pytest.mark.parametrize(
    ("starts", "way"),
    [
        ('setsid sh -c \'echo $$ > "$CHILD"; trap "" TERM; while :; do sleep 0.05; done\' &', "abort"),
        ('setsid sh -c \'echo $$ > "$CHILD"; trap "" TERM; while :; do sleep 0.05; done\' &', "timeout"),
        ("nohup setsid sh -c 'echo $$ > \"$CHILD\"; exec sleep 600' > /dev/null 2>&1 &", "abort"),
        ('python3 "$DAEMON" "$CHILD"', "abort"),
        ('python3 "$DAEMON" "$CHILD"', "cancel"),
    ],
)
async def test_what_left_the_group_is_ended_too(context: Context, starts: str, way: str) -> None:
    """After a timeout, an abort and a cancel no process in a session of its own is left, nor a daemon; others are left alone."""
    child, daemon = context.flow_dir / "child", script(context, "daemon.py", DAEMON)
    config = {"script": f"{starts}\nsleep 600", "env": {"CHILD": str(child), "DAEMON": str(daemon)}}
    other = await asyncio.create_subprocess_exec("sleep", "600", env={"SAYSO_EXECUTION": "another"})

    def begun() -> bool:
        return child.exists() and bool(child.read_text().strip())

    for timeout in (
        (1.0, 5.0, 25.0) if way == "timeout" else (None,)
    ):  # a busy machine begins nothing in a second
        running = asyncio.create_task(shell(config, context.build(timeout=timeout, grace=0.2)))
        await until(lambda running=running: begun() or running.done(), within=60)
        if begun():
            break
    try:
        pid = int(child.read_text())
        if way == "abort":
            context.aborted.set()
        elif way == "cancel":
            running.cancel()
        await asyncio.wait({running})
        await until(lambda: not runs(pid))
        assert other.returncode is None
        assert way == "cancel" or isinstance(running.result(), Interrupted)
    finally:
        other.kill()
        await other.wait()


@pytest.mark.process
async def test_cancelling_the_runner_kills_the_group(context: Context) -> None:
    """When the task of a node is cancelled, its processes go at once."""
    config, folder = await family(context, "deaf")
    running = asyncio.create_task(shell(config, context.build(grace=600)))
    members = await until(lambda: pids(folder))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: not any(runs(pid) for pid in members))


@pytest.mark.process
async def test_a_grandchild_that_holds_the_pipes_does_not_hang_us(context: Context) -> None:
    """A program that leaves something in the background ends when it ends; what it wrote is complete."""
    mark = context.flow_dir / "pid"
    config = {"script": f"sleep 600 & echo $! > '{mark}'; printf '%s' done"}
    try:
        got = output(await asyncio.wait_for(shell(config, context.build()), 20))
        assert got["stdout"] == "done"
        assert got["seconds"] < 10
    finally:
        os.kill(int(mark.read_text()), 9)


@pytest.mark.process
async def test_a_grandchild_that_never_stops_writing_does_not_hang_us(context: Context) -> None:
    """A background process that writes forever is left behind and loses its pipe."""
    mark = context.flow_dir / "pid"
    config = {"script": f"yes & echo $! > '{mark}'"}
    assert output(await asyncio.wait_for(shell(config, context.build()), 20))["exit_code"] == 0
    await until(lambda: not runs(int(mark.read_text())))


async def test_nothing_begins_once_the_session_is_leaving(context: Context) -> None:
    """With the abort signal already set no program is started."""
    context.aborted.set()
    interruption(await shell({"run": ["touch", str(context.flow_dir / "started")]}, context.build()))
    assert not (context.flow_dir / "started").exists()


async def test_no_file_stays_open(context: Context) -> None:
    """Runs that complete, fail and cannot start leave no descriptor behind."""

    async def each() -> None:
        script(context, "bare", "echo hi\n")
        output(await shell({"run": ["cat"], "stdin": "a"}, context.build()))
        failure(await shell({"run": ["false"]}, context.build()))
        failure(await shell({"run": ["./bare"]}, context.build()))

    await each()
    before = len(os.listdir("/dev/fd"))
    for _ in range(5):
        await each()
    assert len(os.listdir("/dev/fd")) == before


# --- secrets -------------------------------------------------------------------------------------------


async def test_secrets_reach_the_program_and_not_the_output(context: Context) -> None:
    """References in `env` are resolved for the program; what it prints of them is taken out."""
    context.secrets.update(TOKEN="canary-5f3a-secret", HOST="db.internal")
    config = {
        "script": 'echo "${#AUTH}"; echo "$AUTH"; echo "$TOKEN" | base64 >&2; echo "$AUTH" >&2; exit 3',
        "env": {
            "TOKEN": {"$secret": "TOKEN"},
            "AUTH": {"$secret_text": ["Bearer ", {"$secret": "TOKEN"}, "@", {"$secret": "HOST"}]},
        },
    }
    failed = failure(await shell(config, context.build()))
    assert failed.details["stdout"] == "37\nBearer [secret TOKEN]@[secret HOST]\n"
    assert "canary" not in repr(failed)
    assert "Y2FuYXJ5" not in repr(failed)
    assert "[secret TOKEN]" in failed.message


async def test_fifty_canaries_in_every_encoding_never_come_back(context: Context) -> None:
    """A program that prints 50 secrets (12 in `make test`) in each encoding, to both outputs, gives none of them away."""
    context.secrets.update({f"S{n}": value for n, value in enumerate(canaries())})
    code = (
        "import os, sys; sys.path.insert(0, os.environ['KIT']); from nodekit import ENCODINGS\n"
        f"text = '\\n'.join(form(os.environ[f'S{{n}}']) for n in range({len(context.secrets)}) for form in ENCODINGS.values())\n"
        "print(text); print(text, file=sys.stderr); sys.exit(1)"
    )
    env: dict[str, Any] = {name: {"$secret": name} for name in context.secrets}
    env |= {"KIT": str(Path(__file__).parent), "PYTHONPATH": str(Path(__file__).parents[2])}
    failed = failure(await shell({**python(code), "env": env, "max_output": 1_000_000}, context.build()))
    for text in (failed.details["stdout"], failed.details["stderr"], failed.message, *context.lines):
        clean = text.replace("[secret ", "\0")
        for value in context.secrets.values():
            assert [name for name, form in ENCODINGS.items() if rest_of(bare(form(value)), clean)] == []
    assert failed.details["stdout"].count("[secret S") >= len(context.secrets) * len(ENCODINGS)


async def test_a_secret_that_is_not_set_says_what_to_set(context: Context) -> None:
    """A missing secret fails as `secret` before anything runs."""
    failed = failure(await shell({"run": ["env"], "env": {"TOKEN": {"$secret": "TOKEN"}}}, context.build()))
    assert failed.type == "secret"
    assert "SAYSO_SECRET_TOKEN" in failed.message


async def test_progress_never_shows_a_secret(context: Context) -> None:
    """A line for people has marks instead of secrets."""
    context.secrets["TOKEN"] = "canary-5f3a-secret"
    config = {"script": 'echo "using $T"', "env": {"T": {"$secret": "TOKEN"}}}
    output(await shell(config, context.build()))
    assert context.lines == ["using [secret TOKEN]"]
