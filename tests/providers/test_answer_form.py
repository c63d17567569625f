"""The schema of an answer in the words that the API takes."""

from __future__ import annotations

from typing import Any

import pytest

from engine.messages.answer_form import form_of
from tests.support.claude_rules import _check_form

TEXT = {"type": "string"}


def of(**properties: Any) -> dict[str, Any]:
    """An object with these properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}


@pytest.mark.parametrize(
    "schema",
    [
        of(cause=TEXT, sure={"type": "boolean"}),
        of(count={"type": "integer", "minimum": 1, "description": "How many"}),
        of(name={"type": ["string", "null"], "maxLength": 20}),
        of(parts={"type": "array", "items": {"$ref": "#/$defs/part"}}) | {"$defs": {"part": of(name=TEXT)}},
        of(kind={"enum": ["a", "b"]}, when={"type": "string", "format": "date"}),
        of(either={"oneOf": [TEXT, {"type": "integer"}]}) | {"$schema": "x", "additionalProperties": False},
    ],
)
def test_a_form_is_taken_by_the_api(schema: dict[str, Any]) -> None:
    """What the API does not know becomes words; objects have the properties that they name."""
    made = form_of(schema)
    assert made is not None
    _check_form(made, "schema")
    assert made["required"] == schema["required"]


def test_a_bound_becomes_words() -> None:
    """The model may keep to it, and the answer is checked."""
    made = form_of(of(count={"type": "integer", "minimum": 1, "description": "How many"}))
    assert made["properties"]["count"] == {"type": "integer", "description": "How many; minimum: 1"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": TEXT},
        {"type": "object"},
        of(labels={"type": "object", "additionalProperties": TEXT}),
        of(x={"allOf": [TEXT]}),
        of(x={}),
        of(x={"not": TEXT}),
        of(tree={"$ref": "#/$defs/t"}) | {"$defs": {"t": of(next={"$ref": "#/$defs/t"})}},
        {**of(**{f"x{n}": TEXT for n in range(25)}), "required": []},
        of(**{f"x{n}": {"type": ["string", "null"]} for n in range(17)}),
    ],
)
def test_what_cannot_be_said_is_not_sent(schema: dict[str, Any]) -> None:
    """No form is better than one that means something else, such as a map that must be empty."""
    assert form_of(schema) is None
