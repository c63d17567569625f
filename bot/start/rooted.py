"""A flow that is wanted in a channel, in a thread that the bot is to begin: by a schedule, or by `start-flow`."""

from __future__ import annotations

from collections.abc import Mapping

from engine.journal.records import InboxItem
from engine.language.codec import Json, encode

WANTED = "slack.wanted"
WANTED_ROOTED = "slack.wanted_rooted"
"""Kinds of inbox rows: what is wanted, and the same once its message stands."""


def wanted_item(
    key: str,
    flow: str,
    place: str,
    inputs: Mapping[str, Json],
    *,
    why: str,
    icon: str = "⏰",
    local: str | None = None,
) -> InboxItem:
    """A flow that is wanted in a channel, by id or `#name`. `why` stands on its message; `local` is who wants it at the
    terminal."""
    data: dict[str, Json] = {
        "flow": flow,
        "place": place,
        "inputs": dict(inputs),
        "why": why,
        "icon": icon,
        "local": local,
    }
    return InboxItem(key, WANTED, encode(data))
