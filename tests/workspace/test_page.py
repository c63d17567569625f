"""The page in the browser, driven as a person drives it, with a real Bolt app on the other side."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import ClientSession
from playwright.async_api import Browser, Locator, Page, Route, expect
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError

from tests.support.acting import Workspace
from tests.support.browser import PHONE, SCREENS, opened_page
from tests.support.workspace import (
    RunningApp,
    actions,
    button,
    modal,
    running_app,
    section,
    text_input,
)
from tests.workspace.test_newer_blocks import FEEDBACK, PLAN

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
Json = dict[str, Any]

GATE = [section("Roll *checkout* back?"), actions(button("Approve", "approve", "p1", style="primary"))]
REGIONS = [{"text": {"type": "plain_text", "text": name}, "value": name} for name in ("eu", "us")]
REGION: Json = {
    "type": "static_select",
    "action_id": "region",
    "options": REGIONS,
    "placeholder": {"type": "plain_text", "text": "Which region"},
}
FORM = modal(
    text_input("version", hint={"type": "plain_text", "text": "Such as v2.14.1"}),
    {
        "type": "input",
        "block_id": "regions",
        "optional": True,
        "label": {"type": "plain_text", "text": "Regions"},
        "element": {"type": "checkboxes", "action_id": "value", "options": REGIONS},
    },
)


def configure(app: AsyncApp) -> None:
    """A tiny app: it asks a question in a thread, opens a form, and answers a command."""

    @app.event("app_mention")
    async def ask(event: Json, client: Any) -> None:
        thread = event.get("thread_ts") or event["ts"]
        await client.chat_postMessage(
            channel=event["channel"], thread_ts=thread, text="Roll back?", blocks=GATE
        )

    @app.action("approve")
    async def approve(ack: Any, body: Json, client: Any) -> None:
        await ack()
        who = body["user"]["id"]
        await client.chat_update(
            channel=body["channel"]["id"],
            ts=body["message"]["ts"],
            text="Approved",
            blocks=[section(f"Approved by <@{who}>")],
        )

    @app.action("open")
    async def open_form(ack: Any, body: Json, client: Any) -> None:
        await ack()
        await client.views_open(trigger_id=body["trigger_id"], view=FORM)

    @app.view("form")
    async def check(ack: Any, view: Json) -> None:
        version = view["state"]["values"]["version"]["value"]["value"]
        if version.startswith("v"):
            await ack()
        else:
            await ack(response_action="errors", errors={"version": "There is no such version."})

    @app.action("silent")
    async def say_nothing(body: Json) -> None:
        """A listener that never acknowledges."""

    @app.command("/sayso")
    async def command(ack: Any, command: Json) -> None:
        await ack(f"You said {command['text']}")


class Desk:
    """A workspace with its app, and pages on it."""

    def __init__(self, workspace: Workspace, app: RunningApp, browser: Browser) -> None:
        self.workspace, self.app, self.browser = workspace, app, browser

    def page(self, route: str = "#/?as=U0LOCALANA", **options: Any) -> AbstractAsyncContextManager[Page]:
        """A page at this place."""
        return opened_page(self.browser, f"{self.workspace.url}/{route}", **options)

    def in_ops(self, person: str = "ana", **options: Any) -> AbstractAsyncContextManager[Page]:
        """A page in #ops, as this person."""
        workspace = self.workspace
        return self.page(f"#/{workspace.channel('ops').id}?as={workspace.user(person).id}", **options)

    async def say(self, text: str, blocks: list[Json] | None = None, **fields: Any) -> str:
        """Post as the app in #ops; returns the ts."""
        channel = self.workspace.channel("ops").id
        answer = await self.app.client.chat_postMessage(channel=channel, text=text, blocks=blocks, **fields)
        return str(answer["ts"])


@pytest_asyncio.fixture(loop_scope="session")
async def desk(browser: Browser, seen: Workspace) -> AsyncIterator[Desk]:
    """A new workspace with the tiny app connected."""
    async with running_app(seen, configure) as app:
        yield Desk(seen, app, browser)


