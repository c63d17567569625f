"""Reads what arrives from Slack: messages, presses, submissions, commands, changes of channels. Pure: a payload becomes a
decision (`bot.inbound.decisions`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from bot.inbound import decisions
from bot.inbound.decisions import (
    CALLBACK,
    CHANNEL,
    CLICK,
    DELETED,
    EDITED,
    HOME,
    INSIDE,
    MALFORMED,
    MESSAGE,
    OPEN,
    OVERHEARD,
    REACTION,
    SHARED,
    SLASH,
    STOPPED,
    TAB,
    Ask,
    Decision,
    Home,
    Opening,
    Own,
    Renamed,
    Skip,
    Submission,
    Take,
    storable,
)
from bot.inbound.triggers import DEAF, Listening, app_of, said_in
from bot.wire.client import described
from bot.wire.manifest import SHORTCUT
from engine.journal.records import InboxItem
from engine.language.codec import Json, decode, encode
from engine.language.errors import NotJson
from prompt_state.question_row import thread_key
from prompt_state.routing import SUBTYPES, Message, read_message

_REASON = 60
"""Characters of a reason by which it is counted."""
_MALFORMED = (LookupError, TypeError, AttributeError, ValueError, RecursionError, NotJson)
"""Errors of reading a payload with other types than documented."""


def read(body: Mapping[str, Any], home: Home, hears: Listening = DEAF) -> Decision:
    """The decision about a payload. Total: what it does not understand is skipped with a reason."""
    try:
        return decisions.check(_read(body, home, hears))
    except _MALFORMED as error:
        return Skip(MALFORMED, detail=repr(error))


def _read(body: Mapping[str, Any], home: Home, hears: Listening) -> Decision:
    sent, team = body.get("type"), body.get("team_id")
    if sent in ("block_actions", "view_submission", "message_action"):
        team = (body.get("team") or {}).get("id") or (body.get("user") or {}).get("team_id")
    elif sent != "event_callback" and "command" not in body:
        return Skip(f"type {sent}"[:_REASON])
    if home.is_foreign(team, body.get("api_app_id")):
        return Skip("another team or app")
    match sent:
        case "event_callback":
            event = body["event"]
            if event.get("type") == "app_home_opened":
                return _home_opened(event, home)
            if event.get("type") == "agent_session_stopped":
                # Somebody pressed Slack's own button that stops an agent.
                channel, root, user = event["channel"], event["thread_ts"], event["user"]
                key = f"stopped:{home.team_id}:{channel}:{root}:{event['event_ts']}"
                return Take(_item(STOPPED, key, home, channel, root, threadTs=root, user=user, userTeam=None))
            if event.get("type") == "reaction_added":
                item = event.get("item") or {}
                if item.get("type") != "message" or event.get("user") == home.bot_user_id:
                    return Skip("a reaction to something else")
                if next(hears.reactions(str(event["reaction"])), None) is None:
                    return Skip("a reaction that starts nothing")
                return reaction(home, item["channel"], item["ts"], event["reaction"], event["user"])
            if (kind := event.get("type")) in _CLOSED or kind in _OPENED:
                # A channel was closed to the bot, or opened. Others come and go as they like.
                if kind.startswith("member_") and event.get("user") != home.bot_user_id:
                    return Skip("somebody else came or went")
                channel = event["channel"]
                name = channel["id"] if isinstance(channel, Mapping) else channel
                key = f"channel:{home.team_id}:{name}:{kind}:{event['event_ts']}"
                payload = encode({"channel": name, "reason": _CLOSED.get(kind)})
                return Take(InboxItem(key, CHANNEL, payload))
            if event.get("type") == "channel_shared":
                name, at = event["channel"], event["event_ts"]
                payload = encode({"channel": name})
                return Take(InboxItem(f"shared:{home.team_id}:{name}:{at}", SHARED, payload))
            if event.get("type") == "channel_id_changed":
                return Renamed(event["old_channel_id"], event["new_channel_id"], event["event_ts"])
            if event.get("subtype") == "message_deleted":
                return _deleted(event, home)
            if event.get("subtype") == "message_changed":
                return _edited(event, home)
            if event.get("type") not in ("message", "app_mention"):
                return Skip(f"event {event.get('type')}"[:_REASON])
            return _message(event, home, event["channel"], hears)
        case "block_actions":
            return _click(body, home)
        case "view_submission":
            return _submission(body, home)
        case "message_action":
            return _shortcut(body, home)
        case _:
            return _slash(body, home)


def _item(kind: str, key: str, home: Home, channel: str, root: str, **data: Json) -> InboxItem:
    """An inbox item about something in a channel, in the lane of the thread with this root."""
    payload = {"team": home.team_id, "channel": channel, **data}
    return InboxItem(key, kind, encode(payload), thread_key=thread_key(home.team_id, channel, root))


_CLOSED = {
    "channel_archive": "is_archived",
    "group_archive": "is_archived",
    "channel_deleted": "channel_not_found",
    "member_left_channel": "not_in_channel",
    "channel_left": "not_in_channel",
    "group_left": "not_in_channel",
}
_OPENED = ("channel_unarchive", "group_unarchive", "member_joined_channel")


def _deleted(event: Mapping[str, Any], home: Home) -> Decision:
    """A message was deleted: it matters where it was one of ours in a thread."""
    before = event.get("previous_message") or {}
    if before.get("user") != home.bot_user_id or not before.get("thread_ts"):
        return Skip("the deletion of another message")
    channel, ts = event["channel"], event["deleted_ts"]
    item = InboxItem(
        f"deleted:{home.team_id}:{channel}:{ts}",
        DELETED,
        encode({"channel": channel, "ts": ts}),
        thread_key=thread_key(home.team_id, channel, before["thread_ts"]),
    )
    return Take(item, only_known_threads=True)


def _edited(event: Mapping[str, Any], home: Home) -> Decision:
    """A person changed the words of a message: nothing follows from that, but they should know it, once a message."""
    after, before = event["message"], event.get("previous_message") or {}
    if after.get("bot_id") or not after.get("user") or after["user"] == home.bot_user_id:
        return Skip("not written by a person")
    if not after.get("edited") or after.get("text") == before.get("text"):
        return Skip("a change of something other than its text")
    channel, ts = event["channel"], after["ts"]
    thread_ts = after.get("thread_ts")
    in_thread = thread_ts is not None and thread_ts != ts
    addressed = f"<@{home.bot_user_id}" in (after.get("text") or "") or channel.startswith("D")
    if not in_thread and not addressed:
        return Skip("not for us")
    item = _item(
        EDITED,
        f"edited:{home.team_id}:{channel}:{ts}",
        home,
        channel,
        thread_ts or ts,
        ts=ts,
        threadTs=thread_ts if in_thread else None,
        user=after["user"],
        text=storable(after.get("text") or ""),
        editedTs=edited_ts(after),
    )
    return Take(item, only_known_threads=in_thread)


def edited_ts(message: Mapping[str, Any]) -> str:
    """The time of the last change of a message's words; before all times where there was none."""
    edited = message.get("edited")
    return str(float(edited["ts"])) if isinstance(edited, Mapping) and "ts" in edited else "0"


