"""Times in their stored form; durations (`1h30m`), sizes (`64KiB`) and moments (`2026-11-21T22:40:00Z`) as people write
them. The current time is an argument.

A stored time is UTC ISO-8601 text with milliseconds, which sorts chronologically. Inside the engine a duration is a
number of seconds, a size a number of bytes, and a moment such a text. Every error is a `ValueError` whose text has an
example.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal


def to_text(moment: datetime) -> str:
    """`2026-11-21T22:40:00.000Z` for a moment with a timezone."""
    utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return utc.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def from_text(text: str) -> datetime:
    """The moment of such a text (any ISO-8601 text with an offset is taken). Raises `ValueError`."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no timezone; write it with an offset, for example {text}Z")
    return moment.astimezone(UTC)


def clock(seconds: Callable[[], float]) -> Callable[[], str]:
    """Return a clock of stored times, based on one that gives seconds since 1970."""
    return lambda: to_text(datetime.fromtimestamp(seconds(), UTC))


def told(text: str | None) -> str:
    """A stored time in a sentence for people, to the minute: `2026-11-21 22:40 UTC`."""
    if text is None:
        return "an earlier time"
    return f"{text[:10]} {text[11:16]} UTC"


def after(text: str, seconds: float) -> str:
    """The time so many seconds after another."""
    return to_text(from_text(text) + timedelta(seconds=seconds))


def seconds_between(earlier: str, later: str) -> float:
    """Return the seconds from one time to another; negative if they are in reverse order."""
    return (from_text(later) - from_text(earlier)).total_seconds()


# --- durations, sizes, moments -----------------------------------------------------------------------------


DURATION_UNITS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
"""Milliseconds of each unit, in the order in which they are written."""

SIZE_UNITS = {"B": 1, "kB": 10**3, "KiB": 2**10, "MB": 10**6, "MiB": 2**20, "GB": 10**9, "GiB": 2**30}
"""Bytes of each unit: powers of ten without the i, powers of two with it."""

MAX_DURATION = 10 * 366 * 86400
"""Ten years, in seconds: longer ones are mistakes, and far dates do not fit every calendar."""

DURATION_PATTERN = r"^(\d+w)?(\d+d)?(\d+h)?(\d+m)?(\d+(\.\d+)?s)?(\d+ms)?$"
SIZE_PATTERN = r"^\d+ ?(B|kB|KiB|MB|MiB|GB|GiB)$"

_DURATION = re.compile(
    r"(?:(?P<w>\d+)w)?(?:(?P<d>\d+)d)?(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m)?"
    r"(?:(?P<s>\d+(?:\.\d+)?)s)?(?:(?P<ms>\d+)ms)?",
    re.ASCII,
)
_SIZE = re.compile(r"(\d+) ?([A-Za-z]+)", re.ASCII)


def parse_duration(text: str) -> float:
    """Seconds of `30m`, `1h30m`, `90s`, `2d`, `1w`, `250ms`; the largest unit is first.

    Raises `ValueError` for a number without a unit, another unit or order, or more than ten years.
    """
    match = _DURATION.fullmatch(text) if text else None
    if match is None or len(text) > 40:
        if re.fullmatch(r"\d{1,9}", text, re.ASCII):
            raise ValueError(f"{text} has no unit: write {text}s, {text}m, {text}h or {text}d")
        shown = text if len(text) <= 40 else text[:40] + "..."
        raise ValueError(f"{shown!r} is not a duration: write 90s, 30m, 1h30m, 2d or 1w")
    parts = [Decimal(number) * DURATION_UNITS[unit] for unit, number in match.groupdict().items() if number]
    seconds = float(sum(parts) / 1000)
    if seconds > MAX_DURATION:
        raise ValueError(f"{text} is more than ten years")
    return seconds


def format_duration(seconds: float) -> str:
    """The shortest text that `parse_duration` reads back as these seconds, to the millisecond."""
    left = round(seconds * 1000)
    if left < 0:
        raise ValueError(f"a duration cannot be negative ({seconds} s)")
    parts: list[str] = []
    for unit, size in list(DURATION_UNITS.items())[1:]:  # 30d says more than 4w2d
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def parse_size(text: str) -> int:
    """Bytes of `64KiB`, `10MB`, `512 B`. Raises `ValueError` for anything else."""
    match = _SIZE.fullmatch(text) if len(text) <= 20 else None
    if match is None or match[2] not in SIZE_UNITS:
        raise ValueError(f"{text[:40]!r} is not a size: write 64KiB, 1MiB or 10MB")
    return int(match[1]) * SIZE_UNITS[match[2]]


def format_size(size: int) -> str:
    """Bytes as text with the largest binary unit that divides them: 262144 → `256KiB`, 1000 → `1000B`."""
    for unit in ("GiB", "MiB", "KiB"):
        if size and size % SIZE_UNITS[unit] == 0:
            return f"{size // SIZE_UNITS[unit]}{unit}"
    return f"{size}B"


def parse_moment(text: str) -> str:
    """A moment in UTC (`2026-11-21T22:40:00.000Z`) from ISO-8601 text with an offset.

    Raises `ValueError` when the offset is missing: the same text would mean another moment on another machine.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a moment: write 2026-11-21T22:40:00Z") from None
    if moment.tzinfo is None:
        exact = text if "T" in text else f"{text[:10]}T09:00:00"
        raise ValueError(f"{text} has no offset: write {exact}Z for UTC, or add an offset such as +01:00")
    if not 1970 < moment.year < 9999:
        raise ValueError(f"{text} is not a year that a flow can wait for")
    return to_text(moment)
