"""Answers that can be taken back for a while, before anything follows from them."""

from __future__ import annotations

import pytest

from engine.decide.commands import Due, Hold, NodeDone, Resume, Undo
from engine.decide.policy import Gate
from engine.journal.fold import derive_state
from engine.journal.history import tree
from engine.journal.snapshot import from_bytes, to_bytes
from engine.journal.state import Asked
from engine.language.errors import AlreadyAnswered, NotAllowed, PromptClosed
from tests.engine.test_core_decisions import BEA, CEM, UMA, row
from tests.support.engine import ANA, BEN, Scenario, given

UNDO = "nodes: [{id: q, type: ask, with: {message: How?, undo: 10s}}, {id: b, type: set, with: {said: '{{ nodes.q.text }}'}}]"
BRANCHES = (
    "nodes: [{id: fan, type: parallel, branches: {one: [{id: q, type: ask, with: {message: How?, undo: 10s}}], "
    "two: [{id: work, type: shell, with: {run: [x]}}]}}]"
)


def answered(case: Scenario, text: str = "fine") -> Asked:
    """The prompt of the ask, after its answer."""
    prompt_id = case.prompt.prompt_id
    case.when(case.answer(text=text, key=f"answer-{case.state.seq}"))
    return case.state.prompts[prompt_id]


def taken_back(case: Scenario, prompt: Asked, key: str = "undo-1") -> Undo:
    return Undo(prompt.prompt_id, ANA, key)


def test_nothing_follows_before_the_time_is_over() -> None:
    """The answer is recorded at once, the session waits, and what follows starts when the timer fires."""
    case = given(UNDO).started()
    prompt = answered(case)
    case.then("prompt:answered", "timer:set")
    assert (case.state.phase, prompt.status, prompt.undo_until) == (
        "waiting",
        "answered",
        "2026-11-21T09:00:10.000Z",
    )
    case.when(Due(case.timer)).then()
    case.later(10).when(Due(case.timer))
    case.then(
        "timer:fired",
        "flow:resumed",
        "node:completed",
        "node:started",
        "node:completed",
        "flow:completed",
        "session:end",
    )
    assert case.node("b").output == {"said": "fine"}
    assert case.node("q").output["at"] == "2026-11-21T09:00:00.000Z"


def test_an_answer_can_be_taken_back() -> None:
    """The same prompt is open again, under another nonce, and its next answer is the one that counts."""
    case = given(UNDO).started()
    nonce = case.prompt.nonce
    prompt = answered(case, "wrong")
    case.later(9).when(taken_back(case, prompt)).then("prompt:undone")
    again = case.prompt
    assert (again.prompt_id, again.answer, again.undo_until) == (prompt.prompt_id, None, None)
    assert again.nonce != nonce
    assert again.generation == 2
    case.refused(case.answer(text="x", nonce=nonce), PromptClosed)
    answered(case, "right")
    case.later(10).when(Due(case.timer))
    assert case.node("b").output == {"said": "right"}


def test_the_timer_of_an_answer_that_was_taken_back_changes_nothing() -> None:
    """A late wake-up for the first answer does not complete the second one."""
    case = given(UNDO).started()
    prompt = answered(case)
    stale = Due(case.timer)
    case.later(9).when(taken_back(case, prompt))
    answered(case, "second")
    case.later(2).when(stale).then()
    assert case.state.phase == "waiting"


def test_afterwards_it_is_final() -> None:
    """Once the time is over, taking back is refused with who answered and when."""
    case = given(UNDO).started()
    prompt = answered(case)
    case.later(11).when(Due(case.timer))
    text = case.refused(taken_back(case, prompt), PromptClosed)
    assert (
        text == "This cannot be taken back any more. Already answered by ana at 2026-11-21 09:00 UTC: fine."
    )


def test_an_answer_without_undo_is_final() -> None:
    """Nothing can be taken back that the flow does not let people take back, nor what nobody answered."""
    case = given(UNDO.replace(", undo: 10s", "")).started()
    case.refused(taken_back(case, case.prompt), PromptClosed)
    case.refused(taken_back(case, answered(case)), PromptClosed)


def test_a_second_answer_meanwhile_is_told_of_the_first() -> None:
    """While an answer can be taken back it is the answer."""
    case = given(UNDO).started()
    late = case.answer(text="me too", actor=BEN)
    answered(case)
    assert "Already answered by ana" in case.refused(late, AlreadyAnswered)


