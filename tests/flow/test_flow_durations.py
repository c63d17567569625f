"""Durations, sizes and moments as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.language.timestamps import (
    MAX_DURATION,
    format_duration,
    format_size,
    parse_duration,
    parse_moment,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30m", 1800), ("1h30m", 5400), ("90s", 90), ("2d", 172800), ("1w", 604800), ("250ms", 0.25), ("1.5s", 1.5),
     ("1w2d3h4m5s6ms", 788645.006), ("0s", 0), ("90m", 5400)],
)  # fmt: skip
def test_a_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    """Units add up, the largest first."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "30",
        "m",
        "30 m",
        "1h 30m",
        "30m1h",
        "-5m",
        "1.5h",
        "5min",
        "５m",
        "1e3s",
        "inf",
        "11000d",
        "9" * 60 + "s",
    ],
)
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    """The error shows how a duration is written, or that it is too long."""
    with pytest.raises(ValueError, match=r"30m|ten years"):
        parse_duration(text)


@given(st.integers(0, MAX_DURATION * 1000))
def test_a_duration_survives_being_written(milliseconds: int) -> None:
    """What is formatted is read back to the millisecond."""
    assert round(parse_duration(format_duration(milliseconds / 1000)) * 1000) == milliseconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (1800, "30m"), (5400, "1h30m"), (2592000, "30d"), (0.25, "250ms"), (90, "1m30s")],
)
def test_a_duration_is_written_in_the_largest_units(seconds: float, text: str) -> None:
    """Days, hours, minutes and seconds, without those that are zero."""
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [("64KiB", 65536), ("1MiB", 2**20), ("10MB", 10_000_000), ("5kB", 5000), ("512 B", 512), ("2GiB", 2**31)],
)
def test_a_size_is_read_in_bytes(text: str, size: int) -> None:
    """Units with an i count in 1024."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "64", "64K", "64kib", "1.5MiB", "-1B", "lots", "9" * 30 + "B"])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    """The error shows how a size is written."""
    with pytest.raises(ValueError, match="64KiB"):
        parse_size(text)


@given(st.integers(0, 2**40))
def test_a_size_survives_being_written(size: int) -> None:
    """What is formatted is read back as the same bytes."""
    assert parse_size(format_size(size)) == size


@pytest.mark.parametrize(
    ("text", "moment"),
    [("2026-11-21T22:40:00Z", "2026-11-21T22:40:00.000Z"), ("2026-11-21T23:40:00+01:00", "2026-11-21T22:40:00.000Z"),
     ("2026-11-21T22:40:00.1239Z", "2026-11-21T22:40:00.123Z")],
)  # fmt: skip
def test_a_moment_is_stored_in_utc(text: str, moment: str) -> None:
    """An offset is taken into account; milliseconds are cut."""
    assert parse_moment(text) == moment


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "2026-11-21T22:40:00",
        "2026-11-21",
        "2026-13-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
    ],
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    """Without an offset the same text would mean another moment elsewhere."""
    with pytest.raises(ValueError, match=r"moment|offset|year"):
        parse_moment(text)
