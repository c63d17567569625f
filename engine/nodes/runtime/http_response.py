"""Reading an answer that may be anything: of any size, in any charset, JSON or only called so."""

from __future__ import annotations

import codecs

import aiohttp

from engine.language.codec import Json, copy, decode

_CHUNK = 64 * 1024
_SLOW_OR_ODD = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "utf-7"})
"""Codecs that are no charsets of the web: some take quadratic time, some let anything through."""


async def read_body(response: aiohttp.ClientResponse, limit: int, margin: int) -> tuple[bytes, bool]:
    """The body, or its first `limit` + `margin` bytes when it is longer than `limit`; and whether it is whole."""
    data = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        data += chunk
        if len(data) > limit + margin:
            break
    return bytes(data[: limit + margin]), len(data) <= limit


def to_text(data: bytes, charset: str | None) -> str:
    """These bytes as text in that charset; UTF-8 where it is missing or unknown. Never fails."""
    try:
        name = codecs.lookup(charset or "utf-8").name.replace("_", "-")
        text = data.decode("utf-8" if name in _SLOW_OR_ODD else name, "replace")
    except (LookupError, ValueError):
        text = data.decode("utf-8", "replace")
    # Some codecs let halves of characters through, which no store takes.
    return text.encode("utf-8", "replace").decode().removeprefix("\ufeff")


def parse_json(text: str) -> Json:
    """The value, strictly: no NaN, no infinities. Raises `NotJson`."""
    return copy(decode(text.encode()))


def response_headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    """Headers by name in small letters; repeated ones joined by a comma, cookies by a line break."""
    names = dict.fromkeys(name.lower() for name in response.headers)
    return {
        name: ("\n" if name == "set-cookie" else ", ").join(
            value.encode("utf-8", "replace").decode() for value in response.headers.getall(name)
        )
        for name in names
    }
