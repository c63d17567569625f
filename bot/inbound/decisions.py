"""Decisions about what arrives from Slack, as values: rows of the inbox, views and submissions; and a check of their
types.

`Take` is persisted under its key before the acknowledgement; `Ask` is answered in the acknowledgement itself and
persists nothing; an `Opening` opens a view and persists nothing; a `Submission` is checked, and persisted if it is right; `Skip`
is acknowledged and forgotten. A key is spent only by what is taken, so a message that
comes twice in two shapes (`message` and `app_mention`) is taken once, whichever comes first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from engine.journal.records import InboxItem
from engine.language.codec import Json, decode, encode
from engine.storage.sealing import TEXT_BYTES

View: TypeAlias = dict[str, Any]
"""A view as Slack takes it: a modal, or the app's Home."""

VIEW = "slack.view"
"""Kind of the inbox rows that submissions become."""
PAGE = "slack.page"
"""Kind of the inbox rows that the pages of a form become, all but the last."""

OPEN, INSIDE = "sayso:open:", "sayso:inside:"
"""Buttons that open a view of the kind that follows; and elements that change the view they are in."""
HOME = "home"
"""`from` of a press or submission that came from the app's Home; else it is the direct message with the copy."""
CALLBACK = "sayso:"


@dataclass(frozen=True, slots=True)
class Opening:
    """Somebody asked for a view: acknowledge, and open it at once. The trigger lives for three seconds."""

    kind: str
    team: str
    user: str
    trigger_id: str
    value: str = ""
    """The ids that the button carries."""
    channel: str | None = None
    """None where there is none: on the app's Home, and for global shortcuts."""
    thread_ts: str | None = None
    within: Literal["message", "modal", "home", "command", "shortcut"] = "message"
    data: dict[str, Json] = field(default_factory=dict)
    """More, by the way in: what a slash command said, the message of a shortcut."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A modal as it was submitted; with `action` something in it was pressed or chosen, and it stays open."""

    kind: str
    team: str
    user: str
    view_id: str
    meta: dict[str, Json]
    """The `private_metadata` that we gave the view."""
    view: View
    values: dict[str, Any]
    """Slack's `state.values`: by block, by element."""
    action: dict[str, Any] | None = None

    @property
    def key(self) -> str:
        """The key of what was submitted, spent once it is taken."""
        return f"view:{self.team}:{self.view_id}"

    def given(self, name: str) -> dict[str, Any]:
        """The value of the input with this name."""
        found: dict[str, Any] = self.values.get(name, {}).get(name, {})
        return found

    def first_input(self) -> str | None:
        """The block of the first input: where a refusal of the whole is shown."""
        blocks = [block for block in self.view.get("blocks") or () if block.get("type") == "input"]
        return next((str(block["block_id"]) for block in blocks if block.get("block_id")), None)


# --- answers to an opening ---------------------------------------------------------------------------------

Opened: TypeAlias = View | str | None
"""The view that is opened; why none is, for the person who asked: no mrkdwn; None where it is shown otherwise."""


# --- answers to a submission -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Errors:
    """Nothing is taken: what is wrong, by the `block_id` of the input at which it is shown."""

    errors: dict[str, str]


@dataclass(frozen=True, slots=True)
class Refuse:
    """Nothing is taken, whatever is filled in: the reason, shown in the view."""

    reason: str


@dataclass(frozen=True, slots=True)
class Next:
    """The view becomes another one; with `keep`, this much of it is stored first, under a key made of its content."""

    view: View
    keep: dict[str, Json] | None = None
    key: str = ""


@dataclass(frozen=True, slots=True)
class Accept:
    """Taken: stored under the view's key, then acknowledged, then carried out by the kind's `submit`. `user`, `team`
    and `kind` are added to `data`. `channel` and `threadTs` in it say where its author is told what becomes of it."""

    data: dict[str, Json]
    thread_key: str | None = None


Verdict: TypeAlias = Errors | Refuse | Next | Accept


MESSAGE, CLICK, SLASH, ROOTED = "slack.message", "slack.click", "slack.slash", "slack.rooted"
OVERHEARD, REACTION = "slack.overheard", "slack.reaction"
MALFORMED = "malformed"
"""Why something is skipped that has other types than Slack documents."""
TAB, STOPPED = "slack.tab", "slack.stopped"
"""Kinds of inbox rows: somebody opened the Messages tab of an agent; somebody stopped a session of it."""
WEB = "web"
"""Somebody who is logged in to the control room asks for something there."""
CHANNEL, DELETED, EDITED, SHARED = "slack.channel", "slack.deleted", "slack.edited", "slack.shared"


