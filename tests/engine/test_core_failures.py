"""What a failure does: `on_failure`, `on_error: ask`, jumps, and the time limit of a container."""

from __future__ import annotations

import pytest

from engine.decide.commands import Hold, NodeBroke, NodeCut, NodeDone, Resume
from engine.language.errors import NotAllowed
from tests.support.engine import ANA, BEN, Scenario, given

OUTPUT = {"stdout": "x", "stderr": "", "exit_code": 0, "seconds": 0.1}
ERROR = {"type": "exit_code", "message": "no"}

HANDLED = """
nodes:
  - id: a
    type: shell
    with: {run: [ls]}
    on_failure:
      - {id: note, type: set, with: {why: "{{ errors.a.message }}", how: "{{ status.a }}"}}
      - {id: tell, type: shell, with: {run: [tell]}}
  - {id: b, type: noop}
"""


def paths(case: Scenario, kind: str) -> list[str | None]:
    """Where events of a type happened, in order."""
    return [event.path for event in case.events if event.type == kind]


# --- on_failure ------------------------------------------------------------------------------------------


def test_on_failure_runs_before_the_failure_counts() -> None:
    """Its nodes see the error; the session fails only once they have ended."""
    case = given(HANDLED).started()
    case.when(NodeBroke("a", 1, ERROR)).then(
        "node:failing", "container:childStarted", "container:childCompleted", "container:childStarted"
    )
    assert case.node("a!/note").output == {"why": "no", "how": "failed"}
    case.when(NodeDone("a!/tell", 1, OUTPUT)).then(
        "container:childCompleted",
        "container:iterationCompleted",
        "container:completed",
        "node:error",
        "flow:failed",
        "session:end",
    )
    assert case.state.error == ERROR
    assert "b" not in case.state.nodes


def test_after_on_failure_a_contained_failure_lets_the_list_go_on() -> None:
    """`on_error: continue` holds once `on_failure` has ended."""
    flow = HANDLED.replace(
        "type: shell\n    with: {run: [ls]}", "type: shell\n    on_error: continue\n    with: {run: [ls]}"
    )
    case = given(flow).started()
    case.when(NodeBroke("a", 1, ERROR), NodeDone("a!/tell", 1, OUTPUT))
    assert (case.state.status, case.node("a").status, case.node("b").status) == (
        "complete",
        "failed",
        "completed",
    )
    assert case.event("node:error").contained is True


def test_a_failure_inside_on_failure_lets_the_first_one_proceed() -> None:
    """What fails there ends the list; the error that counts is the node's own."""
    case = given(HANDLED).started()
    case.when(NodeBroke("a", 1, ERROR), NodeBroke("a!/tell", 1, {"type": "exit_code", "message": "other"}))
    assert (case.state.status, case.state.error) == ("failed", ERROR)
    assert paths(case, "node:error") == ["a!/tell", "a"]


def test_on_failure_comes_after_the_last_try() -> None:
    """A failure that is tried again is none yet."""
    flow = HANDLED.replace("with: {run: [ls]}", "with: {run: [ls]}\n    retry: {attempts: 2, delay: 5s}", 1)
    case = given(flow).started()
    case.when(NodeBroke("a", 1, ERROR)).then("node:retried", "flow:paused")
    case.later(10).when(case.timer_due(), NodeBroke("a", 2, ERROR))
    assert paths(case, "node:failing") == ["a"]
    assert case.event("node:failing").attempt == 2


def test_on_failure_of_a_child_and_of_its_container() -> None:
    """The child's runs, then the child fails its container, whose own runs then."""
    flow = """
nodes:
  - id: each
    type: foreach
    with: {items: [1, 2]}
    body:
      - id: a
        type: fail
        with: {message: "no {{ item }}"}
        on_failure: [{id: inner, type: set, with: {seen: "{{ errors.a.message }}, {{ item }}"}}]
    on_failure: [{id: outer, type: set, with: {seen: "{{ errors.each.message }}"}}]
  - {id: b, type: noop}
"""
    case = given(flow).started()
    done = {event.path: event.output for event in case.events if event.type == "container:childCompleted"}
    assert done == {"each[0]/a!/inner": {"seen": "no 1, 1"}, "each!/outer": {"seen": "no 1"}}
    assert paths(case, "node:error") == ["each[0]/a", "each"]
    assert case.state.status == "failed"


