"""JSON and text in their stored form, in one encoding that is strict in both directions; and JSON Schema, with readable
messages for values that do not fit. Pure.

A flow always sees the decoded copy of the stored value, so a value that JSON cannot carry is refused when it is made,
rather than missing after a restart.

The library for JSON Schema is loaded by the first use. It fetches nothing: a `$ref` leads to a place in the same
schema.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

from engine.language.errors import Inexact, NotJson

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator


Json: TypeAlias = Any
"""A JSON value: None, bool, int, float, str, list of Json, dict of str to Json."""

_STRICT = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_SUBCLASS
_MAX_INTEGER = 2**63
_SURROGATE = re.compile("[\ud800-\udfff]")
_LONG, _LONG_BYTES = re.compile(r"\d{19}", re.ASCII), re.compile(rb"\d{19}")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def encode(value: Json) -> bytes:
    """The bytes of a JSON value. Raises `NotJson` for dates, subclasses, NaN, infinities and lone surrogates."""
    try:
        data = orjson.dumps(value, option=_STRICT)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(f"{_culprit(value)}: {error}") from error
    # orjson writes NaN and infinities as null; only then is it worth looking for one.
    if b"null" in data and _has_nan(value):
        _refuse_nan(value, "value")
    return data


def canonical(value: Json) -> bytes:
    """Bytes with sorted keys, for digests: equal values give equal bytes."""
    encode(value)
    return orjson.dumps(value, option=_STRICT | orjson.OPT_SORT_KEYS)


def decode(data: bytes) -> Json:
    """The JSON value of these bytes. Raises `NotJson`."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise NotJson(f"not JSON: {error}") from error


def read(data: bytes | str) -> Json:
    """Decode foreign JSON. Raises `NotJson`, and `Inexact` for an integer beyond 64 bits."""
    value = decode(data.encode("utf-8", "replace") if isinstance(data, str) else data)
    if (_LONG if isinstance(data, str) else _LONG_BYTES).search(data):  # type: ignore[arg-type]
        try:
            json.loads(data, parse_int=_exact)
        except RecursionError as error:
            raise NotJson(f"not JSON: {error}") from error
    return value


def _exact(digits: str) -> None:
    if not -_MAX_INTEGER <= int(digits[:40]) < 2 * _MAX_INTEGER:
        raise Inexact(f"the number {digits[:40]} does not fit in 64 bits; as a text it would be exact")


def decode_signed(data: bytes) -> Json:
    """Decode signed JSON. Duplicate keys are refused, since readers differ in which one counts."""
    value = read(data)
    try:
        json.loads(data, object_pairs_hook=_refuse_twice, parse_int=str, parse_float=str)
    except RecursionError as error:
        raise NotJson("nested too deeply") from error
    return value


