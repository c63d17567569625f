"""The control room in a browser: looked at as people look at it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Route, expect

from bot.web.access import Access
from engine.decide.commands import Answer
from engine.flow.load import load_flow
from engine.journal.records import DEAD, Consumed, InboxItem
from engine.language.actors import Actor
from tests.support import roomful
from tests.support.browser import PHONE
from tests.web.acting import served
from tests.web.conftest import Visitor, visited
from tests.web.test_oidc import ANA, SLACK_ID, behind

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
HOSTILE = '\u202e<img src=x onerror="document.title=1"><script>document.title=1</script>'


_KEPT: dict[bool, tuple[Page, list[str]]] = {}
"""Pages that stay open from test to test, by whether they are a phone's: a new one costs two seconds of processor."""


async def _opened(browser: Browser, phone: bool) -> tuple[Page, list[str]]:
    context = await browser.new_context(viewport=PHONE if phone else {"width": 1280, "height": 900})
    page, problems = await context.new_page(), list[str]()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "console",
        lambda said: (
            problems.append(said.text) if said.type == "error" and "status of 40" not in said.text else None
        ),
    )
    return page, problems


@asynccontextmanager
async def shown(browser: Browser, visitor: Visitor, *, phone: bool = False) -> AsyncIterator[Page]:
    """The page, logged in by the address that is printed; no script of it may fail, nor break its policy."""
    kept = _KEPT.pop(phone, None) or await _opened(browser, phone)
    page, problems = kept
    problems.clear()
    try:
        await page.goto(f"{visitor.url}/#token={visitor.room.access.token}")
        await expect(page.locator(".session-row").first).to_be_visible()
        yield page
        assert problems == []
        await page.unroute_all(behavior="ignoreErrors")
        await page.context.clear_cookies()
        await page.goto("about:blank")
        _KEPT[phone] = kept
    finally:
        if _KEPT.get(phone) is not kept:
            await page.context.close()


async def test_from_the_address_to_one_event_of_one_step(browser: Browser, home: Path) -> None:
    """The token leaves the address, a search finds a session, its graph shows what failed, and the slider goes back in time."""
    async with visited(home) as visitor, shown(browser, visitor) as page:
        assert "token" not in page.url
        await page.get_by_role("searchbox").fill("v1.0.0")
        await expect(page.locator(".session-row")).to_have_count(1)
        await page.locator(".session-row").click()
        watch = page.get_by_role("link", name=re.compile("^watch, shell"))
        await expect(watch).to_have_attribute("data-status", "failed")
        await watch.click()
        panel = page.get_by_role("tabpanel")
        await expect(panel).to_contain_text("error rate 4.1 % is above 1 %")
        await expect(panel).to_contain_text("Run 2 of 2")
        await page.get_by_label("Event", exact=True).press("Home")
        await expect(watch).to_have_attribute("data-status", "pending")
        await expect(page.locator(".headline")).to_contain_text("as it was")
        assert "at=1" in page.url
        await page.get_by_role("link", name="now").click()
        await expect(watch).to_have_attribute("data-status", "failed")


async def test_the_graph_follows_what_another_process_does(browser: Browser, home: Path) -> None:
    """Where it waits is marked, and once it is answered elsewhere the page shows that without being asked."""
    async with visited(home) as visitor, shown(browser, visitor) as page:
        await visitor.log_in()
        [row] = [
            row
            for row in (await visitor.get("sessions", flow="deploy-checkout", status="paused"))["sessions"]
            if "v1.9." in row["waits"]
        ]
        await page.goto(f"{visitor.url}/sessions/{row['sessionId']}")
        gate = page.get_by_role("link", name=re.compile("^gate, approval"))
        await expect(gate).to_have_attribute("data-status", "waiting")
        await expect(page.get_by_label("Open question")).to_contain_text("Approval needed from @eva")
        async with roomful.engine_at(home / "sayso.db") as engine:
            await engine.resume(
                row["sessionId"], Answer(row["prompts"][0], roomful.PEOPLE[4], "answer:1", value="approve")
            )
            await engine.parked(row["sessionId"])
        await expect(gate).to_have_attribute("data-status", "completed")
        await expect(page.locator(".headline .pill")).to_have_text("✓ completed")


