"""Texts that must have a form: addresses, dates, people. Each reader gives the one spelling that is stored.

Readers raise `InvalidAnswer` with the sentence for whoever wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from urllib.parse import urlsplit

from engine.language import timestamps
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
    wrong = InvalidAnswer("Write the whole address with its beginning, such as https://example.com/page.")
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
    found = _numbers(words)
    try:
        # Years of four digits: those that all who read the date can hold.
        if found is None or found[0] < 1000:
            raise ValueError
        return date(*found).isoformat()
    except ValueError:
        raise InvalidAnswer("Write a date as year-month-day, such as 2026-11-24.") from None


def _numbers(words: str) -> tuple[int, int, int] | None:
    """Year, month and day of `2026-11-24`, `November 24th, 2026` or `24 Nov 2026`."""
    if (found := _ISO_DATE.fullmatch(words)) is not None:
        return int(found[1]), int(found[2]), int(found[3])
    if (found := _MONTH_FIRST.fullmatch(words)) is not None:
        return int(found[3]), _month(found[1]), int(found[2])
    if (found := _DAY_FIRST.fullmatch(words)) is not None:
        return int(found[3]), _month(found[2]), int(found[1])
    return None


def _month(word: str) -> int:
    """The number of a month by its name or the beginning of it; 0, which is no month, for other words."""
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
