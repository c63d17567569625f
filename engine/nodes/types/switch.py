"""The `switch` node: the one case that fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, WithJsonSchema

from engine.language.codec import encode, read, whole
from engine.language.diagnostics import Fault, kind_bit, kind_of, suggest
from engine.language.errors import NotJson
from engine.language.template import has_expression
from engine.nodes.types.fields import Config
from engine.nodes.types.spec import Known, NodeSpec
from engine.types.annotations import Sources
from engine.types.lattice import (
    ANY,
    BOOLEAN,
    LIST,
    MAPPING,
    MISSING,
    NONE,
    NULL,
    NUMBER,
    Type,
    mapping_of,
    one_of,
    union,
    words,
)
from engine.types.pieces import Record, type_of


def _case(value: Any) -> str:
    """The value of a `switch` as the text that cases are compared with."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | dict):
        raise ValueError(f"expected text, a number, true or false, not {kind_of(value)}")
    try:
        return encode(whole(value)).decode()
    except NotJson as error:
        raise ValueError(str(error)) from error


Case: TypeAlias = Annotated[
    Any,
    BeforeValidator(_case),
    WithJsonSchema({"type": ["string", "number", "boolean", "null"], "title": "value"}),
]


class SwitchConfig(Config):
    """Runs the nodes of the case that matches, else those of `default`, else nothing."""

    on: Case
    """The value, compared with the cases as text: 3 and 3.0 are `3`, true is `true`, null is `null`."""


def _output(known: Known) -> Type:
    variants = [(case or None, mapping_of(outputs)) for case, outputs in known.inner.items()]
    on = known.within.fields.get("on", ANY) if known.within is not None and known.within.fields else ANY
    possible = _as_cases(on)
    if "" not in known.inner and (possible is None or not possible <= set(known.inner)):
        variants.append((None, mapping_of({})))
    outputs = union(each for _, each in variants)._replace(variants=tuple(variants))
    taken = one_of([case for case, _ in variants if case]) if any(known.inner) else NONE
    if any(case is None for case, _ in variants):
        taken = taken.or_null("`default` or no case was taken")
    return mapping_of({"case": taken, "outputs": outputs})


def _fits(node: Mapping[str, Any], record: Record, sources: Sources) -> Iterator[Fault]:
    """Check that each case is a possible value, as text."""
    with_, path = node.get("with"), ("with", "on")
    if path not in record or not isinstance(with_, dict):
        return
    on = type_of(with_.get("on"), path, record)
    possible, cases = _as_cases(on), node.get("cases")
    for value in cases if isinstance(cases, dict) else ():
        if possible is not None and str(value) not in possible and not has_expression(value):
            message = f"this case never matches: the value is {words(on)}"
            yield Fault(("cases", value), message, suggest(value, possible), on_key=True)
        elif on.kinds == NUMBER and possible is None and (number := _as_number(value)) not in (None, value):
            message = f"this case never matches: the value is {words(on)}"
            yield Fault(("cases", value), message, f"write it as `{number}`", on_key=True)
    if on.kinds and not on.unknown and not on.kinds & ~(LIST | MAPPING | MISSING):
        yield Fault(path, f"the value is {words(on)}, but a case is text", "take one of its items or fields")


def _as_number(case: str) -> str | None:
    """Return a case in the number format of cases; None if it is not a number."""
    with suppress(NotJson):
        return _case(number) if kind_bit(number := read(case)) == NUMBER else None
    return None


def _as_cases(on: Type) -> set[str] | None:
    """The texts of all values that a type has; None for too many to say."""
    if on.unknown or on.kinds & (LIST | MAPPING | MISSING) or not on.kinds:
        return None
    if on.kinds & ~(NULL | BOOLEAN) and on.values is None:
        return None
    found = {_case(value) for value in on.values or ()}
    found |= {"true", "false"} if on.kinds & BOOLEAN else set()
    return found | ({"null"} if on.kinds & NULL else set())


SPEC = NodeSpec(
    config=SwitchConfig,
    outputs={
        "case": "The chosen case, as text; null for `default` or none.",
        "outputs": "The outputs of its nodes by id; empty if no case was chosen.",
    },
    output=_output,
    parts={
        "cases": "Values, each with a list of nodes.",
        "default": "The nodes that run if no case matches.",
    },
    required_parts=("cases",),
    fits=_fits,
)
