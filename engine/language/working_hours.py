"""Working hours, clocks that count only while people are at work; moments and durations in expressions, as plain
functions over text. Pure: the current time is an argument (`now`).

Hours are a stretch of each named day, between two times on the clock of a place. If the end is not after the beginning,
the stretch ends on the next day and belongs to the day on which it began. On days with a clock change a stretch begins
when the clock first shows its beginning or later, and ends when it first shows its end or later: it may be an hour
shorter or longer than on other days, as for the people there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from engine.language import timestamps
from engine.language.codec import Json
from engine.language.timestamps import parse_duration, parse_moment

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""Names of the days of the week, in the order of `datetime.weekday()`."""

MOST_DAYS = 3660
"""Most days to look ahead for a moment: about ten years, the longest duration."""

_DAY = timedelta(days=1)
_MIDNIGHT = "24:00"


class Hours(NamedTuple):
    """A stretch of each of `days` (0 is Monday), in minutes after midnight on the clocks of `zone`."""

    days: frozenset[int]
    begin: int
    end: int
    zone: str


def known_zone(name: str) -> bool:
    """True if the IANA database has a timezone of that name."""
    try:
        _zone(name)
    except (KeyError, ValueError, OSError):  # `ZoneInfoNotFoundError` is a `KeyError`
        return False
    return True


@lru_cache(maxsize=256)
def _zone(name: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo  # most sessions know only UTC

    return ZoneInfo(name)


def minutes(text: str) -> int:
    """Minutes after midnight of `09:00`; `24:00` is the end of a day. Raises `ValueError` for anything else."""
    if text == _MIDNIGHT:
        return 24 * 60
    if len(text) != 5 or text[2] != ":" or not (text[:2] + text[3:]).isdecimal():
        raise ValueError(f"{text[:20]!r} is not a time of day: write 09:00")
    hour, minute = int(text[:2]), int(text[3:])
    if hour > 23 or minute > 59:
        raise ValueError(f"{text} is not a time of day: write 00:00 to 24:00")
    return hour * 60 + minute


def of(spec: Mapping[str, Json] | None) -> Hours | None:
    """The hours of a prompt's spec (`{days, from, to, timezone}`), or None where every hour counts."""
    if spec is None:
        return None
    days = frozenset(DAYS.index(day) for day in spec["days"])
    return Hours(days, minutes(spec["from"]), minutes(spec["to"]), spec["timezone"])


def after(start: str, seconds: float, hours: Hours | None) -> str:
    """The first moment at which so many seconds of working time have passed since `start` (stored text).

    Where that does not come within `MOST_DAYS`, the moment so many days after `start`.
    """
    if hours is None:
        return timestamps.after(start, seconds)
    begun, left = timestamps.from_text(start), timedelta(seconds=seconds)
    for opens, closes in _stretches(hours, begun):
        opens = max(opens, begun)
        room = closes - opens
        if room >= left:
            return timestamps.to_text(opens + left)
        if room > timedelta():
            left -= room
    return timestamps.to_text(begun + MOST_DAYS * _DAY)


def _stretches(hours: Hours, begun: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield the beginnings and ends of the hours in UTC, day by day, from the stretch that may contain a moment."""
    zone = _zone(hours.zone)
    # A stretch from the evening before may still continue.
    first = begun.astimezone(zone).date() - _DAY
    for number in range(MOST_DAYS + 2):
        day = first + number * _DAY
        if day.weekday() in hours.days:
            ends_on = day if hours.end > hours.begin else day + _DAY
            yield _first_shown(zone, day, hours.begin), _first_shown(zone, ends_on, hours.end)


def _first_shown(zone: ZoneInfo, day: date, minute: int) -> datetime:
    """Return the first moment at which the clocks of a place show this time of that day, or a later one."""
    wanted = datetime.combine(day, time()) + timedelta(minutes=minute)
    found = wanted.replace(tzinfo=zone).astimezone(UTC)
    if found.astimezone(zone).replace(tzinfo=None) == wanted:
        return found
    # The clock skips that time: the moment of the change lies between the two readings.
    early, late = wanted.replace(tzinfo=zone, fold=1).astimezone(UTC), found
    while late - early > timedelta(seconds=1):
        middle = early + (late - early) // 2
        if middle.astimezone(zone).replace(tzinfo=None) >= wanted:
            late = middle
        else:
            early = middle
    return late.replace(microsecond=0)


def day_begins(day: str, zone: str) -> str:
    """The first moment of a day (`2026-11-26`) on the clocks of a place. Raises `ValueError`."""
    return timestamps.to_text(_first_shown(_zone(zone), date.fromisoformat(day), 0))


# --- dates in expressions ----------------------------------------------------------------------------------


_DIRECTIVE = re.compile(r"%(.?)")
_DIRECTIVES = "aAbBdHIjmMpSuyYZ%"
MAX_FORMAT = 100


def moved(moment: str, duration: str | int | float, sign: int) -> str:
    """The moment so much later or earlier. Raises `ValueError`."""
    if isinstance(duration, bool):
        raise ValueError("a duration is text such as 2h, or a number of seconds")
    seconds = float(duration) if isinstance(duration, int | float) else parse_duration(duration)
    try:
        return timestamps.to_text(
            timestamps.from_text(parse_moment(moment)) + timedelta(seconds=sign * seconds)
        )
    except OverflowError:
        raise ValueError(f"{moment} and {duration} are outside the calendar") from None


def seconds_since(moment: str, earlier: str) -> float:
    """Seconds from an earlier moment to this one; negative the other way round. Raises `ValueError`."""
    return timestamps.seconds_between(parse_moment(earlier), parse_moment(moment))


def written(moment: str, form: str, zone: str) -> str:
    """The moment as a calendar and a clock show it. Raises `ValueError`."""
    if not known_zone(zone):
        raise ValueError(f"{zone!r} is not a time zone: write one such as Europe/Berlin or UTC")
    if len(form) > MAX_FORMAT or any(
        each not in _DIRECTIVES or not each for each in _DIRECTIVE.findall(form)
    ):
        raise ValueError(f"date supports %{', %'.join(_DIRECTIVES)}, in at most {MAX_FORMAT} characters")
    here = timestamps.from_text(parse_moment(moment)).astimezone(UTC if zone == "UTC" else _zone(zone))
    return here.strftime(form)
