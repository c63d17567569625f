"""The one mark for each state of a run or a step, in Slack and in text (terminal, control room, diagrams). Pure."""

from __future__ import annotations

from typing import NamedTuple

from engine.journal.phases import REJECTED, standing
from engine.journal.state import State


class Mark(NamedTuple):
    """An emoji, its name in Slack's reactions, and the sign that stands for it in text."""

    emoji: str
    name: str
    sign: str


MARKS = {
    "running": Mark("▶️", "arrow_forward", "▸"),
    "waiting": Mark("🟡", "large_yellow_circle", "●"),
    "paused": Mark("⏸️", "double_vertical_bar", "‖"),
    "out of reach": Mark("⚠️", "warning", "!"),
    "complete": Mark("✅", "white_check_mark", "✓"),
    "failed": Mark("❌", "x", "✗"),
    REJECTED: Mark("🚫", "no_entry_sign", "⊘"),
    "aborted": Mark("🛑", "octagonal_sign", "■"),
}
"""By the word for how a run stands."""

OPEN = MARKS["waiting"]
"""The reaction on the message that started a run, until the run is over: it runs, waits or is paused."""


def reaction_of(state: State) -> str:
    """The name of the reaction that shows how a run stands on the message that started it."""
    mark = MARKS[standing(state.status, state.phase, state.error)] if state.ended else OPEN
    return mark.name
