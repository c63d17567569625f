"""`sayso sessions pause`, `show --at`, `fork`, `migrate`, and `sayso graph`, at the real command line."""

from __future__ import annotations

import re
from typing import Any

import pytest

from engine.journal.queries import next_try
from tests.cli.clikit import Cli, until
from tests.cli.flowtexts import long_running, two_questions

pytestmark = pytest.mark.process


def phase(cli: Cli, session_id: str) -> str:
    """The phase that `show` reports."""
    return str(cli.run("sessions", "show", session_id, "--json").json["phase"])


# --- the next try ------------------------------------------------------------------------------------------


def test_a_failed_run_is_tried_again_at_the_step_that_failed(cli: Cli) -> None:
    """In this terminal, without what was done; a second time it is said that it was, and a run that ended well is refused."""
    cli.flow(
        "flaky",
        f"{{id: first, type: shell, with: {{run: [sh, -c, 'echo first >> {cli.cwd}/log']}}}}",
        f"{{id: second, type: shell, with: {{run: [sh, -c, 'test -e {cli.cwd}/ready']}}}}",
    )
    failed = cli.run("run", "flaky").json
    (cli.cwd / "ready").touch()
    again = cli.run("sessions", "retry", failed["sessionId"])
    assert (again.code, again.json["status"]) == (0, "complete"), again
    assert cli.lines("log") == ["first"]
    late = cli.run("sessions", "retry", failed["sessionId"])
    assert (late.code, again.json["sessionId"] in late.err) == (5, True), late
    assert cli.run("sessions", "retry", again.json["sessionId"]).code == 5


def test_a_failed_run_in_a_terminal_ends_with_the_command_that_tries_it_again(cli: Cli) -> None:
    """The command works as it stands, and what follows is told as a retry: no step is said to have been left."""
    cli.flow("flaky", f"{{id: second, type: shell, with: {{run: [sh, -c, 'test -e {cli.cwd}/ready']}}}}")
    with cli.terminal("run", "flaky") as terminal:
        terminal.expect("Try again from the failed step: sayso sessions retry session-")
        assert terminal.code() == 1
    [failed] = re.findall(r"sessions retry (session-[0-9a-f]{10})", terminal.shown)
    (cli.cwd / "ready").touch()
    with cli.terminal("sessions", "retry", failed) as terminal:
        shown = terminal.expect("completed after")
        assert terminal.code() == 0
    assert "left" not in shown
    assert f"retry of  {failed}" in cli.run("sessions", "show", next_try(failed)).out


# --- pause -------------------------------------------------------------------------------------------------


def test_a_held_session_takes_an_answer_and_starts_nothing_until_it_is_resumed(
    cli: Cli, paused: dict[str, Any]
) -> None:
    """The answer is recorded, the node behind it starts only after `resume`, and then exactly once."""
    session_id = paused["sessionId"]
    held = cli.run("sessions", "pause", session_id, "--reason", "lunch", "--json")
    assert (held.code, held.json["status"], phase(cli, session_id)) == (0, "paused", "held"), held
    assert "lunch" in cli.run("sessions", "show", session_id).out
    assert "somebody to resume it; Which region" in cli.run("sessions", "list").out
    answered = cli.run("prompts", "answer", paused["prompts"][0]["promptId"], "eu")
    assert (answered.code, cli.lines("second"), phase(cli, session_id)) == (3, [], "held"), answered
    resumed = cli.run("sessions", "resume", session_id)
    assert (resumed.code, resumed.json["prompts"][0]["message"], cli.lines("second")) == (3, "Why?", ["ran"])


def test_the_reason_of_a_pause_cannot_pose_as_other_lines(cli: Cli, paused: dict[str, Any]) -> None:
    """Line breaks, escape sequences and right-to-left marks in a reason are made visible, and it is cut short."""
    cli.run("sessions", "pause", paused["sessionId"], "--reason", "a\n\x1b[31mb \u202e" + "z" * 3000)
    shown = cli.run("sessions", "show", paused["sessionId"]).out
    status = next(line for line in shown.splitlines() if line.startswith("  status"))
    assert "since" in status
    assert len(status) < 300
    assert not {"\x1b", "\u202e"} & set(shown)


def test_a_session_that_another_terminal_runs_is_paused_in_the_middle_of_a_node(cli: Cli) -> None:
    """The node is stopped, the terminal rests with exit code 3, and resuming asks what became of the node."""
    long_running(cli)
    with cli.started("run", "slow") as process:
        until(lambda: cli.lines("begun") == ["begun"], "the node begins")
        session_id = cli.run("sessions", "list", "--json").json["sessions"][0]["sessionId"]
        held = cli.run("sessions", "pause", session_id)
        assert (held.code, held.out) == (0, f"{session_id} is paused.\n"), held
        assert process.wait(20) == 3
    assert phase(cli, session_id) == "held"
    resumed = cli.run("sessions", "resume", session_id, "go on")
    assert (resumed.code, resumed.json["prompts"][0]["kind"]) == (3, "interrupted"), resumed
    assert (cli.lines("begun"), cli.lines("after")) == (["begun"], [])


