"""A form, an edit and a quorum of two, as people go through them on a phone: by tapping only."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from bot.workspace import Suggestion
from tests.support.acting import Workspace
from tests.support.bot import counted, running_bot
from tests.support.browser import Visit, in_view, visiting

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.asyncio(loop_scope="session")]

FLOW = """
flow: traffic
description: Move traffic to another region
nodes:
  - id: plan
    type: ask
    with:
      message: "What do we move?"
      form:
        properties:
          service: {type: string, title: Service, enum: [checkout, search, mail]}
          ticket: {type: string, title: Ticket, pattern: "^OPS-[0-9]+$", description: "The change request, such as OPS-12"}
          day: {type: string, format: date, title: Day}
          owner: {type: string, format: user, title: Owner}
          loud: {type: boolean, title: Tell everybody, default: false}
        required: [service, ticket]
  - id: gate
    type: approval
    with:
      message: "Move *{{ nodes.plan.values.service }}* for {{ nodes.plan.values.ticket }}?"
      approvers: ["@sre", cleo@example.com, ben@example.com]
      on_reject: continue
      required: 2
      require_reason: true
      timeout: 30m
      on_timeout: reject
      form:
        properties:
          region: {type: string, title: Region, enum: [eu, us, ap], default: eu}
          percent: {type: integer, title: Percent of the traffic, minimum: 1, maximum: 100, default: 100}
        required: [region, percent]
      editable: [region, percent]
      covers: move
  - id: move
    type: shell
    if: "{{ nodes.gate.decision == 'approve' }}"
    with: {script: 'echo "$WHAT" >> "$LOG"', env: {WHAT: "{{ nodes.plan.values.service }}:{{ nodes.gate.values.region }}:{{ nodes.gate.values.percent }}", LOG: "LOGFILE"}}
  - {id: tell, type: message, with: {text: "Traffic is in {{ nodes.gate.values.region }} now"}}
"""


async def test_a_form_an_edit_and_a_quorum_on_a_phone(
    browser: Browser, seen: Workspace, tmp_path: Path
) -> None:
    """A mistake is shown at its field, an edit shows the difference and voids the vote before it, two people decide."""
    log = tmp_path / "log"
    seen.suggest([Suggestion("ops", "Move traffic", "@sayso traffic")])
    async with (
        running_bot(seen, tmp_path, {"traffic": FLOW.replace("LOGFILE", str(log))}),
        visiting(browser, seen, "decisions", "phone") as phone,
    ):
        await phone.page.get_by_test_id("channel-ops").click()
        await phone.page.get_by_test_id("suggestion").click()
        await fill_in(phone)
        await edit_and_decide(phone)
    assert counted(log) == ["checkout:us:25"]


async def fill_in(phone: Visit) -> None:
    """The form, with a mistake first."""
    await expect(phone.button("Fill in")).to_be_visible()
    await phone.shot("question")
    await phone.button("Fill in").click()
    await expect(phone.modal).to_contain_text("Ticket")
    await phone.shot("form")
    await phone.field("service").get_by_text("checkout").click()
    await phone.field("ticket").locator("input").fill("later")
    await phone.submit()
    await expect(phone.field("ticket")).to_contain_text("This must fit the pattern")
    await phone.shot("mistake")
    await phone.field("ticket").locator("input").fill("OPS-7")
    await phone.submit()
    await expect(phone.thread).to_contain_text("Answered by @Ana Ruiz")
    await phone.shot("filled-in")


async def edit_and_decide(phone: Visit) -> None:
    """A vote, an edit that voids it, a rejection that is thought better of, two votes."""
    await phone.act_as("ben")
    await expect(phone.button("Approve")).to_be_visible()
    await in_view(phone.button("Approve"))
    await phone.shot("approval")
    await phone.button("Approve").click()
    await expect(phone.thread).to_contain_text("1 of 2 approved: @Ben Okafor")
    await phone.shot("one-vote")

    await phone.act_as("cleo")
    await phone.button("Edit…").click()
    await expect(phone.field("percent").locator("input")).to_have_value("100")
    await phone.shot("edit")
    await phone.field("region").get_by_text("us", exact=True).click()
    await phone.field("percent").locator("input").fill("25")
    await phone.submit()
    await expect(phone.thread).to_contain_text("eu → us")
    await expect(phone.thread).to_contain_text("0 of 2 approved")
    await in_view(phone.button("Approve"))
    await phone.shot("difference")

    await phone.button("Reject…").click()
    await expect(phone.modal).to_contain_text("Why?")
    await phone.submit()
    await expect(phone.modal).to_contain_text("Please complete this required field")
    await phone.shot("reason")
    await phone.page.get_by_test_id("modal-close").click()

    await phone.thread.get_by_role("button", name="More choices").last.click()
    await phone.shot("more")
    await phone.page.get_by_text("Hand over to someone else…").click()
    await expect(phone.modal).to_contain_text("Who should answer instead?")
    await phone.shot("hand-over")
    await phone.page.get_by_test_id("modal-close").click()

    await phone.button("Approve").click()
    await expect(phone.thread).to_contain_text("1 of 2 approved: @Cleo")
    await phone.act_as("ben")
    await phone.button("Approve").click()
    await expect(phone.thread).to_contain_text("Traffic is in us now")
    await expect(phone.thread).to_contain_text("Approved by @Cleo")
    await in_view(phone.thread.get_by_text("Percent of the traffic").first)
    await phone.shot("approved")
    await in_view(phone.thread.get_by_test_id("message").nth(1))
    await phone.shot("card")
