"""`{{ }}` expressions: Jinja2's immutable sandbox over JSON values, and nothing else of Jinja.

Theory
------
A text is literal parts and `{{ expression }}` parts. A text that is a single expression (ignoring surrounding white
space) gives the value of that expression with its type; in mixed text, values other than text appear as JSON. There are
no statements (`{% %}`) and no comments, so `${#list[@]}` or `{%` in a text is just text.

* Attribute access is item access: `nodes.a.values` is the field `values`. Values have no methods.
* One pass: the value of an expression is data forever, also when it contains `{{`.
* An undefined name is an error, except under `default` and `is defined`.
* The only function is `range`; filters and tests are those of `engine.language.filters`.
* Nothing is evaluated while a flow is loaded: constants are not folded.

Bounds, against mistakes rather than attacks (authors of flows are trusted, data is not): an expression has at most
`MAX_SOURCE` characters and nests `MAX_DEPTH` deep, its result is at most 1 MiB, and operations that could multiply
(`*`, `**`, `range`, `replace`, `join`, `format` widths, `map`) are refused before they build more than that.

Secrets
-------
`{{ secrets.NAME }}` is allowed if the caller says so (`secrets=True`), and gives a reference and never a value:
`{"$secret": "NAME"}`, or `{"$secret_text": ["Bearer ", {"$secret": "NAME"}]}` in mixed text. In such a place data that
has a key `$secret` or `$secret_text` is refused, so no reply can pose as a reference; in all other places references
have no effect. `engine.nodes.runtime.secrets` resolves them.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from engine.language.codec import Json
from engine.language.diagnostics import kind_of
from engine.language.errors import ExpressionError
from engine.language.template import (
    NO_PART,
    BadExpression,
    Expression,
    Names,
    Part,
    Reference,
    Run,
    Segment,
    escape_markup,
    failed,
    is_marker_key,
    markdown_escapes,
    split_text,
    statement_offset,
    trimmed,
)

Markup: TypeAlias = Literal["mrkdwn", "markdown"] | None
"""Markup of a text whose values must be escaped."""


Places: TypeAlias = tuple[str, ...]
"""Keys in a value with dots between them; an empty one is the value itself."""


def below(places: Places, key: str) -> Places:
    """Return the places relative to the value under a key."""
    if "" in places:
        return ("",)
    here = [place.removeprefix(key) for place in places if place == key or place.startswith(f"{key}.")]
    return tuple(place.removeprefix(".") for place in here)


class How(Struct, frozen=True, omit_defaults=True):
    """Options for compiling the texts in a value: secrets allowed, markup, condition, exact places; or separate ones
    for some keys of a mapping."""

    secrets: bool = False
    markup: Markup = None
    condition: bool = False
    exact: Places = ()
    keys: "Mapping[str, How] | None" = None


class Compiled(Struct, frozen=True, eq=False, dict=True, omit_defaults=True):
    """A value with its expressions ready to evaluate. `raw` is its source.

    `names` are the paths that its expressions use, `secrets` the names of the secrets it refers to; `how` is None if it
    has no expressions. They are compiled on first evaluation.
    """

    raw: Json
    names: frozenset[Names] = frozenset()
    secrets: frozenset[str] = frozenset()
    how: How | None = None

    @property
    def constant(self) -> bool:
        """True if it has no expressions, so that `evaluate` returns `raw` itself."""
        return self.how is None

    def evaluate(self, context: Mapping[str, Any]) -> Json:
        """The value with every expression replaced by its result. Raises `ExpressionError`."""
        return self.raw if self.how is None else self._run(context)

    @cached_property
    def roots(self) -> Mapping[str, frozenset[str]]:
        """Return the fields that its expressions use, by the first name of each path."""
        return {
            root: frozenset(path[1] for path in self.names if path[0] == root and len(path) > 1)
            for root, *_ in self.names
        }

    @cached_property
    def _run(self) -> Run:
        assert self.how is not None, "what is constant is not run"
        run = _part(self.raw, self.how).run
        assert run is not None, "a text that had expressions has them still"
        return run

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compiled) and (self.raw, self.secrets) == (other.raw, other.secrets)

    def __hash__(self) -> int:
        return hash((self.names, self.secrets))


# --- compiling -------------------------------------------------------------------------------------------


def compile_value(raw: Json, *, secrets: bool = False, markup: Markup = None, exact: Places = ()) -> Compiled:
    """Compile every expression in a JSON value. Raises `BadExpression` at the first wrong one.

    With `markup` a text stays a text, and values of expressions are escaped: the author's `<!here>` is markup, a reply
    that says `<!here>` is not. In `exact` places null inside a longer text is an error, because something acts on it.
    """
    return _compiled(raw, How(secrets, markup, exact=exact))


def compile_config(
    raw: Mapping[str, Json],
    secret_fields: frozenset[str],
    verbatim: frozenset[str],
    markup: Mapping[str, Markup] | None = None,
    exact: Places = (),
) -> Compiled:
    """Compile the `with` of a node. `secret_fields` may contain secrets; `verbatim` fields have no expressions; values
    in `markup` fields are escaped; in `exact` places null inside a longer text is an error.

    Raises `BadExpression`.
    """
    keys = {
        key: How(key in secret_fields, (markup or {}).get(key), exact=below(exact, key))
        for key in raw
        if key not in verbatim
    }
    return _compiled(dict(raw), How(keys=keys))


def compile_condition(raw: Json) -> Compiled:
    """Compiles an `if`: one expression, or true or false. Raises `BadExpression`."""
    if isinstance(raw, bool):
        return Compiled(raw)
    if not isinstance(raw, str):
        raise BadExpression(f"expected a condition in {{{{ }}}}, not {kind_of(raw)}")
    parts = split_text(raw)
    if not any(isinstance(part, Segment) for part in parts):
        raise BadExpression("write a condition in {{ }}", _as_condition(raw))
    if only_expression(parts) is None:
        hint = "write {{ ... }} without the `$`" if "${{" in raw else _as_condition(raw)
        raise BadExpression("a condition is a single {{ }} without text around it", hint)
    return _compiled(raw, How(condition=True))


def _as_condition(raw: str) -> str | None:
    """Suggest a correction for a condition that is not one expression in braces."""
    from engine.language.jinja import mended  # Jinja is loaded by the first expression

    source = mended(raw.replace("${{", "").replace("{{", "").replace("}}", ""))
    return None if source is None else f'write "{{{{ {source[:120]} }}}}"'


def _compiled(raw: Json, how: How) -> Compiled:
    part = _part(raw, how)
    return Compiled(raw, part.names, part.secrets, None if part.run is None else how)


def evaluate_condition(compiled: Compiled, context: Mapping[str, Any], where: str = "") -> bool:
    """Evaluate a condition. Raises `ExpressionError`, beginning with `where`, if it fails or is not a boolean."""
    try:
        value = compiled.evaluate(context)
    except ExpressionError as error:
        raise ExpressionError(f"{where}: {error}" if where else str(error)) from error
    if value is True or value is False:
        return value
    text = f"the condition `{trimmed(compiled.raw)}` must be true or false, but gave {kind_of(value)}"
    raise ExpressionError(f"{where}: {text}" if where else text)


def inspect_text(
    text: str, *, secrets: bool = False
) -> tuple[list[BadExpression], list[tuple[Segment, Reference]]]:
    """Return the faults of a text's expressions, and the names in the valid ones, each with its place."""
    bad: list[BadExpression] = []
    used: list[tuple[Segment, Reference]] = []
    try:
        segments = [part for part in _split(text) if isinstance(part, Segment)]
    except BadExpression as error:
        return [error], []
    for segment in segments:
        try:
            used += [(segment, reference) for reference in _located(segment, secrets).references]
        except BadExpression as error:
            bad.append(error)
    return bad, used


