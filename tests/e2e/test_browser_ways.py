"""The Home tab, the message shortcut, every kind of field, and what a flow can say, seen on a desk and on a phone."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.support.acting import Workspace
from tests.support.bot import bot_here
from tests.support.browser import SCREENS, Visit, in_view, visiting
from tests.support.proving import sampled

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.asyncio(loop_scope="session")]

GATE = """
flow: gate
description: Opens the gate
nodes:
  - {id: gate, type: approval, with: {message: "Open the gate?", approvers: ["@sre"], on_reject: continue}}
  - {id: tell, type: message, with: {text: "It is {{ nodes.gate.decision }}"}}
"""
LOOK = """
flow: look
description: Looks into what somebody wrote
inputs:
  what: {type: string}
  urgency: {type: string, description: How soon it matters}
triggers:
  - {shortcut: Look into this, message_as: what}
nodes:
  - {id: tell, type: message, with: {text: "Urgency {{ inputs.urgency }}: {{ inputs.what }}"}}
"""


@pytest.mark.parametrize("screen", sampled(list(SCREENS), ["phone"]))
async def test_home_and_the_shortcut(browser: Browser, seen: Workspace, tmp_path: Path, screen: str) -> None:
    """The Home has what waits, with a link to its thread; the shortcut runs a flow below the message it is about."""
    async with (
        bot_here(seen, tmp_path, {"gate": GATE, "look": LOOK}),
        visiting(browser, seen, "home", screen) as visit,
    ):
        await use_shortcut(visit)
        await visit.begin("ops", "@sayso gate")
        await visit.says("Open the gate?", "waiting for @sre")
        await use_home(visit)


async def use_shortcut(visit: Visit) -> None:
    """From the menu of a message; the form lacks only what the message does not say."""
    await visit.go_to("ops")
    await visit.write("The *queue* is long again", "composer")
    message = visit.feed.get_by_test_id("message").last
    await message.hover()
    await message.get_by_test_id("more-actions").click()
    await visit.shot("message-menu")
    await visit.pick("Run a flow")
    await expect(visit.modal).to_contain_text("How soon it matters")
    await visit.submit()
    await expect(visit.modal).to_contain_text("Please complete this required field")
    await visit.shot("inputs")
    await visit.field("urgency").locator("input").fill("high")
    await visit.submit()
    await visit.feed.get_by_test_id("open-thread").last.click()
    await visit.says("Urgency high: The queue is long again", "Completed in")
    await visit.shot("ran")


async def use_home(visit: Visit) -> None:
    """Ben finds what waits for him, and goes there; what has ended is under Recent."""
    await visit.act_as("ben")
    await visit.go_to("sayso")
    await visit.page.get_by_test_id("tab-home").click()
    await expect(visit.home).to_contain_text("Open the gate?")
    await expect(visit.home).to_contain_text("Looks into what somebody wrote")
    await visit.pressable(visit.home.get_by_role("button", name="Start").first)
    await in_view(visit.home.get_by_text("Waiting for you"))
    await visit.shot("home")
    await visit.home.get_by_role("link", name="gate").first.click()
    await visit.button("Approve").click()
    await visit.says("It is approve")
    await visit.go_to("sayso")
    await visit.page.get_by_test_id("tab-home").click()
    await visit.home.get_by_role("button", name="Refresh").click()
    await expect(visit.home).to_contain_text("Nothing is waiting for you")
    await expect(visit.home).to_contain_text("completed")
    await visit.shot("home-later")


FIELDS = """
flow: everything
nodes:
  - id: form
    type: ask
    with:
      message: "Please fill in everything"
      form:
        properties:
          name: {type: string, title: Name, minLength: 3, maxLength: 40, description: "As it is to be shown"}
          hosts: {type: integer, title: Hosts, minimum: 1, maximum: 9}
          mail: {type: string, format: email, title: Mail}
          day: {type: string, format: date, title: Day}
          owner: {type: string, format: user, title: Owner}
          place: {type: string, format: channel, title: Channel}
          loud: {type: boolean, title: Tell everybody, default: true}
          parts: {type: array, title: Parts, items: {type: string, enum: [api, web, jobs]}, minItems: 2}
          zone: {type: string, title: Zone, enum: "{{ range(130) | map('string') | list }}"}
        required: [name, hosts, mail, day, owner, place, parts, zone]
  - {id: tell, type: message, with: {text: "{{ nodes.form.values.hosts }} of {{ nodes.form.values.parts | join('+') }} in {{ nodes.form.values.zone }} on {{ nodes.form.values.day }}"}}
