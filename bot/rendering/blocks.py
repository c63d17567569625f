"""Block Kit, built so that Slack takes it: every builder keeps its block's limits, `fit` those of the message.

Slack refuses a message that is too large as a whole, and then people see nothing. So what cannot be shown is cut
with words that say so, and what must be seen (who is asked, buttons) is placed first and never dropped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeAlias

from bot.rendering.text import clip, cut, shown, take, weight

Block: TypeAlias = dict[str, Any]

EVENT_TYPE = "sayso_post"
"""Marks our posts in Slack's message metadata; the payload has the outbox key and nothing else."""

MOST_BLOCKS = 50
MOST_UNITS = 13_000
"""Of all blocks as JSON. Slack refuses at about 13 200, which it does not document."""
MOST_TEXT = 4_000
MOST_MESSAGE = 12_000
_SECTION = 3_000
_NOTICE = 400
_ID = 255


@dataclass(frozen=True, slots=True)
class Rendered:
    """A message: `text` is safe mrkdwn for notifications and for where blocks are not taken."""

    text: str
    blocks: list[Block]
    metadata: dict[str, Any] | None = None
    plain: str = ""
    """What is said as well where blocks are not taken."""


def rendered(text: str, blocks: list[Block], key: str | None = None, plain: str = "") -> Rendered:
    """A message with its text within limits, and with the metadata by which it is found again."""
    return Rendered(cut(shown(text), MOST_TEXT) or " ", blocks, None if key is None else metadata(key), plain)


def metadata(key: str) -> dict[str, Any]:
    """Slack message metadata for an outbox key."""
    return {"event_type": EVENT_TYPE, "event_payload": {"key": key}}


def block_key(key: str) -> str:
    """An outbox key as a `block_id`: itself, or its start and a digest where it is too long."""
    if weight(key) <= _ID:
        return key
    return f"{clip(key, 180)}{blake2b(key.encode(), digest_size=16).hexdigest()}"


def size(blocks: Sequence[Block]) -> int:
    """The units of blocks as JSON."""
    dumped = json.dumps(blocks, ensure_ascii=False, separators=(",", ":"))
    return len(dumped.encode("utf-16-le", "surrogatepass")) // 2


# --- blocks ------------------------------------------------------------------------------------------------


def with_id(block: Block, key: str | None) -> Block:
    """The block with an id, if one is given."""
    return block if key is None else {**block, "block_id": block_key(key)}


def section(mrkdwn: str, key: str | None = None, *, most: int = _SECTION) -> Block:
    """A section of mrkdwn. `expand`: what is asked of people must not hide behind "see more"."""
    text = {"type": "mrkdwn", "text": cut(shown(mrkdwn), most) or " ", "verbatim": True}
    return with_id({"type": "section", "text": text, "expand": True}, key)


def quoted(text: str, *, most: int = _SECTION) -> Block:
    """A section with somebody's text, in which no markup counts."""
    return {"type": "section", "text": _plain(text, most)}


def header(text: str, key: str | None = None) -> Block:
    """A title."""
    return with_id({"type": "header", "text": {**_plain(" ".join(text.split()), 150), "emoji": True}}, key)


def context(*parts: str, most: int = 900) -> Block:
    """Small print: parts of mrkdwn, ten at most."""
    elements = [
        {"type": "mrkdwn", "text": cut(shown(part), most), "verbatim": True} for part in parts if part
    ]
    return {"type": "context", "elements": elements[:10]}


def small(text: str, *, most: int = 900) -> Block:
    """Small print of somebody's text, in which no markup counts."""
    return {"type": "context", "elements": [_plain(text, most)]}


def button(label: str, action_id: str, value: str, style: str | None = None) -> Block:
    """A button."""
    text = {**_plain(" ".join(label.split()), 75), "emoji": True}
    made: Block = {"type": "button", "text": text, "action_id": action_id, "value": value}
    return {**made, "style": style} if style in ("primary", "danger") else made


def actions(elements: Sequence[Block]) -> Block:
    """A row of buttons."""
    return {"type": "actions", "elements": list(elements)}


def _plain(text: str, most: int) -> Block:
    return {"type": "plain_text", "text": clip(shown(text), most) or " ", "emoji": False}


# --- fitting -----------------------------------------------------------------------------------------------


def fit(head: Sequence[Block], body: Sequence[Block], tail: Sequence[Block] = ()) -> list[Block]:
    """`head` and `tail` with as much of `body` between them as a message takes; a notice for what is left out.

    Head and tail together must leave room for the notice.
    """
    room = MOST_UNITS - size(list(head)) - size(list(tail)) - _NOTICE
    places = MOST_BLOCKS - len(head) - len(tail) - 1
    kept: list[Block] = []
    for block in body[:places]:
        room -= size([block])
        if room < 0:
            break
        kept.append(block)
    left_out = len(body) - len(kept)
    notice = [context("_The rest does not fit into one message and is not shown._")] if left_out else []
    return [*head, *kept, *notice, *tail]


def fit_text(head: Sequence[Block], mrkdwn: str, tail: Sequence[Block] = ()) -> list[Block]:
    """`head` and `tail` with the text between them in as many sections as it needs; cut, visibly, where it must be."""
    room = MOST_UNITS - size(list(head)) - size(list(tail)) - _NOTICE
    made, rest = text_sections(mrkdwn, min(MOST_MESSAGE, room))
    if rest:
        made.append(context(f"_Cut here: {len(rest):,} more characters are not shown._"))
    return [*head, *made, *tail]


def text_sections(mrkdwn: str, room: int) -> tuple[list[Block], str]:
    """A text in as many sections as it needs, of at most `room` units in all, and the rest of it."""
    made: list[Block] = []
    rest, left = shown(mrkdwn).strip("\n"), room
    overhead = size([section("")])
    while rest and left > overhead + 100:
        piece, after = take(rest, min(_SECTION, left - overhead))
        if len(after) >= len(rest):
            break
        rest = after
        if piece.strip():
            made.append(section(piece))
            left -= size([made[-1]])
    return made, rest


def sections(lines: Sequence[str], *, most: int = 1_500) -> list[Block]:
    """Lines of mrkdwn as few sections, none of them torn; each line by itself is cut to fit."""
    made: list[Block] = []
    held: list[str] = []
    used = 0
    for line in (cut(shown(line), most) for line in lines):
        cost = weight(line) + 2
        if held and used + cost > most:
            made.append(section("\n".join(held)))
            held, used = [], 0
        held.append(line)
        used += cost
    return [*made, section("\n".join(held))] if held else made
