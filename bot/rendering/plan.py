"""Steps and how far they are, in signs: as lines of mrkdwn, and as Slack's plan block; the plan that an agent states of
its own work. Pure.

Of lines the block is made: each becomes a task, its sign the state, its label the title.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from bot.rendering.blocks import Block
from bot.rendering.text import clip, cut, one_line, plain, safe
from engine.language.codec import Json

ICONS = {
    "completed": "✅",
    "failed": "❌",
    "skipped": "⏭️",
    "interrupted": "⚠️",
    "started": "▶️",
    "retrying": "🔁",
    "failing": "❌",
}
REJECTED = "🚫"
"""The sign of a decision against it, which is no fault."""
INDENT = "\u2003"
"""A space that Slack does not swallow at the beginning of a line."""


# --- the lines as Slack's plan block ------------------------------------------------------------------------


_STATES = {
    ICONS["completed"]: "complete",
    ICONS["started"]: "in_progress",
    ICONS["failed"]: "error",
    "⚙️": "in_progress",
    "▫️": "pending",
}
"""Signs that a task's own state says."""
_SIGNED = {
    ICONS["skipped"]: "complete",
    ICONS["interrupted"]: "error",
    ICONS["retrying"]: "in_progress",
    REJECTED: "error",
    "🙋": "in_progress",
    "⏲️": "in_progress",
    "⏪": "complete",
}
"""Signs that say more than the state: they stay in the title."""
_TITLE = 150
_DETAILS = 256
_PIECE = re.compile(r"<(?P<inner>[^<>\n]+)>|`(?P<code>[^`\n]+)`")


def plan_block(title: str, lines: Sequence[str]) -> Block:
    """The plan of these lines of mrkdwn."""
    tasks = [_task(number, line) for number, line in enumerate(lines, 1)]
    return {"type": "plan", "title": title, "tasks": tasks}


def _task(number: int, line: str) -> Block:
    bare = line.lstrip(INDENT)
    sign, _, rest = bare.partition(" ")
    state = _STATES.get(sign) or _SIGNED.get(sign)
    label, _, detail = (rest if state else bare).partition(" · ")
    before = "› " * (len(line) - len(bare)) + (f"{sign} " if sign in _SIGNED else "")
    task: Block = {
        "type": "task_card",
        "task_id": f"step-{number}",
        "title": clip(before + plain(label), _TITLE) or "…",
        "status": state or "pending",
    }
    return {**task, "details": _rich_text(cut(detail, _DETAILS))} if detail else task


def _rich_text(mrkdwn: str) -> Block:
    pieces: list[Block] = []
    at = 0
    for found in _PIECE.finditer(mrkdwn):
        pieces += _text(mrkdwn[at : found.start()])
        pieces += _text(found["code"], code=True) if found["code"] else [_entity(found["inner"])]
        at = found.end()
    pieces += _text(mrkdwn[at:])
    return {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": pieces}]}


def _text(mrkdwn: str, *, code: bool = False) -> list[Block]:
    if not mrkdwn:
        return []
    piece: Block = {"type": "text", "text": plain(mrkdwn)}
    return [{**piece, "style": {"code": True}} if code else piece]


def _entity(inner: str) -> Block:
    """A mention, a time or a link; what is none of these is text."""
    target, _, label = inner.partition("|")
    if target.startswith("@"):
        return {"type": "user", "user_id": target[1:]}
    if target.startswith("!date^"):
        _, seconds, form = target.split("^", 2)
        return {"type": "date", "timestamp": int(seconds), "format": form, "fallback": plain(label)}
    if target.startswith("http"):
        return {"type": "link", "url": plain(target), "text": plain(label or target)}
    return {"type": "text", "text": plain(f"<{inner}>")}


# --- the plan of an agent ------------------------------------------------------------------------------------


PLAN = "plan"
"""The tool by which an agent states and ticks its steps."""

Steps = Sequence[tuple[str, str]]
"""What is to be done, each with its state: `pending`, `in_progress` or `complete`."""

_SIGNS = {"pending": "▫️", "in_progress": ICONS["started"], "complete": ICONS["completed"]}


def plan_steps(name: str, given: Json) -> Steps:
    """The steps that a call states; none where it is no call of that tool."""
    listed = given.get("steps") if name == PLAN and isinstance(given, dict) else None
    if not isinstance(listed, list) or not all(isinstance(step, dict) for step in listed):
        return ()
    steps = [(str(step.get("title") or ""), str(step.get("status") or "")) for step in listed]
    return steps if all(title and status in _SIGNS for title, status in steps) else ()


def plan_title(steps: Steps) -> str:
    """How far a plan is."""
    return f"Plan · {sum(status == 'complete' for _, status in steps)} of {len(steps)} done"


def plan_lines(steps: Steps, *, over: bool = False) -> list[str]:
    """A plan as lines of mrkdwn. `over`: nobody works on it any more."""
    lines = []
    for title, status in steps:
        left = over and status == "in_progress"
        label = safe(one_line(title, _TITLE)).replace(" · ", " - ")
        lines.append(f"{_SIGNS['pending' if left else status]} {label}{' · left open' if left else ''}")
    return lines
