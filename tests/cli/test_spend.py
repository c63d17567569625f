"""`sayso spend`: what agents have cost, and what is left of the day."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from engine.journal.records import NANO, PutSpend, Row, SettleSpend
from engine.storage.sqlite import open_sqlite
from tests.cli.clikit import Cli

pytestmark = pytest.mark.process

AGENT = """
flow: incident
nodes:
  - {id: helper, type: agent, with: {prompt: Why is it failing?}}
"""


def today() -> date:
    """The day as it is counted."""
    return datetime.now(UTC).date()


def spent(cli: Cli, *rows: Row) -> None:
    """Put what was spent into the database of this place."""
    folder = cli.cwd / ".sayso"
    folder.mkdir(mode=0o700, exist_ok=True)
    store = open_sqlite(folder / "sayso.db")
    store.consume([], f"{today()}T00:00:00.000Z", rows)
    store.close()


def call(session_id: str, flow: str, number: int, dollars: float, *, days_ago: int = 0) -> PutSpend:
    """A model call."""
    day = (today() - timedelta(days=days_ago)).isoformat()
    return PutSpend(session_id, f"a/turn[{number}]", 1, flow, day, int(dollars * NANO))


def test_without_any_there_is_the_cap_to_tell(cli: Cli) -> None:
    """A place where no agent ran says so, and what a day may cost; without a cap it says that."""
    out = cli.run("spend").out
    assert out.splitlines() == [
        "No agent has called a model in the last 7 days.",
        "Today (UTC): $0.00 of $50.00 (SAYSO_MAX_COST_PER_DAY), $50.00 left.",
    ]
    cli.env["SAYSO_MAX_COST_PER_DAY"] = "none"
    assert "No daily cap is set" in cli.run("spend").out


def test_costs_are_told_by_day_flow_and_session(cli: Cli) -> None:
    """Each with its calls, what they cost, and what was set aside for calls of which that is not known."""
    spent(
        cli,
        call("session-one", "incident", 1, 2),
        SettleSpend("session-one", "a/turn[1]", 1, NANO // 2),
        call("session-one", "incident", 2, 3),
        call("session-two", "triage", 1, 0.004, days_ago=2),
        SettleSpend("session-two", "a/turn[1]", 1, NANO // 500),
        call("session-old", "triage", 1, 9, days_ago=8),
    )
    lines = [line.split() for line in cli.run("spend").out.splitlines() if line]
    before = (today() - timedelta(days=2)).isoformat()
    assert lines[:3] == [
        ["DAY", "SESSIONS", "CALLS", "COST", "NOT", "SURE"],
        [before, "1", "1", "$0.0020"],
        [today().isoformat(), "1", "2", "$0.50", "$3.00"],
    ]
    assert lines[4:6] == [["incident", "1", "2", "$0.50", "$3.00"], ["triage", "1", "1", "$0.0020"]]
    assert lines[7] == ["session-one", "incident", "2", "$0.50", "$3.00"]
    assert " ".join(lines[-1]) == "Today (UTC): $3.50 of $50.00 (SAYSO_MAX_COST_PER_DAY), $46.50 left."
    found = cli.run("spend", "--days", "30", "--json").json
    assert found["today"] == {"day": today().isoformat(), "counted": "3.5", "cap": "50"}
    assert found["bySession"]["session-two"] == {"sessions": 1, "calls": 1, "cost": "0.002", "unsure": "0"}
    assert found["byFlow"]["triage"]["unsure"] == "9"


def test_an_agent_without_a_key_fails_with_the_name_of_the_variable(cli: Cli) -> None:
    """In the terminal nobody speaks for Claude; a script that is named does, and costs nothing."""
    cli.write("flows/incident.yml", AGENT)
    done = cli.run("run", "incident", "--no-input")
    assert "ANTHROPIC_API_KEY" in done.out + done.err
    cli.write("talk.yml", "- {text: The disk is full.}\n")
    cli.env["SAYSO_SCRIPT"] = "talk.yml"
    document = cli.run("run", "incident").json
    assert (document["status"], document["outputs"]["helper"]["text"]) == ("complete", "The disk is full.")
    counted = cli.run("spend", "--json").json["bySession"][document["sessionId"]]
    assert (counted["calls"], counted["cost"], counted["unsure"]) == (1, "0", "0")
