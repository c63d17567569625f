"""Thousands of runs of a fleet in which workers die, freeze and are cut off, and nothing is lost, doubled or wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.fleet.mutants import SEEN_AT, Mutant
from tests.simulation.fleet.run import AT_ONCE, FleetGround, ground, run, run_block, trace_of
from tests.simulation.fleet.weather import FleetWeather
from tests.simulation.run import crowd
from tests.support.proving import FIRST, PROVE_ALL

SEEDS = 20
MANY = 10_000 if PROVE_ALL else 2_000
MOST_SEEDS = 200
"""Within so many runs a seeded fault must be found."""
_TRACE = "from tests.simulation.fleet.run import trace_of; print(trace_of(int(__import__('sys').argv[1])))"
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def land() -> Iterator[FleetGround]:
    """What the runs in this process share."""
    with ground() as made:
        yield made


def _counted(found: tuple[Counter[str], dict[int, list[str]]], hit: Counter[str]) -> None:
    tried, problems = found
    hit.update({f"fleet: {name}": count for name, count in tried.items()})
    if problems:
        lines = [f"seed {seed}: {line}" for seed, lines in problems.items() for line in lines]
        replay = f"replay: python -m tests.simulation.fleet.run {next(iter(problems))} 1"
        pytest.fail("\n".join([*lines, replay]))


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_whatever_becomes_of_its_workers_a_fleet_loses_and_doubles_nothing(
    hit: Counter[str], first: int
) -> None:
    """Each row is handled once, in its order, by whoever holds the lease; each question is answered once."""
    _counted(run_block(first, 10), hit)


@pytest.mark.parametrize("seed", [354, 537])
def test_a_run_that_once_went_wrong_goes_well(land: FleetGround, seed: int) -> None:
    """A zombie posts nothing that others have posted; an outcome that a shutdown leaves behind disturbs nobody."""
    assert run(land, seed).problems == []


@pytest.mark.timeout(7200)
@pytest.mark.long
def test_thousands_of_runs_of_a_fleet(hit: Counter[str]) -> None:
    """The same for thousands of seeds, others each day."""
    with crowd() as workers:
        rows = range(FIRST + SEEDS, FIRST + MANY, AT_ONCE)
        for found in workers.map(run_block, rows, [AT_ONCE] * len(rows)):
            _counted(found, hit)


def test_a_run_of_a_fleet_replays_exactly() -> None:
    """Another process with another hash seed gives the same run of one seed, byte for byte."""
    other = subprocess.run(
        [sys.executable, "-c", _TRACE, "7"],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
    )
    trace = trace_of(7)
    assert other.stdout.decode() == trace + "\n"
    assert trace.count("\n") > 20


@pytest.mark.parametrize("fault", SEEN_AT, ids=lambda fault: fault.__name__)
def test_a_seeded_fault_of_a_fleet_is_found_and_one_worker_does_not_show_it(
    fault: Mutant, land: FleetGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulation fails with the seeded fault; a single undisturbed worker does not."""
    fault(monkeypatch)
    assert run(land, 0, weather=FleetWeather(workers=1)).problems == []
    for seed in (SEEN_AT[fault], *range(MOST_SEEDS)):
        if run(land, seed).problems:
            return
    pytest.fail(f"none of {MOST_SEEDS:,} runs shows it: look for another seed")
