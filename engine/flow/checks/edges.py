"""Checks of the edges of a list of nodes (missing ends, circles, loops that lead nowhere) and of approvals that cover a
node (`covers: <id>`): the node must be coverable, and its action known when the approval is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from engine.flow import reachability
from engine.flow.checks.shape import as_mapping, covered_by, spec_at
from engine.flow.checks.visibility import Scope, check_condition
from engine.flow.document import EdgeDoc
from engine.language.codec import Json
from engine.language.diagnostics import Fault, Path, faults_under, suggest
from engine.language.expressions import inspect_text
from engine.language.template import Reference, Segment

_MAX_SHOWN = 12


def ends(edge: Any) -> tuple[str, str]:
    """Return the ids that an edge joins; missing ones are empty."""
    written = as_mapping(edge)
    source, target = written.get("from"), written.get("to")
    return source if isinstance(source, str) else "", target if isinstance(target, str) else ""


def sound_pairs(edges: list[Any], positions: Mapping[str, int]) -> list[reachability.Pair]:
    """The forward edges between two different nodes of the list, by position."""
    return [(source, target) for _, source, target in _forward(edges, positions)]


def _forward(edges: list[Any], positions: Mapping[str, int]) -> list[tuple[int, int, int]]:
    """Number, source and target of those edges."""
    found = []
    for number, edge in enumerate(edges):
        source, target = ends(edge)
        if source in positions and target in positions and source != target and not _is_loop(edge):
            found.append((number, positions[source], positions[target]))
    return found


def _is_loop(edge: Any) -> bool:
    return as_mapping(edge).get("type") == "loop"


def check_edges(
    edges: list[Any],
    positions: Mapping[str, int],
    scopes: Mapping[str, Scope],
    line_of: Callable[[Path], int],
    edges_path: Path,
) -> Iterator[Fault]:
    """Yield the faults of a list of edges, by number in the list; `scopes` are the names known after each node."""
    first: dict[tuple[str, str], int] = {}
    for number, edge in enumerate(edges):
        if not isinstance(edge, dict):
            continue
        yield from faults_under((number,), _edge(edge, positions, scopes))
        pair = ends(edge)
        if all(pair) and pair in first:
            line = line_of((*edges_path, first[pair]))
            yield Fault(
                (number,), f"the edge {_shown(pair)} appears twice", f"the first one is on line {line}"
            )
        first.setdefault(pair, number)
    given: dict[str, str] = {}
    for number, edge in enumerate(edges):
        gate, to = as_mapping(edge).get("gate"), ends(edge)[1]
        if gate not in ("any", "all") or not to or _is_loop(edge):
            continue
        if given.setdefault(to, gate) != gate:
            message = f"another edge gives `{to[:80]}` the gate `{given[to]}`"
            yield Fault((number, "gate"), message, "a node has one gate; write it once")
    forward = _forward(edges, positions)
    names = {position: name for name, position in positions.items()}
    for last, way in reachability.circles(
        _count(positions), [(source, target) for _, source, target in forward]
    ):
        shown = _shown([*(names[position] for position in way), names[way[0]]])
        yield Fault((forward[last][0],), f"the edges form a cycle: {shown}", _LOOP_HINT)
    before = reachability.ancestors(_count(positions), sound_pairs(edges, positions))
    for number, edge in enumerate(edges):
        source, target = ends(edge)
        if not _is_loop(edge) or source == target or source not in positions or target not in positions:
            continue
        if not before[positions[source]] >> positions[target] & 1:
            hint = f"no edges lead from `{target}` to `{source}`"
            yield Fault((number,), f"the loop edge {_shown((source, target))} does not lead back", hint)


def _edge(
    edge: Mapping[str, Any], positions: Mapping[str, int], scopes: Mapping[str, Scope]
) -> Iterator[Fault]:
    yield from EdgeDoc.conflicts(edge)
    source, target = ends(edge)
    for field, name in (("from", source), ("to", target)):
        if name and name not in positions:
            scope = next(iter(scopes.values()), None)
            elsewhere = scope is not None and name in scope.places
            hint = (
                "it is in another list; an edge joins nodes of the same list"
                if elsewhere
                else suggest(name, positions)
            )
            yield Fault((field,), f"there is no node `{name[:80]}` in this list", hint)
    if source and source == target and not _is_loop(edge):
        yield Fault((), f"the edge {_shown((source, target))} leads to itself", _LOOP_HINT)
    if edge.get("when") is not None and source in scopes:
        yield from check_condition(edge["when"], ("when",), scopes[source])


_LOOP_HINT = "an edge that leads back has `type: loop` and `max_iterations`"


def _shown(way: Any) -> str:
    names = list(way)
    if len(names) > _MAX_SHOWN:
        names[_MAX_SHOWN // 2 : -_MAX_SHOWN // 2] = ["..."]
    return "`" + " → ".join(name[:80] for name in names) + "`"


def _count(positions: Mapping[str, int]) -> int:
    return max(positions.values(), default=-1) + 1


# --- covered nodes -----------------------------------------------------------------------------------------


_FORESEEN = ("decision", "values")
"""Parts of an approval's output known when it is asked: that it is given, and the values that it proposes."""


