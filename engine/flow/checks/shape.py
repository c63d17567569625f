"""Raw data of a flow before it is checked: the JSON Schema of an agent's output, the places of lists of nodes, and the
types of expressions against their fields. Pure.

Keywords that JSON Schema does not have are refused, although it would ignore them: a typo must not widen a schema.
`$ref` leads to `$defs` of the same schema only. Values are checked in `engine.language.codec`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

from msgspec.structs import replace

from engine.language.codec import Json
from engine.language.diagnostics import Fault, Path, kind_of, list_hint, suggest
from engine.nodes.types.registry import node_types
from engine.nodes.types.spec import GUARD, PARTS, NodeSpec
from engine.types.lattice import BOOLEAN, LIST, MAPPING, NULL, NUMBER, TEXT, Type, because, shown, words
from engine.types.pieces import Pieces, Record, single

TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
MAX_DEPTH = 32
"""Most levels of nesting in a schema."""


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
"""Required value by keyword."""
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
    """Yield the reasons why a value is not a usable schema. Paths begin at the schema."""
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
                yield Fault(here, f"expected {words}" + ("" if value == [] else f", not {kind_of(value)}"))
        elif keyword == "type":
            if value == []:
                yield Fault(here, "expected at least one entry")
            for index, name in enumerate(value if isinstance(value, list) else [value]):
                if name not in TYPES:
                    hint = suggest(name, TYPES, "") or None if isinstance(name, str) else None
                    where = (*here, index) if isinstance(value, list) else here
                    yield Fault(where, f"expected {', '.join(TYPES)}, not {kind_of(name)}", hint)
        elif keyword in _ONE:
            yield from _schema(value, here, root, depth + 1)
        elif keyword in _LISTED:
            yield from _several(value, here, root, depth, list)
        elif keyword in _NAMED:
            yield from _several(value, here, root, depth, dict)
        elif keyword == "$ref":
            if _resolved(value, root) is None:
                known = as_mapping(root.get("$defs")) if isinstance(root, dict) else {}
                hint = suggest(
                    str(value), [f"#/$defs/{name}" for name in known], "write it as #/$defs/<name>"
                )
                yield Fault(here, f"{kind_of(value)} is not a schema under `$defs`", hint)
        else:
            yield Fault(
                here, f"unknown keyword `{keyword[:80]}`", suggest(keyword, KEYWORDS, ""), on_key=True
            )
    yield from _together(schema, path)


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
            yield Fault((*path, key), f"{str(key)[:80]!r} is not a regular expression", on_key=True)
        yield from _schema(schema, (*path, key), root, depth + 1)


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
            yield Fault((*path, low), f"`{low}` is more than `{high}`: nothing can match")


# --- lists of nodes ----------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A list of nodes inside a node: its key in `Node.lists`, its path inside the node, the nodes as written."""

    key: str
    path: Path
    nodes: list[Any]


class Place(NamedTuple):
    """Place of a node: its path in the data, its position in its list, and the containers around it, outermost first,
    each with the key of the part; and its type."""

    path: Path
    position: int
    around: tuple[tuple[str, str], ...]
    type: Any = None
    talks: bool = False
    """True if it is an agent."""


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def spec_at(node: Mapping[str, Any]) -> NodeSpec | None:
    """Return the type of a node as written, or None if there is no such type."""
    kind = node.get("type")
    return node_types().get(kind) if isinstance(kind, str) else None


def talks(node: Mapping[str, Any]) -> bool:
    """True if a node is an agent."""
    spec = spec_at(node)
    return spec is not None and spec.talks


def covered_by(node: Mapping[str, Any]) -> str | None:
    """The id of the node that an approval covers."""
    spec, target = spec_at(node), as_mapping(node.get("with")).get("covers")
    covers = spec is not None and "covers" in spec.static_fields
    return target if covers and isinstance(target, str) else None


def taken_parts(node: Mapping[str, Any]) -> frozenset[str]:
    """Return the fields beside `with` that a node's type has; all possible ones for an unknown type."""
    spec = spec_at(node)
    return frozenset(spec.parts if spec is not None else PARTS)


def parts(node: Mapping[str, Any]) -> Iterator[Part]:
    """The lists of nodes that a container holds."""
    taken = taken_parts(node)
    if "body" in taken and isinstance(node.get("body"), list):
        yield Part("body", ("body",), node["body"])
    for field in ("branches", "cases"):
        if field in taken:
            for name, nodes in as_mapping(node.get(field)).items():
                yield Part(name, (field, name), as_list(nodes))
    if "default" in taken and isinstance(node.get("default"), list):
        yield Part("", ("default",), node["default"])


def ids(nodes: list[Any]) -> dict[str, int]:
    """The ids of a list with their positions; of two nodes with one id the first."""
    found: dict[str, int] = {}
    for position, node in enumerate(nodes):
        name = as_mapping(node).get("id")
        if isinstance(name, str) and name:
            found.setdefault(name, position)
    return found


def walk(data: Mapping[str, Any]) -> Iterator[tuple[Place, Mapping[str, Any]]]:
    """Yield every node of a flow with its place, in the order of the file; `finally` last."""
    yield from _walk(as_list(data.get("nodes")), ("nodes",), ())
    yield from _walk(as_list(data.get("finally")), ("finally",), (("finally", ""),))


