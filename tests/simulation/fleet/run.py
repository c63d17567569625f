"""Runs seeds of a fleet: `python -m tests.simulation.fleet.run [FIRST] [HOW MANY] [PROCESSES]`."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.flow import Flow
from engine.storage import group_commit
from tests.simulation.fleet.checks import check
from tests.simulation.fleet.weather import FleetWeather
from tests.simulation.fleet.world import FleetOutcome, FleetWorld, flows
from tests.support.releases import NEWER, of_release

AT_ONCE = 100


@dataclass(frozen=True)
class FleetGround:
    """What all seeds share."""

    folder: Path
    flows: dict[str, Flow]


@contextmanager
def ground() -> Iterator[FleetGround]:
    """What all seeds share. In memory, where the machine has a folder for that."""
    memory, short = Path("/dev/shm"), group_commit.SHORT_SECONDS
    folder = Path(tempfile.mkdtemp(prefix="fleet-", dir=memory if memory.is_dir() else None))
    try:
        group_commit.SHORT_SECONDS = -1.0  # one call after the other, whatever the real clock says
        yield FleetGround(folder, flows())
    finally:
        group_commit.SHORT_SECONDS = short
        shutil.rmtree(folder, ignore_errors=True)


def run(ground: FleetGround, seed: int, *, weather: FleetWeather | None = None) -> FleetOutcome:
    """One seed, from its beginning to the checks at its end."""
    try:
        world = FleetWorld(ground.flows, seed, ground.folder, weather)
        outcome = world.run()
        with of_release(NEWER):
            outcome.problems += check(world)
        return outcome
    except Exception as error:
        raise RuntimeError(f"seed {seed}: {error!r}") from error


def run_block(first: int, count: int) -> tuple[Counter[str], dict[int, list[str]]]:
    """What a row of seeds tried, and the problems by the seed, on a ground of its own."""
    tried, problems = Counter[str](), dict[int, list[str]]()
    with ground() as shared:
        for seed in range(first, first + count):
            outcome = run(shared, seed)
            tried.update(outcome.tried)
            if outcome.problems:
                problems[seed] = outcome.problems
    return tried, problems


def trace_of(seed: int) -> str:
    """All that happened in the run of a seed, line by line."""
    with ground() as shared:
        outcome = run(shared, seed)
    return "\n".join([*outcome.trace, *outcome.problems])


def main(first: int = 0, count: int = 100, processes: int = 1) -> int:
    """Run some seeds and print what was found; how many had problems."""
    from tests.simulation.run import crowd

    if count == 1:
        print(trace_of(first))
        return 0
    began, bad, tried = time.perf_counter(), 0, Counter[str]()
    with crowd(processes) as workers:
        rows = range(first, first + count, AT_ONCE)
        blocks = [workers.submit(run_block, row, min(AT_ONCE, first + count - row)) for row in rows]
        for each in as_completed(blocks):
            found, problems = each.result()
            tried.update(found)
            bad += len(problems)
            for seed, lines in problems.items():
                print(f"seed {seed}: {lines[0]}", flush=True)
    took = time.perf_counter() - began
    print(", ".join(f"{number:,} {name}" for name, number in sorted(tried.items())))
    print(f"{bad} bad, {took:.0f} s, {took * processes / count * 1000:.1f} ms a seed")
    return bad


if __name__ == "__main__":
    sys.exit(1 if main(*map(int, sys.argv[1:])) else 0)
