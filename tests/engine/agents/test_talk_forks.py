"""Copies of sessions with an agent: whatever was said and decided by then, they continue."""

from __future__ import annotations

import pytest

from engine.decide import past
from engine.decide.commands import Edit
from tests.engine.agents.talks import PAGE, talk
from tests.support.engine import ANA, BEN

RULES = """
tools: [{shell: {commands: ["*"]}}, read_file]
approvals: {shell: [approve, reject]}
"""
CALLS = (("shell", {"command": "rm a"}), ("read_file", {"path": "a"}))


def test_a_fork_has_the_conversation_and_asks_for_approvals_anew() -> None:
    """What was said stays said; a call that was approved in the parent has to be approved for the copy."""
    case = talk(RULES).model("Let me.", CALLS[0])
    case.only(case.answer("approve"))
    other = case.forked()
    other.claimed()
    assert other.prompt.kind == "approval"
    other.decide("approve")
    assert other.node("helper/turn[1]/tool[0]").status == "started"


def test_what_the_past_used_counts_against_the_caps_of_a_copy() -> None:
    """The tokens, dollars and model calls of the copied past, and caps that people raised in it, hold in the copy."""
    case = talk("max_turns: 1\n" + RULES.strip()).model("Let me.", CALLS[1]).tool("tool[0]", PAGE)
    asking = case.state.seq
    assert case.prompt.kind == "budget"
    other = case.forked(asking)
    assert (other.prompt.kind, other.state.spent) == ("budget", case.state.spent)
    assert case.state.spent.turns == 1
    case.decide("raise")
    raised = case.forked()
    raised.claimed()
    raised.model("Done.")
    assert (raised.state.outcome, raised.state.spent.turns) == ("complete", 2)


def test_a_call_that_was_changed_in_the_parent_can_be_approved_in_a_copy() -> None:
    """The copy asks about the model's own call and runs what it has shown."""
    case = talk(RULES.replace("[approve, reject]", "[approve, edit, reject]")).model("Let me.", CALLS[0])
    (name,) = case.prompt.editable
    case.when(Edit(case.prompt.prompt_id, ANA, "edit-1", {name: "rm -i a"}, case.prompt.nonce))
    case.only(case.answer("approve", actor=BEN))
    other = case.forked()
    other.claimed()
    shown = other.prompt.covers["text"]
    other.decide("approve")
    assert shown.startswith("rm a")
    assert other.node("helper/turn[1]/tool[0]").input["run"] == ["rm", "a"]


@pytest.mark.parametrize("rest", ["    on_error: fail\n", "    on_error: fail\n    retry: {attempts: 1}\n"])
def test_a_session_that_failed_with_its_agent_goes_on_at_the_turn(rest: str) -> None:
    """The call that failed is made again with all that was said; no tool runs a second time."""
    case = talk("tools: [read_file]", rest=rest).model("", CALLS[1]).tool("tool[0]", PAGE)
    before = case.request()["messages"]
    case.when(case.broke("access_denied", retryable=False))
    assert case.state.outcome == "failed"
    other = case.forked(past.latest(case.events)).claimed()
    assert (other.calling, other.request()["messages"]) == ("helper/turn[2]", before)
    assert other.model("Done.").state.outcome == "complete"
