"""Filters and tests of `{{ }}` expressions: a closed list, each with bounded results.

A filter takes and gives JSON values only. Filters with many results (`map`, `select`, ...) give a list at once and stop
at `MAX_BYTES`, so that a short expression cannot build a huge value on the way to a small one. `int`, `float` and
`fromjson` raise for unreadable input, unless they are given a default: a runbook must not scale to a zero out of thin
air.
"""

from __future__ import annotations

import decimal
import functools
import inspect
import operator as operators
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlencode

import orjson
from jinja2 import Environment, TemplateError, Undefined
from jinja2.defaults import DEFAULT_FILTERS, DEFAULT_TESTS  # type: ignore[attr-defined]
from jinja2.nodes import EvalContext
from jinja2.runtime import Context

from engine.language import matching, working_hours
from engine.language.codec import Json, canonical, lines_of, read, same, whole
from engine.language.diagnostics import BOOLEAN, LIST, MAPPING, NULL, NUMBER, TEXT, kind_bit, shape_of
from engine.language.errors import Inexact, NotJson
from engine.language.timestamps import format_duration, parse_moment
from engine.language.value_types import MAX_BYTES, BadValue, TooLarge, as_text, fail_undefined, plain

MAX_RANGE = 10_000
"""The most numbers that `range` gives."""


def _all(value: Iterable[Any]) -> list[Any]:
    """Return all items of an iterable, as long as they stay below the limit together."""
    items: list[Any] = []
    spent = 0
    for item in value:
        spent += len(item) + 1 if isinstance(item, str | list | dict) else 1
        if spent > MAX_BYTES:
            raise TooLarge
        items.append(item)
    return items


def bounded_range(*args: int) -> list[int]:
    """Return the numbers of Python's `range` as a list, at most `MAX_RANGE` of them."""
    numbers = range(*args)
    if len(numbers) > MAX_RANGE:
        raise BadValue(f"range gives at most {MAX_RANGE} numbers")
    return list(numbers)


ANYTHING = NULL | BOOLEAN | NUMBER | TEXT | LIST | MAPPING
PRESENT = ANYTHING & ~NULL
SIZED = TEXT | LIST | MAPPING
ORDERED = NUMBER | TEXT | LIST


def guarded(name: str, function: Callable[..., Any], takes: int = ANYTHING) -> Callable[..., Any]:
    """Wrap an operator, filter or test so that its errors describe the input instead of Python's problem with it.
    `takes`: the kinds of values that it accepts."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            if takes != ANYTHING:
                subject = next(filter(_is_given, args))
                if isinstance(subject, Undefined):
                    fail_undefined(subject)
                if not kind_bit(subject) & takes:
                    raise TypeError
            return function(*args, **kwargs)
        except (BadValue, TemplateError):
            raise
        except ZeroDivisionError:
            raise BadValue("a division by zero") from None
        except Exception as error:
            shapes = " and ".join(map(shape_of, filter(_is_given, args)))
            raise BadValue(f"{name} cannot take {shapes}") from error

    return called


def _is_given(argument: Any) -> bool:
    """True if an argument was written in the expression, not added by Jinja."""
    return not isinstance(argument, Environment | EvalContext | Context)


def in_order(left: Any, operator: str, right: Any) -> bool:
    """`left < right`, `left in right` and the like, by Jinja's name of the operator."""
    for value in (left, right):
        if isinstance(value, Undefined):
            fail_undefined(value)
    sign, compare = _COMPARISONS[operator]
    return bool(guarded(f"`{sign}`", compare)(left, right))


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """A comparison that knows no order of true and false: to Python they are numbers."""

    def compared(left: Any, right: Any) -> bool:
        if not kind_bit(left) & kind_bit(right) & ORDERED:
            raise TypeError
        return compare(left, right)

    return compared


def _among(value: Any, values: Any) -> bool:
    if isinstance(values, list | tuple):
        return any(same(value, each) for each in values)
    return value in values


def _apart(left: Any, right: Any) -> bool:
    return not same(left, right)


_lt, _le, _gt, _ge = map(_ordered, (operators.lt, operators.le, operators.gt, operators.ge))
_COMPARISONS: Mapping[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "eq": ("==", same),
    "ne": ("!=", _apart),
    "lt": ("<", _lt),
    "lteq": ("<=", _le),
    "gt": (">", _gt),
    "gteq": (">=", _ge),
    "in": ("in", _among),
    "notin": ("not in", lambda left, right: not _among(left, right)),
}


