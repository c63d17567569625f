"""`{{ }}` expressions: Jinja2's immutable sandbox over JSON values, and nothing else of Jinja.

Theory
------
A text is literal parts and `{{ expression }}` parts. A text that is one expression (white space around it
aside) gives the value of that expression with its type; in mixed text whatever is no text appears as JSON.
There are no statements (`{% %}`) and no comments, so `${#list[@]}` or `{%` in a text is just text.

* Attribute access is item access: `nodes.a.values` is the field `values`. Values have no methods.
* One pass: what an expression gives is data for ever, also when it contains `{{`.
* An undefined name is an error, except under `default` and `is defined`.
* The only function is `range`; filters and tests are those of `engine.filters`.
* Nothing is evaluated while a flow is loaded: constants are not folded.

Bounds, for slips and not as a wall (authors of flows are trusted, data is not): an expression has at most
`MAX_SOURCE` characters and nests `MAX_DEPTH` deep, its result is at most 1 MiB, and whatever could multiply
(`*`, `**`, `range`, `replace`, `join`, `format` widths, `map`) is refused before it builds more than that.

Secrets
-------
`{{ secrets.NAME }}` is allowed where the caller says so (`secrets=True`), and gives a reference and never a
value: `{"$secret": "NAME"}`, or `{"$secret_text": ["Bearer ", {"$secret": "NAME"}]}` in mixed text. In such a
place data that has a key `$secret` or `$secret_text` is refused, so no reply can pose as a reference; in all
other places nobody ever looks for references. `engine.nodes.specs` resolves them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from jinja2 import StrictUndefined, Undefined, UndefinedError, nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.codec import Json
from engine.errors import ExpressionError
from engine.expression_text import BadExpression, Part, Segment, is_marker_key, split_text, statement_offset
from engine.faults import kind_of, nearest, suggest
from engine.filters import (
    FILTERS,
    TESTS,
    as_text,
    bounded_range,
    check_size,
    fail_undefined,
    plain,
    power,
    remainder,
    times,
)

MAX_SOURCE = 8192
"""The most characters of one expression."""

MAX_DEPTH = 60
"""How deep an expression may nest."""

Names: TypeAlias = tuple[str, ...]
Run: TypeAlias = Callable[[Mapping[str, Any]], Json]


class Reference(NamedTuple):
    """A name that an expression uses, with the fields behind it: `nodes.gate.decision`.

    `computed` says that a subscript which is no constant follows, `optional` that it stands under `default` or
    `is defined` and may be missing.
    """

    path: Names
    computed: bool = False
    optional: bool = False


class Compiled:
    """A value with its expressions ready to evaluate. `raw` is what it was made from.

    `names` are the paths that its expressions use, `secrets` the names of the secrets it refers to.
    """

    __slots__ = ("_run", "names", "raw", "secrets")

    def __init__(self, raw: Json, run: Run | None, names: frozenset[Names], secrets: frozenset[str]) -> None:
        self.raw, self._run, self.names, self.secrets = raw, run, names, secrets

    @property
    def constant(self) -> bool:
        """Whether it has no expressions, so that `evaluate` gives `raw` itself."""
        return self._run is None

    def evaluate(self, context: Mapping[str, Any]) -> Json:
        """The value with every expression replaced by its result. Raises `ExpressionError`."""
        return self.raw if self._run is None else self._run(context)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compiled) and (self.raw, self.secrets) == (other.raw, other.secrets)

    def __hash__(self) -> int:
        return hash((self.names, self.secrets))

    def __repr__(self) -> str:
        return f"Compiled({self.raw!r})"


# --- compiling -------------------------------------------------------------------------------------------


def compile_value(raw: Json, *, secrets: bool = False) -> Compiled:
    """Compiles every expression in a JSON value. Raises `BadExpression` at the first that is wrong."""
    if type(raw) is str:
        return _compile_text(raw, secrets) if "{{" in raw or "{%" in raw else _constant(raw)
    if isinstance(raw, dict):
        return _compile_mapping({key: compile_value(item, secrets=secrets) for key, item in raw.items()}, raw)
    if isinstance(raw, list):
        return _compile_list([compile_value(item, secrets=secrets) for item in raw], raw)
    return _constant(raw)


def compile_config(
    raw: Mapping[str, Json], secret_fields: frozenset[str], verbatim: frozenset[str]
) -> Compiled:
    """Compiles the `with` of a node. Secrets may stand in `secret_fields`; `verbatim` fields have no expressions.

    Raises `BadExpression`.
    """
    parts = {
        key: _constant(item) if key in verbatim else compile_value(item, secrets=key in secret_fields)
        for key, item in raw.items()
    }
    return _compile_mapping(parts, dict(raw))


def compile_condition(raw: Json) -> Compiled:
    """Compiles an `if`: one expression, or true or false. Raises `BadExpression`."""
    if isinstance(raw, bool):
        return _constant(raw)
    if not isinstance(raw, str):
        raise BadExpression(f"expected a condition in {{{{ }}}}, not {kind_of(raw)}")
    parts = split_text(raw)
    if not any(isinstance(part, Segment) for part in parts):
        raise BadExpression("a condition stands in {{ }}", f'write "{{{{ {raw.strip()[:60]} }}}}"')
    if _single(parts) is None:
        raise BadExpression("a condition is one {{ }} with no text around it")
    return compile_value(raw)


def evaluate_condition(compiled: Compiled, context: Mapping[str, Any], where: str = "") -> bool:
    """The condition's value. Raises `ExpressionError`, beginning with `where`, when it fails or is no boolean."""
    try:
        value = compiled.evaluate(context)
    except ExpressionError as error:
        raise ExpressionError(f"{where}: {error}" if where else str(error)) from error
    if value is True or value is False:
        return value
    text = f"the condition `{_trimmed(compiled.raw)}` must be true or false, but gave {kind_of(value)}"
    raise ExpressionError(f"{where}: {text}" if where else text)


