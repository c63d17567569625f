"""Timers: waits and deadlines fire once, never early, and never for what has ended."""

from __future__ import annotations

import pytest

from engine.decide.commands import Due
from tests.support.engine import Scenario, given

WAIT = (
    "nodes: [{id: w, type: wait, with: {for: 10m}}, {id: b, type: set, with: {until: '{{ nodes.w.until }}'}}]"
)


def asked(kind: str, extra: str) -> Scenario:
    """A session whose one question is shown and has ten minutes."""
    options = {"ask": "message: Go?", "approval": "message: Go?, approvers: [channel]"}[kind]
    case = given(f"nodes: [{{id: q, type: {kind}, with: {{{options}, timeout: 10m{extra}}}}}]").started()
    return case.when(case.shown())


def test_a_wait_pauses_until_its_timer_fires() -> None:
    """A `wait` sets a timer and pauses; when the time has come it completes and the flow continues."""
    case = given(WAIT).started()
    case.then("session:start", "flow:started", "node:started", "timer:set", "flow:paused")
    assert case.state.status == "paused"
    case.later(600).when(case.timer_due())
    assert [event.type for event in case.last[:3]] == ["timer:fired", "flow:resumed", "node:completed"]
    assert case.node("b").output == {"until": "2026-11-21T09:10:00.000Z"}


def test_a_timer_never_fires_early() -> None:
    """A clock that went backwards, or a wake-up too soon, changes nothing."""
    case = given(WAIT).started()
    case.later(599.999).when(case.timer_due()).then()
    case.later(-3600).when(case.timer_due()).then()


def test_a_timer_fires_once() -> None:
    """A second wake-up for the same timer, and one for a timer that is not known, change nothing."""
    case = given(
        WAIT.replace("{id: b, type: set", "{id: c, type: wait, with: {for: 1h}}, {id: b, type: set")
    ).started()
    due = case.timer_due()
    case.later(600).when(due)
    case.later(7200).when(due, Due("nobody")).then()


def test_a_moment_that_has_passed_is_over_at_once() -> None:
    """`until` in the past sets a timer that is due already."""
    case = given('nodes: [{id: w, type: wait, with: {until: "2020-01-01T00:00:00+01:00"}}]').started()
    assert case.event("timer:set").due_at == "2019-12-31T23:00:00.000Z"
    assert case.when(case.timer_due()).state.status == "complete"


@pytest.mark.parametrize("until", ["tomorrow", "2026-11-21", "2026-11-21T10:00:00", ""])
def test_a_moment_that_is_none_fails_the_node(until: str) -> None:
    """A value that is not a moment with an offset fails the node, naming it."""
    flow = "inputs: {t: {type: string}}\nnodes: [{id: w, type: wait, with: {until: '{{ inputs.t }}'}}]"
    case = given(flow).started(t=until)
    assert case.state.status == "failed"
    assert "node w" in case.event("node:error").error["message"]


@pytest.mark.parametrize("span", ["99999999d", "-1s", "ten", "9e9"])
def test_a_span_that_is_none_fails_the_node(span: str) -> None:
    """A span beyond every calendar, or none at all, is an error of the node and not of the engine."""
    flow = "inputs: {t: {type: string}}\nnodes: [{id: w, type: wait, with: {for: '{{ inputs.t }}'}}]"
    assert given(flow).started(t=span).state.status == "failed"


@pytest.mark.parametrize(
    ("kind", "extra", "output"),
    [
        ("approval", ", on_timeout: approve", ("decision", "approve")),
        ("approval", ", on_timeout: reject, on_reject: continue", ("decision", "reject")),
        ("ask", ", on_timeout: default, default: nothing", ("text", "nothing")),
        ("ask", ", on_timeout: default, default: eu, choices: [{value: eu, label: Europe}]", ("value", "eu")),
        (
            "ask",
            ", on_timeout: default, default: eu, choices: [{value: eu, label: Europe}]",
            ("text", "Europe"),
        ),
    ],
)
def test_on_timeout_decides_when_nobody_does(kind: str, extra: str, output: tuple[str, str]) -> None:
    """The outcome that the flow names becomes the node's output, given by nobody."""
    case = asked(kind, extra).later(600)
    case.when(case.timer_due())
    assert [event.type for event in case.last[:4]] == [
        "timer:fired",
        "prompt:expired",
        "flow:resumed",
        "node:completed",
    ]
    assert case.node("q").output[output[0]] == output[1]
    assert not case.node("q").output["by"]
    assert case.state.status == "complete"


@pytest.mark.parametrize("kind", ["ask", "approval"])
def test_a_timeout_fails_the_node_unless_something_else_is_said(kind: str) -> None:
    """`on_timeout: fail` is the default, and names the node."""
    case = asked(kind, "").later(600)
    case.when(case.timer_due())
    case.then("timer:fired", "prompt:expired", "flow:resumed", "node:error", "flow:failed", "session:end")
    assert case.state.error == {"type": "timeout", "message": "nobody answered q in time"}


def test_a_timeout_that_fails_may_be_continued_from() -> None:
    """`on_error: continue` holds for timeouts too."""
    flow = """
nodes:
  - {id: q, type: ask, on_error: continue, with: {message: Go?, timeout: 10m}}
  - {id: b, type: set, with: {why: "{{ errors.q.type | default('none') }}"}}
"""
    case = given(flow).started()
    case.when(case.shown()).later(600).when(case.timer_due())
    assert case.node("b").output == {"why": "timeout"}


def test_a_reply_before_its_deadline_holds_and_the_timer_changes_nothing() -> None:
    """An answer in the last millisecond counts; the timer that fires then has no effect."""
    case = asked("ask", "").later(599.999)
    in_time, due = case.answer(text="just in time"), case.timer_due()
    case.when(in_time)
    assert case.state.status == "complete"
    case.later(0.001).when(due).then()


def test_an_abort_takes_all_timers_away() -> None:
    """After an abort no timer is set and none fires."""
    case = given(WAIT).started()
    due = case.timer_due()
    case.when(case.abort()).then("session:abort", "session:end")
    assert not case.state.timers
    case.later(600).when(due).then()


def test_a_message_does_not_disturb_a_wait() -> None:
    """While only a timer is waited for, a message is kept and the wait continues."""
    case = given(WAIT).started()
    case.when(case.message("hurry")).then("session:message")
    assert case.state.phase == "waiting"
