"""`sayso --help`, as a whole process."""

from __future__ import annotations

from pathlib import Path

from bench.processes import SAYSO, bare_python, timed
from bench.report import Row, median

MOST_MILLISECONDS = 300.0


def measure(base: Path, *, quick: bool) -> list[Row]:
    """The row about `--help`."""
    helps, floors = [], []
    timed((*SAYSO, "--help"), base)
    for _ in range(3 if quick else 9):
        floors.append(bare_python(base))
        helps.append(timed((*SAYSO, "--help"), base)[0])
    note = f"median of {len(helps)}; the floor is a Python that does nothing"
    return [
        Row("sayso --help", median(helps), "ms", floor=median(floors), limit=MOST_MILLISECONDS, note=note)
    ]