# --- show --------------------------------------------------------------------------------------------------


def test_show_at_an_event_is_the_session_as_it_was(cli: Cli, paused: dict[str, Any]) -> None:
    """Before the question was asked nothing waits; an event that does not exist is refused."""
    session_id = paused["sessionId"]
    early = cli.run("sessions", "show", session_id, "--at", "3")
    assert "as it was at event 3 of" in early.out.replace("as it was  ", "as it was ")
    assert "▸ first" in early.out
    assert "· region" in early.out
    assert "Which region" not in early.out
    document = cli.run("sessions", "show", session_id, "--at", "3", "--json", "--events").json
    assert (document["seq"], len(document["events"])) == (3, 3)
    assert cli.run("sessions", "show", session_id, "--at", "999").code == 2


def test_the_journal_is_printed_with_json_values(cli: Cli, paused: dict[str, Any]) -> None:
    """What is particular to an event is JSON, not the notation of a programming language."""
    shown = cli.run("sessions", "show", paused["sessionId"], "--events").out
    assert '"flowName":"talk"' in shown
    assert "None" not in shown


# --- fork --------------------------------------------------------------------------------------------------


def test_a_fork_goes_another_way_from_an_event_and_repeats_nothing(cli: Cli, paused: dict[str, Any]) -> None:
    """The parent chose `eu`; its fork from the question chooses `us`; the node before ran once, for both."""
    parent = paused["sessionId"]
    cli.run("prompts", "answer", paused["prompts"][0]["promptId"], "eu")
    events = cli.run("sessions", "show", parent, "--events", "--json").json["events"]
    at = next(event["seq"] for event in events if event["type"] == "prompt:requested")
    fork = cli.run("sessions", "fork", parent, "--at", str(at), "--answer", "region=us", "--json")
    assert (fork.code, fork.json["prompts"][0]["message"]) == (3, "Why?"), fork
    done = cli.run("sessions", "resume", fork.json["sessionId"], "because")
    assert "Hello bob in us: because" in done.err
    assert (cli.lines("first"), cli.lines("second")) == (["ran"], ["ran", "ran"])
    shown = cli.run("sessions", "show", fork.json["sessionId"]).out
    assert f"fork of   {parent}" in shown
    assert cli.run("sessions", "show", parent, "--json").json["status"] == "paused"


def test_a_fork_answers_a_form_field_by_field(cli: Cli) -> None:
    """The fields are JSON; what does not fit the form, and what is not JSON, is said and makes no session."""
    form = "{properties: {system: {type: string}, days: {type: integer}}, required: [system, days]}"
    said = "{id: end, type: set, with: {said: '{{ nodes.what.values.days + 1 }}'}}"
    cli.flow("access", f"{{id: what, type: ask, with: {{message: What?, form: {form}}}}}", said)
    parent = cli.run("run", "access", "--no-input").json["sessionId"]
    for wrong, told in (('{"system": "billing"}', "Days: Please fill this in"), ('{"system', "JSON")):
        done = cli.run("sessions", "fork", parent, "--answer", f"what={wrong}", "--json")
        assert done.code != 0
        assert told in done.err
    fork = cli.run("sessions", "fork", parent, "--answer", 'what={"system": "billing", "days": 3}', "--json")
    assert (fork.code, fork.json["status"]) == (0, "complete"), fork
    assert len(cli.run("sessions", "list", "--all", "--json").json["sessions"]) == 2


def test_a_fork_that_cannot_be_makes_no_session(cli: Cli, paused: dict[str, Any]) -> None:
    """An event, a question or an option that does not exist is named, and nothing is stored."""
    for option, value, said in (
        ("--at", "999", "There is no event 999"),
        ("--answer", "nobody=us", "names no open question"),
        ("--answer", "region=north", "Please choose one of: eu, us."),
        ("--answer", "region", "PROMPT=VALUE"),
    ):
        done = cli.run("sessions", "fork", paused["sessionId"], option, value)
        assert (done.code != 0, said in done.err) == (True, True), done
    assert len(cli.run("sessions", "list", "--json").json["sessions"]) == 1


def test_the_past_of_a_fork_is_not_told_as_if_it_happened_now(cli: Cli, paused: dict[str, Any]) -> None:
    """What the other session did is left out; what the fork does is told."""
    fork = cli.run("sessions", "fork", paused["sessionId"], "--answer", "region=us")
    assert "first" not in fork.err, fork
    assert "✓ region  us, ana" in fork.err, fork
    assert "▸ second" in fork.err, fork


