"""The `call` node: its output is the approved call. The requesting agent makes the call once the gate releases it."""

from __future__ import annotations

from engine.language.codec import Json
from engine.nodes.runtime.runner import Completed, NodeContext, Outcome


async def call(config: dict[str, Json], ctx: NodeContext) -> Outcome:
    """Return the approved call."""
    return Completed({"tool": config["tool"], "arguments": config["arguments"]})
