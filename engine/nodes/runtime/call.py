"""The `call` node: what was approved is its output. The agent that asked makes the call, once the gate hands that out."""

from __future__ import annotations

from engine.language.codec import Json
from engine.nodes.runtime.runner import Completed, NodeContext, Outcome


async def call(config: dict[str, Json], ctx: NodeContext) -> Outcome:
    """Give what was approved."""
    return Completed({"tool": config["tool"], "arguments": config["arguments"]})
