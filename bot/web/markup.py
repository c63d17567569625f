"""Texts of people, flows and models as parts that a view writes as elements: paragraphs, lists and code, with bold and italic
words. A view escapes each part, and none becomes a link, so whatever was written stays text."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import groupby
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from prompt_state.slack_text import MARKS

_MOST = 50_000
"""Characters of a text whose marks are read; a longer one is shown as it is."""
_SLACK = {"*": "strong", "**": "strong", "_": "em", "__": "strong", "~": "s", "~~": "s"}
_MARKDOWN = {"strong_open": "strong", "em_open": "em", "s_open": "s"}


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


def spans(text: str) -> list[Span]:
    """Words of Slack's own markup with their styles."""
    if len(text) > _MOST:
        return [Span(text)]
    return [span for span in _spans(text, "") if span.text]


def _spans(text: str, style: str) -> Iterator[Span]:
    at = 0
    for found in MARKS.finditer(text):
        yield Span(text[at : found.start()], style)
        at = found.end()
        if found["mark"]:
            yield from _spans(found["words"], _SLACK[found["mark"]])
        elif found["code"] or found["block"]:
            yield Span((found["code"] or found["block"]).strip("\n"), "code")
    yield Span(text[at:], style)


def blocks(text: str, *, markdown: bool = False) -> list[Block]:
    """A text as its paragraphs; one in Markdown also with its headings, lists, quotes, code and tables."""
    if not markdown or len(text) > _MOST:
        return [Block("p", spans(text))]
    return list(_blocks(text))


@cache
def _reader() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def _blocks(text: str) -> Iterator[Block]:
    within: list[Token] = []
    for token in _reader().parse(text):
        if token.nesting == -1:
            within.pop()
        elif token.nesting == 1:
            within.append(token)
            if token.type == "table_open" and token.map:
                yield Block("pre", [Span("\n".join(text.split("\n")[slice(*token.map)]).rstrip())])
        elif token.type in ("fence", "code_block"):
            yield Block("pre", [Span(token.content.rstrip("\n"))])
        elif token.type == "inline" and not any(outer.type == "table_open" for outer in within):
            yield _block(token, within)


def _block(line: Token, within: list[Token]) -> Block:
    styled = groupby(
        filter(lambda span: span.text, _inline(line.children or [])), key=lambda span: span.style
    )
    words = [Span("".join(span.text for span in same), style) for style, same in styled]
    items = [outer for outer in within if outer.type == "list_item_open"]
    kinds = {outer.type for outer in within}
    if "heading_open" in kinds:
        return Block("h", words)
    if items and items[-1].map and line.map and items[-1].map[0] == line.map[0]:
        return Block("item", words, items[-1].info + items[-1].markup, min(3, len(items) - 1))
    return Block("quote" if "blockquote_open" in kinds else "p", words)


def _inline(tokens: list[Token]) -> Iterator[Span]:
    # Of each mark that is open: its style, and the address to show after its words.
    styles = [("", "")]
    for token in tokens:
        style, address = styles[-1]
        if token.nesting == 1:
            styles.append((_MARKDOWN.get(token.type, style), str(token.attrGet("href") or "")))
        elif token.nesting == -1:
            styles.pop()
            if address:
                yield Span(f" ({address})", style)
        elif token.type == "code_inline":
            yield Span(token.content, "code")
        elif token.type == "image":
            yield Span(f"{token.content} ({token.attrGet('src')})", style)
        else:
            yield Span("\n" if token.type in ("softbreak", "hardbreak") else token.content, style)
