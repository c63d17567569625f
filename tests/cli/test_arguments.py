"""From the words of a command line to the values of options; what is not a command line is refused with a sentence and exit
code 2, and the shell is told what can stand next."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from bot.cli.app import ROOT, run
from bot.cli.parser import read
from tests.cli.clikit import DEADLINE, Cli, command
from tests.support import prefork

FLOW = "flow: tidy-up\nnodes:\n  - {id: a, type: noop}\n"


def given(line: str) -> dict[str, Any]:
    """The values that a command gets, those that were given at all."""
    _, (*_, found) = read("sayso", ROOT, line.split())
    return {name: value for name, value in found.items() if value not in (None, [], False)}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("run f", {"name": "f"}),
        ("run f -i a=1 -ib=2 --input c=3 --input=d=4", {"name": "f", "inputs": ["a=1", "b=2", "c=3", "d=4"]}),
        ("run --json f --no-wait --wait", {"name": "f", "as_json": True, "wait": True}),
        ("run -- --json", {"name": "--json"}),
        ("run --json -- -f", {"name": "-f", "as_json": True}),
        ("run - --as ana --as ben", {"name": "-", "as_name": "ben"}),
        ("sessions show x --at -3", {"text": "x", "at": -3}),
        ("sessions resume a b", {"session_id": "a", "message": "b"}),
        ("sessions resume a --as ben b", {"session_id": "a", "as_name": "ben", "message": "b"}),
        ("sessions resume a --json -- -b", {"session_id": "a", "as_json": True, "message": "-b"}),
        ("sessions resume", {}),
        ("sessions delete a --dry-run b c", {"texts": ["a", "b", "c"], "dry_run": True}),
        ("prompts answer p --text=-5%", {"prompt_id": "p", "text": "-5%"}),
        ("inbox drop", {}),
        ("start-flow f --channel #ops --wait 1.5", {"name": "f", "channel": "#ops", "wait": 1.5}),
        ("sessions list", {"limit": 50}),
        ("locks --json", {"as_json": True}),
        ("locks --json release l --session s", {"name": "l", "session": "s"}),
        ("backup out", {"target": Path("out")}),
    ],
)
def test_a_command_line_gives_each_option_its_value(line: str, found: dict[str, Any]) -> None:
    """Options are anywhere, with a space, with `=`, or right behind a short one; the last of several counts."""
    assert given(line) == found


def test_options_of_all_commands_stand_before_the_command() -> None:
    """`-v` counts, and the first word that is not an option ends them."""
    command, (shared, own) = read("sayso", ROOT, ["-vv", "--home=x", "--verbose", "dev", "--port", "1"])
    assert (shared["verbose"], shared["home"], command.name, own["port"]) == (3, "x", "dev", 1)


@pytest.mark.parametrize(
    ("line", "path", "named"),
    [
        ("runn f", "sayso", "no such command: runn. Did you mean run?"),
        ("locks relase", "sayso locks", "no such command: relase. Did you mean release?"),
        ("run", "sayso run", "FLOW"),
        ("run f g h", "sayso run", "g h"),
        ("run f -i", "sayso run", "-i/--input"),
        ("run f --json=1", "sayso run", "--json"),
        ("run f --jsn", "sayso run", "--jsn. Did you mean --json?"),
        ("run f --inputs", "sayso run", "--inputs"),
        ("--hom x run", "sayso", "--hom. Did you mean --home?"),
        ("-vx run f", "sayso", "x"),
        ("--home x", "sayso", "COMMAND"),
        ("run f --inputs-file nope.yml", "sayso run", "--inputs-file: file 'nope.yml' does not exist"),
        ("sessions export x -o .", "sayso sessions export", "-o/--output: file '.' is a directory"),
        ("sessions list --limit 1.5", "sayso sessions list", "--limit: invalid int value: '1.5'"),
        ("sessions list --limit 0", "sayso sessions list", "--limit: 0 is not 1 or more"),
        ("start-flow f --wait nan", "sayso start-flow", "--wait: nan is not 0 or more"),
        ("dev --port 70000", "sayso dev", "--port: 70000 is not from 0 to 65535"),
        ("dev nope.yml", "sayso dev", "[FLOW...]: path 'nope.yml' does not exist"),
    ],
)
def test_what_is_no_command_line_is_refused(
    line: str, path: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, with how it is called, what is wrong and where more is told; nothing is carried out."""
    assert run(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"usage: {path} ")
    *_, error, hint = err.splitlines()
    assert error.startswith(f"{path}: error: ")
    assert named in error
    assert hint == f"Try '{path} --help' for help."


