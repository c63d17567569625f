"""Nodes of a list that have surely run, and facts that surely hold, when another node runs.

A list is followed along its ways from node to node: its edges, or the order of the file, and jumps forward. Where ways
meet, only facts of all of them hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from engine.flow import reachability
from engine.flow.checks.shape import as_mapping, covered_by, spec_at
from engine.language.errors import ExpressionError
from engine.language.template import Segment, split_text
from engine.nodes.types.prompts import GOTO
from engine.nodes.types.registry import END
from engine.types.facts import NOTHING, Fact, Facts, when_false, when_true


class Reached(NamedTuple):
    """State where a node runs: the set of the positions that were not left out, and the facts."""

    ran: int
    facts: Facts


class Way(NamedTuple):
    """A way from one node to another. `jump`: the first has failed."""

    source: int
    target: int
    when: Any = None
    jump: bool = False


NOWHERE = Reached(0, NOTHING)


def condition_facts(written: Any, *, holds: bool = True) -> Facts:
    """Return the facts of a written condition if it is true, or with `holds=False` if it is false."""
    return _facts_of(written, holds) if isinstance(written, str) and "{{" in written else NOTHING


@lru_cache(maxsize=4096)
def _facts_of(written: str, holds: bool) -> Facts:
    from engine.language.jinja import parse_expression

    try:
        parts = [part for part in split_text(written) if isinstance(part, Segment)]
        tree = parse_expression(parts[0].source)
    except (ExpressionError, IndexError):
        return NOTHING
    return when_true(tree) if holds else when_false(tree)


def reached(nodes: Sequence[Any], edges: Sequence[Any], positions: Mapping[str, int]) -> list[Reached]:
    """Return the state at each node of a list, and at its end (the last entry)."""
    incoming: list[list[Way]] = [[] for _ in nodes]
    leading = ways(nodes, edges, positions)
    for way in leading:
        incoming[way.target].append(way)
    order = reachability.topological(len(nodes), [(way.source, way.target) for way in leading])
    found = [NOWHERE] * len(nodes)
    for position in order:
        if incoming[position]:
            found[position] = _met([_behind(nodes, found, way) for way in incoming[position]])
    if not edges:
        ends = [
            n for n in range(len(nodes)) if n == len(nodes) - 1 or as_mapping(nodes[n]).get("type") == END
        ]
        ended = [_at_end(nodes, found, n) for n in ends if incoming[n] or n == 0]
        return [*found, _met(ended) if ended else NOWHERE]
    # Only nodes that wait for all of their ways can rely on every ancestor.
    if not any(as_mapping(edge).get("gate") == "any" for edge in edges):
        found = [_certain(state, order, incoming, leading) for state in found]
    return [*found, _certain(NOWHERE, order, incoming, leading)]


def _met(states: list[Reached]) -> Reached:
    ran, facts = states[0]
    for other in states[1:]:
        ran, facts = ran & other.ran, facts & other.facts
    return Reached(ran, facts)


def _behind(nodes: Sequence[Any], found: list[Reached], way: Way) -> Reached:
    ran, facts = found[way.source]
    if way.jump:
        failed = Fact("is", ("status", _text(as_mapping(nodes[way.source]).get("id"))), "failed")
        return Reached(ran, facts | {failed})
    facts |= condition_facts(way.when) if way.when is not None else NOTHING
    source = as_mapping(nodes[way.source])
    if stops(source):  # it would have, had its condition held
        facts |= condition_facts(source.get("if"), holds=False)
    return Reached(ran | 1 << way.source, facts)


def _at_end(nodes: Sequence[Any], found: list[Reached], position: int) -> Reached:
    """Return the state if a list ends at this node."""
    node = as_mapping(nodes[position])
    ran, facts = found[position]
    if node.get("type") == END:
        return Reached(ran | 1 << position, facts | condition_facts(node.get("if")))
    return _behind(nodes, found, Way(position, position + 1))


def stops(node: Mapping[str, Any]) -> bool:
    """True if no node behind this one runs in its list, where this one does."""
    spec = spec_at(node)
    ends = spec is not None and (spec.fails or spec.name == END)
    return ends and node.get("on_error", "fail") == "fail"


def always_stops(node: Mapping[str, Any]) -> bool:
    """True if it always stops its list, without a condition."""
    return stops(node) and node.get("if") in (None, True)


def _certain(
    state: Reached, order: Sequence[int], incoming: Sequence[Sequence[Way]], leading: Sequence[Way]
) -> Reached:
    """Add every node that cannot be left out: those at the beginning, and those reached by an unconditional way from
    one of them or from one that was not left out."""
    ran = state.ran
    jumpers = {way.source for way in leading if way.jump}
    for position in order:
        leads = any(way.when is None and not way.jump and ran >> way.source & 1 for way in incoming[position])
        if position not in jumpers and (leads or not incoming[position]):
            ran |= 1 << position
    return Reached(ran, state.facts)


def ways(nodes: Sequence[Any], edges: Sequence[Any], positions: Mapping[str, int]) -> list[Way]:
    """The ways forward through a list of nodes."""
    steps = [n for n, node in enumerate(nodes[:-1]) if not always_stops(as_mapping(node))]
    found = [*_edges(edges, positions)] if edges else [Way(n, n + 1) for n in steps]
    pairs = [(way.source, way.target) for way in found]
    before = reachability.ancestors(len(nodes), pairs)
    for position, node in enumerate(nodes):
        for target in jumps(as_mapping(node)):
            place = positions.get(target, position)
            if place != position and not before[position] >> place & 1:
                found.append(Way(position, place, jump=True))
    return found


def covering(nodes: Sequence[Any]) -> dict[str, list[Mapping[str, Any]]]:
    """The approvals of a list by the id of the node that each covers: this one runs only if it was approved."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for each in nodes:
        node = as_mapping(each)
        target = covered_by(node)
        if target is not None:
            found.setdefault(target, []).append(node)
    return found


def approved(state: Reached, gates: Sequence[Mapping[str, Any]]) -> Reached:
    """The same place, once these approvals have been given."""
    done = frozenset(Fact("is", ("status", _text(gate.get("id"))), "completed") for gate in gates)
    return Reached(state.ran, state.facts | done) if gates else state


def _edges(edges: Sequence[Any], positions: Mapping[str, int]) -> list[Way]:
    found = []
    for each in edges:
        edge = as_mapping(each)
        source, target = positions.get(_text(edge.get("from"))), positions.get(_text(edge.get("to")))
        if source is not None and target is not None and source != target and edge.get("type") != "loop":
            found.append(Way(source, target, edge.get("when")))
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def jumps(node: Mapping[str, Any]) -> list[str]:
    """Return the ids of the nodes to which a failure, a timeout or a rejection of this one jumps."""
    with_ = as_mapping(node.get("with"))
    given = (node.get("on_error"), with_.get("on_timeout"), with_.get("on_reject"))
    found = [GOTO.fullmatch(each) for each in given if isinstance(each, str)]
    return [match[1] for match in found if match is not None]
