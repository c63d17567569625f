"""views.*, reactions.*, apps.* and api.test."""

from __future__ import annotations

from typing import Any

from bot.workspace import payloads
from bot.workspace.errors import SlackError
from bot.workspace.methods.call import Call
from bot.workspace.state import Json, View, wire


def _view_argument(call: Call) -> Any:
    value = call.json("view", "invalid_arguments")
    if value is None:
        call.required("view")
    return value


def _shown(call: Call, view: View) -> Json:
    return {"view": payloads.view_field(call.core.state, view)}


def _trigger(call: Call) -> str:
    return call.text("trigger_id") or call.required("interactivity_pointer", "invalid_trigger_id")


def views_open(call: Call) -> Json:
    """views.open"""
    return _shown(call, call.views.open(_trigger(call), _view_argument(call)))


def views_push(call: Call) -> Json:
    """views.push"""
    return _shown(call, call.views.push(_trigger(call), _view_argument(call)))


def views_update(call: Call) -> Json:
    """views.update"""
    body = _view_argument(call)
    view = call.views.update(body, call.text("view_id"), call.text("external_id"), call.text("hash"))
    return _shown(call, view)


def views_publish(call: Call) -> Json:
    """views.publish"""
    return {"view": call.views.publish(call.user("user_id"), _view_argument(call), call.text("hash"))}


def _reacted(call: Call) -> tuple[Any, Json]:
    channel = call.channel()
    message = call.message(channel, "timestamp")
    return channel, message


def reactions_add(call: Call) -> Json:
    """reactions.add"""
    name = call.required("name", "invalid_name").strip(":")
    channel, message = _reacted(call)
    call.must_be_member(channel)
    call.core.react(call.bot, channel, message, name, add=True)
    return {}


def reactions_remove(call: Call) -> Json:
    """reactions.remove"""
    name = call.required("name", "invalid_name").strip(":")
    channel, message = _reacted(call)
    call.core.react(call.bot, channel, message, name, add=False)
    return {}


def reactions_get(call: Call) -> Json:
    """reactions.get"""
    channel, message = _reacted(call)
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
