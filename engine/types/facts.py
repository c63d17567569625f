"""Facts that a condition establishes for the expressions after it.

A fact is a path with a value that it has or does not have, or the text of a condition that held. Facts are plain values
in a set: `and` unites two sets, `or` and the meeting of two edges keep what both have.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from jinja2 import nodes

from engine.language.codec import Json
from engine.language.jinja import static_path
from engine.language.template import Names


class Fact(NamedTuple):
    """A path that is, or is not, this value, or exists at all (`has`); under `held` and no path, the text of a
    condition that held."""

    kind: Literal["is", "not", "has", "held"]
    path: Names
    value: Json


Facts: TypeAlias = frozenset[Fact]
NOTHING: Facts = frozenset()
_FLIPPED = {"eq": "ne", "ne": "eq", "gt": "lteq", "gteq": "lt", "lt": "gteq", "lteq": "gt", "in": "notin"}


def not_null(path: Names) -> Fact:
    """The fact that a path is not null."""
    return Fact("not", path, None)


def present(path: Names) -> Fact:
    """The fact that a path is there, null or not."""
    return Fact("has", path, None)


def when_true(node: nodes.Node) -> Facts:
    """Return the facts if this expression is true."""
    return frozenset(_true(node)) | {Fact("held", (), repr(node))}


def when_false(node: nodes.Node) -> Facts:
    """Return the facts if this expression is false."""
    return frozenset(_false(node)) | {Fact("held", (), f"not {node!r}")}


def _true(node: nodes.Node) -> Facts:
    match node:
        case nodes.And():
            return when_true(node.left) | when_true(node.right)
        case nodes.Or():
            return when_true(node.left) & when_true(node.right)
        case nodes.Not():
            return when_false(node.node)
        case nodes.Compare():
            return frozenset(_compared(node, negated=False)) | used(node)
        case nodes.Test():
            return _tested(node) | used(node)
        case nodes.Filter() if node.name == "default":
            return NOTHING
    path = static_path(node)
    return used(node) | ({not_null(path)} if path is not None else NOTHING)


def _false(node: nodes.Node) -> Facts:
    match node:
        case nodes.Or():
            return when_false(node.left) | when_false(node.right)
        case nodes.And():
            return when_false(node.left) & when_false(node.right)
        case nodes.Not():
            return when_true(node.node)
        case nodes.Compare():
            return frozenset(_compared(node, negated=True)) | used(node)
        case nodes.Test() if node.name in ("none", "undefined"):
            path = static_path(node.node)
            if path is None or node.name == "none":
                return frozenset({not_null(path)}) if path else NOTHING
            return _upwards(path[:-1]) | {present(path)}
    return used(node)


def used(node: nodes.Node) -> Facts:
    """Return the facts that every evaluation of an expression shows: each value it looks into, outside of `default`, is
    not null."""
    if isinstance(node, nodes.Filter | nodes.Test) and node.name in ("default", "defined", "undefined"):
        return NOTHING
    if isinstance(node, nodes.And | nodes.Or | nodes.CondExpr):
        first = node.test if isinstance(node, nodes.CondExpr) else node.left
        return used(first)
    path = static_path(node)
    if path is not None:
        return frozenset(not_null(path[:length]) for length in range(2, len(path)))
    found: Facts = NOTHING
    for child in node.iter_child_nodes():
        found |= used(child)
    return found


def _tested(node: nodes.Test) -> Facts:
    path = static_path(node.node)
    if path is None or node.name in ("none", "undefined"):
        return NOTHING
    return _upwards(path[:-1]) | {present(path)} if node.name == "defined" else _upwards(path)


def _upwards(path: Names) -> Facts:
    """Return the facts that neither this path nor any of its parents is null."""
    return frozenset(not_null(path[:length]) for length in range(1, len(path) + 1))


def _compared(node: nodes.Compare, *, negated: bool) -> Facts:
    if len(node.ops) != 1:
        return NOTHING
    op, right = node.ops[0].op, node.ops[0].expr
    op = _FLIPPED.get(op, op) if negated else op
    left = node.expr
    if isinstance(left, nodes.Const) and op in ("eq", "ne"):
        left, right = right, left
    path, excused = _subject(left)
    if path is None:
        holder = static_path(right)
        if op != "in" or holder is None or not isinstance(left, nodes.Const):
            return NOTHING
        return frozenset({present((*holder, str(left.value)))})
    if op == "in":
        items = right.items if isinstance(right, nodes.List | nodes.Tuple) else []
        listed = [_constant(item) for item in items]
        value = [each for _, each in listed]
        constant = bool(listed) and all(known for known, _ in listed)
        return _one_of(path, value) if constant and excused not in value else NOTHING
    constant, value = _constant(right)
    if not constant:
        return NOTHING
    if path == ("index",):
        # In a loop `last` is null in the first round only.
        if not isinstance(value, int):
            return NOTHING
        later = (
            (op == "gt" and value >= 0) or (op in ("gteq", "eq") and value > 0) or (op == "ne" and value == 0)
        )
        return frozenset({not_null(("last",))}) if later else NOTHING
    if op == "ne" and value == excused:
        return _upwards(path[:-1])
    if op == "ne":
        return _upwards(path) if value is None else frozenset({Fact("not", path, value)})
    if op == "eq" and value is not None and value != excused:
        return _upwards(path) | {Fact("is", path, value)}
    return NOTHING


def _one_of(path: Names, values: list[Json]) -> Facts:
    single = {Fact("is", path, values[0])} if len(values) == 1 else set()
    return NOTHING if None in values else _upwards(path) | single


_NO_DEFAULT: Json = object()


def _subject(node: nodes.Node) -> tuple[Names | None, Json]:
    """The path that is compared, and the value that `default` puts in its place."""
    if isinstance(node, nodes.Filter) and node.name == "default" and node.node is not None:
        given = node.args[0] if node.args else nodes.Const("")
        constant, value = _constant(given)
        return (static_path(node.node), value) if constant else (None, None)
    return static_path(node), _NO_DEFAULT


def _constant(node: nodes.Node) -> tuple[bool, Json]:
    if isinstance(node, nodes.Const):
        return True, node.value
    return isinstance(node, nodes.Name) and node.name == "null", None
