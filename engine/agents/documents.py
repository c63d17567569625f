"""Files of a session as blocks of a conversation: pictures, PDFs and text, read when the turn is asked for.

The journal names a file (`sayso_file`) and does not hold it: what a conversation weighs does not grow with every turn.
What a file is, its first bytes say; its name and its described type prove nothing.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.agents.results import attribute
from engine.codec import Json
from engine.nodes.folder import FileRefused, read_inside, sniffed
from engine.providers.messages import IMAGE_TYPES, image_block, pdf_block, text_block, text_document_block

FILE_BLOCK = "sayso_file"
"""The type of a block that stands for a file: `{type, path, name, mediaType}`."""

MOST_BYTES = 10 * 2**20
"""Of one file."""


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