async def test_what_people_wrote_is_never_markup(browser: Browser, home: Path) -> None:
    """Markup in inputs and questions is shown as text in every view, and characters that reorder others are spelled out."""
    async with roomful.engine_at(home / "sayso.db") as engine:
        begun = await roomful.started(engine, roomful.RESTORE, {"reason": HOSTILE})
    async with visited(home) as visitor, shown(browser, visitor) as page:
        for view in ("/sessions?q=onerror", f"/sessions/{begun}", "/waiting"):
            await page.goto(f"{visitor.url}{view}")
            await expect(page.locator("main")).to_contain_text('onerror="document.title=1')
            await expect(page.locator("main")).to_contain_text("\\u202e")
            assert await page.locator("main img, main script").count() == 0
        assert "Control room" in await page.title()


async def test_every_view_fits_a_phone_and_a_keyboard(browser: Browser, home: Path) -> None:
    """Nothing is wider than the screen; the nodes of a graph are walked with arrows and opened with Enter."""
    async with visited(home) as visitor, shown(browser, visitor, phone=True) as page:
        for view in ("Waiting", "Queues", "Spend", "Compare", "Runs"):
            link = page.get_by_role("navigation").get_by_role("link", name=view)
            await link.click()
            await expect(link).to_have_attribute("aria-current", "page")
            await expect(page.get_by_role("heading", level=1)).to_be_attached()
            assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        await page.get_by_role("link", name=re.compile("completed \\d")).click()
        await page.locator(".session-row", has_text="deploy-checkout").first.click()
        await page.get_by_role("link", name=re.compile("^build, shell")).focus()
        await page.keyboard.press("ArrowDown")
        await expect(page.get_by_role("link", name=re.compile("^checks, parallel"))).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("tabpanel")).to_contain_text("parallel")
        assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


async def test_a_question_is_answered_on_the_page(browser: Browser, home: Path) -> None:
    """Where changes are on, its options are buttons; what the policy refuses is said there, and what it takes is done."""
    who = Actor.local("ana")
    async with served(home, who) as (visitor, session_id), shown(browser, visitor) as page:
        await page.goto(f"{visitor.url}/sessions/{session_id}")
        await page.get_by_role("button", name="Approve").click()
        await expect(page.locator(".headline .pill")).to_have_text("✓ completed")
        await expect(page.get_by_role("button", name="Approve")).to_have_count(0)


async def test_a_refusal_is_said_on_the_page(browser: Browser, home: Path) -> None:
    """Whoever turns out not to be allowed to answer reads why not."""
    eve = Actor(id="U0EVE", name="Eve")
    async with (
        served(home, eve, access=Access(eve, time.monotonic)) as (visitor, session_id),
        shown(browser, visitor) as page,
    ):
        await page.goto(f"{visitor.url}/sessions/{session_id}")
        await page.get_by_role("button", name="Approve").click()
        note = page.get_by_label("Open question").get_by_role("status")
        await expect(note).to_contain_text("can approve this")


