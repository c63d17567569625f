"""Times as they are stored: UTC ISO-8601 text with milliseconds, which sorts as it compares. Now is an argument."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def to_text(moment: datetime) -> str:
    """`2026-11-21T22:40:00.000Z` for a moment with a timezone."""
    utc = moment.astimezone(UTC).replace(tzinfo=None)
    return f"{utc.isoformat(timespec='milliseconds')}Z"


def from_text(text: str) -> datetime:
    """The moment of such a text (any ISO-8601 text with an offset is taken). Raises `ValueError`."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no timezone; write it with an offset, for example {text}Z")
    return moment.astimezone(UTC)


def told(text: str | None) -> str:
    """A stored time in a sentence for people, to the minute: `2026-11-21 22:40 UTC`."""
    if text is None:
        return "an earlier time"
    return f"{text[:10]} {text[11:16]} UTC"


def after(text: str, seconds: float) -> str:
    """The time so many seconds after another."""
    return to_text(from_text(text) + timedelta(seconds=seconds))


def seconds_between(earlier: str, later: str) -> float:
    """How many seconds lie between two times; negative when they stand the other way round."""
    return (from_text(later) - from_text(earlier)).total_seconds()