def read_before(edit: Mapping[str, Json], message: Mapping[str, Json]) -> bool:
    """True if a stored message was read after this edit of it had been made."""
    return float(message.get("editedTs") or 0) >= float(edit.get("editedTs") or math.inf)


def missed(
    message: Mapping[str, Any], home: Home, channel: str, hears: Listening
) -> tuple[InboxItem, InboxItem | None] | None:
    """A message as a catch-up read finds it, with its words as they are now and when they were edited, and the edit of it
    if there was one; None for what is not for us. Triggers listen to first words only: whoever edits a message speaks to
    nobody."""
    try:
        edit = _edited({"channel": channel, "message": message}, home) if message.get("edited") else None
        found = decisions.check(_message({**message, "edited": None}, home, channel, hears))
    except _MALFORMED:
        return None
    if not isinstance(found, Take) or (message.get("edited") and found.item.kind == OVERHEARD):
        return None
    if not isinstance(edit, Take):
        return found.item, None
    payload = encode({**decode(found.item.payload), "editedTs": edited_ts(message)})
    return found.item.but(payload=payload), edit.item


def _message(event: Mapping[str, Any], home: Home, channel: str, hears: Listening) -> Decision:
    found = _to_us(event, home, channel)
    if isinstance(found, Skip) and _may_be_overheard(event, home) and hears.hears(event):
        # A message in a channel that has words for which a flow listens.
        app, ts = app_of(event), event["ts"]
        item = _item(
            OVERHEARD,
            f"message:{home.team_id}:{channel}:{ts}",
            home,
            channel,
            ts,
            ts=ts,
            threadTs=None,
            user=event.get("user"),
            userTeam=event.get("user_team") or event.get("team"),
            text=storable(said_in(event)),
            app=None if app is None else list(app),
        )
        return Take(item)
    return found