@pytest.mark.parametrize(
    "line", ["--help", "-h", "run -h", "sessions --help", "sessions list --help", "run --jsn -h"]
)
def test_the_help_goes_to_standard_output(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of each command and group, with exit code 0."""
    assert run(line.split()) == 0
    out, err = capsys.readouterr()
    assert (out.startswith("usage: sayso "), err) == (True, "")


@pytest.mark.parametrize("line", ["", "sessions"])
def test_a_group_without_a_command_shows_its_help_as_an_error(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error, with exit code 2."""
    assert run(line.split()) == 2
    out, err = capsys.readouterr()
    assert (out, "commands:" in err) == ("", True)


@pytest.mark.parametrize(("columns", "widest"), [("60", 58), ("500", 108)])
def test_the_help_is_as_wide_as_the_terminal(
    columns: str, widest: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And never too wide to be read."""
    monkeypatch.setenv("COLUMNS", columns)
    run(["sessions", "--help"])
    assert widest - 15 < max(map(len, capsys.readouterr().out.splitlines())) <= widest


# --- completion --------------------------------------------------------------------------------------------


def offered(line: str, cwd: Path) -> list[str]:
    """What a shell is told that can be at the end of the line."""
    told = cwd / "told"
    asked = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n"}
    env = os.environ | asked | {"_ARGCOMPLETE_STDOUT_FILENAME": str(told), "SAYSO_FLOWS": "flows"}
    prefork.run(command(), cwd=cwd, env=env, timeout=DEADLINE).check_returncode()
    return sorted(told.read_text().split())


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("sayso se", ["sessions"]),
        ("sayso sessions ", [*ROOT.commands["sessions"].commands, "--help"]),
        ("sayso --home x sessions li", ["list"]),
        ("sayso run --no", ["--no-input", "--no-wait"]),
        ("sayso run ti", ["tidy-up"]),
        ("sayso graph t", ["tidy-up", "told"]),
        ("sayso --flows other run s", ["swab"]),
        ("sayso sessions migrate some-id f", ["flows/"]),
        ("sayso validate flows/t", ["flows/tidy.yml"]),
        ("sayso run tidy-up --inputs-file ot", ["other/"]),
        ("sayso prompts answer some-id --reason ", []),
        ("sayso locks r", ["release"]),
        ("sayso init here --from tri", ["triage"]),
        ("sayso sessions show sess", []),
    ],
)
def test_a_shell_is_told_what_can_stand_next(line: str, found: list[str], cli: Cli) -> None:
    """Commands of the group, options of the command, names of flows where a flow is meant, and files where one is."""
    cli.write("flows/tidy.yml", FLOW)
    cli.write("flows/broken.yml", "flow: [")
    cli.write("other/swab.yml", FLOW.replace("tidy-up", '"swab"  # the deck'))
    assert offered(line, cli.cwd) == sorted(found)


def test_a_shell_is_told_ids(cli: Cli) -> None:
    """Sessions where one is meant, open questions where one is, those of the local workspace too. A database that
    cannot be read offers none."""
    cli.write("flows/ask.yml", "flow: ask\nnodes: [{id: a, type: ask, with: {message: Why?}}]\n")
    cli.run("--home", ".sayso/dev", "run", "ask", "--no-input")
    cli.run("run", "ask", "--no-input")
    found = [cli.run(*home, "sessions", "list", "--json").json for home in ((), ("--home", ".sayso/dev"))]
    sessions = sorted(one["sessions"][0]["sessionId"] for one in found)
    assert offered("sayso sessions abort ses", cli.cwd) == sessions
    assert offered("sayso graph --session ses", cli.cwd) == sessions
    asked = cli.run("prompts", "list", "--json").json["prompts"][0]
    assert asked["promptId"] in offered("sayso prompts answer p", cli.cwd)
    cli.run("prompts", "answer", asked["promptId"], "so")
    assert asked["promptId"] not in offered("sayso prompts show p", cli.cwd)
    (cli.cwd / ".sayso/sayso.db").write_text("no database")
    assert len(offered("sayso sessions abort ses", cli.cwd)) == 1


@pytest.mark.parametrize(
    ("shell", "registers"),
    [("/bin/bash", "complete -o nospace"), ("/bin/zsh", "compdef"), ("fish", "complete --command sayso")],
)
def test_completion_is_turned_on_for_the_shell(
    shell: str, registers: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By what `--show-completion` prints."""
    monkeypatch.setenv("SHELL", shell)
    assert run(["--show-completion"]) == 0
    assert registers in capsys.readouterr().out
