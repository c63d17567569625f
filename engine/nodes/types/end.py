"""The `end` node: an early end, as a success."""

from __future__ import annotations

from engine.language.codec import Json
from engine.nodes.types.fields import Config
from engine.nodes.types.spec import Known, NodeSpec
from engine.types.lattice import ANY, NULL, Type, mapping_of


class EndConfig(Config):
    """Ends its list as a success: the nodes after it are skipped.

    In the flow's own `nodes` it ends the flow, and `finally` runs. In a container it ends only that iteration, branch,
    case or called flow. Give it an `if`, or put it before the target of a `goto`. You cannot use it in a graph (leave
    out the edges that lead on) or in `on_failure`.
    """

    output: Json = None
    """The result, as `nodes.<id>.output`."""


def _output(known: Known) -> Type:
    given = None if known.within is None else known.within.fields
    missing = Type(NULL, why="the `end` has no `output`")
    return mapping_of({"output": ANY if given is None else given.get("output", missing)})


SPEC = NodeSpec(config=EndConfig, outputs={"output": "The value under `output`."}, output=_output)