def _to_us(event: Mapping[str, Any], home: Home, channel: str) -> Decision:
    if event.get("subtype") not in SUBTYPES:
        return Skip(f"subtype {event.get('subtype')}"[:_REASON])
    if event.get("user") == home.bot_user_id and event.get("thread_ts"):
        return Own(thread_key(home.team_id, channel, event["thread_ts"]), event["ts"])
    if event.get("bot_id") or not event.get("user") or event["user"] == home.bot_user_id:
        return Skip("not written by a person")
    thread_ts, ts = event.get("thread_ts"), event["ts"]
    direct = event.get("channel_type") == "im" or channel.startswith("D")
    addressed = f"<@{home.bot_user_id}" in (event.get("text") or "") or (direct and not thread_ts)
    in_thread = thread_ts is not None and thread_ts != ts
    if not in_thread and not addressed:
        return Skip("not for us")
    item = _item(
        MESSAGE,
        f"message:{home.team_id}:{channel}:{ts}",
        home,
        channel,
        thread_ts or ts,
        ts=ts,
        threadTs=thread_ts if in_thread else None,
        user=event["user"],
        userTeam=event.get("user_team") or event.get("team"),
        text=storable(event.get("text") or ""),
        subtype=event.get("subtype"),
        edited=bool(event.get("edited")),
        app=bool(event.get("app_id")),
        direct=direct,
        hasFiles=bool(event.get("files")),
        files=described(event),
    )
    return Take(item, only_known_threads=in_thread and not addressed)


def _may_be_overheard(event: Mapping[str, Any], home: Home) -> bool:
    """True if a message may begin something: it is not a reply, no edit, and not the bot's own."""
    if event.get("subtype") not in (*SUBTYPES, "bot_message") or event.get("user") == home.bot_user_id:
        return False
    if home.app_id is not None and home.app_id in (app_of(event) or ()):
        return False
    return event.get("thread_ts") in (None, event["ts"]) and not event.get("edited")


def reaction(home: Home, channel: str, ts: str, name: str, user: str) -> Take:
    """A person's reaction to a message, as an event or as a catch-up read finds it."""
    key = f"reaction:{home.team_id}:{channel}:{ts}:{name}:{user}"
    data: dict[str, Json] = {"ts": ts, "threadTs": None, "user": user, "userTeam": None, "reaction": name}
    return Take(_item(REACTION, key, home, channel, ts, **data))


def said(data: Mapping[str, Json], home: Home) -> Message:
    """A stored message as routing reads it. Raises `TooLong`."""
    return read_message(
        data["text"],
        bot_user_id=home.bot_user_id,
        user=data["user"],
        ts=data["ts"],
        thread_ts=data["threadTs"],
        edited=data["edited"],
        subtype=data["subtype"],
        bot=data["app"],
        direct=data["direct"],
        has_files=data["hasFiles"],
    )


