"""Containers as state: passes, pauses inside them, failures, and what an iteration leaves behind."""

from __future__ import annotations

import pytest

from engine.decide.commands import NodeBroke, NodeDone
from tests.support.engine import ANA, Scenario, given

ERROR = {"type": "exit_code", "message": "it broke", "details": None}
EACH = """
nodes:
  - id: each
    type: foreach
    with: {{items: [eu, us, ap], as: region, concurrency: {concurrency}}}
    body:
      - {{id: apply, type: shell, with: {{run: [apply, "{{{{ region }}}}"]}}}}
      - {{id: ok, type: ask, with: {{message: "{{{{ region }}}} is done?"}}}}
  - {{id: after, type: set, with: {{said: "{{{{ nodes.each.iterations | map(attribute='outputs.ok.text') | list }}}}"}}}}
"""
BOTH = """
nodes:
  - id: both
    type: parallel
    with: {mode: MODE}
    branches:
      left: [{id: ask, type: ask, with: {message: How?}}]
      right: [{id: work, type: shell, with: {run: [work]}}]
  - {id: after, type: noop}
"""


def each(concurrency: int = 1) -> Scenario:
    """A session in the first pass of a foreach."""
    return given(EACH.format(concurrency=concurrency)).started()


def answer(case: Scenario, path: str, text: str) -> None:
    """Answer the open prompt at a path."""
    (prompt_id,) = [key for key in case.state.open_prompts if case.state.prompts[key].path == path]
    from engine.decide.commands import Answer

    case.when(Answer(prompt_id, ANA, f"key {path}", text=text))


def test_a_pause_in_an_iteration_goes_on_in_that_iteration() -> None:
    """After each reply the next pass begins; no pass begins twice and nothing of an earlier one runs again."""
    case = each()
    for index, region in enumerate(["eu", "us", "ap"]):
        path = f"each[{index}]/apply"
        assert case.node(path).input["run"] == ["apply", region]
        case.when(NodeDone(path, 1, {"stdout": region}))
        assert case.state.phase == "waiting"
        answer(case, f"each[{index}]/ok", f"{region} fine")
    assert case.state.status == "complete"
    assert case.node("after").output == {"said": ["eu fine", "us fine", "ap fine"]}
    types = [event.type for event in case.events]
    assert types.count("container:iterationStarted") == 3
    assert types.count("container:childStarted") == 6


def test_the_ends_of_an_iteration_and_of_its_container_repeat_no_output() -> None:
    """An answer is in its own event, in the one of the resume and in the outcome of its node."""
    body = '[{id: q, type: ask, with: {message: "{{ item }}?"}}]'
    case = given(f"nodes: [{{id: each, type: foreach, with: {{items: [1, 2]}}, body: {body}}}]").started()
    answer(case, "each[0]/q", "a remarkable answer")
    answer(case, "each[1]/q", "another")
    assert case.state.status == "complete"
    holding = {event.type for event in case.events if b"a remarkable answer" in event.to_bytes()}
    assert holding == {"prompt:answered", "flow:resumed", "container:childCompleted"}


def test_items_are_frozen_when_the_container_starts() -> None:
    """What the list was made from may change; the passes go through the list as it was."""
    flow = """
nodes:
  - {id: each, type: foreach, with: {items: "{{ messages }}"}, body: [{id: ok, type: ask, with: {message: Go?, choices: [go]}}]}
  - {id: q, type: ask, with: {message: Last?, choices: [go]}}
"""
    case = given(flow).started()
    assert case.prompt.path == "q", "there were no messages, so there were no passes"
    assert case.node("each").output == {"iterations": []}


def test_passes_run_side_by_side_as_far_as_concurrency_says() -> None:
    """With two at a time the third pass begins when one of the first two has ended."""
    case = each(2)
    assert sorted(case.state.active) == ["each", "each[0]/apply", "each[1]/apply"]
    case.when(NodeDone("each[1]/apply", 1, {}))
    assert "flow:paused" not in [event.type for event in case.last], "the first pass still works"
    case.when(NodeDone("each[0]/apply", 1, {}))
    assert case.state.phase == "waiting"
    answer(case, "each[1]/ok", "second")
    assert sorted(case.state.active) == ["each", "each[0]/ok", "each[2]/apply"]


def test_results_stand_in_the_order_of_the_list() -> None:
    """Whichever pass ends first, the outputs are those of the list, and their keys those of the file."""
    case = each(3)
    for index in (2, 0, 1):
        case.when(NodeDone(f"each[{index}]/apply", 1, {}))
    for index in (1, 2, 0):
        answer(case, f"each[{index}]/ok", str(index))
    assert case.node("after").output == {"said": ["0", "1", "2"]}
    for result in case.node("each").output["iterations"]:
        assert list(result["outputs"]) == ["apply", "ok"]