def test_on_failure_may_ask_people_and_survives_a_crash() -> None:
    """A prompt inside it parks the session like any other."""
    flow = """
nodes:
  - id: a
    type: fail
    with: {message: No}
    on_error: continue
    on_failure: [{id: q, type: ask, with: {message: "{{ errors.a.message }}: what now?"}}]
  - {id: b, type: set, with: {seen: "{{ status.a }}"}}
"""
    case = given(flow).started()
    assert (case.state.phase, case.prompt.path) == ("waiting", "a!/q")
    case.claimed().then()
    case.when(case.answer(text="go on"))
    assert (case.state.status, case.node("b").output) == ("complete", {"seen": "failed"})


def test_a_crash_in_on_failure_asks_about_the_node_that_ran() -> None:
    """Its nodes are interrupted like any others."""
    case = given(HANDLED).started()
    case.when(NodeBroke("a", 1, ERROR)).claimed()
    assert (case.prompt.kind, case.prompt.path) == ("interrupted", "a!/tell")
    case.when(case.answer("done"))
    assert case.state.error == ERROR


def test_what_fails_while_the_session_is_held_is_handled_after_the_pause() -> None:
    """The outcome is recorded, and nothing starts until a person resumes."""
    case = given(HANDLED).started()
    case.only(Hold(ANA)).only(NodeBroke("a", 1, ERROR)).then("node:failing")
    case.when(Resume("go on", ANA, "k"))
    assert case.node("a!/tell").status == "started"


def test_an_abort_while_on_failure_runs_ends_the_session() -> None:
    """Nothing of it starts any more, and the failure is not said again."""
    case = given(HANDLED).started()
    case.when(NodeBroke("a", 1, ERROR), case.abort(), NodeCut("a!/tell", 1, "cut"))
    case.then(
        *("node:failing", "container:childStarted", "container:childCompleted", "container:childStarted"),
        *("session:abort", "node:interrupted", "session:end"),
    )


# --- on_error: ask ---------------------------------------------------------------------------------------

ASKS = """
nodes:
  - {id: a, type: shell, with: {run: [ls]}, on_error: ask}
  - {id: b, type: set, with: {how: "{{ status.a }}", what: "{{ nodes.a }}", why: "{{ errors.a }}"}}
"""


def test_a_failure_asks_what_to_do() -> None:
    """The question says what happened and offers three ways on."""
    case = given(ASKS).started()
    case.when(NodeBroke("a", 1, ERROR)).then("node:failing", "prompt:requested", "flow:paused")
    assert (case.prompt.kind, case.prompt.path) == ("failed", "a")
    assert [option["value"] for option in case.prompt.options] == ["retry", "skip", "abort"]
    assert "no" in case.prompt.message
    case.claimed().then()


def test_a_person_lets_it_be_tried_again() -> None:
    """The same path with the same input, as the next attempt; a second failure asks again."""
    case = given(ASKS).started()
    before = case.node("a").input
    case.when(NodeBroke("a", 1, ERROR))
    first = case.prompt.prompt_id
    case.when(case.answer("retry")).then("prompt:answered", "flow:resumed", "node:started")
    assert (case.node("a").attempt, case.node("a").input) == (2, before)
    case.when(NodeBroke("a", 2, ERROR))
    assert case.prompt.prompt_id != first
    case.when(case.answer("retry"), NodeDone("a", 3, OUTPUT))
    assert case.node("b").output == {"how": "completed", "what": OUTPUT, "why": None}


def test_a_person_lets_the_session_go_on_without_it() -> None:
    """A skipped node has a null output and the status `skipped`."""
    case = given(ASKS).started()
    case.when(NodeBroke("a", 1, ERROR))
    case.when(case.answer("skip"))
    assert case.node("b").output == {"how": "skipped", "what": None, "why": None}
    assert case.state.status == "complete"