# --- graph -------------------------------------------------------------------------------------------------


def test_a_flow_is_drawn_as_text_and_as_a_picture(cli: Cli, paused: dict[str, Any]) -> None:
    """Without a session nothing is marked; with one, the node that waits is, in Mermaid and in the SVG."""
    plain = cli.run("graph", "talk").out
    assert plain.startswith("flowchart TD\n")
    assert "waits here" not in plain
    marked = cli.run("graph", "--session", paused["sessionId"]).out
    assert "region<br>ask<br>… waits here" in marked
    done = cli.run("graph", "--session", paused["sessionId"], "--svg", "it.svg")
    assert done.out == "Written to it.svg.\n"
    assert "… waits here" in (cli.cwd / "it.svg").read_text()
    assert cli.run("graph").code == 2


# --- pinned flows, migrate ---------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["changed", "renamed", "deleted", "broken"])
def test_a_paused_session_goes_on_with_its_own_text(cli: Cli, paused: dict[str, Any], what: str) -> None:
    """Whatever becomes of the file: the nodes of the text that it was started with run, and no others."""
    file = cli.cwd / "flows/talk.yml"
    match what:
        case "changed":
            file.write_text(file.read_text().replace("Hello", "Goodbye"))
        case "renamed":
            file.rename(cli.cwd / "flows/other.yml")
        case "deleted":
            file.unlink()
        case _:
            file.write_text("flow: [")
    cli.run("prompts", "answer", paused["prompts"][0]["promptId"], "eu")
    done = cli.run("sessions", "resume", paused["sessionId"], "so")
    assert (done.code, "Hello bob in eu: so" in done.err) == (0, True), done
    assert cli.lines("first") == cli.lines("second") == ["ran"]


def test_migrate_says_what_it_means_and_then_switches(cli: Cli, paused: dict[str, Any]) -> None:
    """A dry run changes nothing; the migration is journaled, and the session continues with the new version."""
    file, session_id = cli.cwd / "flows/talk.yml", paused["sessionId"]
    file.write_text(file.read_text().replace("Hello", "Goodbye"))
    dry = cli.run("sessions", "migrate", session_id, "--dry-run")
    assert (dry.code, "waits at region: ask, also in the new version" in dry.out) == (0, True), dry
    assert "flow:migrated" not in cli.run("sessions", "show", session_id, "--events").out
    done = cli.run("sessions", "migrate", session_id, "--json")
    assert (done.code, done.json["possible"], done.json["waits"]) == (0, True, {"region": "ask"}), done
    assert "flow:migrated" in cli.run("sessions", "show", session_id, "--events").out
    assert cli.run("sessions", "show", session_id, "--at", "4").code == 0
    cli.run("prompts", "answer", paused["prompts"][0]["promptId"], "eu")
    assert "Goodbye bob in eu: so" in cli.run("sessions", "resume", session_id, "so").err
    assert cli.lines("first") == ["ran"]


def test_a_fork_goes_on_with_the_text_that_the_command_names(cli: Cli, paused: dict[str, Any]) -> None:
    """`sessions fork --flow` runs the new text from the event on, and its parent keeps its own."""
    file, parent = cli.cwd / "flows/talk.yml", paused["sessionId"]
    new = cli.cwd / "new.yml"
    new.write_text(file.read_text().replace("Hello", "Goodbye"))
    fork = cli.run("sessions", "fork", parent, "--flow", "new.yml", "--answer", "region=us", "--json")
    assert (fork.code, fork.json["prompts"][0]["message"]) == (3, "Why?"), fork
    assert "Goodbye bob in us: so" in cli.run("sessions", "resume", fork.json["sessionId"], "so").err
    assert "flow:migrated" not in cli.run("sessions", "show", parent, "--events").out


def test_a_text_without_what_waits_is_refused(cli: Cli, paused: dict[str, Any]) -> None:
    """The dry run says so with its exit code, and the migration changes nothing."""
    file, session_id = cli.cwd / "flows/talk.yml", paused["sessionId"]
    file.write_text(file.read_text().replace("region", "place"))
    for options in (["--dry-run"], []):
        done = cli.run("sessions", "migrate", session_id, *options)
        assert (done.code, "region: is running" in done.out + done.err) == (5, True), done
    assert "flow:migrated" not in cli.run("sessions", "show", session_id, "--events").out


