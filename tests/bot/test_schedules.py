"""When schedules fire, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot.config.library import Library
from bot.start.schedules import Schedules, following, latest_before
from engine.flow.model import Trigger
from engine.language import timestamps
from engine.language.codec import decode
from engine.storage.group_commit import Writer
from engine.storage.open import MemoryStore

FLOW = """
flow: report
triggers:
  - {schedule: "0 9 * * mon-fri", timezone: Europe/Berlin, channel: "#ops", missed: 2h}
nodes:
  - {id: tell, type: noop}
"""


class Clock:
    """A clock that freezes until it is set."""

    def __init__(self, now: str) -> None:
        self.now = now

    def __call__(self) -> str:
        return self.now


@pytest.fixture
async def writer() -> AsyncIterator[Writer]:
    """A writer over an empty store."""
    started = Writer(MemoryStore(b"0123456789abcdef"))
    started.start()
    yield started
    started.close()


async def looked(schedules: Schedules, times: Clock, writer: Writer, *moments: str) -> list[str]:
    """The times that were ingested after looking at each of these moments."""
    for moment in moments:
        times.now = moment
        await schedules.look()
    return [row.key.split(":", 3)[3] for row in await writer.call(writer.store.inbox.rows)]


def schedules(tmp_path: Path, writer: Writer, times: Clock) -> Schedules:
    """The schedules of one flow."""
    (tmp_path / "report.yml").write_text(FLOW)
    return Schedules(Library(tmp_path), writer, now=times, taken=lambda: None)


CASES = {
    "the first look fires nothing of the past": (["2026-11-23T12:00:00Z"], []),
    "a time that comes is fired once": (
        ["2026-11-23T07:59:50Z", "2026-11-23T08:00:00Z", "2026-11-23T08:00:10Z"],
        ["2026-11-23T08:00:00.000Z"],
    ),
    "a time that was missed is caught up": (
        ["2026-11-23T07:00:00Z", "2026-11-23T09:30:00Z"],
        ["2026-11-23T08:00:00.000Z"],
    ),
    "but not when it is too long ago": (["2026-11-23T07:00:00Z", "2026-11-23T10:30:00Z"], []),
    "of several that were missed only the latest": (
        ["2026-11-23T07:00:00Z", "2026-11-25T08:30:00Z"],
        ["2026-11-25T08:00:00.000Z"],
    ),
    "a clock that jumps back fires nothing twice": (
        ["2026-11-23T07:59:00Z", "2026-11-23T08:00:00Z", "2026-11-23T07:30:00Z", "2026-11-23T08:00:30Z"],
        ["2026-11-23T08:00:00.000Z"],
    ),
    "nothing on a weekend": (["2026-11-20T09:00:00Z", "2026-11-21T08:30:00Z", "2026-11-22T08:30:00Z"], []),
    "nine o'clock is another hour in summer": (
        ["2026-07-06T06:59:00Z", "2026-07-06T07:00:00Z"],
        ["2026-07-06T07:00:00.000Z"],
    ),
}


@pytest.mark.parametrize(("moments", "expected"), CASES.values(), ids=CASES.keys())
async def test_a_schedule_fires(
    tmp_path: Path, writer: Writer, moments: list[str], expected: list[str]
) -> None:
    """Each time of a schedule is ingested once, or not at all when it was missed too long ago."""
    times = Clock(moments[0])
    assert await looked(schedules(tmp_path, writer, times), times, writer, *moments) == expected


async def test_a_restart_between_ingest_and_mark_fires_nothing_twice(tmp_path: Path, writer: Writer) -> None:
    """A process that died after ingesting a time and before noting it ingests nothing more."""
    times = Clock("2026-11-23T07:59:00Z")
    first = schedules(tmp_path, writer, times)
    await first.look()
    times.now = "2026-11-23T08:00:00Z"
    real = writer.call

    async def dying(name: str, *arguments: object, **named: object) -> object:
        if name == "set_mark":
            raise RuntimeError("killed")
        return await real(name, *arguments, **named)  # type: ignore[arg-type]  # any of the port's commands

    writer.call = dying  # type: ignore[method-assign,assignment]  # the kill
    await first.look()
    writer.call = real  # type: ignore[method-assign]
    await schedules(tmp_path, writer, times).look()
    rows = await writer.call(writer.store.inbox.rows)
    assert [decode(row.payload)["flow"] for row in rows] == ["report"]


def test_an_hour_that_comes_twice_fires_once() -> None:
    """On the night on which clocks go back, a time in the doubled hour comes once; in the skipped hour, right after."""
    trigger = Trigger("schedule", "30 2 * * *", timezone="Europe/Berlin")
    moments = [f"2026-10-25T{hour:02d}:{minute:02d}:00Z" for hour in range(4) for minute in (0, 15, 30, 45)]
    fired = {timestamps.to_text(latest_before(trigger, timestamps.from_text(moment))) for moment in moments}
    assert fired == {"2026-10-24T00:30:00.000Z", "2026-10-25T00:30:00.000Z"}
    skipped = following(trigger, timestamps.from_text("2026-03-28T12:00:00Z"))
    assert timestamps.to_text(skipped) == "2026-03-29T01:00:00.000Z"
