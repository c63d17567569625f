"""The filters and tests that `{{ }}` expressions have: a closed list, each bounded in what it may build.

A filter takes and gives JSON values only. What makes many values out of one (`map`, `select`, ...) gives a list
at once and stops at `MAX_BYTES`, so that a short expression cannot build a huge value on the way to a small
one. `int`, `float` and `fromjson` raise for what they cannot read, unless they are given a default: a zero out
of thin air is not what a runbook should scale to.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import operator as operators
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

import orjson
from jinja2 import Environment, TemplateError, Undefined
from jinja2.defaults import DEFAULT_FILTERS, DEFAULT_TESTS  # type: ignore[attr-defined]
from jinja2.nodes import EvalContext
from jinja2.runtime import Context

from engine.language import matching, working_hours
from engine.language.codec import Json
from engine.language.diagnostics import shape_of
from engine.language.timestamps import format_duration
from engine.language.value_types import MAX_BYTES, BadValue, TooLarge, as_text, fail_undefined, plain

MAX_RANGE = 10_000
"""The most numbers that `range` gives."""


def _all(value: Iterable[Any]) -> list[Any]:
    """All items of an iterable, as long as they stay below the limit together."""
    items: list[Any] = []
    spent = 0
    for item in value:
        spent += len(item) + 1 if isinstance(item, str | list | dict) else 1
        if spent > MAX_BYTES:
            raise TooLarge
        items.append(item)
    return items


def bounded_range(*args: int) -> list[int]:
    """The numbers of Python's `range`, at most `MAX_RANGE` of them, as a list."""
    numbers = range(*args)
    if len(numbers) > MAX_RANGE:
        raise BadValue(f"range gives at most {MAX_RANGE} numbers")
    return list(numbers)


def guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same operator, filter or test, whose errors say what it was given and not what Python thinks of it."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (BadValue, TemplateError):
            raise
        except ZeroDivisionError:
            raise BadValue("a division by zero") from None
        except Exception as error:
            given = [each for each in args if not isinstance(each, Environment | EvalContext | Context)]
            shapes = " and ".join(map(shape_of, given))
            raise BadValue(f"{name} cannot take {shapes}") from error

    return called


def in_order(left: Any, operator: str, right: Any) -> bool:
    """`left < right`, `left in right` and the like, by Jinja's name of the operator."""
    for value in (left, right):
        if isinstance(value, Undefined):
            fail_undefined(value)
    sign, compare = _ORDERS[operator]
    return bool(guarded(f"`{sign}`", compare)(left, right))


