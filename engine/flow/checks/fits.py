"""What does not fit together although each part of it is sound: cases that no value has, rows of a table that have other
fields than its columns, arguments that a Python function does not take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from engine.flow.checks.raw_lists import as_list, as_mapping
from engine.flow.checks.types import Pieces, type_of
from engine.language.codec import Json
from engine.language.diagnostics import Fault, Path, suggest
from engine.language.template import has_expression
from engine.types.annotations import Function, Sources, function_of
from engine.types.lattice import BOOLEAN, LIST, MAPPING, MISSING, NULL, TEXT, Type, shown, words


def fits(node: Mapping[str, Any], record: Mapping[Path, Pieces], sources: Sources) -> Iterator[Fault]:
    """What does not fit together in a node. Paths begin at the node."""
    with_ = as_mapping(node.get("with"))
    match node.get("type"):
        case "switch":
            if ("with", "on") in record:
                yield from _cases(node, type_of(with_.get("on"), ("with", "on"), record))
        case "message":
            yield from _rows(as_mapping(with_.get("table")), record)
        case "python":
            yield from _call(with_, record, sources)


def _cases(node: Mapping[str, Any], on: Type) -> Iterator[Fault]:
    """Cases are compared with the value as text."""
    possible = _as_cases(on)
    for value in as_mapping(node.get("cases")):
        if possible is not None and str(value) not in possible and not has_expression(value):
            message = f"this case never comes: the value is {words(on)}"
            yield Fault(("cases", value), message, suggest(value, possible), on_key=True)
    if on.kinds and not on.unknown and not on.kinds & ~(LIST | MAPPING | MISSING):
        yield Fault(
            ("with", "on"), f"the value is {words(on)}, and a case is text", "take one of its items or fields"
        )


def _as_cases(on: Type) -> set[str] | None:
    """The texts of all values that a type has; None for too many to say."""
    if on.unknown or on.kinds & (LIST | MAPPING | MISSING) or not on.kinds:
        return None
    if on.kinds & ~(NULL | BOOLEAN) and on.values is None:
        return None
    found = {str(value) for value in on.values or ()}
    found |= {"true", "false"} if on.kinds & BOOLEAN else set()
    return found | ({"null"} if on.kinds & NULL else set())


def _rows(table: Mapping[str, Any], record: Mapping[Path, Pieces]) -> Iterator[Fault]:
    columns, written = as_list(table.get("columns")), table.get("rows")
    if not columns or any(not isinstance(name, str) or has_expression(name) for name in columns):
        return
    path: Path = ("with", "table", "rows")
    for index, row in enumerate(as_list(written)):
        for name in as_mapping(row):
            if name not in columns and not has_expression(name):
                yield _no_column((*path, index, name), name, columns)
    rows = type_of(written, path, record) if isinstance(written, str) else None
    if rows is not None and rows.kinds == LIST and rows.items is not None and rows.items.kinds == MAPPING:
        for name in rows.items.fields or ():
            if name not in columns:
                yield _no_column(path, name, columns, on_key=False)


def _no_column(path: Path, name: str, columns: list[Json], *, on_key: bool = True) -> Fault:
    hint = suggest(name, map(str, columns))
    return Fault(path, f"the table has no column `{name[:80]}`", hint, on_key=on_key)


def _call(with_: Mapping[str, Any], record: Mapping[Path, Pieces], sources: Sources) -> Iterator[Fault]:
    call, args = with_.get("call"), as_mapping(with_.get("args"))
    found = function_of(call, sources) if isinstance(call, str) and not has_expression(call) else None
    if isinstance(found, str):
        yield Fault(("with", "call"), found)
    if not isinstance(found, Function):
        return
    for name, value in args.items():
        if name in found.takes:
            yield from _argument(name, type_of(value, ("with", "args", name), record), found.takes[name])
        elif not found.takes_more:
            hint = suggest(name, found.takes, None if found.takes else "it takes none")
            yield Fault(
                ("with", "args", name), f"`{call}` takes no argument `{name[:80]}`", hint, on_key=True
            )
    for name in sorted(found.needed - args.keys()):
        yield Fault(("with",), f"`{call}` needs the argument `{name}`", "write it under `args`")


def _argument(name: str, given: Type, takes: Type) -> Iterator[Fault]:
    if given.unknown or takes.unknown or not given.kinds & ~MISSING:
        return
    path: Path = ("with", "args", name)
    if not given.kinds & takes.kinds:
        yield Fault(path, f"this gives {words(given)}, and `{name}` is {words(takes)}")
    elif given.nullable and not takes.kinds & NULL:
        because = f" ({given.why})" if given.why else ""
        yield Fault(
            path, f"this may be null{because}, and `{name}` is {words(takes)}", "guard it with `default`"
        )
    elif given.kinds == TEXT and given.values and takes.values and not given.values & takes.values:
        told = " or ".join(map(shown, sorted(given.values, key=str)))
        yield Fault(path, f"this gives {told}, and `{name}` is {words(takes)}")
