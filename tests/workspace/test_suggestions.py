"""Suggestions: what the page offers to say by a click."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect
from slack_bolt.async_app import AsyncApp

from bot.workspace import Suggestion, WorkspaceError
from tests.support.acting import Workspace
from tests.support.browser import SCREENS, opened_page
from tests.support.workspace import running_app, running_workspace

Json = dict[str, Any]
CLEAN = Suggestion("ops", "Clean up", "@sayso clean path=/srv & co", "Frees space")
HELP = Suggestion("ops", "What can you do?", "@sayso help")
SHIP = Suggestion("releases", "Ship it", "@sayso ship")


async def offered(workspace: Workspace, person: str) -> list[Json]:
    """The suggestions that this person's page gets."""
    query = {"as": workspace.user(person).id}
    async with (
        aiohttp.ClientSession(workspace.url) as session,
        session.get("/page/state", params=query) as answer,
    ):
        found: list[Json] = (await answer.json())["suggestions"]
        return found


async def test_the_page_gets_the_suggestions_with_the_ids_of_their_channels() -> None:
    """The state of the page names channel, label, text and hint of each suggestion, in the order given."""
    async with running_workspace(suggestions=[CLEAN, SHIP]) as workspace:
        ops, releases = workspace.channel("ops").id, workspace.channel("releases").id
        assert await offered(workspace, "ana") == [
            {
                "channel": ops,
                "label": "Clean up",
                "text": "@sayso clean path=/srv & co",
                "hint": "Frees space",
            },
            {"channel": releases, "label": "Ship it", "text": "@sayso ship", "hint": ""},
        ]


async def test_suggestions_can_be_replaced_while_the_workspace_runs() -> None:
    """`suggest` puts others in the place of those before, and without any the page gets an empty list."""
    async with running_workspace() as workspace:
        assert await offered(workspace, "ana") == []
        workspace.suggest([CLEAN, HELP])
        workspace.suggest([SHIP])
        assert [each["label"] for each in await offered(workspace, "ana")] == ["Ship it"]


async def test_nobody_is_offered_something_for_a_channel_that_they_cannot_see() -> None:
    """A suggestion for a private channel reaches its members only."""
    async with running_workspace() as workspace:
        workspace.add_channel("secret", members=["ben"], is_private=True)
        workspace.suggest([Suggestion("secret", "Hush", "@sayso hush")])
        assert await offered(workspace, "ana") == []
        assert len(await offered(workspace, "ben")) == 1


@pytest.mark.parametrize(
    ("suggestion", "error"),
    [
        (Suggestion("nowhere", "Go", "go"), "channel_not_found"),
        (Suggestion("ops", " ", "go"), "no_text"),
        (Suggestion("ops", "Go", ""), "no_text"),
    ],
)
def test_a_suggestion_that_could_not_be_posted_is_refused(suggestion: Suggestion, error: str) -> None:
    """An unknown channel, and a missing label or text, are errors of whoever makes the workspace."""
    with pytest.raises(WorkspaceError) as refused:
        Workspace(suggestions=[suggestion])
    assert refused.value.error == error


# --- on the page -------------------------------------------------------------------------------------------


@pytest_asyncio.fixture(loop_scope="session")
async def desk(seen: Workspace) -> AsyncIterator[Workspace]:
    """A workspace with suggestions, and an app that answers mentions in their thread."""

    def configure(app: AsyncApp) -> None:
        @app.event("app_mention")
        async def answer(event: Json, client: Any) -> None:
            await client.chat_postMessage(channel=event["channel"], thread_ts=event["ts"], text="On it")

    seen.suggest([CLEAN, HELP, SHIP])
    async with running_app(seen, configure):
        yield seen


def chips(page: Page) -> Any:
    """The chips that can be seen."""
    return page.get_by_test_id("suggestion").filter(visible=True)


def place(workspace: Workspace, channel: str, person: str = "ana") -> str:
    """The address of a channel as somebody."""
    return f"{workspace.url}/#/{workspace.channel(channel).id}?as={workspace.user(person).id}"


on_page = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.browser
@on_page
async def test_a_click_posts_the_text_as_the_person_and_opens_the_answer(
    browser: Browser, desk: Workspace
) -> None:
    """The suggestion is posted once, by whom one acts as, even on a double click; the thread of the answer opens."""
    async with opened_page(browser, place(desk, "ops", "ben")) as page:
        await expect(chips(page)).to_have_text(["Clean up", "What can you do?"])
        await chips(page).first.dblclick()
        thread = page.get_by_test_id("thread-pane")
        await expect(thread).to_contain_text("On it")
        await expect(thread).to_contain_text("@sayso clean path=/srv & co")
        posted = [message["user"] for message in desk.messages("ops")]
        assert posted == [desk.user("ben").id]
        await expect(page.get_by_test_id("composer")).to_have_value("")


