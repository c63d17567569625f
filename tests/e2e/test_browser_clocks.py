"""A question that nobody answers, as people see it: reminded, escalated, over. The test moves the clock, nobody waits."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.support.bot import MovedClock, bot_here
from tests.support.browser import SCREENS, Visit, in_view, page_port, visiting
from tests.support.proving import sampled
from tests.support.workspace import running_workspace

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.asyncio(loop_scope="session")]

ROLLBACK = """
flow: rollback
nodes:
  - id: gate
    type: approval
    name: Roll back
    with:
      message: "Roll *checkout* back to 2.13?"
      approvers: ["@sre"]
      timeout: 2h
      on_timeout: goto:late
      remind_every: 20m
      escalate:
        - {after: 30m, to: [cleo@example.com], may_answer: true}
        - {after: 1h, to: ["C0LOCALINC", "dm:ben@example.com"]}
  - {id: tell, type: message, with: {text: "Rolled back, decided by {{ nodes.gate.by[0].name }}."}}
  - {id: late, name: Nobody was there, type: message, with: {text: "Nobody decided, so nothing was rolled back."}}
"""


@pytest.mark.long
@pytest.mark.parametrize("screen", sampled(list(SCREENS), ["wide"]))
async def test_nobody_answers_until_it_is_over(browser: Browser, tmp_path: Path, screen: str) -> None:
    """The reminder, both steps of the escalation and the end stand where they should, and the buttons go."""
    clock = MovedClock()
    async with (
        running_workspace(clock=clock, port=page_port()) as workspace,
        bot_here(workspace, tmp_path, {"rollback": ROLLBACK}, clock=clock),
        visiting(browser, workspace, "clocks", screen) as visit,
    ):
        await visit.begin("ops", "@sayso rollback")
        await visit.says("Approval needed from @sre", "Closes ", "Nobody was there")
        await visit.pressable(visit.button("Approve"))
        await visit.shot("asked")
        await remind_and_escalate(visit, clock)
        await find_it_elsewhere(visit)
        await run_out(visit, clock)


async def remind_and_escalate(visit: Visit, clock: MovedClock) -> None:
    """Twenty minutes, then half an hour, then an hour."""
    clock.forward(20 * 60 + 5)
    await visit.says("1st reminder")
    await visit.shot("reminded")
    clock.forward(10 * 60)
    await visit.says("@Cleo")
    await visit.shot("escalated")
    clock.forward(30 * 60)


async def find_it_elsewhere(visit: Visit) -> None:
    """The channel and the direct message of the second step lead back to the thread."""
    await visit.go_to("incidents")
    await expect(visit.feed).to_contain_text("rollback")
    await visit.shot("other-channel")
    await visit.act_as("ben")
    await visit.go_to("sayso")
    await expect(visit.feed).to_contain_text("rollback")
    await visit.shot("direct-message")
    await visit.feed.get_by_role("link").last.click()
    await visit.says("Roll checkout back to 2.13?")
    await expect(visit.button("Approve")).to_be_visible()


async def run_out(visit: Visit, clock: MovedClock) -> None:
    """After two hours."""
    clock.forward(60 * 60 + 60)
    await visit.says("Nobody answered in time", "Nobody decided, so nothing was rolled back.")
    await expect(visit.button("Approve")).to_have_count(0)
    await visit.shot("over")
    await in_view(visit.thread.get_by_test_id("message").nth(1))
    await visit.shot("card")
