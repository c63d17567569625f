"""The types, their union, their descriptions for people, and the types of declarations: inputs, forms, JSON Schemas.

Faults in declarations are reported elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from engine.language.codec import Json
from engine.language.diagnostics import BOOLEAN as BOOLEAN
from engine.language.diagnostics import LIST as LIST
from engine.language.diagnostics import MAPPING as MAPPING
from engine.language.diagnostics import MISSING as MISSING
from engine.language.diagnostics import NULL as NULL
from engine.language.diagnostics import NUMBER as NUMBER
from engine.language.diagnostics import TEXT as TEXT
from engine.language.template import has_expression

KNOWN = NULL | BOOLEAN | NUMBER | TEXT | LIST | MAPPING
EVERYTHING = KNOWN | MISSING
SCALAR = NUMBER | TEXT

Value: TypeAlias = "str | int | float"

_WORDS = {
    NULL: "null",
    BOOLEAN: "true or false",
    NUMBER: "a number",
    TEXT: "text",
    LIST: "a list",
    MAPPING: "a mapping",
    MISSING: "nothing at all",
}


class Type(NamedTuple):
    """Possible values.

    `kinds` is a set of the bits above. `values` is the finite set of possible texts and numbers, None for any; `items`
    the type of a list's items, `fields` those of a mapping by name, `rest` the type of its other fields (None: it has
    no others). `why` says why it may be null. `variants` has the type for each value of the field `case` beside it,
    `moment` is True if its text is a moment like `now`.
    """

    kinds: int
    values: frozenset[Value] | None = None
    items: Type | None = None
    fields: Mapping[str, Type] | None = None
    rest: Type | None = None
    why: str | None = None
    variants: tuple[tuple[Value | None, Type], ...] = ()
    moment: bool = False

    @property
    def unknown(self) -> bool:
        """True if nothing is known about it."""
        return self.kinds == EVERYTHING

    @property
    def nullable(self) -> bool:
        """True if it is known to be possibly null."""
        return bool(self.kinds & NULL) and not self.unknown

    def without(self, kinds: int) -> Type:
        """Return the type without these kinds; an unknown type stays unknown."""
        return self if self.unknown else self._replace(kinds=self.kinds & ~kinds)

    def or_null(self, why: str | None = None) -> Type:
        """The same type, or null."""
        return self if self.unknown else self._replace(kinds=self.kinds | NULL, why=why or self.why)


ANY = Type(EVERYTHING)
NONE = Type(NULL)
FLAG = Type(BOOLEAN)
NUMBERS = Type(NUMBER)
TEXTS = Type(TEXT)
MOMENTS = Type(TEXT, moment=True)
UNDEFINED = Type(MISSING)
NEVER = Type(0)
FREE_MAPPING = Type(MAPPING)


def one_of(values: Iterable[Value]) -> Type:
    """The type of these texts and numbers and no others."""
    found = frozenset(values)
    kinds = 0
    for value in found:
        kinds |= TEXT if isinstance(value, str) else NUMBER
    return Type(kinds, found)


def list_of(items: Type | None) -> Type:
    """Return the type of a list of such items; None for unknown ones."""
    return Type(LIST, items=items)


def mapping_of(fields: Mapping[str, Type], rest: Type | None = None) -> Type:
    """A mapping with these fields, and of no others unless `rest` says of which type."""
    return Type(MAPPING, fields=fields, rest=rest)


def of_value(value: Json) -> Type:
    """The type of a constant."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return FLAG
    if isinstance(value, str | int | float):
        return one_of([value])
    if isinstance(value, dict):
        return mapping_of({key: of_value(item) for key, item in value.items()})
    return list_of(union(map(of_value, value))) if isinstance(value, list) else ANY


def union(types: Iterable[Type]) -> Type:
    """Return the union of these types; `NEVER` for none."""
    result: Type | None = None
    for each in types:
        result = each if result is None else either(result, each)
    return NEVER if result is None else result


