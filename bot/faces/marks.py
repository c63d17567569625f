"""The one mark for each state of a run or a step, in Slack and in text (terminal, control room). Pure."""

from __future__ import annotations

from typing import NamedTuple

from engine.journal.state import State


class Mark(NamedTuple):
    """An emoji for Slack, its sign in plain text, and its name among Slack's reactions."""

    emoji: str
    sign: str
    reaction: str = ""


RUNNING = Mark("▶️", "▸")
WAITING = Mark("🟡", "…", "large_yellow_circle")
PAUSED = Mark("⏸️", "‖")
COMPLETED = Mark("✅", "✓", "white_check_mark")
FAILED = Mark("❌", "✗", "x")
CANCELLED = Mark("🛑", "■", "octagonal_sign")
UNCLEAR = Mark("⚠️", "!")
PENDING = Mark("▫️", "·")
UNKNOWN = Mark("•", "?")

MARKS = {
    "idle": PENDING,
    "pending": PENDING,
    "running": RUNNING,
    "started": RUNNING,
    "retrying": Mark("🔁", "↻"),
    "waiting": WAITING,
    "paused": PAUSED,
    "held": PAUSED,
    "out of reach": UNCLEAR,
    "on hold": UNCLEAR,
    "interrupted": UNCLEAR,
    "complete": COMPLETED,
    "completed": COMPLETED,
    "failed": FAILED,
    "failing": FAILED,
    "rejected": Mark("🚫", "⊘", "no_entry_sign"),
    "aborted": CANCELLED,
    "stopped": CANCELLED,
    "skipped": Mark("⏭️", "–"),
}
"""Marks by the status of a run, and by that of a step."""
LISTENING, WITHDRAWN = "💤", "⏹️"
"""Emojis of an agent that waits for words it need not get, and of a question or call that was revoked."""
EMOJI = {word: mark.emoji for word, mark in MARKS.items()}


def mark_of(state: State) -> Mark:
    """The mark of a run's state."""
    return MARKS[state.standing]


def reaction_of(state: State) -> str:
    """The reaction for a run's state: the same one until its end, whether it runs, waits or is paused."""
    return (mark_of(state) if state.ended else WAITING).reaction
