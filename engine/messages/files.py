"""Files in a conversation: named by a block of our own until a call sends them, and by the digest of their bytes from
then on. Pure.

`{type: sayso_file, path, name, mediaType}` names a file in the session's folder. Once a call that sent it is answered it has
also `{digest, size, block}`: the block of the API around the bytes, without them. A picture that a tool has read has them at
once.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence

from engine.language.codec import Json

FILE_BLOCK = "sayso_file"


def files_in(content: Sequence[Json]) -> Iterator[Json]:
    """The files that these blocks name, in their order, in the results of tools too."""
    for block in content:
        if block["type"] == FILE_BLOCK:
            yield block
        elif _has_parts(block):
            yield from files_in(block["content"])


def with_files(content: Sequence[Json], made: Callable[[Json], Json]) -> list[Json]:
    """Return the blocks with the result of `made` instead of each file."""
    return [
        made(block)
        if block["type"] == FILE_BLOCK
        else {**block, "content": with_files(block["content"], made)}
        if _has_parts(block) and any(files_in(block["content"]))
        else block
        for block in content
    ]


def _has_parts(block: Json) -> bool:
    return block["type"] == "tool_result" and isinstance(block.get("content"), list)


def kept(block: Json) -> bool:
    """True if a file is sent from its kept bytes."""
    return block.get("block") is not None


def hollow(block: Json) -> Json:
    """A block of the API without the bytes of its file."""
    if "source" not in block:
        return block
    return {**block, "source": {name: value for name, value in block["source"].items() if name != "data"}}


def filled(named: Json, data: bytes) -> Json:
    """Return the block that is sent for a kept file: the same as before, with the same bytes."""
    block = named["block"]
    if "source" not in block:
        return block
    source = block["source"]
    text = data.decode() if source["type"] == "text" else base64.b64encode(data).decode()
    return {**block, "source": {**source, "data": text}}
