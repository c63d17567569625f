"""Texts with `{{ }}`: finding the expressions in one, and escaping their values in a message. Pure.

Brackets and quotes inside an expression are followed, so it may contain `}}`. The syntax of expressions is defined here
too, without Jinja: a process that evaluates none does not load it.

No value makes a mention, a link or a picture that the author did not write. A flow's own text is markup; the value of
an expression is not the author's. In Slack's `mrkdwn` it is enough to escape three characters. A `markdown` text has no
escape that works inside code as well as outside, so there a value keeps its form (headings, lists, tables, code), and
only the active parts are broken up: `<` before a name, links and pictures, and addresses, which become code. The check
applies to the text as it will be shown: characters that are spelled out there, or become others, are converted first.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

from engine.language.codec import Json, clean_text
from engine.language.errors import ExpressionError

NO_PART = (
    "it is null, which cannot be a part of a text here; guard it with `if`, or with `default(..., true)`"
)
_LITERAL_HINT = "for literal braces write {{ '{{' }}"
_CLOSING = {"{": "}", "[": "]", "(": ")"}
_STATEMENT = re.compile(
    r"\{%-?\s*(?:if|for|set|else|elif|end\w+|macro|raw|include|import|from|block|extends|call|filter|with)\b"
)


class Segment(NamedTuple):
    """One `{{ source }}` in a text; `offset` is the start of its braces, `text` the whole with braces."""

    source: str
    offset: int
    text: str


Part: TypeAlias = str | Segment


Names: TypeAlias = tuple[str, ...]
Run: TypeAlias = Callable[[Mapping[str, Any]], Json]


class Reference(NamedTuple):
    """A name that an expression uses, with the fields behind it: `nodes.gate.decision`.

    `optional`: it is under `default` or `is defined` and may be missing.
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
    """A `{{ }}` in a text cannot be compiled. `offset` and `snippet` give the place in the text, `hint` the remedy."""

    def __init__(self, message: str, hint: str | None = None, offset: int = 0, snippet: str = "") -> None:
        self.message, self.hint, self.offset, self.snippet = message, hint, offset, snippet
        super().__init__(f"{message} ({hint})" if hint else message)


def has_expression(text: object) -> bool:
    """True if a value is text with `{{` in it."""
    return isinstance(text, str) and "{{" in text


def is_marker_key(key: str) -> bool:
    """True if a mapping with this key could be taken for a reference to a secret."""
    return key in ("$secret", "$secret_text")


def statement_offset(text: str) -> int | None:
    """Return the offset of a Jinja statement such as `{% if %}` in a text, or None."""
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
            quote = text[position]
            position += 1
            while position < len(text) and text[position] != quote:
                position += 2 if text[position] == "\\" else 1
        elif character in _CLOSING:
            expected.append(_CLOSING[character])
        elif expected and character == expected[-1]:
            expected.pop()
        elif not expected and text.startswith("}}", position):
            return position
        position += 1
    return None


def failed(source: str, why: str) -> ExpressionError:
    """The error of an expression."""
    return ExpressionError(f"`{{{{ {trimmed(source)} }}}}`: {why}")


def trimmed(text: str) -> str:
    """A text for an error: without white space around it, cut at 80 characters."""
    text = str(text).strip()
    return text if len(text) <= 80 else text[:77] + "..."


# --- markup ------------------------------------------------------------------------------------------------


_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_BEGINS_TAG = re.compile(r"<(?=[@#!?/A-Za-z])")
_ENTITY = re.compile(r"&(?=#?\w+;)")
_CODE = re.compile(r"```(?P<fence>.*?)```|`(?P<span>[^`\n]+)`", re.DOTALL)
_RUN = re.compile(r"`+|\n[ \t]*(?=\n)")
_TILDES = re.compile("~{3,}")
_ROW = re.compile(r"^(?=.*-)(?=.*\|)[ \t>|:-]+$", re.MULTILINE)
"""The line below a table's head: with one, every `|` parts cells, in code too."""
_LANGUAGE = re.compile(r"[\w+#.-]*[ \t]*\n")
_BAR = re.compile(r"\\*\|")
_ADDRESS = re.compile(r":?[\\/]{2}|:\\|www\.|mailto:|@\w|\w@|[\w-]\.[^\W\d_]{2}", re.IGNORECASE)
_WORD = re.compile(r"[^\s|]+")