def _walk(
    nodes: list[Any], path: Path, around: tuple[tuple[str, str], ...]
) -> Iterator[tuple[Place, Mapping[str, Any]]]:
    for position, node in enumerate(nodes):
        if not isinstance(node, dict):
            continue
        here = (*path, position)
        yield Place(here, position, around, node.get("type"), talks(node)), node
        name = node.get("id")
        inside = name if isinstance(name, str) else ""
        for part in parts(node):
            yield from _walk(part.nodes, (*here, *part.path), (*around, (inside, part.key)))
        failure = as_list(node.get("on_failure"))
        yield from _walk(failure, (*here, "on_failure"), (*around, (inside, "!")))


def places(data: Mapping[str, Any]) -> dict[str, Place]:
    """The place of every id; of two nodes with one id that of the first."""
    found: dict[str, Place] = {}
    for place, node in walk(data):
        name = node.get("id")
        if isinstance(name, str) and name:
            found.setdefault(name, place)
    return found


def items(data: Mapping[str, Any]) -> dict[str, str]:
    """The names that foreach nodes give their items, each with the first such node."""
    found: dict[str, str] = {}
    for _, node in walk(data):
        spec = spec_at(node)
        if spec is not None and spec.item_name is not None and isinstance(node.get("id"), str):
            found.setdefault(spec.item_name(as_mapping(node.get("with"))), node["id"])
    return found


# --- values of expressions ---------------------------------------------------------------------------------


_MOST_VALUES = 8


class _Sample(NamedTuple):
    """A value that an expression may give. `typical`: another one of its kind could fit where this one does not."""

    value: Json
    typical: bool = False


def unfit(spec: NodeSpec, with_: Mapping[str, Json], record: Record) -> Iterator[Fault]:
    """Yield the expressions under a `with` whose values do not fit their field, as far as known."""
    choices = {path: _samples(pieces, path, spec) for path, pieces in record.items()}
    choices = {path: samples for path, samples in choices.items() if samples}
    told: set[Path] = set()
    for turn in range(max(map(len, choices.values()), default=0)):
        chosen = {path: samples[min(turn, len(samples) - 1)] for path, samples in choices.items()}
        for fault, of_kind in spec.misfits(_filled(with_, ("with",), chosen)):
            path: Path = ("with", *fault.path)
            if path[:-1] in chosen and chosen[path[:-1]].value == [None]:
                path = path[:-1]  # an item of the list that an expression gives
                fault = replace(fault, path=path[1:])
            sample = chosen.get(path)
            if sample is None or fault.on_key or path in told or (sample.typical and not of_kind):
                continue
            told.add(path)
            value: Json = with_
            for part in fault.path:
                value = value[part]
            yield Fault(path, _misfit(record[path], sample, fault), _remedy(sample, fault, value))


def _filled(value: Json, path: Path, chosen: Mapping[Path, _Sample]) -> Json:
    if path in chosen:
        return chosen[path].value
    if isinstance(value, dict):
        return {key: _filled(item, (*path, key), chosen) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, (*path, index), chosen) for index, item in enumerate(value)]
    return value


def _samples(pieces: Pieces, path: Path, spec: NodeSpec) -> list[_Sample]:
    alone = single(pieces)
    if alone is not None and str(path[1]) not in spec.markup:
        return list(_of_type(alone))
    options: list[list[str]] = []
    for piece in pieces:
        if isinstance(piece, str):
            options.append([piece])
        elif piece.unknown or (piece.kinds & (TEXT | LIST | MAPPING) and piece.values is None):
            return [_Sample("x", typical=True)]
        else:
            options.append(
                [
                    "true" if sample.value is True else "null" if sample.value is None else str(sample.value)
                    for sample in _of_type(piece)
                ]
            )
    return [_Sample("".join(parts)) for parts in list(product(*options))[:_MOST_VALUES]]


_OTHERS: tuple[tuple[int, Json], ...] = ((BOOLEAN, True), (LIST, []), (MAPPING, {}))


def _of_type(found: Type) -> Iterator[_Sample]:
    if found.unknown:
        return
    if found.nullable:
        yield _Sample(None)
    for value in sorted(found.values or (), key=str)[:_MOST_VALUES]:
        yield _Sample(value)
    if found.values is None and found.kinds & NUMBER:
        yield _Sample(1)
    if found.values is None and found.kinds & TEXT:
        yield _Sample("x", typical=True)
    if found.kinds & LIST and found.items is not None and found.items.nullable:
        yield _Sample([None])
    yield from (_Sample(value) for kind, value in _OTHERS if found.kinds & kind)


def _misfit(pieces: Pieces, sample: _Sample, fault: Fault) -> str:
    alone = single(pieces)
    if alone is None:
        given = "a text" if sample.typical else f"texts such as {sample.value!r}"
        return f"this gives {given}: {fault.message.split(', not ')[0] if sample.typical else fault.message}"
    if sample.value is None:
        return f"this may be null{because(alone)}: {fault.message}"
    if sample.value == [None] and alone.items is not None:
        return f"an item of this list may be null{because(alone.items)}: {fault.message}"
    if not alone.values:
        return f"this gives {words(alone.without(NULL))}: {fault.message.split(', not ')[0]}"
    may = "may give" if len(alone.values) > 1 else "gives"
    return f"this {may} {shown(sample.value)}: {fault.message}"


def _remedy(sample: _Sample, fault: Fault, raw: Json) -> str | None:
    if sample.value in (None, [None]):
        return GUARD
    if isinstance(sample.value, int) and "no unit" in fault.message:
        return "add the unit: `{{ ... }}s`"
    if isinstance(raw, str) and isinstance(sample.value, str) and fault.message.startswith("expected a list"):
        return list_hint(str(fault.path[-1]), raw)
    return fault.hint
