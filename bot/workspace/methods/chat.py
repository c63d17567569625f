"""chat.*: posting, changing and deleting messages, and messages that grow while they are read.

A stream belongs to a thread and names in a channel who reads it live; it ends five minutes after it began, whatever is
appended; while it runs it cannot be edited; and one that was opened with `markdown_text` takes no chunks, nor the other
way round.
"""

from __future__ import annotations

from typing import Any

from bot.workspace import blocks as block_kit
from bot.workspace.methods.call import Call, micros
from bot.workspace.state import Channel, Json, SlackError, wire

STREAM_SECONDS = 300.0
"""How long a stream lives."""
RUNNING, DONE = "in_progress", "completed"
_MOST_MARKDOWN = 12_000
_TASK_STATES = ("pending", "in_progress", "complete", "error")


def start(call: Call) -> Json:
    """chat.startStream"""
    channel = call.writable()
    thread_ts = call.required("thread_ts", "invalid_thread_ts")
    # Who reads the stream live. SlackError where a channel's stream does not name them.
    user_id, team_id = call.text("recipient_user_id"), call.text("recipient_team_id")
    if not channel.is_im:
        if not user_id:
            raise SlackError("missing_recipient_user_id")
        if not team_id:
            raise SlackError("missing_recipient_team_id")
    if user_id and user_id not in call.core.state.users:
        raise SlackError("user_not_found")
    if team_id and team_id != call.core.state.team_id:
        raise SlackError("team_not_found")
    reader = user_id
    parts, mode = _parts(call)
    if call.text("task_display_mode") not in ("", "timeline", "plan"):
        raise SlackError("invalid_arguments", "task_display_mode is timeline or plan")
    message = call.core.post(
        call.bot,
        channel,
        _text(parts),
        thread_ts=thread_ts,
        streaming_state=RUNNING,
        _stream={"mode": mode, "reader": reader, "parts": parts},
        **_stream_content(call, parts),
    )
    return {"channel": channel.id, "ts": message["ts"]}


def append(call: Call) -> Json:
    """chat.appendStream"""
    channel, message = _streaming(call)
    parts, mode = _parts(call)
    if not parts:
        raise SlackError("no_text")
    _same_mode(message, mode)
    _grow(call, channel, message, parts)
    return {"channel": channel.id, "ts": message["ts"]}


def stop(call: Call) -> Json:
    """chat.stopStream: what it brings is appended, blocks stand below, and the message is one like any other."""
    channel, message = _streaming(call)
    parts, mode = _parts(call)
    if parts:
        _same_mode(message, mode)
    below = call.blocks() or []
    block_kit.check_message("", below)
    after = _grow(call, channel, message, parts, below=below, metadata=call.metadata(), ended=True)
    return {"channel": channel.id, "ts": message["ts"], "message": wire(after, metadata=True)}


def is_streaming(call: Call, message: Json) -> bool:
    """Whether a message still takes what is appended; one whose time is over becomes an ordinary one here."""
    if message.get("streaming_state") != RUNNING:
        return False
    if call.core.clock() - micros(message["ts"]) / 1_000_000 < STREAM_SECONDS:
        return True
    message["streaming_state"] = DONE
    return False


def _streaming(call: Call) -> tuple[Channel, Json]:
    channel = call.channel()
    message = call.own(channel, "message_not_owned_by_app")
    if not is_streaming(call, message):
        raise SlackError("message_not_in_streaming_state")
    return channel, message


def _parts(call: Call) -> tuple[list[Json], str]:
    """What is to be appended, as chunks, and whether it came as `markdown_text` or as `chunks`."""
    text, chunks = call.text("markdown_text"), call.json("chunks", "invalid_chunks")
    if text and chunks:
        raise SlackError("invalid_arguments", "markdown_text and chunks exclude each other")
    if chunks is not None and not isinstance(chunks, list):
        raise SlackError("invalid_chunks", "chunks is a list")
    parts = [_checked(chunk) for chunk in chunks or ()]
    if text:
        parts = [_checked({"type": "markdown_text", "text": text})]
    return parts, "chunks" if chunks else "markdown_text"


