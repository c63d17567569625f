"""Deadlines: the prompt's deadline and the clock decide whether an answer counts, even if the timer is lost."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from engine.decide.agents.kinds import KINDS
from engine.decide.commands import Answer, Command, Due, Edit, Facts, HandOver, Shown
from engine.decide.decide import decide
from engine.language.errors import ClockJumped, PromptTimedOut
from tests.support.engine import BEN, Scenario, given

APPROVE = """
nodes:
  - id: gate
    type: approval
    with:
      message: Go?
      approvers: [channel]
      timeout: 10m
      required: 2
      form: {properties: {count: {type: integer, default: 2}}}
      editable: [count]
  - {id: work, type: shell, with: {run: [now]}}
"""
FORM = """
nodes:
  - id: q
    type: ask
    with: {message: How?, timeout: 10m, form: {properties: {why: {type: string}}}}
"""
ASK = "nodes: [{id: q, type: ask, with: {message: How?, timeout: 10m}}]"


def shown(flow: str) -> Scenario:
    """A session whose one question people see; it has ten minutes."""
    case = given(flow).started()
    return case.when(case.shown())


def commands(case: Scenario) -> dict[str, Command]:
    """All that people do to the open approval."""
    prompt_id = case.prompt.prompt_id
    nonce = case.prompt.nonce
    return {
        "vote": Answer(prompt_id, BEN, "k1", value="approve"),
        "press": Answer(prompt_id, BEN, "k2", value="reject", nonce=nonce),
        "edit": Edit(prompt_id, BEN, "k3", {"count": 3}),
        "hand over": HandOver(prompt_id, BEN, "k4", "U0EVE"),
    }


@pytest.mark.parametrize("what", ["vote", "press", "edit", "hand over"])
@pytest.mark.parametrize("late", [0.0, 5.0, 86_400.0])
def test_nothing_is_done_to_an_approval_after_its_deadline(what: str, late: float) -> None:
    """The timer is still in its place: the person is told when the time was over, and nothing changes."""
    case = shown(APPROVE)
    command = commands(case)[what]
    case.later(600 + late)
    assert "timed out at 2026-11-21 09:10 UTC" in case.refused(command, PromptTimedOut)
    assert case.when(case.timer_due()).node("gate").status == "failed"


@pytest.mark.parametrize("what", ["vote", "press", "edit", "hand over"])
def test_a_millisecond_before_it_everything_counts(what: str) -> None:
    """The deadline is the first moment that is too late."""
    case = shown(APPROVE)
    assert case.later(599.999).when(commands(case)[what]).last


@pytest.mark.parametrize(
    ("flow", "given_"),
    [(ASK, {"text": "fine"}), (FORM, {"values": {"why": "so"}})],
    ids=["text", "form"],
)
def test_an_answer_after_the_deadline_is_refused(flow: str, given_: dict[str, Any]) -> None:
    """Words and forms too."""
    case = shown(flow)
    case.later(605).refused(case.answer(**given_), PromptTimedOut)


def test_the_deadline_counts_without_its_timer() -> None:
    """A lost timer does not extend the deadline."""
    case = shown(ASK)
    case.state = replace(case.state, timers=case.state.timers.delete(case.timer))
    case.later(605).refused(case.answer(text="fine"), PromptTimedOut)


def test_a_message_that_only_a_late_question_would_take_says_so() -> None:
    """A reply in the thread is not kept as if it answered nothing: its author is told that the time was over."""
    case = shown(ASK)
    case.later(605).refused(case.message("fine"), PromptTimedOut)


def test_a_message_goes_to_the_question_that_still_has_time() -> None:
    """Of two questions, one of which has ended, the other one is answered."""
    both = ASK.replace("[{id: q", "[{id: fan, type: parallel, branches: {a: [{id: q").replace(
        "10m}}]", "10m}}], b: [{id: r, type: ask, with: {message: And?, timeout: 1h}}]}}]"
    )
    case = given(both).started()
    case.when(*(Shown(prompt_id, {"ts": prompt_id}) for prompt_id in case.state.open_prompts))
    case.later(605).when(case.message("fine"))
    assert case.event("prompt:answered").path == "fan[b]/r"


# --- a clock that jumped -----------------------------------------------------------------------------------


def doubted(case: Scenario) -> Facts:
    """What a turn knows whose clock was just put forward."""
    return replace(case._facts(), clock_jumped=True)


def test_a_clock_that_jumped_decides_neither_for_nor_against_an_answer() -> None:
    """It is not refused as too late, and does not count: it waits for the second look."""
    case = shown(ASK).later(7_200)
    with pytest.raises(ClockJumped, match="checked again"):
        decide(case.flow, case.state, case.answer(text="fine"), doubted(case), KINDS)


def test_a_clock_that_jumped_fires_no_timer() -> None:
    """Neither deadlines nor waits have ended by it."""
    case = shown(ASK).later(7_200)
    assert decide(case.flow, case.state, Due(case.timer), doubted(case), KINDS) == []


def test_an_answer_whose_time_is_not_over_by_any_clock_counts() -> None:
    """A jump that stays before the deadline holds nobody up."""
    case = shown(ASK.replace("10m", "10h")).later(7_200)
    assert decide(case.flow, case.state, case.answer(text="fine"), doubted(case), KINDS)


def test_without_the_check_a_late_answer_runs_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault that these tests are for, put back: with the timer alone a late vote counts."""
    case = shown(APPROVE.replace("required: 2", "required: 1")).later(605)
    monkeypatch.setattr("engine.decide.prompt_timers.is_over", lambda moment, facts: False)
    made = decide(case.flow, case.state, commands(case)["vote"], case._facts(), KINDS)
    assert [event.type for event in made][:2] == ["prompt:answered", "flow:resumed"]
