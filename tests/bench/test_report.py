"""The table of `make bench`: what counts as reached, and that every measurement is shown whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.report import Row, markdown, median, quantile, table


def test_an_aim_on_the_value_ignores_the_floor() -> None:
    """A row whose aim is a number of milliseconds is met or not by its value alone."""
    assert Row("a", 9.0, "ms", floor=1.0, limit=10.0).met is True
    assert Row("a", 11.0, "ms", floor=10.0, limit=10.0).met is False


def test_an_aim_on_the_ratio_compares_with_the_floor() -> None:
    """A row whose aim is a multiple of the floor is judged by that multiple, and by a given median before a quotient."""
    assert Row("a", 9.0, "ms", floor=3.0, limit=3.0, limit_of="ratio").met is True
    assert Row("a", 9.0, "ms", floor=3.0, ratio=3.1, limit=3.0, limit_of="ratio").met is False


def test_a_row_without_an_aim_is_neither_met_nor_missed() -> None:
    """Where nothing was promised the last column is empty."""
    assert Row("a", 9.0, "ms", floor=3.0).met is None
    assert table([Row("a", 9.0, "ms")]).splitlines()[-1].rstrip().endswith("9 ms")


def test_the_table_marks_a_missed_aim_and_keeps_the_notes() -> None:
    """A missed aim cannot be overlooked, and what a line is made of is below the table."""
    text = table([Row("slow", 12.0, "ms", limit=10.0, note="of three"), Row("quick", 1.0, "ms", limit=10.0)])
    slow, quick = text.splitlines()[2:4]
    assert slow.endswith("NO")
    assert quick.endswith("yes")
    assert "slow: of three" in text


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1.0))
def test_a_quantile_is_one_of_the_values_and_covers_its_part(values: list[float], part: float) -> None:
    """A p99 is a value that was measured, and at least that part of all values does not exceed it."""
    found = quantile(values, part)
    assert found in values
    assert sum(value <= found for value in values) >= part * len(values)
    assert median(values) == quantile(values, 0.5)


def test_a_table_of_a_page_has_a_rule_below_its_headings() -> None:
    """And a line for each line."""
    assert markdown([("what", "ms"), ("a", "1")]) == "| what | ms |\n| --- | --- |\n| a | 1 |"


def test_nothing_measured_is_an_error() -> None:
    """A quantile of nothing is refused instead of being shown as zero."""
    with pytest.raises(ValueError, match="nothing was measured"):
        quantile([], 0.5)