# --- presses -----------------------------------------------------------------------------------------------


def _click(body: Mapping[str, Any], home: Home) -> Decision:
    """A press: on what opens a view, on something in one, or in a message."""
    action = body["actions"][0]
    action_id, stands = str(action.get("action_id", "")), _stands(body, action)
    if action_id.startswith(OPEN):
        return _opening(body, action, home, stands)
    if action_id.startswith(INSIDE):
        return _submission(body, home, action) if stands else Skip("not in this view")
    value = action.get("value") or (action.get("selected_option") or {}).get("value")
    # A button outside of its thread has channel and thread in its value (`bot.rendering.waiting.pressed_value`).
    parts = str(value).split("|")
    place = (parts[3], parts[4]) if len(parts) == 5 else None
    if not action_id.startswith("sayso:") or ("message_ts" not in body["container"] and place is None):
        return Skip("not one of our buttons")
    # A button or a control, which is an answer as it is. One outside of the thread says in which it
    # belongs.
    user, message_ts = body["user"]["id"], body["container"].get("message_ts")
    channel, root = place or _where(body)
    where: dict[str, Json] = {"messageTs": message_ts}
    if place is not None:
        where = {"from": HOME if message_ts is None else _where(body)[0]}
    if not stands:
        where["stale"] = True
    item = _item(
        CLICK,
        f"click:{home.team_id}:{message_ts or body['view']['id']}:{user}:{action['action_ts']}",
        home,
        channel,
        root,
        **where,
        threadTs=root,
        user=user,
        userTeam=body["user"].get("team_id"),
        actionId=action["action_id"],
        value=value,
        picked={name: action[name] for name in action if name.startswith("selected_")},
        responseUrl=body.get("response_url") or None,
    )
    return Take(item)


def _stands(body: Mapping[str, Any], action: Mapping[str, Any]) -> bool:
    """True if an element with this action and this value is in the named block of the message or view that Slack sends
    along. Of a message that only one person sees, it sends nothing along."""
    shown = body.get("message") or body.get("view") or {}
    if "blocks" not in shown:
        return True
    if shown.get("ts") != body["container"].get("message_ts"):
        return False
    found = [
        part
        for block in shown["blocks"]
        if block.get("block_id") == action.get("block_id")
        for part in _parts(block)
    ]
    value = action.get("value", (action.get("selected_option") or {}).get("value"))
    elements = [part for part in found if part.get("action_id") == action["action_id"]]
    values = {part.get("value") for element in elements for part in _parts(element)}
    return bool(elements) and (value is None or value in values)


def _parts(value: Any) -> Iterator[Mapping[str, Any]]:
    """All objects in a block, itself among them."""
    if isinstance(value, Mapping):
        yield value
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _parts(inner)


def _where(body: Mapping[str, Any]) -> tuple[str, str]:
    """The channel of what was pressed, and the message that its thread begins with."""
    container, shown = body["container"], body.get("message") or {}
    channel = container.get("channel_id") or body["channel"]["id"]
    return channel, container.get("thread_ts") or shown.get("thread_ts") or container["message_ts"]


_PICKED = (
    "selected_date",
    "selected_time",
    "selected_date_time",
    "selected_user",
    "selected_channel",
    "selected_conversation",
    "selected_users",
    "selected_channels",
    "selected_conversations",
)


# --- views -------------------------------------------------------------------------------------------------


