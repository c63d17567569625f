"""Arguments of a call of an agent outside of sayso as fields of a form, in which people change them before they approve. Pure.

Each text, number and yes/no is a field; a list or an object is a field with its JSON. What a form cannot hold, and what looks
like a key or a token, has no field and stays as the agent sent it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from engine.forms import form_faults, is_empty
from engine.forms.parse import read_value
from engine.language.codec import Json, clean_text, read
from engine.language.credentials import without_credentials
from engine.language.errors import InvalidAnswer, NotJson

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}", re.ASCII)
"""Names of arguments that can be written into an expression."""
_NAME = re.compile(r"(?!argument_)[a-z][a-z0-9_]{0,63}", re.ASCII)
_TYPES: dict[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}
_EXAMPLES: dict[type, str] = {list: "[1, 2]", dict: '{"limit": 10}'}
_MOST_FIELDS = 20


class Part(NamedTuple):
    """An argument with a field: its name, the field's name and JSON Schema, and the value that the field shows at first."""

    key: str
    name: str
    body: dict[str, Json]
    shown: Json
    is_json: bool


def parts(arguments: Mapping[str, Json]) -> list[Part]:
    """Return the arguments that can be changed; none of very many, or where a name cannot be written into an expression."""
    if len(arguments) > _MOST_FIELDS or not all(_KEY.fullmatch(key) for key in arguments):
        return []
    found: list[Part] = []
    numbers = {key: number for number, key in enumerate(sorted(arguments), 1)}
    for key, value in arguments.items():
        name = key if _NAME.fullmatch(key) else f"argument_{numbers[key]}"
        is_json = isinstance(value, list | dict)
        body: dict[str, Json] = {"type": "string" if is_json else _TYPES.get(type(value)), "title": key}
        if is_json:
            body["description"] = "JSON"
            text = json.dumps(value, indent=2, ensure_ascii=False)
            # What a form gives back is clean.
            value = text if clean_text(text)[0] == text else json.dumps(value, indent=2)
        if body["type"] == "string":
            body["multiline"] = True
        hides = isinstance(value, str) and without_credentials(value) != value
        if value is None or hides or any(form_faults({"properties": {name: body}})):
            continue
        with suppress(InvalidAnswer):
            shown = None if is_empty(value) else read_value(body, value)
            found.append(Part(key, name, body, shown, is_json))
    return found


def check(arguments: Mapping[str, Json], values: Mapping[str, Json]) -> None:
    """Raise `InvalidAnswer` unless each changed list or object is JSON, and still a list or an object."""
    for part in parts(arguments):
        text = values.get(part.name)
        if not part.is_json or text == part.shown:
            continue
        kind = type(arguments[part.key])
        try:
            value = read(str(text))
        except NotJson as error:
            said = f"`{part.key}`: this is {error}. Write JSON, such as {_EXAMPLES[kind]}."
            raise InvalidAnswer(said) from error
        if not isinstance(value, kind):
            raise InvalidAnswer(f"`{part.key}` must keep its type. Write JSON, such as {_EXAMPLES[kind]}.")
