"""The `flow` node: another flow in the same session."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import Field, WithJsonSchema

from engine.nodes.types.fields import Config, text_like
from engine.nodes.types.names import FLOW_NAME, MAX_NAME
from engine.nodes.types.spec import NodeSpec

FlowName: TypeAlias = Annotated[
    str,
    text_like(FLOW_NAME, "expected the name of a flow such as `rollback`, not {}", MAX_NAME),
    WithJsonSchema({"type": "string", "pattern": f"^{FLOW_NAME.pattern}$"}),
]


class FlowConfig(Config):
    """Runs another flow in the same run and thread, with its own inputs and nodes.

    The called flow sees only its own inputs and nodes, and it is pinned when the run starts. Its `triggers` and
    `limits` are ignored here; you cannot call a flow with a `lock`.
    """

    flow: FlowName
    """The flow's name, literal."""
    inputs: dict[str, Any] = Field(default_factory=dict)
    """Its inputs, by name."""


SPEC = NodeSpec(
    config=FlowConfig,
    outputs={"outputs": "The outputs of the called flow's nodes by id."},
    verbatim_fields=frozenset({"flow"}),
    static_fields=frozenset({"flow"}),
    calls=True,
)
