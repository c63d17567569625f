"""Graphs: edges, gates, dead branches, loop edges, and branches that run and wait at the same time."""

from __future__ import annotations

import pytest
from hypothesis import given as given_by
from hypothesis import settings
from hypothesis import strategies as st

from engine.decide.agents.kinds import KINDS
from engine.decide.commands import Answer, NodeBroke, NodeDone
from engine.decide.due import due
from engine.journal.queries import DEAD
from engine.journal.snapshot import to_json
from tests.support.engine import ANA, Scenario, given
from tests.support.proving import tries

OUTPUT = {"stdout": "x", "stderr": "", "exit_code": 0, "seconds": 0.1}
ERROR = {"type": "exit_code", "message": "no"}


def statuses(case: Scenario) -> dict[str, str]:
    """How each visit stands."""
    return {path: run.status for path, run in case.state.nodes.items()}


def begun(case: Scenario) -> list[str]:
    """The paths that were started in this turn, in order."""
    return [
        event.path or "" for event in case.last if event.type in ("node:started", "container:childStarted")
    ]


DIAMOND = """
nodes:
  - {id: d, type: shell, with: {run: [d]}}
  - {id: b, type: shell, with: {run: [b]}}
  - {id: c, type: shell, with: {run: [c]}}
  - {id: a, type: shell, with: {run: [a]}}
edges:
  - {from: a, to: b}
  - {from: a, to: c}
  - {from: b, to: d}
  - {from: c, to: d}
"""


def test_a_diamond_runs_its_branches_at_the_same_time_and_joins() -> None:
    """Edges say what comes first, not the order of the file."""
    case = given(DIAMOND).started()
    assert begun(case) == ["a"]
    case.when(NodeDone("a", 1, OUTPUT))
    assert begun(case) == ["b", "c"]
    case.when(NodeDone("c", 1, OUTPUT)).then("node:completed", "edge:resolved")
    case.when(NodeDone("b", 1, OUTPUT))
    assert begun(case) == ["d"]
    case.when(NodeDone("d", 1, OUTPUT))
    assert case.state.status == "complete"


def test_ready_branches_run_up_to_the_limit() -> None:
    """`limits.concurrency` bounds how many run; the others follow as places get free."""
    case = given("limits: {concurrency: 1}" + DIAMOND).started()
    case.when(NodeDone("a", 1, OUTPUT))
    assert begun(case) == ["b"]
    case.when(NodeDone("b", 1, OUTPUT))
    assert begun(case) == ["c"]


CHOICE = """
inputs: {big: {type: boolean}}
nodes:
  - {id: a, type: noop}
  - {id: yes, type: noop}
  - {id: no, type: noop}
  - {id: after_no, type: noop}
  - {id: end, type: set, with: {yes: "{{ status.yes }}", no: "{{ status.no }}"}}
edges:
  - {from: a, to: yes, when: "{{ inputs.big }}"}
  - {from: a, to: no, when: "{{ not inputs.big }}"}
  - {from: no, to: after_no}
  - {from: yes, to: end}
  - {from: after_no, to: end}
""".replace("id: yes", "id: 'yes'").replace("id: no,", "id: 'no',")


@pytest.mark.parametrize("big", [True, False])
def test_an_edge_whose_condition_is_false_is_dead_and_so_is_what_follows(big: bool) -> None:
    """What no edge can lead to is skipped, and the join does not wait for it."""
    case = given(CHOICE).started(big=big)
    assert case.state.status == "complete"
    assert case.node("end").output == {
        "yes": "completed" if big else "skipped",
        "no": "skipped" if big else "completed",
    }
    assert case.node("after_no").status == ("skipped" if big else "completed")


def test_a_node_skipped_by_its_own_if_passes_on() -> None:
    """Only a node that nothing led to makes its edges dead."""
    flow = """
nodes:
  - {id: a, type: noop, if: "{{ false }}"}
  - {id: b, type: noop}
edges: [{from: a, to: b}]
"""
    case = given(flow).started()
    assert statuses(case) == {"a": "skipped", "b": "completed"}


