"""Slack's newer blocks on the page: data tables."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.support.browser import opened_page
from tests.support.workspace import Workspace, running_app

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
Json = dict[str, Any]


def cell(value: str | float) -> Json:
    """A cell of a data table."""
    if isinstance(value, str):
        return {"type": "raw_text", "text": value}
    return {"type": "raw_number", "value": value, "text": f"{value:g} %"}


async def test_a_data_table_is_sorted_and_turned(browser: Any, seen: Workspace) -> None:
    """A press on a column's name sorts all rows, numbers as numbers; the buttons below lead through the pages."""
    rows = [[cell("host"), cell("load")], *([cell(f"web-{n}"), cell(n * 7 % 25)] for n in range(25))]
    table = {"type": "data_table", "caption": "Load by host", "page_size": 10, "rows": rows}
    async with running_app(seen) as app:
        channel = seen.channel("ops").id
        await app.client.chat_postMessage(channel=channel, text="loads", blocks=[table])
        async with opened_page(browser, f"{seen.url}/#/{channel}?as=U0LOCALANA") as page:
            await expect(page.locator("caption")).to_have_text("Load by host")
            assert len(await _column(page, 0)) == 10
            await page.get_by_role("button", name="load").click()
            assert await _column(page, 1) == [f"{n} %" for n in range(10)]
            await page.get_by_role("button", name="Next").click()
            assert await _column(page, 1) == [f"{n} %" for n in range(10, 20)]
            await page.get_by_role("button", name="load").click()
            assert (await _column(page, 1))[0] == "24 %"


async def _column(page: Page, number: int) -> list[str]:
    cells = page.locator(f".data-table tbody tr > :nth-child({number + 1})")
    return await cells.all_text_contents()