def messages(page: Page, where: str = "#feed") -> Locator:
    """The messages of a pane."""
    return page.locator(where).get_by_test_id("message")


def by_action(page: Page, action_id: str, where: str = "#feed") -> Locator:
    """The control with this action id."""
    return page.locator(f'{where} [data-action-id="{action_id}"]')


async def write(page: Page, text: str, testid: str = "composer") -> None:
    """Write into a composer and press Enter."""
    await page.get_by_test_id(testid).fill(text)
    await page.get_by_test_id(testid).press("Enter")


async def act_as(page: Page, name: str) -> None:
    """Choose another person."""
    await page.get_by_test_id("act-as").click()
    await page.get_by_test_id(f"act-as-{name}").click()
    await expect(page.get_by_test_id("act-as")).to_contain_text(name.title())


async def test_a_posted_message_shows_and_reaches_the_app(desk: Desk) -> None:
    """What is written in the composer appears as this person's message, and the app gets it as an event."""
    async with desk.page() as page:
        await write(page, "two < three & @cleo")
        await expect(messages(page)).to_contain_text("two < three & @Cleo Martin")
        await expect(messages(page)).to_contain_text("Ana Ruiz")
        await expect(page.get_by_test_id("composer")).to_have_value("")
        await desk.workspace.wait_for(lambda: desk.app.events("message"))
        cleo = desk.workspace.user("cleo").id
        assert desk.app.events("message")[0]["event"]["text"] == f"two &lt; three &amp; <@{cleo}>"


async def test_a_thread_opens_beside_the_channel_and_takes_replies(desk: Desk) -> None:
    """The link under a message opens its thread; a reply written there lands in the thread, and the link counts."""
    async with desk.page() as page:
        await write(page, "@sayso rollback checkout")
        await expect(page.get_by_test_id("open-thread")).to_contain_text("1 reply")
        await page.get_by_test_id("open-thread").click()
        await expect(messages(page, "#thread").nth(1)).to_contain_text("Roll checkout back?")
        await write(page, "not yet", "thread-composer")
        await expect(messages(page, "#thread").nth(2)).to_contain_text("not yet")
        await expect(page.get_by_test_id("open-thread")).to_contain_text("2 replies")
        root = desk.workspace.messages("ops")[0]["ts"]
        assert [m["text"] for m in desk.workspace.messages("ops", root)][2] == "not yet"
        await page.keyboard.press("Escape")
        await expect(page.get_by_test_id("thread-pane")).to_be_hidden()


async def test_a_thread_never_shows_the_messages_of_the_one_before(desk: Desk) -> None:
    """While the messages of a thread are read its pane is empty."""
    for text in ("one", "two"):
        await desk.workspace.post("ben", "ops", "reply", thread_ts=await desk.say(text))
    late = asyncio.Event()

    async def answer_late(route: Route) -> None:
        await late.wait()
        await route.continue_()

    async with desk.in_ops() as page:
        await page.get_by_test_id("open-thread").first.click()
        await expect(messages(page, "#thread")).to_contain_text(["one", "reply"])
        await page.route("**/page/messages*thread_ts*", answer_late)
        await page.get_by_test_id("open-thread").last.click()
        await expect(messages(page, "#thread")).to_have_count(0)
        late.set()
        await expect(messages(page, "#thread")).to_contain_text(["two", "reply"])


async def test_a_press_waits_for_the_app_and_then_shows_the_message_it_left(desk: Desk) -> None:
    """A button pressed twice in a row is one click for the app, whose update takes the button away."""
    await desk.say("Roll back?", GATE)
    async with desk.in_ops("ben") as page:
        await by_action(page, "approve").dblclick()
        await expect(messages(page)).to_contain_text("Approved by @Ben Okafor")
        await expect(by_action(page, "approve")).to_have_count(0)
        presses = desk.app.of("block_actions")
        assert [(p["user"]["id"], p["actions"][0]["value"]) for p in presses] == [
            (desk.workspace.user("ben").id, "p1")
        ]


