"""Copies of sessions with an agent: whatever was said and decided by then, they continue."""

from __future__ import annotations

import pytest

from engine.decide import past
from engine.decide.commands import Edit
from engine.language.errors import SaysoError
from tests.engine.agents.talks import Talk, talk
from tests.support.engine import ANA, BEN

RULES = """
tools: [{shell: {commands: ["*"]}}, read_file]
approvals: {shell: [approve, reject]}
"""
CALLS = (("shell", {"command": "rm a"}), ("read_file", {"path": "a"}))
PAGE = {"text": "x", "first_line": 1, "last_line": 1, "total_lines": 1, "more": False}


def copied(case: Talk, at: int) -> Talk:
    """A fork of the session at an event, as a scenario of its own."""
    begun = past.fork(case.events, at, "session-0fork", BEN, case.now, "entropy")
    other = Talk(case.flow)
    other.state, other.events, other._turns = begun.state, list(begun.events), 100
    return other


def test_a_fork_has_the_conversation_and_asks_for_approvals_anew() -> None:
    """What was said stays said; a call that was approved in the parent has to be approved for the copy."""
    case = talk(RULES).model("Let me.", CALLS[0])
    case.only(case.answer("approve"))
    other = copied(case, case.state.seq)
    other.claimed()
    assert other.prompt.kind == "approval"
    other.decide("approve")
    assert other.node("helper/turn[1]/tool[0]").status == "started"


def test_what_the_past_used_counts_against_the_caps_of_a_copy() -> None:
    """The tokens, dollars and model calls of the copied past, and caps that people raised in it, hold in the copy."""
    case = talk("max_turns: 1\n" + RULES.strip()).model("Let me.", CALLS[1]).tool("tool[0]", PAGE)
    asking = case.state.seq
    assert case.prompt.kind == "budget"
    other = copied(case, asking)
    assert (other.prompt.kind, other.state.spent) == ("budget", case.state.spent)
    assert case.state.spent.turns == 1
    case.decide("raise")
    raised = copied(case, case.state.seq)
    raised.claimed()
    raised.model("Done.")
    assert (raised.state.outcome, raised.state.spent.turns) == ("complete", 2)


def test_a_call_that_was_changed_in_the_parent_can_be_approved_in_a_copy() -> None:
    """The copy asks about the model's own call and runs what it has shown."""
    case = talk(RULES.replace("[approve, reject]", "[approve, edit, reject]")).model("Let me.", CALLS[0])
    (name,) = case.prompt.editable
    case.when(Edit(case.prompt.prompt_id, ANA, "edit-1", {name: "rm -i a"}, case.prompt.nonce))
    case.only(case.answer("approve", actor=BEN))
    other = copied(case, case.state.seq)
    other.claimed()
    shown = other.prompt.covers["text"]
    other.decide("approve")
    assert shown.startswith("rm a")
    assert other.node("helper/turn[1]/tool[0]").input["run"] == ["rm", "a"]


def test_every_event_at_which_a_fork_may_begin_goes_on_to_the_end() -> None:
    """A copy is refused, or its conversation can be brought to an end; it never freezes."""
    case = talk(RULES).model("Let me.", *CALLS).tool("tool[1]", PAGE).decide("reject").model("Done.")
    assert case.state.outcome == "complete"
    begun = 0
    for at in range(2, len(case.events)):
        try:
            other = copied(case, at)
        except SaysoError:
            continue
        begun += 1
        other.claimed()
        while not other.state.ended:
            if other.state.open_prompts:
                other.decide("reject")
            elif paths := [path for path in other.state.active if "tool[1]" in path]:
                other.tool(paths[0], PAGE)
            elif len(other.agent.messages) == 1:
                other.model("Let me.", *CALLS)
            else:
                other.model("Done.")
        assert other.state.outcome == "complete"
    assert begun > 5


@pytest.mark.parametrize("rest", ["    on_error: fail\n", "    on_error: fail\n    retry: {attempts: 1}\n"])
def test_a_session_that_failed_with_its_agent_goes_on_at_the_turn(rest: str) -> None:
    """The call that failed is made again with all that was said; no tool runs a second time."""
    case = talk("tools: [read_file]", rest=rest).model("", CALLS[1]).tool("tool[0]", PAGE)
    before = case.request()["messages"]
    case.when(case.broke("access_denied", retryable=False))
    assert case.state.outcome == "failed"
    other = copied(case, past.latest(case.events)).claimed()
    assert (other.calling, other.request()["messages"]) == ("helper/turn[2]", before)
    assert other.model("Done.").state.outcome == "complete"
