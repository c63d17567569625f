"""The `read_file` node: a file of the session's folder. It is in no flow file: agents make it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from engine.nodes.types.fields import Config, Text
from engine.nodes.types.preview import quoted
from engine.nodes.types.spec import NodeSpec


class ReadFileConfig(Config):
    """Reads a picture, or some lines of a text file, in the session's folder."""

    path: Text
    """The file, relative to the session's folder."""
    first_line: Annotated[int, Field(ge=1)] = 1
    """The line to begin with."""
    lines: Annotated[int, Field(ge=1)] | None = None
    """The most lines."""


SPEC = NodeSpec(
    config=ReadFileConfig,
    any_output=True,
    timeout=60.0,
    preview=lambda config: [f"read file {quoted(config['path'])}"],
    previewed=frozenset({"path"}),
    internal=True,
)