def test_a_pass_that_fails_ends_the_others() -> None:
    """The failure waits for what runs, withdraws the questions of the other passes, and fails the container."""
    case = each(3)
    case.when(NodeDone("each[0]/apply", 1, {}))
    case.when(NodeBroke("each[1]/apply", 1, ERROR))
    assert "session:end" not in [event.type for event in case.last]
    case.when(NodeDone("each[2]/apply", 1, {}))
    assert case.event("prompt:cancelled").path == "each[0]/ok"
    assert case.state.status == "failed"
    assert case.state.error is not None
    assert (case.state.error["message"], case.state.error["path"]) == ("it broke", "each[1]/apply")


def test_a_crash_in_two_passes_asks_about_both() -> None:
    """Each interrupted node has a question of its own; answers are matched by id, not by order."""
    case = each(2).claimed()
    case.then("node:interrupted", "node:interrupted", "prompt:requested", "prompt:requested", "flow:paused")
    from engine.decide.commands import Answer

    by_path = {case.state.prompts[key].path: key for key in case.state.open_prompts}
    case.when(Answer(by_path["each[1]/apply"], ANA, "k1", value="done"))
    assert case.node("each[1]/apply").status == "completed"
    assert case.node("each[0]/apply").status == "interrupted"


@pytest.mark.parametrize("mode", ["fail_fast", "collect"])
def test_a_branch_that_waits_holds_up_no_other(mode: str) -> None:
    """While one branch waits for a person the other works; the session is paused when nothing else can run."""
    case = given(BOTH.replace("MODE", mode)).started()
    assert "flow:paused" not in [event.type for event in case.last]
    assert [prompt.path for prompt in map(case.state.prompts.__getitem__, case.state.open_prompts)] == [
        "both[left]/ask"
    ]
    case.when(NodeDone("both[right]/work", 1, {}))
    assert case.state.phase == "waiting"


def test_an_answer_while_another_branch_works_is_taken() -> None:
    """The session need not be paused for a prompt to be answered."""
    case = given(BOTH.replace("MODE", "fail_fast")).started()
    answer(case, "both[left]/ask", "fine")
    assert "flow:resumed" not in [event.type for event in case.last]
    case.when(NodeDone("both[right]/work", 1, {"stdout": "x"}))
    assert case.state.status == "complete"
    assert case.node("both").output["branches"]["left"]["ask"]["text"] == "fine"


def test_fail_fast_withdraws_and_collect_goes_on() -> None:
    """A failing branch ends the others, or is one result among them."""
    case = given(BOTH.replace("MODE", "fail_fast")).started().when(NodeBroke("both[right]/work", 1, ERROR))
    assert case.event("prompt:cancelled").path == "both[left]/ask"
    assert case.state.status == "failed"
    case = given(BOTH.replace("MODE", "collect")).started().when(NodeBroke("both[right]/work", 1, ERROR))
    assert case.state.phase == "waiting"
    answer(case, "both[left]/ask", "fine")
    assert case.state.status == "complete"
    assert case.node("both").output["branches"]["right"] == {"work": None}


def test_what_a_failed_branch_did_not_come_to_is_null() -> None:
    """An expression behind the parallel may name every node of every branch, also where one failed early."""
    flow = """
nodes:
  - id: both
    type: parallel
    with: {mode: collect}
    branches:
      left: [{id: fails, type: fail, with: {message: no}}, {id: never, type: set, with: {x: 1}}]
      right: [{id: fine, type: set, with: {x: 2}}]
  - {id: after, type: set, with: {never: "{{ nodes.both.branches.left.never }}", fine: "{{ nodes.both.branches.right.fine.x | default(0) }}"}}
"""
    case = given(flow).started()
    assert case.node("both").output["branches"]["left"] == {"fails": None, "never": None}
    assert case.node("after").output == {"never": None, "fine": 2}


def test_a_loop_of_pure_nodes_ends_a_turn_now_and_then() -> None:
    """A long loop holds the event loop for a bounded number of starts at a time, and still ends."""
    flow = """
nodes:
  - id: again
    type: loop
    with: {until: "{{ index >= 1500 }}", max_iterations: 2000}
    body: [{id: n, type: noop}]
"""
    case, turns = given(flow).started(), 0
    from engine.decide.commands import Begin

    while not case.state.ended:
        case.only(Begin())
        turns += 1
        assert sum(event.type == "container:childStarted" for event in case.last) <= 201
    assert case.state.status == "complete"
    assert turns >= 5