class _Part(NamedTuple):
    """A compiled part of a value; `run` is None if it has no expressions."""

    run: Run | None
    names: frozenset[Names] = frozenset()
    secrets: frozenset[str] = frozenset()


_CONSTANT = _Part(None)


def _part(raw: Json, how: How) -> _Part:
    if type(raw) is str:
        if "{{" not in raw and "{%" not in raw:
            return _CONSTANT
        return _compile_text(raw, how.secrets, how.markup, how.condition, "" in how.exact)
    if isinstance(raw, dict):
        hows = how.keys
        if hows is None:
            hows = {key: replace(how, exact=below(how.exact, key)) for key in raw}
        parts = {key: _part(raw[key], each) for key, each in hows.items()}
        changing = [(key, part.run) for key, part in parts.items() if part.run is not None]
        if not changing:
            return _CONSTANT

        def run(context: Mapping[str, Any]) -> Json:
            result = dict(raw)
            for key, evaluate in changing:
                result[key] = evaluate(context)
            return result

        return _joined(run, parts.values())
    if isinstance(raw, list):
        return _compile_list([_part(item, how) for item in raw], raw)
    return _CONSTANT


def _compile_list(parts: list[_Part], raw: Json) -> _Part:
    if all(part.run is None for part in parts):
        return _CONSTANT

    def run(context: Mapping[str, Any]) -> Json:
        return [
            item if part.run is None else part.run(context) for item, part in zip(raw, parts, strict=True)
        ]

    return _joined(run, parts)


