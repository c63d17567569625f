"""Checks of one input, of a flow or a tool: its name, and its type, choices and default together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.flow.checks.visibility import name_hint
from engine.flow.input_document import InputDoc
from engine.flow.inputs import check_value, to_text
from engine.flow.model import Input
from engine.language.diagnostics import Fault, Path
from engine.language.template import has_expression
from engine.nodes.types.names import MAX_NAME, NAME


def check_input(name: str, entry: Any) -> Iterator[Fault]:
    """Yield the faults of an input beyond its shape. Paths begin at its name."""
    path: Path = (name,)
    if not NAME.fullmatch(name) or len(name) > MAX_NAME:
        yield Fault(path, f"{name[:80]!r} is not a valid input name", name_hint(name, "_"), on_key=True)
    try:
        document = InputDoc.model_validate(entry)
    except ValueError:
        # Its shape is wrong, which is reported already.
        return
    given = document.model_fields_set
    read = document.as_input(name)
    if read.items is not None and document.type != "array":
        yield Fault(
            (*path, "items"), f"`items` is for arrays, and this input is of type {document.type}", on_key=True
        )
    if document.required and "default" in given:
        yield Fault(
            (*path, "required"), "an input with a `default` is never missing, so it cannot be required"
        )
    for position, choice in enumerate(read.choices or ()):
        kind = (read.items or "string") if document.type == "array" else document.type
        problem = check_value(Input(name, kind), choice)
        if problem is not None:
            yield Fault((*path, "choices", position), problem, to_text(problem, choice))
    if "default" not in given or (document.default is None and document.required is False):
        return
    if has_expression(document.default):
        yield Fault(
            (*path, "default"), "a default cannot contain expressions", "compute it in a node of type `set`"
        )
        return
    problem = check_value(read, document.default)
    if problem is not None:
        hint = to_text(problem, document.default)
        yield Fault((*path, "default"), f"the default does not fit: {problem}", hint)
