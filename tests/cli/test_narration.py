"""What the terminal says of what happens in a session."""

from __future__ import annotations

import io
from typing import Any

from bot.terminal.console import Paint
from bot.terminal.narration import happened
from engine.journal import events as ev
from engine.journal.state import State
from tests.support.engine import START


def told(path: str, reason: Any) -> str | None:
    """The line for a node that was interrupted."""
    event = ev.NodeInterrupted(seq=1, timestamp=START, path=path, node_id="x", reason=reason)
    return happened(State(), event, Paint(io.StringIO()))


def test_a_node_that_left_at_a_checkpoint_is_told_so() -> None:
    """It goes on from there: nothing about it is unknown."""
    assert told("work", "left") == "  ! work  left at a checkpoint; goes on from there"


def test_a_model_call_that_begins_again_says_nothing() -> None:
    """More was set aside for it; nothing was sent before."""
    assert told("diagnose/turn[1]", "left") is None
    assert "killed" in (told("diagnose/turn[1]", "crash") or "")
