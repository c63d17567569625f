"""A headless Chromium for tests of the page. Without one they are skipped; on CI that is a failure."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Browser, Page, async_playwright

CANDIDATES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-sync",
    "--disable-component-update",
]
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


@asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    """A started browser."""
    path = chromium()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def opened_page(browser: Browser, address: str, **options: Any) -> AsyncIterator[Page]:
    """A page of its own session at this address. At the end, an error that its scripts threw fails the test."""
    context = await browser.new_context(viewport=options.pop("viewport", WIDE), locale="en-GB", **options)
    context.set_default_timeout(10_000)
    page = await context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda problem: problems.append(str(problem)))
    try:
        await page.goto(address)
        yield page
        assert not problems, f"scripts of the page failed: {problems}"
    finally:
        await context.close()