"""


@pytest.mark.parametrize("screen", sampled(list(SCREENS), ["wide"]))
async def test_a_form_with_every_kind_of_field(
    browser: Browser, seen: Workspace, tmp_path: Path, screen: str
) -> None:
    """What is missing or wrong is said at each field, by the page and by the bot; then all values arrive."""
    async with (
        bot_here(seen, tmp_path, {"everything": FIELDS}),
        visiting(browser, seen, "form", screen) as visit,
    ):
        await visit.begin("ops", "@sayso everything")
        await visit.pressable(visit.button("Fill in"))
        await visit.shot("asked")
        await visit.button("Fill in").click()
        await visit.submit()
        await expect(visit.modal.locator(".has-error")).to_have_count(8)
        await visit.shot("missing")
        await fill_in(visit)
        await visit.submit()
        await expect(visit.field("parts").locator(".input-error")).to_contain_text("2")
        await in_view(visit.field("parts"))
        await visit.shot("too-few")
        await visit.field("parts").get_by_text("web", exact=True).click()
        await visit.submit()
        await visit.says("9 of api+web in 117 on 2026-11-24", "Answered by @Ana Ruiz")
        await in_view(visit.thread.get_by_text("Answered by"))
        await visit.shot("answered")


async def fill_in(visit: Visit) -> None:
    """Nonsense where the page has something to say about it, then what is right; too few parts."""
    await visit.field("name").locator("input").fill("<b>Ana</b> & 😀")
    await visit.field("hosts").locator("input").fill("lots")
    await visit.submit()
    await expect(visit.field("hosts")).to_contain_text("Please enter a number")
    await visit.field("hosts").locator("input").fill("9")
    await visit.field("mail").locator("input").fill("ana@example.com")
    await visit.field("day").locator("input").fill("2026-11-24")
    await visit.field("owner").locator(".pick").click()
    await visit.pick("Dev Rao")
    await visit.field("place").locator(".pick").click()
    await visit.pick("#releases")
    await visit.field("parts").get_by_text("api", exact=True).click()
    await visit.field("zone").locator(".pick").click()
    await in_view(visit.menu.get_by_role("option", name="117", exact=True))
    await visit.shot("groups")
    await visit.menu.get_by_role("option", name="117", exact=True).click()


DOT = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
        "0000000c4944415408d763f8cfc000000301010018dd8db00000000049454e44ae426082"
    )
).decode()
SAYS = """
flow: says
nodes:
  - id: rows
    type: set
    with:
      rows: [["eu-1", 0.4, ok], ["<!channel>", 2.1, "a rather long state that says much, and then even more of it"]]
  - {id: dot, type: shell, with: {script: 'printf %s "$DOT" | base64 -d > dot.png', env: {DOT: "PICTURE"}}}
  - id: report
    type: message
    with:
      markdown: "## Load\\n\\n- eu is **calm**\\n- us is `slow`\\n\\n```\\nuptime --pretty\\n```"
      fields: [{title: Busiest, value: us-1}, {title: Asked by, value: "{{ session.requester.name }}"}]
      table: {columns: [host, load, state], rows: "{{ nodes.rows.rows }}"}
      images: [{path: dot.png, alt: "Load over the last hour"}]
      files: [{name: load.csv, content: "host,load\\neu-1,0.4\\n"}]
  - id: copy
    type: shell
    name: Copy the tables
    timeout: 1m
    with:
      progress: true
      env: {GO: "WAITFOR"}
      script: |
        echo "::progress 3/10 three tables"
        while [ ! -e "$GO" ]; do sleep 0.05; done
"""


@pytest.mark.parametrize("screen", sampled(list(SCREENS), ["phone"]))
async def test_what_a_flow_says(browser: Browser, seen: Workspace, tmp_path: Path, screen: str) -> None:
    """A report with everything in it stays inside the screen, the card has a bar while something takes long."""
    go = tmp_path / "go"
    flow = SAYS.replace("PICTURE", DOT).replace("WAITFOR", str(go))
    async with (
        bot_here(seen, tmp_path, {"says": flow}),
        visiting(browser, seen, "says", screen) as visit,
    ):
        await visit.begin("ops", "@sayso says")
        await visit.says("Load", "Busiest", "load.csv", "▰▰▰▱▱▱▱▱▱▱ 3/10")
        thread = visit.thread
        await expect(thread.get_by_role("rowheader", name="<!channel>")).to_be_visible()
        await expect(thread.locator("pre")).to_contain_text("uptime --pretty")
        await expect(thread.get_by_role("img", name="Load over the last hour")).to_be_visible()
        await in_view(thread.get_by_text("three tables"))
        await visit.shot("bar")
        await in_view(thread.get_by_role("table"))
        await visit.shot("report")
        await in_view(thread.get_by_role("img", name="Load over the last hour"))
        await visit.shot("files")
        go.touch()
        await visit.says("Completed in")
        await expect(thread).not_to_contain_text("▰")
