"""The list of tests behind the promises and the cases: each promise and each case has its proof, and none is forgotten."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

DOCS = Path(__file__).resolve().parents[2] / "docs"
LISTED = yaml.safe_load((DOCS / "tested_by.yml").read_text())
PROMISES = re.findall(r"(?m)^## (\d+)\. ", (DOCS / "promises.md").read_text())
CASES = re.findall(r"(?m)^\| ([^|]+) \| [^|]+ \|$", (DOCS / "semantics.md").read_text())

DECIDED = """
    sayso is killed while a step runs / A step runs out of time / Delivered twice / Two at once / Several
    people decide / Message while a step runs / Message before the question is posted / Answer to a post was
    lost / Several questions open / Edited reply / Deleted reply / Question deleted / Old button / Late answer
    / Deadline and answer at once / A run is ended while it waits / A run is ended while a step runs /
    Archived, bot removed / Channel gets another id / Another thread / Token revoked / Slack is down while
    something is asked / The flow's file changes / Another release reads the store / The clock jumps back or
    forward / A question waits for weeks / Messages missed while sayso was away / The requester leaves the
    company / A pause inside a loop / A process that lost its claim / The disk is full
"""


def test_each_promise_has_its_tests() -> None:
    """The promises are numbered without a gap, and each has at least one test or test file (that these exist is checked
    on the generated page)."""
    assert [int(number) for number in PROMISES] == list(range(1, len(PROMISES) + 1))
    assert list(LISTED["promises"]) == [int(number) for number in PROMISES]
    assert [number for number, tests in LISTED["promises"].items() if not tests] == []


def test_each_case_has_its_tests() -> None:
    """The cases of the page are those of the list, in the same order, each with at least one test that is named."""
    cases = [case for case in CASES if case != "Case"]
    assert list(LISTED["cases"]) == cases
    without = [
        case for case, tests in LISTED["cases"].items() if not any("::test_" in test for test in tests)
    ]
    assert without == []


def test_no_case_is_forgotten() -> None:
    """Every case that the design decides has a row."""
    assert {" ".join(case.split()) for case in DECIDED.split(" /")} <= set(CASES)