@pytest.mark.browser
@on_page
async def test_each_channel_has_its_own_and_new_ones_show_at_once(browser: Browser, desk: Workspace) -> None:
    """Another channel shows its own suggestions, one without any shows none, and a replaced list is drawn again."""
    async with opened_page(browser, place(desk, "ops")) as page:
        await page.get_by_test_id("channel-releases").click()
        await expect(chips(page)).to_have_text(["Ship it"])
        await page.get_by_test_id("channel-random").click()
        await expect(page.get_by_test_id("suggestions")).to_be_hidden()
        desk.suggest([Suggestion("random", "Say hello", "hello")])
        await expect(chips(page)).to_have_text(["Say hello"])


@pytest.mark.browser
@on_page
async def test_of_many_the_first_three_are_shown_and_the_question_for_help(
    browser: Browser, desk: Workspace
) -> None:
    """The rest is behind a button, which gives the focus to the first of them. A phone says where to begin."""
    many = [Suggestion("ops", f"Flow {number}", f"@sayso flow-{number}") for number in range(1, 8)]
    desk.suggest([*many, HELP])
    async with opened_page(browser, place(desk, "ops")) as page:
        await expect(chips(page)).to_have_text(["Flow 1", "Flow 2", "Flow 3", "What can you do?"])
        more = page.get_by_test_id("more-suggestions")
        await expect(more).to_have_text("4 more…")
        await more.click()
        await expect(chips(page)).to_have_count(8)
        await expect(chips(page).nth(3)).to_be_focused()
    async with opened_page(browser, f"{desk.url}/", fresh=True, **SCREENS["phone"]) as page:
        await expect(page.get_by_test_id("start-here")).to_contain_text("Start in #ops")
        await page.get_by_test_id("start-here").get_by_role("link").click()
        await expect(chips(page)).not_to_have_count(0)


@pytest.mark.browser
@on_page
async def test_they_can_be_hidden_and_shown_again(browser: Browser, desk: Workspace) -> None:
    """Hidden ones stay hidden over a reload, in this channel only, until the button by the composer shows them."""
    async with opened_page(browser, place(desk, "ops")) as page:
        await page.get_by_test_id("hide-suggestions").click()
        await expect(chips(page)).to_have_count(0)
        await expect(page.get_by_test_id("show-suggestions")).to_be_focused()
        await page.reload()
        await page.get_by_test_id("channel-releases").click()
        await expect(chips(page)).to_have_text(["Ship it"])
        await page.get_by_test_id("channel-ops").click()
        await expect(chips(page)).to_have_count(0)
        await page.get_by_test_id("show-suggestions").click()
        await expect(chips(page)).to_have_count(2)


@pytest.mark.browser
@on_page
async def test_the_keyboard_reaches_them(browser: Browser, desk: Workspace) -> None:
    """Shift+Tab from the composer goes through the chips; Enter posts the one that has the focus."""
    async with opened_page(browser, place(desk, "ops")) as page:
        await expect(chips(page)).to_have_count(2)
        await page.get_by_test_id("composer").focus()
        await page.keyboard.press("Shift+Tab")
        await expect(page.get_by_test_id("hide-suggestions")).to_be_focused()
        await page.keyboard.press("Shift+Tab")
        await expect(chips(page).last).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_test_id("thread-pane")).to_contain_text("@sayso help")


@pytest.mark.browser
@on_page
async def test_on_a_phone_they_are_one_row_of_large_chips(browser: Browser, desk: Workspace) -> None:
    """At 390 pixels the chips are in one row that scrolls by itself, each at least 44 pixels tall."""
    async with opened_page(browser, place(desk, "ops"), **SCREENS["phone"]) as page:
        await expect(chips(page)).to_have_count(2)
        boxes = [await chip.bounding_box() for chip in await chips(page).all()]
        assert len({box["y"] for box in boxes}) == 1
        assert min(box["height"] for box in boxes) >= 44
        assert await page.evaluate("document.documentElement.scrollWidth") == 390
        await chips(page).first.click()
        await expect(page.get_by_test_id("thread-pane")).to_contain_text("On it")
