"""The app's Home: what waits for this person, what runs and what ran, and the flows to start. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.rendering.blocks import Block, actions, button, context, header, section
from bot.rendering.nested import REJECTED
from bot.rendering.text import date, one_line, person, safe
from engine.flow import Flow
from engine.journal.queries import is_rejection, verdict_and_reason
from engine.journal.state import State
from prompt_state.question_row import PromptState

START, AGAIN = "sayso:open:start", "sayso:open:home"
MOST_WAITING, MOST_RUNNING, MOST_RECENT, MOST_FLOWS = 20, 15, 10, 40
"""A Home has a hundred blocks; what does not fit is counted."""

_ICONS = {"running": "▶️", "paused": "🟡", "complete": "✅", "failed": "❌", "aborted": "🛑"}
_STANDING = {"paused": "waiting"}
_WORDS = {"complete": "completed", "failed": "failed", "aborted": "aborted"}
_ASKED = {
    "approval": "Approval",
    "interrupted": "Please check",
    "failed": "A step failed",
    "input": "Input",
    "budget": "At a cap",
    "limit": "At a limit",
}


@dataclass(frozen=True, slots=True)
class Waiting:
    """A question that waits for this person."""

    prompt: PromptState
    flow_name: str
    link: str | None


@dataclass(frozen=True, slots=True)
class Run:
    """A session that this person may see."""

    state: State
    link: str | None


@dataclass(frozen=True, slots=True)
class HomePage:
    """What a Home shows, newest first."""

    waiting: Sequence[Waiting]
    running: Sequence[Run]
    recent: Sequence[Run]
    flows: Mapping[str, Flow]
    now: str


def home_view(page: HomePage) -> dict[str, Any]:
    """The Home as Slack takes it."""
    blocks = [
        header("Waiting for you"),
        *_listed(
            [_waiting(entry) for entry in page.waiting[:MOST_WAITING]],
            len(page.waiting) - MOST_WAITING,
            "Nothing waits for you.",
        ),
        header("Running"),
        *_listed(
            [_run(entry) for entry in page.running[:MOST_RUNNING]],
            len(page.running) - MOST_RUNNING,
            "Nothing of yours or of your channels is running.",
        ),
        header("Recent"),
        *_listed(
            [_run(entry) for entry in page.recent[:MOST_RECENT]],
            0,
            "Nothing ended lately.",
        ),
        header("Start a flow"),
        *_flows(page.flows),
        context(f"As of {date(page.now, '{time_secs}')}"),
        actions([button("Refresh", AGAIN, "refresh")]),
    ]
    return {"type": "home", "blocks": blocks}


def words_home(text: str) -> dict[str, Any]:
    """A Home that says why there is nothing to see."""
    return {"type": "home", "blocks": [section(safe(text))]}


def _listed(blocks: list[Block], beyond: int, nothing: str) -> list[Block]:
    if not blocks:
        return [section(f"_{nothing}_")]
    return [*blocks, context(f"… and {beyond:,} more")] if beyond > 0 else blocks


def _waiting(entry: Waiting) -> Block:
    prompt = entry.prompt
    what = _ASKED.get(prompt.kind, "Question")
    question = safe(one_line(prompt.message, 160))
    until = f"\n⏳ until {date(prompt.deadline)}" if prompt.deadline else ""
    return section(f"🙋 *{what}* · {_linked(entry.flow_name, entry.link)}\n{question}{until}")


def _run(entry: Run) -> Block:
    state = entry.state
    icon = "⏸️" if state.phase == "held" else _ICONS.get(state.status, "•")
    if state.ended and is_rejection(state.error):
        icon = REJECTED
        said, reason = verdict_and_reason(state.error)
        word = f"{safe(one_line(said, 80))} {date(state.updated_at)}"
        word += f": {safe(one_line(reason, 80))}" if reason else ""
    elif state.ended:
        word = f"{_WORDS.get(state.status, state.status)} {date(state.updated_at)}"
    else:
        word = f"{'paused by a person' if state.phase == 'held' else _STANDING.get(state.status, state.status)}, since {date(state.created_at)}"
    open_prompts = len(state.open_prompts)
    waits = f" · {open_prompts} open question{'s' if open_prompts > 1 else ''}" if open_prompts else ""
    by = person(state.actor)
    return section(f"{icon} {_linked(state.flow_name, entry.link)} · {word}{waits}\nstarted by {by}")


def _linked(name: str, link: str | None) -> str:
    words = safe(one_line(name, 80))
    return f"*<{link}|{words}>*" if link else f"*{words}*"


def _flows(flows: Mapping[str, Flow]) -> list[Block]:
    if not flows:
        return [section("_No flow is served yet._")]
    names = sorted(flows)
    blocks = []
    for name in names[:MOST_FLOWS]:
        about = f"\n{safe(one_line(flows[name].description or '', 200))}" if flows[name].description else ""
        start = button("Start", START, name)
        # Of two buttons with one action in a view Slack wants different blocks.
        blocks.append({**section(f"*{safe(name)}*{about}"), "block_id": f"flow:{name}", "accessory": start})
    more = len(names) - MOST_FLOWS
    if more > 0:
        blocks.append(context(f"… and {more:,} more: `/sayso list`"))
    return blocks
