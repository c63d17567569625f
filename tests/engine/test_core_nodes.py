"""Nodes of every type: conditions, configurations, outcomes and what a failure does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.decide import begin
from engine.decide.commands import Begin, NodeBroke, NodeDone
from engine.flow.load import load_flow
from engine.journal.queries import ended_at
from tests.support.engine import ANA, Scenario, given

SHELL = "nodes: [{id: a, type: shell, with: {run: [ls]}}, {id: b, type: noop}]"
OUTPUT = {"stdout": "x", "stderr": "", "exit_code": 0, "seconds": 0.1}
ERROR = {"type": "exit_code", "message": "ls ended with exit code 2", "details": None}


@pytest.mark.parametrize(("sure", "event"), [(True, "node:completed"), (False, "node:skipped")])
def test_a_condition_decides_whether_a_node_runs(sure: bool, event: str) -> None:
    """`if` true runs the node, `if` false skips it with a null output."""
    flow = """
inputs: {sure: {type: boolean}}
nodes:
  - {id: a, type: set, if: "{{ inputs.sure }}", with: {x: 1}}
  - {id: b, type: set, with: {seen: "{{ nodes.a }}", how: "{{ status.a }}"}}
"""
    case = given(flow).started(sure=sure)
    assert event in [written.type for written in case.last if written.path == "a"]
    assert case.node("b").output["how"] == case.node("a").status
    assert case.node("b").output["seen"] == ({"x": 1} if sure else None)


@pytest.mark.parametrize(
    "condition", ["{{ inputs.data.n }}", "{{ nodes.s.text }}", "{{ inputs.data.n / 0 == 1 }}"]
)
def test_a_condition_that_is_no_boolean_or_breaks_fails_the_node(condition: str) -> None:
    """A condition must give true or false; anything else fails the node, naming it."""
    flow = f"""
inputs: {{data: {{type: object}}}}
nodes:
  - {{id: s, type: set, with: {{text: "{{{{ inputs.data.text }}}}"}}}}
  - {{id: a, type: noop, if: "{condition}"}}
"""
    case = given(flow).started(data={"n": 1, "text": "yes"})
    assert case.state.status == "failed"
    assert case.node("a").status == "failed"
    assert "node a" in case.state.error["message"]  # type: ignore[index]  # the flow failed, so it has one


def test_an_expression_that_fails_fails_the_flow_and_names_the_node() -> None:
    """A value that is not there at run time is an error of that node; nothing after it runs."""
    flow = """
inputs: {data: {type: object}}
nodes:
  - {id: a, type: set, with: {x: "{{ inputs.data.missing }}"}}
  - {id: b, type: noop}
"""
    case = given(flow).started(data={})
    case.then("session:start", "flow:started", "node:started", "node:error", "flow:failed", "session:end")
    assert case.event("node:error").error["type"] == "expression"
    assert "node a" in case.event("node:error").error["message"]
    assert "b" not in case.state.nodes


def test_a_configuration_that_does_not_fit_once_evaluated_fails_the_node() -> None:
    """`with` is checked again with its values; the error names the field."""
    flow = "inputs: {t: {type: string}}\nnodes: [{id: a, type: wait, with: {for: '{{ inputs.t }}'}}]"
    case = given(flow).started(t="soon")
    assert case.event("node:error").error["type"] == "config"
    assert "node a" in case.event("node:error").error["message"]


def test_on_error_continue_goes_on_with_a_null_output() -> None:
    """With `on_error: continue` the flow continues; `errors` says why the node failed."""
    flow = """
inputs: {data: {type: object}}
nodes:
  - {id: a, type: set, on_error: continue, with: {x: "{{ inputs.data.missing }}"}}
  - {id: b, type: set, with: {out: "{{ nodes.a }}", how: "{{ status.a }}", why: "{{ errors.a.type | default('none') }}"}}
"""
    case = given(flow).started(data={})
    assert case.state.status == "complete"
    assert case.node("b").output == {"out": None, "how": "failed", "why": "expression"}


def test_fail_fails_the_flow_with_its_message() -> None:
    """`fail` ends the flow on purpose, and with `on_error: continue` only itself."""
    case = given("nodes: [{id: a, type: fail, with: {message: No more}}]").started()
    assert case.state.status == "failed"
    assert case.state.error == {"type": "fail", "message": "No more"}
    case = given("nodes: [{id: a, type: fail, on_error: continue, with: {message: No more}}]").started()
    assert case.state.status == "complete"


ENDING = """
inputs: {n: {type: integer}}
nodes:
  - {id: a, type: set, with: {x: 1}}
  - {id: enough, type: end, if: "{{ inputs.n == 1 }}", with: {output: {x: "{{ nodes.a.x }}"}}}
  - {id: b, type: shell, with: {run: [ls]}}
  - {id: c, type: approval, with: {message: "Go?", approvers: [channel]}}
