"""The JSON Schema of what an agent answers, as it stands in a file: what is wrong with it, and where. Pure.

Keywords that JSON Schema does not have are refused, although it would ignore them: a slip is no silent permission.
`$ref` leads to `$defs` of the same schema and nowhere else. Values are checked in `engine.language.json_schema`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from engine.flow.checks.raw_lists import as_list, as_mapping
from engine.language.codec import Json
from engine.language.diagnostics import Fault, Path, kind_of, suggest

TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
MAX_DEPTH = 32
"""How deep a schema may nest."""


def _is_text(value: Json) -> str | None:
    return None if isinstance(value, str) else "text"


def _is_flag(value: Json) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _is_number(value: Json) -> str | None:
    return None if isinstance(value, int | float) and not isinstance(value, bool) else "a number"


def _is_count(value: Json) -> str | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return None if fits else "a whole number from 0"


def _is_list(value: Json) -> str | None:
    if value == []:
        return "at least one entry"
    return None if isinstance(value, list) else "a list"


def _is_names(value: Json) -> str | None:
    fits = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return None if fits else "a list of names"


def _is_pattern(value: Json) -> str | None:
    try:
        re.compile(value)
    except (re.error, TypeError):
        return "a regular expression"
    return None


def _is_anything(value: Json) -> str | None:
    return None


_PLAIN: Mapping[str, Callable[[Json], str | None]] = {
    "$id": _is_text,
    "$schema": _is_text,
    "$comment": _is_text,
    "title": _is_text,
    "description": _is_text,
    "format": _is_text,
    "default": _is_anything,
    "examples": _is_list,
    "deprecated": _is_flag,
    "readOnly": _is_flag,
    "writeOnly": _is_flag,
    "enum": _is_list,
    "const": _is_anything,
    "minimum": _is_number,
    "maximum": _is_number,
    "exclusiveMinimum": _is_number,
    "exclusiveMaximum": _is_number,
    "multipleOf": _is_number,
    "minLength": _is_count,
    "maxLength": _is_count,
    "pattern": _is_pattern,
    "minItems": _is_count,
    "maxItems": _is_count,
    "uniqueItems": _is_flag,
    "minProperties": _is_count,
    "maxProperties": _is_count,
    "required": _is_names,
    "minContains": _is_count,
    "maxContains": _is_count,
}
_ONE = (
    "items",
    "contains",
    "additionalProperties",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs")
KEYWORDS = frozenset({*_PLAIN, *_ONE, *_LISTED, *_NAMED, "type", "$ref"})
"""The keywords that a schema may have."""


# --- schemas -----------------------------------------------------------------------------------------------


def schema_faults(schema: Json) -> Iterator[Fault]:
    """What keeps a value from being a schema that can be used here. Paths begin at the schema."""
    yield from _schema(schema, (), schema, 0)


def _schema(schema: Json, path: Path, root: Json, depth: int) -> Iterator[Fault]:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield Fault(
            path, f"expected a JSON Schema, a mapping such as {{type: string}}, not {kind_of(schema)}"
        )
        return
    if depth > MAX_DEPTH:
        yield Fault(path, f"the schema nests deeper than {MAX_DEPTH} levels")
        return
    for keyword, value in schema.items():
        here = (*path, keyword)
        if keyword in _PLAIN:
            expected = _PLAIN[keyword](value)
            if expected is not None:
                yield Fault(here, f"expected {expected}{_but(value)}")
        elif keyword == "type":
            yield from _type(value, here)
        elif keyword in _ONE:
            yield from _schema(value, here, root, depth + 1)
        elif keyword in _LISTED:
            yield from _several(value, here, root, depth, list)
        elif keyword in _NAMED:
            yield from _several(value, here, root, depth, dict)
        elif keyword == "$ref":
            yield from _reference(value, here, root)
        else:
            yield Fault(
                here, f"unknown keyword `{keyword[:80]}`", suggest(keyword, KEYWORDS, ""), on_key=True
            )
    yield from _together(schema, path)


def _but(value: Json) -> str:
    return "" if value == [] else f", not {kind_of(value)}"


def _type(value: Json, path: Path) -> Iterator[Fault]:
    if value == []:
        yield Fault(path, "expected at least one entry")
    for index, name in enumerate(value if isinstance(value, list) else [value]):
        if name not in TYPES:
            hint = suggest(name, TYPES, "") or None if isinstance(name, str) else None
            where = (*path, index) if isinstance(value, list) else path
            yield Fault(where, f"expected {', '.join(TYPES)}, not {kind_of(name)}", hint)


def _several(value: Json, path: Path, root: Json, depth: int, kind: type) -> Iterator[Fault]:
    if value == [] and kind is list:
        yield Fault(path, "expected at least one schema")
        return
    if not isinstance(value, kind):
        yield Fault(
            path, f"expected a {'list' if kind is list else 'mapping'} of schemas, not {kind_of(value)}"
        )
        return
    pairs = value.items() if isinstance(value, dict) else enumerate(as_list(value))
    for key, schema in pairs:
        if path[-1] == "patternProperties" and _is_pattern(key) is not None:
            yield Fault((*path, key), f"{str(key)[:80]!r} is no regular expression", on_key=True)
        yield from _schema(schema, (*path, key), root, depth + 1)


def _reference(value: Json, path: Path, root: Json) -> Iterator[Fault]:
    if _resolved(value, root) is None:
        known = as_mapping(root.get("$defs")) if isinstance(root, dict) else {}
        hint = suggest(str(value), [f"#/$defs/{name}" for name in known], "write it as #/$defs/<name>")
        yield Fault(path, f"{kind_of(value)} leads to no schema under `$defs`", hint)


def _resolved(value: Json, root: Json) -> Json:
    if value == "#":
        return root
    definitions = root.get("$defs") if isinstance(root, dict) else None
    if isinstance(value, str) and value.startswith("#/$defs/") and isinstance(definitions, dict):
        return definitions.get(value.removeprefix("#/$defs/"))
    return None


def _together(schema: Mapping[str, Json], path: Path) -> Iterator[Fault]:
    """Keywords that contradict each other."""
    properties, required = schema.get("properties"), schema.get("required")
    if (
        isinstance(properties, dict)
        and isinstance(required, list)
        and schema.get("additionalProperties") is False
    ):
        for index, name in enumerate(required):
            if isinstance(name, str) and name not in properties and "patternProperties" not in schema:
                hint = suggest(name, properties)
                yield Fault((*path, "required", index), f"`{name[:80]}` is not among `properties`", hint)
    for low, high in (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems")):
        least, most = schema.get(low), schema.get(high)
        if isinstance(least, int | float) and isinstance(most, int | float) and least > most:
            yield Fault((*path, low), f"`{low}` is more than `{high}`: nothing fits")
