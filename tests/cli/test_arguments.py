"""From the words of a command line to the values of options; what is no command line is refused with a sentence and exit
code 2, and the shell is told what can stand next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bot.cli.app import ROOT, run
from bot.cli.arguments import leading, values
from bot.cli.completion import complete
from bot.cli.declare import Command, Group


def given(line: str) -> dict[str, Any]:
    """The values that a command gets, those that were given at all."""
    of: Command | Group = ROOT
    words = line.split()
    while isinstance(of, Group):
        of = of.commands[words.pop(0)]
    return {
        name: value for name, value in values(of.options, words).items() if value not in (None, [], False)
    }


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("run f", {"name": "f"}),
        ("run f -i a=1 -ib=2 --input c=3 --input=d=4", {"name": "f", "inputs": ["a=1", "b=2", "c=3", "d=4"]}),
        ("run --json f --no-wait --wait", {"name": "f", "as_json": True, "wait": True}),
        ("run -- --json", {"name": "--json"}),
        ("run - --as ana --as ben", {"name": "-", "as_name": "ben"}),
        ("sessions show x --at -3", {"text": "x", "at": -3}),
        ("sessions resume a b", {"session_id": "a", "message": "b"}),
        ("sessions delete a b c --dry-run", {"texts": ["a", "b", "c"], "dry_run": True}),
        ("start-flow f --channel #ops --wait 1.5", {"name": "f", "channel": "#ops", "wait": 1.5}),
        ("sessions list", {"limit": 50}),
        ("backup out", {"target": Path("out")}),
    ],
)
def test_a_command_line_gives_each_option_its_value(line: str, found: dict[str, Any]) -> None:
    """Options stand anywhere, with a space, with `=`, or right behind a short one; the last of several counts."""
    assert given(line) == found


def test_options_of_all_commands_stand_before_the_command() -> None:
    """`-v` counts, and the first word that is no option ends them."""
    found, rest = leading(ROOT, ["-vv", "--home=x", "--verbose", "run", "--home", "y"])
    assert (found["verbose"], found["home"], rest) == (3, "x", ["run", "--home", "y"])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("runn f", "No such command 'runn'. Did you mean 'run'?"),
        ("run", "Missing argument 'FLOW'."),
        ("run f g h", "Got unexpected extra argument(s) (g h)"),
        ("run f -i", "Option '-i' requires an argument."),
        ("run f --json=1", "Option '--json' does not take a value."),
        (
            "run f --inputs-file nope.yml",
            "Invalid value for '--inputs-file': file 'nope.yml' does not exist.",
        ),
        ("run --home x f", "No such option: --home (Possible options: --help)"),
        ("-vx run f", "No such option: -x"),
        ("--home x", "Missing command."),
        ("sessions purge", "Missing option '--older-than'."),
        ("sessions export x -o .", "Invalid value for '-o' / '--output': file '.' is a directory."),
        (
            "sessions list --limit 1.5",
            "Invalid value for '--limit': Input should be a valid integer, unable to parse string as an integer",
        ),
        (
            "sessions list --limit 0",
            "Invalid value for '--limit': Input should be greater than or equal to 1",
        ),
        ("dev --port 70000", "Invalid value for '--port': Input should be less than or equal to 65535"),
        ("dev nope.yml", "Invalid value for '[FLOW...]': path 'nope.yml' does not exist."),
    ],
)
def test_what_is_no_command_line_is_refused(line: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, with how it is called and what is wrong; nothing is carried out."""
    assert run(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Usage: sayso ")
    assert err.splitlines()[-1] == f"Error: {why}"


@pytest.mark.parametrize(
    ("environ", "offered"),
    [
        ({"COMP_WORDS": "sayso se", "COMP_CWORD": "1"}, ["sessions"]),
        (
            {"COMP_WORDS": "sayso sessions ", "COMP_CWORD": "2"},
            [*ROOT.commands["sessions"].commands, "--help"],
        ),
        ({"_SAYSO_WORDS": "sayso --home x sessions li"}, ["list"]),
        ({"_SAYSO_WORDS": "sayso run --no"}, ["--no-input", "--no-wait"]),
    ],
)
def test_a_shell_is_told_what_can_stand_next(
    environ: dict[str, str], offered: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands of the group, or options of the command, that begin with what is typed."""
    assert complete(ROOT, environ) == 0
    assert capsys.readouterr().out.split() == offered


def test_completion_is_installed_for_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its script is written, and the shell's own file reads it, once."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/bash")
    assert [run(["--install-completion"]), run(["--install-completion"])] == [0, 0]
    script = tmp_path / ".bash_completions/sayso.sh"
    assert (tmp_path / ".bashrc").read_text().count(f"source '{script}'") == 1
    run(["--show-completion"])
    assert capsys.readouterr().out.endswith(script.read_text())