def _opening(body: Mapping[str, Any], action: Mapping[str, Any], home: Home, stands: bool) -> Opening:
    """A button that opens a view. In an overflow menu and in a select the option says which. One that does not stand where
    it was pressed opens none."""
    # The choice in a control: a date, an id, the value of an option, or a list of them; None for a button.
    chosen: Json = next((action[name] for name in _PICKED if action.get(name) is not None), None)
    if "selected_options" in action:
        chosen = [option["value"] for option in action["selected_options"] or ()]
    elif action.get("selected_option"):
        chosen = action["selected_option"]["value"]
    # What is behind a second colon only tells buttons of one row apart.
    kind = str(action["action_id"]).removeprefix(OPEN).partition(":")[0]
    value = str(action.get("value") or chosen or "")
    if kind == "more":
        kind, _, value = value.partition("|")
    view = body.get("view")
    within: Any = "message" if view is None else view["type"]
    channel, root = _where(body) if view is None else (None, None)
    return Opening(
        kind=kind if stands else "",
        team=home.team_id,
        user=body["user"]["id"],
        trigger_id=body["trigger_id"],
        value=value,
        channel=channel,
        thread_ts=root,
        within=within,
    )


def _shortcut(body: Mapping[str, Any], home: Home) -> Decision:
    """The message shortcut. Where its thread begins, and what it says, is read when the flow starts."""
    if body.get("callback_id") != SHORTCUT:
        return Skip("not our shortcut")
    message = body["message"]
    return Opening(
        kind="pick",
        team=home.team_id,
        user=body["user"]["id"],
        trigger_id=body["trigger_id"],
        channel=body["channel"]["id"],
        within="shortcut",
        data={"ts": message["ts"]},
    )


def _home_opened(event: Mapping[str, Any], home: Home) -> Decision:
    """Somebody looks at the app's Home: it is made again. There is no trigger, and none is needed. Of an agent's messages
    they see what they may begin."""
    if event.get("tab") == "messages" and home.agent:
        data: dict[str, Json] = {"channel": event["channel"], "user": event["user"], "userTeam": None}
        key = f"tab:{home.team_id}:{event['channel']}:{event['event_ts']}"
        return Take(InboxItem(key, TAB, encode({"team": home.team_id, **data})))
    if event.get("tab") != "home":
        return Skip("another tab")
    return Opening("home", home.team_id, event["user"], "", within="home")


def _submission(body: Mapping[str, Any], home: Home, action: Mapping[str, Any] | None = None) -> Decision:
    """A view as it is: submitted, or with the `action` in it that was pressed."""
    view = body["view"]
    callback = str(view.get("callback_id") or "")
    if not callback.startswith(CALLBACK):
        return Skip("not one of our views")
    try:
        meta = decode((view.get("private_metadata") or "{}").encode())
    except NotJson:
        return Skip("a view without its ids")
    return Submission(
        kind=callback.removeprefix(CALLBACK),
        team=home.team_id,
        user=body["user"]["id"],
        view_id=view["id"],
        meta=meta if isinstance(meta, dict) else {},
        view=dict(view),
        values=dict(view["state"]["values"]),
        action=dict(action) if action is not None else None,
    )


def _slash(body: Mapping[str, Any], home: Home) -> Decision:
    """A slash command: `run NAME` may begin a flow, everything else is answered at once."""
    text = storable(body.get("text") or "").strip()
    word, _, rest = text.partition(" ")
    data: dict[str, Json] = {
        "team": home.team_id,
        "channel": body["channel_id"],
        "user": body["user_id"],
        "userTeam": body.get("team_id"),
        "text": rest.strip(),
        "responseUrl": body.get("response_url"),
    }
    if word.lower() == "away":
        return Opening("me", home.team_id, body["user_id"], body["trigger_id"], within="command")
    if word.lower() != "run" or not rest.strip():
        return Ask(word.lower() or "help", rest.strip(), data)
    opening = Opening(
        kind="start",
        team=home.team_id,
        user=body["user_id"],
        trigger_id=body["trigger_id"],
        channel=body["channel_id"],
        within="command",
        data=data,
    )
    return Take(InboxItem(f"slash:{body['trigger_id']}", SLASH, encode(data)), instead=opening)
