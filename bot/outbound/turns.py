"""Turn that a row of the outbox waits for: its urgency, and its method.

Posts in a thread are ordered: a lane has one row at a time. An edit is in the lane of its message alone. It is rendered when it
is sent, so of several changes of a message only the last one is shown.
"""

from __future__ import annotations

from bot.intents.slots import CARD, QUESTION, SHOW, SPEECH
from bot.outbound.calls import EDIT, POST, REACT, RESPOND, STATUS, SUGGEST, UNREACT, WHISPER
from bot.outbound.posts import posted_of, result_of
from bot.wire.budget import Urgency
from engine.journal.records import OutboxRow
from engine.language.codec import Json, decode

_FIRST = ("root", "ephemeral", "respond")
_BESIDE = {"reaction": REACT, "mark": REACT, "status": STATUS, "suggest": SUGGEST}
"""Rows that are no message, and that nobody waits for."""
_METHODS = {**_BESIDE, "ephemeral": WHISPER, "respond": RESPOND}
_ELSEWHERE = ("tell", "direct", "file")
_IN_THREAD = (SHOW, "remind", "escalate", "handed")


def slot_of(row: OutboxRow) -> str | None:
    """The slot of a row; None for a row that is none."""
    return row.key.partition(":")[0] if row.kind == SHOW else None


def in_thread(row: OutboxRow) -> bool:
    """True if a row goes into its session's thread, and is seen by everybody there."""
    if row.kind != "message":
        return row.kind in _IN_THREAD
    config = decode(row.payload)["config"]
    return not any(config.get(field) for field in ("to", "update", "ephemeral_to"))


def is_edit(row: OutboxRow) -> bool:
    """True if a row changes an existing message, as a slot does from its second time on; `message` nodes that change one do not
    count."""
    if row.kind == SHOW:
        return posted_of(row) is not None
    return row.kind in ("edit", "tally")


def repeatable(row: OutboxRow) -> bool:
    """True if a row can be sent again without harm."""
    return row.kind in _BESIDE or is_edit(row)


def lane_of(row: OutboxRow) -> str:
    """Rows with the same lane are sent one after the other: posts of a thread, and the changes of one message, which may
    show several slots."""
    return str(result_of(row).get("on") or row.key) if is_edit(row) else row.lane


def urgency_of(row: OutboxRow) -> Urgency:
    """Return the urgency of a row."""
    slot = slot_of(row)
    if not is_edit(row):
        if row.kind in _FIRST or slot in (CARD, QUESTION):
            return Urgency.QUESTION
        if row.kind == "mark":
            return Urgency.MARK
        return Urgency.PROGRESS if row.kind in _BESIDE else Urgency.RESULT
    data: dict[str, Json] = decode(row.payload)
    if row.kind == "edit" or (slot == QUESTION and data["live"]):
        return Urgency.WAITED_FOR
    if slot == QUESTION or (slot == CARD and data.get("over")):
        return Urgency.CLOSING
    return Urgency.RESULT if slot == SPEECH and "tools" not in data else Urgency.PROGRESS


def method_of(row: OutboxRow) -> str | None:
    """The method that a row calls; None where that is found out while it is sent."""
    if is_edit(row):
        return RESPOND if "press" in decode(row.payload) else EDIT
    if row.kind in _ELSEWHERE:
        return None
    if row.kind == "mark" and "over" in result_of(row):
        return UNREACT
    if row.kind == "message" and not in_thread(row):
        return None
    return _METHODS.get(row.kind, POST)


def channel_of(row: OutboxRow) -> str:
    """The channel of a row, as far as the row itself says it."""
    data: dict[str, Json] = decode(row.payload)
    team_channel_ts = row.lane.split(":")
    return str(data.get("channel") or (team_channel_ts[1] if len(team_channel_ts) == 3 else ""))
