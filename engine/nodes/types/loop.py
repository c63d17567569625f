"""The `loop` node: its body again and again. Its conditions are asked in each round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, WithJsonSchema

from engine.language.codec import Json
from engine.language.diagnostics import Fault
from engine.nodes.types.fields import Config
from engine.nodes.types.spec import BODY_EDGES, NodeSpec, rounds
from engine.types.lattice import NONE, NUMBERS, mapping_of

Condition: TypeAlias = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [{"type": "string", "pattern": r"\{\{"}, {"type": "boolean"}, {"type": "null"}],
            "title": "condition",
        }
    ),
]


class LoopConfig(Config):
    """Repeats its `body` while `while` is true or until `until` is true.

    `while` is checked before each iteration and `until` after it. In the body and in both conditions `last` has the
    outputs of the previous iteration (`last.<id>`; in `until` of the one that just ended), null before the first has
    ended, and `index` counts iterations from 0.
    """

    while_: Condition = Field(None, alias="while")
    """A condition in `{{ }}`, checked before each iteration; false ends the loop."""
    until: Condition = None
    """A condition in `{{ }}`, checked after each iteration; true ends the loop."""
    max_iterations: Annotated[int, Field(ge=1)] = 100
    """The most iterations."""
    on_limit: Literal["fail", "continue", "ask"] = "fail"
    """Action when another iteration is due at the limit: fail, continue the flow, or (`ask`) let people choose
    one more iteration, continue, or stop."""

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """A loop needs to know when to end."""
        if raw.get("while") is None and raw.get("until") is None:
            hint = "a fixed number of rounds is a `foreach` over {{ range(3) }}"
            yield Fault((), "`while` or `until` is missing", hint)


_CONDITIONS = frozenset({"while", "until"})

SPEC = NodeSpec(
    config=LoopConfig,
    outputs={
        "iterations": "A list of `{index, item, outputs}`, one for each iteration; `item` is null, `outputs` has the "
        "outputs of the body's nodes by id."
    },
    output=lambda known: rounds(known, NONE),
    verbatim_fields=_CONDITIONS,
    condition_fields=_CONDITIONS,
    parts={"body": "The nodes that run in each iteration.", "edges": BODY_EDGES},
    required_parts=("body",),
    variables=lambda known, last: {
        "index": NUMBERS,
        "last": mapping_of(last()).or_null("it is null in the first round"),
    },
)