def references(text: str) -> Iterator[tuple[Segment, Reference]]:
    """Every name in the expressions of a text that compiles, with the part of the text that it stands in."""
    for part in split_text(text):
        if isinstance(part, Segment):
            for reference in _expression(part.source).references:
                yield part, reference


def _constant(raw: Json) -> Compiled:
    return Compiled(raw, None, frozenset(), frozenset())


def _compile_mapping(parts: dict[str, Compiled], raw: Json) -> Compiled:
    changing = [(key, part.evaluate) for key, part in parts.items() if not part.constant]
    if not changing:
        return Compiled(raw, None, frozenset(), _secrets_of(parts.values()))

    def run(context: Mapping[str, Any]) -> Json:
        result = dict(raw)
        for key, evaluate in changing:
            result[key] = evaluate(context)
        return result

    return Compiled(raw, run, _names_of(parts.values()), _secrets_of(parts.values()))


def _compile_list(parts: list[Compiled], raw: Json) -> Compiled:
    if all(part.constant for part in parts):
        return _constant(raw)
    evaluators = [part.evaluate for part in parts]

    def run(context: Mapping[str, Any]) -> Json:
        return [evaluate(context) for evaluate in evaluators]

    return Compiled(raw, run, _names_of(parts), _secrets_of(parts))


def _names_of(parts: Any) -> frozenset[Names]:
    return frozenset().union(*(part.names for part in parts))


def _secrets_of(parts: Any) -> frozenset[str]:
    return frozenset().union(*(part.secrets for part in parts))


def _single(parts: Sequence[Part]) -> Segment | None:
    """The only expression of a text that has nothing else but white space."""
    solid = [part for part in parts if isinstance(part, Segment) or part.strip()]
    return solid[0] if len(solid) == 1 and isinstance(solid[0], Segment) else None


@functools.lru_cache(maxsize=4096)
def _compile_text(text: str, secrets: bool) -> Compiled:
    statement = statement_offset(text)
    if statement is not None:
        raise BadExpression(
            "`{% %}` statements are not part of flows",
            "use `if` of a node, or filters in {{ }}",
            statement,
            "{%",
        )
    parts = split_text(text)
    if not any(isinstance(part, Segment) for part in parts):
        return _constant(text)
    pieces = [part if isinstance(part, str) else _located(part, secrets) for part in parts]
    expressions = [piece for piece in pieces if isinstance(piece, _Expression)]
    names = frozenset(reference.path for piece in expressions for reference in piece.references)
    names = frozenset(path for path in names if path[0] != "secrets")
    used = frozenset(piece.secret for piece in expressions if piece.secret is not None)
    if _single(parts) is not None:
        run = _checked(expressions[0].run) if secrets and not used else expressions[0].run
    else:
        run = _mixed(pieces, secrets)
    return Compiled(text, run, names, used)


