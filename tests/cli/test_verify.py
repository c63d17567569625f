"""`sayso verify`: an exported run is checked alone, and what is wrong with it is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bot.cli.store import verify_history
from bot.terminal.console import Place
from tests.cli.clikit import Cli
from tests.cli.flowtexts import two_questions

pytestmark = pytest.mark.process


@pytest.fixture
def exported(cli: Cli) -> Path:
    """A session that waits at its first question, as a file."""
    two_questions(cli)
    session_id = cli.run("run", "talk", "-i", "who=bob").json["sessionId"]
    done = cli.run("sessions", "export", session_id, "-o", "run.json")
    assert done.code == 0, done
    return cli.cwd / "run.json"


def changed(file: Path, change: Callable[[list[dict[str, Any]]], None]) -> Path:
    """A copy of the file with another journal, numbered as if nothing had happened."""
    document = json.loads(file.read_bytes())
    change(document["journal"])
    for seq, event in enumerate(document["journal"], 1):
        event["seq"] = seq
    copy = file.with_name("changed.json")
    copy.write_text(json.dumps(document))
    return copy


def verdict(file: Path, capsys: pytest.CaptureFixture[str], home: Path) -> dict[str, Any]:
    """What `sayso verify --json` says, with its exit code."""
    capsys.readouterr()
    code = verify_history(Place(home=str(home)), str(file), as_json=True)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return {**found, "code": code}


def test_a_session_and_its_file_verify(cli: Cli, exported: Path) -> None:
    """By id with all MACs; as a file with the key of this home, and alone, which says that only the order was checked."""
    session_id = json.loads(exported.read_bytes())["sessionId"]
    for what in (session_id, "run.json"):
        done = cli.run("verify", what)
        assert (done.code, "nobody changed it" in done.out) == (0, True), done
    alone = cli.run("--home", "elsewhere", "verify", "run.json")
    assert (alone.code, "only its order was checked" in alone.out) == (0, True), alone
    assert not (cli.cwd / "elsewhere").exists()
    nothing = cli.run("verify", "no-such-file.json")
    assert nothing.code == 2, nothing


def test_a_tampered_file_says_which_event_is_wrong_and_why(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a key, a deleted event, a duplicated one and one of another node are found."""

    def delete(journal: list[dict[str, Any]]) -> None:
        journal[:] = [event for event in journal if event["type"] != "flow:started"]

    def double(journal: list[dict[str, Any]]) -> None:
        journal.insert(3, dict(journal[2]))

    def foreign(journal: list[dict[str, Any]]) -> None:
        next(event for event in journal if event["type"] == "node:started")["nodeId"] = "other"

    for change, event in ((delete, "event 2"), (double, "event 4"), (foreign, "event 3")):
        told = verdict(changed(exported, change), capsys, tmp_path / "none")
        assert (told["code"], told["verifies"], told["checked"]) == (6, False, ["order"])
        assert told["problem"].startswith(event), told


def test_a_key_that_stands_twice_is_refused(exported: Path, cli: Cli) -> None:
    """A file that another reader takes for another one is not verified."""
    text = exported.read_text()
    cli.write("changed.json", text.replace('"sessionId"', '"sessionId":"session-other","sessionId"', 1))
    done = cli.run("verify", "changed.json")
    assert (done.code, "'sessionId' appears twice" in done.err) == (5, True), done


def test_what_was_said_is_covered_by_the_signature(
    exported: Path, cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another name for the requester is another possible history: only the key tells."""

    def rename(journal: list[dict[str, Any]]) -> None:
        journal[0]["actor"]["name"] = "mallory"

    copy = changed(exported, rename)
    document = json.loads(copy.read_bytes())
    document["state"]["actor"]["name"] = "mallory"
    copy.write_text(json.dumps(document))
    assert verdict(copy, capsys, tmp_path / "none")["verifies"]
    done = cli.run("verify", "changed.json", "--json")
    assert (done.code, done.json["verifies"]) == (6, False)
    assert "was changed, or was signed with another key" in done.json["problem"]


def test_a_state_that_its_journal_does_not_give_is_refused(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The state in a file is a cache of its journal."""
    document = json.loads(exported.read_bytes())
    document["state"]["phase"] = "ended"
    exported.write_text(json.dumps(document))
    assert (
        "differs from the state that its journal gives"
        in verdict(exported, capsys, tmp_path / "none")["problem"]
    )
