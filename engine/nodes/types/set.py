"""The `set` node: names for values."""

from __future__ import annotations

from engine.nodes.types.fields import AnyNames
from engine.nodes.types.spec import Known, NodeSpec
from engine.types.lattice import ANY, Type, mapping_of


class SetConfig(AnyNames):
    """Names values: each key under `with` is a field of the output."""


def _output(known: Known) -> Type:
    return mapping_of(dict.fromkeys(known.with_, ANY)) if known.within is None else known.within


SPEC = NodeSpec(config=SetConfig, outputs=None, output=_output)