async def test_a_button_that_nobody_acknowledges_says_so_and_can_be_pressed_again(desk: Desk) -> None:
    """Until the time is up the button shows that it waits; then a note says that the app did not answer."""
    await desk.say("Press", [actions(button("Press me", "silent"))])
    async with desk.in_ops() as page:
        await by_action(page, "silent").click()
        await expect(by_action(page, "silent")).to_have_attribute("aria-busy", "true")
        await expect(page.get_by_test_id("toast")).to_be_visible()
        await expect(by_action(page, "silent")).to_have_attribute("aria-busy", "false")


async def test_a_confirm_dialog_stands_before_the_press(desk: Desk) -> None:
    """A button with a `confirm` object sends nothing until the person agreed."""
    plain = {kind: {"type": "plain_text", "text": kind} for kind in ("title", "text", "confirm", "deny")}
    await desk.say("Sure?", [actions(button("Approve", "approve", "p1", confirm=plain))])
    async with desk.in_ops() as page:
        await by_action(page, "approve").click()
        await page.get_by_test_id("confirm-no").click()
        await by_action(page, "approve").click()
        assert desk.app.of("block_actions") == []
        await page.get_by_test_id("confirm-yes").click()
        await expect(messages(page)).to_contain_text("Approved by @Ana Ruiz")


async def test_a_modal_shows_errors_in_place_and_closes_when_accepted(desk: Desk) -> None:
    """Errors of the app are under their field with what was typed kept; a good answer closes the modal."""
    await desk.say("Form", [actions(button("Open", "open"))])
    async with desk.in_ops() as page:
        await by_action(page, "open").click()
        form = page.get_by_test_id("modal")
        await form.get_by_label("Version").fill("2.14")
        await form.get_by_label("us").check()
        await page.get_by_test_id("modal-submit").click()
        await expect(form).to_contain_text("There is no such version.")
        await expect(form.get_by_label("Version")).to_have_value("2.14")
        await expect(form.get_by_label("Version")).to_have_attribute("aria-invalid", "true")
        await form.get_by_label("Version").fill("v2.14.1")
        await expect(form).not_to_contain_text("There is no such version.")
        await page.get_by_test_id("modal-submit").click()
        await expect(form).to_be_hidden()
        values = desk.app.of("view_submission")[-1]["view"]["state"]["values"]
        assert values["version"]["value"]["value"] == "v2.14.1"
        assert [option["value"] for option in values["regions"]["value"]["selected_options"]] == ["us"]


async def test_a_modal_holds_the_focus_and_closes_on_escape(desk: Desk) -> None:
    """Tab never leaves an open modal, its first field has the focus, and Esc closes it."""
    await desk.say("Form", [actions(button("Open", "open"))])
    async with desk.in_ops() as page:
        await by_action(page, "open").click()
        form = page.get_by_test_id("modal")
        await expect(form.get_by_label("Version")).to_be_focused()
        for _ in range(9):
            await page.keyboard.press("Tab")
            inside = "['BODY'].includes(document.activeElement.tagName) || !!document.activeElement.closest('dialog')"
            assert await page.evaluate(inside)
        await page.keyboard.press("Escape")
        await expect(form).to_be_hidden()
        await desk.workspace.wait_for(lambda: not desk.workspace.views("ana"))


async def test_acting_as_another_person_changes_who_speaks_and_what_is_seen(desk: Desk) -> None:
    """After the switch messages are the other person's, and what only the first may see is gone."""
    channel, ana = desk.workspace.channel("ops").id, desk.workspace.user("ana").id
    async with desk.in_ops("ana") as page:
        await desk.app.client.chat_postEphemeral(channel=channel, user=ana, text="just for Ana")
        await expect(messages(page)).to_contain_text("Only visible to you")
        await expect(messages(page)).to_contain_text("just for Ana")
        await act_as(page, "ben")
        await expect(messages(page)).to_have_count(0)
        await write(page, "Ben here")
        await expect(messages(page)).to_contain_text("Ben Okafor")
        assert f"as={desk.workspace.user('ben').id}" in page.url
        assert desk.workspace.messages("ops")[0]["user"] == desk.workspace.user("ben").id