def _located(segment: Segment, secrets: bool) -> _Expression:
    """The expression of a segment, with errors that say where in the text it is."""
    try:
        expression = _expression(segment.source)
        if any(reference.path[0] == "secrets" for reference in expression.references):
            _check_secret(expression, secrets)
    except BadExpression as error:
        raise BadExpression(error.message, error.hint, segment.offset, segment.text) from error
    return expression


def _check_secret(expression: _Expression, allowed: bool) -> None:
    if not allowed:
        raise BadExpression(
            "a secret cannot be used here",
            "secrets may stand in `env` of shell and in `headers` of http only",
        )
    if expression.secret is None:
        raise BadExpression(
            "a secret stands alone in its {{ }}: nothing can be computed with it",
            "write {{ secrets.NAME }} and nothing else in the braces",
        )


def _mixed(pieces: Sequence[str | _Expression], secrets: bool) -> Run:
    """Joins the parts of a mixed text; with secrets in it, into a text that the edge completes."""
    has_secret = any(isinstance(piece, _Expression) and piece.secret is not None for piece in pieces)

    def run(context: Mapping[str, Any]) -> Json:
        texts: list[Json] = []
        for piece in pieces:
            if isinstance(piece, str):
                texts.append(piece)
            elif piece.secret is not None:
                texts.append({"$secret": piece.secret})
            else:
                texts.append(_text_of(piece.run(context), piece.source))
        if has_secret:
            return {"$secret_text": texts}
        return _guard("".join(texts))

    return run


def _text_of(value: Json, source: str) -> str:
    try:
        return as_text(value)
    except ValueError as error:
        raise ExpressionError(f"`{{{{ {source.strip()} }}}}`: {error}") from error


def _guard(text: str) -> str:
    try:
        check_size(text)
    except ValueError as error:
        raise ExpressionError(f"the text `{_trimmed(text)}`: {error}") from error
    return text


def _checked(run: Run) -> Run:
    """The same expression in a place where secrets may stand: its result may not look like a reference."""

    def checked(context: Mapping[str, Any]) -> Json:
        value = run(context)
        if _has_marker(value):
            raise ExpressionError("the value has a key `$secret`, which data may not have in this place")
        return value

    return checked


def _has_marker(value: Json) -> bool:
    if isinstance(value, dict):
        return any(is_marker_key(key) or _has_marker(item) for key, item in value.items())
    return isinstance(value, list) and any(_has_marker(item) for item in value)


def _trimmed(text: str) -> str:
    text = str(text).strip()
    return text if len(text) <= 80 else text[:77] + "..."


# --- one expression --------------------------------------------------------------------------------------


class _Expression(NamedTuple):
    source: str
    run: Run
    references: tuple[Reference, ...]
    secret: str | None


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with values that have items and no attributes."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self) -> None:
        # Not optimized: folding constants would evaluate parts of a flow while it is only being checked.
        super().__init__(undefined=StrictUndefined, optimized=False, cache_size=0)
        self.filters = {name: function for name, (function, _) in FILTERS.items()}
        self.tests = {name: function for name, (function, _) in TESTS.items()}
        self.globals = {"range": bounded_range, "null": None}
        self.binop_table.update({"*": times, "**": power, "%": remainder})

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
def _expression(source: str) -> _Expression:
    """Parses and checks one expression. Raises `BadExpression`."""
    tree = _parse(source)
    _check_tree(tree)
    found = tuple(_collect(tree, optional=False))
    path = _static_path(tree)
    if path is not None and len(path) == 2 and path[0] == "secrets" and _is_secret_name(path[1]):
        marker = {"$secret": path[1]}
        return _Expression(source, lambda context: marker, found, path[1])
    if path is not None and path[0] not in _CONSTANTS:
        return _Expression(source, _lookup(path, source), found, None)
    return _Expression(source, _computed(tree, source, found), found, None)


def _is_secret_name(name: str) -> bool:
    return name.isascii() and name.replace("_", "a").isalnum() and name[0].isalpha()


