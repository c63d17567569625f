"""`sayso sessions pause`, `show --at`, `fork`, `migrate`, and `sayso graph`, at the real command line."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.clikit import Cli, until
from tests.cli.flowtexts import long_running, two_questions

pytestmark = pytest.mark.process


@pytest.fixture
def paused(cli: Cli) -> dict[str, Any]:
    """A session that waits at its first question, as `run` reported it."""
    two_questions(cli)
    document: dict[str, Any] = cli.run("run", "talk", "-i", "who=bob").json
    return document


def phase(cli: Cli, session_id: str) -> str:
    """The phase that `show` reports."""
    return str(cli.run("sessions", "show", session_id, "--json").json["phase"])


# --- pause -------------------------------------------------------------------------------------------------


def test_a_held_session_takes_an_answer_and_starts_nothing_until_it_is_resumed(
    cli: Cli, paused: dict[str, Any]
) -> None:
    """The answer is recorded, the node behind it starts only after `resume`, and then exactly once."""
    session_id = paused["sessionId"]
    held = cli.run("sessions", "pause", session_id, "--reason", "lunch", "--json")
    assert (held.code, held.json["status"], phase(cli, session_id)) == (0, "paused", "held"), held
    assert "lunch" in cli.run("sessions", "show", session_id).out
    answered = cli.run("prompts", "answer", paused["prompts"][0]["promptId"], "eu")
    assert (answered.code, cli.lines("second"), phase(cli, session_id)) == (3, [], "held"), answered
    resumed = cli.run("sessions", "resume", session_id)
    assert (resumed.code, resumed.json["prompts"][0]["message"], cli.lines("second")) == (3, "Why?", ["ran"])


def test_a_session_that_another_terminal_runs_is_paused_in_the_middle_of_a_node(cli: Cli) -> None:
    """The node is stopped, the terminal rests with exit code 3, and resuming asks what became of the node."""
    long_running(cli)
    with cli.started("run", "slow") as process:
        until(lambda: cli.lines("begun") == ["begun"], "the node begins")
        session_id = cli.run("sessions", "list", "--json").json["sessions"][0]["sessionId"]
        held = cli.run("sessions", "pause", session_id)
        assert (held.code, held.out) == (0, f"{session_id} is held.\n"), held
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
