"""Modals: forms, long forms page by page, and the inputs of a start."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.acting import Acts
from tests.support.bot import ThreadView, opened, start_flow, whispered
from tests.support.inprocess import Town
from tests.support.simulated import TownWorkspace, in_town

FORM = """
flow: release
nodes:
  - id: plan
    type: ask
    with:
      message: "What do we release?"
      form:
        properties:
          version: {type: string, title: Version, pattern: "^v[0-9]+$"}
          hosts: {type: integer, title: How many hosts, minimum: 1, maximum: 9}
          window: {type: string, format: date, title: Day}
        required: [version, hosts]
  - id: tell
    type: message
    with: {text: "Releasing {{ nodes.plan.values.version }} to {{ nodes.plan.values.hosts }} hosts"}
"""


async def open_form(workspace: Acts, thread: ThreadView, user: str = "ana") -> dict[str, Any]:
    """Press the button that opens the form."""
    await thread.press(user, await thread.says("What do we release?"), "Fill in")
    return await opened(workspace, user)


def title(view: dict[str, Any]) -> str:
    """What is above a modal."""
    return str(view["title"]["text"])


@in_town({"release": FORM})
async def test_a_form_is_filled_in_and_its_mistakes_are_shown_where_they_are(
    workspace: TownWorkspace,
) -> None:
    """What is wrong is said at its field and takes nothing; what is right answers, and the flow continues with it."""
    thread = await start_flow(workspace, "ana", "ops", "release")
    view = await open_form(workspace, thread)
    wrong = await workspace.submit_view("ana", view["id"], {"field:version": "2", "field:hosts": 3})
    assert list(wrong["errors"]) == ["field:version"]
    done = await workspace.submit_view("ana", view["id"], {"field:version": "v2", "field:hosts": 3})
    assert done == {"closed": True}
    await thread.says("Releasing v2 to 3 hosts")


@in_town({"release": FORM.replace("form:", "who: [channel]\n      form:", 1)})
async def test_of_two_submissions_at_once_the_second_is_told(workspace: TownWorkspace) -> None:
    """One of them answers; the author of the other is told by whom, in the form or, where that was closed, after it."""
    thread = await start_flow(workspace, "ana", "ops", "release")
    first, second = await open_form(workspace, thread), await open_form(workspace, thread, "ben")
    answers = await asyncio.gather(
        *(
            workspace.submit_view(user, view["id"], {"field:version": version, "field:hosts": 1})
            for user, view, version in (("ana", first, "v1"), ("ben", second, "v2"))
        )
    )
    await thread.says("Releasing v")

    def told() -> list[str]:
        later = [m["text"] for user in ("ana", "ben") for m in workspace.ephemerals(user)]
        return later + [text for answer in answers for text in answer.get("errors", {}).values()]

    await workspace.wait_for(lambda: bool(told()))
    assert thread.count("Releasing") == 1
    (said,) = told()
    assert "Already answered by" in said


@in_town({"release": FORM})
async def test_a_trigger_that_is_too_old_says_press_again(workspace: TownWorkspace) -> None:
    """A form that could not be opened in time is not silent: only whoever pressed is told to press again."""
    thread = await start_flow(workspace, "ana", "ops", "release")
    workspace.faults.fail("views.open", error="expired_trigger_id")
    await thread.press("ana", await thread.says("What do we release?"), "Fill in")
    await whispered(workspace, "ana", "Please press again")
    assert workspace.views("ana") == []
    await open_form(workspace, thread)


def long_form(count: int) -> str:
    """A flow with a form of so many fields."""
    fields = "\n".join(f"          f{n}: {{type: string, title: Field {n}}}" for n in range(count))
    return f"""
flow: survey
nodes:
  - id: plan
    type: ask
    with:
      message: "What do we release?"
      form:
        properties:
{fields}
        required: [f0]
  - id: tell
    type: message
    with: {{text: "first={{{{ nodes.plan['values'].f0 }}}} last={{{{ nodes.plan['values'].f{count - 1} }}}}"}}
