"""`python -m bench`: measure and print one table. `make bench ARGS=--quick` for a first look."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import (
    acks,
    agents,
    cold,
    crowd,
    fold,
    help,
    items,
    memory,
    nodes,
    others,
    pauses,
    retention,
    turns,
)
from bench.report import Row, machine, table

PARTS: dict[str, Callable[..., list[Row]]] = {
    "nodes": nodes.measure,
    "pauses": pauses.measure,
    "items": items.measure,
    "others": others.measure,
    "fold": fold.measure,
    "crowd": crowd.measure,
    "cold": cold.measure,
    "turns": turns.measure,
    "agents": agents.measure,
    "acks": acks.measure,
    "retention": retention.measure,
    "memory": memory.measure,
    "help": help.measure,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what was asked for; 0, whatever the numbers are."""
    given = _parser().parse_args(arguments)
    given.dir.mkdir(parents=True, exist_ok=True)
    before, rows = machine(), []
    with TemporaryDirectory(dir=given.dir.resolve(), prefix="bench-") as folder:
        for name in given.only or PARTS:
            rows += _part(name, Path(folder), quick=given.quick)
    if given.json:
        print(
            json.dumps(
                {
                    "machine": [before, machine()],
                    "quick": given.quick,
                    "rows": [row.to_json() for row in rows],
                }
            )
        )
    else:
        print(f"\nbefore: {before}\nafter:  {machine()}\n\n{table(rows)}")
    return 0


def _part(name: str, folder: Path, *, quick: bool) -> list[Row]:
    begin = time.perf_counter()
    print(f"{name} ...", end=" ", file=sys.stderr, flush=True)
    rows = PARTS[name](folder, quick=quick)
    print(f"{time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    return rows


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="How fast sayso is on this machine.")
    parser.add_argument("--json", action="store_true", help="print JSON on standard output")
    parser.add_argument("--only", metavar="NAME", action="append", choices=list(PARTS), help=", ".join(PARTS))
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
