"""The `set` node: names for values."""

from __future__ import annotations

from engine.nodes.types.fields import AnyNames
from engine.nodes.types.spec import NodeSpec
from engine.types.lattice import ANY, mapping_of


class SetConfig(AnyNames):
    """Names values: each key under `with` is a field of the output."""


SPEC = NodeSpec(
    config=SetConfig,
    outputs=None,
    output=lambda known: known.within or mapping_of(dict.fromkeys(known.with_, ANY)),
)
