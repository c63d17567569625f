"""Files of a session as blocks of a conversation: pictures, PDFs and text, read when the turn is asked for.

The journal names a file (`sayso_file`) and does not hold it: what a conversation weighs does not grow with every turn.
What a file is, its first bytes say; its name and its described type prove nothing. A picture that a tool has read has a
`digest` too: what is shown as the result of a call is what that call saw, or nothing.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from engine.decide.agents.tool_results import attribute
from engine.language.codec import Json
from engine.messages.messages import (
    IMAGE_TYPES,
    Message,
    image_block,
    pdf_block,
    text_block,
    text_document_block,
)
from engine.nodes.runtime.folder import FileRefused, fingerprint, read_inside, sniffed

FILE_BLOCK = "sayso_file"
"""The type of a block that stands for a file: `{type, path, name, mediaType}`, with `digest` and `size` for a picture that
a tool has read."""

MOST_BYTES = 10 * 2**20
"""Of one file."""

MOST_SHOWN = 20
"""Pictures of tools in one request: with more of them, the API takes only small ones."""
MOST_SHOWN_BYTES = 15 * 2**20
"""Bytes of them together; a request has 32 MB at most, as base64."""

_EARLIER = "(The picture that was shown here is not sent any more, since there are many later ones.)"
_CHANGED = (
    "(The picture {name} cannot be shown here any more: the file was changed or removed after it was read.)"
)


def with_latest(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages with as many pictures of tools as a request has room for, the latest ones; text in place of others."""
    places = [
        ((number, at, inside), _shown_bytes(part))
        for number, message in enumerate(messages)
        for at, block in enumerate(message.content)
        for inside, part in enumerate(_parts(block))
    ]
    pictures = [(place, size) for place, size in reversed(places) if size]
    room, gone = MOST_SHOWN_BYTES, set[tuple[int, int, int]]()
    for count, (place, size) in enumerate(pictures, 1):
        room -= size
        if room < 0 or count > MOST_SHOWN:
            gone.add(place)
    return tuple(_without(message, number, gone) for number, message in enumerate(messages))


def _without(message: Message, number: int, gone: set[tuple[int, int, int]]) -> Message:
    if not any(place[0] == number for place in gone):
        return message
    blocks = []
    for at, block in enumerate(message.content):
        kept = [
            text_block(_EARLIER) if (number, at, inside) in gone else part
            for inside, part in enumerate(_parts(block))
        ]
        blocks.append({**block, "content": kept} if kept else block)
    return replace(message, content=tuple(blocks))


def _parts(block: Json) -> list[Json]:
    """The blocks in a tool's result."""
    content = block.get("content")
    return content if block["type"] == "tool_result" and isinstance(content, list) else []


def _shown_bytes(part: Json) -> int:
    """Bytes of a picture; 0 for anything else."""
    if part["type"] == "image":
        return len(str(part["source"].get("data") or "")) * 3 // 4
    return int(part.get("size") or 0) if part["type"] == FILE_BLOCK else 0


def with_files(content: Sequence[Json], folder: Path, made: list[Json]) -> tuple[Json, ...]:
    """The blocks of a message with the files of this folder in place of what names them, in tools' results too; `made`
    gets what stands for files.

    Raises `FileRefused`.
    """
    return tuple(_with_files(block, folder, made) for block in content)


def names_files(content: Sequence[Json]) -> bool:
    """Whether a message has any such block."""
    return any(
        block.get("type") == FILE_BLOCK
        or (isinstance(block.get("content"), list) and names_files(block["content"]))
        for block in content
        if isinstance(block, dict)
    )


def _with_files(block: Json, folder: Path, made: list[Json]) -> Json:
    if block.get("type") == FILE_BLOCK:
        made.append(file_block(block, folder))
        return made[-1]
    if block.get("type") == "tool_result" and isinstance(block.get("content"), list):
        return {**block, "content": [_with_files(part, folder, made) for part in block["content"]]}
    return block


def file_block(named: Mapping[str, Json], folder: Path) -> Json:
    """The file that a `sayso_file` block names, as a block of the Messages API. Raises `FileRefused`."""
    path = str(named.get("path") or "")
    # Whoever sent the file chose its name.
    name = attribute(str(named.get("name") or Path(path).name))
    if named.get("digest"):
        return _as_read(named, folder, name)
    data = read_inside(folder, path, MOST_BYTES)
    kind = sniffed(data[:4096])
    if str(named.get("mediaType")).startswith("image/") and kind not in IMAGE_TYPES:
        # What it may cost was reckoned by what it said it was.
        raise FileRefused(f"{name} was sent as a picture and is {kind}; send it again as what it is")
    if kind in IMAGE_TYPES:
        return image_block(kind, base64.b64encode(data).decode())
    if kind == "application/pdf":
        return pdf_block(base64.b64encode(data).decode(), title=name)
    try:
        text = data.decode() if kind == "text/plain" else None
    except UnicodeDecodeError:
        text = None
    if text is None:
        raise FileRefused(
            f"{name} is neither text nor a picture ({', '.join(each.removeprefix('image/') for each in IMAGE_TYPES)}) "
            f"nor a PDF, but {kind}: Claude cannot read it"
        )
    if not text.strip():
        return text_block(f"The file {name} is empty.")
    return text_document_block(text, title=name)


def _as_read(named: Mapping[str, Json], folder: Path, name: str) -> Json:
    """A picture as it was when a tool read it; words where it is another one by now."""
    try:
        data = read_inside(folder, str(named.get("path") or ""), MOST_BYTES)
    except FileRefused:
        return text_block(_CHANGED.format(name=name))
    if fingerprint(data) != named["digest"]:
        return text_block(_CHANGED.format(name=name))
    return image_block(str(named["mediaType"]), base64.b64encode(data).decode())
