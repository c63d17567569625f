"""`sayso sessions` and `sayso prompts`: looking changes nothing, ids may be short, refusals say why."""

from __future__ import annotations

import io
import sqlite3
import stat
from contextlib import closing
from typing import Any

import pytest

from bot.cli.sessions import list_sessions
from bot.terminal.console import Paint, Place, table
from engine.storage.open import open_store
from engine.storage.tables import session_number
from prompt_state import question_row
from tests.cli.clikit import Cli
from tests.cli.flowtexts import two_questions

pytestmark = pytest.mark.process


def test_looking_makes_no_database(cli: Cli) -> None:
    """Where nothing ever ran there is nothing to list, and looking leaves no trace."""
    assert cli.run("sessions", "list").out == "No open sessions. Add --all to list ended ones.\n"
    assert cli.run("prompts", "list", "--json").json == {"prompts": []}
    assert cli.run("sessions", "show", "session-1").code == 2
    assert list(cli.cwd.iterdir()) == []


def test_a_paused_session_is_listed_with_what_it_waits_for(cli: Cli, paused: dict[str, Any]) -> None:
    """The list has flow, status, place and the open question, for people and for machines."""
    shown = cli.run("sessions", "list").out
    for word in (paused["sessionId"], "talk", "waiting", "terminal", "Which region for bob?"):
        assert word in shown
    listed = cli.run("sessions", "list", "--json").json["sessions"]
    assert [entry["sessionId"] for entry in listed] == [paused["sessionId"]]
    assert listed[0]["prompts"] == [paused["prompts"][0]["promptId"]]
    assert cli.run("sessions", "list", "--status", "complete", "--json").json == {"sessions": []}


def test_a_decision_is_no_failure_in_any_list(cli: Cli) -> None:
    """What people rejected is listed as that, what broke as failed, and each filter gives its own."""
    gate = "{id: gate, type: approval, with: {message: Go?, approvers: ['local:tester', channel, requester]}}"
    cli.flow("gate", gate)
    cli.flow("broken", "{id: a, type: fail, with: {message: no}}")
    said_no = cli.run("run", "gate").json
    assert cli.run("prompts", "answer", said_no["prompts"][0]["promptId"], "Reject").code == 8
    broke = cli.run("run", "broken").json
    for status, wanted in (("rejected", said_no), ("failed", broke)):
        listed = cli.run("sessions", "list", "--status", status, "--json").json["sessions"]
        assert [(one["sessionId"], one["standing"]) for one in listed] == [(wanted["sessionId"], status)]
    assert "rejected" in cli.run("sessions", "list", "--status", "rejected").out


def test_a_list_says_why_runs_failed(cli: Cli) -> None:
    """As the control room's does: the error, or who rejected it and why; programs get the error itself."""
    cli.flow("gate", "{id: gate, type: approval, with: {message: Go?, approvers: ['local:ana']}}")
    cli.flow("broken", "{id: a, type: fail, with: {message: disk full}}")
    prompt = cli.run("run", "gate").json["prompts"][0]["promptId"]
    cli.run("prompts", "answer", prompt, "Reject", "--reason", "not now")
    cli.run("run", "broken")
    broken, rejected = cli.run("sessions", "list", "--all").out.splitlines()[1:]
    assert broken.endswith("disk full")
    assert rejected.endswith("rejected by ana: not now")
    listed = cli.run("sessions", "list", "--status", "failed", "--json").json["sessions"]
    assert [one["error"]["message"] for one in listed] == ["disk full"]


def test_how_a_run_stands_is_one_word_in_all_documents(cli: Cli, paused: dict[str, Any]) -> None:
    """Waiting for an answer, then paused by somebody: `standing` tells them apart in what is listed, shown and run."""
    session_id = paused["sessionId"]

    def words() -> set[str]:
        [listed] = cli.run("sessions", "list", "--json").json["sessions"]
        shown = cli.run("sessions", "show", session_id, "--json").json
        return {listed["standing"], shown["standing"]}

    assert (paused["standing"], words()) == ("waiting", {"waiting"})
    held = cli.run("sessions", "pause", session_id, "--json").json
    assert (held["standing"], words()) == ("paused", {"paused"})


