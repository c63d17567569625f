"""Result types of filters; and the source of a part of an expression, for messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jinja2 import nodes

from engine.language.jinja import static_path
from engine.types.lattice import (
    ANY,
    LIST,
    MAPPING,
    MOMENTS,
    NULL,
    NUMBERS,
    TEXT,
    TEXTS,
    Type,
    either,
    list_of,
    shown,
    union,
)


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


_TEXT = (
    *("capitalize", "date", "duration", "filesizeformat", "format", "join", "lower", "replace"),
    *("string", "title", "tojson", "trim", "truncate", "upper", "urlencode"),
)

GIVES: Mapping[str, Callable[[Type], Type]] = {
    **dict.fromkeys(_TEXT, _always(TEXTS)),
    **dict.fromkeys(("abs", "float", "int", "length", "round", "since"), _always(NUMBERS)),
    **dict.fromkeys(("list", "reject", "rejectattr", "select", "selectattr", "sort", "unique"), _as_list),
    **dict.fromkeys(("first", "last", "max", "min"), items_of),
    **dict.fromkeys(("lines", "split"), _always(list_of(TEXTS))),
    **dict.fromkeys(("dictsort", "items"), _always(list_of(list_of(None)))),
    **dict.fromkeys(("map", "project"), _always(list_of(None))),
    **dict.fromkeys(("fromjson", "sum"), _always(ANY)),
    **dict.fromkeys(("after", "before", "moment"), _always(MOMENTS)),
    "match": _always(list_of(None).or_null("the pattern may match nothing")),
    "reverse": lambda found: found if found.kinds == TEXT else _as_list(found),
}
"""Result type of each filter for an accepted type, except `default`, which depends on its argument."""


def given_default(found: Type, other: Type, *, also_empty: bool) -> Type:
    """Return the type of `default`: the value, or the other one if it is undefined, or with `true` also if it is empty
    or null."""
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
