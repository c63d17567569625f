"""The type of an expression, from the tree that Jinja parsed, and all faults in it.

A subexpression with a fault is `ANY` to its surroundings, so that one mistake is reported once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from jinja2 import nodes

from engine.language.diagnostics import suggest
from engine.language.jinja import joined, static_path
from engine.language.template import Names
from engine.types.call_types import Calls, Side
from engine.types.facts import NOTHING, Facts, not_null, when_false, when_true
from engine.types.lattice import (
    ANY,
    BOOLEAN,
    FLAG,
    KNOWN,
    LIST,
    MAPPING,
    MISSING,
    NONE,
    NULL,
    NUMBER,
    NUMBERS,
    SCALAR,
    TEXT,
    TEXTS,
    UNDEFINED,
    Type,
    because,
    either,
    list_of,
    mapping_of,
    of_value,
    shown,
    union,
    words,
)
from engine.types.signatures import items_of, source_of, told

NO_PART_OF_TEXT = "null cannot be a part of a text here"
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d:\d\d\.\d{3}Z)?", re.ASCII)
"""A moment in the format of `now`, or a day, which compares correctly with it."""
_HINT_THERE = "guard it with a condition on `case`, with `is defined`, or with `default`"
_HINT_GUARD = "guard it with `if`, or with `default(..., true)`"


class Wrong(NamedTuple):
    """One fault in an expression: the part of its source, the message, and the remedy. A `doubt` is allowed but
    probably unintended."""

    message: str
    hint: str | None
    name: str
    doubt: bool = False


class Surroundings(Protocol):
    """Names available to an expression, and the facts at its place."""

    def root(self, name: str) -> Type:
        """Return the type of a name; `ANY` for an unknown one, which is reported elsewhere."""

    def narrowed(self, path: Names, found: Type, facts: Facts) -> Type:
        """Return the type of a path, narrowed by these facts."""


class Inference:
    """The types of one expression. `wrong` collects its faults."""

    def __init__(self, names: Surroundings, *, exact: bool = False) -> None:
        self.names = names
        self.exact = exact
        self.wrong: list[Wrong] = []
        self._beside = NOTHING
        """Facts required by the other side of an `and`."""
        self._calls = Calls(self)

    def of(self, node: nodes.Node, facts: Facts = NOTHING, *, excused: bool = False) -> Type:
        """Return the type of an expression under these facts. `excused`: undefined values in it have a default."""
        if isinstance(node, nodes.Getattr | nodes.Getitem):
            return self._item(node, facts, excused)
        if isinstance(node, nodes.CondExpr):
            self.of(node.test, facts)
            first = self.of(node.expr1, facts | when_true(node.test))
            if node.expr2 is None and not excused:
                message = f"{told(node)} gives nothing when the condition is false"
                return self.report(node, message, "add `else` and the value for that case")
            if node.expr2 is None:
                return either(first, UNDEFINED)
            return either(first, self.of(node.expr2, facts | when_false(node.test)))
        for _, parts in joined(node) if self.exact else ():
            for part in parts:
                found = self.of(part, facts)
                each = items_of(found) if getattr(node, "name", "") == "join" else found
                self.present(part, each, NO_PART_OF_TEXT)
        if isinstance(node, nodes.BinExpr):
            if isinstance(node, nodes.And):
                left = self._left(node, facts, self.of)
                right = self.of(node.right, facts | when_true(node.left))
                return either(_falsy(left), right)
            if isinstance(node, nodes.Or):
                left = self.of(node.left, facts)
                right = self.of(node.right, facts | when_false(node.left))
                return either(left.without(NULL), right)
            left = self.of(node.left, facts)
            right = self.of(node.right, facts)
            use = f"`{node.operator}` takes no null"
            left, right = self.present(node.left, left, use), self.present(node.right, right, use)
            if left.unknown or right.unknown or not left.kinds or not right.kinds:
                return ANY
            result = 0
            for a, b, gives in _SUMS.get(node.operator, ((NUMBER, NUMBER, NUMBER),)):
                if left.kinds & a and right.kinds & b:
                    result |= gives
            if result:
                return Type(result)
            message = f"{_pair((node.left, left), (node.right, right))}: `{node.operator}` does not take them"
            return self.report(node, message, _sum_hint(node.operator, left, right))
        if isinstance(node, nodes.Filter):
            return self._calls.filtered(node, facts)
        if isinstance(node, nodes.Test):
            return self._calls.tested(node, facts)
        infer = _BY_NODE.get(type(node))
        return ANY if infer is None else infer(self, node, facts)

    def condition(self, node: nodes.Node, facts: Facts) -> Type:
        """The type of a condition, in which null on the left of an `and` is false."""
        if isinstance(node, nodes.And):
            left = self._left(node, facts, self.condition).without(NULL)
            return either(_falsy(left), self.condition(node.right, facts | when_true(node.left)))
        if isinstance(node, nodes.Or):
            left = self.condition(node.left, facts).without(NULL)
            return either(left, self.condition(node.right, facts | when_false(node.left)))
        return self.of(node, facts)

    def report(
        self, node: nodes.Node, message: str, hint: str | None = None, name: str | None = None
    ) -> Type:
        """Report a fault in a part of the expression; its type is then unknown."""
        self.wrong.append(Wrong(message, hint, name if name is not None else source_of(node)))
        return ANY

    def present(self, node: nodes.Node, found: Type, use: str) -> Type:
        """Return the type of a value that must not be null where it is used."""
        if found.nullable:
            self.report(node, f"{told(node)} may be null{because(found)}, and {use}", _HINT_GUARD)
            return found.without(NULL)
        return found

    # --- names and items -----------------------------------------------------------------------------------

    def _name(self, node: nodes.Name, facts: Facts) -> Type:
        if node.name == "null":
            return NONE
        return self.names.narrowed((node.name,), self.names.root(node.name), facts)

    def _item(self, node: nodes.Getattr | nodes.Getitem, facts: Facts, excused: bool) -> Type:
        found = self.of(node.node, facts, excused=excused)
        if isinstance(node, nodes.Getitem) and not isinstance(node.arg, nodes.Const):
            # `list[1:3]`, and a subscript that only the run will know.
            if isinstance(node.arg, nodes.Slice):
                return self.present(node.node, found, "has no items then").without(MISSING)
            index = self.of(node.arg, facts)
            if found.unknown or index.unknown:
                return ANY
            found = self.present(node.node, found, "has no items then")
            if found.kinds & MAPPING and index.values and found.fields is not None:
                fits = [found.fields[str(key)] for key in index.values if key in found.fields]
                if not fits and found.rest is None:
                    message = f"{told(node.node)} has none of the fields {words(index)}"
                    return self.report(node, message, f"it has {', '.join(sorted(found.fields))}")
                return union(fits) if fits else ANY
            return self._element(node, found) if found.kinds & LIST else ANY
        key = node.attr if isinstance(node, nodes.Getattr) else node.arg.as_const()
        item = self._hop(node, found, key, excused)
        path = static_path(node)
        item = item if path is None else self.names.narrowed(path, item, facts)
        if item.kinds & MISSING and not item.unknown and not excused:
            self.report(node, f"{told(node.node)} may have no `{key}`", _HINT_THERE)
        return item if excused else item.without(MISSING)

    def _hop(self, node: nodes.Getattr | nodes.Getitem, found: Type, key: object, excused: bool) -> Type:
        if found.unknown:
            return ANY
        absent = found.kinds & (NULL | MISSING)
        if found.nullable and not excused:
            what = f"has no `{key}` then" if isinstance(key, str) else "has no items then"
            self.report(node, f"{told(node.node)} may be null{because(found)}, and {what}", _guard(node))
            absent = 0
        if isinstance(key, str):
            item = self._field(node, found, key)
        elif isinstance(key, int) and not isinstance(key, bool):
            item = self._element(node, found)
        else:
            return ANY
        return either(item, UNDEFINED) if absent and excused else item

    def _field(self, node: nodes.Getattr | nodes.Getitem, found: Type, key: str) -> Type:
        if not found.kinds & MAPPING:
            if not found.kinds & KNOWN & ~NULL:
                return ANY
            message = f"{told(node.node)} is {words(found.without(NULL))} and has no `{key}`"
            return self.report(node, message, _no_mapping(found, key))
        if found.fields is None:
            return found.rest or ANY
        if key in found.fields:
            return found.fields[key]
        return found.rest if found.rest is not None else self._no_field(node, found.fields, key)

    def _no_field(self, node: nodes.Getattr | nodes.Getitem, fields: Mapping[str, Type], key: str) -> Type:
        path = static_path(node.node)
        output = path is not None and len(path) == 2 and path[0] == "nodes"
        where = f"the output of `{path[1]}`" if output and path is not None else told(node.node)
        none = "its output has no fields" if output else "it has none"
        known = f"it has {', '.join(sorted(fields))}" if fields else none
        return self.report(node, f"{where} has no field `{key}`", suggest(key, fields, known))

    def _element(self, node: nodes.Getattr | nodes.Getitem, found: Type) -> Type:
        if found.kinds & (LIST | TEXT):
            return union(
                [
                    *([found.items or ANY] if found.kinds & LIST else []),
                    *([TEXTS] if found.kinds & TEXT else []),
                ]
            )
        if not found.kinds & KNOWN & ~NULL:
            return ANY
        return self.report(
            node, f"{told(node.node)} is {words(found.without(NULL))}, and cannot be indexed by number"
        )

    # --- operators -----------------------------------------------------------------------------------------

    def _left(self, node: nodes.And, facts: Facts, infer: Callable[[nodes.Node, Facts], Type]) -> Type:
        before, self._beside = self._beside, self._beside | when_true(node.right)
        try:
            return infer(node.left, facts)
        finally:
            self._beside = before

    def _not(self, node: nodes.Not, facts: Facts) -> Type:
        match node.node:
            case nodes.Compare(ops=[nodes.Operand(op="eq", expr=right)], expr=left):
                self.of(nodes.Compare(left, [nodes.Operand("ne", right)]), facts)
            case inner:
                self.of(inner, facts)
        return FLAG

    def _compare(self, node: nodes.Compare, facts: Facts) -> Type:
        left_node, left = node.expr, self.of(node.expr, facts)
        for operand in node.ops:
            right = self.of(operand.expr, facts)
            self.compared(node, operand.op, (left_node, left), (operand.expr, right))
            left_node, left = operand.expr, right
        return FLAG

    def compared(self, node: nodes.Node, operator: str, left: Side, right: Side) -> None:
        """Report the faults of a comparison of two values."""
        if operator not in ("in", "notin"):
            # A doubt where a moment is compared with a text that may have another offset: texts compare
            # letter by letter.
            (_, known), (other, found) = (left, right) if left[1].moment else (right, left)
            written = found.values is not None and all(
                _MOMENT.fullmatch(str(value)) for value in found.values
            )
            if known.moment and not found.moment and found.kinds & TEXT and not written:
                message = f"{told(other)} is compared with a moment as text, and may have another offset"
                source = source_of(other)
                hint = f"convert it to a moment: `{source or '...'} | moment`"
                self.wrong.append(Wrong(message, hint, source_of(node), doubt=True))
        if operator in ("eq", "ne"):
            self._equality(node, left, right)
            if operator == "ne":
                self._not_empty(left, right)
        elif operator in ("in", "notin"):
            self._membership(node, left, right)
        else:
            self._order(node, left, right)

    def _equality(self, node: nodes.Node, left: Side, right: Side) -> None:
        a, b = left[1], right[1]
        if a.unknown or b.unknown or not a.kinds or not b.kinds or (a.kinds & b.kinds & NULL):
            return
        kinds = a.kinds & b.kinds & ~MISSING
        if NONE in (a, b):
            # Comparing with null is always allowed.
            return
        if not kinds:
            hint = _conversion(a, b)
            self.report(node, f"{_pair(left, right)}: the two are never equal", hint)
        elif isinstance(left[0], nodes.Const) and isinstance(right[0], nodes.Const):
            return
        elif (
            kinds & ~SCALAR == 0 and a.values is not None and b.values is not None and not a.values & b.values
        ):
            self._impossible(node, left, right)

    def _not_empty(self, left: Side, right: Side) -> None:
        """A doubt where null passes for text that is not empty."""
        for (node, found), (other, _) in ((left, right), (right, left)):
            path = static_path(node)
            empty = isinstance(other, nodes.Const) and other.value == ""
            if empty and found.nullable and (path is None or not_null(path) not in self._beside):
                message = f"{told(node)} may be null{because(found)}, and null is not empty text"
                self.wrong.append(
                    Wrong(message, f"write `{source_of(node)} is not none`", source_of(node), True)
                )

    def _impossible(self, node: nodes.Node, left: Side, right: Side, *, doubt: bool = False) -> None:
        known, other = (left, right) if isinstance(right[0], nodes.Const) else (right, left)
        values = known[1].values or frozenset()
        given = sorted(other[1].values or frozenset(), key=str)
        close = suggest(str(given[0]), map(str, values), "") if len(given) == 1 else ""
        message = f"{told(known[0])} is never {' or '.join(map(shown, given))}: it is {words(known[1])}"
        self.wrong.append(Wrong(message, close or None, source_of(node), doubt))

    def _membership(self, node: nodes.Node, left: Side, right: Side) -> None:
        a, b = left[1], right[1]
        if b.unknown:
            return
        b = self.present(right[0], b, "`in` cannot search null")
        if not b.kinds & (LIST | TEXT | MAPPING | MISSING):
            self.report(
                node,
                f"{told(right[0])} is {words(b)}, and `in` cannot search it",
                "`in` takes a list, text or a mapping",
            )
        elif b.kinds == TEXT and not a.unknown and not a.kinds & TEXT:
            self.report(
                node, f"{told(left[0])} is {words(a)}, but only text can be `in` text", "use `| string`"
            )
        elif b.kinds == LIST and b.items is not None:
            inner = (nodes.Const(None), b.items)
            if (
                a.values is not None
                and b.items.values is not None
                and not a.values & b.items.values
                and a.kinds & b.items.kinds & SCALAR
            ):
                self._impossible(node, left, (right[0], b.items))
            elif (
                not a.unknown
                and not b.items.unknown
                and a.kinds
                and b.items.kinds
                and not a.kinds & b.items.kinds
            ):
                self.report(
                    node, f"{_pair(left, inner)} in the list: it is never found", _conversion(a, b.items)
                )
            elif a.values is not None and b.items.values is not None and isinstance(left[0], nodes.Getattr):
                # A part of the list is possible: the rest may be a mistake, or meant for another release.
                for value in sorted(b.items.values - a.values, key=str):
                    self._impossible(node, left, (nodes.Const(value), of_value(value)), doubt=True)

    def _order(self, node: nodes.Node, left: Side, right: Side) -> None:
        sides = [
            (each, self.present(each, found, "null cannot be compared")) for each, found in (left, right)
        ]
        (_, a), (_, b) = sides
        if a.unknown or b.unknown or not a.kinds or not b.kinds:
            return
        if not a.kinds & b.kinds & (NUMBER | TEXT | LIST):
            message = f"{_pair(left, right)}: they cannot be compared"
            self.report(node, message, _conversion(a, b) or "only numbers, or texts, can be compared")

    def _sign(self, node: nodes.UnaryExpr, facts: Facts) -> Type:
        found = self.present(node.node, self.of(node.node, facts), f"`{node.operator}` takes no null")
        if not found.unknown and found.kinds and not found.kinds & NUMBER:
            return self.report(node, f"{told(node.node)} is {words(found)}, not a number", _to_number(found))
        return NUMBERS

    # --- literals -------------------------------------------------------------------------------------------

    def _constant(self, node: nodes.Const, facts: Facts) -> Type:
        return of_value(node.value)

    def _list(self, node: nodes.List | nodes.Tuple, facts: Facts) -> Type:
        return list_of(union([self.of(item, facts) for item in node.items]) if node.items else None)

    def _mapping(self, node: nodes.Dict, facts: Facts) -> Type:
        fields: dict[str, Type] = {}
        for pair in node.items:
            value = self.of(pair.value, facts)
            if not isinstance(pair.key, nodes.Const) or not isinstance(pair.key.value, str):
                return Type(MAPPING)
            fields[pair.key.value] = value
        return mapping_of(fields)

    def _joined(self, node: nodes.Concat, facts: Facts) -> Type:
        for part in node.nodes:
            self.of(part, facts)
        return TEXTS

    def _range(self, node: nodes.Call, facts: Facts) -> Type:
        for argument in node.args:
            found = self.present(argument, self.of(argument, facts), "`range` takes whole numbers")
            if not found.unknown and found.kinds and not found.kinds & NUMBER:
                self.report(
                    argument,
                    f"{told(argument)} is {words(found)}, but `range` takes whole numbers",
                    _to_number(found),
                )
        return list_of(NUMBERS)


_SUMS: Mapping[str, tuple[tuple[int, int, int], ...]] = {
    "+": ((NUMBER, NUMBER, NUMBER), (TEXT, TEXT, TEXT), (LIST, LIST, LIST)),
    "*": ((NUMBER, NUMBER, NUMBER), (TEXT, NUMBER, TEXT), (NUMBER, TEXT, TEXT), (LIST, NUMBER, LIST)),
}
# Each takes the node that it stands for.
_BY_NODE: Mapping[type[nodes.Node], Callable[[Inference, Any, Facts], Type]] = {
    nodes.Const: Inference._constant,
    nodes.Name: Inference._name,
    nodes.List: Inference._list,
    nodes.Tuple: Inference._list,
    nodes.Dict: Inference._mapping,
    nodes.Call: Inference._range,
    nodes.Concat: Inference._joined,
    nodes.Compare: Inference._compare,
    nodes.Not: Inference._not,
    nodes.Neg: Inference._sign,
    nodes.Pos: Inference._sign,
}


def _falsy(found: Type) -> Type:
    """Return the type of an `and` that stops at its left side."""
    if found.unknown:
        return ANY
    if found.kinds & MAPPING and found.fields:
        found = found.without(MAPPING)
    return found


# --- words -----------------------------------------------------------------------------------------------


def _pair(left: Side, right: Side) -> str:
    (a, found), (b, other) = left, right
    if isinstance(a, nodes.Const):
        (a, found), (b, other) = (b, other), (a, found)
    return f"{told(a)} is {words(found)}, {_named(b)}{words(other)}"


def _named(node: nodes.Node) -> str:
    return "compared with " if isinstance(node, nodes.Const) else f"{told(node)} "


def _guard(node: nodes.Getattr | nodes.Getitem) -> str:
    path = static_path(node.node)
    if path is not None and len(path) == 2 and path[0] in ("nodes", "errors"):
        status = "completed" if path[0] == "nodes" else "failed"
        return f"guard it: `if: \"{{{{ status.{path[1]} == '{status}' }}}}\"`, or add `default(...)`"
    return _HINT_GUARD


def _no_mapping(found: Type, key: str) -> str | None:
    if found.kinds & LIST:
        return f"take one of its items (`| first`, `[0]`) or this field of all: `| map(attribute='{key}')`"
    return "if it is JSON: `| fromjson`" if found.kinds & TEXT and found.values is None else None


def _to_number(found: Type) -> str | None:
    return "make it a number: `| int`" if found.kinds & TEXT else None


def _conversion(a: Type, b: Type) -> str | None:
    kinds = a.kinds | b.kinds
    if kinds & NUMBER and kinds & TEXT:
        return "make it a number (`| int`), or write the other one in quotes"
    if kinds & LIST:
        return "compare its `| length`, or ask with `in`"
    if kinds & BOOLEAN and kinds & TEXT:
        return "true and false are written without quotes"
    return None


def _sum_hint(operator: str, left: Type, right: Type) -> str | None:
    if operator == "+" and (left.kinds | right.kinds) & TEXT:
        return "`~` joins texts with anything; `| int` makes a number"
    return _to_number(either(left, right))