async def test_a_reload_shows_the_same_channel_thread_and_person(desk: Desk) -> None:
    """The address holds where one is and as whom."""
    root = await desk.workspace.post("dev", "releases", "Release day")
    await desk.workspace.post("ben", "releases", "I am in", thread_ts=root)
    async with desk.page() as page:
        await act_as(page, "dev")
        await page.get_by_test_id("channel-releases").click()
        await page.get_by_test_id("open-thread").click()
        await expect(messages(page, "#thread")).to_have_count(2)
        await page.reload()
        await expect(messages(page, "#thread").nth(1)).to_contain_text("I am in")
        await expect(page.get_by_test_id("act-as")).to_contain_text("Dev Rao")
        await expect(page.get_by_test_id("channel-releases")).to_have_attribute("aria-current", "page")
        await page.go_back()
        await expect(page.get_by_test_id("thread-pane")).to_be_hidden()


async def test_changes_arrive_while_one_looks(desk: Desk) -> None:
    """New, changed, reacted-to and deleted messages show without a reload; other channels get a mark."""
    workspace = desk.workspace
    async with desk.in_ops() as page:
        await expect(page.locator("#feed .intro")).to_be_visible()
        ts = await desk.say("Step 1 of 2")
        await expect(messages(page)).to_contain_text("Step 1 of 2")
        await desk.app.client.chat_update(channel=workspace.channel("ops").id, ts=ts, text="Step 2 of 2")
        await expect(messages(page)).to_contain_text("Step 2 of 2")
        await workspace.react("ben", "ops", ts, "eyes")
        await expect(page.get_by_test_id("reaction")).to_have_text(re.compile("1"))
        await workspace.post("cleo", "incidents", "Customers call")
        await expect(page.get_by_test_id("channel-incidents")).to_have_class(re.compile("is-unread"))
        await desk.app.client.chat_delete(channel=workspace.channel("ops").id, ts=ts)
        await expect(messages(page)).to_have_count(0)


async def test_a_redrawn_message_keeps_the_focus_and_what_was_chosen(desk: Desk) -> None:
    """When the app edits a message, the control that had the focus has it again, and typed text stays."""
    note = {**text_input("note", "note", optional=True)}
    ts = await desk.say("One", [section("One"), note])
    async with desk.in_ops() as page:
        await by_action(page, "note").fill("half a sent")
        channel = desk.workspace.channel("ops").id
        await desk.app.client.chat_update(channel=channel, ts=ts, text="Two", blocks=[section("Two"), note])
        await expect(messages(page)).to_contain_text("Two")
        await expect(by_action(page, "note")).to_be_focused()
        await expect(by_action(page, "note")).to_have_value("half a sent")


async def test_a_file_is_attached_and_reaches_the_app(desk: Desk) -> None:
    """A chosen file stands as a chip until it is sent; then it hangs on the message, and the app can read it."""
    async with desk.page() as page:
        file: Any = {"name": "plan.txt", "mimeType": "text/plain", "buffer": b"roll back"}
        await page.get_by_test_id("composer-file").set_input_files(file)
        await expect(page.locator("#composer .chip")).to_contain_text("plan.txt")
        await page.get_by_test_id("composer-send").click()
        await expect(messages(page).get_by_role("link")).to_contain_text("plan.txt")
        await expect(page.locator("#composer .chip")).to_have_count(0)
        sent = desk.workspace.messages("ops")[0]
        assert sent["subtype"] == "file_share"
        assert [(f["name"], f["size"]) for f in sent["files"]] == [("plan.txt", 9)]


async def test_a_slash_command_is_suggested_and_answered_privately(desk: Desk) -> None:
    """`/` offers the app's command; its answer is visible to this person only. In a thread there are none."""
    async with desk.page() as page:
        composer = page.get_by_test_id("composer")
        await composer.press_sequentially("/s")
        await page.get_by_test_id("suggest-sayso").click()
        await composer.press_sequentially("hello")
        await composer.press("Enter")
        await expect(messages(page)).to_contain_text("You said hello")
        await expect(messages(page)).to_contain_text("Only visible to you")
        await write(page, "/nonsense")
        await expect(page.get_by_test_id("toast")).to_contain_text("/nonsense is not a command here")
        await expect(composer).to_have_value("/nonsense")