def _refuse_twice(pairs: list[tuple[str, Json]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise NotJson(f"the key {twice[:80]!r} appears twice in one object")


def copy(value: Json) -> Json:
    """Return the value that a reader will see once it is stored."""
    return decode(encode(value))


def lines_of(text: str) -> list[str]:
    r"""Return the lines of a text, which end only with `\n` or `\r\n`; the last one may lack an end."""
    found = text.replace("\r\n", "\n").split("\n")
    return found if found[-1] else found[:-1]


def same(left: Json, right: Json) -> bool:
    """True if two values are equal: numbers by value (1 is 1.0); true and false are not numbers."""
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def whole(value: Json) -> Json:
    """The same value, each number without a fraction as an integer: 1.0 is found where 1 is looked up."""
    if isinstance(value, list):
        return [whole(item) for item in value]
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    return (
        int(value) if isinstance(value, float) and value.is_integer() and abs(value) < _MAX_INTEGER else value
    )


def nfc(value: Json) -> Json:
    """Return a text normalized for comparison: `é` may be one character or two, as on a Mac. Other values are
    unchanged."""
    return unicodedata.normalize("NFC", value) if isinstance(value, str) else value


def place_of(value: Json, known: Sequence[Json]) -> int | None:
    """Return the index of a value among the known ones, in any Unicode composition; None if it is not there."""
    compared = [known, [nfc(each) for each in known]]
    for wanted, among in zip((value, nfc(value)), compared, strict=True):
        for index, each in enumerate(among):
            if same(wanted, each):
                return index
    return None


def clean_text(text: str) -> tuple[str, bool]:
    """Return text normalized for input: NFC, without lone surrogates and NUL (each becomes U+FFFD).

    Also returns True if anything was replaced.
    """
    cleaned = _UNSTORABLE.sub("\ufffd", text)
    return str(nfc(cleaned)), cleaned != text


def _has_nan(value: Json) -> bool:
    """True if there is a NaN or an infinity anywhere. Asked of most values, so it notes no places and is quick about
    leaves."""
    kind = type(value)
    if kind is not dict and kind is not list and kind is not tuple:
        return isinstance(value, float) and not math.isfinite(value)
    for item in value.values() if kind is dict else value:
        kind = type(item)
        if kind is not str and item is not None and kind is not int and kind is not bool and _has_nan(item):
            return True
    return False


def _refuse_nan(value: Json, where: str) -> None:
    """Name the first NaN or infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        raise NotJson(f"{where} is {value}, which JSON cannot represent")
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_nan(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _refuse_nan(item, f"{where}[{index}]")


def _culprit(value: Json, where: str = "value", depth: int = 0) -> str:
    """The path to the first part of a value that is not JSON, for the error text."""
    if depth > 100:
        return f"{where} is nested too deeply"
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str:
                return f"{where} has a key that is not text ({key!r})"
            inner = _culprit(item, f"{where}.{key}", depth + 1)
            if inner:
                return inner
        return "" if depth else f"{where} is not JSON"
    if isinstance(value, list):
        for index, item in enumerate(value):
            inner = _culprit(item, f"{where}[{index}]", depth + 1)
            if inner:
                return inner
        return "" if depth else f"{where} is not JSON"
    if type(value) is str:
        return f"{where} is text that is not Unicode" if _SURROGATE.search(value) else ""
    if value is None or type(value) in (bool, float):
        return ""
    if type(value) is int:
        return "" if -_MAX_INTEGER <= value < 2 * _MAX_INTEGER else f"{where} is an integer beyond 64 bits"
    return f"{where} is a {type(value).__name__}, not JSON"


# --- JSON Schema -------------------------------------------------------------------------------------------


MOST_PROBLEMS = 5
_LONGEST = 300


def problems(schema: Json, value: Json) -> list[str]:
    """Return why a value does not fit a schema: a few short sentences, the outermost first; empty if it fits."""
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    found: list[ValidationError] = []
    try:
        found.extend(islice(_validator(canonical(schema)).iter_errors(value), 50))
    except (Unresolvable, RecursionError) as error:
        return [f"the schema cannot be used: {str(error)[:_LONGEST]}"]
    found.sort(key=lambda error: (len(error.path), [str(part) for part in error.path]))
    told = [_problem(best_match([error]) or error) for error in found[:MOST_PROBLEMS]]
    more = len(found) - MOST_PROBLEMS
    return [*dict.fromkeys(told), *([f"and {more} more"] if more > 0 else [])]


@lru_cache(maxsize=64)
def _validator(schema: bytes) -> Validator:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import create
    from referencing import Registry

    library = Draft202012Validator.VALIDATORS

    def enum(validator: Validator, known: Json, value: Json, schema: Json) -> Iterator[ValidationError]:
        yield from library["enum"](validator, [nfc(each) for each in known], nfc(value), schema)

    def const(validator: Validator, known: Json, value: Json, schema: Json) -> Iterator[ValidationError]:
        yield from library["const"](validator, nfc(known), nfc(value), schema)

    # Texts are compared as in forms. The registry is empty: without one the library would fetch the target of a `$ref`.
    kind = create(Draft202012Validator.META_SCHEMA, {**library, "enum": enum, "const": const})
    return kind(json.loads(schema), registry=Registry())


def _problem(error: ValidationError) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    text: str = " ".join(error.message.split())
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
    return f"{where.lstrip('.')[:100]}: {text}" if where else text
