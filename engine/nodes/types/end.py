"""The `end` node: an early end, as a success."""

from __future__ import annotations

from pydantic import Field

from engine.language.codec import Json
from engine.nodes.types.fields import Config
from engine.nodes.types.spec import Known, NodeSpec
from engine.types.lattice import ANY, NULL, Type, mapping_of


class EndConfig(Config):
    """Ends the list that it stands in, as a success: the nodes behind it are skipped.

    Among the nodes of the flow, that is the end of the flow, and `finally` runs. In a container it ends that round, branch, case
    or called flow, and what is around it goes on. Give it an `if`, or put it before the target of a `goto`. It stands in no graph
    (leave out the edges that lead on) and in no `on_failure`.
    """

    output: Json = Field(None, description="What came of it, as `nodes.<id>.output`.")


def _output(known: Known) -> Type:
    given = None if known.within is None else known.within.fields
    missing = Type(NULL, why="the `end` has no `output`")
    return mapping_of({"output": ANY if given is None else given.get("output", missing)})


SPEC = NodeSpec(config=EndConfig, outputs={"output": "The value under `output`."}, output=_output)