"""


@in_town({"survey": long_form(150)})
async def test_a_long_form_goes_page_by_page_through_a_kill(workspace: TownWorkspace, bot: Town) -> None:
    """A page is checked and kept, Back shows it again, a kill between two pages loses nothing."""
    thread = await start_flow(workspace, "ana", "ops", "survey")
    view = await open_form(workspace, thread)
    assert view["submit"]["text"] == "Next"
    moved = await workspace.submit_view("ana", view["id"], {"field:f0": "one"})
    assert moved["updated"]["submit"]["text"] == "Done"
    await workspace.press_in_view("ana", view["id"], text="Back")
    await workspace.wait_for(lambda: workspace.views("ana")[-1]["submit"]["text"] == "Next")
    back = workspace.views("ana")[-1]
    assert back["state"]["values"]["field:f0"]["value"]["value"] == "one"
    await workspace.submit_view("ana", view["id"], {"field:f0": "two"})
    await bot.close()
    await bot.open()
    await workspace.submit_view("ana", view["id"], {"field:f149": "end"})
    await thread.says("first=two last=end")


DATE = """
flow: day
nodes:
  - id: day
    type: ask
    with: {message: "Which day?", form: {properties: {day: {type: string, format: date, title: Day}}, required: [day]}}
  - {id: tell, type: message, with: {text: "On {{ nodes.day.values.day }}"}}
"""


@in_town({"day": DATE})
async def test_a_date_is_picked_in_the_message(workspace: TownWorkspace) -> None:
    """A form of one field that a message can hold is answered there."""
    thread = await start_flow(workspace, "ana", "ops", "day")
    asked = await thread.says("Which day?")
    picker = next(e for b in asked["blocks"] for e in b.get("elements", []) if e["type"] == "datepicker")
    await workspace.press("ana", "ops", asked["ts"], action_id=picker["action_id"], value="2026-12-24")
    await thread.says("On 2026-12-24")


START = """
flow: deploy
description: Put a version somewhere
inputs:
  service: {type: string, description: Which service}
  region: {type: string, choices: [eu, us]}
  hosts: {type: integer, default: 3}
  tags: {type: array, items: {type: string}, default: [a, b]}
nodes:
  - id: tell
    type: message
    with: {text: "{{ inputs.service }} in {{ inputs.region }} on {{ inputs.hosts }} as {{ inputs.tags | length }}"}
"""


@in_town({"deploy": START})
async def test_a_slash_command_asks_for_what_is_missing_in_a_modal(workspace: TownWorkspace) -> None:
    """`/sayso run NAME` opens the inputs, filled in as far as they were given; submitting starts the flow in a thread."""
    await workspace.slash("ana", "ops", "/sayso", "run deploy service=checkout")
    view = await opened(workspace, "ana")
    values = view["state"]["values"]
    assert values["field:service"]["value"]["value"] == "checkout"
    assert values["field:hosts"]["value"]["value"] == "3"
    await workspace.submit_view("ana", view["id"], {"field:region": "us", "field:tags": "x"})
    root = await workspace.wait_for(
        lambda: next((m for m in workspace.messages("ops") if "started *deploy*" in m["text"]), None)
    )
    await ThreadView(workspace, "ops", root["ts"]).says("checkout in us on 3 as 1")


@in_town({"deploy": START, "day": DATE})
async def test_the_slash_command_alone_offers_the_flows(workspace: TownWorkspace) -> None:
    """`/sayso` shows what can be started; choosing a flow opens its inputs."""
    await workspace.slash("ana", "ops", "/sayso", "")
    shown = await workspace.wait_for(lambda: workspace.ephemerals("ana")[-1])
    await workspace.press("ana", "ops", shown["ts"], text="deploy")
    view = await opened(workspace, "ana")
    assert title(view) == "Start a flow"
    assert "field:service" in view["state"]["values"]
