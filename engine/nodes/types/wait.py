"""The `wait` node: waits until a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field

from engine.language.codec import Json
from engine.language.diagnostics import Fault
from engine.nodes.types.fields import Config, Moment, Span, one_of
from engine.nodes.types.spec import NodeSpec
from engine.types.lattice import TEXTS, mapping_of


class WaitConfig(Config):
    """Waits for a time. No process waits: the timer is in the store."""

    for_: Span | None = Field(None, alias="for")
    """The duration, such as `10m`. Either this or `until`."""
    until: Moment | None = None
    """The end: ISO-8601 with an offset, `2026-11-21T22:40:00Z`. A past moment ends the wait at once."""

    @classmethod
    def conflicts(cls, raw: Mapping[str, Json]) -> Iterator[Fault]:
        """Require one of `for` and `until`."""
        yield from one_of(raw, "for", "until")


SPEC = NodeSpec(
    config=WaitConfig,
    outputs={"until": "The end of the wait, in UTC."},
    output=lambda known: mapping_of({"until": TEXTS}),
    exact=("for", "until"),
)
