"""`python -m tests.simulation.seeds [COUNT]`: which of the seeds that are named for the faults show them no longer, and others.

A bot that makes one call more dies at other points, so that a named seed may show nothing any more: `SEEN_AT`,
`FORMS_SEEN_AT` and `FURTHER_SEEN_AT` are then to be brought up to date. Each search tries COUNT seeds at most.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.simulation.form_mutants import FORM_MUTANTS, FORMS_SEEN_AT
from tests.simulation.further_mutants import FURTHER_MUTANTS, FURTHER_SEEN_AT
from tests.simulation.mutants import MUTANTS, SEEN_AT, Mutant
from tests.simulation.run import ground, run
from tests.simulation.world import FILES, FORMS, FURTHER, WAYS, Ground

SEEDED: dict[str, Mutant] = {**MUTANTS, **FORM_MUTANTS, **FURTHER_MUTANTS}
NAMED = {**SEEN_AT, **FORMS_SEEN_AT, **FURTHER_SEEN_AT}
"""The seed that was last seen to show a fault."""


def area_of(name: str) -> int:
    """The first seed of the runs that have what a fault breaks."""
    if name in FORM_MUTANTS:
        return FORMS
    return max(
        (first for first in (FURTHER, WAYS, FILES) if first <= FURTHER_SEEN_AT.get(name, 0)), default=0
    )


def shown(name: str, land: Ground, count: int) -> Iterator[tuple[int, str]]:
    """The seeds that show a fault that is put in already, the named one first, and what was wrong."""
    first = area_of(name)
    for seed in (NAMED.get(name, first), *range(first, first + count)):
        outcome = run(land, seed)
        if outcome.problems:
            yield seed, outcome.problems[0]


def main() -> None:
    """Say of each fault where it shows, if not at its named seed."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    with ground() as land:
        for name, fault in SEEDED.items():
            with pytest.MonkeyPatch.context() as patch:
                fault(patch)
                seed, problem = next(shown(name, land, count), (None, f"none of {count} shows it"))
            if seed != NAMED.get(name, area_of(name)):
                print(f"{name}: {seed}, not {NAMED.get(name)}: {problem[:100]}", flush=True)


if __name__ == "__main__":
    main()
