"""Whether what a payload became has the types that everything behind it relies on. Pure.

Slack's payloads are read by name, so a number where a text belongs would travel as far as a handler. What is taken,
opened, submitted or answered is checked here, in one place, before any of it is stored or acted on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from bot.inbound.decisions import OVERHEARD, Ask, Decision, Press, Renamed, Submit, Take
from engine.language.codec import Json, decode, encode

_ID = re.compile(r"[A-Za-z0-9_.\-]{1,255}")
_TS = re.compile(r"[0-9]{1,12}\.[0-9]{1,9}")


class Malformed(ValueError):
    """A field of a payload has another type than Slack documents."""


def _id(value: Json) -> bool:
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def _ts(value: Json) -> bool:
    return isinstance(value, str) and _TS.fullmatch(value) is not None


def _text(value: Json) -> bool:
    # A lone surrogate cannot be stored.
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


_FIELDS: dict[str, Callable[[Json], bool]] = {
    **dict.fromkeys(("team", "channel", "user", "userTeam", "viewId", "triggerId"), _id),
    **dict.fromkeys(("ts", "threadTs", "messageTs"), _ts),
    **dict.fromkeys(("text", "subtype", "actionId", "value", "reaction", "responseUrl", "reason"), _text),
}
_MAY_BE_NULL = frozenset({"threadTs", "userTeam", "subtype", "value", "responseUrl", "reason"})


def check(decision: Decision) -> Decision:
    """The decision itself. Raises `Malformed`."""
    match decision:
        case Take(item, _, instead):
            _check(decode(item.payload), {"user"} if item.kind == OVERHEARD else ())
            if not _text(item.key):
                raise Malformed("key")
            if instead is not None:
                check(Press(instead))
        case Ask(_, _, data):
            _check(data)
        case Press(opening):
            where = {"channel": opening.channel, "threadTs": opening.thread_ts}
            _check({"user": opening.user, "value": opening.value, **where, **opening.data}, {"channel"})
            if opening.within != "home":
                _check({"triggerId": opening.trigger_id})
        case Submit(submission):
            _check({"user": submission.user, "viewId": submission.view_id})
            _check_view(submission.view, submission.values)
        case Renamed(old, new, ts):
            _check({"channel": old, "ts": ts})
            _check({"channel": new})
    return decision


def _check(data: Mapping[str, Json], optional: Any = ()) -> None:
    for name, value in data.items():
        if value is None and (name in _MAY_BE_NULL or name in optional):
            continue
        if name in _FIELDS and not _FIELDS[name](value):
            raise Malformed(name)


def _check_view(view: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """The blocks of a view, and what was filled in: by block and by element, each an object, all of it text that can be
    answered with."""
    encode({"view": dict(view), "values": dict(values)})
    blocks = view.get("blocks") or []
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise Malformed("blocks")
    for block in values.values():
        if not isinstance(block, dict) or not all(isinstance(element, dict) for element in block.values()):
            raise Malformed("values")
