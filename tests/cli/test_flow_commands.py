"""`validate`, `schema`, `--help`: what flow authors and editors use, and that none of it costs a start."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from bot.terminal.console import BY_CODE, MEANINGS, exit_of
from engine.journal.state import State
from engine.language import errors
from tests.cli.clikit import Cli

GOOD = "flow: good\nnodes:\n  - {id: a, type: noop}\n"
BAD = """flow: bad
nodes:
  - id: a
    type: shel
  - id: b
    type: ask
    with: {mesage: "Which?"}
"""

ROOT = Path(__file__).resolve().parents[2]


def test_sound_files_are_zero(cli: Cli) -> None:
    """Sound files are named, and the exit code is 0."""
    cli.write("flows/good.yml", GOOD)
    done = cli.run("validate")
    assert (done.code, done.out) == (0, "1 flow without problems: good\n")


def test_every_problem_is_told_with_its_place(cli: Cli) -> None:
    """All problems of a file, each with file, line, column and hint; the exit code is 4."""
    cli.write("bad.yml", BAD)
    done = cli.run("validate", "bad.yml")
    assert done.code == 4
    assert "bad.yml:4:11: unknown node type `shel`\n  hint: did you mean `shell`?" in done.out
    assert "bad.yml:7:12: unknown field `mesage`\n  hint: did you mean `message`?" in done.out


def test_files_without_a_problem_are_counted_where_there_are_any(cli: Cli) -> None:
    """Of one file that has problems nothing more is said."""
    cli.write("flows/bad.yml", BAD)
    assert cli.run("validate").out.endswith("\n3 problems in 1 file.\n")
    cli.write("flows/good.yml", GOOD)
    assert cli.run("validate").out.endswith("\n3 problems in 1 file; 1 file without.\n")


def test_problems_as_json(cli: Cli) -> None:
    """For editors and CI: file, line, column, message and hint of each problem."""
    cli.write("flows/good.yml", GOOD)
    cli.write("flows/bad.yml", BAD)
    done = cli.run("validate", "flows", "--json")
    assert (done.code, done.json["ok"]) == (4, False)
    by_name = {entry["file"]: entry for entry in done.json["files"]}
    assert by_name["flows/good.yml"] == {
        "file": "flows/good.yml",
        "ok": True,
        "flow": "good",
        "problems": [],
        "warnings": [],
    }
    assert by_name["flows/bad.yml"]["problems"][0] == {
        "file": "flows/bad.yml",
        "line": 4,
        "column": 11,
        "message": "unknown node type `shel`",
        "hint": "did you mean `shell`?",
    }


RUNS_ON = """flow: runs-on
nodes:
  - {id: gate, type: approval, with: {message: "Go?", approvers: [channel], on_reject: continue}}
  - {id: apply, type: shell, with: {run: [deploy]}}