class _Covered(NamedTuple):
    gate: str
    node_id: str
    scope: Scope
    """Names known to the approval itself."""


def check_covers(
    nodes: Sequence[Any],
    positions: Mapping[str, int],
    seen: Sequence[int],
    scope: Scope,
    levels: Sequence[Any],
) -> Iterator[Fault]:
    """Yield the faults of approvals that cover other nodes of their list. Paths begin at the list.

    `seen` has for each node the set of those that surely came before it, `levels` what each of them sees.
    """
    for position, entry in enumerate(nodes):
        node = as_mapping(entry)
        target = covered_by(node)
        if target is None or not isinstance(node.get("id"), str):
            continue
        path: Path = (position, "with", "covers")
        problem = _target(target, node["id"], position, nodes, positions, seen)
        if problem is not None:
            yield Fault(path, *problem)
            continue
        place = positions[target]
        covered = _Covered(node["id"], target, scope.at(node["id"], levels[position]))
        yield from _names(as_mapping(as_mapping(nodes[place]).get("with")), (place, "with"), covered)


def _target(
    target: str,
    gate: str,
    position: int,
    nodes: Sequence[Any],
    positions: Mapping[str, int],
    seen: Sequence[int],
) -> tuple[str, str | None] | None:
    """Why this approval cannot cover that node, with a hint."""
    place = positions.get(target)
    if place is None:
        return f"there is no node `{target}` in this list", suggest(
            target, [name for name in positions if name != gate]
        )
    if not seen[place] >> position & 1:
        return (f"`{target}` may not come after this approval", "an approval covers a node that comes later")
    spec = spec_at(as_mapping(nodes[place]))
    if spec is not None and spec.mode not in ("run", "delivery"):
        hint = "an approval can cover shell, http, message, python and your own types"
        return (f"`{target}` is of type `{spec.name}`, whose effect cannot be known in advance", hint)
    return None


def _names(value: Json, path: Path, covered: _Covered) -> Iterator[Fault]:
    """Yield the names in the covered node whose values are unknown when the approval is asked."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _names(item, (*path, key), covered)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _names(item, (*path, index), covered)
    elif isinstance(value, str) and ("{{" in value or "{%" in value):
        for segment, reference in inspect_text(value, secrets=True)[1]:
            yield from _name(segment, reference, path, covered)


def _name(segment: Segment, reference: Reference, path: Path, covered: _Covered) -> Iterator[Fault]:
    root, *rest = reference.path
    if root == "messages":
        message = (
            f"`messages` can change between the approval `{covered.gate}` and this node, which it covers"
        )
    elif root == "now":
        message = (
            f"`now` has another value when `{covered.gate}` asks than when this node runs, and it covers "
            "this node"
        )
    elif root not in ("nodes", "status", "errors") or not rest or covered.scope.find(rest[0]) is not None:
        return
    elif rest[0] != covered.gate:
        message = f"`{root}.{rest[0]}` is not known yet when `{covered.gate}` asks, and it covers this node"
    elif root == "nodes" and len(rest) > 1 and rest[1] in _FORESEEN:
        return
    else:
        message = f"the answer of `{covered.gate}` is not known when it asks, and it covers this node"
    hint = f"use a node before `{covered.gate}`, or `nodes.{covered.gate}.values`"
    yield Fault(path, message, hint, offset=segment.offset, snippet=segment.text)
