"""Type, size and integrity of pictures. Pure.

A picture that an API cannot read would make it refuse the whole conversation, so it is checked first.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from engine.nodes.runtime.folder import sniffed

MOST_BYTES = 3_750_000
"""Largest picture in bytes: 5 MB in base64, the limit of the API."""
MOST_SIDE = 8000
"""Pixels of a picture's longer side; the API takes no more."""

_Size = tuple[int, int]
_PNG_END = b"IEND\xaeB`\x82"
_NO_FRAMES = (0xC4, 0xC8, 0xCC)


class Picture(NamedTuple):
    """A whole picture: its type, width and height in pixels."""

    kind: str
    width: int
    height: int


def is_picture(data: bytes) -> bool:
    """True if these bytes begin as a picture does."""
    return sniffed(data[:4096]) in _SIZES


def picture_of(data: bytes) -> Picture | None:
    """The picture that these bytes are; None for a broken one."""
    kind = sniffed(data[:4096])
    try:
        size = _SIZES[kind](data) if kind in _SIZES else None
    except (IndexError, struct.error):
        return None
    return None if size is None or 0 in size else Picture(kind, *size)


def picture_problem(data: bytes) -> str | None:
    """Why a picture cannot be shown to a model: words behind its name."""
    found = picture_of(data)
    if found is None:
        return "is a broken picture and cannot be shown"
    if len(data) > MOST_BYTES:
        return f"has {len(data):,} bytes; the limit is {MOST_BYTES:,} at most"
    if max(found.width, found.height) > MOST_SIDE:
        size = f"{found.width} x {found.height} pixels"
        return f"has {size}; the limit is {MOST_SIDE} per side"
    return None


def unshowable(data: bytes) -> str | None:
    """Return why a model cannot be shown this file, as words that follow its name; None for pictures, PDFs and text."""
    if is_picture(data):
        problem = picture_problem(data)
        return None if problem is None else f"it {problem}"
    kind = sniffed(data[:4096])
    if kind == "application/pdf":
        return None
    with suppress(UnicodeDecodeError):
        if kind == "text/plain" and data.decode():
            return None
    return "it is empty" if not data else f"it is {kind}, and only text, pictures and PDFs can be read"


def _png(data: bytes) -> _Size | None:
    whole = data[12:16] == b"IHDR" and _PNG_END in data[-64:]
    width, height = struct.unpack_from(">II", data, 16)
    return (width, height) if whole else None


def _gif(data: bytes) -> _Size | None:
    width, height = struct.unpack_from("<HH", data, 6)
    return (width, height) if data.rstrip(b"\0")[-1:] == b";" else None


def _jpeg(data: bytes) -> _Size | None:
    at = 2
    while b"\xff\xd9" in data[-4096:] and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in _NO_FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        elif marker == 0xDA:
            return None
        else:
            at += 2 + int(struct.unpack_from(">H", data, at + 2)[0])
    return None


def _webp(data: bytes) -> _Size | None:
    if len(data) < 8 + int(struct.unpack_from("<I", data, 4)[0]):
        return None
    match data[12:16]:
        case b"VP8 " if data[23:26] == b"\x9d\x01\x2a":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L" if data[20] == 0x2F:
            bits = int(struct.unpack_from("<I", data, 21)[0])
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    return None


_SIZES: Mapping[str, Callable[[bytes], _Size | None]] = {
    "image/png": _png,
    "image/gif": _gif,
    "image/jpeg": _jpeg,
    "image/webp": _webp,
}
