"""Filters and tests in expressions: their subjects, results and arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from inspect import BoundArguments, Signature
from typing import Protocol

from jinja2 import nodes

from engine.language.diagnostics import suggest
from engine.language.filters import (
    ANYTHING,
    FILTERS,
    NOT_TRIED,
    TESTS,
    WITH_DEFAULT,
    arguments_of,
    kinds_taken,
    refused,
)
from engine.language.matching import BadPattern, compiled
from engine.types.facts import Facts
from engine.types.lattice import (
    ANY,
    FLAG,
    LIST,
    MISSING,
    NULL,
    NUMBER,
    NUMBERS,
    TEXT,
    TEXTS,
    Type,
    either,
    list_of,
    mapping_of,
    words,
)
from engine.types.signatures import GIVES, given_default, items_of
from engine.types.signatures import told as named

_OF_FIELDS = ("join", "sum", "map", "sort", "unique", "min", "max", "selectattr", "rejectattr")


Side = tuple[nodes.Node, Type]
"""One side of a comparison, with its type."""


class Expressions(Protocol):
    """Source of the type of any expression, such as an argument of a call."""

    def of(self, node: nodes.Node, facts: Facts = ..., *, excused: bool = ...) -> Type:
        """The type of an expression where these facts hold."""

    def present(self, node: nodes.Node, found: Type, use: str) -> Type:
        """Return the type of a value that must not be null where it is used."""

    def compared(self, node: nodes.Node, operator: str, left: Side, right: Side) -> None:
        """Report the faults of a comparison of two values."""

    def report(self, node: nodes.Node, message: str, hint: str | None = ..., name: str | None = ...) -> Type:
        """Report a fault in a part of the expression; its type is then unknown."""


class Calls:
    """Filters and tests, for an inference."""

    def __init__(self, inference: Expressions) -> None:
        self._inference = inference

    def filtered(self, node: nodes.Filter, facts: Facts) -> Type:
        """The type that a filter gives."""
        if node.node is None:
            return ANY
        if node.name == "default":
            assert node.node is not None
            given_type = self._inference.of(node.node, facts, excused=True)
            given = [
                *node.args,
                *(keyword.value for keyword in node.kwargs if keyword.key == "default_value"),
            ]
            other = self._inference.of(given[0], facts) if given else TEXTS
            flag = node.args[1] if len(node.args) > 1 else None
            flag = next((each.value for each in node.kwargs if each.key == "boolean"), flag)
            also_empty = isinstance(flag, nodes.Const) and flag.value is True
            return given_default(given_type, other, also_empty=also_empty)
        found = self._inference.of(node.node, facts)
        arguments = [self._inference.of(argument, facts) for argument in node.args]
        named = {str(keyword.key): self._inference.of(keyword.value, facts) for keyword in node.kwargs}
        return self._applied(node, found, arguments, named)

    def _applied(
        self,
        node: nodes.Filter,
        found: Type,
        arguments: list[Type],
        keywords: Mapping[str, Type] | None = None,
    ) -> Type:
        """Return the result type of a filter for a value of this type."""
        if not self._fits(node, arguments, keywords or {}):
            return ANY
        gives = GIVES[node.name]
        defaulted = node.name in WITH_DEFAULT and bool(arguments)
        found = self._taken(node, found, ANYTHING if defaulted else FILTERS[node.name][1])
        if found.unknown:
            return gives(ANY)
        return self._special(node, found, arguments) or gives(found)

    def tested(self, node: nodes.Test, facts: Facts) -> Type:
        """Return the boolean type, after checking the kind of the test's subject."""
        excused = node.name in ("defined", "undefined")
        found = self._inference.of(node.node, facts, excused=excused)
        self._passes(node, found, [self._inference.of(argument, facts) for argument in node.args])
        return FLAG

    def _passes(self, node: nodes.Test, found: Type, arguments: list[Type]) -> None:
        """Check that a test takes a value of this type, and can compare it with its argument."""
        compares = _COMPARES.get(node.name)
        if not self._fits(node, arguments, {}):
            return
        taken = self._taken(node, found, TESTS[node.name][1])
        if compares is not None and arguments:
            self._inference.compared(node, compares, (node.node, taken), (node.args[0], arguments[0]))

    def _fits(
        self, node: nodes.Filter | nodes.Test, arguments: list[Type], keywords: Mapping[str, Type]
    ) -> bool:
        """True if it can be called with these arguments, by number, names, kinds and values."""
        kind, known = ("filter", FILTERS) if isinstance(node, nodes.Filter) else ("test", TESTS)
        function, _, told = known[node.name]
        signature = arguments_of(function)
        written = {str(keyword.key): keyword.value for keyword in node.kwargs}
        try:
            types, values = signature.bind(*arguments, **keywords), signature.bind(*node.args, **written)
        except TypeError as error:
            self._inference.report(
                node, f"the {kind} `{node.name}` {_misbound(str(error), signature)}", told, node.name
            )
            return False
        if not signature.parameters and not node.args:
            return True
        wrong = _wrong_kind(types) or _wrong_value(node, values)
        if wrong is not None:
            self._inference.report(node, f"the {kind} `{node.name}`: {wrong}", told, node.name)
        return wrong is None

    def _taken(self, node: nodes.Filter | nodes.Test, found: Type, takes: int) -> Type:
        """Return the type of the subject, restricted to the accepted kinds."""
        subject, kind = node.node, "filter" if isinstance(node, nodes.Filter) else "test"
        assert subject is not None
        if not takes & NULL:
            found = self._inference.present(subject, found, f"the {kind} `{node.name}` takes no null")
        if found.unknown or not found.kinds & ~MISSING or found.kinds & takes:
            return found
        told = words(Type(takes & ~NULL))
        message = f"{named(subject)} is {words(found)}, and the {kind} `{node.name}` takes {told}"
        return self._inference.report(node, message, _remedy(found, takes), node.name)

    def _special(self, node: nodes.Filter, found: Type, arguments: list[Type]) -> Type | None:
        """Return a result type that depends on more than the kind of the subject, or None."""
        attribute = _attribute(node)
        item = items_of(found)
        if attribute is not None and node.name in _OF_FIELDS:
            item = self._field_of_items(node, item, attribute)
            if node.name == "map":
                return list_of(item)
        whole = not item.unknown and item.kinds & ~MISSING
        if node.name == "sum" and attribute is None and whole and not item.kinds & NUMBER:
            message = f"the items are {words(item)}, but `sum` takes numbers"
            self._inference.report(node, message, "make them numbers first: `| map('int') | sum`", "sum")
        if node.name == "project":
            fields: dict[str, Type] = {}
            for keyword in node.kwargs:
                path = keyword.value.value if isinstance(keyword.value, nodes.Const) else None
                known = self._field_of_items(node, item, path) if isinstance(path, str) else ANY
                fields[str(keyword.key)] = known.without(MISSING).or_null("an item may have no value there")
            return list_of(mapping_of(fields))
        if node.name in ("match", "replace"):
            self._pattern(node)
        if node.name == "map" and attribute is None:
            # A filter by its name: `map('int')`.
            named = self._by_name(node, 0, FILTERS, "filter")
            if not node.args:
                return self._inference.report(
                    node, "the filter `map` needs a field or a filter", FILTERS["map"][2], "map"
                )
            if named is None or named == "default":
                return None
            each = nodes.Filter(_first(node), named, node.args[1:], node.kwargs, None, None)
            return list_of(self._applied(each, item, arguments[1:]))
        if node.name in _CHOOSING:
            self._chosen(node, item, arguments)
        if node.name in ("float", "int") and arguments:
            return either(NUMBERS, arguments[0])
        return None

    def _field_of_items(self, node: nodes.Filter, item: Type, attribute: str) -> Type:
        lenient = node.name == "project" or any(each.key == "default" for each in node.kwargs)
        for name in attribute.split("."):
            if item.unknown or name.isdigit():
                return ANY
            if item.nullable and not lenient:
                message = f"the path `{attribute}` may end before `{name}` for an item: a value may be null"
                return self._inference.report(node, message, _HINT_ITEMS, attribute)
            item = item.without(NULL)
            if item.fields is None:
                if item.kinds and not item.kinds & (1 << 5):
                    message = f"the items are {words(item)} and have no `{name}`"
                    return self._inference.report(node, message, None, attribute)
                return item.rest or ANY
            if name not in item.fields and item.rest is None:
                known = f"they have {', '.join(sorted(item.fields))}"
                hint = suggest(name, item.fields, known)
                return self._inference.report(node, f"the items have no field `{name}`", hint, attribute)
            item = item.fields.get(name, item.rest or ANY)
            if item.kinds & MISSING and not item.unknown and not lenient:
                return self._inference.report(node, f"an item may have no `{name}`", _HINT_ITEMS, attribute)
        return item

    def _pattern(self, node: nodes.Filter) -> None:
        """A pattern that is written out is read while the flow is loaded."""
        flag = next((each.value for each in node.kwargs if each.key == "regex"), None)
        regex = node.name == "match" or (isinstance(flag, nodes.Const) and flag.value is True)
        if not regex or not node.args or not isinstance(node.args[0], nodes.Const):
            return
        try:
            compiled(str(node.args[0].value))
        except BadPattern as error:
            self._inference.report(
                node, str(error), "the syntax is RE2's: no look-around, no references back", node.name
            )

    def _chosen(self, node: nodes.Filter, item: Type, arguments: list[Type]) -> None:
        """`select('gt', 3)`, `selectattr('age', 'gt', 3)`: a test of each item."""
        at = _CHOOSING[node.name]
        named = self._by_name(node, at, TESTS, "test")
        if named is None:
            return
        attribute = _attribute(node)
        subject = _first(node) if attribute is None else nodes.Getattr(_first(node), attribute, "load")
        each = nodes.Test(subject, named, node.args[at + 1 :], [], None, None)
        self._passes(each, item, arguments[at + 1 :])

    def _by_name(self, node: nodes.Filter, at: int, known: Iterable[str], kind: str) -> str | None:
        """Return the filter or test that an argument names; None if it is unknown yet, or does not exist."""
        given = node.args[at] if len(node.args) > at else None
        named = given.value if isinstance(given, nodes.Const) else None
        if not isinstance(named, str) or named in known:
            return named if isinstance(named, str) else None
        otherwise = (
            f"for a field of the items: `{node.name}(attribute='{named}')`" if kind == "filter" else ""
        )
        self._inference.report(
            node, f"unknown {kind} `{named}`", suggest(named, known, otherwise) or None, named
        )
        return None


