"""The `mcp` node: one call of a tool of an MCP server. It is in no flow file: agents make it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from engine.language.codec import Json
from engine.nodes.types.fields import Config, Text
from engine.nodes.types.preview import as_json, quoted
from engine.nodes.types.spec import NodeSpec, ask


class McpConfig(Config):
    """One call of a tool of an MCP server."""

    server: Text
    """The configured name of the server."""
    tool: Text
    """The tool, by the server's name for it."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """The input of the tool."""
    resources: list[Text] | None = None
    """Patterns of what may be read: resources of the server are listed, or one is read."""


def _preview(config: Mapping[str, Json]) -> Iterator[str]:
    yield f"{quoted(config['tool'])} of the MCP server {quoted(config['server'])}"
    for name, value in (config.get("arguments") or {}).items():
        yield f"{quoted(name)}: {as_json(value)}"


SPEC = NodeSpec(
    config=McpConfig,
    any_output=True,
    sparse_fields=frozenset({"resources"}),
    timeout=300.0,
    on_crash=ask,
    preview=_preview,
    previewed=frozenset({"server", "tool", "arguments", "resources"}),
    uninspectable="what the server does with that",
    internal=True,
)
