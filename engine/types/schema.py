"""Types of what documents declare: inputs, forms, JSON Schemas. They may be wrong: that is reported elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.language.template import has_expression
from engine.types.lattice import (
    ANY,
    FLAG,
    FREE_MAPPING,
    LIST,
    MAPPING,
    NONE,
    NULL,
    NUMBERS,
    TEXTS,
    Type,
    list_of,
    mapping_of,
    of_value,
    one_of,
    union,
)

_BY_NAME: Mapping[str, Type] = {
    "string": TEXTS,
    "number": NUMBERS,
    "integer": NUMBERS,
    "boolean": FLAG,
    "array": list_of(None),
    "object": FREE_MAPPING,
    "null": NONE,
}
_MOST_DEPTH = 32
_UNKNOWABLE = ("$ref", "$dynamicRef", "allOf", "not", "if", "then", "else")


def input_type(entry: Any) -> Type:
    """The type of an input, of a flow or of a tool, as it is written."""
    written = entry if isinstance(entry, Mapping) else {}
    kind = written.get("type", "string")
    choices = _choices(written.get("choices"))
    found = _BY_NAME.get(kind, ANY) if isinstance(kind, str) else ANY
    if kind == "array":
        items = written.get("items")
        named = items.get("type", "string") if isinstance(items, Mapping) else None
        found = list_of(choices or (_BY_NAME.get(named) if isinstance(named, str) else None))
    elif choices is not None:
        found = choices
    may_be_absent = written.get("required") is False and written.get("default") is None
    return found.or_null("it is not required and has no default") if may_be_absent else found


def _choices(choices: Any) -> Type | None:
    if not isinstance(choices, list) or not choices:
        return None
    plain = all(isinstance(each, str | int | float) and not isinstance(each, bool) for each in choices)
    return one_of(choices) if plain and not any(has_expression(each) for each in choices) else None


def form_type(form: Any, editable: Any = None) -> Type:
    """The type of the values of a form; of a question without one an empty mapping. Where only the `editable` fields can
    be changed, the others keep their default."""
    if form is None:
        return mapping_of({})
    properties = form.get("properties") if isinstance(form, Mapping) else None
    if not isinstance(properties, Mapping):
        return FREE_MAPPING
    required = form.get("required")
    needed = [*required] if isinstance(required, list) else []
    if editable is not None:
        changed = editable if isinstance(editable, list | tuple) else properties
        needed += [name for name, body in properties.items() if name not in changed and _has_default(body)]
    return mapping_of({name: _form_field(body, name in needed) for name, body in properties.items()})


def _has_default(body: Any) -> bool:
    return isinstance(body, Mapping) and body.get("default") is not None


def _form_field(body: Any, needed: bool) -> Type:
    written = body if isinstance(body, Mapping) else {}
    kind = written.get("type")
    found = _BY_NAME.get(kind, ANY) if isinstance(kind, str) else ANY
    if kind == "array":
        items = written.get("items")
        found = list_of(_options(items if isinstance(items, Mapping) else {}) or TEXTS)
    else:
        found = _options(written) or found
    # A box has no third state, and a list may be empty; anything else that is left out is null.
    settled = needed or kind == "array" or (kind == "boolean" and "default" in written)
    return found if settled else found.or_null("the field may be left empty")


def _options(holder: Mapping[str, Any]) -> Type | None:
    titled = holder.get("oneOf")
    if isinstance(titled, list):
        return _choices([each.get("const") if isinstance(each, Mapping) else None for each in titled])
    return _choices(holder.get("enum"))


def schema_type(schema: Any, depth: int = 0) -> Type:
    """The type of a value that fits a JSON Schema, as far as it says so."""
    if not isinstance(schema, Mapping) or depth > _MOST_DEPTH or any(word in schema for word in _UNKNOWABLE):
        return ANY
    if "const" in schema:
        return of_value(schema["const"])
    if isinstance(schema.get("enum"), list):
        return union(map(of_value, schema["enum"]))
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list):
            return union(schema_type(each, depth + 1) for each in schema[word])
    named = schema.get("type")
    if named is None:
        named = "object" if "properties" in schema else "array" if "items" in schema else None
    kinds = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    return union(_schema_kind(kind, schema, depth) for kind in kinds) if kinds else ANY


def _schema_kind(kind: Any, schema: Mapping[str, Any], depth: int) -> Type:
    if kind == "array":
        return Type(LIST, items=schema_type(schema["items"], depth + 1) if "items" in schema else None)
    if kind == "object":
        return _schema_mapping(schema, depth)
    if kind == "null":
        return Type(NULL, why="its schema allows null")
    return _BY_NAME.get(kind, ANY) if isinstance(kind, str) else ANY


def _schema_mapping(schema: Mapping[str, Any], depth: int) -> Type:
    """Fields that a schema does not name are possible in JSON Schema, and hardly ever meant: who uses one declares it."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return FREE_MAPPING
    fields = {str(name): schema_type(inner, depth + 1) for name, inner in properties.items()}
    more = schema.get("additionalProperties")
    open_ended = schema.get("patternProperties") or more is True or isinstance(more, Mapping)
    rest = ANY if open_ended else None
    return Type(MAPPING, fields=fields, rest=rest)