def _joined(run: Run, parts: Iterable[_Part]) -> _Part:
    names, secrets = zip(*((part.names, part.secrets) for part in parts), strict=True)
    return _Part(run, frozenset().union(*names), frozenset().union(*secrets))


def only_expression(parts: Sequence[Part]) -> Segment | None:
    """Return the single expression of a text that otherwise has only white space, or None."""
    solid = [part for part in parts if isinstance(part, Segment) or part.strip()]
    return solid[0] if len(solid) == 1 and isinstance(solid[0], Segment) else None


@functools.lru_cache(maxsize=4096)
def _compile_text(
    text: str, secrets: bool, markup: Markup, condition: bool = False, exact: bool = False
) -> _Part:
    parts = _split(text)
    if not any(isinstance(part, Segment) for part in parts):
        return _CONSTANT
    pieces = [part if isinstance(part, str) else _located(part, secrets, condition, exact) for part in parts]
    expressions = [piece for piece in pieces if isinstance(piece, Expression)]
    names = frozenset(reference.path for piece in expressions for reference in piece.references)
    names = frozenset(path for path in names if path[0] != "secrets")
    used = frozenset(piece.secret for piece in expressions if piece.secret is not None)
    if markup == "mrkdwn":
        run = _mixed(pieces, [escape_markup] * len(pieces))
    elif markup == "markdown":
        run = _mixed(pieces, markdown_escapes(pieces))
    elif only_expression(parts) is not None:
        run = _checked(expressions[0].run) if secrets and not used else expressions[0].run
    else:
        run = _mixed(pieces, exact=exact)
    return _Part(run, names, used)


def _split(text: str) -> list[Part]:
    statement = statement_offset(text)
    if statement is not None:
        raise BadExpression(
            "`{% %}` statements are not part of flows",
            "use `if` of a node, or filters in {{ }}",
            statement,
            "{%",
        )
    return split_text(text)


def _located(segment: Segment, secrets: bool, condition: bool = False, exact: bool = False) -> Expression:
    """The expression of a segment, with errors that say where in the text it is."""
    from engine.language.jinja import compile_expression  # Jinja is loaded by the first expression

    try:
        expression = compile_expression(segment.source, condition, exact)
        if any(reference.path[0] == "secrets" for reference in expression.references):
            if not secrets:
                raise BadExpression(
                    "a secret cannot be used here",
                    "secrets are allowed only in `env` of shell and in url, query, headers and body of http",
                )
            if expression.secret is None:
                raise BadExpression(
                    "a secret must be alone in its {{ }}: no expression can use its value",
                    "write {{ secrets.NAME }} and nothing else in the braces",
                )
    except BadExpression as error:
        raise BadExpression(error.message, error.hint, segment.offset, segment.text) from error
    return expression


def _mixed(
    pieces: Sequence[str | Expression], escapes: Sequence[Callable[[str], str]] = (), exact: bool = False
) -> Run:
    """Join the parts of a mixed text; with secrets, into a text that the edge completes. `escapes` has a function for
    each piece; in an `exact` text none may be null."""
    has_secret = any(isinstance(piece, Expression) and piece.secret is not None for piece in pieces)

    def run(context: Mapping[str, Any]) -> Json:
        from engine.language.value_types import as_text, check_size

        texts: list[Json] = []
        for piece, escape in zip(pieces, escapes or [str] * len(pieces), strict=True):
            if isinstance(piece, str):
                texts.append(piece)
            elif piece.secret is not None:
                texts.append({"$secret": piece.secret})
            else:
                value = piece.run(context)
                if exact and value is None:
                    raise failed(piece.source, NO_PART)
                try:
                    texts.append(escape(as_text(value)))
                except ValueError as error:
                    raise failed(piece.source, str(error)) from error
        if has_secret:
            return {"$secret_text": texts}
        text = "".join(texts)
        try:
            check_size(text)
        except ValueError as error:
            raise ExpressionError(f"the text `{trimmed(text)}`: {error}") from error
        return text

    return run


def _checked(run: Run) -> Run:
    """The same expression in a place where secrets may stand: its result may not look like a reference."""

    def checked(context: Mapping[str, Any]) -> Json:
        value = run(context)
        if _has_marker(value):
            raise ExpressionError("the value has a key `$secret`, which is not allowed in data here")
        return value

    return checked


def _has_marker(value: Json) -> bool:
    if isinstance(value, dict):
        return any(is_marker_key(key) or _has_marker(item) for key, item in value.items())
    return isinstance(value, list) and any(_has_marker(item) for item in value)
