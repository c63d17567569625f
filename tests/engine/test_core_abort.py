"""Aborts in every phase, races with completion, and what an ended session refuses."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.decide.commands import Abort, NodeBroke, NodeCut, NodeDone
from engine.language.errors import AlreadyAnswered, NotAllowed, PromptClosed, SessionEnded
from tests.support.engine import ANA, BEN, given

SHELL = "nodes: [{id: a, type: shell, with: {run: [ls]}}, {id: b, type: noop}]"
ASK = "nodes: [{id: q, type: ask, with: {message: How?}}]"
OUTPUT = {"stdout": "x", "stderr": "", "exit_code": 0, "seconds": 0.1}


def test_an_abort_of_a_waiting_session_withdraws_its_prompts_and_ends_it() -> None:
    """The abort comes first, then the prompts, then the end."""
    case = given(ASK).started()
    case.when(case.abort(reason="enough")).then("session:abort", "prompt:cancelled", "session:end")
    assert (case.state.status, case.event("session:abort").reason) == ("aborted", "enough")
    assert case.event("session:abort").actor == ANA.record()
    assert case.event("prompt:cancelled").reason == "the run was cancelled"


@pytest.mark.parametrize(
    ("outcome", "event"),
    [
        (NodeDone("a", 1, OUTPUT), "node:completed"),
        (NodeBroke("a", 1, {"type": "exit_code", "message": "no"}), "node:error"),
        (NodeCut("a", 1, "cut"), "node:interrupted"),
        (NodeCut("a", 1, "timeout"), "node:interrupted"),
    ],
)
def test_an_abort_while_a_node_runs_ends_after_its_outcome(outcome: object, event: str) -> None:
    """The session is finalizing until the running node's outcome is recorded; nothing after it starts."""
    case = given(SHELL).started()
    case.when(case.abort()).then("session:abort")
    assert (case.state.phase, case.state.status) == ("finalizing", "running")
    case.when(outcome).then(event, "session:end")  # type: ignore[arg-type]  # one of the three outcomes
    assert case.state.status == "aborted"
    assert "b" not in case.state.nodes


def test_an_abort_that_crashes_ends_at_the_next_claim() -> None:
    """The claim records the interruption, and the session ends without a question."""
    case = given(SHELL).started()
    case.when(case.abort()).claimed().then("node:interrupted", "session:end")
    assert case.state.status == "aborted"


def test_a_completion_that_came_first_wins() -> None:
    """An abort after the last node's completion is refused: the session is complete."""
    case = given("nodes: [{id: a, type: shell, with: {run: [ls]}}]").started()
    case.when(NodeDone("a", 1, OUTPUT))
    assert "complete" in case.refused(case.abort(), SessionEnded)
    assert case.state.status == "complete"


def test_a_second_abort_is_refused() -> None:
    """Both while the first one is being carried out and after it."""
    case = given(SHELL).started()
    case.when(case.abort())
    assert "cancelled already" in case.refused(case.abort(), SessionEnded)
    case.when(NodeCut("a", 1, "cut"))
    assert "cancelled already" in case.refused(case.abort(), SessionEnded)


def test_who_may_not_abort_is_refused() -> None:
    """The policy is asked for `cancel`."""
    case = given(ASK).allowing(ANA).started()
    assert case.refused(case.abort(BEN), NotAllowed) == "ben may not cancel"


def test_a_reason_is_cleaned() -> None:
    """Text that cannot be stored does not stop an abort."""
    case = given(ASK).started()
    case.when(Abort(ANA, "a\ud800\x00b"))
    assert case.event("session:abort").reason == "a\ufffd\ufffdb"


def test_an_interrupted_node_can_be_aborted_instead_of_answered() -> None:
    """An abort withdraws the question about an interruption."""
    case = given(SHELL).started().claimed()
    case.when(case.abort()).then("session:abort", "prompt:cancelled", "session:end")


def test_while_finalizing_only_outcomes_are_taken() -> None:
    """Messages, answers and shown prompts change nothing once the abort is committed."""
    case = given(ASK.replace("]", ", {id: a, type: shell, with: {run: [ls]}}]")).started()
    late, shown = case.answer(text="late"), case.shown()
    case.when(case.answer(text="first"))
    case.when(case.abort())
    assert case.state.phase == "finalizing"
    case.refused(case.message("hello"), SessionEnded)
    case.refused(late, AlreadyAnswered)
    case.when(shown).then()


def test_an_open_prompt_takes_no_answer_while_finalizing() -> None:
    """A prompt beside a running node counts as withdrawn from the abort on."""
    case = given(ASK).started()
    late, shown = case.answer(text="late"), case.shown()
    case.state = replace(case.state, phase="finalizing", outcome="aborted")
    case.refused(late, PromptClosed)
    case.only(shown)
    assert "prompt:shown" not in [event.type for event in case.last]


def test_a_failed_session_refuses_everything() -> None:
    """After the end: no message, no abort, no answer, no timer."""
    case = given(
        "nodes: [{id: q, type: ask, with: {message: Go?}}, {id: f, type: fail, with: {message: No}}]"
    ).started()
    late = case.answer(text="late")
    case.when(case.shown())
    due = case.timer_due()
    case.when(case.answer(text="x"))
    assert case.state.status == "failed"
    assert "failed" in case.refused(case.message("hello"), SessionEnded)
    assert "failed already" in case.refused(case.abort(), SessionEnded)
    case.refused(late, AlreadyAnswered)
    case.later(10**7).when(due).then()
    case.claimed().then()


def test_questions_are_withdrawn_in_the_order_in_which_they_were_asked() -> None:
    """Ids of questions are random, so what is said of several does not follow them."""
    flow = """
nodes:
  - id: all
    type: foreach
    with: {items: [1, 2, 3, 4, 5, 6], concurrency: 6}
    body: [{id: q, type: ask, with: {message: "{{ item }}?"}}]
"""
    case = given(flow).started()
    case.when(Abort(ANA))
    withdrawn = [event.path for event in case.last if event.type == "prompt:cancelled"]
    assert withdrawn == [f"all[{index}]/q" for index in range(6)]
