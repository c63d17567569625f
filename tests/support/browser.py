"""A headless Chromium for tests of the page. Without one they are skipped; on CI that is a failure.

To open a page costs two seconds of processor, so it stays open from test to test (`opened_page`), as a tab does while
`make run` is restarted: every test starts a workspace of its own at the port that the page came from (`page_port`).
"""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
from playwright.async_api import (
    Browser,
    Error,
    FilePayload,
    FloatRect,
    Locator,
    Page,
    async_playwright,
    expect,
)

from tests.support.acting import Workspace

CANDIDATES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--headless=new",
    "--remote-debugging-port=0",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--mute-audio",
    "--no-default-browser-check",
    "--no-first-run",
    "--password-store=basic",
]
PICTURES = os.environ.get("SAYSO_SCREENSHOTS")
"""The folder for pictures of what is seen (the browser makes it); without one nobody looks at motion."""
expect.set_options(timeout=20_000)  # milliseconds: on a busy machine a page that is right may take its time
WIDE = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}


def chromium() -> str:
    """The path of an installed Chromium; skips the test when there is none."""
    found = next(filter(None, map(shutil.which, CANDIDATES)), None)
    if found is None:
        reason = f"no Chromium in PATH (looked for {', '.join(CANDIDATES)})"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@cache
