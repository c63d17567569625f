"""Payloads for the app: pure functions from the workspace's state to Slack's documented shapes; and the listeners to
changes.

`Changes` hears of every change, so that pages, waiting tests and the saved file never miss one; `Saver` writes that
file.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.workspace.state import (
    COUNTERS,
    Channel,
    Json,
    State,
    User,
    View,
    WorkspaceError,
    copied,
    state_from_json,
    wire,
)

VERIFICATION_TOKEN = "local-verification-token"


def event_callback(state: State, event: Json, event_id: str, now: float) -> Json:
    """The wrapper of every event: who it is for, its id and its time (seconds since 1970)."""
    channel_id = event.get("channel") or event.get("item", {}).get("channel", "")
    shared = channel_id in state.channels and state.channels[channel_id].is_ext_shared
    return {
        "token": VERIFICATION_TOKEN,
        "team_id": state.team_id,
        "context_team_id": state.team_id,
        "context_enterprise_id": None,
        "api_app_id": state.app_id,
        "event": event,
        "type": "event_callback",
        "event_id": event_id,
        "event_time": int(now),
        "authorizations": [
            {
                "enterprise_id": None,
                "team_id": state.team_id,
                "user_id": state.bot_user_id,
                "is_bot": True,
                "is_enterprise_install": False,
            }
        ],
        "is_ext_shared_channel": shared,
        "event_context": f"4-{event_id}",
    }


def message_event(channel: Channel, message: Json) -> Json:
    """A posted message as an event."""
    # Counters belong to the stored root; the event tells of the post itself.
    event = {key: value for key, value in wire(message).items() if key not in ("reactions", *COUNTERS)}
    return {**event, "channel": channel.id, "event_ts": message["ts"], "channel_type": channel.kind}


def mention_event(channel: Channel, message: Json) -> Json:
    """The `app_mention` that comes beside the `message` event of the same post."""
    kept = (
        "user",
        "ts",
        "client_msg_id",
        "text",
        "team",
        "thread_ts",
        "blocks",
        "bot_id",
        "app_id",
        "files",
        "edited",
    )
    event = {key: copied(message[key]) for key in kept if key in message}
    return {"type": "app_mention", **event, "channel": channel.id, "event_ts": message["ts"]}


def changed_event(channel: Channel, before: Json, after: Json | None, ts: str) -> Json:
    """`message_changed`, or `message_deleted` where nothing is after it; `ts` is the time of the change itself."""
    change = (
        {"subtype": "message_deleted", "deleted_ts": before["ts"]}
        if after is None
        else {"subtype": "message_changed", "message": wire(after)}
    )
    return {
        "type": "message",
        **change,
        "previous_message": wire(before),
        "channel": channel.id,
        "hidden": True,
        "ts": ts,
        "event_ts": ts,
        "channel_type": channel.kind,
    }


def reaction_event(
    kind: str, user: User, channel: Channel, message: Json, reaction: str, event_ts: str
) -> Json:
    """`reaction_added` or `reaction_removed` (that is `kind`)."""
    return {
        "type": kind,
        "user": user.id,
        "reaction": reaction,
        "item": {"type": "message", "channel": channel.id, "ts": message["ts"]},
        "item_user": message.get("user", ""),
        "event_ts": event_ts,
    }


def membership_event(state: State, kind: str, user: User, channel: Channel, event_ts: str) -> Json:
    """`member_joined_channel` or `member_left_channel` (that is `kind`)."""
    return {
        "type": kind,
        "user": user.id,
        "channel": channel.id,
        "channel_type": "G" if channel.is_private else "C",
        "team": state.team_id,
        "event_ts": event_ts,
    }


def stopped_event(user: User, channel: Channel, root_ts: str, event_ts: str) -> Json:
    """`agent_session_stopped`; the local workspace stops no streams."""
    return {
        "type": "agent_session_stopped",
        "channel": channel.id,
        "thread_ts": root_ts,
        "user": user.id,
        "streaming_message_ts": [],
        "event_ts": event_ts,
    }


def home_event(state: State, user: User, channel_id: str, event_ts: str, tab: str = "home") -> Json:
    """`app_home_opened`, with the home view that was published last, if any."""
    event: Json = {
        "type": "app_home_opened",
        "user": user.id,
        "channel": channel_id,
        "tab": tab,
        "event_ts": event_ts,
    }
    if tab == "home" and user.id in state.homes:
        event["view"] = copied(state.homes[user.id])
    return event


def _head(state: State, kind: str, user: User, trigger_id: str) -> Json:
    return {
        "type": kind,
        "user": {"id": user.id, "username": user.name, "name": user.name, "team_id": user.team_id},
        "api_app_id": state.app_id,
        "token": VERIFICATION_TOKEN,
        "trigger_id": trigger_id,
        "team": {"id": state.team_id, "domain": "local-workspace"},
        "enterprise": None,
        "is_enterprise_install": False,
    }


def message_actions(
    state: State, user: User, channel: Channel, message: Json, action: Json, values: Json, grant: Json
) -> Json:
    """`block_actions` of an element in a message. `grant` carries `trigger_id` and `response_url`."""
    ephemeral = bool(message.get("is_ephemeral"))
    container = {
        "type": "message",
        "message_ts": message["ts"],
        "channel_id": channel.id,
        "is_ephemeral": ephemeral,
    }
    if message.get("thread_ts"):
        container["thread_ts"] = message["thread_ts"]
    payload = {
        **_head(state, "block_actions", user, grant["trigger_id"]),
        "container": container,
        "channel": {"id": channel.id, "name": channel_name(channel)},
        "state": {"values": copied(values)},
        "response_url": grant["response_url"],
        "actions": [action],
    }
    if not ephemeral:
        payload["message"] = wire(message)
    return payload


def view_actions(state: State, user: User, view: Json, action: Json, trigger_id: str) -> Json:
    """`block_actions` of an element in a view as payloads carry it: in a modal, or on the app's Home."""
    return {
        **_head(state, "block_actions", user, trigger_id),
        "container": {"type": "view", "view_id": view["id"]},
        "view": view,
        "actions": [action],
    }


