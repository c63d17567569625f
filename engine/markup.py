"""What keeps the values in a message harmless: no mention, no link and no picture that the author did not write. Pure.

A flow's own words are markup; what an expression gives is not the author's. In Slack's `mrkdwn` it is enough to
escape three characters. A `markdown` text has no such escape that holds inside code as well as outside of it, so
there a value keeps its form (headings, lists, tables, code), and only what could reach somebody or lead somewhere is
taken apart: `<` before a name, links and pictures, and addresses, which stand as code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_BEGINS_TAG = re.compile(r"<(?=[@#!?/A-Za-z])")
_ENTITY = re.compile(r"&(?=#?\w+;)")
_CODE = re.compile(r"```(?P<fence>.*?)```|`(?P<span>[^`\n]+)`", re.DOTALL)
_RUN = re.compile("`+")
_ADDRESS = re.compile(r":?[\\/]{2}|:\\|\bwww\.|\bmailto:|@\w|\w@|[^\W_][\w-]*\.[^\W\d_]{2,}", re.IGNORECASE)
_WORD = re.compile(r"\S+")


def escape_markup(text: str) -> str:
    """`& < >` as entities, so that nothing in a value is a mention, a link or a channel."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def markdown_escapes(pieces: Iterable[object]) -> list[Callable[[str], str]]:
    """For each piece of a markdown text (literal texts, and expressions between them) what makes its value harmless:
    that depends on whether the author's words have opened code there."""
    escapes: list[Callable[[str], str]] = []
    opened = ""
    for piece in pieces:
        if isinstance(piece, str):
            for run in _RUN.findall(piece):
                opened = run if not opened else "" if run == opened else opened
        escapes.append({"": harmless, "```": _in_fence}.get(opened[:3], _in_span))
    return escapes


def harmless(text: str) -> str:
    """A value in a markdown text, outside of code."""
    text = _broken(text)
    made, position = [], 0
    for found in _CODE.finditer(text):
        made.append(_outside(text[position : found.start()]))
        made.append(_code(found))
        position = found.end()
    return "".join([*made, _outside(text[position:])])


def _broken(text: str) -> str:
    """Without what is a mention, a link or HTML wherever it stands, in code too."""
    return _ENTITY.sub("& ", _BEGINS_TAG.sub("< ", text.replace("\r\n", "\n").replace("\r", "\n")))


def _code(found: re.Match[str]) -> str:
    """Code as it is surely read: what is inside has no mark that could end it."""
    body = found["fence"]
    if body is None:
        return f"`{found['span']}`"
    body = body.replace("`", "'")
    return f"```{body}```" if "\n" in body else f"`{body.strip()}`" if body.strip() else "''"


def _outside(text: str) -> str:
    text = text.replace("`", "'").replace("](", "] (").replace("]:", "] :")
    if text.endswith("\\"):
        # It would take the meaning from the mark of the code that follows.
        text += " "
    return _WORD.sub(lambda word: f"`{word[0]}`" if _ADDRESS.search(word[0]) else word[0], text)


def _in_fence(text: str) -> str:
    return _broken(text).replace("```", "'''")


def _in_span(text: str) -> str:
    return " ".join(_broken(text).replace("`", "'").split())
