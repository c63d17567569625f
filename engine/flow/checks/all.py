"""What hangs together in a flow: names, ids, node types, and every name that an expression uses.

Works on the raw data, in which anything may be missing or of the wrong type: the shape was checked elsewhere,
and a problem there must not hide the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from engine.flow.checks.agents import check_tools
from engine.flow.checks.inputs import check_input
from engine.flow.checks.nodes import check_nodes
from engine.flow.checks.raw_lists import as_list, as_mapping
from engine.flow.checks.text import check_text, name_hint
from engine.flow.checks.visibility import Scope
from engine.flow.input_document import InputDoc
from engine.flow.triggers import Given, check_trigger
from engine.language.diagnostics import Fault, Path
from engine.nodes.types.fields import FLOW_NAME, MAX_NAME
from engine.types.annotations import Sources, no_source
from engine.types.lattice import ANY, mapping_of
from engine.types.schema import input_type


def check_flow(
    data: Mapping[str, Any],
    line_of: Callable[[Path], int],
    sources: Sources = no_source,
    *,
    typed: bool = True,
) -> Iterator[Fault]:
    """Everything that is wrong beyond the shape of the document; `line_of` gives the line of a value in the file,
    `sources` the texts of Python modules. Without `typed` expressions are only checked for their names."""
    yield from _flow_name(data.get("flow"))
    inputs = as_mapping(data.get("inputs"))
    for name, entry in inputs.items():
        for fault in check_input(name, entry):
            yield fault.under(("inputs",))
    given = Given(frozenset(inputs), _documents(inputs))
    for index, trigger in enumerate(as_list(data.get("triggers"))):
        if isinstance(trigger, dict):
            for fault in check_trigger(trigger, given):
                yield fault.under(("triggers", index))
    known = {str(name): input_type(entry) for name, entry in inputs.items()}
    # A name that is not there is told as such, and has no type.
    scope = Scope(mapping_of(known, rest=ANY), {}, typed=typed, sources=sources)
    yield from _lock(data, scope)
    for fault in check_tools(as_mapping(data.get("tools"))):
        yield fault.under(("tools",))
    yield from check_nodes(data, scope, line_of)


def _flow_name(name: Any) -> Iterator[Fault]:
    if isinstance(name, str) and name and (not FLOW_NAME.fullmatch(name) or len(name) > MAX_NAME):
        yield Fault(("flow",), f"{name[:80]!r} is no name for a flow", name_hint(name, "-"))


def _lock(data: Mapping[str, Any], scope: Scope) -> Iterator[Fault]:
    lock = data.get("lock")
    if lock is None and data.get("on_conflict") is not None:
        yield Fault(("on_conflict",), "`on_conflict` needs a `lock`", on_key=True)
    if isinstance(lock, str):
        yield from check_text(lock, ("lock",), scope, only=("inputs", "session"))


def _documents(inputs: Mapping[str, Any]) -> dict[str, InputDoc]:
    """The inputs whose entries have the right shape."""
    found = {}
    for name, entry in inputs.items():
        try:
            found[name] = InputDoc.model_validate(entry)
        except ValueError:
            continue
    return found