def test_a_person_aborts_the_session_over_it() -> None:
    """The session is aborted, not failed."""
    case = given(ASKS).started()
    case.when(NodeBroke("a", 1, ERROR))
    case.when(case.answer("abort")).then("prompt:answered", "flow:resumed", "session:abort", "session:end")
    assert case.state.status == "aborted"


def test_nobody_says_what_to_do_in_time() -> None:
    """Then the failure counts."""
    case = given("limits: {deadline: 1h}\n" + ASKS).started()
    case.when(NodeBroke("a", 1, ERROR))
    case.when(case.shown())
    case.later(4000).when(case.timer_due())
    case.then("timer:fired", "prompt:expired", "flow:resumed", "node:error", "flow:failed", "session:end")
    assert case.state.error == ERROR


def test_who_may_not_resolve_a_failure_is_refused() -> None:
    """The policy is asked for `resolve`."""
    case = given(ASKS).allowing(ANA).started()
    case.when(NodeBroke("a", 1, ERROR))
    assert case.refused(case.answer("retry", actor=BEN), NotAllowed) == "ben may not resolve"


def test_a_node_that_failed_before_it_had_an_input_is_evaluated_again() -> None:
    """The configuration that could not be evaluated is evaluated again, and may fail again."""
    flow = """
inputs: {data: {type: object}}
nodes: [{id: a, type: set, with: {x: "{{ inputs.data.missing }}"}, on_error: ask}]
"""
    case = given(flow).started(data={})
    case.when(case.answer("retry"))
    assert (case.node("a").attempt, case.prompt.kind) == (2, "failed")
    assert case.node("a").error["type"] == "expression"  # type: ignore[index]  # it failed, so it has one


def test_on_failure_runs_before_the_question_and_again_after_the_next_failure() -> None:
    """Each time under paths of its own."""
    case = given(HANDLED.replace("    on_failure", "    on_error: ask\n    on_failure")).started()
    case.when(NodeBroke("a", 1, ERROR), NodeDone("a!/tell", 1, OUTPUT))
    case.when(case.answer("retry"), NodeBroke("a", 2, ERROR), NodeDone("a!2/tell", 1, OUTPUT))
    case.when(case.answer("skip"))
    assert case.state.status == "complete"
    started = paths(case, "container:childStarted")
    assert started == ["a!/note", "a!/tell", "a!2/note", "a!2/tell"]


def test_a_container_that_is_tried_again_runs_anew_under_paths_of_its_own() -> None:
    """Its nodes get other idempotency keys, and nothing of the first attempt counts."""
    flow = """
nodes:
  - id: each
    type: foreach
    on_error: ask
    with: {items: [1, 2]}
    body: [{id: a, type: shell, with: {run: [ls]}}]
"""
    case = given(flow).started()
    case.when(NodeDone("each[0]/a", 1, OUTPUT), NodeBroke("each[1]/a", 1, ERROR))
    assert case.prompt.path == "each"
    case.when(case.answer("retry"), NodeDone("each#2[0]/a", 1, OUTPUT), NodeDone("each#2[1]/a", 1, OUTPUT))
    assert case.state.status == "complete"
    assert len(case.node("each").output["iterations"]) == 2


def test_retry_of_a_container_waits_and_runs_it_anew() -> None:
    """A container's own `retry` counts as that of any node."""
    flow = """
nodes:
  - id: sub
    type: loop
    retry: {attempts: 2, delay: 5s}
    with: {until: "{{ last.a.exit_code == 0 }}"}
    body: [{id: a, type: shell, with: {run: [ls]}}]
"""
    case = given(flow).started()
    case.when(NodeBroke("sub[0]/a", 1, ERROR)).then("node:error", "node:retried", "flow:paused")
    case.later(10).when(case.timer_due(), NodeDone("sub#2[0]/a", 1, OUTPUT))
    assert case.state.status == "complete"


# --- timeout of a container ------------------------------------------------------------------------------

LIMITED = """
nodes:
  - id: both
    type: parallel
    timeout: 1m
    on_error: continue
    branches:
      one: [{id: a, type: shell, with: {run: [ls]}}, {id: after, type: noop}]
      two: [{id: q, type: ask, with: {message: Well?}}]
  - {id: b, type: set, with: {how: "{{ (errors.both or {'type': 'none'}).type }}"}}
"""


