"""The `foreach` node: its body once for each item of a list.

What a container takes is evaluated once, when it starts, and is frozen from then on; the nodes are beside `with`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

from engine.language.codec import Json
from engine.language.diagnostics import kind_of
from engine.nodes.types.fields import Config
from engine.nodes.types.names import MAX_NAME, NAME, RESERVED_WORDS
from engine.nodes.types.spec import BODY_EDGES, Known, NodeSpec, rounds
from engine.types.lattice import ANY, LIST, NUMBERS, Type


def _variable(value: Any) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value) or len(value) > MAX_NAME:
        raise ValueError(
            f"{kind_of(value)} is not a valid name: use lowercase letters, digits and _, starting with a letter"
        )
    if value in RESERVED_WORDS and value != "item":
        raise ValueError(f"`{value}` is a reserved word and cannot name the item")
    return value


Variable: TypeAlias = Annotated[
    str, BeforeValidator(_variable), WithJsonSchema({"type": "string", "pattern": f"^{NAME.pattern}$"})
]


class ForeachConfig(Config):
    """Runs its `body` once for each item of a list.

    The list is read once, when the node starts. In the body the item has the name in `as`, and `index` counts from 0.
    An empty list completes at once. An iteration that fails ends the others and fails the node.
    """

    items: list[Any]
    """The list."""
    as_: Variable = Field("item", alias="as")
    """The name of the item in the body."""
    collect: Any = None
    """A value from each iteration, evaluated at its end with the names of the body. `collected` in the output has
    these values, in the order of the items."""
    concurrency: Annotated[int, Field(ge=1)] = 1
    """The most iterations at the same time, including those that wait for a person."""


def _item_name(with_: Mapping[str, Json]) -> str:
    name = with_.get("as", "item")
    return name if isinstance(name, str) else "item"


def _item(known: Known) -> Type:
    """The type of the item, from that of `items`."""
    fields = known.within.fields if known.within is not None else None
    items = fields.get("items", ANY) if fields is not None else ANY
    return items.items or ANY if items.kinds == LIST else ANY


SPEC = NodeSpec(
    config=ForeachConfig,
    outputs={
        "iterations": "A list of `{index, item, outputs}`, one for each item in the order of the items; `outputs` "
        "has the outputs of the body's nodes by id.",
        "collected": "With `collect`: the collected values, in the order of the items.",
    },
    output=lambda known: rounds(known, _item(known)),
    verbatim_fields=frozenset({"as", "collect"}),
    sparse_fields=frozenset({"collect"}),
    static_fields=frozenset({"as"}),
    parts={"body": "The nodes that run for each item.", "edges": BODY_EDGES},
    required_parts=("body",),
    item_name=_item_name,
    variables=lambda known, last: {"index": NUMBERS, _item_name(known.with_): _item(known)},
)