@dataclass(frozen=True, slots=True)
class Home:
    """The installation that payloads must belong to."""

    team_id: str
    app_id: str | None
    bot_user_id: str
    agent: bool = False
    """True if the app is an agent of Slack's."""

    def is_foreign(self, team: Any, app: Any) -> bool:
        """True if a payload is of another team, or of another app."""
        return team != self.team_id or (self.app_id is not None and app is not None and app != self.app_id)


@dataclass(frozen=True, slots=True)
class Take:
    """Persist, then acknowledge. With `only_known_threads` the thread must have a session. `instead` is a view that
    may be opened instead of it."""

    item: InboxItem
    only_known_threads: bool = False
    instead: Opening | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """A slash command that is answered at once: `word` is `list`, `status`, `help`, or not a known one."""

    word: str
    rest: str
    data: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Skip:
    """Acknowledge and forget; `reason` is counted, `detail` logged."""

    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Own:
    """A message of ours in a thread came back: it is known up to there."""

    thread_key: str
    ts: str


@dataclass(frozen=True, slots=True)
class Renamed:
    """A channel got another id: noted before the acknowledgement."""

    old: str
    new: str
    ts: str


Decision: TypeAlias = Take | Ask | Opening | Submission | Renamed | Own | Skip


_LONGEST = 100_000


def storable(text: str) -> str:
    """Text that can be encoded. Far beyond what may be an answer it is cut: it will be refused as too long."""
    return text[:_LONGEST].encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Malformed(ValueError):
    """A field of a payload has another type than Slack documents."""


def _like(pattern: str) -> Callable[[Json], bool]:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _text(value: Json) -> bool:
    # A lone surrogate cannot be stored.
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


def _name(value: Json) -> bool:
    # It is looked up, or is part of a key: no store holds a NUL in a column.
    return _text(value) and "\0" not in value


def _key(value: Json) -> bool:
    return _name(value) and len(value.encode()) <= TEXT_BYTES


_FIELDS: dict[str, Callable[[Json], bool]] = {
    **dict.fromkeys(
        ("team", "channel", "user", "userTeam", "viewId", "triggerId", "from"),
        _like(r"[A-Za-z0-9_.\-]{1,255}"),
    ),
    **dict.fromkeys(("ts", "threadTs", "messageTs"), _like(r"[0-9]{1,12}\.[0-9]{1,9}")),
    **dict.fromkeys(("text", "responseUrl"), _text),
    **dict.fromkeys(("subtype", "actionId", "value", "reaction", "reason"), _name),
    **dict.fromkeys(("key", "thread"), _key),
}
_MAY_BE_NULL = frozenset({"threadTs", "userTeam", "subtype", "value", "responseUrl", "reason"})


def check(decision: Decision) -> Decision:
    """The decision itself. Raises `Malformed`."""
    match decision:
        case Take(item, _, instead):
            _check(decode(item.payload), {"user"} if item.kind == OVERHEARD else ())
            _check({"key": item.key, "thread": item.thread_key or ""})
            if instead is not None:
                check(instead)
        case Ask(_, _, data):
            _check(data)
        case Opening(user=user, value=value, channel=channel, thread_ts=thread_ts):
            where = {"channel": channel, "threadTs": thread_ts}
            _check({"user": user, "value": value, **where, **decision.data}, {"channel"})
            if decision.within != "home":
                _check({"triggerId": decision.trigger_id})
        case Submission(user=user, view_id=view_id):
            _check({"user": user, "viewId": view_id})
            # Blocks and values of a view are objects, and all of it is text that can be stored.
            encode({"view": dict(decision.view), "values": dict(decision.values)})
            blocks = decision.view.get("blocks") or []
            if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
                raise Malformed("blocks")
            for block in decision.values.values():
                if not isinstance(block, dict) or not all(
                    isinstance(element, dict) for element in block.values()
                ):
                    raise Malformed("values")
        case Own(key, ts):
            _check({"thread": key, "ts": ts})
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
