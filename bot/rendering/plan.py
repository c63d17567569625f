"""The plan that an agent states of its own work: its steps, and how far they are. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bot.faces.marks import EMOJI
from bot.rendering.blocks import TASK_TITLE
from bot.rendering.text import one_line, safe
from engine.journal.queries import PLAN
from engine.language.codec import Json

Steps = Sequence[tuple[str, str]]
"""Steps of a plan, each with its state: `pending`, `in_progress` or `complete`."""

_SIGNS = {"pending": EMOJI["pending"], "in_progress": EMOJI["started"], "complete": EMOJI["completed"]}


def plan_steps(name: str, given: Json) -> Steps:
    """Return the steps of a plan call; empty for other calls."""
    listed = given.get("steps") if name == PLAN and isinstance(given, dict) else None
    if not isinstance(listed, list) or not all(isinstance(step, dict) for step in listed):
        return ()
    steps = [(str(step.get("title") or ""), str(step.get("status") or "")) for step in listed]
    return steps if all(title and status in _SIGNS for title, status in steps) else ()


def plan_title(steps: Steps) -> str:
    """Return the progress of a plan."""
    return f"Plan · {sum(status == 'complete' for _, status in steps)} of {len(steps)} done"


def plan_lines(steps: Steps, *, over: bool = False) -> list[str]:
    """Return a plan as lines of mrkdwn. `over`: it is no longer being worked on."""
    lines = []
    for title, status in steps:
        left = over and status == "in_progress"
        label = safe(one_line(title, TASK_TITLE)).replace(" · ", " - ")
        lines.append(f"{_SIGNS['pending' if left else status]} {label}{' · left open' if left else ''}")
    return lines
