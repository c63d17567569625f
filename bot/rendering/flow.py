"""What rendering reads of a flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bot.rendering.text import one_line, safe

WITHOUT_EFFECT = ("ask", "approval", "wait")
"""Types whose nodes wait and do nothing else: ended in the middle, nothing about them is unknown."""


class NodeLike(Protocol):
    """A node of a flow."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...


class FlowLike(Protocol):
    """A flow. `engine.flow.Flow` is one."""

    @property
    def name(self) -> str: ...
    @property
    def nodes(self) -> Sequence[NodeLike]: ...


def label_of(flow: FlowLike, path: str) -> str:
    """What people call the place `path`, ready for mrkdwn: the node's name, else the path itself."""
    for node in flow.nodes:
        if node.id == path:
            return safe(one_line(node.name or node.id, 60))
    return safe(one_line(path, 60))
