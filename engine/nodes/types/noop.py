"""The `noop` node."""

from __future__ import annotations

from engine.nodes.types.fields import Config
from engine.nodes.types.spec import NodeSpec


class NoopConfig(Config):
    """Does nothing. A place to hang an `if` on, or to keep an id."""


SPEC = NodeSpec(config=NoopConfig)