def view_submission(state: State, user: User, view: View, trigger_id: str) -> Json:
    """`view_submission`: the whole view with what was filled in."""
    return {
        **_head(state, "view_submission", user, trigger_id),
        "view": view_field(state, view),
        "response_urls": [],
    }


def view_closed(state: State, user: User, view: View, is_cleared: bool) -> Json:
    """`view_closed`, which is sent only for views that asked with `notify_on_close`."""
    payload = {**_head(state, "view_closed", user, ""), "view": view_field(state, view)}
    payload.pop("trigger_id")
    return {**payload, "is_cleared": is_cleared}


def shortcut(state: State, user: User, callback_id: str, trigger_id: str, action_ts: str) -> Json:
    """A global `shortcut`."""
    return {
        **_head(state, "shortcut", user, trigger_id),
        "callback_id": callback_id,
        "action_ts": action_ts,
    }


def message_shortcut(
    state: State, user: User, channel: Channel, message: Json, callback_id: str, grant: Json, action_ts: str
) -> Json:
    """A shortcut on a message: `message_action`."""
    return {
        **_head(state, "message_action", user, grant["trigger_id"]),
        "callback_id": callback_id,
        "action_ts": action_ts,
        "message_ts": message["ts"],
        "channel": {"id": channel.id, "name": channel_name(channel)},
        "message": wire(message),
        "response_url": grant["response_url"],
    }


def slash_command(state: State, user: User, channel: Channel, command: str, text: str, grant: Json) -> Json:
    """A slash command. Its text is sent as typed: Slack escapes entities there only when asked to."""
    return {
        "token": VERIFICATION_TOKEN,
        "team_id": state.team_id,
        "team_domain": "local-workspace",
        "channel_id": channel.id,
        "channel_name": channel_name(channel),
        "user_id": user.id,
        "user_name": user.name,
        "command": command,
        "text": text,
        "api_app_id": state.app_id,
        "is_enterprise_install": "false",
        "response_url": grant["response_url"],
        "trigger_id": grant["trigger_id"],
    }


def channel_name(channel: Channel) -> str:
    """Return the name of a conversation in payloads: a direct message is always `directmessage`."""
    return "directmessage" if channel.is_im else channel.name