def _misbound(error: str, signature: Signature) -> str:
    """Return the message for a wrong number or name of arguments."""
    given = signature.parameters.values()
    most, name = (
        sum(each.kind < each.VAR_KEYWORD for each in given),
        next(iter(re.findall("'(.*)'", error)), ""),
    )
    if given and not most:
        return "takes only named arguments"
    if "missing" in error:
        return f"needs `{name}`"
    if "unexpected" in error and most:
        return f"has no argument `{name}`: it has {', '.join(f'`{each}`' for each in signature.parameters)}"
    return "takes no arguments" if not most else f"takes at most {most} argument{'s' if most > 1 else ''}"


def _wrong_kind(types: BoundArguments) -> str | None:
    """The first argument of a kind that is not taken."""
    for name, given in types.arguments.items():
        parameter = types.signature.parameters[name]
        found = {name: given} if isinstance(given, Type) else given if isinstance(given, dict) else {}
        takes = kinds_taken(parameter)
        for each, kind in found.items():
            if not kind.unknown and kind.kinds and not kind.kinds & takes:
                return f"`{each}` is {words(kind)}, and takes {words(Type(takes))}"
    return None


def _wrong_value(node: nodes.Filter | nodes.Test, values: BoundArguments) -> str | None:
    """Return why the arguments are refused, if all of them are constants; otherwise None."""
    given = [*node.args, *(keyword.value for keyword in node.kwargs)]
    if not all(isinstance(each, nodes.Const) for each in given):
        return None
    function = (FILTERS if isinstance(node, nodes.Filter) else TESTS)[node.name][0]
    values = values.signature.bind(
        *(each.as_const() for each in values.args),
        **{key: each.as_const() for key, each in values.kwargs.items()},
    )
    subject = node.node.as_const() if isinstance(node.node, nodes.Const) else NOT_TRIED
    return refused(node.name, function, subject, values)