async def test_mentions_are_completed_with_the_keyboard(desk: Desk) -> None:
    """`@` offers people and the app; arrows choose, Enter takes, and Shift+Enter makes a line."""
    async with desk.page() as page:
        composer = page.get_by_test_id("composer")
        await composer.press_sequentially("hi @d")
        await expect(page.get_by_test_id("suggest-dev")).to_be_visible()
        await composer.press("Enter")
        await expect(composer).to_have_value("hi @dev ")
        await composer.press("Shift+Enter")
        await composer.press_sequentially("bye")
        await composer.press("Enter")
        await expect(messages(page)).to_contain_text("hi @Dev Rao")
        assert desk.workspace.messages("ops")[0]["text"].endswith("\nbye")


async def test_control_k_goes_to_a_channel_and_acts_as_a_person(desk: Desk) -> None:
    """The switcher finds channels and people by a few letters."""
    async with desk.page() as page:
        await expect(page.get_by_test_id("channel-ops")).to_have_attribute("aria-current", "page")
        await page.keyboard.press("Control+k")
        await page.keyboard.type("inc")
        await page.keyboard.press("Enter")
        await expect(page.get_by_test_id("channel-incidents")).to_have_attribute("aria-current", "page")
        await page.keyboard.press("Control+k")
        await page.keyboard.type("cleo")
        await page.keyboard.press("Enter")
        await expect(page.get_by_test_id("act-as")).to_contain_text("Cleo Martin")


async def test_one_edits_and_deletes_only_ones_own_messages(desk: Desk) -> None:
    """The menu of one's own message edits and deletes it; on others' messages it does not offer that."""
    await desk.workspace.post("ben", "ops", "from Ben")
    async with desk.in_ops() as page:
        await write(page, "tpyo")
        await expect(messages(page)).to_have_count(2)
        await page.get_by_test_id("composer").press("ArrowUp")
        await page.get_by_test_id("edit-field").fill("typo")
        await page.get_by_test_id("edit-field").press("Enter")
        await expect(messages(page).nth(1)).to_contain_text("typo(edited)")
        await messages(page).nth(0).hover()
        await messages(page).nth(0).get_by_test_id("more-actions").click()
        await expect(page.get_by_test_id("menu-link")).to_be_visible()
        await expect(page.get_by_test_id("menu-edit")).to_have_count(0)
        await page.keyboard.press("Escape")
        await messages(page).nth(1).hover()
        await messages(page).nth(1).get_by_test_id("more-actions").click()
        await page.get_by_test_id("menu-remove").click()
        await page.get_by_test_id("confirm-yes").click()
        await expect(messages(page)).to_have_count(1)


async def test_messages_are_walked_with_the_arrow_keys(desk: Desk) -> None:
    """The list of messages is one stop of Tab; arrows move in it, Enter opens the thread, Esc returns."""
    for text in ("one", "two", "three"):
        await desk.workspace.post("ben", "ops", text)
    async with desk.in_ops() as page:
        await messages(page).nth(2).focus()
        await page.keyboard.press("ArrowUp")
        await expect(messages(page).nth(1)).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(messages(page, "#thread")).to_contain_text("two")
        await page.keyboard.press("Escape")
        await expect(page.get_by_test_id("thread-pane")).to_be_hidden()
        stops = "document.querySelectorAll('#feed article[tabindex=\"0\"]').length"
        assert await page.evaluate(stops) == 1


async def test_the_reader_stays_where_they_are_and_is_told_of_news(desk: Desk) -> None:
    """Who has scrolled up is not moved by a new message, but can jump to it."""
    for number in range(60):
        await desk.workspace.post("ben" if number % 2 else "dev", "ops", f"line {number}")
    async with desk.in_ops() as page:
        await expect(messages(page).nth(59)).to_be_in_viewport()
        await page.locator("#feed .feed-scroll").evaluate("(node) => { node.scrollTop = 0; }")
        await expect(messages(page).nth(0)).to_be_in_viewport()
        await desk.say("the newest")
        await page.get_by_role("button", name="New messages").click()
        await expect(messages(page).nth(60)).to_be_in_viewport()


