"""`python -m bench`: sayso beside other engines and the floor. `make bench ARGS=--quick` for a first look, `--all` for all."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from bench import (
    acks,
    agents,
    beside,
    cold,
    crowd,
    fleet,
    fold,
    items,
    memory,
    nodes,
    pauses,
    postgres,
    retention,
    slack_load,
    starts,
    turns,
)
from bench.report import HEADINGS, Row, aligned, machine, markdown, table

T = TypeVar("T")
BESIDE = "beside"
"""The part that has a table of its own: sayso beside others."""
FLEET = "fleet"
"""The other one: a fleet on Postgres, beside Procrastinate."""

PARTS: dict[str, Callable[..., list[Row]]] = {
    "starts": starts.measure,
    "nodes": nodes.measure,
    "pauses": pauses.measure,
    "items": items.measure,
    "fold": fold.measure,
    "crowd": crowd.measure,
    "cold": cold.measure,
    "turns": turns.measure,
    "agents": agents.measure,
    "acks": acks.measure,
    "retention": retention.measure,
    "memory": memory.measure,
    "postgres": postgres.measure,
    "slack": slack_load.measure,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what was asked for; 0, whatever the numbers are."""
    given = _parser().parse_args(arguments)
    given.dir.mkdir(parents=True, exist_ok=True)
    parts = given.only or ([BESIDE, *PARTS, FLEET] if given.all else [BESIDE, "starts"])
    before, rows, compared, fleets = machine(), [], None, None
    with TemporaryDirectory(dir=given.dir.resolve(), prefix="bench-") as folder:
        for name in parts:
            if name == BESIDE:
                compared = _timed(name, lambda: beside.measure(Path(folder), quick=given.quick))
            elif name == FLEET:
                fleets = _timed(name, lambda: fleet.measure(Path(folder), quick=given.quick))
            else:
                rows += _timed(name, lambda name=name: PARTS[name](Path(folder), quick=given.quick))
    if given.json:
        print(json.dumps(_document(before, rows, compared, fleets, quick=given.quick)))
    else:
        print(f"\nbefore: {before}\nafter:  {machine()}")
        shaped = markdown if given.markdown else aligned
        if compared is not None:
            notes = [*compared.notes, "", "Not in the work of the other engines:", *beside.lacking()]
            print(f"\n{shaped(beside.rows(compared))}\n\n" + "\n".join(f"  {note}" for note in notes))
        if fleets is not None:
            print(f"\n{markdown(fleets.lines())}\n\n" + "\n".join(f"  {note}" for note in fleets.notes))
        if rows and given.markdown:
            print(f"\n{markdown([HEADINGS, *(row.cells() for row in rows)])}")
        elif rows:
            print(f"\n{table(rows)}")
    return 0


def _document(
    before: str,
    rows: list[Row],
    compared: beside.Compared | None,
    fleets: fleet.Table | None,
    *,
    quick: bool,
) -> dict[str, object]:
    told: dict[str, object] = {"machine": [before, machine()], "quick": quick}
    if compared is not None:
        told["beside"] = {"rounds": compared.figures, "loads": compared.loads, "notes": compared.notes}
    if fleets is not None:
        told["fleet"] = {"rows": fleets.rows, "notes": fleets.notes}
    return {**told, "rows": [row.to_json() for row in rows]}


def _timed(name: str, measure: Callable[[], T]) -> T:
    begin = time.perf_counter()
    print(f"{name} ...", end=" ", file=sys.stderr, flush=True)
    found = measure()
    print(f"{time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="How fast sayso is on this machine.")
    parser.add_argument("--json", action="store_true", help="print JSON on standard output")
    parser.add_argument("--markdown", action="store_true", help="print tables as docs/speed.md has them")
    parser.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        choices=[BESIDE, *PARTS, FLEET],
        help=", ".join([BESIDE, *PARTS, FLEET]),
    )
    parser.add_argument("--all", action="store_true", help="measure every part")
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds: for a first look, not for comparing"
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path(".sayso"),
        help="where the databases are made; a folder in memory has no fsync worth measuring [.sayso]",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
