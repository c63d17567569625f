"""`finally`: after completion, failure and abort, without prompts, once."""

from __future__ import annotations

import pytest

from engine.decide.commands import NodeBroke, NodeCut, NodeDone
from engine.language.errors import SessionEnded
from tests.support.engine import given

OUTPUT = {"stdout": "x", "stderr": "", "exit_code": 0, "seconds": 0.1}
ERROR = {"type": "exit_code", "message": "no"}
LAST = """
finally:
  - {id: note, type: set, with: {how: "{{ status.a }}", later: "{{ nodes.b }}"}}
  - {id: tidy, type: shell, with: {run: [tidy]}}
"""
SHELL = "nodes: [{id: a, type: shell, with: {run: [ls]}}, {id: b, type: noop}]" + LAST
ASK = "nodes: [{id: a, type: ask, with: {message: How?}}, {id: b, type: noop}]" + LAST
TIDIED = NodeDone("finally/tidy", 1, OUTPUT)


def test_finally_runs_after_completion() -> None:
    """The flow has completed once what runs at the end has."""
    case = given(SHELL).started()
    case.when(NodeDone("a", 1, OUTPUT)).then(
        *("node:completed", "node:started", "node:completed", "flow:finalizing"),
        *("node:started", "node:completed", "node:started"),
    )
    assert (case.state.phase, case.state.status) == ("finalizing", "running")
    assert case.node("finally/note").output == {"how": "completed", "later": {}}
    case.when(TIDIED).then("node:completed", "flow:completed", "session:end")
    assert case.state.status == "complete"


def test_finally_runs_after_a_failure_and_the_error_stays_the_first_one() -> None:
    """Nodes that did not run are null there; the flow has failed as it failed."""
    case = given(SHELL).started()
    case.when(NodeBroke("a", 1, ERROR))
    assert case.event("flow:finalizing").error == ERROR
    assert case.node("finally/note").output == {"how": "failed", "later": None}
    case.when(TIDIED).then("node:completed", "flow:failed", "session:end")
    assert (case.state.status, case.state.error, case.event("flow:failed").path) == ("failed", ERROR, "a")


def test_finally_runs_after_an_abort_without_prompts_and_messages() -> None:
    """Questions are withdrawn and messages discarded first."""
    case = given("nodes: [{id: a, type: wait, with: {for: 1h}}, {id: b, type: noop}]" + LAST).started()
    case.when(case.message("hello"))
    case.when(case.abort()).then(
        *("session:abort", "flow:finalizing", "node:started", "node:completed", "node:started")
    )
    assert (case.state.messages, dict(case.state.timers)) == ((), {})
    case.when(TIDIED).then("node:completed", "session:end")
    assert case.state.status == "aborted"
    asked = given(ASK).started()
    asked.when(asked.abort())
    assert [event.type for event in asked.last][:3] == [
        "session:abort",
        "prompt:cancelled",
        "flow:finalizing",
    ]


def test_finally_waits_for_what_still_runs() -> None:
    """After an abort the running node ends first."""
    case = given(SHELL).started()
    case.when(case.abort()).then("session:abort")
    case.when(NodeCut("a", 1, "cut"))
    assert case.event("flow:finalizing").outcome == "aborted"
    assert case.node("finally/tidy").status == "started"


def test_a_failure_of_a_branch_lets_the_others_leave_before_finally() -> None:
    """The session is finalizing at once; what runs at the end begins when nothing else runs."""
    flow = (
        "nodes: [{id: a, type: shell, with: {run: [a]}}, {id: b, type: shell, with: {run: [b]}}, "
        "{id: c, type: noop}]\nedges: [{from: a, to: c}, {from: b, to: c}]" + LAST
    )
    case = given(flow).started()
    case.when(NodeBroke("a", 1, ERROR)).then("node:error", "flow:finalizing")
    case.when(NodeCut("b", 1, "cut"))
    assert case.node("finally/tidy").status == "started"
    case.when(TIDIED)
    assert (case.state.status, case.state.error) == ("failed", ERROR)


def test_a_second_abort_skips_what_is_left_of_finally() -> None:
    """What runs there is cut, nothing further starts; a third abort is refused."""
    case = given(SHELL).started()
    case.when(case.abort(), NodeCut("a", 1, "cut"))
    case.when(case.abort()).then("session:abort")
    case.refused(case.abort(), SessionEnded)
    case.when(NodeCut("finally/tidy", 1, "cut")).then("node:interrupted", "session:end")
    assert case.state.status == "aborted"