def _browser() -> str:
    """Where the one browser of this process listens. It ends with the process."""
    folder = tempfile.mkdtemp(prefix="browser-")
    process = subprocess.Popen(
        [chromium(), *FLAGS, f"--user-data-dir={folder}", "about:blank"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )

    def end() -> None:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("DevTools listening on "):
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return line.split()[-1]
    raise AssertionError("Chromium ended at once")


@asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    """A browser: every page has a session of its own in it."""
    address = await asyncio.to_thread(_browser)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(address)
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Kept:
    """A page that stays open between tests, and the errors that its scripts threw."""

    page: Page
    origin: str
    problems: list[str] = field(default_factory=list)


_KEPT: dict[str, Kept] = {}
"""By how the screen is."""
_PORTS = iter(range(20_000 + os.getpid() % 1_000 * 10, 32_000))

NOBODY = "U0LOCALCLEO"
"""As whom a page waits for the next test, in a channel that none writes in: what a test does is news to it."""
WAITING = f"#/C0LOCALRND?as={NOBODY}"
EMPTIED = """() => {
  localStorage.clear();
  for (const note of document.querySelectorAll(".toast")) note.remove();
  for (const field of document.querySelectorAll(".composer textarea")) {
    field.value = "";
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
  document.getElementById("announcer").textContent = "";
}"""
LEFT = "document.querySelectorAll('dialog[open], .popup, .toast, .composer .chip').length"


@cache
def page_port() -> int:
    """Where a workspace listens whose page stays open. No other process gets this port by asking for any free one."""
    for port in _PORTS:
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


@asynccontextmanager
async def opened_page(
    browser: Browser, address: str, *, fresh: bool = False, **options: Any
) -> AsyncIterator[Page]:
    """A page at this address, whose route names a person: the one that the last test used, with nothing left of that;
    or a `fresh` one. At the end, an error that its scripts threw fails the test."""
    origin = address.partition("/#")[0]
    key = f"{options}"
    lasts = not fresh and origin.endswith(f":{page_port()}")
    kept = _KEPT.pop(key, None) if lasts else None
    if kept is None:
        kept = await _opened(browser, address, options)
    else:
        await kept.page.goto(address)
        if NOBODY not in address:
            await expect(kept.page.get_by_test_id("act-as")).not_to_contain_text("Cleo")
        await kept.page.evaluate(EMPTIED)  # that the workspace before was stopped is no news here
    try:
        yield kept.page
        assert not kept.problems, f"scripts of the page failed: {kept.problems}"
        if lasts and await _emptied(kept):
            _KEPT[key] = kept
    finally:
        if _KEPT.get(key) is not kept:
            await kept.page.context.close()


async def _opened(browser: Browser, address: str, options: dict[str, Any]) -> Kept:
    motion = "no-preference" if PICTURES else "reduce"
    options = {"viewport": WIDE, "locale": "en-GB", "reduced_motion": motion, **options}
    context = await browser.new_context(**options)
    context.set_default_timeout(30_000)
    kept = Kept(await context.new_page(), address.partition("/#")[0])
    kept.page.on("pageerror", lambda problem: kept.problems.append(str(problem)))
    await kept.page.goto(address)
    return kept


async def _emptied(kept: Kept) -> bool:
    """Whether nothing of a test is left on a page."""
    page = kept.page
    await page.unroute_all(behavior="ignoreErrors")
    await page.mouse.move(0, 0)
    await page.evaluate(EMPTIED)
    if NOBODY in page.url:
        await page.goto(f"{kept.origin}/#/?as=U0LOCALBEN")
        await expect(page.get_by_test_id("act-as")).to_contain_text("Ben")
    await page.goto(f"{kept.origin}/{WAITING}")
    await expect(page.get_by_test_id("act-as")).to_contain_text("Cleo")
    return not await page.evaluate(LEFT)


SCREENS = {
    "wide": {"viewport": WIDE},
    "phone": {
        "viewport": PHONE,
        "has_touch": True,
        "is_mobile": True,
        "device_scale_factor": 2 if PICTURES else 1,
    },
}
"""The screens on which people use Slack: on a desk, and in a hand."""

DROPPED = """([name, content]) => {
  const held = new DataTransfer();
  held.items.add(new File([content], name));
  return held;
}"""

CUT = """[...document.querySelectorAll(".pane")].filter((one) => one.scrollWidth > one.clientWidth + 1)
  .map((one) => `${one.className}: ${one.scrollWidth} of ${one.clientWidth}`)"""
"""The parts of the page whose content is wider than they are: what sticks out of them nobody sees or presses."""

SMALLEST = 44
"""Pixels that a finger needs in height."""


class Visit:
    """A page as a person uses it; `shot` keeps what they see where SAYSO_SCREENSHOTS says."""

    def __init__(self, page: Page, story: str, screen: str) -> None:
        self.page, self.story, self.screen = page, story, screen
        self.thread = page.get_by_test_id("thread-pane")
        self.feed = page.locator("#feed")
        self.home = page.locator("#home")
        self.modal = page.locator("dialog .modal-form")
        self.menu = page.get_by_role("listbox")
        self.taken = 0

    @property
    def is_phone(self) -> bool:
        """Whether fingers press here."""
        return self.screen == "phone"

    async def shot(self, what: str) -> None:
        """Keep a picture, if pictures are wanted. Whatever else, nothing may stick out of the screen."""
        sizes = await self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert sizes[0] <= sizes[1], f"{what}: the page is {sizes[0]} wide, the screen {sizes[1]}"
        cut = await self.page.evaluate(CUT)
        assert cut == [], f"{what}: wider than the screen, and cut off: {cut}"
        self.taken += 1
        if PICTURES:
            name = f"{self.story}-{self.screen}-{self.taken:02}-{what}.png"
            await self.page.screenshot(path=f"{PICTURES}/{name}")

    async def act_as(self, name: str) -> None:
        """Choose another person with the switch of people."""
        await self.page.get_by_test_id("act-as").click()
        await self.page.get_by_test_id(f"act-as-{name}").click()
        await expect(self.page.get_by_test_id("act-as")).to_contain_text(name.title())

    async def go_to(self, channel: str) -> None:
        """Open a channel, or a direct conversation by the other's name, from the list."""
        if self.is_phone:
            await self.page.locator(".brand").click()
        await self.page.get_by_test_id(f"channel-{channel}").click()

    async def begin(self, channel: str, text: str) -> None:
        """Write in a channel, and wait for the thread that follows; it opens where somebody answers."""
        await self.go_to(channel)
        await self.write(text, "composer")
        said = self.feed.get_by_test_id("message").filter(has_text=text).last
        await said.get_by_test_id("open-thread").click()
        await expect(self.thread).to_contain_text(text)

    async def write(self, text: str, composer: str = "thread-composer") -> None:
        """Write and send: with Enter on a desk, with the button on a phone."""
        await self.page.get_by_test_id(composer).fill(text)
        if self.is_phone:
            await self.page.get_by_test_id(f"{composer}-send").click()
        else:
            await self.page.get_by_test_id(composer).press("Enter")

    def button(self, label: str | re.Pattern[str]) -> Locator:
        """A button of the thread; the newest where there are several."""
        return self.thread.get_by_role("button", name=label, exact=isinstance(label, str)).last

    def field(self, name: str) -> Locator:
        """A field of the modal."""
        return self.modal.locator(f'[data-block="field:{name}"]')

    async def says(self, *parts: str | re.Pattern[str]) -> None:
        """Wait until the thread shows this."""
        for part in parts:
            await expect(self.thread).to_contain_text(part)

    async def pick(self, label: str | re.Pattern[str]) -> None:
        """Choose from the menu that is open."""
        await self.menu.get_by_role("option", name=label).click()

    async def submit(self) -> None:
        """Send the modal."""
        await self.page.get_by_test_id("modal-submit").click()

    async def drop(self, name: str, content: str) -> None:
        """Send a file in the thread: dropped onto the composer on a desk, chosen on a phone."""
        if self.is_phone:
            file: FilePayload = {"name": name, "mimeType": "text/plain", "buffer": content.encode()}
            await self.page.get_by_test_id("thread-composer-file").set_input_files(file)
        else:
            dropped = await self.page.evaluate_handle(DROPPED, [name, content])
            box = self.thread.locator(".composer")
            await box.dispatch_event("drop", {"dataTransfer": dropped})
        await self.page.get_by_test_id("thread-composer-send").click()

    async def pressable(self, thing: Locator) -> None:
        """On a phone, a finger can hit it: it is tall enough and in view."""
        box = await in_view(thing)
        if self.is_phone:
            assert box["height"] >= SMALLEST, f"{await thing.text_content()!r} is {box['height']} px tall"
            assert box["x"] >= 0, "it sticks out at the left"
            assert box["x"] + box["width"] <= PHONE["width"], "it sticks out at the right"


async def in_view(thing: Locator) -> FloatRect:
    """Scroll to it, and where it is then. What was drawn again in between is looked for again: a thread may change at any
    moment, and its locator finds the new one."""
    for _ in range(20):
        try:
            await thing.scroll_into_view_if_needed()
            box = await thing.bounding_box()
        except Error as error:
            if "not attached" not in str(error):
                raise
            continue
        if box is not None:
            return box
    raise AssertionError(f"it is drawn anew all the time: {thing}")


@asynccontextmanager
async def visiting(
    browser: Browser, workspace: Workspace, story: str, screen: str, person: str = "ana"
) -> AsyncIterator[Visit]:
    """Somebody who has just opened the page on this screen (a name of `SCREENS`)."""
    address = f"{workspace.url}/#/?as={workspace.user(person).id}"
    async with opened_page(browser, address, **SCREENS[screen]) as page:
        yield Visit(page, story, screen)
