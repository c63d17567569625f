"""The `remember` node: a note for later runs. It is in no flow file: agents make it. Its row is written in the commit of
its outcome (`engine.decide.agents.memory`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from engine.language.codec import Json
from engine.language.timestamps import format_duration
from engine.nodes.types.fields import Config, Text
from engine.nodes.types.preview import block
from engine.nodes.types.spec import NodeSpec

PLACES: Mapping[str, str] = {"channel": "agents in this channel", "flow": "agents of this flow"}


class RememberConfig(Config):
    """Keeps a note that later runs read."""

    text: Text
    """The note."""
    scope: Literal["channel", "flow"]
    """Its readers."""
    keep: float
    """For how many seconds."""


def _preview(config: Mapping[str, Json]) -> Iterator[str]:
    yield f"remember, for {PLACES[str(config['scope'])]}, for {format_duration(float(config['keep']))}:"
    yield from block("text", config["text"])


SPEC = NodeSpec(
    config=RememberConfig,
    any_output=True,
    preview=_preview,
    previewed=frozenset({"text", "scope", "keep"}),
    internal=True,
)
