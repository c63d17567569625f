"""Approvals that cover a node (`covers: <id>`): whether that node can be covered, and whether what it will do is known
when the approval is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from engine.flow.checks.raw_lists import as_mapping, covered_by, spec_at
from engine.flow.checks.visibility import Scope
from engine.language.codec import Json
from engine.language.diagnostics import Fault, Path, suggest
from engine.language.expressions import inspect_text
from engine.language.template import Reference, Segment

_FORESEEN = ("decision", "values")
"""What is known of an approval's output when it is asked: that it is given, and the values that it proposes."""


class _Covered(NamedTuple):
    gate: str
    node_id: str
    scope: Scope
    """What the approval itself knows."""


def check_covers(
    nodes: Sequence[Any],
    positions: Mapping[str, int],
    seen: Sequence[int],
    scope: Scope,
    levels: Sequence[Any],
) -> Iterator[Fault]:
    """What is wrong with the approvals of a list that cover other nodes of it. Paths begin at the list.

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
        return (
            f"`{target}` does not surely come after this approval",
            "an approval covers a node that comes later",
        )
    spec = spec_at(as_mapping(nodes[place]))
    if spec is not None and spec.mode not in ("run", "delivery"):
        hint = "what can be covered is shell, http, message, python, and types of your own"
        return (
            f"`{target}` is of type `{spec.name}`, of which nobody can say beforehand what it will do",
            hint,
        )
    return None


def _names(value: Json, path: Path, covered: _Covered) -> Iterator[Fault]:
    """The names that the covered node uses although nobody knows their values when the approval is asked."""
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
            f"`now` is another time when `{covered.gate}` asks than when this node runs, which it covers"
        )
    elif root not in ("nodes", "status", "errors") or not rest or covered.scope.find(rest[0]) is not None:
        return
    elif rest[0] != covered.gate:
        message = f"`{root}.{rest[0]}` is not known yet when `{covered.gate}` asks, which covers this node"
    elif root == "nodes" and len(rest) > 1 and rest[1] in _FORESEEN:
        return
    else:
        message = f"what `{covered.gate}` will say is not known when it asks, and it covers this node"
    hint = f"use what comes before `{covered.gate}`, or `nodes.{covered.gate}.values`"
    yield Fault(path, message, hint, offset=segment.offset, snippet=segment.text)
