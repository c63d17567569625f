"""What people press, choose, submit and command in Slack, as what is done with it. Pure: payload → decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.inbound.decisions import (
    CALLBACK,
    CLICK,
    INSIDE,
    OPEN,
    SLASH,
    Ask,
    Decision,
    Home,
    Opening,
    Press,
    Skip,
    Submission,
    Submit,
    Take,
    storable,
)
from bot.wire.manifest import SHORTCUT
from engine.journal.records import InboxItem
from engine.language.codec import Json, decode, encode
from engine.language.errors import NotJson
from prompt_state.question_row import thread_key


def _team(body: Mapping[str, Any]) -> Any:
    return (body.get("team") or {}).get("id") or (body.get("user") or {}).get("team_id")


# --- presses -----------------------------------------------------------------------------------------------


def click(body: Mapping[str, Any], home: Home) -> Decision:
    """A press: on what opens a view, on something in one, or in a message."""
    if home.is_foreign(_team(body), body.get("api_app_id")):
        return Skip("another team or app")
    action = body["actions"][0]
    action_id = str(action.get("action_id", ""))
    if action_id.startswith(OPEN):
        return Press(_opening(body, action, home))
    if action_id.startswith(INSIDE):
        return submission(body, home, action)
    if not action_id.startswith("sayso:") or "message_ts" not in body["container"]:
        return Skip("not one of our buttons")
    return _pressed(body, action, home)


def _pressed(body: Mapping[str, Any], action: Mapping[str, Any], home: Home) -> Take:
    """A button or a control in a message, which is an answer as it stands."""
    channel, root = _where(body)
    user, message_ts = body["user"]["id"], body["container"]["message_ts"]
    data: dict[str, Json] = {
        "team": home.team_id,
        "channel": channel,
        "messageTs": message_ts,
        "threadTs": root,
        "user": user,
        "userTeam": body["user"].get("team_id"),
        "actionId": action["action_id"],
        "value": action.get("value") or (action.get("selected_option") or {}).get("value"),
        "picked": {name: action[name] for name in action if name.startswith("selected_")},
    }
    key = f"click:{home.team_id}:{message_ts}:{user}:{action['action_ts']}"
    return Take(InboxItem(key, CLICK, encode(data), thread_key=thread_key(home.team_id, channel, root)))


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


def _picked(action: Mapping[str, Any]) -> Json:
    """What was chosen in a control: a date, an id, the value of an option, or a list of them; None for a button."""
    if "selected_options" in action:
        return [option["value"] for option in action["selected_options"] or ()]
    if action.get("selected_option"):
        return action["selected_option"]["value"]
    return next((action[name] for name in _PICKED if action.get(name) is not None), None)


# --- views -------------------------------------------------------------------------------------------------


def _opening(body: Mapping[str, Any], action: Mapping[str, Any], home: Home) -> Opening:
    """A button that opens a view. In an overflow menu and in a select the option says which."""
    chosen = _picked(action)
    # What stands behind a second colon only tells buttons of one row apart.
    kind = str(action["action_id"]).removeprefix(OPEN).partition(":")[0]
    value = str(action.get("value") or chosen or "")
    if kind == "more":
        kind, _, value = value.partition("|")
    view = body.get("view")
    within: Any = "message" if view is None else view["type"]
    channel, root = _where(body) if view is None else (None, None)
    return Opening(
        kind=kind,
        team=home.team_id,
        user=body["user"]["id"],
        trigger_id=body["trigger_id"],
        value=value,
        channel=channel,
        thread_ts=root,
        within=within,
    )


def shortcut(body: Mapping[str, Any], home: Home) -> Decision:
    """The message shortcut. Where its thread begins, and what it says, is read when the flow starts."""
    if home.is_foreign(_team(body), body.get("api_app_id")):
        return Skip("another team or app")
    if body.get("callback_id") != SHORTCUT:
        return Skip("not our shortcut")
    message = body["message"]
    return Press(
        Opening(
            kind="pick",
            team=home.team_id,
            user=body["user"]["id"],
            trigger_id=body["trigger_id"],
            channel=body["channel"]["id"],
            within="shortcut",
            data={"ts": message["ts"]},
        )
    )


def home_opened(event: Mapping[str, Any], home: Home) -> Decision:
    """Somebody looks at the app's Home: it is made anew. There is no trigger, and none is needed."""
    if event.get("tab") != "home":
        return Skip("another tab")
    return Press(Opening("home", home.team_id, event["user"], "", within="home"))


def submission(body: Mapping[str, Any], home: Home, action: Mapping[str, Any] | None = None) -> Decision:
    """A view as it stands: submitted, or with the `action` in it that was pressed."""
    if home.is_foreign(_team(body), body.get("api_app_id")):
        return Skip("another team or app")
    view = body["view"]
    callback = str(view.get("callback_id") or "")
    if not callback.startswith(CALLBACK):
        return Skip("not one of our views")
    try:
        meta = decode((view.get("private_metadata") or "{}").encode())
    except NotJson:
        return Skip("a view without its ids")
    submission = Submission(
        kind=callback.removeprefix(CALLBACK),
        team=home.team_id,
        user=body["user"]["id"],
        view_id=view["id"],
        meta=meta if isinstance(meta, dict) else {},
        view=dict(view),
        values=dict(view["state"]["values"]),
        action=dict(action) if action is not None else None,
    )
    return Submit(submission)


def slash(body: Mapping[str, Any], home: Home) -> Decision:
    """A slash command: `run NAME` may begin a flow, everything else is answered at once."""
    if home.is_foreign(body.get("team_id"), body.get("api_app_id")):
        return Skip("another team or app")
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
