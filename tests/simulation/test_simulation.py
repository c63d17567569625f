"""Thousands of runs of the whole bot in which everything goes wrong that can, and nothing is lost, doubled or wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from tests.simulation.flows import SAMPLES
from tests.simulation.mutants import MUTANTS, SEEN_AT, Mutant
from tests.simulation.run import AT_ONCE, Block, crowd, ground, run, run_block
from tests.simulation.weather import Weather
from tests.simulation.world import Ground

LONG = bool(os.environ.get("PROVE"))
SEEDS = 2_000
MOST_SEEDS = 2_000
"""Within so many runs a seeded fault must be found."""
DELIVERIES = 100_000
"""How many deliveries `make prove` makes at least."""
TRIED: Counter[str] = Counter()
_TRACE = "from tests.simulation.run import trace_of; print(trace_of(int(__import__('sys').argv[1])))"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def land() -> Iterator[Ground]:
    """What the runs in this process share."""
    with ground() as made:
        yield made


@pytest.fixture(scope="module")
def blocks() -> Iterator[dict[int, Future[Block]]]:
    """The blocks of seeds by their first, which processes run while the tests wait for one after the other."""
    workers = crowd()
    try:
        yield {first: workers.submit(run_block, first, AT_ONCE) for first in range(0, SEEDS, AT_ONCE)}
    finally:
        workers.shutdown(cancel_futures=True)
    print(f"\nsimulation: {', '.join(f'{count:,} {name}' for name, count in sorted(TRIED.items()))}")


def _counted(block: Block) -> None:
    """Fail with the seeds and what was wrong; `python -m tests.simulation.run SEED 1` shows one whole run."""
    TRIED.update(block.tried)
    if block.problems:
        lines = [f"seed {seed}: {line}" for seed, problems in block.problems.items() for line in problems]
        replay = f"replay: python -m tests.simulation.run {next(iter(block.problems))} 1"
        pytest.fail("\n".join([*lines, replay]))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_whatever_goes_wrong_nothing_is_lost_or_doubled(blocks: dict[int, Future[Block]], first: int) -> None:
    """Every reply and press counts once or is refused with a word, and every session ends as its flow says."""
    _counted(blocks[first].result())


@pytest.mark.timeout(7200)
@pytest.mark.skipif(not LONG, reason="the long version: make prove")
def test_a_hundred_thousand_deliveries() -> None:
    """The same for so many more seeds that the bot was sent 100,000 deliveries."""
    first, tried = SEEDS, TRIED["deliveries"]
    with crowd() as workers:
        while tried < DELIVERIES:
            rows = range(first, first + 4 * AT_ONCE, AT_ONCE)
            for block in workers.map(run_block, rows, [AT_ONCE] * len(rows)):
                _counted(block)
                tried += block.tried["deliveries"]
            first = rows.stop


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
    for seed in (SEEN_AT.get(name, 0), *range(MOST_SEEDS)):
        outcome = run(land, seed)
        if outcome.problems:
            print(f"{name}: seed {seed}: {outcome.problems[0][:150]}")
            return
    pytest.fail(f"no run of {MOST_SEEDS:,} shows it")
