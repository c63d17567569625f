"""The simulated week of metrics."""

from __future__ import annotations

import io

import pytest

from bench import week
from tests.deploy.test_watching import named, served


async def test_the_simulated_week_has_every_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks at the dashboard with it sees no empty panel; its times go forward, minute by minute."""
    monkeypatch.setattr(week, "DAYS", 2.7)
    monkeypatch.setattr(week, "EVERY", 7200)
    file = io.StringIO()
    assert await week.write(file, 1_790_000_000) > 1000
    *lines, end = file.getvalue().splitlines()
    times = [int(line.rpartition(" ")[2]) for line in lines]
    assert (end, times) == ("# EOF", sorted(times))
    assert served() <= named(file.getvalue())
