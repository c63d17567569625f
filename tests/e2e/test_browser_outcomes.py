"""What people see where the model does not answer: each card, its buttons, and that it continues there."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser

from engine.decide.agents import outcomes
from tests.support.acting import Workspace
from tests.support.bot import bot_here
from tests.support.browser import SCREENS, visiting
from tests.support.claude_server import Failure, Reply, claude_server, text
from tests.support.proving import sampled

LOOK = """
flow: look
nodes:
  - {id: look, type: agent, name: Look, with: {prompt: "Why is web slow?"}}
"""
REFUSED = {
    "type": "refusal",
    "category": "cyber",
    "explanation": "The request looks like a way to take over a server.",
    "recommended_model": "claude-opus-5",
}

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize("screen", sampled(list(SCREENS), ["phone"]))
async def test_a_refusal_is_answered_in_other_words_after_a_restart(
    browser: Browser, seen: Workspace, tmp_path: Path, screen: str
) -> None:
    """The card says who declined, and why; the bot ends and begins while it is open, and the words reach the model."""
    async with claude_server() as claude, visiting(browser, seen, "refusal", screen) as visit:
        async with bot_here(seen, tmp_path, {"look": LOOK}, **claude.environ()):
            claude.queue(Reply([], "refusal", REFUSED))
            await visit.begin("ops", "@sayso look")
            await visit.says("The agent is stuck", "declined to continue (cyber)", "take over a server")
            await visit.pressable(visit.button("Try again"))
            await visit.shot("asks")
        claude.queue(text("It is the disk of web-2."))
        async with bot_here(seen, tmp_path, {"look": LOOK}, **claude.environ()):
            await visit.button("Tell it…").click()
            await visit.modal.locator("textarea").fill("Only look at the disks.")
            await visit.shot("words")
            await visit.submit()
            await visit.says("Tell it", "It is the disk of web-2.", "Completed in")
            await visit.shot("goes-on")
    assert claude.refused == []
    assert "Only look at the disks." in str(claude.requests[-1].body["messages"][-1])


@pytest.mark.long
@pytest.mark.parametrize("screen", sampled(list(SCREENS), ["phone"]))
async def test_an_outage_is_gone_round_with_another_model(
    browser: Browser, seen: Workspace, tmp_path: Path, screen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The card says that nothing is lost; another model answers at once."""
    monkeypatch.setattr(outcomes, "_OUTAGE_SHOWN", 0.0)
    away = Failure(529, "overloaded_error", "Overloaded", headers={"retry-after": "900"})
    async with (
        claude_server() as claude,
        bot_here(seen, tmp_path, {"look": LOOK}, **claude.environ()),
        visiting(browser, seen, "outage", screen) as visit,
    ):
        claude.queue(away, text("It is the disk of web-2."))
        await visit.begin("ops", "@sayso look")
        await visit.says("The model is unavailable", "Nothing is lost")
        await visit.pressable(visit.button("Try again"))
        await visit.shot("asks")
        await visit.button("Other model…").click()
        await visit.modal.locator(".pick").click()
        await visit.shot("which")
        await visit.pick("claude-haiku-5-5")
        await visit.submit()
        await visit.says("It is the disk of web-2.", "Completed in")
        await visit.shot("goes-on")
    assert claude.requests[-1].body["model"] == "claude-haiku-5-5"
