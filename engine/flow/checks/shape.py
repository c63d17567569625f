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


def _is_pattern(value: Json) -> bool:
    try:
        re.compile(value)
    except (re.error, TypeError):
        return False
    return True


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_names(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


_KINDS: tuple[tuple[str, Callable[[Json], bool], str], ...] = (
    ("text", lambda value: isinstance(value, str), "$id $schema $comment title description format"),
    ("true or false", lambda value: isinstance(value, bool), "deprecated readOnly writeOnly uniqueItems"),
    ("a number", _is_number, "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf"),
    (
        "a whole number from 0",
        lambda value: _is_number(value) and isinstance(value, int) and value >= 0,
        "minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains",
    ),
    ("a list", lambda value: isinstance(value, list), "examples enum"),
    ("a list of names", _is_names, "required"),
    ("a regular expression", _is_pattern, "pattern"),
    ("anything", lambda value: True, "default const"),
)
_PLAIN = {keyword: (words, fits) for words, fits, keywords in _KINDS for keyword in keywords.split()}
"""By keyword what its value has to be."""
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
            words, fits = _PLAIN[keyword]
            if words == "a list" and value == []:
                yield Fault(here, "expected at least one entry")
            elif not fits(value):
                yield Fault(here, f"expected {words}{_but(value)}")
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
        if path[-1] == "patternProperties" and not _is_pattern(key):
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