_ORDERS: Mapping[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "lt": ("<", operators.lt),
    "lteq": ("<=", operators.le),
    "gt": (">", operators.gt),
    "gteq": (">=", operators.ge),
    "in": ("in", lambda left, right: left in right),
    "notin": ("not in", lambda left, right: left not in right),
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
        raise BadValue("format knows %s, %d, %.2f and the like, with a width of at most three digits")
    return value % tuple(
        as_text(item) if isinstance(item, bool | dict | list | None) else item for item in args
    )


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
    if regex:
        if len(new) > matching.MAX_PATTERN or new.count("\\") * len(value) > 16 * MAX_BYTES:
            raise TooLarge
        return _own(matching.replaced, value, old, new, count)
    found = value.count(old)
    hits = found if count < 0 else min(found, count)
    if len(value) + hits * (len(new) - len(old)) > MAX_BYTES:
        raise TooLarge
    return value.replace(old, new, count)


def _round(value: float, precision: int = 0, method: str = "common") -> float | int:
    if not 0 <= precision <= 15:
        raise BadValue("round takes a precision from 0 to 15")
    if method not in ("common", "ceil", "floor"):
        raise BadValue("round knows the methods common, ceil and floor")
    if method == "common":
        result: float = round(value, precision)
    else:
        factor = 10**precision
        result = (math.ceil if method == "ceil" else math.floor)(value * factor) / factor
    return result if precision else int(result)


_NO_DEFAULT: Any = object()


def _int(value: Any, default: Any = _NO_DEFAULT) -> Any:
    try:
        if isinstance(value, str) and len(value) > 40:
            raise BadValue
        return int(value)
    except (TypeError, ValueError, OverflowError):
        if default is _NO_DEFAULT:
            raise BadValue(f"{as_text(value)[:40]!r} is not a whole number; int(0) gives 0 instead") from None
        return default


def _float(value: Any, default: Any = _NO_DEFAULT) -> Any:
    try:
        number = float(value)
        if not math.isfinite(number):
            raise BadValue
        return number
    except (TypeError, ValueError, OverflowError):
        if default is _NO_DEFAULT:
            raise BadValue(f"{as_text(value)[:40]!r} is not a number; float(0) gives 0 instead") from None
        return default


def _tojson(value: Any, indent: int | None = None) -> str:
    if indent not in (None, 0, 2):
        raise BadValue("tojson takes indent=2 or nothing")
    option = orjson.OPT_INDENT_2 if indent else 0
    return orjson.dumps(plain(value), option=option).decode()


def _fromjson(value: str, default: Any = _NO_DEFAULT) -> Json:
    try:
        return plain(orjson.loads(value))
    except (json.JSONDecodeError, TypeError):
        if default is _NO_DEFAULT:
            raise BadValue("the text is not JSON; fromjson(none) gives none instead") from None
        return default


def _split(value: str, separator: str | None = None) -> list[str]:
    return value.split(separator)


def _lines(value: str) -> list[str]:
    return value.splitlines()


def _unique(value: Iterable[Any]) -> list[Any]:
    seen: dict[bytes, Any] = {}
    for item in _all(value):
        seen.setdefault(orjson.dumps(plain(item), option=orjson.OPT_SORT_KEYS), item)
    return list(seen.values())


def _reverse(value: Any) -> Any:
    return value[::-1] if isinstance(value, str) else _all(reversed(value))


def _trim(value: str, characters: str | None = None) -> str:
    return value.strip(characters)


def _eager(name: str) -> Callable[..., list[Any]]:
    """Jinja's own filter of that name, with all that it yields in a list."""
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
    """What a function gives, with its `ValueError` as one of ours."""
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
    """What stands at a dotted path in an item; null where the way ends before."""
    for part in path.split("."):
        if isinstance(item, list) and part.isdigit():
            item = item[int(part)] if int(part) < len(item) else None
        else:
            item = item.get(part) if isinstance(item, Mapping) else None
    return item


_T = TypeVar("_T")

FILTERS: dict[str, tuple[Callable[..., Any], str]] = {
    "abs": (abs, "the number without its sign"),
    "after": (_after, "the moment so much later: `now | after('2h')`; a number is seconds"),
    "before": (_before, "the moment so much earlier: `now | before('30d')`"),
    "capitalize": (_text(str.capitalize), "the first letter large, the others small"),
    "date": (
        _date,
        "a moment as people write it: `now | date('%d.%m.%Y %H:%M', 'Europe/Berlin')`; left out: `%Y-%m-%d` in UTC",
    ),
    "default": (
        DEFAULT_FILTERS["default"],
        "another value where this one is undefined: `x | default('none')`; "
        "with `true` as second argument also where it is empty or null",
    ),
    "dictsort": (_eager("dictsort"), "the pairs of a mapping, sorted by key"),
    "duration": (_duration, "seconds as a duration: `5400 | duration` is `1h30m`"),
    "filesizeformat": (DEFAULT_FILTERS["filesizeformat"], "a number of bytes for people: `13.4 kB`"),
    "first": (DEFAULT_FILTERS["first"], "the first item of a list"),
    "float": (_float, "a number from text; an error if it is none, unless a default is given: `float(0)`"),
    "format": (_format, "text with the values in its places: `'%s: %.1f' | format(name, load)`"),
    "fromjson": (
        _fromjson,
        "the value that a JSON text is; an error if it is none, unless a default is given",
    ),
    "int": (_int, "a whole number from text; an error if it is none, unless a default is given: `int(0)`"),
    "items": (_eager("items"), "the pairs of a mapping"),
    "join": (
        _join,
        "the items of a list as one text: `join(', ')`, of their fields: `join(', ', attribute='name')`",
    ),
    "last": (DEFAULT_FILTERS["last"], "the last item of a list"),
    "length": (len, "how many items or characters"),
    "lines": (_lines, "the lines of a text as a list"),
    "list": (_eager("list"), "a list of the items, of the keys of a mapping, or of the characters of a text"),
    "lower": (_text(str.lower), "small letters"),
    "map": (
        _eager("map"),
        "one field of each item, `map(attribute='name')`, or a filter on each, `map('upper')`",
    ),
    "match": (
        _match,
        "what a regular expression matches first in a text, and its groups, as a list; null where it does not: "
        "`tag | match('v([0-9]+)')`",
    ),
    "max": (DEFAULT_FILTERS["max"], "the largest item"),
    "min": (DEFAULT_FILTERS["min"], "the smallest item"),
    "project": (
        _project,
        "a list of mappings, each field from a dotted path in the item: "
        "`nodes.each.iterations | project(host='item', up='outputs.check.stdout')`; null where there is nothing",
    ),
    "reject": (_eager("reject"), "the items that do not pass a test: `reject('none')`"),
    "rejectattr": (
        _eager("rejectattr"),
        "the items whose field does not pass: `rejectattr('state', 'eq', 'ok')`",
    ),
    "replace": (
        _replace,
        "the text with one part replaced by another; with `regex=true` what a regular expression matches: "
        "`replace('\\s+', ' ', regex=true)`, where `\\1` is a group",
    ),
    "reverse": (_reverse, "the other way round"),
    "round": (_round, "rounded: `round`, `round(2)`, `round(1, 'ceil')`, `round(0, 'floor')`"),
    "since": (_since, "seconds from an earlier moment to this one: `now | since(nodes.gate.at)`"),
    "select": (_eager("select"), "the items that pass a test: `select('gt', 3)`"),
    "selectattr": (_eager("selectattr"), "the items whose field passes: `selectattr('state', 'eq', 'ok')`"),
    "sort": (_eager("sort"), "sorted; `sort(reverse=true)`, `sort(attribute='name')`"),
    "split": (_split, "the parts of a text between separators, as a list: `split(',')`"),
    "string": (as_text, "the value as text; what is no text becomes JSON"),
    "sum": (DEFAULT_FILTERS["sum"], "the sum of the items, of their fields: `sum(attribute='size')`"),
    "title": (_text(DEFAULT_FILTERS["title"]), "each word with a large first letter"),
    "tojson": (_tojson, "the value as JSON text; `tojson(indent=2)` for people"),
    "trim": (_trim, "without white space, or the given characters, at both ends"),
    "truncate": (
        DEFAULT_FILTERS["truncate"],
        "cut to a length, with `...` where something was cut: `truncate(80)`",
    ),
    "unique": (_unique, "each item once"),
    "upper": (_text(str.upper), "large letters"),
    "urlencode": (DEFAULT_FILTERS["urlencode"], "quoted for use in a URL"),
}
"""Each filter with the sentence that the flow reference has for it."""


@functools.cache
def most_arguments(name: str) -> int | None:
    """How many arguments a filter takes at most; None where there is no limit."""
    parameters = list(inspect.signature(FILTERS[name][0]).parameters.values())
    if any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters):
        return None
    return len([each for each in parameters if each.name not in ("environment", "eval_ctx", "context")]) - 1


