"""`sayso locks`: who holds which lock and who waits, and taking one from a session that was set aside."""

from __future__ import annotations

import pytest

from engine.storage.sqlite import open_sqlite
from tests.cli.clikit import Cli

pytestmark = pytest.mark.process

DEPLOY = """
flow: deploy
inputs: {service: {}}
lock: "deploy-{{ inputs.service }}"
nodes: [{id: sure, type: ask, with: {message: "Deploy it?"}}]
"""


def begin(cli: Cli, *options: str) -> str:
    """Start a session that wants the lock; its id."""
    cli.write("flows/deploy.yml", DEPLOY)
    document = cli.run("run", "deploy", "-i", "service=api", *options).json
    assert document["status"] == "paused"
    return str(document["sessionId"])


def test_locks_are_listed_with_their_queues(cli: Cli) -> None:
    """The holder first, then who waits, in order; the session that waits says so where it is listed and shown."""
    assert cli.run("locks").out == "There are no locks in use.\n"
    holder, waits = begin(cli), begin(cli, "--no-wait")
    lines = cli.run("locks").out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["deploy-api", holder], ["deploy-api", waits]]
    assert ("holds it" in lines[1], "waits, 1st" in lines[2]) == (True, True)
    listed = cli.run("locks", "--json").json["locks"]
    assert [(entry["sessionId"], entry["takenAt"] is None) for entry in listed] == [
        (holder, False),
        (waits, True),
    ]
    assert {(entry["status"], entry["standing"]) for entry in listed} == {("paused", "waiting")}
    shown = cli.run("sessions", "show", waits).out
    assert f"waits for lock deploy-api, held by {holder} · 1st in the queue" in shown
    assert "holds     lock deploy-api" in cli.run("sessions", "show", holder).out
    assert "lock deploy-api" in cli.run("sessions", "list").out


def test_the_next_one_goes_on_where_it_is_resumed(cli: Cli) -> None:
    """A session that waited and whose turn has come takes the lock; before that a resume that does not wait rests."""
    holder, waits = begin(cli), begin(cli, "--no-wait")
    again = cli.run("sessions", "resume", waits, "--no-wait").json
    assert (again["status"], again["waitsForLock"]) == ("paused", "deploy-api")
    cli.run("sessions", "abort", holder)
    document = cli.run("sessions", "resume", waits).json
    assert [prompt["path"] for prompt in document["prompts"]] == ["sure"]
    assert [entry["sessionId"] for entry in cli.run("locks", "--json").json["locks"]] == [waits]


def test_only_a_session_that_was_set_aside_loses_its_lock(cli: Cli) -> None:
    """Any other one is ended instead, and the command for that is named; wrong names are refused."""
    holder, waits = begin(cli), begin(cli, "--no-wait")
    done = cli.run("locks", "release", "deploy-api", "--session", holder)
    assert (done.code, f"sessions abort {holder}" in done.err) == (2, True)
    assert cli.run("locks", "release", "deploy-web", "--session", holder).code == 2
    assert cli.run("locks", "release", "deploy-api", "--session", "session-none").code == 2
    store = open_sqlite(cli.cwd / ".sayso" / "sayso.db")
    store.quarantine(holder, "damaged", "2026-11-21T09:00:00.000Z")
    store.close()
    assert "on hold" in cli.run("locks").out
    done = cli.run("locks", "release", "deploy-api", "--session", holder.removeprefix("session-")[:6])
    assert (done.code, f"Next: {waits}" in done.out) == (0, True)
    assert cli.run("sessions", "resume", waits).json["prompts"]
