"""Finds the `{{ }}` in a text. Brackets and quotes inside an expression are followed, so `}}` may stand in them.

What an expression is stands here too, without Jinja: a process that evaluates none does not load it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from engine.language.codec import Json
from engine.language.errors import ExpressionError

_LITERAL_HINT = "for braces that are plain text write {{ '{{' }}"
_CLOSING = {"{": "}", "[": "]", "(": ")"}
_STATEMENT = re.compile(
    r"\{%-?\s*(?:if|for|set|else|elif|end\w+|macro|raw|include|import|from|block|extends|call|filter|with)\b"
)


class Segment(NamedTuple):
    """One `{{ source }}` in a text; `offset` is where its braces begin, `text` the whole of it."""

    source: str
    offset: int
    text: str


Part: TypeAlias = str | Segment


Names: TypeAlias = tuple[str, ...]
Run: TypeAlias = Callable[[Mapping[str, Any]], Json]


class Reference(NamedTuple):
    """A name that an expression uses, with the fields behind it: `nodes.gate.decision`.

    `optional`: it stands under `default` or `is defined` and may be missing.
    """

    path: Names
    optional: bool = False


class Expression(NamedTuple):
    """A compiled expression. `run` evaluates it, `secret` is the name when it is a reference to a secret."""

    source: str
    run: Run
    references: tuple[Reference, ...]
    secret: str | None


class BadExpression(ExpressionError):
    """A text whose `{{ }}` cannot be compiled. `offset` and `snippet` are where in the text, `hint` what to do."""

    def __init__(self, message: str, hint: str | None = None, offset: int = 0, snippet: str = "") -> None:
        self.message, self.hint, self.offset, self.snippet = message, hint, offset, snippet
        super().__init__(f"{message} ({hint})" if hint else message)


def has_expression(text: object) -> bool:
    """Whether a value is text with `{{` in it."""
    return isinstance(text, str) and "{{" in text


def is_marker_key(key: str) -> bool:
    """Whether a mapping with this key could be taken for a reference to a secret."""
    return key in ("$secret", "$secret_text")


def statement_offset(text: str) -> int | None:
    """Where a Jinja statement such as `{% if %}` begins in a text, if one does."""
    match = _STATEMENT.search(text)
    return match.start() if match and "%}" in text[match.start() :] else None


def split_text(text: str) -> list[Part]:
    """The literal parts and expressions of a text, in order. Raises `BadExpression` for a `{{` without end."""
    return list(_parts(text))


@lru_cache(maxsize=4096)
def _parts(text: str) -> tuple[Part, ...]:
    parts: list[Part] = []
    position = 0
    while (start := text.find("{{", position)) >= 0:
        if start > position:
            parts.append(text[position:start])
        end = _end_of_expression(text, start + 2)
        if end is None:
            raise BadExpression("`{{` is never closed with `}}`", _LITERAL_HINT, start, "{{")
        parts.append(Segment(text[start + 2 : end], start, text[start : end + 2]))
        position = end + 2
    if position < len(text):
        parts.append(text[position:])
    return tuple(parts)


def _end_of_expression(text: str, position: int) -> int | None:
    """The offset of the `}}` that closes the expression which begins here."""
    expected: list[str] = []
    while position < len(text):
        character = text[position]
        if character in "'\"":
            position = _end_of_quote(text, position)
        elif character in _CLOSING:
            expected.append(_CLOSING[character])
        elif expected and character == expected[-1]:
            expected.pop()
        elif not expected and text.startswith("}}", position):
            return position
        position += 1
    return None


def _end_of_quote(text: str, position: int) -> int:
    """The offset of the closing quote, or of the end of the text."""
    quote = text[position]
    position += 1
    while position < len(text) and text[position] != quote:
        position += 2 if text[position] == "\\" else 1
    return position


def failed(source: str, why: str) -> ExpressionError:
    """The error of an expression."""
    return ExpressionError(f"`{{{{ {trimmed(source)} }}}}`: {why}")


def trimmed(text: str) -> str:
    """A text for an error: without white space around it, cut at 80 characters."""
    text = str(text).strip()
    return text if len(text) <= 80 else text[:77] + "..."
