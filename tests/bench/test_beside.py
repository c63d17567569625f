"""The table of sayso beside others: what its workloads do is done, and ratios say who is ahead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench import beside
from bench.beside import Compared, Work


def test_a_killed_run_is_recovered_where_it_was_cut(tmp_path: Path) -> None:
    """The process is killed inside step 150 of 200, and the next one runs the last 50 only."""
    work = Work("sayso", tmp_path, 1, Compared())
    assert work("killed", killed=True) == {}
    told = work("recover")
    assert (told["done"], told["again"]) == (50, 0)
    assert told["began"] > told["imported"] > told["spawned"]


@pytest.fixture(autouse=True)
def _half_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.5, 0.5, 0.5))


def test_ratios_say_how_much_more_it_costs_whichever_way_is_better() -> None:
    """Half as many steps a second and twice as many milliseconds are both 2.00; the best of the others is the fastest. How
    busy the machine was is beside it."""
    compared = Compared()
    for engine, rate, taken in (("floor", 4000, 1), ("sayso", 1000, 4), ("burr", 2000, 2), ("dbos", 500, 9)):
        compared.add("durable steps", engine, rate)
        compared.add("a run with one pause, warm", engine, taken)
    by_name = {row[0]: row for row in beside.rows(compared)}
    assert by_name["durable steps, steps/s"][6:] == ["4.00", "2.00", "0.5"]
    assert by_name["a run with one pause, warm, ms"][6:] == ["4.00", "2.00", "0.5"]


def test_what_an_engine_lacks_is_an_empty_cell() -> None:
    """No engine that is not installed is shown with a figure."""
    compared = Compared()
    compared.add("durable steps", "sayso", 1000)
    assert beside.rows(compared)[1] == [
        "durable steps, steps/s",
        "–",
        "1,000",
        "–",
        "–",
        "–",
        "",
        "",
        "0.5",
    ]
