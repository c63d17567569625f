"""The types of what nodes give, `nodes.<id>`, by type of the node and what stands under its `with`.

What depends on the nodes that a container holds is in `engine.flow.outputs`. A value that is null only after a person
said that an interrupted node is done counts as the value: who says so knows what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from engine.language.codec import Json
from engine.language.template import has_expression
from engine.types.lattice import (
    ANY,
    NONE,
    NULL,
    NUMBERS,
    TEXT,
    TEXTS,
    UNDEFINED,
    Type,
    either,
    list_of,
    mapping_of,
    one_of,
)
from engine.types.schema import form_type, schema_type

Given: TypeAlias = Mapping[str, Json]

PERSON = mapping_of({"id": TEXTS, "name": Type(TEXT | NULL), "email": Type(TEXT | NULL)})
"""Somebody: who asked for the run, who answered."""

_FILES = list_of(mapping_of({"name": TEXTS, "path": TEXTS, "size": NUMBERS, "type": TEXTS}))
MESSAGES = list_of(mapping_of({"text": TEXTS, "by": PERSON, "at": TEXTS}))
"""What people said that answered no question."""

_MORE = either(ANY, UNDEFINED)
ERROR = mapping_of(
    {
        "type": TEXTS,
        "message": TEXTS,
        **dict.fromkeys(("details", "by", "reason", "at", "values"), _MORE),
    }
)
"""Why a node failed, and of a rejected approval who rejected it."""

_BY_DEFAULT = "nobody answered when `on_timeout` did"


def fields(**types: Type) -> Callable[[Given], Type]:
    """The same fields, whatever stands under `with`."""
    found = mapping_of(types)
    return lambda with_: found


def ask(with_: Given) -> Type:
    """The answer to a question."""
    values = form_type(with_.get("form"))
    by = PERSON.or_null(_BY_DEFAULT) if with_.get("on_timeout") == "default" else PERSON
    return mapping_of(
        {
            "text": TEXTS,
            "value": _chosen(with_, values),
            "values": values,
            "files": _FILES,
            "by": by,
            "at": TEXTS,
        }
    )


def _chosen(with_: Given, values: Type) -> Type:
    if with_.get("form") is not None:
        single = list((values.fields or {}).values())
        return single[0] if len(single) == 1 else NONE if single else ANY
    choices = with_.get("choices")
    if choices is None:
        return NONE
    offered = _offered(choices)
    return offered.or_null("another reply is an answer too") if with_.get("own_words") else offered


def _offered(choices: Any) -> Type:
    listed = choices if isinstance(choices, list) else []
    values = [each.get("value") if isinstance(each, dict) else each for each in listed]
    known = [value for value in values if isinstance(value, str) and not has_expression(value)]
    return one_of(known) if known and len(known) == len(values) else TEXTS


def approval(with_: Given) -> Type:
    """A decision. An edit with which a covered node could not run is refused."""
    editable = () if with_.get("covers") is not None else with_.get("editable") or ()
    return mapping_of(
        {
            "decision": one_of(["approve", "reject"]),
            "by": list_of(PERSON),
            "reason": Type(TEXT | NULL, why="nobody has to give a reason"),
            "values": form_type(with_.get("form"), editable=editable),
            "at": TEXTS,
        }
    )


def http(with_: Given) -> Type:
    """The answer to a request; of its JSON what `schema` says."""
    schema = with_.get("schema")
    body = ANY if schema is None else schema_type(schema)
    headers = mapping_of({}, rest=TEXTS)
    return mapping_of({"status": NUMBERS, "headers": headers, "body": TEXTS, "json": body})


def agent(with_: Given) -> Type:
    """The answer of an agent; of its data what `output` says."""
    output = with_.get("output")
    return mapping_of(
        {
            "text": TEXTS,
            "data": mapping_of({}) if output is None else schema_type(output),
            "turns": NUMBERS,
            "usage": mapping_of({}, rest=NUMBERS),
            "cost": NUMBERS,
        }
    )


def message(with_: Given) -> Type:
    """Where a message stands; one that only one person sees has no timestamp."""
    ts = TEXTS if with_.get("ephemeral_to") is None else Type(TEXT | NULL)
    return mapping_of({"channel": TEXTS, "ts": ts, "permalink": Type(TEXT | NULL)})


shell = fields(stdout=TEXTS, stderr=TEXTS, exit_code=NUMBERS, seconds=NUMBERS)
wait = fields(until=TEXTS)
