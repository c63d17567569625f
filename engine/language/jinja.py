"""One `{{ expression }}`: parsed by Jinja2, checked against a closed list, compiled once, evaluated often.

`engine.language.expressions` defines what it may do; this is the implementation. A plain path (`nodes.gate.decision`)
is followed directly, which costs a microsecond; everything else is code that Jinja's sandbox generates.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, Undefined, UndefinedError, nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing

from engine.language.codec import Json
from engine.language.diagnostics import kind_of, nearest, shape_of, suggest
from engine.language.elsewhere import FUNCTIONS, ours
from engine.language.filters import (
    ANYTHING,
    FILTERS,
    TESTS,
    WITH_DEFAULT,
    bounded_range,
    guarded,
    in_order,
    power,
    remainder,
    strict,
    times,
)
from engine.language.template import NO_PART, BadExpression, Expression, Names, Reference, Run, failed
from engine.language.value_types import BadValue, as_text, check_size, fail_undefined, plain

MAX_SOURCE = 8192
"""The most characters of one expression."""

MAX_DEPTH = 60
"""Most levels of nesting in an expression."""


class Missing(StrictUndefined):
    """Undefined value, with messages in the terms of a flow."""

    __slots__ = ()

    @property
    def _undefined_message(self) -> str:
        name: Any = self._undefined_name
        owner = self._undefined_obj
        if self._undefined_hint:
            return "the list is empty" if "was empty" in self._undefined_hint else self._undefined_hint
        if owner is missing or isinstance(owner, Undefined):
            return f"`{name}` is undefined"
        what = f"item {name}" if type(name) is int else f"`{as_text(name)}`"
        return f"{shape_of(owner)} has no {what}"


_HOP, _COMPARE, _OR_FALSE, _NOT_NULL = "~hop", "~compare", "~or_false", "~not_null"
"""Filters of ours that no expression can name."""


def _or_false(value: Any) -> Any:
    """Treat null on the left of an `and` as false, in a condition."""
    return False if value is None else value


def _not_null(value: Any) -> Any:
    """Refuse null in an exact text that joins values."""
    if value is None or (isinstance(value, list | tuple) and None in value):
        raise BadValue(NO_PART)
    return value


def joined(node: nodes.Node) -> list[tuple[str, list[nodes.Expr]]]:
    """The parts of an expression that become parts of a longer text, by the field of the node that they are in."""
    match node:
        case nodes.Concat():
            return [("nodes", node.nodes)]
        case nodes.Filter(name="format"):
            return [("args", node.args)]
        case nodes.Filter(name="join" | "string") if node.node is not None:
            return [("node", [node.node])]
    return []


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with values that have items and no attributes."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})
    intercepted_unops = frozenset({"+", "-"})

    def __init__(self) -> None:
        # Not optimized: folding constants would evaluate parts of a flow while it is only being checked.
        super().__init__(undefined=Missing, optimized=False, cache_size=0)
        self.filters = {
            name: function
            if name == "default"
            else guarded(
                f"the filter `{name}`", strict(function), ANYTHING if name in WITH_DEFAULT else takes
            )
            for name, (function, takes, _) in FILTERS.items()
        }
        self.filters |= {_HOP: self._hop, _COMPARE: in_order, _OR_FALSE: _or_false, _NOT_NULL: _not_null}
        self.tests = {
            name: guarded(f"the test `{name}`", function, takes)
            for name, (function, takes, _) in TESTS.items()
        }
        self.globals = {"range": guarded("`range`", bounded_range), "null": None}
        self.binop_table.update({"*": times, "**": power, "%": remainder})
        for table in (self.binop_table, self.unop_table):
            table.update({sign: guarded(f"`{sign}`", function) for sign, function in table.items()})

    def getattr(self, obj: Any, attribute: str) -> Any:
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        kind = type(argument)
        if kind is str:
            if isinstance(obj, dict | Mapping) and argument in obj:
                return obj[argument]
        elif kind is int and isinstance(obj, list | tuple | str) and -len(obj) <= argument < len(obj):
            return obj[argument]
        if isinstance(obj, Undefined):
            fail_undefined(obj)
        return self.undefined(obj=obj, name=argument)

    def _hop(self, obj: Any, argument: Any) -> Any:
        """Return an item, or the undefined value itself: the way to a value that has a `default`."""
        return obj if isinstance(obj, Undefined) else self.getitem(obj, argument)


_ENVIRONMENT = _Environment()
_RESULT = "the_result"
_CONSTANTS = frozenset({"null"})
_ALLOWED: tuple[type[nodes.Node], ...] = (
    nodes.Const, nodes.Name, nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Keyword, nodes.CondExpr,
    nodes.Filter, nodes.Test, nodes.Call, nodes.Getitem, nodes.Getattr, nodes.Slice, nodes.Concat, nodes.Compare,
    nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Neg, nodes.Pos, nodes.Add, nodes.Sub, nodes.Mul,
    nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow,
)  # fmt: skip


@functools.lru_cache(maxsize=4096)
def parse_expression(source: str) -> nodes.Expr:
    """Parse an expression and check it against the closed list. The tree must not be changed. Raises `BadExpression`."""
    tree = _parse(source)
    _check_tree(tree)
    return tree


@functools.lru_cache(maxsize=4096)
def compile_expression(source: str, condition: bool = False, exact: bool = False) -> Expression:
    """Compile one expression; in a `condition` null on the left of an `and` is false; in an `exact` text joining null
    is an error. Raises `BadExpression`."""
    tree = parse_expression(source)
    found = tuple(_collect(tree, optional=False))
    path = static_path(tree)
    if path is not None and len(path) == 2 and path[0] == "secrets" and _is_secret_name(path[1]):
        name = path[1]
        return Expression(source, lambda context: {"$secret": name}, found, name)
    if path is not None and path[0] not in _CONSTANTS:
        return Expression(source, _lookup(path, source), found, None)
    return Expression(source, _computed(source, found, condition, exact), found, None)


def _is_secret_name(name: str) -> bool:
    return name.isascii() and name.replace("_", "a").isalnum() and name[0].isalpha()


def _parse(source: str, *, hints: bool = True) -> nodes.Expr:
    if not source.strip():
        raise BadExpression("the {{ }} is empty")
    if len(source) > MAX_SOURCE:
        raise BadExpression(f"the expression is longer than {MAX_SOURCE} characters")
    if source.startswith(("-", "+")) or source.endswith(("-", "+")):
        raise BadExpression("`{{-` and `-}}` are not supported", "write `{{ ` and ` }}` with a space")
    try:
        parser = Parser(_ENVIRONMENT, source, state="variable")
        tree = parser.parse_expression()
        if not parser.stream.eos:
            next_one = parser.stream.current
            shown = next_one.type if next_one.value in (None, "") else next_one.value
            said = f"unexpected `{shown}` after the expression"
            raise BadExpression(said, _syntax_hint(source) if hints else None)
    except TemplateSyntaxError as error:
        hint = _syntax_hint(source) if hints else None
        raise BadExpression(f"cannot read the expression: {error.message}", hint) from None
    except RecursionError:
        raise BadExpression(f"the expression nests deeper than {MAX_DEPTH}") from None
    except (ValueError, MemoryError, OverflowError) as error:
        raise BadExpression(f"cannot read the expression: {error}") from None
    if not isinstance(tree, nodes.Expr):
        raise BadExpression("cannot read the expression")
    tree.set_environment(_ENVIRONMENT)
    return tree


_QUOTED = re.compile(r"""('(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")""", re.DOTALL)
_SIGNS: tuple[tuple[str, str], ...] = (
    (r"[“”„‘’‚]([^“”„‘’‚]*)[“”‘’]", r"'\1'"),
    (r"\$\{?(?=(?:inputs|nodes|status|session)\b)([\w.]+)\}?", r"\1"),
    (r"\bis not (?:null|nil|NULL|Null)\b", "is not none"),
    (r"^(.+?)\s+is not empty$", r"\1 | length > 0"),
    (r"^(.+?)\s+is empty$", r"\1 | length == 0"),
    (r"^(.+?)\s+(?:not\s+contains?|excludes)\s+(\S+)$", r"\2 not in \1"),
    (r"^(.+?)\s+(?:contains?|includes|has)\s+(\S+)$", r"\2 in \1"),
    (r"≥|=>", ">="),
    (r"≤|=<", "<="),
    (r"≠", "!="),
    (r"\?\.", "."),
    (r"\s*&&\s*", " and "),
    (r"\s*\|\|\s*", " or "),
    (r"!==", "!="),
    (r"===", "=="),
    (r"<>", "!="),
    (r"(?<![=!<>~])=(?![=~])", "=="),
    (r"!(?!=)", "not "),
    (r"\bAND\b", "and"),
    (r"\bOR\b", "or"),
    (r"\bNOT\b", "not"),
    (r"\b(?:null|nil|NULL|undefined)\b", "none"),
    (r"\s-?eq\s", " == "),
    (r"\s-?ne\s", " != "),
    (r"\s-?gt\s", " > "),
    (r"\s-?lt\s", " < "),
    (r"\s-?ge\s", " >= "),
    (r"\s-?le\s", " <= "),
    (r"^(.+?)\s*=~\s*(.+)$", r"\1 is matching(\2)"),
    (r"^(.+?)\s*\?\s*(.+?)\s*:\s*(.+)$", r"\2 if \1 else \3"),
)
"""Signs of other languages, each with its form here."""


def mended(source: str) -> str | None:
    """Return the expression with signs of other languages replaced by ours; None if it is still invalid."""
    quoted: list[str] = []

    def away(found: re.Match[str]) -> str:
        quoted.append(found[0])
        return f"\0{len(quoted) - 1}\0"

    text = _QUOTED.sub(away, source.strip())
    for pattern, sign in _SIGNS:
        text = re.sub(pattern, sign, text)
    text = re.sub(r"\0(\d+)\0", lambda found: quoted[int(found[1])], text)
    try:
        _parse(text, hints=False)
    except BadExpression:
        return None
    return text


def _syntax_hint(source: str) -> str | None:
    better = mended(source)
    if better is not None:
        return f"write `{better}`"
    foreign = source.lstrip().startswith((".", "$", "#", "/"))
    return "for literal braces write {{ '{{' }} and {{ '}}' }}" if foreign else None


def _check_tree(tree: nodes.Node) -> None:
    """Refuse deep nesting, and syntax outside the closed list."""
    level: list[nodes.Node] = [tree]
    for _ in range(MAX_DEPTH):
        if not level:
            return
        for node in level:
            if not isinstance(node, _ALLOWED):
                raise BadExpression(f"an expression cannot have a {type(node).__name__.lower()}")
            if isinstance(node, nodes.Filter | nodes.Test):
                kind, known = ("filter", FILTERS) if isinstance(node, nodes.Filter) else ("test", TESTS)
                if node.name not in known:
                    hint = FUNCTIONS.get(node.name.lower()) or suggest(node.name, known, "")
                    raise BadExpression(
                        f"unknown {kind} `{node.name}`", hint or "the flow reference lists them"
                    )
            if isinstance(node, nodes.Call):
                _check_call(node)
            if getattr(node, "dyn_args", None) is not None or getattr(node, "dyn_kwargs", None) is not None:
                raise BadExpression("`*` and `**` before an argument are not supported")
            if isinstance(node, nodes.Const) and isinstance(node.value, str):
                try:
                    node.value.encode()
                except UnicodeEncodeError:
                    raise BadExpression("a text in the expression is not Unicode") from None
            if isinstance(node, nodes.Name) and (
                node.name.startswith("_") or node.name in ("self", "super", "caller")
            ):
                raise BadExpression(f"unknown name `{node.name}`")
        level = [child for node in level for child in node.iter_child_nodes()]
    raise BadExpression(f"the expression nests deeper than {MAX_DEPTH}")


def _check_call(node: nodes.Call) -> None:
    called = node.node
    if isinstance(called, nodes.Getattr):
        close = ours(called.attr, FILTERS) or nearest(called.attr, FILTERS)
        hint = f"use the filter: `... | {close}`" if close else "use a filter; the flow reference lists them"
        hint = FUNCTIONS.get(called.attr.lower().replace("_", ""), hint)
        raise BadExpression(f"values have no methods, so `.{called.attr}()` cannot be called", hint)
    if not isinstance(called, nodes.Name) or called.name != "range":
        name = called.name if isinstance(called, nodes.Name) else ""
        close = ours(name, FILTERS)
        hint = f"use the filter: `... | {close}`" if close else "the only function is range(...)"
        raise BadExpression(
            f"`{name}` cannot be called" if name else "this cannot be called",
            FUNCTIONS.get(name.lower().replace("_", ""), hint),
        )


def static_path(node: nodes.Node | None) -> Names | None:
    """`("nodes", "gate", "by")` for a name with constant text subscripts, else None."""
    if isinstance(node, nodes.Name):
        return (node.name,)
    if isinstance(node, nodes.Getattr):
        outer = static_path(node.node)
        return None if outer is None else (*outer, node.attr)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and type(node.arg.value) is str:
        outer = static_path(node.node)
        return None if outer is None else (*outer, node.arg.value)
    return None


def _collect(node: nodes.Node, *, optional: bool) -> Iterator[Reference]:
    """The names that an expression uses, each with as many constant fields as are behind it."""
    path = static_path(node)
    if path is not None:
        if path[0] not in _CONSTANTS:
            yield Reference(path, optional)
        return
    if isinstance(node, nodes.Getitem):
        inner = static_path(node.node)
        if inner is not None:
            yield Reference(inner, optional)
            yield from _collect(node.arg, optional=False)
            return
    if isinstance(node, nodes.Call):
        arguments: list[nodes.Node] = [*node.args, *node.kwargs]
        for argument in arguments:
            yield from _collect(argument, optional=False)
        return
    excused = isinstance(node, nodes.Filter | nodes.Test) and node.name in ("default", "defined", "undefined")
    subject = node.node if isinstance(node, nodes.Filter | nodes.Test) else None
    for child in node.iter_child_nodes():
        yield from _collect(child, optional=excused and child is subject)


# --- evaluating ------------------------------------------------------------------------------------------


def _lookup(path: Names, source: str) -> Run:
    """Follow a plain path, the most common expression, without the cost of a Jinja context."""
    reference = (Reference(path),)

    def run(context: Mapping[str, Any]) -> Json:
        value: Any = context
        for key in path:
            if isinstance(value, dict | Mapping) and key in value:
                value = value[key]
            else:
                raise failed(source, _undefined(reference, context) or f"`{key}` is undefined")
        # A value from the context, checked for its size.
        try:
            if type(value) in (str, dict, list):
                try:
                    return check_size(value)
                except TypeError:
                    return plain(value)
            return plain(value)
        except (ValueError, RecursionError) as error:
            raise failed(source, str(error)) from error

    return run


def _computed(source: str, found: tuple[Reference, ...], condition: bool, exact: bool) -> Run:
    """Evaluate an expression that is more than a path, by code that Jinja generates on first use (a millisecond each)."""
    template: Template | None = None

    def run(context: Mapping[str, Any]) -> Json:
        nonlocal template
        try:
            if template is None:
                tree = _parse(source)
                for each in [tree, *tree.find_all(nodes.Expr)] if exact else ():
                    for name, value in joined(each):
                        made = [_filter(part, _NOT_NULL) for part in value]
                        setattr(each, name, made if isinstance(getattr(each, name), list) else made[0])
                tree = _rewritten(tree)
                if condition:
                    tree = _nulls_false(tree)
                body: list[nodes.Node] = [nodes.Assign(nodes.Name(_RESULT, "store"), tree, lineno=1)]
                template = _ENVIRONMENT.from_string(nodes.Template(body, lineno=1))
            scope = template.new_context(dict(context))
            for _ in template.root_render_func(scope):
                pass
            return check_size(plain(scope.vars[_RESULT]))
        except UndefinedError as error:
            raise failed(source, _undefined(found, context) or str(error)) from error
        except (BadValue, TemplateError) as error:
            raise failed(source, str(error)) from error
        except Exception as error:
            # Python's own messages mean nothing to the author of a flow.
            raise failed(source, f"it cannot be evaluated ({type(error).__name__})") from error

    return run


def _rewritten(node: nodes.Expr, excused: bool = False) -> nodes.Expr:
    """Replace operations whose errors Jinja would leave to Python by our own. `excused`: it has a default."""
    guards = isinstance(node, nodes.Filter | nodes.Test) and node.name in ("default", "defined", "undefined")
    for child in node.iter_child_nodes():
        if isinstance(child, nodes.Expr | nodes.Helper):
            chain = isinstance(node, nodes.Getattr | nodes.Getitem) and child is node.node and excused
            subject = guards and child is getattr(node, "node", None)
            replaced = _rewritten(child, excused=chain or subject)  # type: ignore[arg-type]  # helpers hold expressions
            if replaced is not child:
                for name, value in node.iter_fields():
                    if value is child:
                        setattr(node, name, replaced)
                    elif isinstance(value, list):
                        setattr(node, name, [replaced if item is child else item for item in value])
    match node:
        case nodes.Concat():
            # Values other than text appear as JSON here too.
            return _filter(nodes.List(node.nodes), "join", nodes.Const(""))
        case nodes.Compare():
            # `a == b`, `a < b` and `a in b` by a filter, which has a message for values that have no order.
            parts: list[nodes.Expr] = []
            left = node.expr
            for operand in node.ops:
                parts.append(_filter(left, _COMPARE, nodes.Const(operand.op), operand.expr))
                left = operand.expr
            return functools.reduce(nodes.And, parts)
        case nodes.Getattr() if excused:
            return _filter(node.node, _HOP, nodes.Const(node.attr))
        case nodes.Getitem() if excused and not isinstance(node.arg, nodes.Slice):
            return _filter(node.node, _HOP, node.arg)
    return node


def _nulls_false(node: nodes.Expr) -> nodes.Expr:
    """A condition in which null on the left of an `and` is false."""
    match node:
        case nodes.And():
            left = _filter(_nulls_false(node.left), _OR_FALSE)
            return nodes.And(left, _nulls_false(node.right))
        case nodes.Or():
            return nodes.Or(_nulls_false(node.left), _nulls_false(node.right))
    return node


def _filter(subject: nodes.Expr, name: str, *arguments: nodes.Expr) -> nodes.Filter:
    made = nodes.Filter(subject, name, list(arguments), [], None, None, lineno=1)
    made.set_environment(_ENVIRONMENT)
    return made


def _undefined(found: Sequence[Reference], context: Mapping[str, Any]) -> str | None:
    """Name the missing reference, with a suggestion; None if all exist."""
    for reference in found:
        if reference.optional:
            continue
        value: Any = context
        for index, key in enumerate(reference.path):
            if not isinstance(value, Mapping) or key not in value:
                parent = reference.path[:index]
                name = ".".join(parent)
                if value is None:
                    reason = (
                        " (the node was skipped or failed)"
                        if parent[:1] == ("nodes",) and len(parent) == 2
                        else ""
                    )
                    return f"`{name}` is null{reason} and has no `{key}`; guard it with `if` or `default`"
                if not isinstance(value, Mapping):
                    return f"`{name}` is {kind_of(value)} and has no `{key}`"
                hint = suggest(key, value)
                return f"`{'.'.join((*parent, key))}` is undefined" + (f"; {hint}" if hint else "")
            value = value[key]
    return None