finally:
  - {id: z, type: set, with: {b: "{{ status.b }}"}}
"""


def test_end_completes_the_flow_with_its_output() -> None:
    """`end` skips the nodes behind it, `finally` runs, and the flow is complete and says where it ended."""
    case = given(ENDING).started(n=1)
    case.then(
        *(
            "session:start",
            "flow:started",
            "node:started",
            "node:completed",
            "node:started",
            "node:completed",
        ),
        *("node:skipped", "node:skipped", "flow:finalizing", "node:started", "node:completed"),
        *("flow:completed", "session:end"),
    )
    assert case.state.status == "complete"
    assert case.node("enough").output == {"output": {"x": 1}}
    assert case.node("b").reason == "ended at `enough`"
    assert case.node("finally/z").output == {"b": "skipped"}
    end = ended_at(case.state)
    assert end is not None
    assert end.node_id == "enough"


def test_an_end_whose_if_is_false_ends_nothing() -> None:
    """The flow continues behind it, and ends at its last node."""
    case = given(ENDING).started(n=2)
    assert case.state.launched
    assert ended_at(case.state) is None


@pytest.mark.parametrize(
    ("around", "ended"),
    [
        ("type: foreach, with: {items: [1, 2]}, body: LIST", ["each[0]/b", "each[1]/b"]),
        ("type: loop, with: {while: '{{ index < 2 }}'}, body: LIST", ["each[0]/b", "each[1]/b"]),
        ("type: parallel, branches: {x: LIST, y: [{id: w, type: set, with: {v: 2}}]}", ["each[x]/b"]),
        ("type: switch, with: {on: x}, cases: {x: LIST}", ["each[x]/b"]),
    ],
)
def test_an_end_inside_ends_the_list_that_it_stands_in(around: str, ended: list[str]) -> None:
    """A round, branch or case that ends early has succeeded, and what is around it continues."""
    inner = "[{id: stop, type: end}, {id: b, type: fail, with: {message: no}}]"
    flow = f"nodes: [{{id: each, {around.replace('LIST', inner)}}}, {{id: after, type: set, with: {{v: 1}}}}]"
    case = given(flow).started()
    assert [event.path for event in case.last if event.type == "node:skipped"] == ended
    assert case.node("after").status == "completed"
    assert case.state.status == "complete"
    assert ended_at(case.state) is None


@pytest.mark.parametrize("fault", [lambda *_: False, lambda state, frame, name: True])
def test_an_end_that_ends_nothing_or_always_is_noticed(
    fault: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seeded fault: nodes after an `end` run anyway, or never run."""
    monkeypatch.setattr(begin, "completed", fault)
    with pytest.raises(AssertionError):
        test_end_completes_the_flow_with_its_output()
        test_an_end_whose_if_is_false_ends_nothing()


def test_an_end_of_a_called_flow_ends_that_flow() -> None:
    """The flow that calls it continues, and has its output."""
    called = load_flow("flow: inner\nnodes: [{id: stop, type: end, with: {output: 7}}, {id: b, type: noop}]")
    text = "flow: demo\nnodes: [{id: call, type: flow, with: {flow: inner}}, {id: after, type: noop}]"
    case = Scenario(load_flow(text, flows={"inner": called}.get)).started()
    assert case.node("call").output == {"outputs": {"stop": {"output": 7}, "b": None}}
    assert case.node("after").status == "completed"
    assert case.state.status == "complete"


def test_an_end_before_the_target_of_a_jump_keeps_it_for_the_jump() -> None:
    """What a timeout leads to does not run after the ordinary end, and does run after the timeout."""
    flow = """
nodes:
  - {id: gate, type: ask, with: {message: "Go?", timeout: 5m, on_timeout: "goto:late"}}
  - {id: done, type: end}
  - {id: late, type: set, with: {why: "{{ errors.gate.message }}"}}
"""
    case = given(flow).started()
    case.when(case.answer(text="yes"))
    assert (case.node("late").status, case.state.status) == ("skipped", "complete")
    case = given(flow).started()
    case.when(case.shown())
    case.later(300).when(case.timer_due())
    assert (case.node("late").status, case.state.status) == ("completed", "complete")