def test_only_who_answered_the_requester_and_admins_take_back() -> None:
    """A bystander cannot, even one who could have answered."""
    case = given(UNDO.replace("undo:", "who: [channel], undo:"))
    case.policy = Gate(home_team="T1", admins=frozenset({"UDAN"}))
    case.started(UMA)
    prompt_id = case.prompt.prompt_id
    case.when(case.answer(text="x", actor=BEA))
    case.refused(Undo(prompt_id, CEM, "u"), NotAllowed)
    before = case.state
    for who in (BEA, UMA):
        case.state = before
        case.when(Undo(prompt_id, who, "u"))
        assert case.prompt.open


def test_a_kill_meanwhile_changes_nothing() -> None:
    """Whoever claims the session goes on waiting, and what follows starts once, on time."""
    case = given(UNDO).started()
    prompt = answered(case)
    case.claimed().then()
    case.state = from_bytes(to_bytes(case.state))
    case.when(taken_back(case, prompt))
    assert case.prompt.open
    assert derive_state(case.events) == case.state
    answered(case)
    case.claimed().later(10).when(Due(case.timer))
    assert case.state.status == "complete"


def test_an_abort_meanwhile_ends_it() -> None:
    """A session that is ended while an answer could be taken back starts nothing, and takes nothing back."""
    case = given(UNDO).started()
    prompt = answered(case)
    timer = case.timer
    case.when(case.abort())
    assert (case.state.status, len(case.state.timers)) == ("aborted", 0)
    case.later(11).when(Due(timer)).then()
    case.refused(taken_back(case, prompt), PromptClosed)
    assert "b" not in case.state.nodes


@pytest.mark.parametrize("undone", [True, False])
def test_a_held_session_keeps_the_time(undone: bool) -> None:
    """While a session is held an answer can be taken back, and one that was not starts nothing before it goes on."""
    case = given(UNDO).started()
    prompt = answered(case)
    case.when(Hold(ANA))
    if undone:
        case.when(taken_back(case, prompt))
        case.when(Resume("go on", ANA, "r"))
        assert case.prompt.open
        return
    case.later(11).when(Due(case.timer))
    assert "b" not in case.state.nodes
    case.when(Resume("go on", ANA, "r"))
    assert case.state.status == "complete"


def test_the_deadline_runs_again() -> None:
    """The deadline of a question whose answer was taken back stays what it was, but leaves time for another answer."""
    case = given(UNDO.replace("undo:", "timeout: 60s, undo:")).started()
    case.when(case.shown())
    prompt = answered(case)
    case.later(8).when(taken_back(case, prompt))
    assert case.prompt.deadline == "2026-11-21T09:01:00.000Z"
    prompt = answered(case.later(51))
    case.later(9).when(taken_back(case, prompt, "undo-2"))
    assert case.prompt.deadline == "2026-11-21T09:01:18.000Z"
    case.later(10).when(case.timer_due())
    assert (case.node("q").error or {})["type"] == "timeout"


def test_a_sibling_does_not_wait_for_it() -> None:
    """Another branch runs on while an answer can be taken back; then the session waits for that time alone."""
    case = given(BRANCHES).started()
    answered(case)
    assert case.state.phase == "running"
    case.when(NodeDone("fan[two]/work", 1, {"stdout": ""}))
    assert case.state.phase == "waiting"
    case.later(10).when(Due(case.timer))
    assert case.state.status == "complete"


def test_the_thread_and_the_tree_show_it() -> None:
    """The prompt's row says until when, and the tree that the node waits until then, and for people again."""
    case = given(UNDO).started()
    prompt = answered(case)
    assert row(case, prompt.prompt_id).undo_until == "2026-11-21T09:00:10.000Z"
    entry = tree(case.events).children[0]
    assert (entry.status, entry.until) == ("waiting", "2026-11-21T09:00:10.000Z")
    case.when(taken_back(case, prompt))
    shown = row(case, prompt.prompt_id)
    assert (shown.undo_until, shown.open, shown.answered_by) == (None, True, None)
    entry = tree(case.events).children[0]
    assert (entry.status, entry.prompts) == ("waiting", [prompt.prompt_id])


def test_taking_back_twice_is_once() -> None:
    """The same delivery twice changes nothing the second time."""
    case = given(UNDO).started()
    prompt = answered(case)
    case.when(taken_back(case, prompt))
    case.when(taken_back(case, prompt)).then()