async def test_reactions_are_given_and_taken_back(desk: Desk) -> None:
    """A reaction from the menu shows as pressed; pressing it takes it back."""
    ts = await desk.say("React to me")
    async with desk.in_ops() as page:
        await messages(page).hover()
        await page.get_by_test_id("add-reaction").click()
        await page.get_by_test_id("react-eyes").click()
        await expect(page.get_by_test_id("reaction")).to_have_attribute("aria-pressed", "true")
        assert desk.workspace.messages("ops")[0]["reactions"][0]["name"] == "eyes"
        await page.get_by_test_id("reaction").click()
        await expect(page.get_by_test_id("reaction")).to_have_count(0)
        assert desk.workspace.messages("ops")[0]["ts"] == ts


async def test_a_select_in_a_message_tells_the_app_what_was_chosen(desk: Desk) -> None:
    """Choosing with the keyboard in a select sends the option and shows it."""
    await desk.say("Where?", [section("Where?", accessory=REGION)])
    async with desk.in_ops() as page:
        await by_action(page, "region").press("Enter")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await expect(by_action(page, "region")).to_contain_text("us")
        await desk.workspace.wait_for(lambda: desk.app.of("block_actions"))
        assert desk.app.of("block_actions")[0]["actions"][0]["selected_option"]["value"] == "us"


async def test_a_menu_stays_open_while_the_page_reads_again(desk: Desk) -> None:
    """What the page reads when its connection stands does not close what somebody has opened meanwhile."""
    await desk.say("Where?", [section("Where?", accessory=REGION)])
    late = asyncio.Event()

    async def answer_late(route: Route) -> None:
        answer = await route.fetch()
        await late.wait()
        await route.fulfill(response=answer)

    async with desk.in_ops() as page:
        await page.route("**/page/home*", answer_late)
        await page.reload()
        await by_action(page, "region").press("Enter")
        await expect(page.get_by_role("listbox")).to_be_visible()
        async with page.expect_response("**/page/home*"):
            late.set()
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await expect(by_action(page, "region")).to_contain_text("us")


async def test_the_page_says_when_the_app_is_offline_and_back(desk: Desk) -> None:
    """The state of the app's connection is always on the page."""
    async with desk.page() as page:
        status = page.get_by_test_id("socket-status")
        await expect(status).to_contain_text("sayso is connected")
        await desk.app.handlers[0].close_async()  # type: ignore[no-untyped-call]  # Bolt does not annotate it
        await expect(status).to_contain_text("sayso is offline")


async def test_an_answer_that_news_overtook_does_not_bring_the_past_back(desk: Desk) -> None:
    """Whatever the page is told while it reads what stands around the messages is applied to the answer, and once."""
    workspace = desk.workspace
    pushes: asyncio.Queue[str | bytes] = asyncio.Queue()

    async def answer_late(route: Route) -> None:
        before = await route.fetch()
        await workspace.post("cleo", "incidents", "Customers call")
        while "Customers call" not in str(await pushes.get()):
            pass
        await route.fulfill(response=before)

    async with desk.in_ops("ben") as page:
        await expect(page.get_by_test_id("socket-status")).to_contain_text("sayso is connected")
        page.on("websocket", lambda live: live.on("framereceived", pushes.put_nowait))
        async with page.expect_response("**/page/home?*"):
            await act_as(page, "ana")
        await page.route("**/page/state?as=*", answer_late, times=1)
        async with page.expect_response("**/page/state?as=*"):
            workspace.core.changes.tell({"type": "channels"})
        await page.evaluate("() => fetch('/page/state').then((answer) => answer.json())")
        mark = page.get_by_test_id("channel-incidents").locator(".unread")
        await expect(mark).to_have_text("unread 1")


