"""The example that the README begins with, as a person goes through it: by clicking, on a desk and on a phone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from bot.workspace import Suggestion
from tests.support.acting import Workspace
from tests.support.bot import ROOT, BotProcess
from tests.support.browser import SCREENS, Visit, in_view, visiting
from tests.support.proving import sampled

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.asyncio(loop_scope="session")]

NEW_OR_SMALL = {"current.log", "archive/notes.txt"}


@pytest.mark.parametrize("screen", sampled(list(SCREENS), ["wide"]))
async def test_a_cleanup_by_clicking_only(
    browser: Browser, seen: Workspace, tmp_path: Path, screen: str
) -> None:
    """Suggestion, choice, refused own approval, approval by somebody else: the old and large files are gone, the
    others are not, and the thread says how much was freed."""
    demo, home = tmp_path / "demo", tmp_path / "home"
    home.mkdir()
    make_demo(demo)
    seen.suggest([Suggestion("ops", "Clean up", f"@sayso disk-cleanup path={demo}")])
    bot = BotProcess(seen, home, ROOT / "examples")
    try:
        await bot.start()
        async with visiting(browser, seen, "cleanup", screen) as visit:
            await clean_up(visit)
    finally:
        await bot.close()
    assert files(demo) == NEW_OR_SMALL


async def clean_up(visit: Visit) -> None:
    """From the first page to the report."""
    page, thread = visit.page, visit.thread
    if visit.is_phone:
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