def test_a_migration_is_handed_to_the_terminal_that_has_the_session(cli: Cli) -> None:
    """Where another process serves the session it carries the request out, or refuses it as it would here."""
    file = two_questions(cli)
    with cli.terminal("run", "talk", "-i", "who=bob") as terminal:
        terminal.expect("Which region for bob?")
        session_id = cli.run("sessions", "list", "--json").json["sessions"][0]["sessionId"]
        file.write_text(file.read_text().replace("Hello", "Goodbye"))
        done = cli.run("sessions", "migrate", session_id)
        assert (done.code, f"{session_id} continues with the new version." in done.out) == (0, True), done
        terminal.type("eu")
        terminal.expect("Why?")
        terminal.type("so")
        terminal.expect("Goodbye bob in eu: so")
        assert terminal.code() == 0


def test_migrate_asks_for_the_file_where_it_was_moved(cli: Cli, paused: dict[str, Any]) -> None:
    """A file that is gone, and no flow of its name: the error names the file and the command; with the file it continues."""
    session_id, moved = paused["sessionId"], cli.cwd / "moved.yml"
    (cli.cwd / "flows/talk.yml").rename(moved)
    done = cli.run("sessions", "migrate", session_id)
    assert done.code == 2, done
    for part in ("flows/talk.yml no longer exists", f"sessions migrate {session_id} FILE"):
        assert part in done.err
    assert cli.run("sessions", "migrate", session_id, "moved.yml").code == 0


# --- a node type that was removed --------------------------------------------------------------------------


@pytest.fixture
def orphaned(cli: Cli) -> str:
    """A session whose node, of a type that is not installed any more, was running when its process was killed."""
    info = cli.cwd / "packages/slow-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[sayso.nodes]\nslow_one = slow_types:Slow\n")
    cli.write(
        "packages/slow_types.py",
        """import asyncio, pathlib
from engine.nodes.api import Config, NodeType

class None_(Config):
    "Nothing."

class Slow(NodeType):
    config = None_
    async def run(self, config, ctx):
        pathlib.Path("begun").write_text("yes")
        await asyncio.sleep(600)
""",
    )
    cli.write("flows/slow.yml", "flow: slow\nnodes: [{id: a, type: slow_one}, {id: b, type: noop}]\n")
    cli.env["PYTHONPATH"] = str(cli.cwd / "packages")
    with cli.started("run", "slow") as process:
        until(lambda: bool(cli.lines("begun")), "the node begins")
        process.kill()
        process.wait(20)
    del cli.env["PYTHONPATH"]
    return str(cli.run("sessions", "list", "--json").json["sessions"][0]["sessionId"])


def test_a_session_whose_node_type_was_removed_can_be_looked_at(cli: Cli, orphaned: str) -> None:
    """Its tree and its journal are shown, with the type that is missing."""
    shown = cli.run("sessions", "show", orphaned, "--events")
    assert (shown.code, shown.err) == (0, ""), shown
    assert "the node type `slow_one` of the package slow is not installed here" in shown.out
    assert "▸ a" in shown.out
    assert "· b" in shown.out
    assert "session:start" in shown.out
    assert cli.run("sessions", "show", orphaned, "--json").json["tree"]["children"][0]["path"] == "a"
    assert cli.lines("begun") == ["yes"]


def test_doctor_names_the_sessions_whose_node_type_was_removed(cli: Cli, orphaned: str) -> None:
    """It says which type of which package they lack and what can be done."""
    checks = {check["name"]: check for check in cli.run("doctor", "--json").json["checks"]}
    assert checks["packages"]["level"] == "warn"
    assert "`slow_one` of the package slow is not installed here" in checks["packages"]["text"]
    assert f"1 in all: {orphaned}" in checks["packages"]["text"]
    assert f"sayso sessions release {orphaned}" in checks["packages"]["hint"]


def test_a_run_whose_node_type_was_removed_is_set_aside(cli: Cli, orphaned: str) -> None:
    """No command works on it; it can be deleted, or it continues once its type is there and it is released."""
    for command in ("resume", "abort", "pause"):
        refused = cli.run("sessions", command, orphaned)
        assert (refused.code, "on hold: the node type `slow_one`" in refused.err) == (6, True), refused
    cli.env["PYTHONPATH"] = str(cli.cwd / "packages")
    assert cli.run("sessions", "release", orphaned).code == 0
    ended = cli.run("sessions", "abort", orphaned, "--json")
    assert (ended.code, ended.json["status"]) == (0, "aborted"), ended
    assert cli.run("sessions", "delete", orphaned).code == 0


def test_a_run_whose_node_type_was_removed_is_deleted(cli: Cli, orphaned: str) -> None:
    """Where the type never comes back, a session that is set aside is deleted as it is."""
    assert cli.run("sessions", "abort", orphaned).code == 6
    gone = cli.run("sessions", "delete", orphaned)
    assert gone.code == 0, gone
    assert cli.run("sessions", "list", "--all", "--json").json["sessions"] == []
