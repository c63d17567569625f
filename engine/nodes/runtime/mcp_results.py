"""Results of MCP tools and resources, as the output of a node.

An output is plain JSON of a bounded size, without secrets: `{content, isError, structured}`: `content` has blocks
`{type: text, text}` and `{type: image, data, mimeType}`. Anything other than text and supported pictures is described
in words.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from engine.language.codec import Json, copy, encode
from engine.messages.messages import IMAGE_TYPES
from engine.nodes.runtime.redact import Redactor

if TYPE_CHECKING:
    from mcp.types import CallToolResult

MOST_TEXT = 256 * 1024
"""Characters of text that are kept of one call."""
MOST_IMAGE = 1_400_000
"""Characters in base64 of a picture that is kept: 1 MiB."""
MOST_PARTS = 200

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def output_of(result: CallToolResult, redactor: Redactor) -> dict[str, Json]:
    """Return the node's output for this result. Raises `NotJson` for a structured value that cannot be stored
    unchanged."""
    parts = [_part(part) for part in result.content[:MOST_PARTS]]
    if len(result.content) > MOST_PARTS:
        parts.append(_text(f"({len(result.content) - MOST_PARTS} more parts were left out)"))
    plain = None if result.structured_content is None else copy(result.structured_content)
    structured = redactor.json(plain) if len(encode(plain)) <= MOST_TEXT else None
    return output(parts, redactor, is_error=bool(result.is_error), structured=structured)


def output(
    parts: list[dict[str, Json]], redactor: Redactor, *, is_error: bool = False, structured: Json = None
) -> dict[str, Json]:
    """These parts as an output: bounded, and without secrets."""
    room = MOST_TEXT
    for part in parts:
        if part["type"] == "text":
            text = redactor.text(part["text"])
            if len(text) > room:
                head, tail = room - room // 2, room // 2
                out = f"[... {len(text) - head - tail:,} characters left out ...]"
                text = f"{text[:head]}\n{out}\n{text[len(text) - tail :]}"
            part["text"] = text
            room = max(0, room - len(part["text"]))
    return {"content": parts, "isError": is_error, "structured": structured}


def clean(text: str) -> str:
    """Text that a journal takes."""
    return _UNSTORABLE.sub("\ufffd", text)


def _part(part: Any) -> dict[str, Json]:
    kind = part.type
    if kind == "text":
        return _text(part.text)
    if kind == "image":
        return _image(part.data, part.mime_type)
    if kind == "resource_link":
        return _text(f"(a resource: {part.name}, {part.uri})")
    if kind == "resource":
        return resource(part.resource)
    return _text(f"(a part of type {kind}, which cannot be shown)")


def resource(inner: Any) -> dict[str, Json]:
    """Return the content of a resource: text, a picture, or a note that it is neither."""
    text, kind = getattr(inner, "text", None), str(inner.mime_type or "")
    if isinstance(text, str):
        return _text(f"(resource {inner.uri})\n{text}")
    if kind in IMAGE_TYPES:
        return _image(inner.blob, kind)
    return _text(f"(resource {inner.uri} of type {kind[:60] or 'unknown'}, which is not text)")


def _image(data: str, media_type: str) -> dict[str, Json]:
    if media_type not in IMAGE_TYPES:
        return _text(f"(a picture of type {media_type[:60]}, which cannot be shown)")
    if len(data) > MOST_IMAGE:
        return _text(f"(a picture of {len(data) * 3 // 4 // 1024:,} KiB, too large to be shown)")
    return {"type": "image", "data": clean(data), "mimeType": media_type}


def _text(text: str) -> dict[str, Json]:
    return {"type": "text", "text": clean(text)}