def either(a: Type, b: Type) -> Type:
    """Return the union of two types."""
    if a is b or not b.kinds:
        return a
    if not a.kinds:
        return b
    if a.unknown or b.unknown:
        return ANY
    return Type(
        a.kinds | b.kinds,
        _values(a, b),
        _items(a, b),
        *_fields(a, b),
        a.why or b.why,
        moment=all(each.moment or not each.kinds & TEXT for each in (a, b)) and (a.moment or b.moment),
    )


def _values(a: Type, b: Type) -> frozenset[Value] | None:
    if (a.kinds & SCALAR and a.values is None) or (b.kinds & SCALAR and b.values is None):
        return None
    return (a.values or frozenset()) | (b.values or frozenset()) or None


def _items(a: Type, b: Type) -> Type | None:
    if not a.kinds & LIST or not b.kinds & LIST:
        return a.items if a.kinds & LIST else b.items
    return None if a.items is None or b.items is None else either(a.items, b.items)


def _fields(a: Type, b: Type) -> tuple[Mapping[str, Type] | None, Type | None]:
    if not a.kinds & MAPPING or not b.kinds & MAPPING:
        chosen = a if a.kinds & MAPPING else b
        return chosen.fields, chosen.rest
    if a.fields is None or b.fields is None:
        return None, None
    merged = {
        name: either(a.fields.get(name, a.rest or UNDEFINED), b.fields.get(name, b.rest or UNDEFINED))
        for name in {**a.fields, **b.fields}
    }
    rest = a.rest or b.rest
    return merged, either(a.rest, b.rest) if a.rest is not None and b.rest is not None else rest


def because(found: Type) -> str:
    """Why it may be null, in parentheses."""
    return f" ({found.why})" if found.why else ""


def words(found: Type) -> str:
    """The type for a sentence: `text`, `a number or null`; of few values the values."""
    if found.unknown:
        return "anything"
    if found.values and found.kinds & SCALAR and len(found.values) <= 6:
        listed = ", ".join(shown(value) for value in sorted(found.values, key=str))
        others = [_WORDS[kind] for kind in _WORDS if found.kinds & kind & ~(SCALAR | MISSING)]
        return " or ".join([listed, *others])
    return " or ".join(_WORDS[kind] for kind in _WORDS if found.kinds & kind & ~MISSING) or "nothing"


def shown(value: Json) -> str:
    """A constant as an expression has it."""
    return f"'{value}'" if isinstance(value, str) else str(value)


# --- declared types ----------------------------------------------------------------------------------------


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
    """Return the type of a written input, of a flow or a tool."""
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
        needed += [
            name
            for name, body in properties.items()
            if name not in changed and (isinstance(body, Mapping) and body.get("default") is not None)
        ]
    return mapping_of({name: _form_field(body, name in needed) for name, body in properties.items()})


def _form_field(body: Any, needed: bool) -> Type:
    written = body if isinstance(body, Mapping) else {}
    kind = written.get("type")
    found = _BY_NAME.get(kind, ANY) if isinstance(kind, str) else ANY
    if kind == "array":
        items = written.get("items")
        found = list_of(_options(items if isinstance(items, Mapping) else {}) or TEXTS)
    else:
        found = _options(written) or found
        if found == TEXTS and written.get("format") in ("date", "date-time"):
            found = MOMENTS
    # A checkbox has no third state, and a list may be empty; any other empty field is null.
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
        # JSON Schema allows fields that it does not name, but hardly anybody means that: a flow that uses one declares
        # it.
        properties = schema.get("properties")
        if not isinstance(properties, Mapping):
            return FREE_MAPPING
        fields = {str(name): schema_type(inner, depth + 1) for name, inner in properties.items()}
        more = schema.get("additionalProperties")
        open_ended = schema.get("patternProperties") or more is True or isinstance(more, Mapping)
        rest = ANY if open_ended else None
        return Type(MAPPING, fields=fields, rest=rest)
    if kind == "null":
        return Type(NULL, why="its schema allows null")
    return _BY_NAME.get(kind, ANY) if isinstance(kind, str) else ANY