def test_sessions_stand_in_the_list_by_the_words_of_all_places(cli: Cli, paused: dict[str, Any]) -> None:
    """It is completed or cancelled, as on the card; the names that programs know select the same."""
    cli.run("sessions", "abort", paused["sessionId"])
    cli.flow("empty", "{id: a, type: noop}")
    cli.run("run", "empty")
    for status, known in (("cancelled", "aborted"), ("completed", "complete")):
        shown = cli.run("sessions", "list", "--status", status).out
        assert (f"  {status}  " in shown, known in shown.split()) == (True, False), shown
        listed = cli.run("sessions", "list", "--status", known, "--json").json["sessions"]
        assert [one["sessionId"] for one in listed] == shown.splitlines()[1].split()[:1]


def test_sessions_and_questions_of_the_local_workspace_are_listed(cli: Cli, paused: dict[str, Any]) -> None:
    """Their ids are taken by all commands, so the lists of this home have them too, and say where they are."""
    local = cli.run("--home", ".sayso/dev", "run", "talk", "-i", "who=eve").json
    listed = cli.run("sessions", "list", "--json").json["sessions"]
    ids = [(one["sessionId"], one["workspace"]) for one in listed]
    assert ids == [(local["sessionId"], True), (paused["sessionId"], False)]
    shown = cli.run("sessions", "list").out.splitlines()
    assert ["  dev  " in line for line in shown[1:]] == [True, False]
    (newest,) = cli.run("sessions", "list", "--limit", "1", "--json").json["sessions"]
    assert newest["sessionId"] == local["sessionId"]
    asked = {one["promptId"] for one in cli.run("prompts", "list", "--json").json["prompts"]}
    assert asked == {one["prompts"][0]["promptId"] for one in (local, paused)}


def test_a_workspace_that_cannot_be_read_hides_no_session(cli: Cli, paused: dict[str, Any]) -> None:
    """The list of this home is whole, and says what it leaves out."""
    cli.write(".sayso/dev/sayso.db", "no database")
    done = cli.run("sessions", "list")
    assert (done.code, paused["sessionId"] in done.out) == (0, True), done
    assert done.err.startswith("The local workspace (sayso dev) is left out: "), done


def test_an_empty_list_says_how_to_ask_the_workspace(cli: Cli) -> None:
    """Lists that are about one home only name the command for the other one."""
    cli.flow("ask", "{id: a, type: ask, with: {message: Why?}}")
    cli.run("--home", ".sayso/dev", "run", "ask", "--no-input")
    elsewhere = f"In the local workspace (sayso dev): sayso --home {cli.cwd}/.sayso/dev locks"
    assert cli.run("locks").out == f"There are no locks in use. {elsewhere}\n"