def test_a_container_that_runs_out_of_time_is_cancelled_for_real() -> None:
    """What runs inside is told to leave, its questions are withdrawn, and it fails with a timeout."""
    case = given(LIMITED).started()
    case.later(61).when(case.timer_due()).then("timer:fired")
    case.when(NodeCut("both[one]/a", 1, "cut")).then(
        *("node:interrupted", "prompt:cancelled", "node:error"),
        *("node:started", "node:completed", "flow:completed", "session:end"),
    )
    assert case.node("b").output == {"how": "timeout"}


def test_a_container_that_waits_runs_out_of_time_too() -> None:
    """A timer wakes the session, also after a restart."""
    case = given(LIMITED).started()
    case.when(NodeDone("both[one]/a", 1, OUTPUT))
    assert case.state.phase == "waiting"
    case.epoch += 1
    case.later(61).when(case.timer_due())
    assert (case.state.status, case.node("b").output) == ("complete", {"how": "timeout"})


def test_a_container_that_ends_in_time_leaves_no_timer() -> None:
    """Its timer goes with it."""
    case = given(LIMITED).started()
    case.when(NodeDone("both[one]/a", 1, OUTPUT), case.answer(text="fine"))
    assert case.node("both").status == "completed"
    assert not case.state.timers


# --- goto ------------------------------------------------------------------------------------------------


def test_goto_leads_back_and_opens_another_visit() -> None:
    """The target and what follows it get paths of a second visit; expressions see the latest."""
    flow = """
nodes:
  - {id: a, type: noop}
  - {id: b, type: shell, with: {run: [ls]}, on_error: "goto:a"}
  - {id: c, type: set, with: {seen: "{{ nodes.b.stdout }}"}}
"""
    case = given(flow).started()
    case.when(NodeBroke("b", 1, ERROR)).then(
        "node:error", "loop:iterate", "node:started", "node:completed", "node:started"
    )
    jump = case.event("loop:iterate")
    assert (jump.path, jump.edge_from, jump.edge_to, jump.iteration) == ("b", "b", "a", 1)
    case.when(NodeBroke("b~2", 1, ERROR))
    assert case.event("loop:iterate").iteration == 2
    case.when(NodeDone("b~3", 1, OUTPUT))
    assert case.state.status == "complete"
    assert case.node("c").output == {"seen": "x"}
    assert sorted(case.state.nodes) == ["a~3", "b~3", "c"]


def test_goto_leads_ahead() -> None:
    """What lies between never runs and is null."""
    flow = """
nodes:
  - {id: a, type: fail, with: {message: No}, on_error: "goto:c"}
  - {id: b, type: set, with: {x: 1}}
  - {id: c, type: set, with: {seen: "{{ nodes.b }}"}}
"""
    case = given(flow).started()
    assert (case.state.status, case.node("c").output) == ("complete", {"seen": None})
    assert "b" not in case.state.nodes


def test_goto_inside_a_body_stays_there_and_ends_at_the_limit_of_nodes() -> None:
    """A jump that always comes again is ended by `limits.max_node_runs`."""
    flow = """
limits: {max_node_runs: 20}
nodes:
  - id: each
    type: foreach
    with: {items: [1]}
    body:
      - {id: a, type: noop}
      - {id: b, type: fail, with: {message: No}, on_error: "goto:a"}
"""
    case = given(flow).started()
    assert (case.state.status, case.state.error["type"]) == ("failed", "limit")  # type: ignore[index]  # it failed
    assert "each[0]/b~9" in paths(case, "node:error")


@pytest.mark.parametrize("held", [False, True])
def test_goto_waits_for_a_held_session(held: bool) -> None:
    """A jump that is decided while the session is held is carried out once it continues."""
    flow = """
nodes:
  - {id: a, type: noop}
  - {id: b, type: shell, with: {run: [ls]}, on_error: "goto:a"}
"""
    case = given(flow).started()
    if held:
        case.only(Hold(ANA))
    case.when(NodeBroke("b", 1, ERROR))
    if held:
        case.then("node:error").when(Resume("go", ANA, "k"))
    assert case.node("b~2").status == "started"