def times(left: Any, right: Any) -> Any:
    """`left * right`; text and lists cannot be repeated into a huge value."""
    for sequence, count in ((left, right), (right, left)):
        if isinstance(sequence, str | list | tuple) and isinstance(count, int):
            limit = MAX_BYTES if isinstance(sequence, str) else MAX_RANGE
            if len(sequence) * count > limit:
                raise TooLarge
    return left * right


def power(base: Any, exponent: Any) -> Any:
    """`base ** exponent`; whole numbers only as far as 64 bits can be reached."""
    if isinstance(base, int) and isinstance(exponent, int) and abs(base).bit_length() * exponent > 128:
        raise BadValue("the power is too large")
    return base**exponent


def remainder(left: Any, right: Any) -> Any:
    """`left % right` of numbers; text is formatted with the `format` filter."""
    if isinstance(left, str):
        raise BadValue("`%` is for numbers; format text with the filter: 'text %s' | format(value)")
    return left % right


_FORMAT = re.compile(r"%(%|[-+ 0#]*\d{0,3}(?:\.\d{1,3})?[sdifgGeExXo])")


def _format(value: str, *args: Any) -> str:
    if "%" in _FORMAT.sub("", value):
        raise BadValue("format supports %s, %d, %.2f and such, with a width of at most three digits")
    return value % tuple(item if type(item) in (int, float, str) else as_text(item) for item in args)


def _join(value: Iterable[Any], separator: str = "", attribute: str | int | None = None) -> str:
    items = value if attribute is None else [_item(item, attribute) for item in value]
    texts = _all(as_text(item) for item in items)
    if len(separator) * len(texts) > MAX_BYTES:
        raise TooLarge
    return separator.join(texts)


def _item(value: Any, attribute: str | int) -> Any:
    """An item by its dotted name, as in `join(attribute="a.b")`."""
    for part in str(attribute).split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def _replace(value: str, old: str, new: str, count: int = -1, regex: bool = False) -> str:
    if count == 0:
        return value
    if regex:
        if len(new) > matching.MAX_PATTERN or new.count("\\") * len(value) > 16 * MAX_BYTES:
            raise TooLarge
        return _own(matching.replaced, value, old, new, count)
    found = value.count(old)
    hits = found if count < 0 else min(found, count)
    if len(value) + hits * (len(new) - len(old)) > MAX_BYTES:
        raise TooLarge
    return value.replace(old, new, count)


_ROUNDINGS = {"common": decimal.ROUND_HALF_UP, "ceil": decimal.ROUND_CEILING, "floor": decimal.ROUND_FLOOR}
_DIGITS = decimal.Context(prec=400)


def _round(value: float, precision: int = 0, method: str = "common") -> float | int:
    if not 0 <= precision <= 15:
        raise BadValue("round takes a precision from 0 to 15")
    if method not in _ROUNDINGS:
        raise BadValue("round supports the methods common, ceil and floor")
    if isinstance(value, int):
        return value
    # Rounded as written: the binary number for 0.29 is a little less.
    digit = decimal.Decimal(1).scaleb(-precision)
    result = decimal.Decimal(repr(value)).quantize(digit, _ROUNDINGS[method], _DIGITS)
    return float(result) if precision else int(result)


_NO_DEFAULT: Any = object()
_WHOLE = re.compile(r"\s*[+-]?\d{1,40}\s*", re.ASCII)
_DECIMAL = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*", re.ASCII)


def _number(value: Any, default: Any, make: type[int] | type[float]) -> Any:
    """A number from text in the digits of JSON; Python also reads `1_000`, and digits of other scripts."""
    what, pattern = ("a whole number", _WHOLE) if make is int else ("a number", _DECIMAL)
    try:
        if isinstance(value, str) and not pattern.fullmatch(value):
            raise ValueError
        return plain(make(value))
    except (TypeError, ValueError, OverflowError):
        if default is _NO_DEFAULT:
            told = as_text(value)[:40]
            beyond = (
                " of 64 bits" if make is int and (_WHOLE.fullmatch(told) or isinstance(value, float)) else ""
            )
            raise BadValue(f"{told!r} is not {what}{beyond}; {make.__name__}(0) gives 0 instead") from None
        return default


