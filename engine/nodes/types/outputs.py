"""Types that the outputs of several node types share.

A value that is null only after a person said that an interrupted node is done counts as the value: who says so knows
what follows.
"""

from __future__ import annotations

from engine.nodes.types.spec import Known
from engine.types.lattice import ANY, NULL, NUMBERS, TEXT, TEXTS, UNDEFINED, Type, either, list_of, mapping_of

AT = "When, in UTC."
BODY_EDGES = "The edges between these nodes, when they are a graph; see [Graphs](#graphs)."

PERSON = mapping_of({"id": TEXTS, "name": Type(TEXT | NULL), "email": Type(TEXT | NULL)})
"""Somebody: who asked for the run, who answered."""

FILES = list_of(mapping_of({"name": TEXTS, "path": TEXTS, "size": NUMBERS, "type": TEXTS}))

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


def rounds(known: Known, item: Type) -> Type:
    """The output of a container that goes through its body in rounds."""
    record = mapping_of(
        {
            "index": NUMBERS,
            "item": item,
            "outputs": mapping_of(known.inner.get("body", {})),
            "error": either(ANY, UNDEFINED),
        }
    )
    fields = {"iterations": list_of(record)}
    return mapping_of(fields if known.collected is None else {**fields, "collected": known.collected})