def test_a_contained_failure_passes_on_and_an_uncontained_one_fails_the_flow() -> None:
    """The other branch is given up with the flow."""
    flow = DIAMOND.replace("id: b, type: shell,", "id: b, type: shell, on_error: continue,")
    case = given(flow).started()
    case.when(NodeDone("a", 1, OUTPUT), NodeBroke("b", 1, ERROR), NodeDone("c", 1, OUTPUT))
    assert begun(case)[-1:] == ["d"]
    other = given(DIAMOND).started()
    other.when(NodeDone("a", 1, OUTPUT), NodeBroke("b", 1, ERROR), NodeDone("c", 1, OUTPUT))
    assert (other.state.status, other.state.error) == ("failed", ERROR)


ANY = """
nodes:
  - {id: a, type: shell, with: {run: [a]}}
  - {id: b, type: shell, with: {run: [b]}}
  - {id: first, type: shell, with: {run: [first]}}
edges:
  - {from: a, to: first, gate: any}
  - {from: b, to: first, gate: any}
"""


def test_a_gate_any_lets_the_first_through_once() -> None:
    """It runs at the first edge that is taken; the later one changes nothing."""
    case = given(ANY).started()
    case.when(NodeDone("b", 1, OUTPUT))
    assert begun(case) == ["first"]
    case.when(NodeDone("a", 1, OUTPUT))
    assert begun(case) == []
    case.when(NodeDone("first", 1, OUTPUT))
    assert case.state.status == "complete"


def test_a_gate_any_whose_edges_are_all_dead_is_skipped() -> None:
    """One dead edge is not enough."""
    flow = ANY.replace("gate: any", 'gate: any, when: "{{ false }}"')
    case = given(flow).started()
    case.when(NodeDone("a", 1, OUTPUT))
    assert "first" not in case.state.nodes
    case.when(NodeDone("b", 1, OUTPUT))
    assert (case.node("first").status, case.state.status) == ("skipped", "failed")


def test_a_condition_of_an_edge_that_breaks_fails_the_flow_and_names_the_edge() -> None:
    """It is evaluated once, and the journal has what came of it."""
    flow = """
inputs: {n: {type: integer}}
nodes: [{id: a, type: noop}, {id: b, type: noop}]
edges: [{from: a, to: b, when: "{{ inputs.n / 0 == 1 }}"}]
"""
    case = given(flow).started(n=1)
    assert case.state.status == "failed"
    assert "edge a -> b" in case.state.error["message"]  # type: ignore[index]  # it failed


def test_branches_wait_for_people_in_any_order_and_nothing_else_waits() -> None:
    """A branch that waits parks; the session is paused when nothing else can run."""
    flow = """
nodes:
  - {id: q, type: ask, with: {message: One?}}
  - {id: r, type: ask, with: {message: Two?}}
  - {id: work, type: shell, with: {run: [w]}}
  - {id: end, type: set, with: {said: "{{ nodes.q.text }} {{ nodes.r.text }}"}}
edges: [{from: q, to: end}, {from: r, to: end}, {from: work, to: end}]
"""
    case = given(flow).started()
    assert (case.state.phase, len(case.state.open_prompts)) == ("running", 2)
    case.when(NodeDone("work", 1, OUTPUT))
    assert case.state.phase == "waiting"
    second = next(key for key in case.state.open_prompts if case.state.prompts[key].path == "r")
    first = next(key for key in case.state.open_prompts if case.state.prompts[key].path == "q")
    case.when(Answer(second, ANA, "k1", text="b")).claimed()
    case.when(Answer(first, ANA, "k2", text="a"))
    assert case.node("end").output == {"said": "a b"}


LOOP = """
nodes:
  - {id: build, type: shell, with: {run: [make]}}
  - {id: lint, type: shell, with: {run: [lint]}}
  - {id: review, type: ask, with: {message: "Well?", choices: [ship, again]}}
  - {id: ship, type: set, with: {seen: "{{ nodes.review.value }}"}}
edges:
  - {from: build, to: review}
  - {from: build, to: lint}
  - {from: review, to: ship, when: "{{ nodes.review.value == 'ship' }}"}
  - {from: review, to: build, type: loop, max_iterations: 1, when: "{{ nodes.review.value == 'again' }}"}
"""


