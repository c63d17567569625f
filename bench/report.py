"""One table of what was measured: value, floor, ratio, aim, and whether the aim was reached."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import apsw


@dataclass(frozen=True)
class Row:
    """One line. `floor` is in the unit of `value`; `ratio` is given where it is a median of its own, else it is their
    quotient. `limit` is the aim, at most this much of `limit_of`; `least` is one the other way round. `note` says what the line is made of."""

    name: str
    value: float
    unit: str
    floor: float | None = None
    ratio: float | None = None
    limit: float | None = None
    least: float | None = None
    limit_of: Literal["value", "ratio"] = "value"
    note: str = ""

    @property
    def times_floor(self) -> float | None:
        """How many times the floor."""
        if self.ratio is not None or not self.floor:
            return self.ratio
        return self.value / self.floor

    @property
    def met(self) -> bool | None:
        """Whether the aim was reached; None where there is none."""
        if self.least is not None:
            return self.value >= self.least
        reached = self.value if self.limit_of == "value" else self.times_floor
        return None if self.limit is None or reached is None else reached <= self.limit

    def cells(self) -> tuple[str, ...]:
        """The line as the table shows it."""
        aim = ""
        if self.limit is not None:
            what = f"× {self.limit:g}" if self.limit_of == "ratio" else f"{self.limit:g} {self.unit}"
            aim = f"≤ {what}"
        elif self.least is not None:
            aim = f"≥ {_amount(self.least, self.unit)}"
        return (
            self.name,
            _amount(self.value, self.unit),
            "" if self.floor is None else _amount(self.floor, self.unit),
            "" if self.times_floor is None else f"× {self.times_floor:.1f}",
            aim,
            {True: "yes", False: "NO", None: ""}[self.met],
        )

    def to_json(self) -> dict[str, Any]:
        """The line for machines."""
        return {**asdict(self), "ratio": self.times_floor, "met": self.met}


def _amount(value: float, unit: str) -> str:
    digits = 0 if value >= 1000 or value == int(value) else 1 if value >= 100 else 2 if value >= 1 else 3
    return f"{value:,.{digits}f} {unit}"


HEADINGS = ("what", "measured", "floor", "ratio", "aim", "met?")


def table(rows: Sequence[Row]) -> str:
    """All lines, aligned, with their notes below."""
    text = aligned([HEADINGS, *(row.cells() for row in rows)])
    notes = [f"  {row.name}: {row.note}" for row in rows if row.note]
    return "\n".join([text] + (["", *notes] if notes else []))


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells under each other, the first one as headings: the first and last column to the left, others to the right."""
    last = len(lines[0]) - 1
    widths = [max(len(line[column]) for line in lines) for column in range(last + 1)]
    text = [
        "  ".join(
            cell.ljust(width) if column in (0, last) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    text.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in text)


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """The same lines as a table of a page."""
    rule = ["---"] * len(lines[0])
    return "\n".join("| " + " | ".join(line) + " |" for line in (lines[0], rule, *lines[1:]))


def machine() -> str:
    """Where this was measured, and how busy the machine is with other things."""
    busy = ", ".join(f"{load:.2f}" for load in os.getloadavg())
    return (
        f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}, {os.cpu_count()} cores, "
        f"{platform.system()} {platform.machine()}, load {busy}"
    )


def quantile(values: Sequence[float], part: float) -> float:
    """The smallest value that at least this part of all values does not exceed. Raises `ValueError` for none."""
    if not values:
        raise ValueError("nothing was measured, so there is no quantile of it")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def median(values: Sequence[float]) -> float:
    """The middle."""
    return quantile(values, 0.5)
