"""The `write_file` node: a text file in the session's folder. It is in no flow file: agents make it."""

from __future__ import annotations

from engine.nodes.types.fields import Config, Text
from engine.nodes.types.preview import block, quoted
from engine.nodes.types.spec import NodeSpec


class WriteFileConfig(Config):
    """Writes a text file in the session's folder."""

    path: Text
    """The file, relative to the session's folder."""
    content: str
    """The whole text of the file."""


SPEC = NodeSpec(
    config=WriteFileConfig,
    any_output=True,
    timeout=60.0,
    preview=lambda config: [f"write file {quoted(config['path'])}", *block("content", config["content"])],
    previewed=frozenset({"path", "content"}),
    internal=True,
)
