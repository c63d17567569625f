"""Texts of people, flows and models as parts that a view writes as elements: paragraphs, lists and code, with bold and italic
words. A view escapes each part, and none becomes a link, so whatever was written stays text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from prompt_state.slack_text import MARKS

_MOST = 50_000
"""Characters of a text whose marks are read; a longer one is shown as it is."""
_ITEM = re.compile(r"(?P<indent>\s*)(?P<marker>[-*+•]|\d{1,3}[.)])\s+(?P<words>.*)")
_HEADING = re.compile(r"#{1,6}\s+(.*?)\s*#*")
_RULE = re.compile(r"\s*([-*_])(\s*\1){2,}\s*")
_LINK = re.compile(r"!?\[([^\[\]\n]+)\]\(<?([^\s()<>]+)>?(?:\s+\"[^\"\n]*\")?\)")


class Span(NamedTuple):
    """Words in one style: `strong`, `em`, `s`, `code`, or none."""

    text: str
    style: str = ""


class Block(NamedTuple):
    """A `p`, `h` (heading), `item`, `quote` or `pre` (code, a table); an item has its marker and how deep it stands."""

    kind: str
    spans: list[Span]
    marker: str = ""
    depth: int = 0


def spans(text: str, *, markdown: bool = False) -> list[Span]:
    """Words with their styles. One `*` is bold in Slack, and italic in Markdown."""
    if len(text) > _MOST:
        return [Span(text)]
    return [span for span in _spans(text, "", "em" if markdown else "strong") if span.text]


def _spans(text: str, style: str, star: str) -> Iterator[Span]:
    styles, at = {"*": star, "_": "em", "**": "strong", "__": "strong", "~": "s", "~~": "s"}, 0
    for found in MARKS.finditer(text):
        yield Span(text[at : found.start()], style)
        at = found.end()
        if found["mark"]:
            yield from _spans(found["words"], styles[found["mark"]], star)
        elif found["code"] or found["block"]:
            yield Span((found["code"] or found["block"]).strip("\n"), "code")
    yield Span(text[at:], style)


def blocks(text: str, *, markdown: bool = False) -> list[Block]:
    """A text as its paragraphs; one in Markdown also with its headings, lists, quotes, code and tables."""
    if not markdown or len(text) > _MOST:
        return [Block("p", spans(text))]
    return list(_blocks(text.split("\n")))


def _blocks(lines: list[str]) -> Iterator[Block]:
    at = 0
    while at < len(lines):
        line, begin = lines[at].strip(), at
        at += 1
        if line.startswith("```"):
            while at < len(lines) and not lines[at].strip().startswith("```"):
                at += 1
            yield Block("pre", [Span("\n".join(lines[begin + 1 : at]))])
            at += 1
        elif line.startswith("|"):
            while at < len(lines) and lines[at].strip().startswith("|"):
                at += 1
            yield Block("pre", [Span("\n".join(lines[begin:at]))])
        elif not line or _RULE.fullmatch(line):
            continue
        elif heading := _HEADING.fullmatch(line):
            yield Block("h", _read(heading[1]))
        elif item := _ITEM.fullmatch(lines[begin]):
            yield Block("item", _read(item["words"]), item["marker"], min(3, len(item["indent"]) // 2))
        elif line.startswith(">"):
            yield Block("quote", _read(line.lstrip("> ")))
        else:
            while at < len(lines) and not _begins(lines[at]):
                at += 1
            yield Block("p", _read("\n".join(lines[begin:at])))


def _begins(line: str) -> bool:
    """True if a line is no part of the paragraph above it."""
    text = line.strip()
    return (
        not text
        or text.startswith(("```", "|", ">"))
        or bool(_HEADING.fullmatch(text) or _ITEM.fullmatch(line))
    )


def _read(words: str) -> list[Span]:
    return spans(_LINK.sub(r"\1 (\2)", words), markdown=True)