def test_a_loop_edge_waits_for_all_that_comes_after_its_target_and_leads_back_once() -> None:
    """The second visit has paths of its own; `max_iterations: 1` is one time back."""
    case = given(LOOP).started()
    case.when(NodeDone("build", 1, OUTPUT))
    case.when(case.answer("again"))
    assert begun(case) == []
    assert case.node("ship").status == "skipped"
    case.when(NodeDone("lint", 1, OUTPUT))
    jump = case.event("loop:iterate")
    assert (jump.edge_from, jump.edge_to, jump.iteration) == ("review", "build", 1)
    assert begun(case) == ["build~2"]
    assert to_json(case.state)["loopCounters"] == {"review>build": 1}
    case.claimed()
    assert case.prompt.path == "build~2"


def test_a_loop_edge_that_was_taken_often_enough_is_not_taken_again() -> None:
    """Then what follows is resolved, and the flow ends."""
    case = given(LOOP.replace("max_iterations: 1", "max_iterations: 1, on_limit: continue")).started()
    case.when(NodeDone("build", 1, OUTPUT), NodeDone("lint", 1, OUTPUT))
    case.when(case.answer("again"), NodeDone("build~2", 1, OUTPUT), NodeDone("lint~2", 1, OUTPUT))
    assert case.prompt.path == "review~2"
    case.when(case.answer("again"))
    assert case.state.status == "complete"
    assert statuses(case) == {
        "build~2": "completed",
        "lint~2": "completed",
        "review~2": "completed",
        "ship~2": "skipped",
    }


def test_a_loop_edge_inside_a_foreach_counts_in_each_pass_anew() -> None:
    """Counters belong to the pass, and are in the state."""
    flow = """
nodes:
  - id: each
    type: foreach
    with: {items: [1, 2]}
    body:
      - {id: a, type: noop}
      - {id: b, type: set, with: {n: "{{ item }}"}}
    edges:
      - {from: a, to: b}
      - {from: b, to: a, type: loop, max_iterations: 2, on_limit: continue, when: "{{ true }}"}
"""
    case = given(flow).started()
    assert case.state.status == "complete"
    jumps = [(event.path, event.iteration) for event in case.events if event.type == "loop:iterate"]
    assert jumps == [("each[0]/b", 1), ("each[0]/b~2", 2), ("each[1]/b", 1), ("each[1]/b~2", 2)]
    assert set(case.state.nodes) == {"each"}
    assert case.node("each").output["iterations"][1] == {
        "index": 1,
        "item": 2,
        "outputs": {"a": {}, "b": {"n": 2}},
    }


def test_edges_from_outside_a_loop_keep_what_they_gave() -> None:
    """A node of the loop that also waits for one outside it does not wait for it again."""
    flow = """
nodes:
  - {id: outside, type: noop}
  - {id: a, type: noop}
  - {id: b, type: noop}
edges:
  - {from: outside, to: b}
  - {from: a, to: b}
  - {from: b, to: a, type: loop, max_iterations: 1, on_limit: continue, when: "{{ true }}"}
"""
    case = given(flow).started()
    assert case.state.status == "complete"
    assert statuses(case) == {"outside": "completed", "a~2": "completed", "b~2": "completed"}


def test_goto_in_a_graph_leads_back_and_makes_the_edges_ahead_dead() -> None:
    """What comes after the failed node is skipped in this visit and runs in the next."""
    flow = """
nodes:
  - {id: a, type: noop}
  - {id: b, type: shell, with: {run: [b]}, on_error: "goto:a"}
  - {id: c, type: noop}
edges: [{from: a, to: b}, {from: b, to: c}]
"""
    case = given(flow).started()
    case.when(NodeBroke("b", 1, ERROR))
    assert [event.path for event in case.last if event.type == "node:skipped"] == ["c"]
    case.when(NodeDone("b~2", 1, OUTPUT))
    assert statuses(case) == {"a~2": "completed", "b~2": "completed", "c~2": "completed"}


def test_a_loop_edge_waits_for_a_target_that_has_not_run_yet() -> None:
    """A gate `any` may let the source of a loop edge run before its target: the jump waits until that has ended."""
    flow = """
nodes:
  - {id: slow, type: shell, with: {run: [s]}}
  - {id: quick, type: noop}
  - {id: a, type: noop}
  - {id: b, type: noop}
edges:
  - {from: slow, to: a}
  - {from: a, to: b, gate: any}
  - {from: quick, to: b, gate: any}
  - {from: b, to: a, type: loop, max_iterations: 1, on_limit: continue}
"""
    case = given(flow).started()
    assert statuses(case) == {"slow": "started", "quick": "completed", "b": "completed"}
    case.when(NodeDone("slow", 1, OUTPUT))
    assert [event.path for event in case.last if event.type == "loop:iterate"] == ["b"]
    assert case.state.status == "complete"
    assert statuses(case) == {
        "slow": "completed",
        "quick": "completed",
        "a~2": "completed",
        "b~2": "completed",
    }


