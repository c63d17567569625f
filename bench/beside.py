"""sayso beside three other engines and the floor, in one run, with the same inputs: `bench.peers` has the work.

Engines take turns within each workload, so a machine that is slow for a while is slow for all. An engine that is not
installed is left out with a word, and so is a workload that takes longer than `MOST_SECONDS`. Ratios count: what sayso took
by what the floor took, and by what the best of the others took.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
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
    """A row of the table: what is measured, in which unit, and what the others leave out of it."""

    name: str
    unit: str
    lacks: str
    more: bool = False
    """True if more is better, as with steps a second."""


LINES = (
    Line(
        "durable steps",
        "steps/s",
        "Burr and LangGraph store the state after each step, DBOS what each step gave; none stores the input of a step by "
        "itself, and no row is authenticated",
        more=True,
    ),
    Line(
        "durable steps, `python` nodes",
        "steps/s",
        "no other engine calls a function that a file names",
        more=True,
    ),
    Line(
        "a run with one pause, warm",
        "ms",
        "an answer is an argument of a call: nothing says who may give it, and nothing checks it",
    ),
    Line(
        "resume in a new process: spawn → next step",
        "ms",
        "the flow is the program's code, and not stored with the run",
    ),
    Line(
        "a list, paused at 90 % and resumed",
        "s",
        "it pauses where the program says so, and not wherever a person asks for it",
    ),
    Line("that list on disk", "MB", "Burr and LangGraph keep the whole state once more for each step"),
    Line(
        "a pause, of many paused runs",
        "ms",
        "Burr and DBOS store no question, LangGraph its text; none stores who is asked and what may be answered",
    ),
    Line("a paused run on disk", "kB", "the same; sayso has the flow in it, once for all runs"),
    Line(
        "resume one of many in a new process, after import",
        "ms",
        "Burr and LangGraph read the last state and check nothing; DBOS takes up all runs that wait",
    ),
    Line(
        "runs at once, whole",
        "runs/s",
        "Burr's runs share one connection: a commit of one commits what others have written by then, and nothing keeps a second "
        "process from the same run",
        more=True,
    ),
    Line("their answer → end, p99", "ms", "the same, from the moment when all answer"),
    Line(
        "killed in step 150 of 200: recover, after import",
        "ms",
        "with Burr and LangGraph the program has to know which run was cut; the step runs again whatever it does, and nobody is "
        "asked first",
    ),
)


@dataclass
class Compared:
    """All rounds of all engines."""

    figures: Figures = field(default_factory=dict)
    loads: dict[str, list[float]] = field(default_factory=dict)
    """By row how many processes wanted a core, of this or of other programs, over the minute in which it was measured."""
    notes: list[str] = field(default_factory=list)

    def add(self, line: str, engine: str, value: float) -> None:
        """One figure."""
        self.figures.setdefault(line, {}).setdefault(engine, []).append(value)
        self.loads.setdefault(line, []).append(os.getloadavg()[0])

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
    """The table: the median of the rounds of each engine, ratios, and how busy the machine was."""
    headings = ["what", *TITLES.values(), "× floor", "× best other", "load"]
    return [headings, *(_row(line, compared) for line in LINES)]


def lacking() -> list[str]:
    """A sentence a row on what the other engines do not do there."""
    return [f"{line.name}: {line.lacks}." for line in LINES]


def _row(line: Line, compared: Compared) -> list[str]:
    figures, loads = compared.figures.get(line.name, {}), compared.loads.get(line.name)
    by_engine = {engine: median(values) for engine, values in figures.items()}
    ours, floor = by_engine.get("sayso"), by_engine.get("floor")
    others = [by_engine[engine] for engine in NEEDS if engine in by_engine]
    best = (max(others) if line.more else min(others)) if others else None
    return [
        f"{line.name}, {line.unit}",
        *(_amount(by_engine.get(engine)) for engine in ENGINES),
        _ratio(line, ours, floor),
        _ratio(line, ours, best),
        f"{median(loads):.1f}" if loads else "",
    ]


def _ratio(line: Line, ours: float | None, other: float | None) -> str:
    """How much more sayso costs than the other: below 1 it is ahead."""
    if not ours or not other:
        return ""
    return f"{other / ours if line.more else ours / other:.2f}"


def _amount(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
