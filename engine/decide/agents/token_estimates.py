"""What of a model call is not in the journal, and how much it weighs: files, and tools that say themselves what they take.

The core sets aside what a call can use before it knows this part. Who makes the call does, and makes none for which too
little is set aside: it says how much is needed, and begins again once that is.

What the API has counted before, and is still the same, weighs nothing more: each part has a `mark`, and an answer says
with which parts it was counted. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from engine.language.codec import Json, encode
from engine.messages.prices import block_bound
from engine.messages.turns import Tool

ROOM = "room"
"""In the config of a model call, and in what it leaves with: tokens for such parts. None: the model's whole context."""

_MOST_TIMES = 2
"""How often a call is weighed. What grows all the time then gets a whole context."""


class Part(NamedTuple):
    """One file or tool. `tokens` is a bound; None where there is none but the model's context."""

    mark: str
    tokens: int | None


def file_part(block: Json) -> Part:
    """A file, as the block that is sent."""
    return Part(_mark(block), block_bound(block))


def tool_part(tool: Tool) -> Part:
    """A tool, as it is sent."""
    told = tool.to_json()
    return Part(_mark(told), len(encode(told)))


def _mark(sent: Json) -> str:
    return blake2b(encode(sent), digest_size=8).hexdigest()


def marks(parts: Iterable[Part]) -> list[str]:
    """What an answer says of the parts with which it was counted."""
    return [part.mark for part in parts]


def too_little(parts: Sequence[Part], config: Mapping[str, Json], before: Json) -> dict[str, Json] | None:
    """What a call leaves with for which too little is set aside: `{room, times}`; None where it can be made. `before` is
    what it left with when it was weighed last."""
    room = config.get(ROOM)
    if room is None:
        return None
    counted = Counter(config.get("weighed") or ())
    new = list((Counter(marks(parts)) - counted).elements())
    bounds = {part.mark: part.tokens for part in parts}
    needed = _sum(bounds[mark] for mark in new)
    if needed is not None and needed <= room:
        return None
    times = 1 + int((before or {}).get("times", 0))
    # What has grown since it was weighed may go on growing.
    return {ROOM: None if needed is None or times > _MOST_TIMES else needed * times, "times": times}


def _sum(bounds: Iterable[int | None]) -> int | None:
    total = 0
    for bound in bounds:
        if bound is None:
            return None
        total += bound
    return total
