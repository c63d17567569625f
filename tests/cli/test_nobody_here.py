"""Commands without a terminal: they return when only a person, a lock or time can move the session, and say which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bot.cli.app import run
from bot.terminal.follow import Mode
from bot.terminal.follower import Follower
from engine.run.stored import utc_now
from tests.cli.clikit import Cli, until

GATED = """
flow: gated
lock: deploy
nodes:
  - {id: gate, type: approval, with: {message: Go?, approvers: ["@sre"], timeout: 1h}}
"""
NAP = "flow: nap\nnodes: [{id: nap, type: wait, with: {for: 25d}}]\n"
FLAKY = """
flow: flaky
nodes:
  - {id: x, type: shell, with: {run: [sh, -c, "test -e tried || { touch tried; exit 1; }"], cwd: .}, retry: {attempts: 2, delay: 200ms}}
"""


def rests(cli: Cli, *arguments: str) -> dict[str, Any]:
    """What the command says of the session, which it leaves with 3."""
    done = cli.run(*arguments)
    assert (done.code, done.json["status"]) == (3, "paused"), done
    document: dict[str, Any] = done.json
    return document


def test_a_question_waits_for_people(cli: Cli) -> None:
    """Who is asked what, and until when."""
    cli.write("flows/gated.yml", GATED)
    document = rests(cli, "run", "gated", "--no-input")
    assert document["standing"] == "waiting"
    (prompt,) = document["prompts"]
    assert document["waitsFor"] == [
        {
            "kind": "person",
            "promptId": prompt["promptId"],
            "path": "gate",
            "who": ["@sre"],
            "until": prompt["deadline"],
        }
    ]
    assert prompt["deadline"]


def test_a_lock_whose_holder_waits_for_a_person_is_left(cli: Cli) -> None:
    """The run that comes second returns, and names the lock and who holds it; it keeps its place."""
    cli.write("flows/gated.yml", GATED)
    holder = rests(cli, "run", "gated", "--no-input")["sessionId"]
    second = rests(cli, "run", "gated", "--no-input")
    assert second["waitsFor"] == [{"kind": "lock", "name": "deploy", "holder": holder, "until": None}]
    again = rests(cli, "sessions", "resume", second["sessionId"])
    assert again["waitsFor"] == second["waitsFor"]


def test_a_wait_of_25_days_is_left(cli: Cli) -> None:
    """`run --no-input` says until when, and returns at once."""
    cli.write("flows/nap.yml", NAP)
    document = rests(cli, "run", "nap", "--no-input")
    assert document["waitsFor"] == [
        {"kind": "time", "for": "wait", "path": "nap", "until": document["waitsUntil"]}
    ]


def test_the_delay_before_another_try_is_left(cli: Cli) -> None:
    """A backoff is time like any other; the next command does what is due then."""
    cli.write("flows/flaky.yml", FLAKY.replace("200ms", "2h, max_delay: 3h"))
    document = rests(cli, "run", "flaky", "--no-input")
    (wait,) = document["waitsFor"]
    assert (wait["kind"], wait["for"], wait["path"]) == ("time", "retry", "x")
    assert "a time: " in cli.run("sessions", "list").out
    again = rests(cli, "sessions", "resume", document["sessionId"], "--no-wait")
    assert again["waitsUntil"] == document["waitsUntil"]


def test_with_wait_a_command_stays(cli: Cli) -> None:
    """Where a short time is worth it, `--wait` goes through it."""
    cli.write("flows/flaky.yml", FLAKY)
    done = cli.run("run", "flaky", "--no-input", "--wait")
    assert (done.code, done.json["status"], done.json["waitsFor"]) == (0, "complete", []), done


def test_a_held_session_waits_for_a_person(cli: Cli) -> None:
    """Whoever paused it, or an admin, lets it continue."""
    cli.write("flows/nap.yml", NAP)
    session_id = rests(cli, "run", "nap", "--no-input")["sessionId"]
    held = cli.run("sessions", "pause", session_id, "--json")
    assert [wait["kind"] for wait in held.json["waitsFor"]] == ["person", "time"]


def test_an_answer_after_its_deadline_is_refused_and_the_deadline_applied(cli: Cli) -> None:
    """The command says when the deadline was and what happened then, and exits with 5; the step did not run."""
    cli.flow(
        "late",
        '{id: gate, type: approval, with: {message: Go?, approvers: ["@sre"], timeout: 100ms}}',
        "{id: work, type: shell, with: {run: [touch, ran], cwd: .}}",
    )
    document = rests(cli, "run", "late", "--no-input")
    (prompt,) = document["prompts"]
    until(lambda: utc_now() > prompt["deadline"], "the time to answer is over")
    done = cli.run("prompts", "answer", prompt["promptId"], "Approve", "--as", "@sre")
    assert (done.code, "timed out" in done.err) == (5, True), done
    shown = cli.run("sessions", "show", document["sessionId"], "--json").json
    assert (shown["status"], (cli.cwd / "ran").exists()) == ("failed", False)


class Stays(Exception):
    """A command waits until somebody or something else moves its session."""


@pytest.mark.parametrize(("flow", "before"), [(NAP, 0), (GATED, 1)], ids=["time", "lock"])
def test_a_command_that_stays_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flow: str, before: int
) -> None:
    """The seeded fault: were times and locks waited for without a terminal too, the command would not return."""

    async def stays(self: Follower, seq: int) -> None:
        raise Stays

    tmp_path.chmod(0o700)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Follower, "_moved_or_left", stays)
    Path("flow.yml").write_text(flow)
    command = ["--home", "home", "run", "flow.yml", "--no-input"]
    assert [run(command) for _ in range(before + 1)] == [3] * (before + 1)
    monkeypatch.setattr(Mode, "of", lambda **_: Mode(ask=False, wait=True, json=True))
    with pytest.raises(Stays):
        run(command)
