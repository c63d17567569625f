"""Containers, failure policies and limits: what the frozen flow has of them."""

from __future__ import annotations

import pytest

from engine.flow import Flow, Limits, Retry
from engine.flow.document import DEFAULT_DEADLINE
from engine.flow.load import load_flow
from engine.language.codec import Json
from engine.nodes.types.registry import node_types
from engine.nodes.types.spec import InvalidConfig
from tests.flow.flowkit import NESTED, flow_with, problems


@pytest.fixture(scope="module")
def nested() -> Flow:
    """A flow with every container in it."""
    return load_flow(NESTED, "nested.yml")


def test_every_list_of_nodes_has_an_id_of_its_own(nested: Flow) -> None:
    """Bodies, branches, cases, `on_failure` and `finally` are beside the flow's own list, which comes first."""
    own = [
        "", "rollout", "apply!", "poll", "fan:left", "fan:right",
        "pick:2", "pick:true", "pick:default", "pick:", "finally",
    ]  # fmt: skip
    assert list(nested.own_lists) == own
    assert set(nested.lists) == {*own, *(f"@nested/{list_id}" for list_id in own)}
    assert all(entry.id == list_id and entry.flow == "nested" for list_id, entry in nested.lists.items())
    for list_id, entry in nested.lists.items():
        assert [node.list_id for node in entry.nodes] == [list_id] * len(entry.nodes)
        assert [node.index for node in entry.nodes] == list(range(len(entry.nodes)))


def test_a_node_says_which_lists_it_holds(nested: Flow) -> None:
    """A container leads to its lists by key; a case called default is not the `default` of the switch."""
    assert nested.by_id["rollout"].lists == {"body": "rollout"}
    assert nested.by_id["poll"].lists == {"body": "poll"}
    assert nested.by_id["fan"].lists == {"left": "fan:left", "right": "fan:right"}
    assert nested.by_id["pick"].lists == {
        "2": "pick:2",
        "true": "pick:true",
        "default": "pick:default",
        "": "pick:",
    }
    assert [nested.lists[list_id].nodes[0].id for list_id in nested.by_id["pick"].lists.values()] == [
        "two",
        "yes_step",
        "named",
        "other",
    ]
    assert nested.by_id["apply"].on_failure == "apply!"
    assert nested.by_id["own"].calls == "nested"
    assert nested.finally_list == "finally"
    assert {node.id for node in nested.by_id.values() if node.lists} == {"rollout", "poll", "fan", "pick"}


def test_lists_of_a_called_flow_refer_to_each_other_under_its_prefix(nested: Flow) -> None:
    """Whoever walks a called flow never leaves its prefix, except into what that flow calls."""
    rollout = nested.lists["@nested/"].by_id["rollout"]
    assert (rollout.list_id, rollout.lists) == ("@nested/", {"body": "@nested/rollout"})
    apply = nested.lists["@nested/rollout"].by_id["apply"]
    assert apply.on_failure == "@nested/apply!"
    for list_id, entry in nested.lists.items():
        for node in entry.nodes:
            held = [*node.lists.values(), *([node.on_failure] if node.on_failure else [])]
            assert all(nested.lists[inner] for inner in held)
            assert all(inner.startswith("@") == list_id.startswith("@") for inner in held)


def test_what_a_loop_asks_and_a_foreach_names_is_apart_from_what_is_evaluated_once(nested: Flow) -> None:
    """Conditions of a loop are compiled on their own; its other settings, and a foreach's items, are evaluated once."""
    poll = nested.by_id["poll"]
    assert poll.while_ is not None
    assert poll.until_ is not None
    assert poll.while_.names == {("last",), ("last", "probe", "status")}
    assert poll.compiled.constant
    assert poll.as_ is None
    rollout = nested.by_id["rollout"]
    assert (rollout.as_, rollout.while_, rollout.until_) == ("region", None, None)
    assert rollout.compiled.names == {("inputs", "regions"), ("nodes", "first", "x")}
    assert (
        flow_with("- {id: x, type: foreach, with: {items: []}, body: [{id: y, type: noop}]}").nodes[-1].as_
        == "item"
    )