def _float(value: Any, default: Any = _NO_DEFAULT) -> Any:
    return _number(value, default, float)


def _tojson(value: Any, indent: int | None = None) -> str:
    if indent not in (None, 0, 2):
        raise BadValue("tojson takes indent=2 or nothing")
    option = orjson.OPT_INDENT_2 if indent else 0
    return orjson.dumps(plain(value), option=option).decode()


def _fromjson(value: str, default: Any = _NO_DEFAULT) -> Json:
    try:
        return plain(read(value))
    except NotJson as error:
        if default is _NO_DEFAULT:
            why = str(error) if isinstance(error, Inexact) else "the text is not JSON"
            raise BadValue(f"{why}; fromjson(none) gives none instead") from None
        return default


def _split(value: str, separator: str | None = None) -> list[str]:
    return value.split(separator)


def _unique(value: Iterable[Any]) -> list[Any]:
    seen: dict[bytes, Any] = {}
    for item in _all(value):
        seen.setdefault(canonical(whole(plain(item))), item)
    return list(seen.values())


def _reverse(value: Any) -> Any:
    return value[::-1] if isinstance(value, str) else _all(reversed(value))


def _trim(value: str, characters: str | None = None) -> str:
    return value.strip(characters)


def _truncate(
    value: str, length: int = 255, killwords: bool = False, end: str = "...", leeway: int = 0
) -> str:
    if length < 0:
        raise BadValue("truncate takes a length of 0 or more")
    if len(value) <= length + leeway:
        return value
    if length < len(end):
        return value[:length]
    kept, following = value[: length - len(end)], value[length - len(end)]
    if not killwords and not following.isspace():
        kept = kept.rsplit(" ", 1)[0]
    return kept + end


def _size(value: Any, binary: bool = False) -> str:
    number, base = _float(value, None), 1024 if binary else 1000
    if number is None:
        raise BadValue(f"{value[:40]!r} is not a number of bytes")
    if abs(number) < base:
        return f"{number:.0f} Byte{'' if abs(number) == 1 else 's'}"
    steps = next((step for step in range(1, 8) if round(abs(number) / base**step, 1) < base), 8)
    prefix = " kMGTPEZY"[steps]
    return f"{number / base**steps:.1f} {f'{prefix.upper()}i' if binary else prefix}B"


def _urlencode(value: Any) -> str:
    if isinstance(value, str | int | float):
        return quote(as_text(value), safe="/")
    pairs = list(value.items() if isinstance(value, Mapping) else value)
    if any(each is None for _, each in pairs):
        raise BadValue("a query has no null; leave the field out, or give it a `default`")
    return urlencode([(as_text(name), as_text(each)) for name, each in pairs])


def _eager(name: str) -> Callable[..., list[Any]]:
    """Wrap Jinja's own filter of that name to return its items as a list."""
    lazy = DEFAULT_FILTERS[name]

    @functools.wraps(lazy)
    def eager(*args: Any, **kwargs: Any) -> list[Any]:
        return _all(lazy(*args, **kwargs))

    return eager


