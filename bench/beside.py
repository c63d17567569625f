"""sayso beside three other engines and the floor, in one run, with the same inputs: `bench.peers` has the work.

Engines take turns within each workload, so a machine that is slow for a while is slow for all. An engine that is not
installed is left out with a word, and so is a workload that takes longer than `MOST_SECONDS`. Ratios count: what sayso took
by what the floor took, and by what the best of the others took.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

from bench.nodes import folder_in
from bench.peers import ENGINES, TITLES
from bench.processes import environment
from bench.report import median

MOST_SECONDS = 300.0
"""How long one workload of one engine may take."""

NEEDS = {"langgraph": "langgraph", "dbos": "dbos", "burr": "burr"}
"""What has to be installed: `pip install -c constraints.txt -e ".[bench]"`."""

Told: TypeAlias = dict[str, float]
Figures: TypeAlias = dict[str, dict[str, list[float]]]
"""What was measured: by row, and by engine, once for each round."""


@dataclass(frozen=True)
class Line:
    """A row of the table: what is measured, in which unit, and what is wanted of sayso."""

    name: str
    unit: str
    wanted: float
    more: bool = False
    """Whether more is better, as with steps a second."""
    of_floor: bool = False
    """Whether `wanted` is a multiple of the floor."""


LINES = (
    Line("durable steps", "steps/s", 2400, more=True),
    Line("durable steps, `python` nodes", "steps/s", 2000, more=True),
    Line("a run with one pause, warm", "ms", 4),
    Line("resume in a new process: spawn → next step", "ms", 160),
    Line("a list, paused at 90 % and resumed", "s", 3, of_floor=True),
    Line("that list on disk", "MB", 4),
    Line("a pause, of many paused runs", "ms", 1.4),
    Line("a paused run on disk", "kB", 9),
    Line("resume one of many in a new process, after import", "ms", 5),
    Line("runs at once, whole", "runs/s", 1200, more=True),
    Line("their answer → end, p99", "ms", 50),
    Line("killed in step 150 of 200: recover, after import", "ms", 5),
)


@dataclass
class Compared:
    """All rounds of all engines."""

    figures: Figures = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, line: str, engine: str, value: float) -> None:
        """One figure."""
        self.figures.setdefault(line, {}).setdefault(engine, []).append(value)

    def note(self, text: str) -> None:
        """Say something below the table, once."""
        if text not in self.notes:
            self.notes.append(text)


def measure(base: Path, *, quick: bool) -> Compared:
    """Every workload, with each engine that is installed."""
    compared = Compared()
    engines = [name for name in ENGINES if name not in NEEDS or find_spec(NEEDS[name]) is not None]
    for missing in sorted(set(ENGINES) - set(engines)):
        compared.note(f"{TITLES[missing]} is not installed; it is left out.")
    for part, rounds, counts in PARTS:
        for _ in range(1 if quick else rounds):
            for engine in engines:
                with folder_in(base) as folder:
                    _one(compared, part, engine, folder, counts[1 if quick else 0])
    return compared


def _one(compared: Compared, part: Part, engine: str, folder: Path, count: int) -> None:
    try:
        for line, value in part(Work(engine, folder, count, compared)):
            compared.add(line, engine, value)
    except subprocess.TimeoutExpired:
        compared.note(
            f"{TITLES[engine]}: {part.__name__} with {count:,} was stopped after {MOST_SECONDS:.0f} s."
        )
    except RuntimeError as error:
        compared.note(f"{TITLES[engine]}: {part.__name__}: {error}")


@dataclass(frozen=True)
class Work:
    """Calls the workloads of one engine, each in a process of its own."""

    engine: str
    folder: Path
    count: int
    compared: Compared

    def __call__(self, workload: str, *, killed: bool = False) -> Told:
        """What the process told, with `spawned`, when it was begun. Raises `RuntimeError` where it failed."""
        command = [
            sys.executable,
            "-m",
            "bench.peers",
            self.engine,
            workload,
            str(self.folder),
            str(self.count),
        ]
        spawned = time.time()
        done = subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=MOST_SECONDS, check=False
        )
        if killed:
            return {}
        if done.returncode:
            raise RuntimeError((done.stderr.strip() or "it said nothing").splitlines()[-1])
        told: Told = json.loads(done.stdout.splitlines()[-1])
        if told.get("again"):
            self.compared.note(
                f"{TITLES[self.engine]}: {told['again']} completed steps ran again in {workload}."
            )
        return {**told, "spawned": spawned}


Part: TypeAlias = Callable[[Work], Iterator[tuple[str, float]]]


def _steps(work: Work) -> Iterator[tuple[str, float]]:
    yield "durable steps", work.count / work("steps")["seconds"]


def _python_steps(work: Work) -> Iterator[tuple[str, float]]:
    if work.engine in ("floor", "sayso"):
        yield "durable steps, `python` nodes", work.count / work("python_steps")["seconds"]


def _pauses(work: Work) -> Iterator[tuple[str, float]]:
    yield "a run with one pause, warm", work("pauses")["seconds"] * 1e3


def _cold(work: Work) -> Iterator[tuple[str, float]]:
    work("paused")
    told = work("resume_one")
    yield "resume in a new process: spawn → next step", (told["began"] - told["spawned"]) * 1e3


def _items(work: Work) -> Iterator[tuple[str, float]]:
    first, rest = work("items"), work("items_rest")
    yield "a list, paused at 90 % and resumed", first["seconds"] + rest["seconds"]
    yield "that list on disk", rest["bytes"] / 1e6


def _paused(work: Work) -> Iterator[tuple[str, float]]:
    made = work("paused")
    yield "a pause, of many paused runs", made["seconds"] / work.count * 1e3
    yield "a paused run on disk", made["bytes"] / work.count / 1e3
    told = work("resume_one")
    yield "resume one of many in a new process, after import", (told["began"] - told["imported"]) * 1e3


def _crowd(work: Work) -> Iterator[tuple[str, float]]:
    told = work("crowd")
    if "grouped" in told:
        work.compared.note(f"floor: as a group, {work.count / told['grouped']:,.0f} runs a second.")
    yield "runs at once, whole", work.count / told["seconds"]
    yield "their answer → end, p99", told["p99"] * 1e3


def _killed(work: Work) -> Iterator[tuple[str, float]]:
    work("killed", killed=True)
    told = work("recover")
    yield "killed in step 150 of 200: recover, after import", (told["began"] - told["imported"]) * 1e3


PARTS: tuple[tuple[Part, int, tuple[int, int]], ...] = (
    (_steps, 5, (1000, 200)),
    (_python_steps, 5, (1000, 200)),
    (_pauses, 5, (100, 20)),
    (_cold, 7, (1, 1)),
    (_items, 1, (5000, 100)),
    (_paused, 1, (10_000, 100)),
    (_crowd, 5, (200, 50)),
    (_killed, 5, (1, 1)),
)
"""What is measured, in how many rounds, and how much of it, also for a first look."""


def rows(compared: Compared) -> list[list[str]]:
    """The table: the median of the rounds of each engine, ratios, what is wanted, and whether it was reached."""
    headings = ["what", *TITLES.values(), "× floor", "× best other", "wanted", "reached"]
    return [headings, *(_row(line, compared.figures.get(line.name, {})) for line in LINES)]


def _row(line: Line, figures: Mapping[str, list[float]]) -> list[str]:
    by_engine = {engine: median(values) for engine, values in figures.items()}
    ours, floor = by_engine.get("sayso"), by_engine.get("floor")
    others = [by_engine[engine] for engine in NEEDS if engine in by_engine]
    best = (max(others) if line.more else min(others)) if others else None
    wanted = f"{'≥' if line.more else '≤'} {'× ' if line.of_floor else ''}{line.wanted:,g}"
    return [
        f"{line.name}, {line.unit}",
        *(_amount(by_engine.get(engine)) for engine in ENGINES),
        _ratio(line, ours, floor),
        _ratio(line, ours, best),
        wanted,
        _reached(line, ours, floor),
    ]


def _times(line: Line, ours: float | None, other: float | None) -> float | None:
    """How much more sayso costs than the other: below 1 it is ahead."""
    if not ours or not other:
        return None
    return other / ours if line.more else ours / other


def _ratio(line: Line, ours: float | None, other: float | None) -> str:
    times = _times(line, ours, other)
    return "" if times is None else f"{times:.2f}"


def _reached(line: Line, ours: float | None, floor: float | None) -> str:
    value = _times(line, ours, floor) if line.of_floor else ours
    if value is None:
        return ""
    return "yes" if (value >= line.wanted if line.more else value <= line.wanted) else "**no**"


def _amount(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
