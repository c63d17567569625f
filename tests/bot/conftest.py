"""What tests of the bot's parts share."""

from __future__ import annotations

import pytest


@pytest.fixture
def card_of_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cards in lines of text, as they are where a plan would be too large for a message."""
    monkeypatch.setattr("bot.rendering.card.MOST_UNITS", 0)
