"""The `set` node: names for values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ConfigDict, RootModel

from engine.language.codec import Json
from engine.language.diagnostics import Fault
from engine.language.template import has_expression
from engine.nodes.types.fields import NAME
from engine.nodes.types.spec import Known, NodeSpec
from engine.types.lattice import ANY, Type, mapping_of


class SetConfig(RootModel[dict[str, Any]]):
    """Gives names to values; each key under `with` is a field of the output."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """Names must be such that expressions can use them."""
        for name in raw:
            if not NAME.fullmatch(name) and not has_expression(name):
                hint = "use small letters, digits and _, a letter first"
                yield Fault((name,), f"{name!r} is no name for a value", hint, on_key=True)


def _output(known: Known) -> Type:
    return mapping_of(dict.fromkeys(known.with_, ANY)) if known.within is None else known.within


SPEC = NodeSpec(config=SetConfig, outputs=None, output=_output)