async def test_what_is_pressed_is_not_drawn_anew_under_the_pointer(desk: Desk) -> None:
    """A reply that comes while a button of its message is pressed does not lose the press, and shows afterwards."""
    ts = await desk.say("Look here")
    await desk.say("one", thread_ts=ts)
    async with desk.in_ops() as page:
        await messages(page).filter(has_text="Look here").get_by_test_id("open-thread").hover()
        await page.mouse.down()
        await desk.say("two", thread_ts=ts)
        await desk.say("something else")
        await expect(page.locator("#announcer")).to_contain_text("something else")
        await page.evaluate(
            "new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"
        )
        await expect(messages(page).filter(has_text="something else")).to_have_count(0)
        await page.mouse.up()
        await expect(messages(page, "#thread")).to_contain_text(["Look here", "one", "two"])
        await expect(messages(page).filter(has_text="something else")).to_be_visible()


async def test_the_page_reads_again_after_its_own_connection_was_lost(desk: Desk) -> None:
    """While the server is away the page says so; afterwards it shows what it missed, without a reload."""
    async with desk.in_ops() as page:
        await expect(page.locator("#feed .intro")).to_be_visible()
        await desk.workspace.stop()
        await expect(page.get_by_text("connection to the local workspace is lost")).to_be_visible()
        await expect(page.get_by_test_id("socket-status")).to_have_text("Not connected")
        await write(page, "anybody there?")
        await expect(page.get_by_test_id("toast").first).to_contain_text("does not answer")
        await expect(page.get_by_test_id("composer")).to_have_value("anybody there?")
        await desk.workspace.post("ben", "ops", "posted meanwhile")
        await desk.workspace.start()
        await expect(messages(page)).to_contain_text("posted meanwhile")
        await expect(page.get_by_text("connection to the local workspace is lost")).to_be_hidden()


async def test_the_apps_home_is_a_tab_of_its_conversation(desk: Desk) -> None:
    """Looking at the Home tells the app, and what it publishes shows at once."""
    async with desk.page() as page:
        await page.get_by_test_id("channel-sayso").click()
        await page.get_by_test_id("tab-home").click()
        await desk.workspace.wait_for(lambda: desk.app.events("app_home_opened"))
        home = {"type": "home", "blocks": [section("Nothing is waiting for you")]}
        await desk.app.client.views_publish(user_id=desk.workspace.user("ana").id, view=home)
        await expect(page.locator("#home")).to_contain_text("Nothing is waiting for you")
        await page.get_by_test_id("tab-messages").click()
        await expect(page.get_by_test_id("composer")).to_be_visible()


async def test_a_phone_shows_one_pane_at_a_time(desk: Desk) -> None:
    """On a narrow screen: the list, then the channel, then the thread, each with a way back; buttons are big."""
    root = await desk.workspace.post("ana", "ops", "@sayso rollback " + "verylongword" * 12)
    await desk.workspace.wait_for(lambda: len(desk.workspace.messages("ops", root)) == 2)
    async with desk.page(**SCREENS["phone"]) as page:
        sidebar = page.locator("#sidebar")
        await page.get_by_test_id("channel-ops").tap()
        await expect(sidebar).to_be_hidden()
        await page.get_by_test_id("open-thread").tap()
        await expect(page.get_by_test_id("composer")).to_be_hidden()
        press = await by_action(page, "approve", "#thread").bounding_box()
        assert press is not None
        assert press["height"] >= 44
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        await expect(page.get_by_test_id("act-as")).to_be_visible()
        await page.get_by_test_id("thread-back").tap()
        await expect(page.get_by_test_id("composer")).to_be_visible()
        await page.get_by_test_id("back").tap()
        await expect(sidebar).to_be_visible()


async def test_the_page_says_that_it_is_not_slack_and_loads_nothing_from_outside(desk: Desk) -> None:
    """The footer says what this is, and every request goes to the workspace itself."""
    async with desk.page("", fresh=True) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        image = {"type": "image", "image_url": "https://example.com/a.png", "alt_text": "A chart"}
        await desk.say("See", [image, section("<https://example.com/b|a link>")])
        await page.reload()
        await expect(page.get_by_role("link", name="A chart")).to_have_attribute(
            "rel", re.compile("noopener")
        )
        await expect(page.locator("#notice")).to_contain_text("It is not Slack")
        assert asked
        assert [url for url in asked if not url.startswith((desk.workspace.url, "data:"))] == []


