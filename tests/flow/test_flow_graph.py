"""Graphs of nodes: orders, reachability, and what a list with edges knows."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.flow import NodeList
from engine.flow.load import load_flow
from engine.flow.reachability import ancestors, circles, topological
from tests.flow.flowkit import GRAPH, flow_with, problems

COUNT = 7
PAIRS = st.lists(st.tuples(st.integers(0, COUNT - 1), st.integers(0, COUNT - 1)), max_size=14)
FORWARD = PAIRS.map(lambda pairs: [(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]])


def reachable(start: int, pairs: list[tuple[int, int]]) -> set[int]:
    """Every position that edges lead to from one, found the slow way."""
    found: set[int] = set()
    grown = {target for source, target in pairs if source == start}
    while grown - found:
        found |= grown
        grown = {target for source, target in pairs if source in found}
    return found


@given(FORWARD, st.permutations(range(COUNT)))
def test_an_order_has_every_node_after_those_that_lead_to_it(
    pairs: list[tuple[int, int]], names: list[int]
) -> None:
    """However a graph without circles is numbered, each edge leads forward and nobody is left out."""
    renamed = [(names[source], names[target]) for source, target in pairs]
    order = topological(COUNT, renamed)
    assert sorted(order) == list(range(COUNT))
    assert all(order.index(source) < order.index(target) for source, target in renamed)
    assert list(circles(COUNT, renamed)) == []


@given(FORWARD)
def test_where_edges_agree_with_the_list_the_order_is_that_of_the_list(pairs: list[tuple[int, int]]) -> None:
    """Among nodes that are ready, the one that is first is first."""
    assert topological(COUNT, pairs) == list(range(COUNT))


@given(FORWARD, st.permutations(range(COUNT)))
def test_ancestors_are_those_from_which_edges_lead(pairs: list[tuple[int, int]], names: list[int]) -> None:
    """A set of ancestors has exactly the nodes from which the node can be reached."""
    renamed = [(names[source], names[target]) for source, target in pairs]
    sets = ancestors(COUNT, renamed)
    for position in range(COUNT):
        known = {other for other in range(COUNT) if sets[position] >> other & 1}
        assert known == {other for other in range(COUNT) if position in reachable(other, renamed)}


@given(PAIRS)
def test_a_circle_is_found_exactly_when_there_is_one(pairs: list[tuple[int, int]]) -> None:
    """Each circle that is named is one; without its last edges the graph has none."""
    pairs = list(dict.fromkeys(pairs))
    found = list(circles(COUNT, pairs))
    for last, way in found:
        assert pairs[last] == (way[-1], way[0])
        assert all(pair in pairs for pair in pairwise(way))
    cut = [pair for number, pair in enumerate(pairs) if number not in {last for last, _ in found}]
    assert len(topological(COUNT, cut)) == COUNT
    assert bool(found) == any(position in reachable(position, pairs) for position in range(COUNT))


@pytest.fixture(scope="module")
def graph() -> NodeList:
    """A list with gates, conditions, two loop edges and a node that nothing leads to."""
    return load_flow(GRAPH, "graph.yml").lists[""]


def test_a_graph_knows_its_edges_by_node(graph: NodeList) -> None:
    """Forward edges are found by source and by target, loop edges by source."""
    assert graph.is_graph
    assert [edge.to for edge in graph.outgoing["build"]] == ["unit", "lint"]
    assert [edge.from_ for edge in graph.incoming["review"]] == ["unit", "lint"]
    assert (graph.incoming["build"], graph.outgoing["ship"], graph.loops["build"]) == ((), (), ())
    (back,) = graph.loops["review"]
    assert (back.to, back.max_iterations, back.type) == ("build", 3, "loop")
    assert back.when is not None
    assert back.when.names == {("nodes", "review", "value")}
    (again,) = graph.loops["ship"]
    assert again.when is not None
    assert again.when.constant


def test_a_graph_knows_what_comes_first(graph: NodeList) -> None:
    """Order, starts and what comes after a node follow the forward edges and not the file."""
    assert graph.order == ("build", "unit", "lint", "review", "ship", "lonely")
    assert graph.starts == ("build", "lonely")
    assert graph.downstream("unit") == {"review", "ship"}
    assert graph.downstream("build") == {"unit", "lint", "review", "ship"}
    assert graph.downstream("lonely") == frozenset()


def test_one_edge_gives_the_gate_of_all_edges_to_a_node(graph: NodeList) -> None:
    """A gate that is at one edge is that of its target; where none stands it is `all`."""
    assert {node.id: graph.gate(node.id) for node in graph.nodes} == {
        "ship": "all",
        "build": "all",
        "unit": "all",
        "lint": "all",
        "review": "any",
        "lonely": "all",
    }
    assert {edge.gate for edge in graph.incoming["review"]} == {"any"}


def test_a_plain_list_is_a_chain() -> None:
    """Without edges each node comes after those above it."""
    plain = flow_with("- {id: c, type: noop}", "- {id: a, type: noop}\n- {id: b, type: noop}").lists[""]
    assert (plain.is_graph, plain.order, plain.starts) == (False, ("a", "b", "c"), ("a",))
    assert plain.downstream("a") == {"b", "c"}
    assert (plain.gate("b"), plain.incoming["b"], plain.loops["b"]) == ("all", (), ())


def test_a_long_circle_is_printed_with_its_middle_left_out() -> None:
    """The message stays one that people read, however long the circle is."""
    nodes = "".join(f"  - {{id: n{number}, type: noop}}\n" for number in range(100))
    edges = "".join(f"  - {{from: n{number}, to: n{(number + 1) % 100}}}\n" for number in range(100))
    (found,) = problems(f"flow: f\nnodes:\n{nodes}edges:\n{edges}")
    assert found.startswith("203:5: the edges form a cycle: `n0 → n1 → ")
    assert "→ ... →" in found
    assert found.endswith("→ n99 → n0`")
    assert len(found) < 200


def test_no_edges_are_an_order_as_listed() -> None:
    """An empty list of edges makes no graph."""
    flow = load_flow("flow: f\nnodes: [{id: a, type: noop}, {id: b, type: noop}]\nedges: []\n", "f.yml")
    assert not flow.lists[""].is_graph