"""


def test_a_warning_is_told_and_is_no_problem(cli: Cli) -> None:
    """A step that runs after a rejection too: named with its line and a hint, and the exit code stays 0."""
    cli.write("runs-on.yml", RUNS_ON)
    done = cli.run("validate", "runs-on.yml")
    assert done.code == 0
    assert (
        "runs-on.yml:4:1: warning: `apply` also runs after `gate` was rejected\n  hint: leave out" in done.out
    )
    assert "1 flow without problems, 1 warning: runs-on" in done.out


def test_with_strict_a_warning_is_a_problem(cli: Cli) -> None:
    """For CI: exit code 4, in JSON as well."""
    cli.write("runs-on.yml", RUNS_ON)
    assert cli.run("validate", "--strict", "runs-on.yml").code == 4
    loose, strict = (cli.run("validate", "runs-on.yml", "--json", *more) for more in ([], ["--strict"]))
    assert (loose.code, loose.json["ok"], len(loose.json["files"][0]["warnings"])) == (0, True, 1)
    assert (strict.code, strict.json["ok"], len(strict.json["files"][0]["problems"])) == (4, False, 1)


def test_two_flows_of_one_name_are_a_problem_of_the_folder(cli: Cli) -> None:
    """A folder is checked as it would be served: a name is taken once."""
    cli.write("flows/a.yml", GOOD)
    cli.write("flows/b.yml", GOOD)
    done = cli.run("validate", "flows")
    assert (done.code, "the name `good` is taken by" in done.out) == (4, True), done


def test_nothing_to_check_is_a_wrong_usage(cli: Cli) -> None:
    """A folder or file that is not there, and one without flows, are said; the exit code is 2."""
    (cli.cwd / "empty").mkdir()
    for arguments in ([], ["nowhere.yml"], ["empty"]):
        done = cli.run("validate", *arguments)
        assert (done.code, done.out) == (2, ""), done


def test_validate_executes_nothing(cli: Cli) -> None:
    """A flow with a shell node is checked without running it, and without making a database."""
    cli.write("flow.yml", "flow: x\nnodes: [{id: a, type: shell, with: {run: [touch, touched]}}]\n")
    assert cli.run("validate", "flow.yml").code == 0
    assert [path.name for path in cli.cwd.iterdir()] == ["flow.yml"]


def test_the_schema_is_json_schema(cli: Cli) -> None:
    """`schema` prints one JSON document that names its dialect and every node type."""
    done = cli.run("schema")
    assert (done.code, done.json["$schema"]) == (0, "https://json-schema.org/draft/2020-12/schema")
    assert "shell" in done.out


def test_help_tells_the_exit_codes(cli: Cli) -> None:
    """`--help` has every exit code with its meaning."""
    shown = " ".join(cli.run("--help").out.split())
    for code, meaning in MEANINGS.items():
        assert f"{code.value} {meaning}" in shown


def test_every_error_of_the_store_has_the_code_of_the_store() -> None:
    """An error class that is added to the storage errors gets its exit code by the table; one that is suspended has its own."""
    storage = {errors.StorageError.code, *(kind.code for kind in errors.StorageError.__subclasses__())}
    suspended = {code for code in storage if BY_CODE.get(code) == 10}
    assert suspended == {errors.StoreSuspended.code}
    assert {BY_CODE.get(code) for code in storage - suspended} == {6}
    refusals = {errors.Refused.code, *(kind.code for kind in errors.Refused.__subclasses__())}
    assert {BY_CODE.get(code) for code in refusals} == {5}


def test_the_status_of_a_session_is_an_exit_code() -> None:
    """Complete is 0, failed and aborted are 1, everything that continues later is 3."""
    ended: dict[str, int] = {
        outcome: exit_of(State(phase="ended", outcome=outcome))
        for outcome in ("complete", "failed", "aborted")
    }
    assert ended == {"complete": 0, "failed": 1, "aborted": 1}
    assert [exit_of(State(phase=phase)) for phase in ("waiting", "running")] == [3, 3]


def test_a_rejection_has_an_exit_code_of_its_own() -> None:
    """A program that runs flows can tell a decision from a fault."""
    assert exit_of(State(phase="ended", outcome="failed", error={"type": "rejected"})) == 8
    assert exit_of(State(phase="ended", outcome="complete", error={"type": "rejected"})) == 0


def test_the_version_is_that_of_the_distribution(cli: Cli) -> None:
    """`--version` prints name and version, and in a git checkout of sayso its commit."""
    told = cli.run("--version").out.strip()
    if (ROOT / ".git").exists():
        assert re.fullmatch(rf"sayso {version('sayso')} \([0-9a-f]{{12}}(-dirty)?\)", told), told
    else:
        assert told == f"sayso {version('sayso')}"


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["sessions", "resume", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    """Help is built from the declarations of commands alone, whatever the commands need."""
    heavy = (
        *(
            "pydantic",
            "jinja2",
            "slack_bolt",
            "slack_sdk",
            "aiohttp",
            "apsw",
            "argcomplete",
            "shutil",
            "yaml",
        ),
        *("asyncio", "msgspec", "orjson", "dataclasses", "logging", "engine.journal.state"),
    )
    code = (
        f"import sys; from bot.cli.app import run; run({arguments!r})\n"
        f"print(*[name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []
