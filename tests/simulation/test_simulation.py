"""Thousands of runs of the whole bot in which everything goes wrong that can, and nothing is lost, doubled or wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.flows import SAMPLES
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.run import ground, run
from tests.simulation.weather import Weather
from tests.simulation.world import Ground, Outcome

LONG = bool(os.environ.get("PROVE"))
SEEDS = 2_000 if LONG else 400
AT_ONCE = 50
MOST_SEEDS = 2_000
"""Within so many runs a seeded fault must be found."""
DELIVERIES = 100_000
"""How many deliveries `make prove` makes at least."""
TRIED: Counter[str] = Counter()
_TRACE = "from tests.simulation.run import trace_of; print(trace_of(int(__import__('sys').argv[1])))"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def land() -> Iterator[Ground]:
    """What all runs share."""
    with ground() as made:
        yield made
    print(f"\nsimulation: {', '.join(f'{count:,} {name}' for name, count in sorted(TRIED.items()))}")


def _counted(outcome: Outcome) -> Outcome:
    TRIED.update(
        seeds=1,
        deliveries=outcome.deliveries,
        kills=outcome.kills,
        lives=outcome.lives,
        points=outcome.points,
        problems=len(outcome.problems),
    )
    return outcome


def _fails(outcome: Outcome) -> None:
    """Fail with the seed and with what was wrong; `python -m tests.simulation.run SEED 1` shows the whole run."""
    problems = "\n".join(outcome.problems)
    pytest.fail(f"seed {outcome.seed} (replay: python -m tests.simulation.run {outcome.seed} 1)\n{problems}")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_whatever_goes_wrong_nothing_is_lost_or_doubled(land: Ground, first: int) -> None:
    """Every reply and press counts once or is refused with a word, and every session ends as its flow says."""
    for seed in range(first, first + AT_ONCE):
        outcome = _counted(run(land, seed))
        if outcome.problems:
            _fails(outcome)


@pytest.mark.timeout(7200)
@pytest.mark.skipif(not LONG, reason="the long version: make prove")
def test_a_hundred_thousand_deliveries(land: Ground) -> None:
    """The same for so many seeds that the bot was sent 100,000 deliveries."""
    seed = SEEDS
    while TRIED["deliveries"] < DELIVERIES:
        outcome = _counted(run(land, seed))
        if outcome.problems:
            _fails(outcome)
        seed += 1


@pytest.mark.parametrize("flow", SAMPLES)
def test_a_day_without_faults_is_uneventful(land: Ground, flow: str) -> None:
    """Where nothing goes wrong each flow ends as the model says, in one life of the bot."""
    outcome = run(land, 1, weather=Weather(), wants=flow)
    assert (outcome.problems, outcome.lives) == ([], 1)


@pytest.mark.parametrize("seed", [3, 52])
def test_a_seed_replays_exactly(seed: int) -> None:
    """Two processes with different hash seeds give the same run of one seed, byte for byte."""
    traces = [
        subprocess.run(
            [sys.executable, "-c", _TRACE, str(seed)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert traces[0] == traces[1]
    assert traces[0].count(b"\n") > 20


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_seeded_fault_is_found_and_a_plain_day_does_not_show_it(
    name: str, land: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the fault every flow still ends well on a day without faults, and the simulation turns red."""
    mutant: Mutant = MUTANTS[name]
    mutant(monkeypatch)
    for flow in SAMPLES:
        assert run(land, 1, weather=Weather(), wants=flow).problems == []
    for seed in range(MOST_SEEDS):
        outcome = run(land, seed)
        if outcome.problems:
            print(f"{name}: seed {seed}: {outcome.problems[0][:150]}")
            return
    pytest.fail(f"no run of {MOST_SEEDS:,} shows it")
