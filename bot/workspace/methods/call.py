"""One call of a Web API method: its arguments, who calls, its scopes, and the checks that most methods share.
The methods that need little more: views.*, reactions.*, apps.* and api.test.
"""

from __future__ import annotations

import base64
import binascii
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bot.workspace import blocks as block_kit
from bot.workspace import payloads
from bot.workspace.core import Core, Views
from bot.workspace.state import Channel, Json, SlackError, User, View, WorkspaceError, wire

DEFAULT_SCOPES = (
    "app_mentions:read",
    "channels:history",
    "channels:read",
    "chat:write",
    "commands",
    "files:read",
    "files:write",
    "groups:history",
    "groups:read",
    "im:history",
    "im:read",
    "im:write",
    "reactions:read",
    "reactions:write",
    "usergroups:read",
    "users:read",
    "users:read.email",
)
APP_TOKEN_SCOPES = ("connections:write",)

PREFIX = {"channel": "channels", "group": "groups", "im": "im"}
"""The beginning of the scopes for `history` and `read`, by the kind of conversation."""
TRUE = ("1", "true", "True", True, 1)
OLD = -1
NEW = 1 << 62


@dataclass(slots=True)
class Call:
    """The arguments of a call as they came (strings, or JSON values) with typed ways to read them."""

    method: str
    args: Json
    core: Core
    views: Views
    granted: frozenset[str]

    # -- arguments

    def text(self, name: str) -> str:
        """The argument as text; empty when it was not given."""
        value = self.args.get(name)
        return "" if value is None else str(value)

    def required(self, name: str, error: str = "invalid_arguments") -> str:
        """The argument as text; SlackError when it is missing."""
        value = self.text(name)
        if not value:
            raise SlackError(
                error,
                f"{self.method} needs {name}",
                response_metadata={"messages": [f"[ERROR] missing required field: {name}"]},
            )
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """The argument as a yes or no."""
        return default if name not in self.args else self.args[name] in TRUE

    def number(self, name: str, default: int, most: int) -> int:
        """The argument as a whole number between 1 and `most`; SlackError `invalid_limit`."""
        given = self.text(name)
        if not given:
            return default
        if not given.isdigit() or int(given) < 1:
            raise SlackError("invalid_limit", f"{name} is {given!r}")
        return min(int(given), most)

    def json(self, name: str, error: str) -> Any:
        """The argument as a JSON value, which Slack takes as a string too; None when it was not given."""
        value = self.args.get(name)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except ValueError as problem:
            raise SlackError(error, f"{name} is no JSON: {problem}") from problem

    def blocks(self) -> list[Json] | None:
        """The `blocks` argument; None when it was not given; SlackError `invalid_blocks_format`."""
        value = self.json("blocks", "invalid_blocks_format")
        if value is not None and not (isinstance(value, list) and all(isinstance(b, dict) for b in value)):
            raise SlackError("invalid_blocks_format", "blocks is a list of objects")
        return value

    def moment(self, name: str, default: int) -> int:
        """A timestamp argument in microseconds; SlackError `invalid_ts_<name>`."""
        given = self.text(name)
        if not given or given == "now":
            return default
        whole, _, part = given.partition(".")
        if not whole.isdigit() or not (part or "0").isdigit():
            raise SlackError(f"invalid_ts_{name}", f"{name} is {given!r}")
        return int(whole) * 1_000_000 + int(part.ljust(6, "0")[:6])

    # -- rights

    def need(self, scope: str) -> None:
        """SlackError `missing_scope` unless the token has this scope."""
        if scope not in self.granted:
            provided = ",".join(sorted(self.granted))
            raise SlackError("missing_scope", f"needs {scope}", needed=scope, provided=provided)

    @property
    def bot(self) -> User:
        """The app's bot user."""
        return self.core.state.bot_user

    # -- what the call is about

    def channel(self, name: str = "channel", scope: str = "") -> Channel:
        """The conversation that the argument names, if the app may know of it. `scope` is `history` or
        `read` where the scope depends on the kind of conversation. SlackError `channel_not_found`."""
        channel = self._find_channel(self.required(name, "channel_not_found"))
        if scope:
            self.need(f"{PREFIX[channel.kind]}:{scope}")
        if (channel.is_private or channel.is_im) and not self.is_member(channel):
            raise SlackError("channel_not_found")
        return channel

    def _find_channel(self, key: str) -> Channel:
        state = self.core.state
        if key in state.channels:
            return state.channels[key]
        posts = self.method == "chat.postMessage"
        if key in state.users and posts:
            return state.open_im(key, self.core.clock())
        if key.startswith("#") or posts:
            with suppress(WorkspaceError):
                return state.channel(key)
        raise SlackError("channel_not_found", f"no conversation {key!r}")

    def is_member(self, channel: Channel) -> bool:
        """True if the app is in this conversation."""
        return self.core.state.bot_user_id in channel.members

    def must_be_member(self, channel: Channel) -> None:
        """SlackError `not_in_channel` unless the app is in the conversation."""
        if not self.is_member(channel):
            raise SlackError("not_in_channel", f"the app is not in #{channel.name}")

    def writable(self, name: str = "channel") -> Channel:
        """The conversation that the call writes in; SlackError `is_archived`, `not_in_channel`."""
        channel = self.channel(name)
        if channel.is_archived:
            raise SlackError("is_archived")
        self.must_be_member(channel)
        return channel

    def metadata(self) -> Json | None:
        """The `metadata` argument; None when it was not given; SlackError."""
        value: Json | None = self.json("metadata", "invalid_metadata_format")
        block_kit.check_metadata(value)
        return value

    def own(self, channel: Channel, error: str) -> Json:
        """The stored message of this app that `ts` names; SlackError with this code where it is somebody else's."""
        found = self.message(channel)
        if found.get("bot_id") != self.bot.bot_id:
            raise SlackError(error)
        return found

    def message(self, channel: Channel, name: str = "ts", missing: str = "message_not_found") -> Json:
        """The stored message that the argument names; SlackError with the code `missing`."""
        found = self.core.state.message(channel.id, self.required(name))
        if found is None or found.get("subtype") == "tombstone":
            raise SlackError(missing)
        return found

    def user(self, name: str = "user", error: str = "user_not_found") -> User:
        """The person that the argument names by id; SlackError."""
        found = self.core.state.users.get(self.required(name, error))
        if found is None:
            raise SlackError(error)
        return found

    # -- pages of results

    def page(self, found: list[Any], default: int, most: int) -> tuple[list[Any], str]:
        """The page of `found` that `cursor` and `limit` ask for, and the next cursor (empty at the end)."""
        limit, cursor = self.number("limit", default, most), self.text("cursor")
        start = 0
        if cursor:
            try:
                kind, _, number = base64.b64decode(cursor, validate=True).decode().partition(":")
                if kind != "position":
                    raise ValueError(kind)
                start = int(number)
            except (ValueError, binascii.Error) as problem:
                raise SlackError("invalid_cursor") from problem
        end = start + limit
        more = base64.b64encode(f"position:{end}".encode()).decode() if end < len(found) else ""
        return found[start:end], more