def test_a_shell_node_is_begun_and_waits_for_its_outcome() -> None:
    """A node with effects is started, and nothing after it, until its outcome comes."""
    case = given(SHELL).started()
    case.then("session:start", "flow:started", "node:started")
    assert case.state.phase == "running"
    assert case.event("node:started").input["run"] == ["ls"]
    case.when(Begin()).then()
    case.when(NodeDone("a", 1, OUTPUT))
    case.then("node:completed", "node:started", "node:completed", "flow:completed", "session:end")
    assert case.node("a").output == OUTPUT


def test_an_outcome_of_another_attempt_or_node_changes_nothing() -> None:
    """Late outcomes, outcomes of unknown nodes and second outcomes are no events."""
    case = given(SHELL).started()
    case.when(NodeDone("a", 2, OUTPUT)).then()
    case.when(NodeDone("nowhere", 1, OUTPUT)).then()
    case.when(NodeDone("a", 1, OUTPUT))
    case.when(NodeDone("a", 1, {})).then()
    case.when(NodeBroke("a", 1, ERROR)).then()


@pytest.mark.parametrize("output", [float("nan"), {"when": object()}, {"text": "\ud800"}, {1: 2}, 2**70])
def test_an_output_that_is_not_json_fails_the_node(output: object) -> None:
    """What JSON cannot carry is refused where it was made, naming the node."""
    case = given(SHELL).started().when(NodeDone("a", 1, output))
    assert case.event("node:error").error["type"] == "not_json"
    assert "node a" in case.event("node:error").error["message"]


@pytest.mark.parametrize("details", [float("inf"), "\ud800", object()])
def test_an_error_that_is_not_json_still_fails_the_node(details: object) -> None:
    """A failure whose details cannot be stored is a failure all the same; its type stays."""
    case = given(SHELL).started()
    case.when(NodeBroke("a", 1, {"type": "exit_code", "message": "it broke", "details": details}))
    assert case.state.status == "failed"
    assert case.event("node:error").error["type"] == "exit_code"
    assert "it broke" in case.event("node:error").error["message"]


def test_an_output_with_braces_is_never_evaluated() -> None:
    """The output of a node is data: `{{ }}` in it is not evaluated."""
    flow = """
nodes:
  - {id: a, type: shell, with: {run: [ls]}}
  - {id: b, type: set, with: {x: "<{{ nodes.a.stdout }}>"}}
"""
    case = given(flow).started().when(NodeDone("a", 1, {**OUTPUT, "stdout": "{{ inputs }}"}))
    assert case.node("b").output == {"x": "<{{ inputs }}>"}


def test_http_is_begun_like_shell() -> None:
    """A request is begun with its evaluated configuration, secrets left as references."""
    flow = """
nodes:
  - id: a
    type: http
    with: {url: "http://example.com", headers: {Authorization: "Bearer {{ secrets.TOKEN }}"}}
"""
    case = given(flow).started()
    settled = case.event("node:started").input
    assert settled["method"] == "GET"
    assert settled["headers"] == {"Authorization": {"$secret_text": ["Bearer ", {"$secret": "TOKEN"}]}}
    case.when(NodeDone("a", 1, {"status": 200, "headers": {}, "body": "", "json": None}))
    assert case.state.status == "complete"


def test_set_sees_the_session_and_kept_messages() -> None:
    """`session` and `messages` are there in expressions."""
    flow = """
nodes:
  - {id: q, type: ask, with: {message: Go?, choices: [go]}}
  - {id: a, type: set, with: {who: "{{ session.requester.id }}", said: "{{ messages[0].text }}", n: "{{ messages | length }}"}}
"""
    case = given(flow).started()
    case.when(case.message("while we wait")).then("session:message")
    case.when(case.answer("go"))
    assert case.node("a").output == {"who": ANA.id, "said": "while we wait", "n": 1}


@pytest.mark.parametrize(
    "node", ["{id: a, type: ask, with: {message: Go?}}", "{id: a, type: wait, with: {for: 1m}}"]
)
def test_what_waits_for_a_person_or_a_time_has_no_outcome_from_elsewhere(node: str) -> None:
    """An outcome that is reported for a question or a wait neither answers it nor breaks the session."""
    case = given(f"nodes: [{node}]").started()
    case.when(NodeDone("a", 1, {}), NodeBroke("a", 1, ERROR)).then()
    assert case.state.phase == "waiting"
