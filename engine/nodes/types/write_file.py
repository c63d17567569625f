"""The `write_file` node: a text file in the session's folder. It stands in no flow file: agents make it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.language.codec import Json
from engine.nodes.types.fields import Config, Text
from engine.nodes.types.preview import block, quoted
from engine.nodes.types.spec import NodeSpec


class WriteFileConfig(Config):
    """Writes a text file in the session's folder."""

    path: Text
    """The file, relative to the session's folder."""
    content: str
    """The whole text of the file."""


def _preview(config: Mapping[str, Json]) -> Iterator[str]:
    yield f"write file {quoted(config['path'])}"
    yield from block("content", config["content"])


SPEC = NodeSpec(
    config=WriteFileConfig,
    any_output=True,
    timeout=60.0,
    preview=_preview,
    previewed=frozenset({"path", "content"}),
    internal=True,
)