def test_failure_policies_come_out_with_units_and_defaults(nested: Flow) -> None:
    """`retry`, `on_error`, `timeout` and `on_crash` are resolved for containers and for what is inside them."""
    rollout, apply = nested.by_id["rollout"], nested.by_id["apply"]
    assert rollout.retry == Retry(3, "exponential", 2.0, 60.0, 0.5)
    assert (rollout.timeout, rollout.name) == (3600, "Roll out")
    assert apply.retry == Retry(2, "fixed", 1.0, 300.0, 0.0)
    assert (apply.on_crash, apply.on_error, apply.goto) == ("ask", "goto:confirm", "confirm")
    assert (nested.by_id["confirm"].on_error, nested.by_id["confirm"].goto) == ("ask", None)
    assert (nested.by_id["clean"].retry, nested.by_id["clean"].on_failure) == (None, None)


def test_a_short_retry_says_what_a_crash_means_and_nothing_of_failures() -> None:
    """`retry: safe` is `on_crash: again`; a mapping leaves `on_crash` to its own field."""
    safe = flow_with("- {id: x, type: noop, retry: safe}").nodes[-1]
    both = flow_with("- {id: x, type: noop, retry: {attempts: 2}, on_crash: ask}").nodes[-1]
    assert (safe.retry, safe.on_crash) == (None, "again")
    assert (both.retry, both.on_crash) == (Retry(2), "ask")


@pytest.mark.parametrize(
    ("retry", "failures", "chance", "seconds"),
    [
        (Retry(3), 1, 0.5, 1.0),
        (Retry(3, "fixed", 7.0), 5, 0.5, 7.0),
        (Retry(9, "exponential", 2.0), 1, 0.5, 2.0),
        (Retry(9, "exponential", 2.0), 4, 0.5, 16.0),
        (Retry(9, "exponential", 2.0, 10.0), 4, 0.5, 10.0),
        (Retry(99999, "exponential", 2.0, 10.0), 99998, 0.5, 10.0),
        (Retry(9, "exponential", 0.0), 4, 0.5, 0.0),
        (Retry(3, "fixed", 10.0, 300.0, 0.2), 1, 0.0, 8.0),
        (Retry(3, "fixed", 10.0, 300.0, 0.2), 1, 1.0, 12.0),
        (Retry(3, "fixed", 10.0, 300.0, 1.0), 1, 0.0, 0.0),
    ],
)
def test_the_wait_before_a_try(retry: Retry, failures: int, chance: float, seconds: float) -> None:
    """It is fixed or doubles up to its longest, and the jitter moves it by its part of that."""
    assert retry.wait(failures, chance) == pytest.approx(seconds)


def test_limits_come_out_with_defaults(nested: Flow) -> None:
    """What a file does not limit has the documented limit."""
    assert nested.limits == Limits(86400.0, 3, 500, 4, 2)
    assert nested.deadline == 86400.0
    plain = flow_with("- {id: x, type: noop}")
    assert plain.limits == Limits(DEFAULT_DEADLINE, 50, 10_000, 16, 8)
    assert (plain.lock, plain.on_conflict, plain.finally_list) == (None, "queue", None)


def test_every_line_is_that_of_the_file(nested: Flow) -> None:
    """A node knows its line however deep it stands."""
    lines = NESTED.splitlines()
    for node in nested.by_id.values():
        assert f"id: {node.id}" in lines[node.line - 1]


@pytest.mark.parametrize(
    ("value", "text"),
    [("eu", "eu"), (3, "3"), (2.5, "2.5"), (True, "true"), (None, "null"), ("", ""), ("null", "null")],
)
def test_a_switch_compares_text(value: Json, text: str) -> None:
    """Whatever scalar a switch gets, its cases are compared with one text for it."""
    assert node_types()["switch"].normalize({"on": value}) == {"on": text}


@pytest.mark.parametrize(
    ("kind", "with_", "settled"),
    [
        ("foreach", {"items": []}, {"items": [], "as": "item", "concurrency": 1}),
        (
            "loop",
            {"until": "{{ last }}"},
            {"while": None, "until": "{{ last }}", "max_iterations": 100, "on_limit": "fail"},
        ),
        ("parallel", {}, {"mode": "fail_fast"}),
        ("flow", {"flow": "a-b"}, {"flow": "a-b", "inputs": {}}),
        ("python", {"call": "a.b:c_d"}, {"call": "a.b:c_d", "args": {}}),
    ],
)
def test_containers_settle_with_their_defaults(
    kind: str, with_: dict[str, Json], settled: dict[str, Json]
) -> None:
    """What a container gets when it starts is plain JSON with every default filled in."""
    assert node_types()[kind].normalize(with_) == settled


