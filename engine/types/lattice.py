"""The types, their union, and how they are told to people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from engine.language.codec import Json

NULL, BOOLEAN, NUMBER, TEXT, LIST, MAPPING, MISSING = (1 << bit for bit in range(7))
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
    """What a value may be.

    `kinds` is a set of the bits above. `values` is the finite set of the texts and numbers that it may be, None for any;
    `items` the type of a list's items, `fields` those of a mapping by name, `rest` the type of its other fields (None:
    it has no others). `why` says why it may be null.
    """

    kinds: int
    values: frozenset[Value] | None = None
    items: Type | None = None
    fields: Mapping[str, Type] | None = None
    rest: Type | None = None
    why: str | None = None

    @property
    def unknown(self) -> bool:
        """Whether nothing is known of it."""
        return self.kinds == EVERYTHING

    @property
    def nullable(self) -> bool:
        """Whether it is known that it may be null."""
        return bool(self.kinds & NULL) and not self.unknown

    def without(self, kinds: int) -> Type:
        """The same type without these kinds; what nobody knows stays unknown."""
        return self if self.unknown else self._replace(kinds=self.kinds & ~kinds)

    def or_null(self, why: str | None = None) -> Type:
        """The same type, or null."""
        return self if self.unknown else self._replace(kinds=self.kinds | NULL, why=why or self.why)


ANY = Type(EVERYTHING)
NONE = Type(NULL)
FLAG = Type(BOOLEAN)
NUMBERS = Type(NUMBER)
TEXTS = Type(TEXT)
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
    """A list of such items; None when nobody knows what they are."""
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
    """What is one of these types; `NEVER` when there are none."""
    result: Type | None = None
    for each in types:
        result = each if result is None else either(result, each)
    return NEVER if result is None else result


def either(a: Type, b: Type) -> Type:
    """What is one of two types."""
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