def micros(ts: str) -> int:
    """A timestamp of the workspace in microseconds."""
    return int(ts.replace(".", ""))


# --- views, reactions, the connection ----------------------------------------------------------------------


def _view_argument(call: Call) -> Any:
    value = call.json("view", "invalid_arguments")
    if value is None:
        call.required("view")
    return value


def _shown(call: Call, view: View) -> Json:
    return {"view": payloads.view_field(call.core.state, view)}


def views_open(call: Call) -> Json:
    """views.open, views.push"""
    trigger = call.text("trigger_id") or call.required("interactivity_pointer", "invalid_trigger_id")
    show = call.views.open if call.method == "views.open" else call.views.push
    return _shown(call, show(trigger, _view_argument(call)))


def views_update(call: Call) -> Json:
    """views.update"""
    body = _view_argument(call)
    view = call.views.update(body, call.text("view_id"), call.text("external_id"), call.text("hash"))
    return _shown(call, view)


def views_publish(call: Call) -> Json:
    """views.publish"""
    return {"view": call.views.publish(call.user("user_id"), _view_argument(call), call.text("hash"))}


def reactions_change(call: Call) -> Json:
    """reactions.add, reactions.remove"""
    add = call.method == "reactions.add"
    name = call.required("name", "invalid_name").strip(":")
    channel = call.channel()
    message = call.message(channel, "timestamp")
    if add:
        call.must_be_member(channel)
    call.core.react(call.bot, channel, message, name, add=add)
    return {}


def reactions_get(call: Call) -> Json:
    """reactions.get"""
    channel = call.channel()
    message = call.message(channel, "timestamp")
    return {"type": "message", "channel": channel.id, "message": wire(message)}


def connections_open(call: Call) -> Json:
    """apps.connections.open: the address of one WebSocket."""
    address = call.core.base_url.replace("http://", "ws://", 1)
    return {"url": f"{address}/link/?ticket={call.core.sockets.issue_ticket()}&app_id=local"}


def api_test(call: Call) -> Json:
    """api.test: the arguments back, or the error that was asked for."""
    if call.text("error"):
        raise SlackError(call.text("error"), args=call.args)
    return {"args": call.args}
