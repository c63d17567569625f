"""The example that the README begins with, as a person goes through it: by clicking, on a desk and on a phone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from bot.workspace import Suggestion
from tests.support.acting import Workspace
from tests.support.bot import ROOT, BotProcess
from tests.support.browser import PHONE, WIDE, in_view, opened_page, running_browser

pytestmark = [pytest.mark.browser, pytest.mark.process]

NEW_OR_SMALL = {"current.log", "archive/notes.txt"}


class Visit:
    """A page as a person uses it; `shot` keeps what they see where SAYSO_SCREENSHOTS says."""

    def __init__(self, page: Page, name: str) -> None:
        self.page, self.name = page, name
        self.thread = page.get_by_test_id("thread-pane")
        self.folder = os.environ.get("SAYSO_SCREENSHOTS")  # the browser makes it
        self.taken = 0

    async def shot(self, what: str) -> None:
        """Keep a picture, if pictures are wanted."""
        self.taken += 1
        if self.folder:
            await self.page.screenshot(path=f"{self.folder}/{self.name}-{self.taken}-{what}.png")

    async def act_as(self, name: str) -> None:
        """Choose another person with the switch of people."""
        await self.page.get_by_test_id("act-as").click()
        await self.page.get_by_test_id(f"act-as-{name}").click()

    def button(self, label: str | re.Pattern[str]) -> Locator:
        """A button of the thread."""
        return self.thread.get_by_role("button", name=label)


@pytest.mark.parametrize(
    ("name", "viewport"), [("wide", WIDE), pytest.param("phone", PHONE, marks=pytest.mark.long)]
)
async def test_a_cleanup_by_clicking_only(
    workspace: Workspace, tmp_path: Path, name: str, viewport: dict[str, int]
) -> None:
    """Suggestion, choice, refused own approval, approval by somebody else: the old and large files are gone, the
    others are not, and the thread says how much was won."""
    demo, home = tmp_path / "demo", tmp_path / "home"
    home.mkdir()
    make_demo(demo)
    workspace.suggest([Suggestion("ops", "Clean up", f"@sayso disk-cleanup path={demo}")])
    bot = BotProcess(workspace, home, ROOT / "examples")
    try:
        await bot.start()
        async with (
            running_browser() as browser,
            opened_page(browser, workspace.url, viewport=viewport) as page,
        ):
            await clean_up(Visit(page, name))
    finally:
        await bot.close()
    assert files(demo) == NEW_OR_SMALL


async def clean_up(visit: Visit) -> None:
    """From the first page to the report."""
    page, thread = visit.page, visit.thread
    if visit.name == "phone":
        await page.get_by_test_id("channel-ops").click()
    await visit.shot("suggestion")
    await page.get_by_test_id("suggestion").click()
    await expect(visit.button(re.compile("^All 4"))).to_be_visible()
    await visit.shot("question")
    await visit.button(re.compile("^All 4")).click()
    await expect(thread).to_contain_text("Answered by @Ana Ruiz")
    await expect(visit.button("Delete them")).to_be_visible()
    await visit.shot("approval")

    await visit.button("Delete them").click()
    refusal = thread.locator('[data-ephemeral="true"]')
    await expect(refusal).to_contain_text("Only visible to you")
    await expect(refusal).to_contain_text("somebody else")
    await visit.shot("refused")

    await visit.act_as("ben")
    await expect(visit.button("Delete them")).to_be_visible()
    await expect(refusal).to_have_count(0)
    await visit.shot("as-ben")
    await visit.button("Delete them").click()
    await expect(thread).to_contain_text("Approved by @Ben Okafor")
    await expect(thread).to_contain_text(re.compile(r"279 MB"))
    await expect(thread).to_contain_text("Completed in")
    await expect(visit.button("Delete them")).to_have_count(0)
    await expect(visit.button("Cancel")).to_have_count(0)
    await visit.shot("report")
    await in_view(thread.get_by_test_id("message").nth(1))
    await visit.shot("card")


def make_demo(folder: Path) -> None:
    """The folder that `make run` makes."""
    tool = ROOT / "examples" / "tools" / "disk_cleanup.py"
    subprocess.run([sys.executable, str(tool), "demo", str(folder)], check=True, stdout=subprocess.DEVNULL)


def files(folder: Path) -> set[str]:
    """What is below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
