"""A message on one line, for small places."""

from __future__ import annotations

import pytest

from bot.rendering.text import message_line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Which one?\n- eu\n- us east", "Which one? · eu · us east"),
        ("- eu\n- us", "eu · us"),
        ("Steps:\n1. drain\n2) restart", "Steps: · drain · restart"),
        ("plain\nwords - and a dash", "plain words - and a dash"),
    ],
)
def test_items_of_a_list_stay_apart(text: str, line: str) -> None:
    """A list that would run together into one sentence keeps its items."""
    assert message_line(text, 100) == line
