"""`sayso prompts` shows what an approval lets run."""

from __future__ import annotations

from bot.terminal.narration import covered_lines


def test_what_an_approval_covers_is_shown_line_by_line() -> None:
    """Every line of what would run is shown as it is, and nothing where nothing is covered."""
    covers = {"nodeId": "helper.shell", "text": "rm -rf build\nin: /srv"}
    told = covered_lines(covers)
    assert told == ["What runs once this is approved (helper.shell):", "  rm -rf build", "  in: /srv"]
    assert covered_lines(None) == []
