"""The `fail` node: an end of the flow, on purpose."""

from __future__ import annotations

from engine.nodes.types.fields import Config, Shown
from engine.nodes.types.spec import NodeSpec


class FailConfig(Config):
    """Fails the flow, on purpose."""

    message: Shown
    """The reason, shown in the thread."""


SPEC = NodeSpec(config=FailConfig, fails=True)
