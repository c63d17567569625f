"""The `call` node: a call of a tool that an agent outside of sayso wants to make. The gate makes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from engine.language.codec import Json
from engine.language.credentials import without_credentials
from engine.nodes.types.fields import Config, Text
from engine.nodes.types.preview import as_json, block, quoted
from engine.nodes.types.spec import NodeSpec


class CallConfig(Config):
    """One call of a tool that an agent outside of sayso wants to make."""

    tool: Text = Field(description="The tool, by the agent's name for it.")
    arguments: dict[str, Any] = Field(default_factory=dict, description="What the tool is given.")


def _preview(config: Mapping[str, Json]) -> Iterator[str]:
    yield quoted(config["tool"])
    for name, value in (config.get("arguments") or {}).items():
        if isinstance(value, str):
            yield from block(quoted(name), without_credentials(value))
        else:
            yield f"{quoted(name)}: {without_credentials(as_json(value))}"


SPEC = NodeSpec(
    config=CallConfig,
    outputs={"tool": "The tool that may be called.", "arguments": "The arguments that were approved."},
    preview=_preview,
    previewed=frozenset({"tool", "arguments"}),
)
