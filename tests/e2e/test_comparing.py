"""A bot that starts with more open sessions than it compares at once, over rows that somebody deleted while it was down."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bot.compose import comparing
from tests.support.bot import ThreadView, start_flow
from tests.support.inprocess import Town
from tests.support.simulated import TownWorkspace, in_town, inhabited_town, simulated

ASK = """
flow: asks
nodes:
  - {id: which, type: ask, with: {message: "Which one?", choices: [left, right]}}
  - {id: tell, type: message, with: {text: "It is {{ nodes.which.value }}"}}
"""
FORM = """
flow: plans
nodes:
  - id: plan
    type: ask
    with: {message: "What do we plan?", form: {properties: {title: {type: string}}, required: [title]}}
"""


@pytest.fixture(autouse=True)
def _one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "AT_ONCE", 1)
    monkeypatch.setattr(comparing, "SLICE", 1)


async def restarted(workspace: TownWorkspace, bot: Town, first: str, message: str) -> ThreadView:
    """The thread of a question that has no row any more when the bot starts; a newer one is compared before it."""
    thread = await start_flow(workspace, "ana", "ops", first)
    await thread.says(message)
    await start_flow(workspace, "ben", "ops", "asks", says="Which one?")
    await bot.close()
    other = bot.store.another()
    other._db.atomically(lambda: other._db.run("DELETE FROM prompts"))
    other.close()
    return thread


@simulated
async def test_a_press_counts_although_its_question_was_not_compared_yet(tmp_path: Path) -> None:
    """The rows of its thread are compared before it means anything, however long the others take."""
    with pytest.MonkeyPatch.context() as patch:
        async with inhabited_town(tmp_path, {"asks": ASK}) as (workspace, bot):
            thread = await restarted(workspace, bot, "asks", "Which one?")
            patch.setattr(comparing.Comparing, "rest", lambda self: asyncio.Event().wait())
            await bot.open()
            await thread.press("ana", await thread.says("Which one?"), "left")
            await thread.says("It is left")


@in_town({"asks": ASK, "plans": FORM})
async def test_a_form_opens_once_its_question_is_compared(workspace: TownWorkspace, bot: Town) -> None:
    """Nobody is told that it is not known here."""
    thread = await restarted(workspace, bot, "plans", "What do we plan?")
    await bot.open()
    await thread.press("ana", await thread.says("What do we plan?"), "Fill in")
    await workspace.wait_for(lambda: workspace.views("ana"))
    assert "not known" not in str(workspace.views("ana")[-1])
