"""Small whole pictures of each kind."""

from __future__ import annotations

import base64
import struct
import zlib


def png(width: int = 3, height: int = 2, shade: int = 0) -> bytes:
    """A grey PNG; `shade` tells one from another."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + bytes([shade]) * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def jpeg(width: int = 3, height: int = 2) -> bytes:
    """The parts of a JPEG that say how large it is, and its end."""
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\x01\x11\x00"
    tables = b"\xff\xc4" + struct.pack(">H", 4) + b"\0\0"
    intro = b"\xff\xe0" + struct.pack(">H", 7) + b"JFIF\0"
    return b"\xff\xd8" + intro + tables + frame + b"\xff\xda\x00\x02data\xff\xd9"


def gif(width: int = 3, height: int = 2) -> bytes:
    """A GIF of one frame."""
    screen = struct.pack("<HH", width, height) + b"\x80\0\0" + b"\0\0\0\xff\xff\xff"
    frame = b"," + struct.pack("<HHHH", 0, 0, width, height) + b"\0" + b"\x02\x02D\x01\0"
    return b"GIF89a" + screen + frame + b";"


WEBP = {
    "lossy": base64.b64decode("UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA"),
    "lossless": base64.b64decode("UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA=="),
    "extended": b"RIFF" + struct.pack("<I", 22) + b"WEBPVP8X" + struct.pack("<I", 10) + b"\0" * 10,
}
"""Of one pixel each."""