def shown(text: str) -> str:
    """Return text for display: NFC without lone surrogates, with characters that would hide or reorder other text
    (control and bidi characters) spelled out. Idempotent."""
    text = clean_text(text)[0].replace("\r\n", "\n")
    return _INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and marks that look empty."""
MARKS = "*_~`>"
"""Formatting marks of `mrkdwn`, which are not shown themselves."""


def is_blank(text: str, marks: str = "") -> bool:
    """True if a text shows nothing: only white space, zero-width characters and these marks."""
    return all(
        character.isspace()
        or character in marks
        or character in _UNSEEN
        or "\ufe00" <= character <= "\ufe0f"
        or unicodedata.category(character) in ("Cf", "Zs")
        for character in text
    )


def escape_markup(text: str) -> str:
    """Escape `& < >`, so that a value contains no mention, link or channel."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def markdown_escapes(pieces: Sequence[object]) -> list[Callable[[str], str]]:
    """Return for each piece of a markdown text (literal texts, and expressions between them) the function that escapes
    its value: that depends on whether the author's text has opened code there, shares its line, or is a table."""
    escapes: list[Callable[[str], str]] = []
    texts = [piece if isinstance(piece, str) else "-" for piece in pieces]
    table = bool(_ROW.search("".join(texts)))
    for at in range(len(texts)):
        before, after = "".join(texts[:at]), "".join(texts[at + 1 :])
        opened = open_code(before)
        if opened is not None:
            escapes.append(_in_fence if opened[1].startswith("```") else _in_span)
        elif table and "|" in before.rpartition("\n")[2] + after.partition("\n")[0]:
            # A value in a table of the author's stays one cell.
            escapes.append(
                lambda text: _BAR.sub(r"\|", harmless(" ".join(text.split()), starts=False, ends=False))
            )
        else:
            starts, ends = not before or before.endswith("\n"), not after or after.startswith("\n")
            escapes.append(partial(harmless, starts=starts, ends=ends))
    return escapes


def open_code(text: str) -> tuple[int, str] | None:
    """Return the start of code that is still open at the end of a markdown text, and the backticks that would close it."""
    opened: tuple[int, str] | None = None
    for found in _RUN.finditer(text):
        run = found[0]
        if run.startswith("\n"):
            # Only a fence continues after an empty line.
            opened = opened if opened and opened[1].startswith("```") else None
        elif opened is None:
            opened = (found.start(), run)
        elif opened[1] == run:
            opened = None
    return opened


def harmless(text: str, *, starts: bool = True, ends: bool = True) -> str:
    """A value in a markdown text, outside of code. `starts`, `ends`: it is the first, or the last, on its line."""
    text = _broken(text)
    table = _ROW.search(text) is not None
    made, position = ["\n"] if starts else [], 0
    for found in _CODE.finditer(text):
        _join(made, _outside(text[position : found.start()]))
        _join(made, _code(found, table))
        position = found.end()
    _join(made, _outside(text[position:]))
    if made and made[-1].endswith("\n```") and not ends:
        made.append("\n")
    return "".join(made[1:] if starts else made)


def _broken(text: str) -> str:
    """Return the text as shown, without mentions, links or HTML, which work even inside code."""
    return _ENTITY.sub("& ", _BEGINS_TAG.sub("< ", shown(text.replace("\r\n", "\n").replace("\r", "\n"))))


def _join(made: list[str], part: str) -> None:
    """Add a part so that its marks of code are read as such: beside those of other code they would be read as one, and
    a fence of several lines only is one if it has its lines for itself."""
    if not part:
        return
    if part.startswith("```") and made:
        made[-1] = made[-1].rstrip(" \t")
    last = next((text for text in reversed(made) if text), "")
    if part.startswith("```"):
        made.append("" if last.endswith("\n") else "\n")
    elif last.endswith("\n```"):
        made.append("" if part.startswith("\n") else "\n")
    elif last.endswith("`") and part.startswith("`"):
        made.append(" ")
    made.append(part)


def _code(found: re.Match[str], table: bool) -> str:
    """Return code in a safe form: without marks inside that could end it."""
    body = found["span"] if found["fence"] is None else found["fence"].replace("`", "'")
    if "\n" in body:
        # The marks are followed by a language name or nothing: else the line could be the head of a table.
        begins = "" if _LANGUAGE.match(body) else "\n"
        return f"```{begins}{body}```" if body.endswith("\n") else f"```{begins}{body}\n```"
    if found["fence"] is not None:
        body = body.strip()
    if table:
        body = _BAR.sub(r"\\|", body)
    return f"`{body}`" if body else "''"


def _outside(text: str) -> str:
    text = text.replace("`", "'").replace("](", "] (").replace("]:", "] :")
    text = _TILDES.sub("~~", text)
    if text.endswith("\\"):
        # It would take the meaning from the mark of the code that follows.
        text += " "
    return _WORD.sub(lambda word: f"`{word[0]}`" if _ADDRESS.search(word[0]) else word[0], text)


def _in_fence(text: str) -> str:
    return _broken(text).replace("```", "'''")


def _in_span(text: str) -> str:
    return " ".join(_broken(text).replace("`", "'").split())