def _starts(value: str, prefix: str) -> bool:
    return value.startswith(prefix)


def _ends(value: str, suffix: str) -> bool:
    return value.endswith(suffix)


def _jinja_test(name: str) -> Callable[..., bool]:
    return cast(Callable[..., bool], DEFAULT_TESTS[name])


def _matching(value: str, pattern: str) -> bool:
    return _match(value, pattern) is not None


TESTS: dict[str, tuple[Callable[..., bool], str]] = {
    "defined": (_jinja_test("defined"), "it is there"),
    "undefined": (_jinja_test("undefined"), "it is not there"),
    "none": (_jinja_test("none"), "it is null, as the output of a skipped node is"),
    "boolean": (_jinja_test("boolean"), "it is true or false"),
    "number": (_jinja_test("number"), "it is a number"),
    "integer": (_jinja_test("integer"), "it is a whole number"),
    "float": (_jinja_test("float"), "it is a number with a point"),
    "string": (_jinja_test("string"), "it is text"),
    "mapping": (_jinja_test("mapping"), "it is a mapping"),
    "sequence": (_jinja_test("sequence"), "it is a list or text"),
    "true": (_jinja_test("true"), "it is true"),
    "false": (_jinja_test("false"), "it is false"),
    "even": (_jinja_test("even"), "the number is even"),
    "odd": (_jinja_test("odd"), "the number is odd"),
    "divisibleby": (_jinja_test("divisibleby"), "the number divides without remainder: `is divisibleby(3)`"),
    "in": (_jinja_test("in"), "it is one of these: `select('in', ['a', 'b'])`"),
    "matching": (_matching, "a regular expression matches somewhere in the text: `is matching('^v[0-9]')`"),
    "startswith": (_starts, "the text starts so: `is startswith('v')`"),
    "endswith": (_ends, "the text ends so: `is endswith('.yml')`"),
    "eq": (
        _jinja_test("eq"),
        "equal; with `ne`, `lt`, `le`, `gt`, `ge` for use in `select` and `selectattr`",
    ),
    "ne": (_jinja_test("ne"), "not equal"),
    "lt": (_jinja_test("lt"), "less"),
    "le": (_jinja_test("le"), "less or equal"),
    "gt": (_jinja_test("gt"), "greater"),
    "ge": (_jinja_test("ge"), "greater or equal"),
}
"""Each test (`x is defined`) with the sentence that the flow reference has for it."""
