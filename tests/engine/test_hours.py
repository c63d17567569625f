"""Working hours, against a model that walks through time minute by minute."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.language import timestamps, working_hours
from engine.language.working_hours import DAYS, Hours
from tests.support.proving import tries

MINUTE = timedelta(minutes=1)
OFFICE = {"days": ["mon", "tue", "wed", "thu", "fri"], "from": "09:00", "to": "17:00"}
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia")


def office(zone: str = "Europe/Berlin", **more: object) -> Hours:
    """The hours of an office, Monday to Friday from nine to five."""
    found = working_hours.of({**OFFICE, "timezone": zone, **more})
    assert found is not None
    return found


def model(start: datetime, minutes: int, given_hours: Hours) -> datetime:
    """The same by walking: a stretch opens once the local clock has shown its beginning and closes once it has shown
    its end."""
    zone = ZoneInfo(given_hours.zone)
    walk = start - timedelta(days=2)
    opened: set[date] = set()
    closed: set[date] = set()
    left = minutes
    while True:
        local = walk.astimezone(zone).replace(tzinfo=None)
        for back in range(3):
            day = local.date() - timedelta(days=back)
            begins = datetime.combine(day, datetime.min.time()) + given_hours.begin * MINUTE
            ends = datetime.combine(day, datetime.min.time()) + given_hours.end * MINUTE
            if given_hours.end <= given_hours.begin:
                ends += timedelta(days=1)
            if day.weekday() in given_hours.days and local >= begins:
                opened.add(day)
            if local >= ends:
                closed.add(day)
        if walk >= start:
            if left == 0:
                return walk
            left -= bool(opened - closed)
        walk += MINUTE


@settings(max_examples=tries(30))
@given(
    zone=st.sampled_from(ZONES),
    days=st.sets(st.integers(0, 6), min_size=4),
    begin=st.integers(0, 23 * 60 + 59),
    length=st.integers(120, 23 * 60),
    # Around the nights in which clocks are put forward and back, on both halves of the Earth.
    day=st.sampled_from(
        [date(2026, 3, 8), date(2026, 3, 29), date(2026, 4, 5), date(2026, 10, 4), date(2026, 10, 25)]
    ),
    offset=st.integers(-2 * 1440, 720),
    minutes=st.integers(1, 700),
)
def test_time_counts_as_in_a_walk_minute_by_minute(
    zone: str, days: set[int], begin: int, length: int, day: date, offset: int, minutes: int
) -> None:
    """Working time ends at the very minute at which somebody who counts each open minute would stop."""
    given_hours = Hours(frozenset(days), begin, (begin + length) % 1440 or 1440, zone)
    start = datetime(day.year, day.month, day.day, tzinfo=UTC) + offset * MINUTE
    expected = model(start, minutes, given_hours)
    assert working_hours.after(timestamps.to_text(start), minutes * 60, given_hours) == timestamps.to_text(
        expected
    )


@settings(max_examples=tries(100))
@given(
    zone=st.sampled_from(ZONES),
    start=st.integers(1_577_836_800, 1_893_456_000),
    first=st.integers(1, 500_000),
    second=st.integers(1, 500_000),
)
def test_two_waits_one_after_the_other_are_as_long_as_both(
    zone: str, start: int, first: int, second: int
) -> None:
    """Working time adds up, and never runs backwards."""
    begun = timestamps.to_text(datetime.fromtimestamp(start, UTC))
    middle = working_hours.after(begun, first, office(zone))
    assert begun < middle < working_hours.after(middle, second, office(zone))
    assert working_hours.after(middle, second, office(zone)) == working_hours.after(
        begun, first + second, office(zone)
    )


def test_without_hours_every_second_counts() -> None:
    """A prompt without `hours` has plain clocks."""
    assert working_hours.of(None) is None
    assert working_hours.after("2026-11-20T22:00:00.000Z", 90, None) == "2026-11-20T22:01:30.000Z"


def test_an_evening_waits_for_the_next_morning_and_friday_for_monday() -> None:
    """An hour from Friday at half past four ends on Monday at half past nine."""
    assert working_hours.after("2026-11-20T15:30:00.000Z", 3600, office()) == "2026-11-23T08:30:00.000Z"


def test_a_day_of_work_ends_with_the_day() -> None:
    """Eight hours from the opening end at the closing, not at the next opening."""
    assert working_hours.after("2026-11-20T08:00:00.000Z", 8 * 3600, office()) == "2026-11-20T16:00:00.000Z"


def test_a_night_shift_belongs_to_the_day_on_which_it_began() -> None:
    """Hours that end before they begin continue into the next day, also where that one is not named."""
    nights = office("UTC", days=["fri"], **{"from": "22:00", "to": "06:00"})
    assert working_hours.after("2026-11-21T05:00:00.000Z", 3600, nights) == "2026-11-21T06:00:00.000Z"
    assert working_hours.after("2026-11-21T05:00:00.000Z", 3601, nights) == "2026-11-27T22:00:01.000Z"


def test_what_never_comes_within_ten_years_comes_then() -> None:
    """A wait that the hours hardly ever let continue has an end all the same."""
    minute_a_week = office("UTC", days=["mon"], **{"from": "09:00", "to": "09:01"})
    assert (
        working_hours.after("2026-11-20T00:00:00.000Z", 10 * 86400, minute_a_week)
        == "2036-11-27T00:00:00.000Z"
    )


@pytest.mark.parametrize("text", ["9:00", "25:00", "09:60", "09.00", "", "²4:00", "24:01"])
def test_a_time_of_day_is_written_with_four_digits(text: str) -> None:
    """Anything but `HH:MM` is refused, with what would be right."""
    with pytest.raises(ValueError, match="time of day"):
        working_hours.minutes(text)


def test_a_timezone_must_be_known() -> None:
    """Names of the IANA database are known, and nothing that leads out of it."""
    assert working_hours.known_zone("Europe/Berlin")
    assert not any(
        map(working_hours.known_zone, ("Europe/Nowhere", "../passwd", "/etc/passwd", "", "CEST summer"))
    )


def test_days_stand_in_the_order_of_the_week() -> None:
    """Monday is the first day."""
    assert DAYS[date(2026, 11, 23).weekday()] == "mon"


@pytest.mark.parametrize(
    ("zone", "day", "begins"),
    [
        ("UTC", "2026-11-27", "2026-11-27T00:00:00.000Z"),
        ("Asia/Kolkata", "2026-11-27", "2026-11-26T18:30:00.000Z"),
        ("Asia/Kathmandu", "2026-11-27", "2026-11-26T18:15:00.000Z"),
        ("Pacific/Kiritimati", "2026-11-27", "2026-11-26T10:00:00.000Z"),
        ("Etc/GMT+12", "2026-11-27", "2026-11-27T12:00:00.000Z"),
        ("America/Santiago", "2026-09-06", "2026-09-06T04:00:00.000Z"),
    ],
)
def test_a_day_begins_with_its_first_moment_wherever_that_is(zone: str, day: str, begins: str) -> None:
    """Also where clocks are half an hour off, and on the day on which they skip midnight."""
    assert working_hours.day_begins(day, zone) == begins
