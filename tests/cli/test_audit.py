"""`sayso audit export`: complete, each record once, and verified without a running bot."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy.verify_audit import check
from tests.cli.clikit import Cli, command, environment
from tests.cli.flowtexts import gated, two_questions

pytestmark = pytest.mark.process


@pytest.fixture
def approved(cli: Cli) -> str:
    """A session in which somebody approved with a reason; its id."""
    gated(cli, "['local:ana']")
    started = cli.run("run", "gated", "--no-input", "--json").json
    prompt_id = started["prompts"][0]["promptId"]
    done = cli.run("prompts", "answer", prompt_id, "approve", "--as", "ana", "--reason", "=1+1", "--json")
    assert done.code == 0, done
    return str(started["sessionId"])


def records(cli: Cli, *options: str) -> list[dict[str, Any]]:
    """The records of an export to standard output."""
    done = cli.run("audit", "export", *options)
    assert done.code == 0, done
    return [told for line in done.out.splitlines() if "id" in (told := json.loads(line))]


def test_an_export_says_who_was_asked_who_decided_and_what_ran(cli: Cli, approved: str) -> None:
    """One record an event, under ids that do not change."""
    found = records(cli)
    told = {record["action"]: record for record in found}
    assert told["prompt:requested"]["asked"] == "local:ana"
    answer = told["prompt:answered"]
    assert (answer["actorName"], answer["decision"], answer["reason"]) == ("ana", "approve", "=1+1")
    assert [record["path"] for record in found if record["action"] == "node:started"] == ["gate", "rolled"]
    assert (told["session:end"]["outcome"], told["session:end"]["sessionId"]) == ("complete", approved)
    assert found == records(cli)
    assert len({record["id"] for record in found}) == len(found)


def test_a_cursor_goes_on_where_the_export_before_ended(cli: Cli, approved: str) -> None:
    """A session that continued gives what is new, one that did not gives nothing; a new cursor gives everything."""
    first = records(cli, "--cursor", "seen")
    assert records(cli, "--cursor", "seen") == []
    two_questions(cli)
    cli.run("run", "talk", "-i", "who=bob")
    added = records(cli, "--cursor", "seen")
    assert added
    assert {record["id"] for record in added}.isdisjoint(record["id"] for record in first)
    assert sorted(record["id"] for record in [*first, *added]) == sorted(
        record["id"] for record in records(cli, "--cursor", "other")
    )


def test_a_file_that_was_changed_does_not_verify(cli: Cli, approved: str) -> None:
    """By the home that wrote it, and elsewhere by the public key; the place is named."""
    file = cli.cwd / "page"
    assert cli.run("audit", "export", "-o", "page").code == 0
    assert "Verified" in cli.run("verify", "page").out
    key = cli.run("audit", "key").out.strip()
    assert cli.run("--home", "elsewhere", "verify", "page", "--key", key).code == 0
    file.write_bytes(file.read_bytes().replace(b'"ana"', b'"eve"'))
    done = cli.run("verify", "page", "--json")
    assert (done.code, done.json["verifies"], "page, line" in done.json["problem"]) == (6, False, True), done


def test_the_key_of_an_auditor_is_enough_after_another_one_took_its_place(cli: Cli, approved: str) -> None:
    """The first key has signed the second one, which a script without sayso follows."""
    first = cli.run("audit", "key").out.strip()
    assert len(cli.run("audit", "key", "--rotate").out.split()) == 2
    two_questions(cli)
    cli.run("run", "talk", "-i", "who=bob", "--no-input")
    assert cli.run("audit", "export", "-o", "page").code == 0
    script = Path(__file__).parents[2] / "deploy/verify_audit.py"
    command = [sys.executable, "-I", str(script), first, "page"]
    done = subprocess.run(command, cwd=cli.cwd, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[:9]) == (0, "Verified:"), done


def test_the_end_of_a_run_is_attested_and_published(cli: Cli, approved: str) -> None:
    """A checkpoint of the run that ended is in the file that the setting names, and the export agrees with it."""
    cli.env["SAYSO_CHECKPOINTS"] = "published"
    assert cli.run("prompts", "answer", cli.asked("gated"), "approve", "--as", "ana").code == 0
    published = (cli.cwd / "published").read_bytes()
    assert published.startswith(b"sayso/")
    assert cli.run("audit", "export", "-o", "page").code == 0
    key = cli.run("audit", "key").out.strip()
    assert check([key], [("page", (cli.cwd / "page").read_bytes()), ("published", published)])


def test_a_checkpoint_that_cannot_be_published_is_one_warning_of_a_command_that_succeeds(cli: Cli) -> None:
    """The run is answered and attested; the next command publishes what covers it."""
    cli.env["SAYSO_CHECKPOINTS"] = "folder/published"
    gated(cli, "['local:ana']")
    for folder in (False, True):
        done = cli.run("prompts", "answer", cli.asked("gated"), "approve", "--as", "ana")
        assert (done.code, done.err.count("cannot be published")) == (0, int(not folder)), done
        (cli.cwd / "folder").mkdir(exist_ok=True)
    key = cli.run("audit", "key").out.strip()
    assert cli.run("audit", "export", "-o", "page").code == 0
    files = [(name, (cli.cwd / name).read_bytes()) for name in ("page", "folder/published")]
    assert "1 published checkpoints" in check([key], files)


def test_an_auditor_follows_a_store_that_is_copied_to_another_key(cli: Cli, approved: str) -> None:
    """The first key is enough for an export of the old store and the next one of the new; the old key signs that once."""
    key = cli.run("audit", "key").out.strip()
    assert cli.run("audit", "export", "-o", "one.jsonl", "--cursor", "seen").code == 0
    secret = f"hex:{'ab' * 32}"
    cli.write("new.env", f"SAYSO_SECRET_KEY={secret}\n").chmod(0o600)
    copied = cli.run("store", "copy", ".sayso/sayso.db", "new.db", "--to-env", "new.env")
    assert copied.code == 0, copied
    cli.env = {"SAYSO_SECRET_KEY": secret}
    two_questions(cli)
    assert cli.run("--db", "new.db", "run", "talk", "-i", "who=bob", "--no-input").code in (0, 3)
    assert cli.run("--db", "new.db", "audit", "export", "-o", "two.jsonl", "--cursor", "seen").code == 0
    files = [(name, (cli.cwd / name).read_bytes()) for name in ("one.jsonl", "two.jsonl")]
    assert check([key], files).startswith("Verified")
    assert len(cli.run("--db", "new.db", "audit", "key").out.split()) == 2
    assert "audit key" in cli.run("--db", "new.db", "doctor").out
    assert cli.run("--db", "new.db", "verify", "two.jsonl").code == 0


def test_a_fork_and_a_run_that_is_tried_again_are_attested_as_runs_of_their_own(cli: Cli) -> None:
    """Their records have their own ids, though their past is that of another run."""
    cli.flow("flaky", "{id: look, type: shell, with: {run: [test, -e, ready]}}")
    failed = cli.run("run", "flaky").json["sessionId"]
    cli.write("ready", "")
    again = cli.run("sessions", "retry", failed).json["sessionId"]
    two_questions(cli)
    paused = cli.run("run", "talk", "-i", "who=bob").json["sessionId"]
    fork = cli.run("sessions", "fork", paused, "--at", "3", "--json").json["sessionId"]
    assert {record["sessionId"] for record in records(cli)} == {failed, again, paused, fork}
    assert cli.run("audit", "export", "-o", "page.jsonl", "--content").code == 0
    assert "Verified" in cli.run("verify", "page.jsonl").out


def test_a_damaged_session_is_named_and_the_others_are_exported(cli: Cli, approved: str) -> None:
    """No cursor is written, so that it is exported once it is restored."""
    two_questions(cli)
    other = cli.run("run", "talk", "-i", "who=bob").json["sessionId"]
    with sqlite3.connect(next(cli.cwd.rglob("sayso.db"))) as database:
        tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
        assert "journal" in tables
        database.execute(
            "UPDATE journal SET body = zeroblob(8) WHERE rowid = (SELECT max(rowid) FROM journal)"
        )
    done = cli.run("audit", "export", "--cursor", "seen", "-o", "trail.jsonl")
    assert (done.code, f"{other} is left out" in done.err) == (6, True), done
    assert approved in (cli.cwd / "trail.jsonl").read_text()
    assert not (cli.cwd / "seen").exists()


def test_what_cannot_be_used_is_said_in_one_line(cli: Cli, approved: str) -> None:
    """A cursor or a file; nothing is written."""
    cli.write("torn", "{")
    for options, told in (
        ("--cursor torn", "is not a cursor"),
        ("-o torn", "exists"),
        ("-o same --cursor same", "another file"),
        ("-o nowhere/file", "cannot be written"),
    ):
        done = cli.run("audit", "export", *options.split())
        assert (done.code, done.out, told in done.err) == (2, "", True), done
    assert (cli.cwd / "torn").read_text() == "{"


def test_what_was_typed_is_in_no_export_that_was_not_asked_for_it(cli: Cli) -> None:
    """A decision is what was chosen of what a flow offered; words of people are a digest."""
    two_questions(cli)
    cli.run("run", "talk", "-i", "who=bob", "--no-input")
    for answer in ("eu", "WORDS-OF-ANA"):
        prompt_id = cli.run("prompts", "list", "--json").json["prompts"][0]["promptId"]
        assert cli.run("prompts", "answer", prompt_id, answer).code in (0, 3)
    assert "WORDS-OF-ANA" not in cli.run("audit", "export").out
    told = [record.get("decision") for record in records(cli) if record["action"] == "prompt:answered"]
    assert told == ["eu", None]
    assert "WORDS-OF-ANA" in cli.run("audit", "export", "--content").out


def test_a_cursor_that_was_edited_or_is_of_another_store_is_refused(cli: Cli, approved: str) -> None:
    """Whoever can write to it could hide records from the next export."""
    records(cli, "--cursor", "seen")
    cli.write("edited", (cli.cwd / "seen").read_text().replace("\n2\n", "\n1\n"))
    two_questions(cli)
    cli.run("--home", "other", "run", "talk", "-i", "who=bob", "--no-input")
    for words in (("--cursor", "edited"), ("--home", "other", "--cursor", "seen")):
        home, rest = (words[:2], words[2:]) if words[0] == "--home" else ((), words)
        done = cli.run(*home, "audit", "export", *rest)
        assert (done.code, done.out, "belongs to another store" in done.err) == (2, "", True), done


def test_a_full_disk_behind_standard_output_is_said_and_the_cursor_stays(cli: Cli, approved: str) -> None:
    """In one sentence; the next export gives the same records."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, *command("audit", "export", "--cursor", "seen")],
            cwd=cli.cwd,
            env=environment(cli.cwd),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        2,
        "sayso: The export cannot be written: No space left on device.\n",
    )
    assert not (cli.cwd / "seen").exists()


def test_what_cannot_be_verified_is_said_in_one_line(cli: Cli, approved: str) -> None:
    """A folder, nothing, and a name that no file can have."""
    for name in (".", "/", "", "a" * 300):
        done = cli.run("verify", name)
        assert (done.code, "Traceback" in done.err) == (2, False), done