def view_field(state: State, view: View) -> Json:
    """An open view as payloads and `views.*` answers carry it."""
    return {
        **dict.fromkeys(("callback_id", "private_metadata", "external_id"), ""),
        **dict.fromkeys(("submit", "close")),
        **dict.fromkeys(("clear_on_close", "notify_on_close"), False),
        **copied(view.body),
        "id": view.id,
        "team_id": state.team_id,
        "state": {"values": copied(view.values)},
        "hash": view.hash,
        "previous_view_id": view.previous_id,
        "root_view_id": view.root_id,
        "app_id": state.app_id,
        "app_installed_team_id": state.team_id,
        "bot_id": state.bot_id,
    }


# --- changes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Push:
    """News for the pages. `to` holds the ids of the people who may see it; None means everyone."""

    body: Json
    to: frozenset[str] | None = None


@dataclass(slots=True)
class _Waiter:
    predicate: Callable[[], Any]
    done: asyncio.Future[Any]
    missing: LookupError | None = None


class Changes:
    """Tells listeners and waiters about changes. Used on one event loop only."""

    # A predicate may look at something outside the workspace (what a handler of the app collected), which
    # no change here announces; so waiting predicates are looked at again this often, in seconds.
    OUTSIDE_INTERVAL = 0.05

    def __init__(self) -> None:
        self.listeners: list[Callable[[Push | None], None]] = []
        self._waiters: list[_Waiter] = []

    def tell(self, body: Json, to: frozenset[str] | None = None) -> None:
        """Announce a change that pages should show."""
        self._announce(Push(body, to))

    def touch(self) -> None:
        """Announce a change that no page shows (a recorded call, an acknowledgement)."""
        self._announce(None)

    def _announce(self, push: Push | None) -> None:
        for listener in list(self.listeners):
            listener(push)
        self._look_again(list(self._waiters))

    def _look_again(self, waiters: Sequence[_Waiter]) -> None:
        for waiter in waiters:
            if waiter.done.done():
                continue
            try:
                value = waiter.predicate()
            except LookupError as problem:
                # `messages[-1]` before there is one: not yet true, rather than a mistake.
                waiter.missing = problem
            except Exception as problem:
                waiter.done.set_exception(problem)
            else:
                if value:
                    waiter.done.set_result(value)

    async def wait_for(self, predicate: Callable[[], Any], timeout: float) -> Any:
        """The first true value of `predicate`, which is called after every change; TimeoutError after
        `timeout` seconds. A LookupError of the predicate means not yet; what else it raises is raised
        here."""
        waiter = _Waiter(predicate, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            self._look_again([waiter])
            async with asyncio.timeout(timeout):
                while not waiter.done.done():
                    await asyncio.wait({waiter.done}, timeout=self.OUTSIDE_INTERVAL)
                    self._look_again([waiter])
                return await waiter.done
        except TimeoutError as problem:
            raise problem from waiter.missing
        finally:
            self._waiters.remove(waiter)


SAVE_DELAY = 0.2  # seconds; changes in between are written together
QUICK = 0.02
"""Seconds that writing may take to be waited for."""


def load(path: Path) -> State | None:
    """The saved state, None when there is no file; WorkspaceError `bad_file` names the file and the fault."""
    if not path.exists():
        return None
    try:
        return state_from_json(json.loads(path.read_text("utf-8")))
    except (ValueError, WorkspaceError) as problem:
        text = f"{path} does not hold a saved workspace ({problem}); move it away to start a new one"
        raise WorkspaceError("bad_file", text) from problem


def save(state: State, path: Path) -> None:
    """Write the state so that a reader, or a crash, finds the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(state.to_json(), file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


class Saver:
    """Saves the state after changes."""

    def __init__(self, state: State, path: Path, changes: Changes) -> None:
        self.state, self.path = state, path
        self._timer: asyncio.TimerHandle | None = None
        self._took = 0.0
        changes.listeners.append(self._changed)

    def _changed(self, push: Push | None) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SAVE_DELAY, self.save_now)

    def flush(self) -> None:
        """Write what was changed, if that is quick."""
        if self._timer is not None and self._took <= QUICK:
            self.save_now()

    def save_now(self) -> None:
        """Write now."""
        began = time.perf_counter()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        save(self.state, self.path)
        self._took = time.perf_counter() - began