def test_what_an_iteration_did_is_forgotten_once_it_is_over() -> None:
    """The state holds the outputs of past passes once, and none of their nodes: it does not grow with each node."""
    flow = """
nodes:
  - {id: each, type: foreach, with: {items: "{{ range(50) }}"}, body: [{id: n, type: noop}, {id: q, type: set, with: {x: 1}}]}
  - {id: end, type: ask, with: {message: Done?}}
"""
    case = given(flow).started()
    assert case.state.phase == "waiting"
    assert sorted(case.state.nodes) == ["each", "end"]
    assert list(case.state.frames) == [""]
    assert not case.state.containers


# --- retries -----------------------------------------------------------------------------------------------

FLAKY = "nodes: [{id: a, type: http, with: {url: 'http://e.org'}, retry: {attempts: 3, delay: 10s, backoff: exponential}}]"


def test_a_failure_is_tried_again_after_its_delay() -> None:
    """Each attempt waits longer, keeps path and input, and the last failure is final."""
    case = given(FLAKY).started()
    for attempt, wait in ((1, 10), (2, 20)):
        case.when(NodeBroke("a", attempt, ERROR)).then("node:retried", "flow:paused")
        case.later(wait - 0.001).when(case.timer_due()).then()
        case.later(0.001).when(case.timer_due()).then("timer:fired", "flow:resumed", "node:started")
        assert case.node("a").attempt == attempt + 1
    case.when(NodeBroke("a", 3, ERROR)).then("node:error", "flow:failed", "session:end")


def test_a_retry_survives_a_crash() -> None:
    """The wait between two attempts is a timer in the store; a claim neither shortens nor doubles it."""
    case = given(FLAKY).started().when(NodeBroke("a", 1, ERROR))
    case.claimed().then()
    case.later(10).when(case.timer_due()).then("timer:fired", "flow:resumed", "node:started")
    case.when(NodeDone("a", 2, {"status": 200}))
    assert case.state.status == "complete"


def test_a_late_outcome_during_the_wait_changes_nothing() -> None:
    """Between two attempts nothing runs, so nothing can be reported."""
    case = given(FLAKY).started().when(NodeBroke("a", 1, ERROR))
    case.when(NodeDone("a", 1, {}), NodeBroke("a", 1, ERROR)).then()


def test_a_thousand_attempts_overflow_nothing() -> None:
    """The delay of a late attempt is the longest one, not a number that no float holds."""
    flow = FLAKY.replace("attempts: 3", "attempts: 1200")
    case = given(flow).started()
    for attempt in range(1, 1101):
        case.when(NodeBroke("a", attempt, ERROR))
        case.later(300).only(case.timer_due())
        from engine.decide.commands import Begin

        case.only(Begin())
    assert case.node("a").attempt == 1101


def test_an_abort_ends_a_retry() -> None:
    """A session that waits for its next attempt ends at once."""
    case = given(FLAKY).started().when(NodeBroke("a", 1, ERROR))
    case.when(case.abort()).then("session:abort", "session:end")
    assert not case.state.timers


ORDERED = """
nodes:
  - id: each
    type: foreach
    with: {items: "{{ range(12) | list }}", as: host, concurrency: 12}
    body:
      - {id: ask, type: ask, with: {message: Well?}}
  - id: both
    type: parallel
    branches:
      z: [{id: ask_z, type: ask, with: {message: Well?}}]
      b: [{id: ask_b, type: ask, with: {message: Well?}}]
      a: [{id: ask_a, type: ask, with: {message: Well?}}]
"""


def test_questions_of_passes_and_branches_are_asked_in_the_order_of_the_flow() -> None:
    """Twelve passes at once ask as their items are in the list, and branches as they are in the file: the tenth pass
    does not come before the second, nor `a` before `z`."""
    case = given(ORDERED).started()
    assert _asked(case) == [f"each[{index}]/ask" for index in range(12)]
    for index in range(12):
        answer(case, f"each[{index}]/ask", "fine")
    assert _asked(case) == ["both[z]/ask_z", "both[b]/ask_b", "both[a]/ask_a"]


def _asked(case: Scenario) -> list[str]:
    """The places of the open questions, by the numbers that people see."""
    prompts = [case.state.prompts[key] for key in case.state.open_prompts]
    return [prompt.path for prompt in sorted(prompts, key=lambda prompt: prompt.number)]


def test_nothing_begins_beside_what_failed_in_the_same_step() -> None:
    """Both branches are due at once; the first one fails, so the second one's program is not launched any more."""
    case = given(
        """
nodes:
  - id: both
    type: parallel
    branches:
      l: [{id: a, type: fail, with: {message: "no"}}]
      r: [{id: b, type: shell, with: {run: [ls]}}]
"""
    ).started()
    assert case.state.status == "failed"
    assert "both[r]/b" not in [event.path for event in case.events]
