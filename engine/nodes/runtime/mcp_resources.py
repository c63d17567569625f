"""Resources of an MCP server: their list and their contents, limited to those the flow may read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from engine.flow.builtin_tools import may_read
from engine.language.codec import Json
from engine.nodes.runtime.mcp_results import MOST_PARTS, resource

if TYPE_CHECKING:
    from mcp import Client

MOST_LISTED = 500


async def parts(client: Client, uri: str | None, patterns: Sequence[str]) -> list[dict[str, Json]]:
    """Return the parts of an output: the contents of this resource, or without one a line for each readable resource."""
    if uri is not None:
        found = await client.read_resource(uri, cache_mode="bypass")
        return [resource(part) for part in found.contents[:MOST_PARTS]]
    lines = [_line(uri, about) for uri, about in await _listed(client) if may_read(uri, patterns)]
    return [{"type": "text", "text": "\n".join(lines) or "(there is nothing to read)"}]


async def _listed(client: Client) -> list[tuple[str, Any]]:
    found, cursor = list[tuple[str, Any]](), None
    while len(found) < MOST_LISTED:
        page = await client.list_resources(cursor=cursor, cache_mode="bypass")
        found += [(each.uri, each) for each in page.resources]
        cursor = page.next_cursor
        if not cursor:
            break
    templates = await client.list_resource_templates(cache_mode="bypass")
    return [*found, *((each.uri_template, each) for each in templates.resource_templates)][:MOST_LISTED]


def _line(uri: str, about: Any) -> str:
    told = [about.title or about.name, " ".join(str(about.description or "").split())[:300], about.mime_type]
    return " · ".join([uri, *filter(None, told)])
