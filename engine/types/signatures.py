"""What filters and tests take and give; a part of an expression as it was written, for messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from jinja2 import nodes

from engine.language.jinja import static_path
from engine.types.lattice import (
    ANY,
    LIST,
    MAPPING,
    NULL,
    NUMBER,
    NUMBERS,
    TEXT,
    TEXTS,
    Type,
    either,
    list_of,
    shown,
    union,
)

ALL = NULL | 2 | NUMBER | TEXT | LIST | MAPPING
SIZED = TEXT | LIST | MAPPING


class Signature(NamedTuple):
    """The kinds that a filter takes, and the type that it gives for one."""

    takes: int
    gives: Callable[[Type], Type]


def _always(found: Type) -> Callable[[Type], Type]:
    return lambda _: found


def items_of(found: Type) -> Type:
    """The type of the items that going through a value gives."""
    kinds = [found.items or ANY] if found.kinds & LIST else []
    if found.kinds & (TEXT | MAPPING):
        kinds.append(TEXTS)
    return union(kinds) if kinds and not found.unknown else ANY


def _as_list(found: Type) -> Type:
    return list_of(items_of(found))


def _pairs(_: Type) -> Type:
    return list_of(list_of(None))


def _reversed(found: Type) -> Type:
    return found if found.kinds == TEXT else _as_list(found)


_LISTED = Signature(SIZED, _as_list)
_WORDED = Signature(ALL, _always(TEXTS))
_ITEM = Signature(SIZED, items_of)

SIGNATURES: Mapping[str, Signature] = {
    "after": Signature(TEXT, _always(TEXTS)),
    "before": Signature(TEXT, _always(TEXTS)),
    "date": Signature(TEXT, _always(TEXTS)),
    "duration": Signature(NUMBER, _always(TEXTS)),
    "match": Signature(TEXT, _always(list_of(None).or_null("the pattern may match nothing"))),
    "project": Signature(LIST, _always(list_of(None))),
    "since": Signature(TEXT, _always(NUMBERS)),
    "abs": Signature(NUMBER, _always(NUMBERS)),
    "capitalize": _WORDED,
    "dictsort": Signature(MAPPING, _pairs),
    "filesizeformat": Signature(NUMBER | TEXT, _always(TEXTS)),
    "first": _ITEM,
    "float": Signature(NUMBER | TEXT | 2, _always(NUMBERS)),
    "format": Signature(TEXT, _always(TEXTS)),
    "fromjson": Signature(TEXT, _always(ANY)),
    "int": Signature(NUMBER | TEXT | 2, _always(NUMBERS)),
    "items": Signature(MAPPING, _pairs),
    "join": Signature(SIZED, _always(TEXTS)),
    "last": Signature(LIST | TEXT, items_of),
    "length": Signature(SIZED, _always(NUMBERS)),
    "lines": Signature(TEXT, _always(list_of(TEXTS))),
    "list": _LISTED,
    "lower": _WORDED,
    "map": Signature(SIZED, _always(list_of(None))),
    "max": _ITEM,
    "min": _ITEM,
    "reject": _LISTED,
    "rejectattr": _LISTED,
    "replace": Signature(TEXT, _always(TEXTS)),
    "reverse": Signature(LIST | TEXT, _reversed),
    "round": Signature(NUMBER, _always(NUMBERS)),
    "select": _LISTED,
    "selectattr": _LISTED,
    "sort": _LISTED,
    "split": Signature(TEXT, _always(list_of(TEXTS))),
    "string": _WORDED,
    "sum": Signature(LIST, _always(ANY)),
    "title": _WORDED,
    "tojson": _WORDED,
    "trim": Signature(TEXT, _always(TEXTS)),
    "truncate": Signature(TEXT, _always(TEXTS)),
    "unique": _LISTED,
    "upper": _WORDED,
    "urlencode": Signature(TEXT | MAPPING | LIST | NUMBER, _always(TEXTS)),
}
"""Every filter but `default`, which takes what no other does."""

TESTED: Mapping[str, int] = {
    "even": NUMBER,
    "odd": NUMBER,
    "divisibleby": NUMBER,
    "matching": TEXT,
    "startswith": TEXT,
    "endswith": TEXT,
    "lt": NUMBER | TEXT | LIST,
    "le": NUMBER | TEXT | LIST,
    "gt": NUMBER | TEXT | LIST,
    "ge": NUMBER | TEXT | LIST,
}
"""The kinds that tests take; those that are not here take all."""


def given_default(found: Type, other: Type, *, also_empty: bool) -> Type:
    """What `default` gives: the value, or the other where it is undefined, or with `true` where it is empty or null."""
    if found.unknown:
        return ANY
    kept = found.without(1 << 6)
    if also_empty:
        kept = kept.without(NULL)
    absent = found.kinds & (1 << 6)
    return either(kept, other) if absent or also_empty else kept


# --- source text -------------------------------------------------------------------------------------------


def source_of(node: nodes.Node) -> str:
    """A part of an expression as its author probably wrote it; empty where that is too much to say."""
    path = static_path(node)
    if path is not None:
        return ".".join(path)
    if isinstance(node, nodes.Const):
        return shown(node.value) if isinstance(node.value, str | int | float) else ""
    if isinstance(node, nodes.Getattr):
        inner = source_of(node.node)
        return f"{inner}.{node.attr}" if inner else ""
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        inner = source_of(node.node)
        return f"{inner}[{node.arg.value!r}]" if inner else ""
    if isinstance(node, nodes.Filter) and node.node is not None:
        inner = source_of(node.node)
        return f"{inner} | {node.name}" if inner and not node.args and not node.kwargs else ""
    return ""


def told(node: nodes.Node) -> str:
    """A part of an expression in a sentence."""
    source = source_of(node)
    return f"`{source}`" if source else "this"
