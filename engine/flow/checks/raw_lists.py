"""The lists of nodes in a flow's raw data: where each node stands, before anybody knows whether the flow is sound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from engine.language.diagnostics import Path
from engine.nodes.types.registry import node_types
from engine.nodes.types.spec import PARTS, NodeSpec


class Part(NamedTuple):
    """A list of nodes inside a node: its key in `Node.lists`, its path inside the node, the nodes as written."""

    key: str
    path: Path
    nodes: list[Any]


class Place(NamedTuple):
    """Where a node stands: its path in the data, its position in its list, and the containers around it, outermost
    first, each with the key of the part; and its type."""

    path: Path
    position: int
    around: tuple[tuple[str, str], ...]
    type: Any = None
    talks: bool = False
    """Whether it is an agent."""


def as_list(value: Any) -> list[Any]:
    """The value where it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_mapping(value: Any) -> Mapping[str, Any]:
    """The value where it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def spec_at(node: Mapping[str, Any]) -> NodeSpec | None:
    """The type of a node as written; None where there is no such type."""
    kind = node.get("type")
    return node_types().get(kind) if isinstance(kind, str) else None


def talks(node: Mapping[str, Any]) -> bool:
    """Whether a node is an agent."""
    spec = spec_at(node)
    return spec is not None and spec.talks


def covered_by(node: Mapping[str, Any]) -> str | None:
    """The id of the node that an approval covers."""
    spec, target = spec_at(node), as_mapping(node.get("with")).get("covers")
    covers = spec is not None and "covers" in spec.static_fields
    return target if covers and isinstance(target, str) else None


def taken_parts(node: Mapping[str, Any]) -> frozenset[str]:
    """The fields beside `with` that a node's type has; all of them where nobody knows the type."""
    spec = spec_at(node)
    return frozenset(spec.parts if spec is not None else PARTS)


def parts(node: Mapping[str, Any]) -> Iterator[Part]:
    """The lists of nodes that a container holds."""
    taken = taken_parts(node)
    if "body" in taken and isinstance(node.get("body"), list):
        yield Part("body", ("body",), node["body"])
    for field in ("branches", "cases"):
        if field in taken:
            for name, nodes in as_mapping(node.get(field)).items():
                yield Part(name, (field, name), as_list(nodes))
    if "default" in taken and isinstance(node.get("default"), list):
        yield Part("", ("default",), node["default"])


def ids(nodes: list[Any]) -> dict[str, int]:
    """The ids of a list with their positions; of two nodes with one id the first."""
    found: dict[str, int] = {}
    for position, node in enumerate(nodes):
        name = as_mapping(node).get("id")
        if isinstance(name, str) and name:
            found.setdefault(name, position)
    return found


def walk(data: Mapping[str, Any]) -> Iterator[tuple[Place, Mapping[str, Any]]]:
    """Every node of a flow with its place, in the order of the file; `finally` last."""
    yield from _walk(as_list(data.get("nodes")), ("nodes",), ())
    yield from _walk(as_list(data.get("finally")), ("finally",), (("finally", ""),))


def _walk(
    nodes: list[Any], path: Path, around: tuple[tuple[str, str], ...]
) -> Iterator[tuple[Place, Mapping[str, Any]]]:
    for position, node in enumerate(nodes):
        if not isinstance(node, dict):
            continue
        here = (*path, position)
        yield Place(here, position, around, node.get("type"), talks(node)), node
        name = node.get("id")
        inside = name if isinstance(name, str) else ""
        for part in parts(node):
            yield from _walk(part.nodes, (*here, *part.path), (*around, (inside, part.key)))
        failure = as_list(node.get("on_failure"))
        yield from _walk(failure, (*here, "on_failure"), (*around, (inside, "!")))


def places(data: Mapping[str, Any]) -> dict[str, Place]:
    """The place of every id; of two nodes with one id that of the first."""
    found: dict[str, Place] = {}
    for place, node in walk(data):
        name = node.get("id")
        if isinstance(name, str) and name:
            found.setdefault(name, place)
    return found


def items(data: Mapping[str, Any]) -> dict[str, str]:
    """The names that foreach nodes give their items, each with the first such node."""
    found: dict[str, str] = {}
    for _, node in walk(data):
        spec = spec_at(node)
        if spec is not None and spec.item_name is not None and isinstance(node.get("id"), str):
            found.setdefault(spec.item_name(as_mapping(node.get("with"))), node["id"])
    return found
