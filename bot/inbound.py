"""What arrives from Slack, as what is done with it. Pure: payload → decision.

`Take` is persisted under its key before the acknowledgement; `Ask` is answered in the acknowledgement itself and
persists nothing; `Skip` is acknowledged and forgotten. A key is spent only by what is taken, so a message that
comes twice in two shapes (`message` and `app_mention`) is taken once, whichever comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from engine.codec import Json, encode
from engine.storage.port import InboxItem
from prompt_state.model import thread_key
from prompt_state.routing import SUBTYPES

MESSAGE, CLICK, SLASH, ROOTED = "slack.message", "slack.click", "slack.slash", "slack.rooted"


@dataclass(frozen=True, slots=True)
class Home:
    """The installation that payloads must belong to."""

    team_id: str
    app_id: str | None
    bot_user_id: str


@dataclass(frozen=True, slots=True)
class Take:
    """Persist, then acknowledge. With `only_known_threads` the thread must have a session."""

    item: InboxItem
    only_known_threads: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """A slash command that is answered at once: `word` is `list`, `status`, `help`, or not a known one."""

    word: str
    rest: str
    data: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Skip:
    """Acknowledge and forget; `reason` is counted."""

    reason: str


Decision: TypeAlias = Take | Ask | Skip


def read(body: Mapping[str, Any], home: Home) -> Decision:
    """What to do with a payload. Total: what it does not understand is skipped with a reason."""
    try:
        if body.get("type") == "event_callback":
            return _event(body, home)
        if body.get("type") == "block_actions":
            return _click(body, home)
        if "command" in body:
            return _slash(body, home)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        return Skip(f"malformed payload: {error!r}")
    return Skip(f"type {body.get('type')}")


def _foreign(team: Any, app: Any, home: Home) -> bool:
    return team != home.team_id or (home.app_id is not None and app is not None and app != home.app_id)


def _event(body: Mapping[str, Any], home: Home) -> Decision:
    if _foreign(body.get("team_id"), body.get("api_app_id"), home):
        return Skip("another team or app")
    event = body["event"]
    if event.get("type") not in ("message", "app_mention"):
        return Skip(f"event {event.get('type')}")
    return message(event, home)


def message(event: Mapping[str, Any], home: Home, channel: str | None = None) -> Decision:
    """A message, as an event or as a catch-up read finds it (there `channel` says where)."""
    channel = channel or event["channel"]
    if event.get("subtype") not in SUBTYPES:
        return Skip(f"subtype {event.get('subtype')}")
    if event.get("bot_id") or not event.get("user") or event["user"] == home.bot_user_id:
        return Skip("not written by a person")
    thread_ts, ts = event.get("thread_ts"), event["ts"]
    direct = event.get("channel_type") == "im" or channel.startswith("D")
    addressed = f"<@{home.bot_user_id}" in (event.get("text") or "") or (direct and not thread_ts)
    in_thread = thread_ts is not None and thread_ts != ts
    if not in_thread and not addressed:
        return Skip("not for us")
    data: dict[str, Json] = {
        "team": home.team_id,
        "channel": channel,
        "ts": ts,
        "threadTs": thread_ts if in_thread else None,
        "user": event["user"],
        "userTeam": event.get("user_team") or event.get("team"),
        "text": _storable(event.get("text") or ""),
        "subtype": event.get("subtype"),
        "edited": bool(event.get("edited")),
        "app": bool(event.get("app_id")),
        "direct": direct,
        "hasFiles": bool(event.get("files")),
    }
    item = InboxItem(
        key=f"message:{home.team_id}:{channel}:{ts}",
        kind=MESSAGE,
        payload=encode(data),
        thread_key=thread_key(home.team_id, channel, thread_ts or ts),
    )
    return Take(item, only_known_threads=in_thread and not addressed)


_LONGEST = 100_000


def _storable(text: str) -> str:
    """Text that can be encoded. Far beyond what may be an answer it is cut: it will be refused as too long."""
    return text[:_LONGEST].encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def _click(body: Mapping[str, Any], home: Home) -> Decision:
    team = (body.get("team") or {}).get("id") or (body.get("user") or {}).get("team_id")
    if _foreign(team, body.get("api_app_id"), home):
        return Skip("another team or app")
    container, action = body["container"], body["actions"][0]
    shown = body.get("message") or {}
    if not str(action.get("action_id", "")).startswith("sayso:") or "message_ts" not in container:
        return Skip("not one of our buttons")
    user, message_ts = body["user"]["id"], container["message_ts"]
    channel = container.get("channel_id") or body["channel"]["id"]
    root = container.get("thread_ts") or shown.get("thread_ts") or message_ts
    selected = action.get("selected_option") or {}
    data: dict[str, Json] = {
        "team": home.team_id,
        "channel": channel,
        "messageTs": message_ts,
        "threadTs": root,
        "user": user,
        "userTeam": body["user"].get("team_id"),
        "actionId": action["action_id"],
        "value": action.get("value") or selected.get("value"),
    }
    key = f"click:{home.team_id}:{message_ts}:{user}:{action['action_ts']}"
    return Take(
        InboxItem(key, CLICK, encode(data), thread_key=thread_key(home.team_id, channel, root)),
    )


def _slash(body: Mapping[str, Any], home: Home) -> Decision:
    if _foreign(body.get("team_id"), body.get("api_app_id"), home):
        return Skip("another team or app")
    text = _storable(body.get("text") or "").strip()
    word, _, rest = text.partition(" ")
    data: dict[str, Json] = {
        "team": home.team_id,
        "channel": body["channel_id"],
        "user": body["user_id"],
        "userTeam": body.get("team_id"),
        "text": rest.strip(),
        "responseUrl": body.get("response_url"),
    }
    if word.lower() != "run" or not rest.strip():
        return Ask(word.lower() or "help", rest.strip(), data)
    return Take(InboxItem(f"slash:{body['trigger_id']}", SLASH, encode(data)))
