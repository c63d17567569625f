"""Takes the pictures of the documentation from the running page: `python -m docs.screenshots [DIRECTORY]`.

The real bot serves the examples in a local workspace. `approval`: Ana has chosen what to delete, and Ben is asked to
approve it. `control-room`: a run that failed, and one that waits. `agent`: a script in the place of Claude has looked into a failing service and wants to run a command.
Needs Chromium, and a font with emoji.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, expect

from bot.config.settings import load_settings
from bot.serve.main import Bot
from tests.support import roomful
from tests.support.acting import Workspace
from tests.support.bot import ThreadView, start_flow
from tests.support.browser import opened_page, running_browser
from tests.web.conftest import visited

ROOT = Path(__file__).resolve().parents[1]
DESKTOP = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}

CHATTER = (
    ("ben", "Deploy of *checkout* 2.14 is through, graphs look calm."),
    ("cleo", "Thanks! I have told the two customers who were waiting for it."),
    ("dev", "The disk of `web-2` is at 91 % and grows by about 1 % an hour. It will page somebody tonight."),
    ("ana", "I am on call, I will clean it up now."),
)


@asynccontextmanager
async def served(workspace: Workspace, home: Path) -> AsyncIterator[None]:
    """The bot with the example flows, connected to this workspace."""
    environ = {
        "SLACK_BOT_TOKEN": workspace.bot_token,
        "SLACK_APP_TOKEN": workspace.app_token,
        "SLACK_API_URL": workspace.api_url,
    }
    settings = load_settings(environ, cwd=home)
    settings = replace(settings, agents=replace(settings.agents, scripted="without_key"))
    bot = Bot(settings, flows=[ROOT / "examples"])
    running = asyncio.create_task(bot.run())
    try:
        await workspace.connected(2)
        yield
    finally:
        bot.stop()
        await running


@contextmanager
def demo_directory() -> Iterator[Path]:
    """A directory worth cleaning, with a name that looks well in a picture. `FileExistsError` when it is taken."""
    path = Path(tempfile.gettempdir()).resolve() / "web-2"
    path.mkdir()
    try:
        subprocess.run(
            [ROOT / "examples/tools/disk_cleanup.py", "demo", path], check=True, capture_output=True
        )
        yield path
    finally:
        shutil.rmtree(path)


async def story(workspace: Workspace, logs: Path) -> ThreadView:
    """As far as the approval: what people and the bot said before Ben is asked."""
    for name, text in CHATTER:
        await workspace.post(name, "ops", text)
    thread = await start_flow(workspace, "ana", "ops", f"disk-cleanup path={logs}")
    asked = await thread.says("Which should be deleted?")
    button = next(text for text in _labels(asked) if text.startswith("All "))
    await thread.press("ana", asked, button)
    await thread.says("Delete these files")
    await workspace.settled()
    return thread


async def investigation(workspace: Workspace) -> ThreadView:
    """As far as the command that an agent wants to run."""
    thread = await start_flow(workspace, "ana", "ops", "why is checkout failing?")
    await thread.press("ana", await thread.says("Was that on purpose?"), "It was a slip")
    await thread.says("wants to use")
    await workspace.settled()
    return thread


def _labels(message: dict[str, Any]) -> list[str]:
    blocks = [block for block in message["blocks"] if block["type"] == "actions"]
    return [element["text"]["text"] for block in blocks for element in block["elements"]]


async def pictures(browser: Browser, address: str, file: Path, button: str) -> None:
    """Two pictures of a thread, on a desk and on a phone, once everything in it has its place."""
    phone: dict[str, Any] = {"viewport": PHONE, "device_scale_factor": 2, "has_touch": True}
    for name, options in ((file.stem, {"viewport": DESKTOP}), (f"{file.stem}-phone", phone)):
        async with opened_page(browser, address, **options) as page:
            await expect(page.get_by_role("button", name=button).last).to_be_in_viewport()
            await page.wait_for_load_state("networkidle")
            await page.screenshot(path=file.with_stem(name), animations="disabled")


async def control_room(browser: Browser, folder: Path) -> None:
    """Two pictures of the control room: a failed run on a desk, and one that waits for an approval on a phone."""
    phone: dict[str, Any] = {"viewport": PHONE, "device_scale_factor": 2, "has_touch": True}
    with tempfile.TemporaryDirectory(prefix="sayso-") as home:
        await roomful.fill(Path(home) / "sayso.db", 20)
        async with visited(Path(home), write=True) as visitor:
            await visitor.log_in()
            await visitor.all_read()
            for name, standing, options in (
                ("control-room", "failed", {"viewport": DESKTOP}),
                ("control-room-phone", "waiting", phone),
            ):
                wanted = {"flow": "deploy-checkout", "standing": standing}
                found = (await visitor.get("sessions", **wanted))["sessions"][0]["sessionId"]
                page = await browser.new_page(**options)
                await page.goto(f"{visitor.url}/#token={visitor.room.access.token}")
                await expect(page.locator(".session-row").first).to_be_visible()
                await page.goto(f"{visitor.url}/sessions/{found}")
                await expect(page.locator(".live-text")).to_have_text("live")
                await page.screenshot(path=folder / f"{name}.png", animations="disabled")
                await page.close()


async def take(folder: Path) -> None:
    """All pictures, into this folder."""
    async with running_browser() as browser:
        await control_room(browser, folder)
    with tempfile.TemporaryDirectory(prefix="sayso-") as scratch, demo_directory() as logs:
        async with Workspace() as workspace, served(workspace, Path(scratch)), running_browser() as browser:
            thread = await story(workspace, logs)
            await pictures(
                browser, _address(workspace, thread, "ben"), folder / "approval.png", "Delete them"
            )
            thread = await investigation(workspace)
            await pictures(browser, _address(workspace, thread, "ana"), folder / "agent.png", "Approve")


def _address(workspace: Workspace, thread: ThreadView, person: str) -> str:
    channel = workspace.channel("ops").id
    return f"{workspace.url}/#/{channel}/{thread.root_ts}?as={workspace.user(person).id}"


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/images"
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(take(target))
