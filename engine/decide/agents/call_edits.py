"""Changing a tool call before it is approved: its input as a form, and the form as an input again. Pure.

Each text, number or yes/no of the tool's schema is a field of its own with the model's value in it; everything else is
one field of JSON. What a form of Slack cannot hold stays as it is. What nobody touched comes back exactly as it was.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from engine.flow.node import ToolPlan
from engine.forms import MOST_TEXT, is_empty
from engine.forms.parse import read_value, units
from engine.language.codec import Json, clean_text, decode, encode
from engine.language.errors import InvalidAnswer, NotJson

REST = "other_input"
"""The name of the field for everything that has no field of its own."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)
_PLAIN = ("string", "number", "integer", "boolean")
_MOST_FIELDS = 20
_LONG = ("content", "body", "text", "query", "command", "message")


class _Entry(NamedTuple):
    """A field of the form. `key` is the name in the input; None for the one that holds the rest."""

    key: str | None
    field: dict[str, Json]


def edit_fields(tool: ToolPlan, given: Mapping[str, Json]) -> list[dict[str, Json]]:
    """The settled fields of the form (see `engine.forms`) in which people change this input."""
    return [entry.field for entry in _entries(tool, given)]


def edited(tool: ToolPlan, given: Mapping[str, Json], values: Mapping[str, Json]) -> dict[str, Json]:
    """The input with what people filled in. Raises `InvalidAnswer` for text that is not JSON where JSON belongs."""
    found = dict(given)
    for key, field in _entries(tool, given):
        name = field["name"]
        if name not in values or values[name] == field.get("default"):
            continue
        if key is None:
            found = {
                **_rest_of(str(values[name] or "{}")),
                **{k: v for k, v in found.items() if k in _own(tool, given)},
            }
        elif is_empty(values[name]) and not field["required"]:
            found.pop(key, None)
        else:
            found[key] = values[name]
    return found


def _rest_of(text: str) -> dict[str, Json]:
    try:
        value = decode(text.encode("utf-8", "replace"))
    except NotJson as error:
        raise InvalidAnswer(f'This is {error}. Write JSON, such as {{"limit": 10}}.') from error
    if not isinstance(value, dict):
        raise InvalidAnswer('Write a JSON object, such as {"limit": 10}.')
    return value


def _own(tool: ToolPlan, given: Mapping[str, Json]) -> frozenset[str]:
    """What the rest does not hold: fields of their own, and what is too long for any."""
    named = {entry.key for entry in _entries(tool, given) if entry.key is not None}
    return frozenset(
        named | {key for key, value in given.items() if isinstance(value, str) and _too_long(value)}
    )


def _entries(tool: ToolPlan, given: Mapping[str, Json]) -> list[_Entry]:
    found = list(_plain_entries(tool, given))
    held = {entry.key for entry in found}
    rest = {
        key: value
        for key, value in given.items()
        if key not in held and not (isinstance(value, str) and _too_long(value))
    }
    text = encode(rest).decode()
    if clean_text(text)[0] != text:  # what a form gives back is clean
        text = json.dumps(rest)
    if rest and not _too_long(text):
        about = (
            "JSON: what the tool is given beside the fields above."
            if found
            else "JSON: what the tool is given."
        )
        field = _field(REST, "Other input" if found else "Input", "string", required=False, description=about)
        found.append(_Entry(None, {**field, "multiline": True, "default": text}))
    return found


def _plain_entries(tool: ToolPlan, given: Mapping[str, Json]) -> Iterator[_Entry]:
    schema = tool.input_schema if isinstance(tool.input_schema, dict) else {}
    properties = schema.get("properties") or {}
    required = schema.get("required") or []
    taken = 0
    for index, (key, body) in enumerate(properties.items()):
        kind = body.get("type") if isinstance(body, dict) else None
        if kind not in _PLAIN or taken == _MOST_FIELDS or not _holds(kind, given.get(key)):
            continue
        taken += 1
        name = key if _NAME.fullmatch(key) and key != REST else f"field_{index}"
        field = _field(
            name, str(key)[:150], kind, required=key in required, description=body.get("description")
        )
        yield _Entry(key, _filled(field, key, body, given))


def _filled(
    field: dict[str, Json], key: str, body: Mapping[str, Json], given: Mapping[str, Json]
) -> dict[str, Json]:
    value = given.get(key)
    options = body.get("enum")
    if (
        isinstance(options, list)
        and options
        and all(isinstance(option, str) and option for option in options)
    ):
        field |= {
            "type": "choice",
            "options": [{"value": option, "label": option[:75]} for option in options],
        }
    elif field["type"] == "string" and (key in _LONG or "\n" in str(value)):
        field["multiline"] = True
    if not is_empty(value):
        with contextlib.suppress(InvalidAnswer):
            field["default"] = read_value(field, value)
    return field


def _field(name: str, title: str, kind: str, *, required: bool, description: Json) -> dict[str, Json]:
    field: dict[str, Json] = {"name": name, "type": kind, "title": title, "required": required}
    return (
        {**field, "description": description[:300]} if isinstance(description, str) and description else field
    )


def _holds(kind: str, value: Json) -> bool:
    """Whether a field of this type can show this value."""
    if value is None:
        return True
    if kind == "string":
        return isinstance(value, str) and not _too_long(value)
    if kind == "boolean":
        return isinstance(value, bool)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _too_long(text: str) -> bool:
    return units(text) > MOST_TEXT
