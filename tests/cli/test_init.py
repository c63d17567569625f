"""`sayso init`: what it makes is valid, tested and served as it is printed, and what was there stays."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bot.cli.commands import TOP
from bot.cli.init import STARTER
from bot.config.library import EXAMPLES
from engine.run.flow_files import load_flows
from tests.cli.clikit import Cli, command, environment
from tests.support.proving import sampled

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(load_flows(EXAMPLES)[0])


def test_a_new_folder_is_valid_and_its_scenario_passes_with_kills(cli: Cli) -> None:
    """All that is printed after `Next` works there, but for the local workspace, which serves until it is stopped."""
    done = cli.run("init", "ops")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-4:] == ["  cd ops", "  sayso validate", "  sayso test", "  sayso dev"]
    made = Cli(cli.cwd / "ops")
    assert made.run("validate", "--strict").code == 0
    played = made.run("test", "--kill")
    assert (played.code, "1 scenario passed" in played.out) == (0, True), played
    assert made.run("sessions", "list").code == 0


@pytest.mark.parametrize("name", sampled(NAMES, ["disk-cleanup", "triage"]))
def test_a_runbook_of_the_cookbook_comes_with_all_that_it_needs(name: str, cli: Cli) -> None:
    """Its scenarios pass from the new folder alone, and its programs run."""
    assert cli.run("init", "--from", f"cookbook/{name}").code == 0
    assert cli.run("validate", "--strict").code == 0
    assert cli.run("test").code == 0
    assert [flow.name for flow in load_flows(cli.cwd / "flows")[0].values()] == [name]
    for program in (cli.cwd / "flows").glob("tools/*"):
        assert program.stat().st_mode & 0o111, program


def test_rules_for_agents_come_with_a_table_that_passes(cli: Cli) -> None:
    """`--from gate` adds them to the first flow."""
    assert cli.run("init", "--from", "gate").code == 0
    assert "gate.yml" in cli.run("validate", "--strict").out
    played = cli.run("test")
    assert (played.code, "2 scenarios passed" in played.out) == (0, True), played


def test_what_is_there_stays_as_it_is(cli: Cli) -> None:
    """A second time adds what is missing, says what it left, and asks for a .gitignore that keeps the tokens out."""
    cli.run("init")
    cli.write(".env", "SLACK_BOT_TOKEN=mine")
    cli.write(".gitignore", "*.log\n")
    (cli.cwd / "flow.schema.json").unlink()
    done = cli.run("init", "--from", "triage")
    assert (cli.cwd / ".env").read_text() == "SLACK_BOT_TOKEN=mine"
    assert "Left as they are: .env, .github/workflows/flows.yml, .gitignore\n" in done.out
    assert "Add `.env` and `.sayso/` to .gitignore" in done.out
    assert "  flow.schema.json\n" in done.out
    assert {file.name for file in (cli.cwd / "flows").glob("*.yml")} == {
        "maintenance.yml",
        "triage.script.yml",
        "triage.yml",
    }


def test_nothing_is_written_through_a_link(cli: Cli) -> None:
    """A link that leads nowhere is something that is there: nothing appears where it points."""
    (cli.cwd / ".env").symlink_to(cli.cwd / "elsewhere")
    assert cli.run("init").code == 0
    assert not (cli.cwd / "elsewhere").exists()


def test_only_the_owner_reads_the_settings(cli: Cli) -> None:
    """The file that tokens are put into is private from its first moment."""
    cli.run("init")
    assert (cli.cwd / ".env").stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_made_is_said_in_a_sentence(cli: Cli) -> None:
    """An unknown runbook, and a place that takes no files."""
    cli.write("taken", "")
    for words, said in (
        ("--from triaje", "did you mean `triage`?"),
        ("--from ../secret", "There is no '../secret' in the cookbook"),
        ("taken", "cannot be written: Not a directory."),
        ("/dev/null/x", "cannot be written: Not a directory."),
    ):
        done = cli.run("init", *words.split())
        assert (done.code, said in done.err, "Traceback" in done.err) == (2, True, False), done


def test_every_runbook_is_listed(cli: Cli) -> None:
    """With what it does, by the names that `--from` takes."""
    listed = [line.split(maxsplit=1) for line in cli.run("init", "--list").out.splitlines()]
    assert [name for name, told in listed if told] == sorted(NAMES, key=lambda name: f"{name}.yml")


def test_flows_name_the_schema_for_editors(cli: Cli) -> None:
    """The line that editors read names a file that is there and that the flow fits; the scenario has none."""
    cli.run("init", "--from", "triage")
    first = (cli.cwd / "flows/triage.yml").read_text().splitlines()[0]
    found = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert found is not None
    assert (cli.cwd / "flows" / found[1]).read_text() == cli.run("schema").out
    assert "yaml-language-server" not in (cli.cwd / "flows/triage.script.yml").read_text()


def test_the_check_for_ci_runs_commands_that_there_are(cli: Cli) -> None:
    """It installs this release, and its commands and options exist."""
    cli.run("init")
    (job,) = yaml.safe_load((cli.cwd / ".github/workflows/flows.yml").read_text())["jobs"].values()
    runs = [step["run"].split() for step in job["steps"] if "run" in step]
    version = cli.run("--version").out.split()[1]
    assert runs[0][-1] == f"sayso=={version}"
    flags = {one.name: {flag for item in one.options for flag in item.flags} for one in TOP}
    for words in runs[1:]:
        assert words[0] == "sayso"
        assert {word for word in words[2:] if word.startswith("--")} <= flags[words[1]]


def test_the_first_flow_is_the_one_of_the_readme() -> None:
    """So that the quickstart can continue with it."""
    assert (STARTER / "maintenance.yml").read_text() in (ROOT / "README.md").read_text()


def test_a_file_that_could_not_be_finished_is_not_left(cli: Cli) -> None:
    """Half of one would be left as it is by the next call: once there is room again all of it is made."""
    limited = f"ulimit -f 1; exec {shlex.join([sys.executable, *command('init')])}"
    done = subprocess.run(
        ["bash", "-c", limited],
        cwd=cli.cwd,
        env=environment(cli.cwd, PYTHONDONTWRITEBYTECODE="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "cannot be written: File too large." in done.stderr) == (2, True), done
    assert cli.run("init").code == 0
    assert (cli.cwd / ".env").read_bytes() == (STARTER / "env").read_bytes()


def test_a_folder_where_gitignore_should_be_is_left_alone(cli: Cli) -> None:
    """It is something that is there."""
    (cli.cwd / ".gitignore").mkdir()
    done = cli.run("init")
    assert (done.code, done.err) == (0, "")


def test_the_next_steps_can_be_pasted(cli: Cli) -> None:
    """Also where the name of the folder has spaces, or begins with a dash."""
    assert "  cd 'my flows'\n" in cli.run("init", "my flows").out
    assert "  cd -- -x\n" in cli.run("init", "--", "-x").out
