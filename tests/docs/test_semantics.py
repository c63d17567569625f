"""The page of cases: none is without a test, and none that was decided is forgotten."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs/semantics.md"
ROWS = [line.strip("|").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
CASES = {row[0].strip(): row for row in ROWS if row[0].strip() != "Case"}

DECIDED = """
    Killed while a step ran / A step runs out of time / Delivered twice / Two at once / Several people decide /
    Said while something runs / Said before the question stands / Answer to a post was lost / Several questions open /
    Edited reply / Deleted reply / Question deleted / Old button / Late answer / Deadline and answer at once /
    Ended while it waits / Ended while a step runs / Archived, bot removed / Channel gets another id / Another thread /
    Token revoked / Slack is down while something is asked / The flow's file changes / Another release /
    The clock is put back or forward / A pause of weeks / Missed while away / The requester leaves the company /
    A pause inside a loop / A process that lost its claim / No room on the disk
"""


@pytest.mark.parametrize("case", sorted(CASES))
def test_a_case_names_its_tests(case: str) -> None:
    """Each row has a case, what happens, and at least one test (that it exists is checked with the other pages)."""
    row = CASES[case]
    assert len(row) == 3
    assert re.search(r"`tests/\S+\.py::test_\w+`", row[2])


def test_no_case_is_forgotten() -> None:
    """Every case that the design decides has a row."""
    wanted = {" ".join(case.split()) for case in DECIDED.split(" /")}
    assert wanted <= set(CASES)
