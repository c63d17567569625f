"""What people say and decide in a thread, on a desk and on a phone: taken back, handed over, rejected, a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.support.acting import Workspace
from tests.support.bot import bot_here
from tests.support.browser import SCREENS, Visit, visiting
from tests.support.proving import sampled

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.asyncio(loop_scope="session")]

GATE = """
flow: backups
nodes:
  - id: gate
    type: approval
    with: {message: "Delete the old backups?", approvers: [ben@example.com], require_reason: true, on_reject: continue}
  - id: tell
    type: message
    with: {text: "It was {{ nodes.gate.decision }}, because: {{ nodes.gate.reason }}"}
"""
FILE = """
flow: report
nodes:
  - id: send
    type: ask
    with: {message: "Please drop the report here", accept: files, max_files: 2, max_size: 2KiB}
  - {id: count, type: shell, with: {run: [wc, -l, "{{ nodes.send.files[0].path }}"]}}
  - id: tell
    type: message
    with:
      text: "Thanks for {{ nodes.send.files[0].name }}"
      files: [{path: "{{ nodes.send.files[0].path }}", name: copy.csv}]
"""


@pytest.mark.long
@pytest.mark.parametrize("screen", sampled(list(SCREENS), ["wide"]))
async def test_a_decision_is_handed_over_and_rejected_with_a_reason(
    browser: Browser, seen: Workspace, tmp_path: Path, screen: str
) -> None:
    """The new person is asked instead of the one before, who is refused from then on, and the reason is on it."""
    async with (
        bot_here(seen, tmp_path, {"backups": GATE}),
        visiting(browser, seen, "hand", screen) as visit,
    ):
        await visit.begin("ops", "@sayso backups")
        await visit.says("Delete the old backups?")
        await visit.act_as("ben")
        await hand_over(visit)
        await visit.act_as("cleo")
        await reject(visit)


async def hand_over(visit: Visit) -> None:
    """To nobody, to oneself, to Cleo; then one's own press is refused."""
    await visit.pressable(visit.button("More choices"))
    await visit.button("More choices").click()
    await visit.shot("menu")
    await visit.pick("Hand over to someone else…")
    await expect(visit.modal).to_contain_text("Who should answer instead?")
    await visit.submit()
    await expect(visit.modal).to_contain_text("Please complete this required field")
    await visit.modal.locator(".pick").click()
    await visit.shot("people")
    await visit.pick("Ben Okafor")
    await visit.submit()
    await expect(visit.modal).to_contain_text("That is you")
    await visit.shot("not-oneself")
    await visit.modal.locator(".pick").click()
    await visit.pick("Cleo Martin")
    await visit.submit()
    await visit.says("Approval needed from @Cleo Martin", "@Ben Okafor handed")
    await expect(visit.modal).to_have_count(0)
    await visit.button("Approve").click()
    await expect(visit.thread.locator('[data-ephemeral="true"]')).to_contain_text("Only visible to you")
    await visit.shot("refused")


async def reject(visit: Visit) -> None:
    """With a reason, after none."""
    await visit.pressable(visit.button("Reject…"))
    await visit.button("Reject…").click()
    await visit.submit()
    await expect(visit.modal).to_contain_text("Please complete this required field")
    await visit.shot("reason-missing")
    await visit.modal.locator("textarea").fill("The last restore is *not* tested yet & <!channel>")
    await visit.submit()
    await visit.says("Rejected by @Cleo Martin", "“The last restore is not tested yet & <!channel>”")
    await visit.says("It was reject, because:")
    await expect(visit.button("Approve")).to_have_count(0)
    await visit.shot("rejected")


@pytest.mark.parametrize("screen", sampled(list(SCREENS), ["phone"]))
async def test_a_file_is_the_answer(browser: Browser, seen: Workspace, tmp_path: Path, screen: str) -> None:
    """One that is too large is refused in words; one that fits answers, dropped on a desk and chosen on a phone."""
    async with (
        bot_here(seen, tmp_path, {"report": FILE}),
        visiting(browser, seen, "file", screen) as visit,
    ):
        await visit.begin("ops", "@sayso report")
        await visit.says("Add to this thread: up to 2 files of at most 2KiB each")
        await visit.shot("asked")
        await visit.drop("big.csv", "x" * 3_000)
        await visit.says("the limit is 2,048")
        await visit.shot("refused")
        await visit.drop("../hosts <b>.csv", "host,load\neu-1,12\n")
        await visit.says("Thanks for", "copy.csv", "Completed in")
        await visit.shot("taken")
