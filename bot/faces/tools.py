"""Tools of an agent in a few words: the input of a call, and the plan that it states of its own work. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bot.faces.marks import EMOJI
from bot.faces.words import Said, Step, one_line
from engine.journal.queries import PLAN
from engine.language.codec import Json, encode

ASK = "ask_human"
"""The tool by which an agent asks people: each of its calls is a question of its own in the thread."""
INPUT = 140
"""Most characters of a call's input in a few words."""


def brief_input(name: str, values: Json) -> str:
    """Return the input of a tool call in a few words on one line."""
    if not isinstance(values, dict):
        return one_line(_text_of(values), INPUT)
    if isinstance(values.get("url"), str):
        return one_line(f"{values.get('method') or 'GET'} {values['url']}", INPUT)
    for field in ("command", "path", "question", "query"):
        if isinstance(values.get(field), str):
            return one_line(values[field], INPUT)
    named = [f"{key}={_text_of(value)}" for key, value in values.items()]
    if len(named) == 1:
        return one_line(_text_of(next(iter(values.values()))), INPUT)
    return one_line(", ".join(named), INPUT)


def _text_of(value: Json) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def has_line(name: str, given: Json) -> bool:
    """True if a call is listed among the calls of its turn: a question and a plan have their own display."""
    return name != ASK and not plan_steps(name, given)


# --- plans -------------------------------------------------------------------------------------------------

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


def plan_lines(steps: Steps, *, over: bool = False) -> list[Step]:
    """Return a line for each step of a plan. `over`: it is no longer being worked on."""
    lines = []
    for title, status in steps:
        left = over and status == "in_progress"
        lines.append(
            Step(_SIGNS["pending" if left else status], (Said(title, 150),), ("left open",) if left else ())
        )
    return lines