@pytest.mark.parametrize(
    ("kind", "with_"),
    [
        ("foreach", {"items": "a"}),
        ("foreach", {"items": {"a": 1}}),
        ("foreach", {"items": [], "concurrency": 0}),
        ("loop", {"until": True, "max_iterations": 0}),
        ("switch", {"on": [1]}),
        ("switch", {}),
        ("flow", {"flow": "A"}),
        ("python", {"call": "os.system"}),
        ("python", {"call": "os:class"}),
    ],
)
def test_a_container_refuses_what_it_cannot_run_with(kind: str, with_: dict[str, Json]) -> None:
    """An evaluated value of the wrong kind fails the node and names the field."""
    with pytest.raises(InvalidConfig, match=list(with_ or ["on"])[-1]):
        node_types()[kind].normalize(with_)


NAMES = [
    ("- {id: x, type: foreach, with: {items: [1]}, body: [{id: y, type: set, with: {a: '{{ item }} {{ index }}'}}]}", None),
    ("- {id: x, type: foreach, with: {items: [1]}, body: [{id: y, type: set, with: {a: '{{ last }}'}}]}", "last"),
    ("- {id: x, type: foreach, with: {items: '{{ item }}'}, body: [{id: y, type: noop}]}", "item"),
    ("- {id: x, type: foreach, if: '{{ item }}', with: {items: []}, body: [{id: y, type: noop}]}", "item"),
    ("- {id: x, type: loop, with: {until: '{{ last.y.a == index }}'}, body: [{id: y, type: set, with: {a: '{{ last }}'}}]}", None),
    ("- {id: x, type: loop, with: {until: true, max_iterations: '{{ index }}'}, body: [{id: y, type: noop}]}", "index"),
    ("- {id: x, type: loop, with: {until: '{{ last.z }}'}, body: [{id: y, type: noop}]}", "z"),
    ("- {id: x, type: parallel, branches: {b: [{id: y, type: set, with: {a: '{{ index }}'}}]}}", "index"),
    ("- {id: x, type: parallel, branches: {b: [{id: y, type: noop}, {id: z, type: set, with: {a: '{{ nodes.y }}'}}]}}", None),
    ("- {id: x, type: switch, with: {on: 1}, cases: {1: [{id: y, type: set, with: {a: '{{ nodes.before.a }}'}}]}}", None),
    ("- {id: x, type: switch, with: {on: '{{ nodes.y }}'}, cases: {1: [{id: y, type: noop}]}}", "y"),
    ("- {id: x, type: set, with: {a: '{{ nodes.before.b }}'}}", "b"),
    ("- {id: x, type: noop, on_failure: [{id: y, type: set, with: {a: '{{ errors.x }} {{ nodes.before.a }}'}}]}", None),
    ("- {id: x, type: foreach, with: {items: []}, body: [{id: y, type: noop}], on_failure: [{id: z, type: set, with: {a: '{{ item }}'}}]}", "item"),
    ("- {id: x, type: foreach, with: {items: []}, body: [{id: y, type: noop, on_failure: [{id: z, type: set, with: {a: '{{ item }} {{ errors.y.type }}'}}]}]}", None),
]  # fmt: skip


@pytest.mark.parametrize(("node", "unknown"), NAMES)
def test_what_may_be_named_where(node: str, unknown: str | None) -> None:
    """Bodies know their rounds and what surely came before; everybody else does not."""
    text = f"flow: f\nnodes:\n- {{id: before, type: set, with: {{a: 1}}}}\n{node}\n"
    if unknown is None:
        assert load_flow(text, "f.yml").by_id["x"]
    else:
        (problem,) = problems(text)
        assert f"`{unknown}`" in problem


def test_inner_rounds_hide_outer_ones_of_the_same_name() -> None:
    """Two foreach nodes in each other may both call their item `item`; a loop's `last` is known in a foreach inside it."""
    flow = load_flow(
        """
flow: f
nodes:
  - id: outer
    type: loop
    with: {until: "{{ index > 2 }}"}
    body:
      - id: middle
        type: foreach
        with: {items: [[1, 2]]}
        body:
          - id: inner
            type: foreach
            with: {items: "{{ item }}"}
            body:
              - {id: y, type: set, with: {a: "{{ item }} {{ last.middle.iterations | default([]) }}"}}
""",
        "f.yml",
    )
    assert flow.by_id["y"].list_id == "inner"
