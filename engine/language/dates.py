"""Moments and durations in expressions: plain functions over text. What time it is now is an argument (`now`)."""

from __future__ import annotations

import re
from datetime import UTC, timedelta
from zoneinfo import ZoneInfo

from engine.language import timestamps
from engine.language.durations import parse_duration, parse_moment
from engine.language.working_hours import known_zone

_DIRECTIVE = re.compile(r"%(.?)")
_DIRECTIVES = "aAbBdHIjmMpSuyYZ%"
MAX_FORMAT = 100


def moved(moment: str, duration: str | int | float, sign: int) -> str:
    """The moment so much later or earlier. Raises `ValueError`."""
    seconds = float(duration) if isinstance(duration, int | float) else parse_duration(duration)
    try:
        return timestamps.to_text(
            timestamps.from_text(parse_moment(moment)) + timedelta(seconds=sign * seconds)
        )
    except OverflowError:
        raise ValueError(f"{moment} and {duration} lead beyond the calendar") from None


def seconds_since(moment: str, earlier: str) -> float:
    """Seconds from an earlier moment to this one; negative the other way round. Raises `ValueError`."""
    return timestamps.seconds_between(parse_moment(earlier), parse_moment(moment))


def written(moment: str, form: str, zone: str) -> str:
    """The moment as a calendar and a clock show it. Raises `ValueError`."""
    if not known_zone(zone):
        raise ValueError(f"{zone!r} is no timezone: write one such as Europe/Berlin or UTC")
    if len(form) > MAX_FORMAT or any(
        each not in _DIRECTIVES or not each for each in _DIRECTIVE.findall(form)
    ):
        raise ValueError(f"date knows %{', %'.join(_DIRECTIVES)}, in at most {MAX_FORMAT} characters")
    here = timestamps.from_text(parse_moment(moment)).astimezone(UTC if zone == "UTC" else ZoneInfo(zone))
    return here.strftime(form)
