"""Slack's text as the person meant it.

Slack escapes `& < >` and wraps links, addresses, people and channels in angle brackets. Both are undone in one pass, so
each escape is undone once: a person who types `&lt;` gets `&lt;`.
"""

from __future__ import annotations

import re
from functools import partial

from engine.language.codec import clean_text
from prompt_state.question_row import TooLong

MAX_BYTES = 16 * 1024
"""UTF-8 bytes that a text may have."""

_ENTITIES = {"&amp;": "&", "&lt;": "<", "&gt;": ">"}
_ENTITY = re.compile("&(?:amp|lt|gt);")
_MARKUP = re.compile("<([^<>]*)>|&(?:amp|lt|gt);")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
MARKS = re.compile(
    r"```(?P<block>.+?)```|`(?P<code>[^`\n]+)`|^(?:&gt;)+[ ]?|(?<![\w=/\\])(?P<mark>\*\*?|~~?|__?)(?!\s|(?P=mark))"
    r"(?P<words>(?:(?!(?P=mark))[^\n]|(?<=\w)(?P=mark)(?=\w))+?)(?<=\S)(?P=mark)(?!\w)",
    re.DOTALL | re.MULTILINE,
)
"""Code, the beginning of a quoted line, and marks (`mark`) with the words between them, which may have marks inside."""
_PHONE = re.compile(r"tel:[+\d\s()./-]+")
_NO_DIGIT = re.compile(r"\D")


def text_in(raw: str) -> str:
    """Return a message's `text` as the person typed it: unwrapped, unescaped once, NFC, without NUL and lone
    surrogates.

    Mentions stay `<@U...>`, to be resolved by id. Raises `TooLong` above `MAX_BYTES`.
    """
    return _checked(_MARKUP.sub(_plain, raw))


def read_in(raw: str) -> str:
    """A message's `text` as people read it: like `text_in`, but of a link its label alone, and without the marks of bold,
    italic, struck, quoted words and code. Raises `TooLong`."""
    return _checked(_MARKUP.sub(partial(_plain, is_read=True), unmarked(raw)))


def unmarked(raw: str) -> str:
    """A message's `text` without the marks of bold, italic, struck, quoted words and code."""
    return MARKS.sub(_unmarked, raw)


def _unmarked(found: re.Match[str], nested: int = 3) -> str:
    if found["mark"]:
        return MARKS.sub(partial(_unmarked, nested=nested - 1), found["words"]) if nested else found["words"]
    return (found["block"] or found["code"] or "").strip()


def _checked(text: str) -> str:
    cleaned, _ = clean_text(text)
    size = len(cleaned.encode())
    if size > MAX_BYTES:
        raise TooLong(
            f"This message has {size:,} bytes; the limit is {MAX_BYTES:,}. "
            "It was not used: please send a shorter one."
        )
    return cleaned


def unescape(text: str) -> str:
    """Slack's three entities, undone once."""
    return _ENTITY.sub(lambda found: _ENTITIES[found[0]], text)


def _plain(found: re.Match[str], *, is_read: bool = False) -> str:
    inner = found[1]
    if inner is None:
        return _ENTITIES[found[0]]
    target, _, label = inner.partition("|")
    if target.startswith("@"):
        return f"<{target}>"
    if target.startswith("#"):
        return f"#{unescape(label)}" if label else f"<{target}>"
    if target.startswith("!"):
        command = target[1:]
        shown = unescape(label)
        if shown:
            return shown
        if command in ("here", "channel", "everyone"):
            return f"@{command}"
        return f"<!{command}>"
    if _URI.match(target):
        return unescape(label) if is_read and label else _link(unescape(target), unescape(label))
    return unescape(found[0])


def _link(url: str, label: str) -> str:
    """Return the link as typed. Slack links `example.com` to `http://example.com`: then the label was typed.

    A label that differs from its link is kept beside it: neither may hide the other.
    """
    if not label:
        return url
    bare = _URI.sub("", url, count=1).removeprefix("//")
    digits = _NO_DIGIT.sub("", label).lstrip("0")
    if digits and _PHONE.fullmatch(f"tel:{label}") and _PHONE.fullmatch(url):
        return label if _NO_DIGIT.sub("", url).endswith(digits) else f"{label} ({url})"
    if label.rstrip("/") in (url.rstrip("/"), bare.rstrip("/")):
        return label
    return f"{label} ({url})"