def _checked(chunk: Any) -> Json:
    kind = chunk.get("type") if isinstance(chunk, dict) else None
    needed = {"markdown_text": ("text",), "plan_update": ("title",), "task_update": ("id", "title", "status")}
    if kind == "blocks" and isinstance(chunk.get("blocks"), list):
        block_kit.check_message("", chunk["blocks"])
        return dict(chunk)
    if kind not in needed or not all(isinstance(chunk.get(name), str) for name in needed[kind]):
        raise SlackError("invalid_chunks", f"no chunk: {chunk!r}")
    if kind == "task_update" and chunk["status"] not in _TASK_STATES:
        raise SlackError("invalid_chunks", f"status is one of {', '.join(_TASK_STATES)}")
    if len(chunk.get("text", "")) > _MOST_MARKDOWN:
        raise SlackError("msg_too_long", f"{_MOST_MARKDOWN} characters of markdown are allowed")
    return dict(chunk)


def _same_mode(message: Json, mode: str) -> None:
    """A stream keeps to the way in which it was opened; one that was opened with nothing takes either."""
    stream = message["_stream"]
    if stream["parts"] and stream["mode"] != mode:
        raise SlackError("streaming_mode_mismatch")
    stream["mode"] = mode


def _grow(
    call: Call, channel: Channel, message: Json, more: list[Json], *, ended: bool = False, **changes: Any
) -> Json:
    stream = message["_stream"]
    parts = [*stream["parts"], *more]
    below = call.core.with_ids(changes.pop("below", []))
    content = _stream_content(call, parts)
    content["blocks"] = [*content["blocks"], *below] or None
    changes = {key: value for key, value in changes.items() if value}
    changes |= {"text": _text(parts), **content, "streaming_state": DONE if ended else RUNNING}
    reader = "" if ended or channel.is_im else stream["reader"]
    return call.core.grow(channel, message, {**changes, "_stream": {**stream, "parts": parts}}, reader)


def _text(parts: list[Json]) -> str:
    return "".join(part["text"] for part in parts if part["type"] == "markdown_text")


def _stream_content(call: Call, parts: list[Json]) -> Json:
    """The blocks of a stream: its text as one, tasks as lines, and blocks as they were given."""
    made: list[Json] = []
    tasks: dict[str, Json] = {}
    for part in parts:
        if part["type"] == "markdown_text" and made and made[-1]["type"] == "markdown":
            made[-1]["text"] += part["text"]
        elif part["type"] == "markdown_text":
            made.append({"type": "markdown", "text": part["text"]})
        elif part["type"] == "blocks":
            made += part["blocks"]
        elif part["type"] == "task_update" and part["id"] in tasks:
            tasks[part["id"]].update(_task(part))
        else:
            made.append(_task(part))
            tasks[part.get("id", "")] = made[-1]
    return {"blocks": call.core.with_ids(made)}


def _task(part: Json) -> Json:
    marks = {"pending": "○", "in_progress": "◐", "complete": "●", "error": "✕"}
    mark = marks.get(part.get("status", ""), "")
    text = {"type": "plain_text", "text": f"{mark} {part['title']}".strip()[:2000], "emoji": True}
    return {"type": "context", "elements": [text]}


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
        metadata=call.metadata(),
        **_content(call),
        **_broadcast(call, channel),
    )
    return {"channel": channel.id, "ts": message["ts"], "message": wire(message, metadata=True)}


def _content(call: Call) -> Json:
    text, given = call.text("text"), call.blocks() or []
    content = call.core.content(text, given)
    if not text and not given:
        raise SlackError("no_text")
    return content


def _broadcast(call: Call, channel: Channel) -> Json:
    if not (call.text("thread_ts") and call.flag("reply_broadcast")):
        return {}
    root = call.core.state.message(channel.id, call.text("thread_ts"))
    return {"subtype": "thread_broadcast", "root": wire(root)} if root else {}


def update(call: Call) -> Json:
    """chat.update: text and blocks replace both; metadata stays until it is replaced or emptied."""
    channel = call.channel()
    message = call.own(channel, "cant_update_message")
    if channel.is_archived:
        raise SlackError("is_archived")
    if is_streaming(call, message):
        raise SlackError("streaming_state_conflict")
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