def test_a_person_skips_a_failed_node_of_a_graph_and_it_passes_on() -> None:
    """`on_error: ask` and its answer hold in graphs."""
    flow = DIAMOND.replace("id: b, type: shell,", "id: b, type: shell, on_error: ask,")
    case = given(flow).started()
    case.when(NodeDone("a", 1, OUTPUT), NodeBroke("b", 1, ERROR), NodeDone("c", 1, OUTPUT))
    case.when(case.answer("skip"), NodeDone("d", 1, OUTPUT))
    assert (case.state.status, case.node("b").status) == ("complete", "skipped")


def test_what_is_due_costs_what_is_open() -> None:
    """A wide join looks at nothing that has ended."""
    count = 60
    nodes = "".join(f"  - {{id: n{i}, type: noop}}\n" for i in range(count))
    edges = "".join(f"  - {{from: n{i}, to: end}}\n" for i in range(count))
    flow = f"limits: {{concurrency: 2}}\nnodes:\n{nodes}  - {{id: end, type: shell, with: {{run: [e]}}}}\nedges:\n{edges}"
    case = given(flow).started()
    graph = case.state.frames[""].graph
    assert graph is not None
    assert (len(graph.ready), len(graph.ended), len(graph.gates)) == (0, 0, 0)
    assert due(case.flow, case.state, KINDS) == []
    assert case.node("end").status == "started"


@st.composite
def graphs(draw: st.DrawFn) -> tuple[str, list[bool]]:
    """Flows whose edges lead forward at random, with conditions and gates, and perhaps loop edges."""
    count = draw(st.integers(2, 7))
    kinds = [draw(st.sampled_from(["noop", "shell", "skip", "fails"])) for _ in range(count)]
    written = {
        "noop": "type: noop",
        "shell": "type: shell, with: {run: [x]}",
        "skip": 'type: noop, if: "{{ false }}"',
        "fails": "type: fail, with: {message: No}, on_error: continue",
    }
    nodes = [f"  - {{id: n{i}, {written[kind]}}}" for i, kind in enumerate(kinds)]
    pairs = [(a, b) for b in range(count) for a in range(b)]
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    gates = [draw(st.sampled_from(["any", "all"])) for _ in range(count)]
    edges = []
    for a, b in chosen:
        when = draw(st.sampled_from(["", ', when: "{{ false }}"', ', when: "{{ true }}"']))
        edges.append(f"  - {{from: n{a}, to: n{b}, gate: {gates[b]}{when}}}")
    backward = {(b, a) for a, b in chosen}
    for b, a in draw(st.lists(st.sampled_from(sorted(backward)), max_size=2, unique=True)):
        edges.append(f"  - {{from: n{b}, to: n{a}, type: loop, max_iterations: 2, on_limit: continue}}")
    order = draw(st.lists(st.booleans(), min_size=40, max_size=40))
    return "nodes:\n" + "\n".join(nodes) + "\nedges:\n" + "\n".join(dict.fromkeys(edges)), order


@settings(max_examples=tries(150))
@given_by(graphs())
def test_no_graph_waits_for_ever(drawn: tuple[str, list[bool]]) -> None:
    """Whatever the edges, gates, failures and the order of outcomes, every node gets its outcome and the flow ends: as a success only
    where a final node was reached, or a limit is named."""
    text, order = drawn
    case = given(text).started()
    for newest in order * 10:
        running = sorted(path for path, run in case.state.nodes.items() if run.status == "started")
        if not running:
            break
        case.when(NodeDone(running[-1 if newest else 0], 1, OUTPUT))
    finals = [run for run in case.state.nodes.values() if run.node_id in case.flow.lists[""].finals]
    reached = case.state.limits or any(run.reason != DEAD for run in finals)
    assert case.state.status == ("complete" if reached else "failed")
    assert {run.node_id for run in case.state.nodes.values()} == {node.id for node in case.flow.nodes}
    starts = [event.path for event in case.events if event.type == "node:started"]
    assert len(starts) == len(set(starts)), "a visit began twice"
