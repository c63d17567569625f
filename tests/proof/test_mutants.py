"""A proof that cannot fail proves nothing: each seeded fault passes the plain tests and fails the proof."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.language.errors import SaysoError
from tests.proof import lives
from tests.proof.flows import flow
from tests.proof.lives import Life, Run, compare, drops, holds, run
from tests.proof.mutants import MUTANTS, Mutant
from tests.support.proving import PROVE

HAPPY = ("three_shells", "foreach", "foreach_skips", "loop_limit", "recursion", "switch", "retry", "ask_text")
"""What a plain test would run: lists, loops, a case, a called flow, a retry, a question."""


async def whole(names: Sequence[str], home: Path) -> dict[str, Run]:
    """The flows, each run from its beginning to its end."""
    return {name: await run(flow(name), [], home) for name in names}


async def prove(expected: dict[str, Run], home: Path) -> str | None:
    """The proof of these flows; what it found, or None."""
    for name, plain in expected.items():
        for life in drops(plain.commits) + holds(plain.acts):
            if found := await _differs(name, plain, life, home):
                return found
    return None


async def _differs(name: str, plain: Run, life: list[Life], home: Path) -> str | None:
    try:
        compare(plain.story, (await run(flow(name), life, home)).story)
    except (AssertionError, SaysoError, TimeoutError, LookupError) as error:
        return f"{name}, {life[0]}: {type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize("name", MUTANTS)
async def test_a_seeded_fault_is_found_by_the_proof_and_by_nothing_else(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hit: Counter[str]
) -> None:
    """With the fault the plain runs still tell the right story (in `make prove`), and the proof of its flows fails."""
    mutant: Mutant = MUTANTS[name]
    monkeypatch.setattr(lives, "PATIENCE", 3.0)
    happy = await whole(HAPPY if PROVE else (), tmp_path)
    expected = await whole(mutant.flows, tmp_path)
    if PROVE:
        assert await prove(expected, tmp_path) is None, "the proof is red without a fault"
    mutant.apply(monkeypatch)
    for each, plain in happy.items():
        compare(plain.story, (await run(flow(each), [], tmp_path)).story)
    found = await prove(expected, tmp_path)
    assert found is not None, "the proof did not see the fault"
    print(f"row {mutant.row}: {name}: {found[:200]}")
    hit["seeded faults found"] += 1


def test_there_are_at_least_eight_faults_of_different_rows() -> None:
    """Eight faults or more, of eight rows of the table or more."""
    assert len(MUTANTS) >= 8
    assert len({mutant.row for mutant in MUTANTS.values()}) >= 8
