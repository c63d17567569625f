"""What authors of node types import: a class with a config, registered under the entry points `sayso.nodes`.

See docs/own-nodes.md; `examples/own-node` is a package to start from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from engine.language.codec import Json
from engine.language.errors import PauseError
from engine.nodes.runtime.user_code import Context, NodeError
from engine.nodes.types.fields import Config
from engine.nodes.types.fields import Scalar as SecretText

__all__ = ["Config", "Context", "Json", "NodeError", "NodeType", "PauseError", "SecretText"]


class NodeType(ABC):
    """A node type. One instance serves all nodes of a process, so it keeps nothing between two runs.

    The docstring of `config` is what the flow reference and editors say about the type.
    """

    config: ClassVar[type[Config]]
    """What may stand under `with`; sayso evaluates the expressions, checks, and gives `run` an instance."""
    outputs: ClassVar[Mapping[str, str] | None] = None
    """The fields of the output with a sentence each, so that flows are checked against them; None: anybody's guess."""
    on_crash: ClassVar[Literal["again", "ask"]] = "ask"
    """What an interruption means: `again` only where running twice does no harm, else a person is asked."""
    timeout: ClassVar[float | None] = None
    """Seconds that a node may take unless it says otherwise."""
    secret_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields of `config` (of type `SecretText`, or mappings of it) in which `{{ secrets.NAME }}` may stand."""
    unknown_output: ClassVar[Mapping[str, Json]] = {}
    """The output when a person says that an interrupted node is done."""

    @abstractmethod
    async def run(self, config: Any, ctx: Context) -> Json:
        """Do the work and return the output, which must be JSON. What it raises fails the node."""