def _parse(source: str) -> nodes.Expr:
    if not source.strip():
        raise BadExpression("the {{ }} is empty")
    if len(source) > MAX_SOURCE:
        raise BadExpression(f"the expression is longer than {MAX_SOURCE} characters")
    if source.startswith(("-", "+")) or source.endswith(("-", "+")):
        raise BadExpression("`{{-` and `-}}` are not known here", "write `{{ ` and ` }}` with a space")
    try:
        parser = Parser(_ENVIRONMENT, source, state="variable")
        tree = parser.parse_expression()
        if not parser.stream.eos:
            raise BadExpression(f"unexpected {_token(parser.stream.current)} after the expression")
    except TemplateSyntaxError as error:
        raise BadExpression(f"cannot read the expression: {error.message}", _syntax_hint(source)) from None
    except RecursionError:
        raise BadExpression(f"the expression nests deeper than {MAX_DEPTH}") from None
    except (ValueError, MemoryError, OverflowError) as error:
        raise BadExpression(f"cannot read the expression: {error}") from None
    if not isinstance(tree, nodes.Expr):
        raise BadExpression("cannot read the expression")
    tree.set_environment(_ENVIRONMENT)
    return tree


def _token(token: Any) -> str:
    return f"`{token.value}`" if token.value not in (None, "") else f"`{token.type}`"


def _syntax_hint(source: str) -> str | None:
    if source.lstrip().startswith((".", "$", "#", "/")):
        return "for braces that are plain text write {{ '{{' }} and {{ '}}' }}"
    for wrong, right in (("&&", "and"), ("||", "or"), ("===", "==")):
        if wrong in source:
            return f"write `{right}` for `{wrong}`"
    return "write `not x` for `!x`" if "!" in source.replace("!=", "") else None


def _check_tree(tree: nodes.Node) -> None:
    """Refuses what is deep, and what is not in the list of things that an expression may do."""
    level: list[nodes.Node] = [tree]
    for _ in range(MAX_DEPTH):
        if not level:
            return
        for node in level:
            _check_node(node)
        level = [child for node in level for child in node.iter_child_nodes()]
    raise BadExpression(f"the expression nests deeper than {MAX_DEPTH}")


def _check_node(node: nodes.Node) -> None:
    if not isinstance(node, _ALLOWED):
        raise BadExpression(f"an expression cannot have a {type(node).__name__.lower()}")
    if isinstance(node, nodes.Filter | nodes.Test):
        kind, known = ("filter", FILTERS) if isinstance(node, nodes.Filter) else ("test", TESTS)
        if node.name not in known:
            hint = suggest(node.name, known, "")
            raise BadExpression(f"unknown {kind} `{node.name}`", hint or "the flow reference lists them")
    if isinstance(node, nodes.Call):
        _check_call(node)
    if getattr(node, "dyn_args", None) is not None or getattr(node, "dyn_kwargs", None) is not None:
        raise BadExpression("`*` and `**` before an argument are not known here")
    if isinstance(node, nodes.Const) and isinstance(node.value, str):
        _check_constant(node.value)
    if isinstance(node, nodes.Name) and (
        node.name.startswith("_") or node.name in ("self", "super", "caller")
    ):
        raise BadExpression(f"unknown name `{node.name}`")


