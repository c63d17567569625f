"""Text formats (addresses, dates, people), and patterns with bounded matching time.

Each reader returns the one spelling that is stored, and raises `InvalidAnswer` with a sentence for the person who wrote
it.

A pattern is a regular expression. One that could take forever on some text is refused with the flow, since matching of
typed text has no time limit. The cost is unbounded for a repeat inside a repeat (`(a+)+`), or alternatives inside one
(`(a|aa)+`), where the same text can be split in many ways. A repeat inside a repeat is sound if each round begins or
ends with a character that the inner repeat cannot take: `(-[a-z]+)*`.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from typing import Any
from urllib.parse import urlsplit

from engine.language import timestamps
from engine.language.codec import Json
from engine.language.diagnostics import kind_of
from engine.language.errors import InvalidAnswer

FORMATS = ("email", "uri", "date", "date-time", "user", "channel")

_EMAIL = re.compile(r"[^\s@<>,;:\"()\[\]\\]{1,64}@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.)+[^\W\d_]{2,63}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,40}:", re.ASCII)
_UNFIT_IN_URI = re.compile(r"[\s\x00-\x1f\x7f<>\"{}|\\^`]")
_USER = re.compile(r"(?:<@)?([UW][A-Z0-9]{2,30})(?:\|[^<>|]*)?>?", re.ASCII)
_CHANNEL = re.compile(r"(?:<#)?([CGD][A-Z0-9]{2,30})(?:\|[^<>|]*)?>?", re.ASCII)
_ISO_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
_MONTH_FIRST = re.compile(r"([A-Za-z]{3,9})\.? (\d{1,2})(?:st|nd|rd|th)?,? (\d{4})", re.ASCII)
_DAY_FIRST = re.compile(r"(\d{1,2})(?:st|nd|rd|th|\.)? ([A-Za-z]{3,9})\.?,? (\d{4})", re.ASCII)
_MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_YEARS = range(2002, 2286)
"""Years of a date-time: those that Slack's control can hold."""


def read_format(kind: str, text: str) -> str:
    """A text in the spelling of its format. Raises `InvalidAnswer`."""
    return _READERS[kind](text.strip())


def _email(text: str) -> str:
    if len(text) > 254 or not _EMAIL.fullmatch(text):
        raise InvalidAnswer("Write an e-mail address, such as ana@example.com.")
    return text


def _uri(text: str) -> str:
    wrong = InvalidAnswer("Write the full address, such as https://example.com/page.")
    if not _SCHEME.match(text) or _UNFIT_IN_URI.search(text):
        raise wrong
    try:
        parts = urlsplit(text)
        has_place = bool(parts.netloc if parts.scheme in ("http", "https") else parts.netloc or parts.path)
    except ValueError:
        raise wrong from None
    if not has_place:
        raise wrong
    return text


def _date(text: str) -> str:
    words = " ".join(text.split())
    found: tuple[int, int, int] | None = None
    if (matched := _ISO_DATE.fullmatch(words)) is not None:
        found = int(matched[1]), int(matched[2]), int(matched[3])
    elif (matched := _MONTH_FIRST.fullmatch(words)) is not None:
        found = int(matched[3]), _month(matched[1]), int(matched[2])
    elif (matched := _DAY_FIRST.fullmatch(words)) is not None:
        found = int(matched[3]), _month(matched[2]), int(matched[1])
    try:
        # Years of four digits, which every reader of the date can represent.
        if found is None or found[0] < 1000:
            raise ValueError
        return date(*found).isoformat()
    except ValueError:
        raise InvalidAnswer("Write a date as year-month-day, such as 2026-11-24.") from None


def _month(word: str) -> int:
    """Return the number of a month by its name or the beginning of its name; 0 for other words."""
    for number, name in enumerate(_MONTHS, 1):
        if name.startswith(word.lower()):
            return number
    return 0


def _date_time(text: str) -> str:
    written = re.sub(r" ?UTC$", "Z", text)
    try:
        moment = datetime.fromisoformat(written)
        if moment.tzinfo is None:
            raise InvalidAnswer(
                "Write the time with its offset, such as 2026-11-24T15:00:00Z for UTC or 2026-11-24T16:00:00+01:00."
            )
        stored = timestamps.to_text(moment)
    except (ValueError, OverflowError):
        raise InvalidAnswer("Write date and time with an offset, such as 2026-11-24T15:00:00Z.") from None
    if int(stored[:4]) not in _YEARS:
        raise InvalidAnswer(f"Write a time of the years {_YEARS.start} to {_YEARS.stop - 1}.")
    return stored


def _user(text: str) -> str:
    found = _USER.fullmatch(text)
    if found is None:
        raise InvalidAnswer("Choose a person, or write a mention or a user id such as U012ABCDEF.")
    return found[1]


