"""The tree of a session: drawn from its journal, finished passes included, and as it was at any event."""

from __future__ import annotations

from engine.decide.commands import NodeBroke, NodeDone
from engine.journal.history import Entry, tree, worked
from tests.support.engine import Scenario, given

NESTED = """
nodes:
  - {id: plan, type: set, with: {n: 3}}
  - id: rollout
    type: foreach
    with: {items: [eu, us], as: region}
    body:
      - {id: apply, type: shell, with: {run: ["{{ region }}"]}}
      - {id: confirm, type: ask, if: "{{ region == 'us' }}", with: {message: "{{ region }}?"}}
  - {id: tell, type: set, with: {x: 1}}
"""


def drawn(case: Scenario, at: int | None = None) -> list[str]:
    """Every line of the tree as `path status`; what has not begun by its name."""
    root = tree(case.events[:at], case.flow)
    return [f"{entry.path or entry.name} {entry.status}" for entry in root.walk()][1:]


def found(case: Scenario, path: str) -> Entry:
    """The entry at a path."""
    return next(entry for entry in tree(case.events, case.flow).walk() if entry.path == path)


def test_a_finished_pass_is_in_the_tree_although_the_state_forgot_it() -> None:
    """The first pass has ended and shown with its nodes; the second waits; what comes later is pending."""
    case = given(NESTED).started()
    case.when(NodeDone("rollout[0]/apply", 1, {})).when(NodeDone("rollout[1]/apply", 1, {}))
    assert "rollout[0]/apply" not in case.state.nodes
    assert drawn(case) == [
        "plan completed",
        "rollout started",
        "rollout[0] completed",
        "rollout[0]/apply completed",
        "rollout[0]/confirm skipped",
        "rollout[1] started",
        "rollout[1]/apply completed",
        "rollout[1]/confirm waiting",
        "tell pending",
    ]
    assert found(case, "rollout[1]").item == "us"
    assert found(case, "rollout[1]/confirm").prompts == [case.prompt.prompt_id]


def test_the_tree_can_be_drawn_as_it_was_after_every_event() -> None:
    """Every beginning of a journal gives a tree; what is completed in one is completed in all later ones."""
    case = given(NESTED).started()
    case.when(NodeDone("rollout[0]/apply", 1, {})).when(NodeDone("rollout[1]/apply", 1, {}))
    case.when(case.answer(text="fine"))
    assert case.state.status == "complete"
    done: set[str] = set()
    for at in range(1, len(case.events) + 1):
        now = {line for line in drawn(case, at) if line.endswith(" completed")}
        assert done <= now
        done = now
    assert drawn(case, 8)[:4] == [
        "plan completed",
        "rollout started",
        "rollout[0] started",
        "rollout[0]/apply started",
    ]
    assert found(case, "rollout").status == "completed"


def test_what_a_failure_leaves_behind_is_shown_as_left() -> None:
    """When one branch fails, the question in the other has ended, and so is its pass; the branch that failed says so."""
    case = given(
        """
nodes:
  - id: both
    type: parallel
    branches:
      left: [{id: l, type: ask, with: {message: "?"}}]
      right: [{id: r, type: shell, with: {run: [x]}}]
"""
    ).started()
    case.when(NodeBroke("both[right]/r", 1, {"type": "exit_code", "message": "no"}))
    assert drawn(case) == [
        "both failed",
        "both[left] stopped",
        "both[left]/l stopped",
        "both[right] failed",
        "both[right]/r failed",
    ]
    assert found(case, "both[left]/l").prompts == []


def test_retries_interruptions_and_questions_for_inputs_are_told() -> None:
    """A retry says when it runs again, an interruption that it is asked about, an input that it was asked for."""
    case = given(
        """
inputs: {who: {type: string}}
nodes:
  - {id: a, type: shell, retry: {attempts: 2, delay: 60s}, with: {run: [x]}}
"""
    ).started()
    case.when(case.answer(text="bob"))
    case.when(NodeBroke("a", 1, {"type": "exit_code", "message": "no"}))
    assert drawn(case) == ["inputs/who completed", "a retrying"]
    assert found(case, "a").until == "2026-11-21T09:01:00.000Z"
    case.later(60).when(case.timer_due()).claimed()
    again = found(case, "a")
    assert (again.status, again.attempts, again.prompts) == ("interrupted", 2, [case.prompt.prompt_id])


def test_the_wait_for_the_next_try_is_no_work() -> None:
    """A step of two tries, 2 s and 3 s, with a minute between them, has worked for 5 s."""
    case = given(
        "nodes: [{id: a, type: shell, retry: {attempts: 2, delay: 60s}, on_crash: again, with: {run: [x]}}]"
    ).started()
    case.later(2).when(NodeBroke("a", 1, {"type": "exit_code", "message": "no"}))
    assert worked(found(case, "a").spans, case.now) == 2
    case.later(60).when(case.timer_due())
    case.later(3).when(NodeDone("a", 2, {}))
    again = found(case, "a")
    assert (again.status, worked(again.spans, case.now)) == ("completed", 5)


def test_the_tree_is_plain_json() -> None:
    """What is not set is left out; children are nested."""
    case = given(
        "nodes: [{id: a, type: set, with: {x: 1}}, {id: b, type: ask, with: {message: m}}]"
    ).started()
    document = tree(case.events, case.flow).to_json()
    assert [(child["path"], child["status"]) for child in document["children"]] == [
        ("a", "completed"),
        ("b", "waiting"),
    ]
    assert "error" not in document["children"][0]


def test_what_a_failure_brings_about_stands_inside_the_node_that_failed() -> None:
    """`on_failure` is a pass of its node, whose outcome comes after it; it can be drawn after every event."""
    case = given(
        """
nodes:
  - {id: apply, type: shell, with: {run: [x]}, on_failure: [{id: mend, type: shell, with: {run: [y]}}]}
"""
    ).started()
    case.when(NodeBroke("apply", 1, {"type": "exit_code", "message": "broken"}))
    assert drawn(case) == ["apply started", "apply! started", "apply!/mend started"]
    case.when(NodeDone("apply!/mend", 1, {}))
    assert drawn(case) == ["apply failed", "apply! completed", "apply!/mend completed"]
    assert found(case, "apply!").name == "on_failure"
    for at in range(1, len(case.events) + 1):
        assert tree(case.events[:at], case.flow)


def test_what_runs_at_the_end_stands_behind_everything() -> None:
    """`finally` is the last pass of the flow; it has ended when the session is."""
    case = given(
        """
nodes:
  - {id: plan, type: set, with: {n: 3}}
finally:
  - {id: clean, type: shell, with: {run: [x]}}
  - {id: after, type: shell, with: {run: [y]}}
"""
    ).started()
    assert drawn(case) == ["plan completed", "finally started", "finally/clean started", "after pending"]
    case.when(NodeDone("finally/clean", 1, {})).when(NodeDone("finally/after", 1, {}))
    assert drawn(case) == [
        "plan completed",
        "finally completed",
        "finally/clean completed",
        "finally/after completed",
    ]
    assert case.state.status == "complete"


def test_a_finally_that_failed_is_shown_as_failed() -> None:
    """The list that runs at the end has failed where a node of it did, with that node's error."""
    case = given(
        """
nodes: [{id: a, type: noop}]
finally: [{id: mend, type: shell, with: {run: [x]}}, {id: rest, type: noop}]
"""
    ).started()
    case.when(NodeBroke("finally/mend", 1, {"type": "exit_code", "message": "no"}))
    assert drawn(case) == ["a completed", "finally failed", "finally/mend failed"]
    assert (found(case, "finally").error or {})["message"] == "no"
