"""What hangs together in a flow: names, ids, node types, and every name that an expression uses.

Works on the raw data, in which anything may be missing or of the wrong type: the shape was checked elsewhere,
and a problem there must not hide the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from engine.codec import Json
from engine.expression_text import has_expression
from engine.faults import Fault, Path
from engine.flow.check_nodes import check_nodes
from engine.flow.check_text import check_text, name_hint
from engine.flow.input_document import InputDoc
from engine.flow.inputs import check_value
from engine.flow.model import Input
from engine.flow.names import Scope
from engine.flow.outline import as_list, as_mapping
from engine.flow.triggers import Given, check_trigger
from engine.nodes.configs import FLOW_NAME, MAX_NAME, NAME


def check_flow(data: Mapping[str, Any], line_of: Callable[[Path], int]) -> Iterator[Fault]:
    """Everything that is wrong beyond the shape of the document; `line_of` gives the line of a value in the file."""
    yield from _flow_name(data.get("flow"))
    inputs = as_mapping(data.get("inputs"))
    for name, entry in inputs.items():
        yield from _input(name, entry)
    given = Given(frozenset(inputs), _documents(inputs))
    for index, trigger in enumerate(as_list(data.get("triggers"))):
        if isinstance(trigger, dict):
            for fault in check_trigger(trigger, given):
                yield fault.under(("triggers", index))
    yield from _lock(data, frozenset(inputs))
    yield from check_nodes(data, frozenset(inputs), line_of)


def _flow_name(name: Any) -> Iterator[Fault]:
    if isinstance(name, str) and name and (not FLOW_NAME.fullmatch(name) or len(name) > MAX_NAME):
        yield Fault(("flow",), f"{name[:80]!r} is no name for a flow", name_hint(name, "-"))


def _lock(data: Mapping[str, Any], inputs: frozenset[str]) -> Iterator[Fault]:
    lock = data.get("lock")
    if lock is None and data.get("on_conflict") is not None:
        yield Fault(("on_conflict",), "`on_conflict` needs a `lock`", on_key=True)
    if isinstance(lock, str):
        yield from check_text(lock, ("lock",), Scope(inputs, {}), only=("inputs", "session"))


# --- inputs ----------------------------------------------------------------------------------------------


def _input(name: str, entry: Any) -> Iterator[Fault]:
    path: Path = ("inputs", name)
    if not NAME.fullmatch(name) or len(name) > MAX_NAME:
        yield Fault(path, f"{name[:80]!r} is no name for an input", name_hint(name, "_"), on_key=True)
    try:
        document = InputDoc.model_validate(entry)
    except ValueError:
        # Its shape is wrong, which is reported already.
        return
    yield from _input_values(path, name, document)


def _documents(inputs: Mapping[str, Any]) -> dict[str, InputDoc]:
    """The inputs whose entries have the right shape."""
    found = {}
    for name, entry in inputs.items():
        try:
            found[name] = InputDoc.model_validate(entry)
        except ValueError:
            continue
    return found


def _input_values(path: Path, name: str, document: InputDoc) -> Iterator[Fault]:
    given = document.model_fields_set
    items = document.items.type if document.items is not None else None
    if items is not None and document.type != "array":
        yield Fault(
            (*path, "items"), f"`items` is for arrays, and this input is of type {document.type}", on_key=True
        )
    if document.required and "default" in given:
        yield Fault(
            (*path, "required"), "an input with a `default` is never missing, so it cannot be required"
        )
    choices = _choices(document)
    for position, choice in enumerate(choices or ()):
        kind = (items or "string") if document.type == "array" else document.type
        problem = check_value(Input(name, kind), choice)
        if problem is not None:
            yield Fault((*path, "choices", position), problem)
    if "default" not in given or (document.default is None and document.required is False):
        return
    if has_expression(document.default):
        yield Fault((*path, "default"), "a default is not evaluated", "compute it in a node of type `set`")
        return
    problem = check_value(Input(name, document.type, items=items, choices=choices), document.default)
    if problem is not None:
        yield Fault((*path, "default"), f"the default does not fit: {problem}")


def _choices(document: InputDoc) -> tuple[Json, ...] | None:
    return None if document.choices is None else tuple(document.choices)
