"""Runs seeds: `python -m tests.simulation.run [FIRST] [HOW MANY]`."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from bot.catchup import INSTALLED
from bot.flows import Library
from engine import engine
from engine.flow import Flow, flow_from_body
from engine.storage.sqlite import open_sqlite
from tests.simulation.checks import check
from tests.simulation.flows import flow_texts
from tests.simulation.life import KEY
from tests.simulation.weather import Weather
from tests.simulation.world import EPOCH, Ground, Outcome, World


@contextmanager
def ground() -> Iterator[Ground]:
    """What all seeds share. In memory, where the machine has a folder for that."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="simulation-", dir=memory if memory.is_dir() else None))
    try:
        flows = folder / "flows"
        flows.mkdir()
        for name, text in flow_texts().items():
            (flows / f"{name}.yml").write_text(text)
        library = _Fixed(flows)
        Library.refresh(library)
        (folder / "template").mkdir(mode=0o700)
        template = folder / "template" / "sayso.db"
        store = open_sqlite(template, key=KEY)
        store.bind("T0LOCAL01", "A0LOCAL01")
        store.set_mark(INSTALLED, f"{EPOCH:.6f}")
        store._db.raw.wal_checkpoint()
        store.close()
        engine.flow_from_body = cache(flow_from_body)  # each life would read the same text again
        yield Ground(folder, library, template)
    finally:
        engine.flow_from_body = flow_from_body
        shutil.rmtree(folder, ignore_errors=True)


class _Fixed(Library):
    """Flows whose files do not change, so that they need not be looked at."""

    def refresh(self) -> Mapping[str, Flow]:
        """The flows by name."""
        return self._by_name


def run(ground: Ground, seed: int, *, weather: Weather | None = None, wants: str | None = None) -> Outcome:
    """One seed, from its beginning to the checks at its end."""
    folder = ground.folder / f"seed-{seed}"
    folder.mkdir(mode=0o700)
    try:
        world = World(ground, seed, folder, weather=weather, wants=wants)
        outcome = world.run()
        if world.over:
            outcome.problems += check(world)
        return outcome
    except Exception as error:
        raise RuntimeError(f"seed {seed}: {error!r}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def trace_of(seed: int) -> str:
    """All that happened in the run of a seed, line by line."""
    with ground() as shared:
        outcome = run(shared, seed)
    return "\n".join([*outcome.trace, *outcome.problems])


def main(first: int = 0, count: int = 100) -> int:
    """Run some seeds and print what was found; how many had problems."""
    bad, deliveries, kills, began = 0, 0, 0, time.perf_counter()
    with ground() as shared:
        for seed in range(first, first + count):
            outcome = run(shared, seed)
            deliveries, kills = deliveries + outcome.deliveries, kills + outcome.kills
            if outcome.problems:
                bad += 1
                print(f"seed {seed}: {outcome.problems[0]}")
            if count == 1:
                print("\n".join(outcome.trace), *outcome.problems, sep="\n")
    took = time.perf_counter() - began
    print(
        f"{count} seeds, {deliveries} deliveries, {kills} kills, {bad} bad, {took / count * 1000:.1f} ms a seed"
    )
    return bad


if __name__ == "__main__":
    sys.exit(1 if main(*map(int, sys.argv[1:])) else 0)