def test_a_list_reads_no_question_that_it_does_not_show(
    cli: Cli, paused: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many sessions wait: a list of the newest one reads the question of that one."""
    newer = cli.run("run", "talk", "-i", "who=eve").json
    read, found = question_row.read, list[str]()
    monkeypatch.setattr(question_row, "read", lambda row: found.append(row.prompt_id) or read(row))
    monkeypatch.chdir(cli.cwd)
    list_sessions(Place(home=".sayso"), (), show_all=False, limit=1, as_json=False)
    assert found == [newer["prompts"][0]["promptId"]]


def test_a_list_is_cut_at_the_terminal_and_never_for_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last column ends with the terminal; whoever searches what is printed finds all of it."""
    rows, paint = [["gate", "word " * 40]], Paint(io.StringIO())
    assert table(["FLOW", "WAITS FOR"], rows, paint)[1].count("word") == 40
    monkeypatch.setenv("COLUMNS", "60")
    assert len(table(["FLOW", "WAITS FOR"], rows, paint)[1]) <= 60


def test_an_unknown_status_is_refused(cli: Cli, paused: dict[str, Any]) -> None:
    """A status that does not exist is a wrong usage that names those that do."""
    done = cli.run("sessions", "list", "--status", "sleeping")
    assert (done.code, "waiting, paused, out of reach, completed" in done.err) == (2, True)


def test_show_is_a_readable_view(cli: Cli, paused: dict[str, Any]) -> None:
    """Requester, inputs, every node with its state, and the open question with the command that answers it."""
    shown = cli.run("sessions", "show", paused["sessionId"]).out
    for part in (
        "by ana at the terminal",
        "who = bob",
        "✓ first",
        "… region",
        "· second",
        "Which region for bob?",
        f"sayso prompts answer {paused['prompts'][0]['promptId']} ANSWER",
    ):
        assert part in shown, shown


def test_show_as_json_is_the_inspection_with_its_journal(cli: Cli, paused: dict[str, Any]) -> None:
    """The document has the specification's names; a waiting node's output is `awaiting`; events are in order."""
    document = cli.run("sessions", "show", paused["sessionId"], "--json", "--events").json
    assert document["outputs"]["region"] == {"awaiting": True, "promptId": paused["prompts"][0]["promptId"]}
    assert [event["seq"] for event in document["events"]] == list(range(1, document["seq"] + 1))
    text = cli.run("sessions", "show", paused["sessionId"], "--events").out
    assert "session:start" in text


def test_ids_may_be_shortened(cli: Cli, paused: dict[str, Any]) -> None:
    """A beginning that only one session has is enough, with or without its `session-`."""
    short = paused["sessionId"].removeprefix("session-")[:6]
    for text in (short, f"session-{short}"):
        assert cli.run("sessions", "show", text, "--json").json["sessionId"] == paused["sessionId"]


def test_an_ambiguous_id_names_its_candidates(cli: Cli, paused: dict[str, Any]) -> None:
    """A beginning that several have is refused, and they are named."""
    other = cli.run("run", "talk", "-i", "who=eve").json["sessionId"]
    done = cli.run("sessions", "show", "session-")
    assert (done.code, other in done.err, paused["sessionId"] in done.err) == (2, True, True)


def test_an_unknown_id_names_no_other(cli: Cli, paused: dict[str, Any]) -> None:
    """A slip in an id is a clear message, and names no session or question of somebody else."""
    session, prompt = paused["sessionId"], paused["prompts"][0]["promptId"]
    for group, command in (
        ("sessions", "resume"),
        ("sessions", "fork"),
        ("sessions", "abort"),
        ("prompts", "show"),
    ):
        known = session if group == "sessions" else prompt
        done = cli.run(group, command, f"{known[:-1]}z")
        assert (done.code, "There is no" in done.err, known in done.err) == (2, True, False), done


def test_abort_ends_a_session_for_good(cli: Cli, paused: dict[str, Any]) -> None:
    """An aborted session is told as such; whatever is asked of it afterwards is refused and changes nothing."""
    session_id = paused["sessionId"]
    done = cli.run("sessions", "abort", session_id, "--reason", "not today", "--json")
    assert (done.code, done.json["status"]) == (0, "aborted"), done
    for arguments in (
        ("sessions", "abort", session_id),
        ("sessions", "resume", session_id, "go"),
        ("prompts", "answer", paused["prompts"][0]["promptId"], "eu"),
    ):
        again = cli.run(*arguments)
        assert (again.code, again.out) == (5, ""), again
    (entry,) = cli.run("sessions", "list", "--all", "--json").json["sessions"]
    assert entry["status"] == "aborted"
    assert cli.lines("second") == []


# --- prompts -----------------------------------------------------------------------------------------------


def test_open_questions_are_listed_with_whom_they_ask(cli: Cli, paused: dict[str, Any]) -> None:
    """The list has the question, whom it asks, and what may be chosen."""
    shown = cli.run("prompts", "list").out
    for word in (paused["prompts"][0]["promptId"], "talk", "ana", "eu | us", "Which region for bob?"):
        assert word in shown
    entry = cli.run("prompts", "list", "--json").json["prompts"][0]
    assert (entry["sessionId"], entry["asked"]) == (paused["sessionId"], ["requester"])


def test_an_answer_goes_on_with_the_session(cli: Cli, paused: dict[str, Any]) -> None:
    """An answer by value runs on to the next question; the last one ends the session; each node ran once."""
    first = cli.run("prompts", "answer", paused["prompts"][0]["promptId"], "--value", "us", "--json")
    assert (first.code, first.json["prompts"][0]["message"]) == (3, "Why?")
    second = cli.run("prompts", "answer", first.json["prompts"][0]["promptId"], "--text", "so")
    assert second.code == 0
    assert "Hello bob in us: so" in second.out
    assert cli.lines("first") == cli.lines("second") == ["ran"]


NO_ANSWERS: list[tuple[list[str], int, str]] = [
    (["north"], 5, "Please choose one of: eu, us."),
    (["2"], 5, "Please choose one of: eu, us."),
    (["--value", "EU West"], 5, "Please choose one of: eu, us."),
    (["--text", "eu"], 5, "takes a choice, not a text"),
    (["eu", "--as", "mallory"], 5, "Only ana at the terminal can answer this."),
    (["eu", "--value", "us"], 2, "Give one answer"),
    ([], 2, "Give one answer"),
]


def test_an_answer_that_cannot_be_taken_changes_nothing(cli: Cli, paused: dict[str, Any]) -> None:
    """No option, nobody who may answer, or two answers at once: refused, and the question stays open."""
    prompt_id = paused["prompts"][0]["promptId"]
    for arguments, code, said in NO_ANSWERS:
        done = cli.run("prompts", "answer", prompt_id, *arguments)
        assert (done.code, said in done.err) == (code, True), done
    (entry,) = cli.run("prompts", "list", "--json").json["prompts"]
    assert entry["promptId"] == prompt_id


# --- files -------------------------------------------------------------------------------------------------


@pytest.fixture
def carried(cli: Cli) -> str:
    """A session that waits in the home `here`, with a key that both homes share, and is exported to `it.json`; its id."""
    two_questions(cli)
    cli.env = {"SAYSO_SECRET_KEY": "a secret that both share"}
    session_id = str(cli.run("--home", "here", "run", "talk", "-i", "who=eve").json["sessionId"])
    written = cli.run("--home", "here", "sessions", "export", session_id, "-o", "it.json")
    assert written.code == 0, written
    return session_id


def sessions_there(cli: Cli) -> list[Any]:
    """The sessions in the other home."""
    listed: list[Any] = cli.run("--home", "there", "sessions", "list", "--all", "--json").json["sessions"]
    return listed


def test_an_exported_session_goes_on_on_another_machine(cli: Cli, carried: str) -> None:
    """With the same key the file is continued in another home, where nothing of the session was known before."""
    assert stat.S_IMODE((cli.cwd / "it.json").stat().st_mode) == 0o600
    there = ("--home", "there", "sessions", "resume")
    first = cli.run(*there, "--snapshot", "it.json", "--answer", "us")
    assert (first.code, first.json["prompts"][0]["message"]) == (3, "Why?"), first
    second = cli.run(*there, carried, "moved")
    assert (second.code, "Hello eve in us: moved" in second.err) == (0, True), second
    assert cli.lines("second") == ["ran"]


def test_a_file_to_which_nothing_like_that_can_be_said_brings_nothing(cli: Cli, carried: str) -> None:
    """An answer that the session's question does not take is refused before the session is brought in."""
    for wrong in (
        ("--prompt", "prompt-x", "--answer", "us"),
        ("--prompt", "prompt-"),
        ("x", "--answer", "us"),
    ):
        done = cli.run("--home", "there", "sessions", "resume", carried, "--snapshot", "it.json", *wrong)
        assert done.code == 2, done
    assert sessions_there(cli) == []


@pytest.mark.parametrize("wrong", ["key", "content", "shape"])
def test_a_file_that_does_not_verify_is_refused(cli: Cli, carried: str, wrong: str) -> None:
    """A file with another key, a changed word or other content is refused, and nothing is imported."""
    text = (cli.cwd / "it.json").read_text()
    if wrong == "key":
        cli.env = {"SAYSO_SECRET_KEY": "a secret of somebody else"}
    cli.write("it.json", {"key": text, "content": text.replace("eve", "eva"), "shape": "{}"}[wrong])
    done = cli.run("--home", "there", "sessions", "resume", "--snapshot", "it.json", "--answer", "us")
    assert (done.code, done.out) == (5, ""), done
    assert sessions_there(cli) == []


def test_a_snapshot_is_refused_where_the_session_is_further(cli: Cli, paused: dict[str, Any]) -> None:
    """A file from before does not turn a session back."""
    cli.write("it.json", cli.run("sessions", "export", paused["sessionId"]).out)
    cli.run("prompts", "answer", paused["prompts"][0]["promptId"], "eu")
    done = cli.run("sessions", "resume", "--snapshot", "it.json", "--answer", "us")
    assert (done.code, "resume the session itself" in done.err) == (5, True), done
    assert cli.lines("second") == ["ran"]


# --- damage ------------------------------------------------------------------------------------------------


def test_damaged_records_are_said_and_never_resumed(cli: Cli, paused: dict[str, Any]) -> None:
    """A changed byte in the journal: `show` and `resume` end with 6 and say so, and nothing of it runs."""
    with closing(sqlite3.connect(cli.cwd / ".sayso/sayso.db")) as connection:
        connection.execute("UPDATE journal SET body = CAST(body || 'x' AS BLOB)")
        connection.execute("DELETE FROM snapshots")
        connection.commit()
    shown = cli.run("sessions", "show", paused["sessionId"])
    assert (shown.code, "do not verify" in shown.out) == (6, True), shown
    resumed = cli.run("prompts", "answer", paused["prompts"][0]["promptId"], "eu")
    assert resumed.code == 6, resumed
    assert "Traceback" not in resumed.err
    assert cli.lines("second") == []


def test_a_database_without_its_key_is_refused(cli: Cli, paused: dict[str, Any]) -> None:
    """Rows whose key is gone are not believed: exit code 6, with what to do."""
    (cli.cwd / ".sayso/sayso.db.key").unlink()
    done = cli.run("sessions", "list")
    assert (done.code, "SAYSO_SECRET_KEY" in done.err) == (6, True), done


def test_a_session_that_was_set_aside_is_released_once_it_verifies(cli: Cli, paused: dict[str, Any]) -> None:
    """What was changed outside stays set aside and says so; put back as it was, it verifies and continues."""
    session_id = paused["sessionId"]
    assert (cli.run("sessions", "release", session_id).code, paused["status"]) == (2, "paused")
    file = next(cli.cwd.rglob("sayso.db"))
    store = open_store(f"sqlite:///{file}")
    store.quarantine(session_id, "a test", "2026-11-21T09:00:00.000Z")
    store.close()
    change = "UPDATE journal SET body = ? WHERE session = ? AND seq = 1"
    number = session_number(session_id)
    with closing(sqlite3.connect(file)) as db:
        select = "SELECT body FROM journal WHERE session = ? AND seq = 1"
        ((body,),) = db.execute(select, (number,)).fetchall()
        db.execute(change, (body + b" ", number))
        db.commit()
    refused = cli.run("sessions", "release", session_id)
    assert (refused.code != 0, "stays on hold" in refused.err) == (True, True), refused
    with closing(sqlite3.connect(file)) as db:
        db.execute(change, (body, number))
        db.commit()
    released = cli.run("sessions", "release", session_id)
    assert (released.code, "is released" in released.out) == (0, True), released
    assert cli.run("sessions", "release", session_id).code == 2
