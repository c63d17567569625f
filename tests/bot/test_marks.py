"""One mark stands for one state, wherever it is shown."""

from __future__ import annotations

import re
from importlib.resources import files

from bot.faces.marks import MARKS
from bot.rendering.blocks import _TASK_SIGNED
from bot.terminal.described import MARKS as TERMINAL
from bot.web.html import _ENVIRONMENT
from engine.flow.docs.diagram import LOOKS
from engine.journal.phases import PHASES, STATUS, standing


def test_every_place_shows_a_state_by_the_same_sign() -> None:
    """Terminal, diagrams and control room have the signs of the one table."""
    signs = {word: mark.sign for word, mark in MARKS.items()}
    assert {word: sign for word, (_, sign) in TERMINAL.items() if word in signs}.items() <= signs.items()
    assert {word: look.words.split()[0] for word, look in LOOKS.items()}.items() <= signs.items()
    room = _ENVIRONMENT.get_template("parts.html").module.STATUS  # type: ignore[attr-defined]  # set in the template
    assert {word: shown[0] for word, shown in room.items()}.items() <= signs.items()


def test_the_local_workspace_knows_each_mark_that_stands_in_a_task() -> None:
    """Before a task whose title has a mark for its state it draws no second one."""
    page = (files("bot.workspace") / "page" / "blocks.js").read_text("utf-8")
    known = next(line for line in page.splitlines() if line.startswith("const MARKED = "))
    assert {sign for sign in _TASK_SIGNED if f"{sign}" not in re.split(r"[(:?|)]+", known)} == set()


def test_no_two_marks_share_an_emoji_or_a_sign() -> None:
    """What looks the same is the same state."""
    marks = set(MARKS.values())
    assert len({mark.emoji for mark in marks}) == len({mark.sign for mark in marks}) == len(marks)


def test_every_way_in_which_a_run_can_stand_has_a_mark() -> None:
    """Each phase, each end, and a rejection."""
    found = {standing(STATUS.get(phase, "complete"), phase) for phase in PHASES}
    found |= {standing(end, "ended") for end in ("complete", "failed", "aborted")}
    assert (found | {standing("failed", "ended", {"type": "rejected"})}) <= MARKS.keys()
