"""files.*: the upload in three steps (ask for an address, send the bytes, say where they go)."""

from __future__ import annotations

import base64
import mimetypes

from bot.workspace.methods.call import Call
from bot.workspace.state import Json, SlackError, WorkspaceError

MAX_FILE = 50 * 1024 * 1024  # bytes


def get_upload_url(call: Call) -> Json:
    """files.getUploadURLExternal"""
    name = call.required("filename", "no_filename")
    length = call.number("length", 0, MAX_FILE)
    if not length:
        raise SlackError("invalid_arguments", "length is missing or 0")
    file_id = call.core.state.new_id("F")
    file = new_file(call.core.base_url, file_id, name, call.bot.id)
    if call.text("alt_txt"):
        file["alt_txt"] = call.text("alt_txt")
    call.core.state.files[file_id] = file
    return {"upload_url": f"{call.core.base_url}/upload/{file_id}", "file_id": file_id}


def new_file(base_url: str, file_id: str, name: str, user_id: str) -> Json:
    """A file object as Slack describes it; `_content` (base64) comes with the upload."""
    mimetype = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return {
        "id": file_id,
        "name": name,
        "title": name,
        "mimetype": mimetype,
        "filetype": name.rsplit(".", 1)[-1] if "." in name else "binary",
        "user": user_id,
        "size": 0,
        "mode": "hosted",
        "url_private": f"{base_url}/files/{file_id}",
        "url_private_download": f"{base_url}/files/{file_id}",
        "permalink": f"{base_url}/files/{file_id}",
    }


def store(files: dict[str, Json], file_id: str, content: bytes) -> None:
    """Keep the bytes of an upload; WorkspaceError for an unknown file or too many bytes."""
    if file_id not in files:
        raise WorkspaceError("file_not_found", f"no upload was announced for {file_id}")
    if len(content) > MAX_FILE:
        raise WorkspaceError("file_too_large", f"{len(content)} bytes, {MAX_FILE} are allowed")
    files[file_id].update(_content=base64.b64encode(content).decode(), size=len(content))


def content_of(file: Json) -> bytes:
    """The bytes of a stored file."""
    return base64.b64decode(file.get("_content", ""))


def shown(file: Json) -> Json:
    """A file object without what only the workspace keeps."""
    return {key: value for key, value in file.items() if not key.startswith("_")}


def complete_upload(call: Call) -> Json:
    """files.completeUploadExternal: share uploaded files in a conversation, as a message of the app."""
    asked = call.json("files", "invalid_arguments") or []
    files = []
    for item in asked:
        found = call.core.state.files.get(item.get("id", "")) if isinstance(item, dict) else None
        if found is None or "_content" not in found:
            raise SlackError("file_not_found", f"nothing was uploaded for {item!r}")
        found["title"] = item.get("title") or found["title"]
        files.append(found)
    if not files:
        raise SlackError("invalid_arguments", "files is missing")
    if call.text("channel_id"):
        # Post the files as one message, and note in each where it is; `files.info` tells that
        # afterwards.
        channel = call.writable("channel_id")
        sent = [shown(file) for file in files]
        message = call.core.post(
            call.bot,
            channel,
            call.text("initial_comment"),
            thread_ts=call.text("thread_ts") or None,
            files=sent,
            subtype="file_share",
            upload=True,
        )
        place = {"ts": message["ts"], "channel_name": channel.name, "team_id": call.core.state.team_id}
        if "thread_ts" in message:
            place["thread_ts"] = message["thread_ts"]
        kind = "private" if channel.is_private or channel.is_im else "public"
        for file in files:
            file.setdefault("shares", {}).setdefault(kind, {}).setdefault(channel.id, []).append(place)
    return {"files": [{"id": file["id"], "title": file["title"]} for file in files]}


def info(call: Call) -> Json:
    """files.info"""
    found = call.core.state.files.get(call.required("file", "file_not_found"))
    if found is None:
        raise SlackError("file_not_found")
    return {"file": shown(found)}
