"""Warnings of sound flows: steps that run after a rejection too, and loop edges that always reach their limit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.flow.checks.all import warnings
from engine.flow.load import load_flow
from engine.language.codec import Json
from tests.support.engine import flow_of

YES = "{{ nodes.gate.decision == 'approve' }}"


def step(name: str = "apply", **more: Any) -> dict[str, Any]:
    """A step with effects."""
    return {"id": name, "type": "shell", "with": {"run": ["x"]}, **more}


def gate(**more: Json) -> dict[str, Any]:
    """An approval after which the flow continues either way."""
    return {
        "id": "gate",
        "type": "approval",
        "with": {"message": "Go?", "approvers": ["channel"], "on_reject": "continue", **more},
    }


def warned(*nodes: dict[str, Any], **more: Any) -> list[str]:
    """The steps that are warned of."""
    flow = flow_of(json.dumps({"flow": "demo", "nodes": list(nodes), **more}))
    return [problem.message.split("`")[1] for problem in warnings(flow)]


@pytest.mark.parametrize("on_reject", ["stop", "goto:end"])
def test_a_rejection_that_does_not_go_on_warns_of_nothing(on_reject: str) -> None:
    """Only `continue` lets the steps behind it run."""
    assert warned(gate(on_reject=on_reject), step(), {"id": "end", "type": "noop"}) == []


@pytest.mark.parametrize(
    ("words", "sign"), [(["cat", "x", "|", "grep", "y"], "'|'"), (["a", "&&", "b"], "'&&'")]
)
def test_a_sign_of_the_shell_is_only_an_argument(words: list[str], sign: str) -> None:
    """`run` starts one program; who writes a pipe there is told of `script`."""
    [problem] = warnings(flow_of(json.dumps({"flow": "f", "nodes": [step(**{"with": {"run": words}})]})))
    assert problem.message == f"`run` of `apply` takes {sign} as an argument: no shell interprets it"
    assert "`script`" in (problem.hint or "")


def test_words_with_such_signs_in_them_are_sound() -> None:
    """A pattern of `grep` and the end of `find -exec` are arguments that are meant."""
    run = ["find", ".", "-exec", "grep", "a|b", "{}", ";"]
    assert warnings(flow_of(json.dumps({"flow": "f", "nodes": [step(**{"with": {"run": run}})]}))) == []


def test_steps_that_run_after_a_rejection_are_named() -> None:
    """Each with effects, also inside containers and after the container that holds the approval."""
    each = {"id": "each", "type": "foreach", "with": {"items": [1]}, "body": [gate(), step("inner")]}
    assert warned(each, step("outer")) == ["inner", "outer"]
    box = {
        "id": "box",
        "type": "parallel",
        "branches": {"a": [step("one")], "b": [{"id": "n", "type": "noop"}]},
    }
    assert warned(gate(), box, {"id": "read", "type": "http", "with": {"url": "https://x.example"}}) == [
        "one"
    ]


@pytest.mark.parametrize(
    "nodes",
    [
        [gate(), step(**{"if": YES})],
        [gate(covers="apply"), step()],
        [gate(), {"id": "ok", "type": "noop", "if": YES}, step(**{"if": "{{ status.ok == 'completed' }}"})],
        [gate(), {"id": "no", "type": "fail", "if": "{{ nodes.gate.decision == 'reject' }}", "with": {"message": "No"}}, step()],
        [gate(), {"id": "pick", "type": "switch", "with": {"on": "{{ nodes.gate.decision }}"}, "cases": {"approve": [step()]}}],
        [step(), gate()],
    ],
)  # fmt: skip
def test_what_depends_on_the_decision_is_not(nodes: list[dict[str, Any]]) -> None:
    """By its own `if`, by what depends on it, by a container around it, by what it covers, by a `fail` before it."""
    assert warned(*nodes) == []


def test_edges_can_depend_on_the_decision() -> None:
    """A step is warned of where some way leads to it that does not ask."""
    nodes = [gate(), step("yes"), step("both")]
    asks = [{"from": "gate", "to": "yes", "when": YES}, {"from": "yes", "to": "both"}]
    assert warned(*nodes, edges=asks) == []
    assert warned(*nodes, edges=[*asks, {"from": "gate", "to": "both"}]) == ["both"]


def test_a_called_flow_with_effects_is_named_at_its_call() -> None:
    """Its own file has nothing wrong."""
    called = load_flow(json.dumps({"flow": "inner", "nodes": [step()]}), "inner.yml")
    call = {"id": "call", "type": "flow", "with": {"flow": "inner"}}
    flow = load_flow(
        json.dumps({"flow": "demo", "nodes": [gate(), call]}), "f.yml", flows={"inner": called}.get
    )
    assert [problem.message for problem in warnings(flow)] == ["`call` also runs after `gate` was rejected"]


@pytest.mark.parametrize(
    ("first", "jump", "found"),
    [
        ({"type": "end"}, None, ["b"]),
        ({"type": "fail", "with": {"message": "no"}}, None, ["b"]),
        ({"type": "end", "if": True}, None, ["b"]),
        ({"type": "end", "if": "{{ inputs.x }}"}, None, []),
        ({"type": "end"}, "goto:b", []),
        ({"type": "fail", "with": {"message": "no"}, "on_error": "continue"}, None, []),
    ],
)
def test_what_stands_behind_an_end_never_runs(
    first: dict[str, Any], jump: str | None, found: list[str]
) -> None:
    """A step behind an `end` or `fail` without an `if` is warned of, unless a jump leads there."""
    ask = {"id": "ask", "type": "ask", "with": {"message": "?", **({"on_timeout": jump} if jump else {})}}
    nodes = [ask, {"id": "a", **first}, {"id": "b", "type": "noop"}, {"id": "c", "type": "noop"}]
    assert warned(*nodes, inputs={"x": {"type": "boolean"}}) == found


def test_a_loop_edge_that_always_fails_is_named() -> None:
    """Without `when` it is taken until its limit, which is a failure unless the file says `continue`."""
    nodes = [{"id": "a", "type": "noop"}, {"id": "b", "type": "noop"}]
    loop: dict[str, Json] = {"from": "b", "to": "a", "type": "loop", "max_iterations": 2}
    edges: list[dict[str, Json]] = [{"from": "a", "to": "b"}]
    assert warned(*nodes, edges=[*edges, loop]) == ["b → a"]
    assert warned(*nodes, edges=[*edges, loop | {"on_limit": "continue"}]) == []


@pytest.mark.parametrize(
    ("models", "named"),
    [
        ({"model": "claude-mythos-5"}, ["claude-mythos-5"]),
        ({"model": "claude-mythos-5-1-20260101"}, ["claude-mythos-5-1-20260101"]),
        ({"model": "claude-sonnet-5-5", "fallbacks": ["claude-mythos-5-1"]}, ["claude-mythos-5-1"]),
        ({"model": "claude-mythos-5-2", "fallbacks": ["claude-opus-5"]}, []),
        ({"model": "{{ inputs.model }}"}, []),
        ({"model": "a-model-of-a-gateway"}, []),
        ({}, []),
    ],
)
def test_a_model_whose_price_nobody_knows_is_warned_of(models: dict[str, Json], named: list[str]) -> None:
    """A cap in dollars stops its agent at the first call: the author is told when the flow is checked."""
    agent = {"id": "ask", "type": "agent", "with": {"prompt": "x", **models}}
    inputs = {"model": {"type": "string"}}
    found = warnings(flow_of(json.dumps({"flow": "f", "inputs": inputs, "nodes": [agent]})))
    assert [problem.message.split()[5].rstrip(",") for problem in found] == named
