"""Schema of an answer in the dialect of the API's structured outputs. Pure.

Constraints that the API cannot express are left to the instructions and to the check of the answer: bounds become part
of a description, and a schema that would change its meaning is not sent at all.
"""

from __future__ import annotations

from typing import Any

from engine.language.codec import Json, encode

MOST_OPTIONAL = 24
"""Properties that may be left out, in one schema."""
MOST_UNIONS = 16

_KEPT = ("title", "const", "enum", "$ref")
_TOLD = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
    *(
        "pattern",
        "format",
        "minItems",
        "maxItems",
        "uniqueItems",
        "default",
        "examples",
        "minProperties",
        "maxProperties",
    ),
)
_IGNORED = ("$schema", "$id", "$comment", "deprecated", "readOnly", "writeOnly")


class _Inexpressible(Exception):
    """The API cannot express it."""


def form_of(schema: Json) -> Json:
    """Return the schema as the API takes it, or None if it has no equivalent."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return None
    counts = {"optional": 0, "unions": 0}
    try:
        made = _strict(schema, counts)
        _refuse_recursion(made)
    except _Inexpressible:
        return None
    return made if counts["optional"] <= MOST_OPTIONAL and counts["unions"] <= MOST_UNIONS else None


def _strict(schema: Json, counts: dict[str, int]) -> dict[str, Any]:
    if not isinstance(schema, dict):
        raise _Inexpressible
    left = {name: value for name, value in schema.items() if name not in _IGNORED}
    made: dict[str, Any] = {name: left.pop(name) for name in _KEPT if name in left}
    if "$defs" in left:
        made["$defs"] = {name: _strict(each, counts) for name, each in left.pop("$defs").items()}
    kinds = left.pop("type", None)
    variants = left.pop("anyOf", None) or left.pop("oneOf", None)
    if isinstance(kinds, list):
        if variants or "object" in kinds or "array" in kinds:
            raise _Inexpressible
        variants, kinds = [{"type": kind} for kind in kinds], None
    if variants:
        counts["unions"] += 1
        made["anyOf"] = [_strict(each, counts) for each in variants]
    elif kinds is not None and "enum" not in made and "const" not in made:
        made["type"] = kinds
    if kinds == "object":
        # An object has the properties that are named, and no others: any other names cannot be expressed.
        properties, required = left.pop("properties", None), left.pop("required", [])
        if (
            not properties
            or isinstance(left.pop("additionalProperties", False), dict)
            or set(required) - set(properties)
        ):
            raise _Inexpressible
        counts["optional"] += len(set(properties) - set(required))
        inside = {name: _strict(each, counts) for name, each in properties.items()}
        made |= {"properties": inside, "required": list(required), "additionalProperties": False}
    elif kinds == "array" and "items" in left:
        made["items"] = _strict(left.pop("items"), counts)
    description = left.pop("description", None)
    told = {name: left.pop(name) for name in _TOLD if name in left}
    if left or not {"type", "anyOf", "$ref", "enum", "const"} & made.keys():
        raise _Inexpressible
    words = [str(description)] if description else []
    words += [f"{name}: {encode(value).decode()}" for name, value in told.items()]
    return {**made, "description": "; ".join(words)} if words else made


def _refuse_recursion(made: dict[str, Any]) -> None:
    """A definition that comes to itself again is refused by the API."""
    definitions: dict[str, Any] = made.get("$defs", {})

    def visit(part: Any, inside: tuple[str, ...]) -> None:
        if isinstance(part, list):
            for each in part:
                visit(each, inside)
        if not isinstance(part, dict):
            return
        name = str(part.get("$ref", "")).removeprefix("#/$defs/")
        if "$ref" in part:
            if name in inside or name not in definitions:
                raise _Inexpressible
            visit(definitions[name], (*inside, name))
        for key, each in part.items():
            if key != "$defs":
                visit(each, inside)

    visit(made, ())
