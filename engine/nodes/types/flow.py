"""The `flow` node: another flow in the same session."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

from engine.language.diagnostics import kind_of
from engine.nodes.types.fields import Config
from engine.nodes.types.names import FLOW_NAME, MAX_NAME
from engine.nodes.types.spec import NodeSpec


def _flow_name(value: Any) -> str:
    if not isinstance(value, str) or not FLOW_NAME.fullmatch(value) or len(value) > MAX_NAME:
        raise ValueError(f"expected the name of a flow such as `rollback`, not {kind_of(value)}")
    return value


FlowName: TypeAlias = Annotated[
    str, BeforeValidator(_flow_name), WithJsonSchema({"type": "string", "pattern": f"^{FLOW_NAME.pattern}$"})
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
