"""Usage of a turn as the API reports it, read so that everything billed is included. Pure.

`usage` at the top omits compactions, and mixes models if one took over from another. If there are `iterations`, they
count instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from engine.language.codec import Json
from engine.messages.turns import Usage


class Part(NamedTuple):
    """Usage of one model in one round."""

    model: str
    usage: Usage


class Used(NamedTuple):
    """Usage of a turn."""

    parts: tuple[Part, ...] = ()
    context: int | None = None
    """Tokens of the conversation with its answer, where that is another number than the sum; None: it is the sum."""
    searches: int = 0
    """Searches in the web, which cost apart."""

    @property
    def total(self) -> Usage:
        """Return the sum of all tokens."""
        return sum((part.usage for part in self.parts), Usage())


_NAMES = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_input_tokens": "cache_read_tokens",
    "cache_creation_input_tokens": "cache_write_tokens",
}
_HOUR = "ephemeral_1h_input_tokens"


def merged(before: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts after an update: numbers are totals, and missing ones keep their value."""
    return {**before, **{name: value for name, value in told.items() if value is not None}}


def used(told: Mapping[str, Any], model: str) -> Used:
    """Return the API's count for a call that asked for `model`."""
    hour = int((told.get("cache_creation") or {}).get(_HOUR) or 0)
    searches = int((told.get("server_tool_use") or {}).get("web_search_requests") or 0)
    rounds = told.get("iterations") or []
    if not rounds:
        return Used((Part(model, _usage(told, hour)),), None, searches)
    # A request has one cache lifetime: if it wrote for an hour once, it did so in each round.
    parts = tuple(
        Part(str(each.get("model") or model), _usage(each, _hour_of(each, hour))) for each in rounds
    )
    said = [part.usage for part, each in zip(parts, rounds, strict=True) if each.get("type") != "compaction"]
    last = said[-1] if said else Usage()
    return Used(parts, last.prompt_tokens + last.output_tokens, searches)


def _hour_of(told: Mapping[str, Any], hour: int) -> int:
    split = told.get("cache_creation")
    if isinstance(split, dict):
        return int(split.get(_HOUR) or 0)
    return int(told.get("cache_creation_input_tokens") or 0) if hour else 0


def _usage(told: Mapping[str, Any], hour: int) -> Usage:
    found = {ours: int(told.get(theirs) or 0) for theirs, ours in _NAMES.items()}
    found["cache_write_tokens"] = max(0, found["cache_write_tokens"] - hour)
    return Usage(**found, cache_write_1h_tokens=hour)


def parts_json(known: Used, model: str) -> list[Json]:
    """Return the parts, unless they are simply one call of `model`."""
    if len(known.parts) < 2 and all(part.model == model for part in known.parts):
        return []
    return [{"model": part.model, "usage": part.usage.to_json()} for part in known.parts]
