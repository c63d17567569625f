"""The MCP servers of an engine: the SDK that talks to them is loaded by the first agent that has one of their tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine.language.codec import Json
from engine.nodes.runtime.runner import NodeContext, Outcome

if TYPE_CHECKING:
    from engine.messages.turns import Tool
    from engine.nodes.runtime.mcp import McpServers


class ToolServers:
    """The runner of nodes of type `mcp`, over the servers that a file names."""

    def __init__(self, file: Path, secret: Callable[[str], str]) -> None:
        self._file, self._secret = file, secret
        self._made: McpServers | None = None

    @property
    def _servers(self) -> McpServers:
        if self._made is None:
            from engine.nodes.runtime.mcp import McpServers

            self._made = McpServers(self._file, self._secret)
        return self._made

    async def __call__(self, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        """Call a tool; see `Runner`."""
        return await self._servers(config, ctx)

    async def mcp_tools(self, server: str, names: Sequence[str]) -> list[Tool]:
        """See `McpServers`."""
        return await self._servers.mcp_tools(server, names)

    async def close(self) -> None:
        """Close all connections."""
        if self._made is not None:
            await self._made.close()