def test_a_second_abort_before_finally_began_skips_all_of_it() -> None:
    """While the running node is leaving."""
    case = given(SHELL).started()
    case.when(case.abort(), case.abort(), NodeCut("a", 1, "cut"))
    case.then("session:abort", "session:abort", "node:interrupted", "session:end")


@pytest.mark.parametrize(
    ("outcome", "status"), [(NodeDone("a", 1, OUTPUT), "aborted"), (NodeBroke("a", 1, ERROR), "failed")]
)
def test_an_abort_during_finally(outcome: NodeDone, status: str) -> None:
    """A flow that completed is aborted by it, since its end is missing; one that failed has failed."""
    case = given(SHELL).started()
    case.when(outcome, case.abort(), NodeCut("finally/tidy", 1, "cut"))
    assert case.state.status == status


def test_a_failure_in_finally_fails_a_flow_that_completed() -> None:
    """The rest of it does not run."""
    flow = SHELL + "  - {id: more, type: noop}\n"
    case = given(flow).started()
    case.when(NodeDone("a", 1, OUTPUT), NodeBroke("finally/tidy", 1, ERROR))
    assert (case.state.status, case.event("flow:failed").path) == ("failed", "finally/tidy")
    assert "finally/more" not in case.state.nodes


def test_a_failure_in_finally_changes_no_other_outcome() -> None:
    """An aborted session stays aborted."""
    case = given(ASK).started()
    case.when(case.abort(), NodeBroke("finally/tidy", 1, ERROR))
    assert case.state.status == "aborted"


def test_a_crash_in_finally_asks_nobody() -> None:
    """What must not simply run again has failed; what may run again does."""
    case = given(SHELL).started()
    case.when(NodeDone("a", 1, OUTPUT)).claimed().then(
        "node:interrupted", "node:error", "flow:failed", "session:end"
    )
    assert case.state.error["type"] == "interrupted"  # type: ignore[index]  # it failed
    again = given(SHELL.replace("{run: [tidy]}", "{run: [tidy]}, on_crash: again")).started()
    again.when(NodeDone("a", 1, OUTPUT)).claimed().then("node:interrupted", "node:started")
    again.when(NodeDone("finally/tidy", 2, OUTPUT))
    assert again.state.status == "complete"


def test_finally_may_wait_retry_and_hold_containers() -> None:
    """Timers and passes work there as anywhere."""
    flow = """
nodes: [{id: a, type: noop}]
finally:
  - {id: rest, type: wait, with: {for: 1m}}
  - id: each
    type: foreach
    with: {items: [1, 2]}
    body: [{id: t, type: shell, with: {run: [t]}, retry: {attempts: 2, delay: 1s}}]
  - {id: end, type: set, with: {n: "{{ nodes.each.iterations | length }}", a: "{{ status.a }}"}}
"""
    case = given(flow).started()
    assert case.state.phase == "finalizing"
    case.claimed()
    case.later(61).when(case.timer_due(), NodeBroke("finally/each[0]/t", 1, ERROR))
    case.later(5).when(case.timer_due(), NodeDone("finally/each[0]/t", 2, OUTPUT))
    case.when(NodeDone("finally/each[1]/t", 1, OUTPUT))
    assert case.state.status == "complete"
    assert case.node("finally/end").output == {"n": 2, "a": "completed"}


def test_a_session_that_never_began_has_no_finally() -> None:
    """An abort while inputs are asked for ends it at once."""
    case = given("inputs: {x: {type: string}}\n" + SHELL).started()
    case.when(case.abort()).then("session:abort", "prompt:cancelled", "session:end")


def test_finally_runs_although_the_limit_of_nodes_is_reached() -> None:
    """The flow fails by its limit, and what runs at the end gets as much again."""
    flow = "limits: {max_node_runs: 3}\nnodes: [{id: l, type: loop, with: {while: '{{ true }}'}, body: [{id: x, type: noop}]}]"
    case = given(flow + "\nfinally: [{id: z, type: noop}]").started()
    assert (case.state.status, case.state.error["type"]) == ("failed", "limit")  # type: ignore[index]  # it failed
    assert case.node("finally/z").status == "completed"
