"""The `noop` node."""

from __future__ import annotations

from engine.nodes.types.fields import Config
from engine.nodes.types.spec import NodeSpec


class NoopConfig(Config):
    """Does nothing. Use it to hold an `if` or an id."""


SPEC = NodeSpec(config=NoopConfig)