_HINT_ITEMS = "give it a default, `map(attribute='...', default='')`, or use `project`"
_CHOOSING = {"select": 0, "reject": 0, "selectattr": 1, "rejectattr": 1}
"""Filters that test each item, and the place of the test among their arguments."""
_COMPARES = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "lteq", "gt": "gt", "ge": "gteq", "in": "in"}
"""Tests that are comparisons, by Jinja's names of these."""


def _first(node: nodes.Filter) -> nodes.Expr:
    """Return the expression for an item of a filter's subject."""
    return nodes.Getitem(node.node, nodes.Const(0), "load")


def _attribute(node: nodes.Filter) -> str | None:
    """The name of the field that a filter takes of each item."""
    given: nodes.Node | None = next((each.value for each in node.kwargs if each.key == "attribute"), None)
    if given is None and node.name in ("selectattr", "rejectattr") and node.args:
        given = node.args[0]
    return given.value if isinstance(given, nodes.Const) and isinstance(given.value, str) else None


def _remedy(found: Type, takes: int) -> str | None:
    if found.kinds & TEXT and takes & LIST:
        return "`| lines` or `| split(',')` splits text into a list"
    if found.kinds & TEXT and takes & NUMBER:
        return "make it a number: `| int`"
    if takes & TEXT:
        return (
            "`| join(', ')` joins a list into text"
            if found.kinds & LIST
            else "`| string` converts it to text"
        )
    return None