async def test_enter_in_a_field_decides_nothing(
    browser: Browser, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside buttons that decide, Enter sends what was written and presses none of them."""
    flow = """flow: chosen
nodes:
  - {id: ask, type: ask, with: {message: "Which?", choices: [eu, us], own_words: true, who: [local:ana]}}
"""
    async with roomful.engine_at(home / "sayso.db") as engine:
        begun = await roomful.started(engine, flow, {})
        async with visited(home, write=True) as visitor, shown(browser, visitor) as page:
            await page.goto(f"{visitor.url}/sessions/{begun}")
            field = page.get_by_label("Open question").get_by_label("Answer")
            await field.press("Enter")
            await field.fill("neither")
            async with page.expect_request("**/api/act") as sent:
                await field.press("Enter")
            assert (await sent.value).post_data_json.keys() == {"session", "do", "promptId", "nonce", "text"}


async def test_what_somebody_writes_outlives_news_and_a_look_at_a_step(browser: Browser, home: Path) -> None:
    """A reason that is half written stays while the session goes on elsewhere and while its graph is walked."""
    flow = """flow: busy
nodes:
  - id: both
    type: parallel
    branches:
      one: [{id: ask, type: ask, with: {message: "Why?", who: [local:ana]}}]
      two: [{id: other, type: ask, with: {message: "And you?"}}]
"""
    async with roomful.engine_at(home / "sayso.db") as engine:
        begun = await roomful.started(engine, flow, {})
        async with visited(home, write=True) as visitor, shown(browser, visitor) as page:
            await page.goto(f"{visitor.url}/sessions/{begun}")
            mine = page.get_by_label("Open question").filter(has_text="Why?")
            await mine.get_by_label("Answer").fill("half of")
            await page.get_by_role("link", name=re.compile("^other, ask")).click()
            asked = (await engine.state(begun)).prompts.values()
            [other] = [each.prompt_id for each in asked if "you" in each.message]
            await engine.resume(begun, Answer(other, roomful.PEOPLE[0], "answer:2", text="yes"))
            await expect(page.get_by_label("Open question")).to_have_count(1)
            await expect(mine.get_by_label("Answer")).to_have_value("half of")


async def test_a_form_shows_what_it_suggests_and_takes_several_choices(browser: Browser, home: Path) -> None:
    """Defaults of boxes and choices are set, hints are read, and of several choices all are sent."""
    flow = """flow: form
nodes:
  - id: fill
    type: ask
    with:
      message: Where?
      who: [local:ana]
      form:
        properties:
          dry: {type: boolean, default: true, description: Nothing is changed.}
          zone: {type: string, enum: [eu, us], default: us}
          parts: {type: array, items: {type: string, enum: [a, b, c]}, default: [a, c]}
"""
    async with roomful.engine_at(home / "sayso.db") as engine:
        begun = await roomful.started(engine, flow, {})
        async with visited(home, write=True) as visitor, shown(browser, visitor, phone=True) as page:
            await page.goto(f"{visitor.url}/sessions/{begun}")
            form = page.get_by_label("Open question")
            await expect(form.get_by_label("Dry")).to_be_checked()
            await expect(form).to_contain_text("Nothing is changed.")
            await expect(form.get_by_label("Zone")).to_have_value("us")
            await expect(form.get_by_label("Parts")).to_have_values(["a", "c"])
            async with page.expect_request("**/api/act") as sent:
                await form.get_by_role("button", name="Send").click()
            assert (await sent.value).post_data_json["values"] == {
                "dry": True,
                "zone": "us",
                "parts": ["a", "c"],
            }


async def test_a_login_that_ended_is_said(browser: Browser, home: Path) -> None:
    """Where the server was started again, the page says so by itself and asks for a login, also in the middle of a view."""
    async with visited(home) as visitor, shown(browser, visitor, phone=True) as page:
        visitor.room.access._logins.clear()  # what a new process has
        visitor.room._tell([])
        await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
        await expect(page.get_by_role("alert")).to_contain_text("login has expired")


async def test_an_address_that_names_nothing_says_what_to_do(browser: Browser, home: Path) -> None:
    """What cannot be read is said, and tried again on request."""
    async with visited(home) as visitor, shown(browser, visitor, phone=True) as page:
        for session_id in ("session-nope", "%E0%A4%A", "<b>"):
            await page.goto(f"{visitor.url}/sessions/{session_id}")
            await expect(page.get_by_role("alert")).to_contain_text("There is no session")
            await expect(page.get_by_role("link", name="Try again")).to_be_visible()


async def test_a_session_is_walked_with_links_keys_and_the_way_back(browser: Browser, home: Path) -> None:
    """Each step and event has its address, which the browser's own way back knows; tabs are walked with arrows."""
    async with visited(home) as visitor, shown(browser, visitor) as page:
        await visitor.log_in()
        [one, *_] = (await visitor.get("sessions", flow="deploy-checkout", status="complete"))["sessions"]
        await page.goto(f"{visitor.url}/sessions/{one['sessionId']}")
        panel = page.get_by_role("tabpanel")
        await page.get_by_role("link", name=re.compile("^build, shell")).click()
        await expect(panel.get_by_role("heading", level=2)).to_contain_text("build")
        await page.get_by_role("link", name=re.compile("^gate, approval")).click()
        await expect(panel.get_by_role("heading", level=2)).to_contain_text("gate")
        await page.go_back()
        await expect(panel.get_by_role("heading", level=2)).to_contain_text("build")
        await page.get_by_role("tab", name="Step", exact=True).press("ArrowRight")
        await expect(page.get_by_role("tab", name="Journal")).to_have_attribute("aria-selected", "true")
        await panel.locator("summary").first.click()
        await expect(panel.locator("details pre").first).to_contain_text('"session:start"')
        await panel.get_by_role("link", name="4", exact=True).click()
        await expect(page.locator(".slider")).to_contain_text("event 4 of")
        await expect(panel.locator(".event.is-here .seq")).to_have_text("4")
        await expect(panel.locator("details pre").first).to_contain_text('"session:start"')
        await page.get_by_role("button", name="Play").click()
        await expect(page.locator(".slider")).to_contain_text(f"event {one['events']} of {one['events']}")
        await expect(page.get_by_role("button", name="Play")).to_have_text("\u25b6\ufe0e")


async def test_a_search_keeps_what_is_typed_meanwhile(browser: Browser, home: Path) -> None:
    """What the server draws of the first letters takes nothing away of the next ones, and a filter is added to them."""
    async with visited(home) as visitor, shown(browser, visitor) as page:
        field = page.get_by_role("searchbox")
        await field.press_sequentially("deploy v1.9.0", delay=70)
        await expect(page.locator(".session-row")).to_have_count(1)
        await expect(field).to_have_value("deploy v1.9.0")
        await field.fill("deploy")
        await page.get_by_label("Started by").select_option("ben")
        await expect(page.locator(".session-row")).to_have_count(3)
        assert set(page.url.partition("?")[2].split("&")) == {"q=deploy", "person=ben"}


async def test_a_command_is_copied_or_selected_where_there_is_no_clipboard(
    browser: Browser, home: Path
) -> None:
    """The button says what happened: on a page without TLS nothing can be copied, so the command is selected."""
    async with visited(home) as visitor, shown(browser, visitor) as page:
        await page.locator(".session-row").first.click()
        await page.get_by_label("Event", exact=True).press("Home")
        await page.get_by_text("fork from here").click()
        command = page.locator(".fork .command")
        wanted = await command.locator("code").text_content()
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await command.get_by_role("button").click()
        await expect(command.get_by_role("button")).to_have_text("copied")
        assert await page.evaluate("navigator.clipboard.readText()") == wanted
        await page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
        await command.get_by_role("button").click()
        await expect(command.get_by_role("button")).to_have_text("press Ctrl-C")
        assert await page.evaluate("String(getSelection())") == wanted


async def test_an_output_is_copied_as_it_is(browser: Browser, home: Path) -> None:
    """All of it, with its lines, also what is scrolled out of sight."""
    async with visited(home) as visitor, shown(browser, visitor) as page:
        await page.locator(".session-row", has_text="failed").first.click()
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        copy = page.get_by_role("button", name=re.compile("^copy (error|input|output)$")).first
        wanted = await copy.locator("xpath=preceding-sibling::pre[1]").text_content()
        await copy.click()
        await expect(copy).to_have_text("copied")
        assert wanted
        assert await page.evaluate("navigator.clipboard.readText()") == wanted


async def test_a_run_is_downloaded_as_a_file(browser: Browser, home: Path) -> None:
    """*Download* leaves the page where it is and saves the file of `sayso sessions export`."""
    async with visited(home) as visitor, shown(browser, visitor) as page:
        await page.locator(".session-row").first.click()
        await expect(page).to_have_url(re.compile(r"/sessions/session-"))
        async with page.expect_download() as saved:
            await page.get_by_role("link", name="download", exact=True).click()
        session_id = page.url.rpartition("/")[2].partition("?")[0]
        assert session_id in (await saved.value).suggested_filename


async def test_runs_are_filtered_by_time(browser: Browser, home: Path) -> None:
    """A time before now and days take each other's place, the states are counted anew, and nothing found leads back to all."""
    async with visited(home) as visitor, shown(browser, visitor, phone=True) as page:
        rows, within = page.locator(".session-row"), page.get_by_label("Started within")
        await within.select_option("1h")
        await expect(page).to_have_url(re.compile(r"within=1h"))
        await expect(rows).to_have_count(20)
        await page.get_by_text("Dates", exact=True).click()
        await page.get_by_label("Before").fill("2020-01-01")
        await expect(page).to_have_url(re.compile(r"\?until=2020-01-01$"))
        await expect(rows).to_have_count(0)
        await expect(within).to_have_value("")
        await expect(page.locator(".chip .count").first).to_have_text("0")
        await page.get_by_role("link", name="Show all runs").click()
        await expect(rows).to_have_count(20)
        await expect(page.get_by_label("Before")).to_have_value("")


async def test_a_filter_counts_although_news_draw_it_anew(browser: Browser, home: Path) -> None:
    """Between the choice and the next frame the list may be drawn as it was."""
    async with visited(home) as visitor, shown(browser, visitor) as page:
        choice = "select.value = '1h'; select.dispatchEvent(new Event('input', {bubbles: true})); select.value = ''"
        await page.get_by_label("Started within").evaluate(f"select => {{ {choice} }}")
        await expect(page).to_have_url(re.compile(r"within=1h"))


async def test_a_filter_counts_that_was_chosen_before_the_script_came(browser: Browser, home: Path) -> None:
    """On a slow connection the list is there first."""
    async with visited(home) as visitor, shown(browser, visitor) as page:
        chosen = asyncio.Event()

        async def late(route: Route) -> None:
            await chosen.wait()
            await route.continue_()

        await page.route("**/live.js*", late)
        await page.reload(wait_until="commit")
        await page.get_by_label("Started within").select_option("1h")
        chosen.set()
        await expect(page).to_have_url(re.compile(r"within=1h"))


async def test_news_take_nothing_of_what_is_written_into_a_comparison(browser: Browser, home: Path) -> None:
    """Whoever has written one of two ids keeps it while sessions go on elsewhere."""
    async with visited(home) as visitor, shown(browser, visitor) as page:
        await page.goto(f"{visitor.url}/compare")
        await expect(page.locator(".live-text")).to_have_text("live")
        await page.get_by_label("The left run").fill("abc")
        await page.get_by_label("The right run").focus()
        async with page.expect_response("**/compare"):
            visitor.room._tell([])
        await page.wait_for_load_state("networkidle")
        await expect(page.get_by_label("The left run")).to_have_value("abc")


async def test_what_cannot_be_taken_back_is_asked_twice(browser: Browser, home: Path) -> None:
    """The first press of *Cancel* ends nothing; the second does, and what became of it is read there."""
    who = Actor.local("ana")
    async with served(home, who) as (visitor, session_id), shown(browser, visitor) as page:
        await page.goto(f"{visitor.url}/sessions/{session_id}")
        await page.get_by_role("button", name="Cancel", exact=True).click()
        assert (await visitor.get(f"sessions/{session_id}"))["status"] == "paused"
        await page.get_by_role("button", name="Really cancel?").click()
        await expect(page.locator(".headline .pill")).to_have_text("■ cancelled")


async def test_a_login_on_a_phone_ends_at_the_top_of_the_list(browser: Browser, home: Path) -> None:
    """The menu of the list is taller than that of the login, and covers nothing of the search below it."""
    async with visited(home) as visitor, shown(browser, visitor, phone=True) as page:
        await expect(page.locator(".live-text")).to_have_text("live")
        assert await page.evaluate("scrollY") == 0


async def test_two_runs_that_are_selected_are_compared(browser: Browser, home: Path) -> None:
    """The older one stands on the left; one alone, or three, are offered no comparison."""
    async with visited(home, write=True) as visitor, shown(browser, visitor) as page:
        boxes, compare = page.locator(".pick"), page.get_by_role("link", name="Compare", exact=True).last
        runs = [await boxes.nth(number).get_attribute("value") for number in range(3)]
        for number in range(3):
            await boxes.nth(number).check()
        await expect(page.locator(".picked-words")).to_have_text("3 selected")
        await expect(page.locator("[data-compare]")).to_be_hidden()
        await boxes.nth(2).uncheck()
        await compare.click()
        await expect(page.get_by_role("textbox", name="The left run")).to_have_value(runs[1] or "")
        await expect(page.get_by_role("textbox", name="The right run")).to_have_value(runs[0] or "")
        await expect(page.locator(".differences")).to_be_visible()


async def test_several_runs_are_cancelled_at_once(browser: Browser, home: Path) -> None:
    """Those that are selected, after a second press; where some are over nothing is offered that they cannot take."""
    async with visited(home, write=True) as visitor, shown(browser, visitor) as page:
        waiting = page.locator(".pick[data-standing=waiting]")
        await waiting.nth(0).check()
        await waiting.nth(1).check()
        await expect(page.locator(".picked-words")).to_have_text("2 selected")
        await page.locator(".pick[data-standing=complete]").first.check()
        await expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
        await page.locator(".pick[data-standing=complete]").first.uncheck()
        await page.get_by_role("button", name="Cancel").click()
        assert visitor.store.inbox.rows() == []
        await page.get_by_role("button", name="Really cancel these?").click()
        await expect(page.locator(".picked .note")).to_have_text(
            "2 queued: no bot runs now, and it is carried out when one does."
        )
        assert len({row.session_id for row in visitor.store.inbox.rows()}) == 2


async def test_all_runs_that_are_shown_are_selected_at_once(browser: Browser, home: Path) -> None:
    """One box selects them, and says so no longer once one of them is let go; where no action fits all, the page says how to."""
    async with visited(home, write=True) as visitor, shown(browser, visitor) as page:
        boxes, every = page.locator(".pick"), page.get_by_label("Select all")
        await every.check()
        await expect(page.locator(".picked-words")).to_have_text(f"{await boxes.count()} selected")
        await expect(page.get_by_text("Choose a status above")).to_be_visible()
        await boxes.first.uncheck()
        await expect(every).not_to_be_checked()


async def test_a_filter_lets_go_of_the_runs_that_it_hides(browser: Browser, home: Path) -> None:
    """Only runs that are in sight are selected: an action never reaches one that a search has hidden."""
    async with visited(home, write=True) as visitor, shown(browser, visitor) as page:
        await page.goto(f"{visitor.url}/sessions")
        await page.get_by_label("Select all").check()
        await page.locator(".chip[data-status=waiting]").click()
        await expect(page.locator(".pick:not([data-standing=waiting])")).to_have_count(0)
        waiting = await page.locator(".pick").count()
        await expect(page.locator(".picked-words")).to_have_text(f"{waiting} selected")
        await expect(page.get_by_text("Choose a status above")).to_be_hidden()


async def test_several_runs_are_paused_and_resumed_at_once(browser: Browser, home: Path) -> None:
    """*Pause* is offered for what goes on, *Go on* for what somebody paused, and each is done by the bot."""
    async with served(home, Actor.local("ana")) as (visitor, session_id), shown(browser, visitor) as page:
        pause, resume = page.get_by_role("button", name="Pause"), page.get_by_role("button", name="Go on")
        await page.locator(f"[id={session_id}] .pick").check()
        await expect(resume).to_be_hidden()
        await pause.click()
        await expect(page.locator(".picked .note")).to_have_text("1 paused.")
        await page.locator(f"[id={session_id}] .pick[data-standing=paused]").check()
        await expect(pause).to_be_hidden()
        await resume.click()
        await expect(page.locator(f"[id={session_id}] .pill")).to_have_text("… waiting")


async def test_the_list_says_how_long_each_run_took(browser: Browser, home: Path) -> None:
    """A run that is over has its duration beside it, as its own page has it."""
    async with visited(home) as visitor, shown(browser, visitor) as page:
        row = page.locator(".session-row:has([data-status=complete])").first
        words = await row.locator(".row-took").text_content() or ""
        await row.click()
        assert words.startswith("took ")
        await expect(page.locator(".facts").first).to_contain_text(words)


async def test_on_a_phone_the_name_and_the_id_of_a_run_in_the_list_are_whole(
    browser: Browser, home: Path
) -> None:
    """What has no room beside the state and the time goes on below, with the mark of a run that was tried again."""
    async with visited(home) as visitor, shown(browser, visitor, phone=True) as page:
        rows = page.locator(".session-row:visible .row-main")
        await expect(rows.first).to_be_visible()
        cut = "all => all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)"
        assert await rows.evaluate_all(cut) == []


async def test_of_several_runs_it_is_said_what_became_of_each(browser: Browser, home: Path) -> None:
    """One is cancelled by the bot, and one of a terminal is refused: it stays selected, with the reason."""
    flow = load_flow("flow: here\nnodes: [{id: ask, type: ask, with: {message: Why?}}]\n", "flow.yml")
    async with roomful.engine_at(home / "sayso.db") as engine:
        local = await engine.start(flow, {}, actor=Actor.local("ana"))
        await engine.parked(local)
    async with served(home, Actor.local("ana")) as (visitor, session_id), shown(browser, visitor) as page:
        for one in (session_id, local):
            await page.locator(f"[id={one}] .pick").check()
        await page.get_by_role("button", name="Cancel").click()
        await page.get_by_role("button", name="Really cancel these?").click()
        note = page.locator(".picked .note")
        await expect(note).to_contain_text("1 cancelled")
        await expect(note).to_contain_text(
            f"1 refused (here {local.removeprefix('session-')}: This run belongs to a terminal"
        )
        await expect(page.locator(f"[id={local}] .pick")).to_be_checked()
        assert (await visitor.get(f"sessions/{session_id}"))["status"] == "aborted"


async def test_a_long_list_grows_as_one_scrolls(browser: Browser, tmp_path: Path) -> None:
    """What is below is read when somebody gets there, and news leave them where they are."""
    await roomful.fill(tmp_path / "sayso.db", 60)
    async with visited(tmp_path) as visitor, shown(browser, visitor) as page:
        rows = page.locator(".session-row")
        await expect(rows).to_have_count(50)
        await rows.last.scroll_into_view_if_needed()
        await expect(rows).to_have_count(60)
        await expect(page.locator(".more")).to_have_text("60 runs.")


async def test_a_dead_letter_is_read_and_dropped_on_the_page(browser: Browser, home: Path) -> None:
    """What it says is text, and its button means this letter, whatever it is called."""
    async with visited(home, write=True) as visitor, shown(browser, visitor) as page:
        ids = visitor.store.inbox.ingest(
            [InboxItem("a'\"<b>", "message", b'{"text":"<b>hi</b>"}')], roomful.NOW
        )
        reason = b'{"error":"broken","message":"no such thing","tries":3}'
        visitor.store.consume([Consumed(ids[0] or 0, DEAD, reason)], roomful.NOW)
        await page.get_by_role("link", name="Queues").click()
        await page.get_by_text("no such thing").click()
        await expect(page.locator("main")).to_contain_text('"text": "<b>hi</b>"')
        await page.get_by_role("button", name="Drop").click()
        await expect(page.locator("main")).to_contain_text("There are no dead letters.")
        assert visitor.store.inbox.dead_letters() == []


async def test_whoever_comes_from_another_site_finds_their_login(browser: Browser, home: Path) -> None:
    """A link in a message leads to its session: a browser sends the cookie to nobody's first request from elsewhere."""
    async with visited(home) as visitor, shown(browser, visitor) as page:
        await visitor.log_in()
        [one, *_] = (await visitor.get("sessions", status="complete"))["sessions"]
        await page.goto(f"{visitor.url.replace('127.0.0.1', 'localhost')}/")  # another site than 127.0.0.1
        await page.evaluate(
            "(address) => { location.href = address }", f"{visitor.url}/sessions/{one['sessionId']}"
        )
        await expect(page.locator(".headline")).to_contain_text(one["flow"])


async def test_one_logs_in_by_a_provider_of_another_site(browser: Browser, home: Path) -> None:
    """There and back in a browser, which has cookies of its own mind; what the page says of a refusal stays."""
    async with behind(home, host="localhost", **ANA) as (visitor, provider):
        context = await browser.new_context()
        page = await context.new_page()
        address = visitor.url.replace("127.0.0.1", "localhost")
        provider.claims = {**ANA, "email": "eve@example.com", SLACK_ID: "U0EVE"}
        await page.goto(f"{address}/waiting")
        await page.get_by_role("link", name="Log in with your organisation").click()
        await expect(page.get_by_role("alert")).to_contain_text("you are not listed")
        await page.wait_for_load_state("networkidle")
        await expect(page.get_by_role("alert")).to_contain_text("you are not listed")
        provider.claims = ANA
        await page.get_by_role("link", name="Log in with your organisation").click()
        await expect(page.locator(".who-name")).to_have_text("Ana Ruiz")
        await context.close()
