"""Inputs of a start: from the text of a chat message or a command line, or from JSON, to checked values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress

from engine.flow.model import Flow, Input, InputType
from engine.language.codec import Json, clean_text, copy, encode, place_of, read
from engine.language.diagnostics import QUOTE_IT, kind_of, suggest
from engine.language.errors import Inexact, InvalidInputs, NotJson

_TRUE = ("true", "yes", "y", "on", "1")
_FALSE = ("false", "no", "n", "off", "0")
_WORDS: Mapping[str, str] = {
    "string": "text",
    "number": "a number such as 2.5",
    "integer": "a whole number such as 3",
    "boolean": "true or false",
    "array": "a list such as a,b or [1, 2]",
    "object": 'JSON such as {"key": "value"}',
}


MOST_INPUTS = 1024 * 1024
"""Bytes of JSON that all inputs of a start have together: they are in the journal, and in every snapshot."""
_MOST_TOLD = 20
"""Most wrong inputs named in an error."""


def coerce_inputs(flow: Flow, given: Mapping[str, Json]) -> tuple[dict[str, Json], list[str]]:
    """The values of a start and the names of required inputs that are still missing.

    Text is read by the input's type, other JSON is checked against it. Inputs that were not given get their
    default, or null when they are not required. Raises `InvalidInputs` for an unknown name, a wrong value or more than
    `MOST_INPUTS`.
    """
    size = 0
    with suppress(NotJson):  # said below, with the input's name
        size = len(encode(dict(given)))
    if size > MOST_INPUTS:
        raise InvalidInputs(
            f"The inputs have {size:,} bytes; the limit is {MOST_INPUTS:,}. Pass the address of large data "
            "instead."
        )
    wrong = [_unknown(flow, name) for name in given if name not in flow.inputs]
    values: dict[str, Json] = {}
    missing: list[str] = []
    for name, entry in flow.inputs.items():
        if name not in given:
            if entry.required:
                missing.append(name)
            else:
                values[name] = copy(entry.default)
            continue
        try:
            values[name] = parse_input(entry, given[name])
        except InvalidInputs as error:
            wrong.append(str(error))
    if wrong:
        more = [f"… and {len(wrong) - _MOST_TOLD:,} more"] if len(wrong) > _MOST_TOLD else []
        raise InvalidInputs("\n".join([*wrong[:_MOST_TOLD], *more]))
    return values, missing


def parse_input(entry: Input, given: Json) -> Json:
    """Parse a value for an input, from text or JSON. Raises `InvalidInputs`, naming the input and its type."""
    try:
        value = _read(entry.type, entry.items, given) if isinstance(given, str) else given
        problem = check_value(entry, value)
        if problem is not None:
            shown = given if isinstance(given, str) else value
            hint = f" ({hint})" if (hint := to_text(problem, shown)) else ""
            raise InvalidInputs(f"input `{entry.name}`: {problem}, not {kind_of(shown)}{hint}")
        return copy(_spelled(entry, value))
    except NotJson as error:
        raise InvalidInputs(f"input `{entry.name}`: expected {_WORDS[entry.type]}, and {error}") from error


def check_value(entry: Input, value: Json) -> str | None:
    """Return the input's expectation if the value does not meet it, else None."""
    if not _fits(entry.type, value):
        return f"expected {_WORDS[entry.type]}"
    if entry.items is not None and isinstance(value, list):
        for position, item in enumerate(value, 1):
            if not _fits(entry.items, item):
                return f"expected {_WORDS[entry.items]} as item {position}"
    if entry.choices is not None:
        values = value if entry.type == "array" else [value]
        if any(place_of(item, entry.choices) is None for item in values):
            return f"expected one of {', '.join(str(choice) for choice in entry.choices)}"
    return None


def to_text(problem: str, value: Json) -> str | None:
    """Return the hint for a value that should be a text."""
    return QUOTE_IT if problem == "expected text" and isinstance(value, bool | int | float) else None


def _unknown(flow: Flow, name: str) -> str:
    otherwise = None if flow.inputs else f"flow `{flow.name}` takes no inputs"
    hint = suggest(name, flow.inputs, otherwise)
    return f"unknown input `{name[:80]}`" + (f" ({hint})" if hint else "")


def _spelled(entry: Input, value: Json) -> Json:
    """A value with its choices as the flow has them."""
    if entry.choices is None:
        return value
    if isinstance(value, list):
        return [entry.choices[place_of(item, entry.choices) or 0] for item in value]
    return entry.choices[place_of(value, entry.choices) or 0]


def _fits(kind: InputType, value: Json) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)


def _read(kind: InputType, items: InputType | None, text: str) -> Json:
    """A text read as a type; the text itself when it cannot be, so that the check that follows refuses it."""
    text = clean_text(text)[0]
    if kind == "string":
        return text
    stripped = text.strip()
    if kind == "boolean":
        word = stripped.lower()
        return True if word in _TRUE else False if word in _FALSE else text
    if kind == "array" and not stripped.startswith("["):
        parts = [part.strip() for part in stripped.split(",")] if stripped else []
        return [_read(items or "string", None, part) for part in parts if part]
    try:
        return read(stripped.removeprefix("+"))
    except Inexact:
        raise
    except NotJson:
        return text