def _check_constant(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadExpression("a text in the expression is not Unicode") from None


def _check_call(node: nodes.Call) -> None:
    called = node.node
    if isinstance(called, nodes.Getattr):
        close = nearest(called.attr, FILTERS)
        hint = f"use the filter: `... | {close}`" if close else "use a filter; the flow reference lists them"
        raise BadExpression(f"values have no methods, so `.{called.attr}()` cannot be called", hint)
    if not isinstance(called, nodes.Name) or called.name != "range":
        name = f"`{called.name}`" if isinstance(called, nodes.Name) else "this"
        raise BadExpression(f"{name} cannot be called", "the only function is range(...)")


def _static_path(node: nodes.Node) -> Names | None:
    """`("nodes", "gate", "by")` for a name with constant text subscripts, else None."""
    if isinstance(node, nodes.Name):
        return (node.name,)
    if isinstance(node, nodes.Getattr):
        outer = _static_path(node.node)
        return None if outer is None else (*outer, node.attr)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and type(node.arg.value) is str:
        outer = _static_path(node.node)
        return None if outer is None else (*outer, node.arg.value)
    return None


def _collect(node: nodes.Node, *, optional: bool) -> Iterator[Reference]:
    """The names that an expression uses, each with as many constant fields as stand behind it."""
    path = _static_path(node)
    if path is not None:
        if path[0] not in _CONSTANTS:
            yield Reference(path, optional=optional)
        return
    if isinstance(node, nodes.Getitem):
        inner = _static_path(node.node)
        if inner is not None:
            fixed = isinstance(node.arg, nodes.Const | nodes.Slice)
            yield Reference(inner, computed=not fixed, optional=optional)
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
    """Follows a plain path: what most expressions are, without the cost of a Jinja context."""
    reference = (Reference(path),)

    def run(context: Mapping[str, Any]) -> Json:
        value: Any = context
        for key in path:
            if isinstance(value, dict | Mapping) and key in value:
                value = value[key]
            else:
                raise _failed(source, _undefined(reference, context) or f"`{key}` is undefined")
        return _finish(value, source)

    return run


def _finish(value: Any, source: str) -> Json:
    """A value from the context, checked for its size; it is JSON already unless its mapping is the caller's own."""
    try:
        if type(value) in (str, dict, list):
            try:
                return check_size(value)
            except TypeError:
                return plain(value)
        return plain(value)
    except (ValueError, RecursionError) as error:
        raise _failed(source, str(error)) from error


def _computed(tree: nodes.Expr, source: str, found: tuple[Reference, ...]) -> Run:
    """Compiles what is more than a path with Jinja."""
    body: list[nodes.Node] = [nodes.Assign(nodes.Name(_RESULT, "store"), _without_concat(tree), lineno=1)]
    try:
        template = _ENVIRONMENT.from_string(nodes.Template(body, lineno=1))
    except (TemplateSyntaxError, SyntaxError, RecursionError, MemoryError, ValueError) as error:
        raise BadExpression(f"cannot read the expression: {error}") from None

    def run(context: Mapping[str, Any]) -> Json:
        try:
            scope = template.new_context(dict(context))
            for _ in template.root_render_func(scope):
                pass
            return check_size(plain(scope.vars[_RESULT]))
        except UndefinedError as error:
            raise _failed(source, _undefined(found, context) or str(error)) from error
        except Exception as error:
            # Whatever an operator or filter raises (TypeError, ZeroDivisionError, ...) is the expression's error.
            raise _failed(source, str(error) or type(error).__name__) from error

    return run


def _without_concat(node: nodes.Expr) -> nodes.Expr:
    """`a ~ b` as a join, so that what is no text appears as JSON there too."""
    for child in node.iter_child_nodes():
        if isinstance(child, nodes.Expr | nodes.Helper):
            replaced = _without_concat(child)  # type: ignore[arg-type]  # helpers hold expressions only
            if replaced is not child:
                _replace_child(node, child, replaced)
    if not isinstance(node, nodes.Concat):
        return node
    joined = nodes.Filter(
        nodes.List(node.nodes), "join", [nodes.Const("")], [], None, None, lineno=node.lineno
    )
    joined.set_environment(_ENVIRONMENT)
    return joined


def _replace_child(parent: nodes.Node, old: nodes.Node, new: nodes.Node) -> None:
    for name, value in parent.iter_fields():
        if value is old:
            setattr(parent, name, new)
        elif isinstance(value, list):
            setattr(parent, name, [new if item is old else item for item in value])


def _failed(source: str, why: str) -> ExpressionError:
    return ExpressionError(f"`{{{{ {_trimmed(source)} }}}}`: {why}")


def _undefined(found: Sequence[Reference], context: Mapping[str, Any]) -> str | None:
    """Says which of the names is missing and what was probably meant."""
    for reference in found:
        if reference.optional:
            continue
        value: Any = context
        for index, key in enumerate(reference.path):
            if not isinstance(value, Mapping) or key not in value:
                return _missing(reference.path[:index], key, value)
            value = value[key]
    return None


def _missing(parent: Names, key: str, value: Any) -> str:
    name = ".".join(parent)
    if value is None:
        reason = " (the node was skipped or failed)" if parent[:1] == ("nodes",) and len(parent) == 2 else ""
        return f"`{name}` is null{reason} and has no `{key}`; guard it with `if` or `default`"
    if not isinstance(value, Mapping):
        return f"`{name}` is {kind_of(value)} and has no `{key}`"
    hint = suggest(key, value)
    return f"`{'.'.join((*parent, key))}` is undefined" + (f"; {hint}" if hint else "")
