"""Starts: inputs given, missing, wrong; and the first nodes."""

from __future__ import annotations

import pytest

from engine.decide.commands import Begin, Start
from engine.flow.inputs import MOST_INPUTS
from engine.language.errors import InvalidAnswer, InvalidInputs, NotAllowed
from tests.support.engine import ANA, BEN, SESSION, given

NOOP = "nodes: [{id: a, type: noop}]"
GREET = """
inputs: {who: {type: string}}
nodes:
  - {id: a, type: set, with: {text: "Hello {{ inputs.who }}"}}
"""
THREE = """
inputs:
  name: {type: string}
  note: {type: string, required: false}
  size: {type: integer, default: 3}
  colour: {type: string, choices: [red, green]}
  sure: {type: boolean}
nodes:
  - {id: a, type: set, with: {all: "{{ inputs }}"}}
"""


def test_a_start_runs_a_flow_to_its_end_in_one_turn() -> None:
    """A flow that needs nobody is complete after the turn that started it."""
    case = given(NOOP).started()
    case.then(
        "session:start", "flow:started", "node:started", "node:completed", "flow:completed", "session:end"
    )
    assert case.state.status == "complete"
    assert case.event("session:start").session_id == SESSION
    assert case.event("session:end").status == "complete"


@pytest.mark.parametrize("wrong", [{"whom": "Ana"}, {"who": 3}, {"who": None}, {"who": ["Ana"]}])
def test_wrong_inputs_are_refused_before_anything_is_written(wrong: dict[str, object]) -> None:
    """An unknown name or a value of another type makes no session."""
    text = given(GREET).refused(Start(SESSION, wrong, ANA), InvalidInputs)
    assert "who" in text


def test_a_start_that_the_policy_forbids_writes_nothing() -> None:
    """Whoever may not start gets the policy's sentence."""
    text = given(NOOP).allowing(BEN).refused(Start(SESSION, {}, ANA), NotAllowed)
    assert text == "ana may not start"


def test_the_policy_judges_a_start_with_flow_and_thread_known() -> None:
    """The policy sees the flow, the thread and the requester of the session that is to be."""
    case, seen = given(NOOP), []
    case.policy = lambda actor, action, state, prompt: seen.append(
        (action, state.flow_name, state.actor, state.thread)
    )
    case.started()
    start = ("start", "demo", ANA.record(), {"key": "T1:C1:1.2", "channel": "C1"})
    assert set(map(str, seen)) == {str(start)}


def test_a_start_that_came_twice_yields_nothing() -> None:
    """A second start of the same session writes no event."""
    case = given(NOOP).started()
    case.when(Start(SESSION, {}, ANA)).then()


def test_missing_inputs_are_asked_for_one_after_the_other() -> None:
    """The flow starts when the last missing input was answered, each of its own type."""
    case = given(THREE).started()
    case.then("session:start", "prompt:requested", "flow:paused")
    assert (case.prompt.kind, case.prompt.path, case.prompt.accepts_text) == (
        "input",
        "inputs/name",
        True,
    )
    case.when(case.answer(text=" Ana ")).then(
        "prompt:answered", "flow:resumed", "prompt:requested", "flow:paused"
    )
    assert [option["label"] for option in case.prompt.options] == ["red", "green"]
    case.when(case.answer("green"))
    assert [option["label"] for option in case.prompt.options] == ["Yes", "No"]
    case.when(case.answer(True))
    assert case.state.status == "complete"
    assert case.node("a").output["all"] == {
        "name": "Ana",
        "note": None,
        "size": 3,
        "colour": "green",
        "sure": True,
    }


def test_only_what_is_missing_is_asked_for() -> None:
    """Inputs that were given at the start are not asked for."""
    case = given(THREE).started(name="Ana", sure="yes")
    assert case.prompt.path == "inputs/colour"
    case.when(case.answer("red"))
    assert case.node("a").output["all"]["sure"] is True


def test_a_boolean_is_no_number_and_a_word_no_boolean() -> None:
    """Options are compared with their JSON type: 1 is not true, and the label is not the value."""
    case = given("inputs: {sure: {type: boolean}}\nnodes: [{id: a, type: noop}]").started()
    for wrong in (1, "Yes", "true", None, 0):
        assert "one of: Yes, No" in case.refused(case.answer(wrong), InvalidAnswer)
    case.refused(case.answer(text="perhaps"), InvalidAnswer)
    case.when(case.answer(False))
    assert case.state.inputs == {"sure": False}


def test_an_input_that_nobody_gives_fails_the_flow_at_its_deadline() -> None:
    """The flow's deadline also bounds the questions before it starts."""
    case = given(
        "limits: {deadline: 1h}\ninputs: {n: {type: string}}\nnodes: [{id: a, type: noop}]"
    ).started()
    case.when(case.shown()).later(3600).when(case.timer_due())
    case.then("timer:fired", "prompt:expired", "flow:resumed", "flow:failed", "session:end")
    assert case.state.status == "failed"
    assert "inputs/n" in case.event("flow:failed").error["message"]


def test_pure_nodes_run_inside_one_turn_but_not_without_bound() -> None:
    """One turn starts at most 200 rounds of nodes; the rest is due in the next turn, and nothing is lost."""
    nodes = "".join(f"  - {{id: n{number}, type: noop}}\n" for number in range(450))
    case = given(f"nodes:\n{nodes}").started()
    turns = 1
    while not case.state.ended:
        assert case.state.phase == "running"
        assert len(case.last) <= 2 + 2 * 200
        case.only(Begin())
        turns += 1
    assert turns == 3
    assert all(run.status == "completed" for run in case.state.nodes.values())


def test_inputs_have_a_bound() -> None:
    """What is larger would be in the journal and in every snapshot: it is refused in words, and of many names some are."""
    text = given(GREET).refused(Start(SESSION, {"who": "x" * MOST_INPUTS}, ANA), InvalidInputs)
    assert f"the limit is {MOST_INPUTS:,}" in text
    many = given(GREET).refused(
        Start(SESSION, {f"n{number}": 1 for number in range(5_000)}, ANA), InvalidInputs
    )
    assert "and 4,980 more" in many
