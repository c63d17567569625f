"""chat.*: posting, changing and deleting messages."""

from __future__ import annotations

from bot.workspace import blocks as block_kit
from bot.workspace.methods.call import Call
from bot.workspace.state import Json, SlackError, wire


def post_message(call: Call) -> Json:
    """chat.postMessage"""
    channel = call.channel()
    if channel.is_archived:
        raise SlackError("is_archived")
    if not call.is_member(channel) and "chat:write.public" not in call.granted:
        raise SlackError("not_in_channel")
    thread_ts, metadata, content = call.text("thread_ts") or None, call.metadata(), _content(call)
    if thread_ts is not None and call.flag("reply_broadcast"):
        root = call.core.state.message(channel.id, thread_ts)
        content |= {"subtype": "thread_broadcast", "root": wire(root)} if root else {}
    message = call.core.post(call.bot, channel, thread_ts=thread_ts, metadata=metadata, **content)
    return {"channel": channel.id, "ts": message["ts"], "message": wire(message, metadata=True)}


def _content(call: Call) -> Json:
    text, given = call.text("text"), call.blocks() or []
    content = call.core.content(text, given)
    if not text and not given:
        raise SlackError("no_text")
    return content


def update(call: Call) -> Json:
    """chat.update: text and blocks replace both; metadata stays until it is replaced or emptied."""
    channel = call.channel()
    message = call.own(channel, "cant_update_message")
    if channel.is_archived:
        raise SlackError("is_archived")
    changes: Json = {}
    given = call.blocks()
    if "text" in call.args:
        changes.update(text=call.text("text"), blocks=None)
    if given is not None:
        changes["blocks"] = call.core.with_ids(given) or None
    block_kit.check_message(call.text("text"), given or [], limit=block_kit.MAX_UPDATE_TEXT)
    if call.args.get("metadata") is not None:
        emptied = not call.json("metadata", "invalid_metadata_format")
        changes["metadata"] = None if emptied else call.metadata()
    if not changes or (not changes.get("text", "-") and not given):
        raise SlackError("no_text")
    after = call.core.edit(channel, message, changes)
    answer = {"channel": channel.id, "ts": message["ts"], "text": after["text"]}
    return {**answer, "message": wire(after, metadata=True)}


def delete(call: Call) -> Json:
    """chat.delete"""
    channel = call.channel()
    message = call.own(channel, "cant_delete_message")
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