def _channel(text: str) -> str:
    found = _CHANNEL.fullmatch(text)
    if found is None:
        raise InvalidAnswer("Choose a channel, or write its id such as C012ABCDEF.")
    return found[1]


_READERS: Mapping[str, Callable[[str], str]] = {
    "email": _email,
    "uri": _uri,
    "date": _date,
    "date-time": _date_time,
    "user": _user,
    "channel": _channel,
}


# --- patterns ----------------------------------------------------------------------------------------------


MOST_PATTERN = 500

_parser: Any = importlib.import_module("re._parser")
"""Python's own parser of patterns. It is undocumented, so unknown results are treated as unsound."""
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT")
_MANY = 10
"""Rounds of a repeat that are cheap, however they are split."""


def pattern_problem(pattern: Json) -> str | None:
    """Return why a text cannot be a field's pattern, or None if it can."""
    if not isinstance(pattern, str) or not pattern:
        return f"expected a regular expression, not {kind_of(pattern)}"
    if len(pattern) > MOST_PATTERN:
        return f"a pattern has at most {MOST_PATTERN} characters"
    try:
        re.compile(pattern)
        tree = _parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"not a regular expression: {error}"
    if any(_splits(inner) for most, inner in _repeats(tree) if most > _MANY):
        return "this pattern could run forever on some input: it repeats a group that already repeats"
    return None


def lengths(kind: Json, pattern: str | None) -> tuple[int, float]:
    """Return the minimum and maximum length of a text of this format that matches this pattern, as far as known."""
    least, most = _LENGTHS.get(str(kind), (0, math.inf))
    if pattern is None:
        return least, most
    tree = _parser.parse(pattern)
    low, high = tree.getwidth()
    ends = [(str(operator), str(argument)) for operator, argument in (*tree[:1], *tree[-1:])]
    is_whole = [operator for operator, _ in ends] == ["AT", "AT"] and ends[0][1].startswith("AT_BEGINNING")
    if not is_whole or not ends[1][1].startswith("AT_END") or tree.state.flags & re.MULTILINE:
        high = math.inf
    # `$` lets a line end follow.
    return max(least, low), min(most, high + 1)


_LENGTHS = {
    "email": (3, 254),
    "uri": (3, math.inf),
    "date": (10, 10),
    "date-time": (24, 24),
    "user": (3, math.inf),
}


def _repeats(tree: Any) -> Iterator[tuple[int, Any]]:
    """Yield every repeat in a pattern, with its maximum number of rounds."""
    for operator, argument in tree:
        if str(operator) in _REPEATS:
            yield int(argument[1]), argument[2]
        for part in _parts(argument):
            yield from _repeats(part)


def _parts(argument: Any) -> Iterator[Any]:
    """The patterns inside an operator's argument."""
    if isinstance(argument, _parser.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        for part in argument:
            yield from _parts(part)


def _flat(tree: Any) -> list[tuple[str, Any]]:
    """A sequence with its plain groups opened."""
    found: list[tuple[str, Any]] = []
    for operator, argument in tree:
        if str(operator) == "SUBPATTERN":
            found += _flat(argument[-1])
        else:
            found.append((str(operator), argument))
    return found


def _splits(tree: Any) -> bool:
    """True if rounds of this can split one text in many ways."""
    sequence = _flat(tree)
    if any(operator in ("BRANCH", "GROUPREF", "GROUPREF_EXISTS") for operator, _ in sequence):
        return True
    inner = [
        argument for operator, argument in sequence if operator in _REPEATS and argument[0] != argument[1]
    ]
    if not inner:
        return False
    taken = [part for argument in inner for part in _flat(argument[2])]
    if any(operator not in ("LITERAL", "IN", "NOT_LITERAL", "ANY") for operator, _ in taken):
        return True
    ends = [sequence[0], sequence[-1]]
    fixed = [chr(argument) for operator, argument in ends if operator == "LITERAL"]
    return not any(not any(_one(*part, char) for part in taken) for char in fixed)


def _one(operator: str, argument: Any, char: str) -> bool:
    if operator == "LITERAL":
        return chr(argument) == char
    if operator == "NOT_LITERAL":
        return chr(argument) != char
    if operator == "ANY":
        return True
    negated = any(str(kind) == "NEGATE" for kind, _ in argument)
    return negated != any(_member(str(kind), value, char) for kind, value in argument)


def _member(kind: str, value: Any, char: str) -> bool:
    if kind == "LITERAL":
        return chr(value) == char
    if kind == "RANGE":
        return bool(value[0] <= ord(char) <= value[1])
    if kind == "CATEGORY":
        name = str(value)
        sign = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}.get(name.rsplit("_", 1)[-1], ".")
        return bool(re.fullmatch(sign, char)) != ("NOT" in name)
    return False
