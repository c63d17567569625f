"""One person clears everything that waits for them from the Home, with a real browser: many prompts of several kinds."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.support.acting import Workspace
from tests.support.bot import bot_here, start_flow
from tests.support.browser import SCREENS, Visit, visiting
from tests.support.proving import PROVE, sampled

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.asyncio(loop_scope="session")]

FLOWS = {
    "restart": """
flow: restart
description: Restart a machine
inputs: {host: {type: string}}
nodes:
  - {id: gate, type: approval, with: {message: "Restart *{{ inputs.host }}*?", approvers: ["@sre"], covers: restart}}
  - {id: restart, type: shell, with: {run: ["true", "{{ inputs.host }}"]}}
""",
    "refund": """
flow: refund
description: Pay money back
inputs: {amount: {type: string}}
nodes:
  - id: gate
    type: approval
    with:
      message: "Refund {{ inputs.amount }}?"
      approvers: ["@sre"]
      on_reject: continue
      form: {properties: {account: {type: string, title: Account, default: main}}, required: [account]}
      editable: [account]
""",
    "where": """
flow: where
description: Ask where to deploy
nodes:
  - {id: where, type: ask, with: {message: "Which region?", who: ["@sre"], choices: [eu, us, ap]}}
""",
    "why": """
flow: why
description: Ask for a reason
nodes:
  - {id: why, type: ask, with: {message: "Why was it slow?", who: ["@sre"]}}
""",
}
LINES = ("restart host=web-{n}", "restart host=db-{n}", "refund amount={n}00", "where", "why")


@pytest.mark.timeout(900 if PROVE else 120)
@pytest.mark.parametrize("screen", sampled(list(SCREENS), ["wide"]))
async def test_a_person_clears_what_waits_from_the_home(
    browser: Browser, seen: Workspace, tmp_path: Path, screen: str
) -> None:
    """Approvals alike are decided together, others one by one, questions answered in place, until nothing waits."""
    count = 100 if PROVE else 7
    async with (
        bot_here(
            seen,
            tmp_path,
            FLOWS,
            SAYSO_RATE_PERSON="none",
            SAYSO_RATE_CHANNEL="none",
            SAYSO_RATE_WORKSPACE="none",
        ) as bot,
        visiting(browser, seen, "clear", screen, "dev") as visit,
    ):
        for number in range(count):
            line = LINES[number % len(LINES)].format(n=number)
            await start_flow(seen, "ana", ("ops", "releases")[number % 2], line)
        await seen.wait_for(
            lambda: len(bot.engine.store.prompts.rows(statuses=("shown",), limit=None)) == count, 200
        )
        await visit.go_to("sayso")
        await visit.page.get_by_test_id("tab-home").click()
        await expect(visit.home).to_contain_text("Which region?")
        await visit.shot("waiting")
        begun = time.monotonic()
        await clear(visit)
        seconds = time.monotonic() - begun
        await visit.shot("cleared")
        print(f"{count} prompts cleared in {seconds:.1f} s")
        assert seconds < 300
        await seen.wait_for(
            lambda: not bot.engine.store.prompts.rows(statuses=("requested", "shown"), limit=1), 60
        )


async def clear(visit: Visit) -> None:
    """Decide and answer what the Home shows first, again and again."""
    home, nothing = visit.home, visit.home.get_by_text("Nothing is waiting for you")
    while not await nothing.count():
        together = home.get_by_role("button", name=re.compile("Decide .* together"))
        if await together.count():
            await decide_together(visit)
            continue
        first = home.locator('[data-block^="press:"]').first
        block = await first.get_attribute("data-block")
        if await first.get_by_role("button", name="Approve").count():
            await first.get_by_role("button", name="Approve").click()
        elif await first.get_by_role("button", name="Answer…").count():
            await first.get_by_role("button", name="Answer…").click()
            await visit.modal.locator("textarea").fill("the disk was full")
            await visit.submit()
        else:
            await first.get_by_role("button", name="eu", exact=True).click()
        await expect(home.locator(f'[data-block="{block}"]')).to_have_count(0)


async def decide_together(visit: Visit) -> None:
    """All that are alike."""
    button = visit.home.get_by_role("button", name=re.compile("Decide .* together")).first
    block = await button.evaluate("each => each.closest('[data-block]').dataset.block")
    await button.click()
    await expect(visit.modal).to_contain_text("is decided and recorded separately")
    await visit.shot("together")
    await visit.modal.get_by_label("Approve").check()
    await visit.submit()
    await expect(visit.home.locator(f'[data-block="{block}"]')).to_have_count(0)