def strict(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same filter, which raises for an undefined argument; some of Jinja's take that for something empty."""

    @functools.wraps(function)
    def filtered(*args: Any, **kwargs: Any) -> Any:
        for argument in args:
            if isinstance(argument, Undefined):
                fail_undefined(argument)
        return function(*args, **kwargs)

    return filtered


def _text(method: Callable[[str], str]) -> Callable[[Any], str]:
    return lambda value: method(as_text(value))


def _own(function: Callable[..., _T], *args: Any) -> _T:
    """Call a function, turning its `ValueError` into one of ours."""
    try:
        return function(*args)
    except ValueError as error:
        raise BadValue(str(error)) from None


def _match(value: str, pattern: str) -> list[Json] | None:
    return _own(matching.found, value, pattern)


def _after(value: str, duration: str | float) -> str:
    return _own(working_hours.moved, value, duration, 1)


def _before(value: str, duration: str | float) -> str:
    return _own(working_hours.moved, value, duration, -1)


def _since(value: str, earlier: str) -> float:
    return _own(working_hours.seconds_since, value, earlier)


def _date(value: str, form: str = "%Y-%m-%d", zone: str = "UTC") -> str:
    return _own(working_hours.written, value, form, zone)


def _duration(value: float) -> str:
    return _own(format_duration, value)


def _project(value: Iterable[Any], **fields: str) -> list[dict[str, Any]]:
    return _all({name: _reached(item, path) for name, path in fields.items()} for item in value)


def _reached(item: Any, path: str) -> Any:
    """Return the value at a dotted path in an item; null if the path ends before."""
    for part in path.split("."):
        if isinstance(item, list) and part.isdigit():
            item = item[int(part)] if int(part) < len(item) else None
        else:
            item = item.get(part) if isinstance(item, Mapping) else None
    return item


_T = TypeVar("_T")

FILTERS: dict[str, tuple[Callable[..., Any], int, str]] = {
    "abs": (abs, NUMBER, "the number without its sign"),
    "after": (_after, TEXT, "a later moment: `now | after('2h')`; a number means seconds"),
    "before": (_before, TEXT, "an earlier moment: `now | before('30d')`"),
    "capitalize": (
        _text(str.capitalize),
        PRESENT,
        "the first letter in upper case, the others in lower case",
    ),
    "date": (
        _date,
        TEXT,
        "a formatted moment: `now | date('%d.%m.%Y %H:%M', 'Europe/Berlin')`; default: `%Y-%m-%d` in UTC",
    ),
    "default": (
        DEFAULT_FILTERS["default"],
        ANYTHING,
        "another value if this one is undefined: `x | default('none')`; with `true` as second argument also if it is "
        "null, empty, 0 or false",
    ),
    "dictsort": (
        _eager("dictsort"),
        MAPPING,
        "the pairs of a mapping, sorted by key, ignoring case; `dictsort(by='value')`, `dictsort(case_sensitive=true)`",
    ),
    "duration": (_duration, NUMBER, "seconds, 0 or more, as a duration: `5400 | duration` is `1h30m`"),
    "filesizeformat": (
        _size,
        NUMBER | TEXT,
        "a readable number of bytes: `13.4 kB`; with `true` as argument in steps of 1024: `13.1 KiB`",
    ),
    "first": (DEFAULT_FILTERS["first"], SIZED, "the first item of a list; an error if it is empty"),
    "float": (
        _float,
        BOOLEAN | NUMBER | TEXT,
        "a number from text; an error if it is not a number, unless a default is given: `float(0)`",
    ),
    "format": (
        _format,
        TEXT,
        "text with values inserted: `'%s: %.1f' | format(name, load)`; `%d` drops a fraction",
    ),
    "fromjson": (
        _fromjson,
        TEXT,
        "the value of a JSON text; an error if it is not JSON or has an integer beyond 64 bits, unless a default is "
        "given",
    ),
    "int": (
        lambda value, default=_NO_DEFAULT: _number(value, default, int),
        BOOLEAN | NUMBER | TEXT,
        "a whole number from text, or a number without its fraction; an error if it is not a number or has more than "
        "64 bits, unless a default is given: `int(0)`",
    ),
    "items": (_eager("items"), MAPPING, "the pairs of a mapping"),
    "join": (
        _join,
        SIZED,
        "the items of a list as one text, other values as JSON: `join(', ')`; one field of each: `join(', ', "
        "attribute='name')`",
    ),
    "last": (DEFAULT_FILTERS["last"], TEXT | LIST, "the last item of a list; an error if it is empty"),
    "length": (len, SIZED, "the number of items or characters (Unicode code points)"),
    "lines": (
        lines_of,
        TEXT,
        "the lines of a text as a list, without `\\n` or `\\r\\n`; nothing else ends a line",
    ),
    "list": (
        _eager("list"),
        SIZED,
        "a list of the items, of the keys of a mapping, or of the characters of a text",
    ),
    "lower": (_text(str.lower), PRESENT, "in lower case"),
    "map": (
        _eager("map"),
        SIZED,
        "one field of each item, `map(attribute='name')`, or a filter on each, `map('upper')`; an error if the field "
        "is missing, unless a default is given: `map(attribute='name', default='')`",
    ),
    "match": (
        _match,
        TEXT,
        "the first match of a regular expression in a text, and its groups, as a list; null without a match: `tag | "
        "match('v([0-9]+)')`",
    ),
    "max": (
        DEFAULT_FILTERS["max"],
        SIZED,
        "the largest item, ignoring case; by a field: `max(attribute='size')`; an error if the list is empty",
    ),
    "min": (
        DEFAULT_FILTERS["min"],
        SIZED,
        "the smallest item, ignoring case; by a field: `min(attribute='size')`; an error if the list is empty",
    ),
    "moment": (
        lambda value: _own(parse_moment, value),
        TEXT,
        "a moment in the format of `now`, from ISO-8601 text with an offset, so that you can compare them: "
        "`inputs.until | moment > now`",
    ),
    "project": (
        _project,
        LIST,
        "a list of mappings, each field from a dotted path in the item: `nodes.each.iterations | project(host='item', "
        "up='outputs.check.stdout')`; null if it is missing",
    ),
    "reject": (
        _eager("reject"),
        SIZED,
        "the items that do not pass a test: `reject('none')`; without a test those that are null, empty, 0 or false",
    ),
    "rejectattr": (
        _eager("rejectattr"),
        SIZED,
        "the items whose field does not pass: `rejectattr('state', 'eq', 'ok')`",
    ),
    "replace": (
        _replace,
        TEXT,
        "the text with each occurrence of a part replaced, `replace('-', '_')`, or only the first ones, `replace('-', "
        "'_', 1)`; with `regex=true` the matches of a regular expression: `replace('\\s+', ' ', regex=true)`, where "
        "`\\1` is a group",
    ),
    "reverse": (_reverse, TEXT | LIST, "a list or a text in reverse order"),
    "round": (
        _round,
        NUMBER,
        "rounded, a half away from zero: `round`, `round(2)`; up or down: `round(1, 'ceil')`, "
        "`round(0, 'floor')`",
    ),
    "since": (
        _since,
        TEXT,
        "seconds from an earlier moment to this one, negative if it is later: `now | since(nodes.gate.at)`",
    ),
    "select": (
        _eager("select"),
        SIZED,
        "the items that pass a test: `select('gt', 3)`; without a test those that are not null, empty, 0 or false",
    ),
    "selectattr": (
        _eager("selectattr"),
        SIZED,
        "the items whose field passes: `selectattr('state', 'eq', 'ok')`",
    ),
    "sort": (
        _eager("sort"),
        SIZED,
        "sorted, ignoring case; `sort(reverse=true)`, `sort(attribute='name')`, `sort(case_sensitive=true)`",
    ),
    "split": (
        _split,
        TEXT,
        "the parts of a text between separators, as a list: `split(',')`; by default between white space",
    ),
    "string": (as_text, ANYTHING, "the value as text; other values become JSON"),
    "sum": (
        DEFAULT_FILTERS["sum"],
        LIST,
        "the sum of the items, 0 for an empty list; of their fields: `sum(attribute='size')`",
    ),
    "title": (_text(DEFAULT_FILTERS["title"]), PRESENT, "each word with its first letter in upper case"),
    "tojson": (_tojson, ANYTHING, "the value as JSON text; `tojson(indent=2)` is easier to read"),
    "trim": (_trim, TEXT, "the text without white space, or the given characters, at both ends"),
    "truncate": (
        _truncate,
        TEXT,
        "the text cut to a length, after a word, with `...` (which counts) if it was cut: `truncate(80)`; "
        "`truncate(80, true)` can cut within a word",
    ),
    "unique": (_unique, SIZED, "each item once; 1 and 1.0 are the same"),
    "upper": (_text(str.upper), PRESENT, "in upper case"),
    "urlencode": (
        _urlencode,
        NUMBER | TEXT | LIST | MAPPING,
        "percent-encoded for a URL, except `/`; a mapping becomes a query: `a=1&b=2`",
    ),
}
"""Filters, with the kinds of values that they take and their sentence for the flow reference."""

WITH_DEFAULT = frozenset({"float", "fromjson", "int"})
"""Filters that take anything where a default is given."""


_KINDS_WRITTEN = {"str": TEXT, "int": NUMBER, "float": NUMBER, "bool": BOOLEAN, "None": NULL}
_SAMPLES: Mapping[str, Any] = {
    **dict.fromkeys(("after", "before", "date", "since"), "2026-01-01T00:00:00.000Z"),
    **dict.fromkeys(("round", "tojson"), 1),
    "matching": "",
}
"""Sample subjects with which a filter or test succeeds if its arguments are right."""
NOT_TRIED: Any = object()


@functools.cache
def arguments_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a filter or test without its subject."""
    given = inspect.signature(function).parameters.values()
    taken = [each for each in given if each.name not in ("environment", "eval_ctx", "context")]
    return inspect.Signature(taken[1:])


def kinds_taken(parameter: inspect.Parameter) -> int:
    """Return the kinds of values that a parameter takes; all if it is not annotated."""
    kinds = [_KINDS_WRITTEN.get(each) for each in str(parameter.annotation).split(" | ")]
    return ANYTHING if None in kinds else functools.reduce(operators.or_, filter(None, kinds))


def refused(
    name: str, function: Callable[..., Any], value: Any, arguments: inspect.BoundArguments
) -> str | None:
    """Why arguments that are written out are wrong, whatever the filter or test is for; `value` where that is written
    out, too."""
    tried = _SAMPLES.get(name, NOT_TRIED) if value is NOT_TRIED else value
    if tried is NOT_TRIED or function.__module__ != __name__:
        return None  # those of Jinja may need more than their arguments
    try:
        guarded(f"`{name}`", function)(tried, *arguments.args, **arguments.kwargs)
    except BadValue as error:
        return str(error)
    return None


def _starts(value: str, prefix: str) -> bool:
    return value.startswith(prefix)


def _ends(value: str, suffix: str) -> bool:
    return value.endswith(suffix)


def _matching(value: str, pattern: str) -> bool:
    return _match(value, pattern) is not None


def _jinja_test(name: str) -> Callable[..., bool]:
    return cast(Callable[..., bool], DEFAULT_TESTS[name])


TESTS: dict[str, tuple[Callable[..., bool], int, str]] = {
    "defined": (_jinja_test("defined"), ANYTHING, "it is there"),
    "undefined": (_jinja_test("undefined"), ANYTHING, "it is not there"),
    "none": (_jinja_test("none"), ANYTHING, "it is null, like the output of a skipped node"),
    "boolean": (_jinja_test("boolean"), ANYTHING, "it is true or false"),
    "number": (
        lambda value: kind_bit(value) == NUMBER,
        ANYTHING,
        "it is a number; true and false are not numbers",
    ),
    "integer": (_jinja_test("integer"), ANYTHING, "it is a number without a decimal point: 2, not 2.0"),
    "float": (_jinja_test("float"), ANYTHING, "it is a number with a decimal point: 2.0, not 2"),
    "string": (_jinja_test("string"), ANYTHING, "it is text"),
    "mapping": (_jinja_test("mapping"), ANYTHING, "it is a mapping"),
    "sequence": (lambda value: isinstance(value, str | list | tuple), ANYTHING, "it is a list or text"),
    "true": (_jinja_test("true"), ANYTHING, "it is true"),
    "false": (_jinja_test("false"), ANYTHING, "it is false"),
    "even": (_jinja_test("even"), NUMBER, "the number is even"),
    "odd": (_jinja_test("odd"), NUMBER, "the number is odd"),
    "divisibleby": (
        _jinja_test("divisibleby"),
        NUMBER,
        "the number divides without remainder: `is divisibleby(3)`",
    ),
    "in": (
        _among,
        ANYTHING,
        "it is one of these, `select('in', ['a', 'b'])`, a part of a text, or a key of a mapping",
    ),
    "matching": (
        _matching,
        TEXT,
        "a regular expression matches somewhere in the text: `is matching('^v[0-9]')`",
    ),
    "startswith": (_starts, TEXT, "the text starts with this: `is startswith('v')`"),
    "endswith": (_ends, TEXT, "the text ends with this: `is endswith('.yml')`"),
    "eq": (
        same,
        ANYTHING,
        "equal, as `==`; with `ne`, `lt`, `le`, `gt`, `ge` for use in `select` and `selectattr`",
    ),
    "ne": (_apart, ANYTHING, "not equal"),
    "lt": (_lt, ORDERED, "less"),
    "le": (_le, ORDERED, "less or equal"),
    "gt": (_gt, ORDERED, "greater"),
    "ge": (_ge, ORDERED, "greater or equal"),
}
"""Tests (`x is defined`), with the kinds that they take and their sentence for the flow reference."""
