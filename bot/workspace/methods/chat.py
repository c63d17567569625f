"""chat.*: posting, changing and deleting messages."""

from __future__ import annotations

from bot.workspace import blocks as block_kit
from bot.workspace import elements
from bot.workspace.errors import SlackError
from bot.workspace.methods.call import Call
from bot.workspace.methods.streams import is_streaming
from bot.workspace.state import Channel, Json, wire


def post_message(call: Call) -> Json:
    """chat.postMessage"""
    channel = call.channel()
    if channel.is_archived:
        raise SlackError("is_archived")
    if not call.is_member(channel) and "chat:write.public" not in call.granted:
        raise SlackError("not_in_channel")
    message = call.core.post(
        call.bot,
        channel,
        thread_ts=call.text("thread_ts") or None,
        metadata=_metadata(call),
        **_content(call),
        **_broadcast(call, channel),
    )
    return {"channel": channel.id, "ts": message["ts"], "message": wire(message, metadata=True)}


def _content(call: Call) -> Json:
    text, given = call.text("text"), call.blocks() or []
    block_kit.check_message(text, given)
    if not text and not given:
        raise SlackError("no_text")
    filled = elements.with_ids(given, call.core.state.new_id("b").lower()) if given else []
    return {"text": text, "blocks": filled}


def _metadata(call: Call) -> Json | None:
    value: Json | None = call.json("metadata", "invalid_metadata_format")
    block_kit.check_metadata(value)
    return value


def _broadcast(call: Call, channel: Channel) -> Json:
    if not (call.text("thread_ts") and call.flag("reply_broadcast")):
        return {}
    root = call.core.state.message(channel.id, call.text("thread_ts"))
    return {"subtype": "thread_broadcast", "root": wire(root)} if root else {}


def update(call: Call) -> Json:
    """chat.update: blocks without text leave the text, a text without blocks removes the blocks, and metadata
    stays until it is replaced or emptied."""
    channel = call.channel()
    message = call.message(channel)
    if message.get("bot_id") != call.bot.bot_id:
        raise SlackError("cant_update_message")
    if channel.is_archived:
        raise SlackError("is_archived")
    if is_streaming(call, message):
        raise SlackError("streaming_state_conflict")
    changes = _changes(call)
    after = call.core.edit(channel, message, changes)
    answer = {"channel": channel.id, "ts": message["ts"], "text": after["text"]}
    return {**answer, "message": wire(after, metadata=True)}


def _changes(call: Call) -> Json:
    changes: Json = {}
    given = call.blocks()
    if "text" in call.args:
        changes.update(text=call.text("text"), blocks=None)
    if given is not None:
        changes["blocks"] = elements.with_ids(given, call.core.state.new_id("b").lower()) or None
    block_kit.check_message(call.text("text"), given or [], limit=block_kit.MAX_UPDATE_TEXT)
    if call.args.get("metadata") is not None:
        value = call.json("metadata", "invalid_metadata_format")
        if value:
            block_kit.check_metadata(value)
        changes["metadata"] = value or None
    if not changes or (not changes.get("text", "-") and not given):
        raise SlackError("no_text")
    return changes


def delete(call: Call) -> Json:
    """chat.delete"""
    channel = call.channel()
    message = call.message(channel)
    if message.get("bot_id") != call.bot.bot_id:
        raise SlackError("cant_delete_message")
    call.core.delete(channel, message)
    return {"channel": channel.id, "ts": message["ts"]}


def post_ephemeral(call: Call) -> Json:
    """chat.postEphemeral"""
    channel = call.channel()
    user = call.user(error="user_not_in_channel")
    if channel.is_archived:
        raise SlackError("is_archived")
    call.must_be_member(channel)
    if user.id not in channel.members:
        raise SlackError("user_not_in_channel")
    message = call.core.post_ephemeral(
        channel, user, thread_ts=call.text("thread_ts") or None, **_content(call)
    )
    return {"message_ts": message["ts"]}


def get_permalink(call: Call) -> Json:
    """chat.getPermalink: an address on the local page."""
    channel = call.channel()
    message = call.message(channel, "message_ts")
    root = message.get("thread_ts", message["ts"])
    return {"channel": channel.id, "permalink": f"{call.core.base_url}/#/{channel.id}/{root}"}