HOSTILE = [
    "<img src=x onerror='window.hacked=1'>",
    "<script>window.hacked=1</script>",
    "<javascript:window.hacked=1|press me>",
    "[press me](javascript:window.hacked=1)",
    '"><svg onload=window.hacked=1>',
    "`<b onmouseover=window.hacked=1>`",
    '<https://example.com/"onmouseover=window.hacked=1|x>',
    "<data:text/html,<script>window.hacked=1</script>|x>",
    "![x](javascript:window.hacked=1)",
]


async def test_text_never_becomes_code(desk: Desk) -> None:
    """Markup in any text of a person or of the app stays text: nothing runs, no address but the web's is a link."""
    roots = []
    for text in HOSTILE:
        plain = {"type": "plain_text", "text": text[:70]}
        blocks = [
            section(text),
            {"type": "header", "text": plain},
            {"type": "context", "elements": [{"type": "mrkdwn", "text": text}]},
            {"type": "markdown", "text": text},
            actions({**button("x", "x"), "text": plain}),
        ]
        await desk.workspace.post("ana", "ops", text)
        roots.append(await desk.say(text, blocks))
        await desk.say(text, thread_ts=roots[0])
    async with desk.in_ops() as page:
        await expect(messages(page)).to_have_count(2 * len(HOSTILE))
        await page.get_by_test_id("open-thread").click()
        await expect(messages(page, "#thread")).to_have_count(1 + len(HOSTILE))
        for link in await page.locator("article a").all():
            await link.hover()
        found = (
            "[...document.querySelectorAll('article :is(script, img, iframe, b)')].map((it) => it.outerHTML)"
        )
        assert await page.evaluate(f"[window.hacked, {found}]") == [None, []]
        schemes = await page.evaluate("[...document.querySelectorAll('article a')].map((a) => a.protocol)")
        assert set(schemes) <= {"http:", "https:", "mailto:"}


async def test_enforced_limits_are_counted_at_the_side(desk: Desk) -> None:
    """Once the workspace enforces Slack's limits, the page says by method what was used and what was refused."""
    async with desk.page() as page, ClientSession(desk.workspace.url) as session:
        await expect(page.get_by_test_id("limits")).to_be_hidden()
        await session.post("/_faults", json={"do": "limit", "factor": 0.04})
        await expect(page.get_by_test_id("limits")).to_contain_text("Slack's limits × 0.04")
        await desk.say("one")
        for _ in range(5):
            with suppress(SlackApiError):
                await desk.app.client.users_list()
        users = page.locator('[data-method="users.list"]')
        await expect(users).to_contain_text("5 of 1, 4 refused")
        await expect(page.locator('[data-method="chat.postMessage"]')).to_contain_text("1 of 12")


async def test_a_task_has_one_mark(desk: Desk) -> None:
    """Where its title begins with the mark of its state, none stands before it; else the page draws it."""
    task = {"type": "task_card", "task_id": "1", "status": "error"}
    titles = ["Build", "🚫 Gate", "› 🟡 Ask", "🚀 Ship"]
    tasks = [{**task, "task_id": title, "title": title} for title in titles]
    async with desk.page() as page:
        await desk.say("a report", [{"type": "plan", "title": "4 steps", "tasks": tasks}])
        shown = messages(page).last.locator(".task-title")
        await expect(shown).to_have_text(["✗ Build", "🚫 Gate", "› 🟡 Ask", "✗ 🚀 Ship"])


async def test_plans_and_feedback_are_drawn(desk: Desk) -> None:
    """A plan says how far each task is, and a feedback button tells the app."""
    async with desk.page() as page:
        await desk.say("a report", [PLAN, FEEDBACK])
        shown = messages(page).last
        await expect(shown.get_by_role("group", name="Upgrade")).to_contain_text("Drain")
        await expect(shown.get_by_role("img", name="in progress")).to_be_visible()
        await shown.get_by_role("button", name="Bad").click()
        await desk.workspace.wait_for(lambda: desk.app.of("block_actions"))
        assert desk.app.of("block_actions")[0]["actions"][0]["value"] == "bad"
