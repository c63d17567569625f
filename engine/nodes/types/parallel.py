"""The `parallel` node: branches at the same time."""

from __future__ import annotations

from typing import Literal

from engine.nodes.types.fields import Config
from engine.nodes.types.spec import Known, NodeSpec
from engine.types.lattice import Type, mapping_of


class ParallelConfig(Config):
    """Runs its `branches` at the same time. A branch that waits for a person does not delay the others."""

    mode: Literal["fail_fast", "collect"] = "fail_fast"
    """If a branch fails: it ends the others and fails the node at once, or (`collect`) all branches run to their
    end and the node completes."""


def _output(known: Known) -> Type:
    why = None
    if known.with_.get("mode") not in (None, "fail_fast"):
        why = "with `mode: collect`, a branch may have failed"
    branches = {
        name: mapping_of({key: each if why is None else each.or_null(why) for key, each in outputs.items()})
        for name, outputs in known.inner.items()
    }
    return mapping_of({"branches": mapping_of(branches)})


SPEC = NodeSpec(
    config=ParallelConfig,
    outputs={
        "branches": "By branch name, the outputs of its nodes by id; null for a node that was skipped, failed, or not "
        "reached."
    },
    output=_output,
    parts={"branches": "Names, each with a list of nodes."},
    required_parts=("branches",),
)
