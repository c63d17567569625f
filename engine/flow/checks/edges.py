"""What is wrong with the edges of a list of nodes: ends that are not there, circles, loops that lead nowhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from engine.flow import reachability
from engine.flow.checks.raw_lists import as_mapping
from engine.flow.checks.text import check_condition
from engine.flow.checks.visibility import Scope
from engine.flow.document import EdgeDoc
from engine.language.diagnostics import Fault, Path, suggest

_MAX_SHOWN = 12


def ends(edge: Any) -> tuple[str, str]:
    """The ids that an edge joins; empty where they are missing."""
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
    """All that is wrong with a list of edges, by its number in the list; `scopes` is what is known after each node."""
    first: dict[tuple[str, str], int] = {}
    for number, edge in enumerate(edges):
        if not isinstance(edge, dict):
            continue
        for fault in _edge(edge, positions, scopes):
            yield fault.under((number,))
        pair = ends(edge)
        if all(pair) and pair in first:
            line = line_of((*edges_path, first[pair]))
            yield Fault(
                (number,), f"the edge {_shown(pair)} stands here twice", f"the first one is in line {line}"
            )
        first.setdefault(pair, number)
    yield from _gates(edges)
    yield from _circles(edges, positions)
    yield from _loops(edges, positions)


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
                "it stands in another list; an edge joins nodes of one list"
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


def _gates(edges: list[Any]) -> Iterator[Fault]:
    given: dict[str, str] = {}
    for number, edge in enumerate(edges):
        gate, target = as_mapping(edge).get("gate"), ends(edge)[1]
        if gate not in ("any", "all") or not target or _is_loop(edge):
            continue
        if given.setdefault(target, gate) != gate:
            message = f"another edge gives `{target[:80]}` the gate `{given[target]}`"
            yield Fault((number, "gate"), message, "a node has one gate; it is enough to write it once")


def _circles(edges: list[Any], positions: Mapping[str, int]) -> Iterator[Fault]:
    forward = _forward(edges, positions)
    names = {position: name for name, position in positions.items()}
    for last, way in reachability.circles(
        _count(positions), [(source, target) for _, source, target in forward]
    ):
        shown = _shown([*(names[position] for position in way), names[way[0]]])
        yield Fault((forward[last][0],), f"the edges go in a circle: {shown}", _LOOP_HINT)


def _loops(edges: list[Any], positions: Mapping[str, int]) -> Iterator[Fault]:
    before = reachability.ancestors(_count(positions), sound_pairs(edges, positions))
    for number, edge in enumerate(edges):
        source, target = ends(edge)
        if not _is_loop(edge) or source == target or source not in positions or target not in positions:
            continue
        if not before[positions[source]] >> positions[target] & 1:
            hint = f"no edges lead from `{target}` to `{source}`"
            yield Fault((number,), f"the loop edge {_shown((source, target))} does not lead back", hint)
