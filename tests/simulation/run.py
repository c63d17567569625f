"""Runs seeds: `python -m tests.simulation.run [FIRST] [HOW MANY] [PROCESSES]`."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path

from bot.config.library import Library
from bot.handlers.catchup import INSTALLED
from bot.rendering import forms
from engine.flow import Flow, load
from engine.storage import group_commit
from engine.storage.sqlite import open_sqlite
from tests.simulation.checks import check
from tests.simulation.file_flows import ALL
from tests.simulation.life import KEY
from tests.simulation.weather import Weather
from tests.simulation.world import EPOCH, Ground, Outcome, World

PROCESSES = 2
PAGE_FIELDS = 6
"""Fields on a page of a form: with as many as the bot puts there, forms of several pages would take all the time."""
AT_ONCE = 50
"""Seeds in a block."""


@contextmanager
def ground() -> Iterator[Ground]:
    """What all seeds share. In memory, where the machine has a folder for that."""
    memory, read, short = Path("/dev/shm"), load.flow_from_body, group_commit.SHORT_SECONDS
    fields = forms._PAGE_FIELDS
    folder = Path(tempfile.mkdtemp(prefix="simulation-", dir=memory if memory.is_dir() else None))
    try:
        flows = folder / "flows"
        flows.mkdir()
        for name, sample in ALL.items():
            (flows / f"{name}.yml").write_text(sample.text)
        library = _Fixed(flows)
        Library.refresh(library)
        (folder / "template").mkdir(mode=0o700)
        template = folder / "template" / "sayso.db"
        store = open_sqlite(template, key=KEY)
        store.bind("T0LOCAL01", "A0LOCAL01")
        store.marks.move(INSTALLED, f"{EPOCH:.6f}")
        store._db.raw.wal_checkpoint()
        store.close()
        forms._PAGE_FIELDS = PAGE_FIELDS
        group_commit.SHORT_SECONDS = -1.0  # one call after the other, whatever the real clock says
        load.flow_from_body = cache(read)  # each life would read the same text again
        yield Ground(folder, library, template)
    finally:
        load.flow_from_body, group_commit.SHORT_SECONDS = read, short
        forms._PAGE_FIELDS = fields
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


@dataclass
class Block:
    """What a row of seeds gave."""

    tried: Counter[str] = field(default_factory=Counter)
    problems: dict[int, list[str]] = field(default_factory=dict)
    """By the seed, for those that had any."""

    def add(self, outcome: Outcome) -> None:
        """Count one seed."""
        for name in ("deliveries", "kills", "frozen", "points", "lives"):
            self.tried[name] += getattr(outcome, name)
        self.tried["seeds"] += 1
        self.tried["problems"] += len(outcome.problems)
        if outcome.problems:
            self.problems[outcome.seed] = outcome.problems


def run_block(first: int, count: int) -> Block:
    """Run a row of seeds, on a ground of its own: it can be called in any process."""
    block = Block()
    with ground() as shared:
        for seed in range(first, first + count):
            block.add(run(shared, seed))
    return block


def crowd(processes: int = PROCESSES) -> ProcessPoolExecutor:
    """Processes that run blocks at the same time. What a seed gives does not depend on the process."""
    return ProcessPoolExecutor(processes, mp_context=get_context("spawn"))


def main(first: int = 0, count: int = 100, processes: int = 1) -> int:
    """Run some seeds and print what was found; how many had problems."""
    if count == 1:
        print(trace_of(first))
    began = time.perf_counter()
    bad, tried = 0, Counter[str]()
    with crowd(processes) as workers:
        rows = range(first, first + count, AT_ONCE)
        blocks = [workers.submit(run_block, row, min(AT_ONCE, first + count - row)) for row in rows]
        for each in as_completed(blocks):
            block = each.result()
            tried.update(block.tried)
            bad += len(block.problems)
            for seed, problems in block.problems.items():
                print(f"seed {seed}: {problems[0]}", flush=True)
            if tried["seeds"] % 500 == 0 or tried["seeds"] == count:
                print(", ".join(f"{number:,} {name}" for name, number in sorted(tried.items())), flush=True)
    took = time.perf_counter() - began
    print(f"{bad} bad, {took:.0f} s, {took * processes / count * 1000:.1f} ms a seed")
    return bad


if __name__ == "__main__":
    sys.exit(1 if main(*map(int, sys.argv[1:])) else 0)
