"""Who answers in the place of somebody: a stand-in while they are away, whoever is on call, a manager."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.acting import Acts
from tests.support.bot import start_flow, whispered, words
from tests.support.inprocess import Town
from tests.support.simulated import TownWorkspace, in_town, inhabited_town, simulated

GATE = """
flow: gate
nodes:
  - {id: gate, type: approval, with: {message: "Open the gate?", approvers: [dev@example.com, ben@example.com],
      on_reject: continue}}
  - {id: tell, type: message, with: {text: "It is {{ nodes.gate.decision }} by {{ nodes.gate.by | map(attribute='name') | join(',') }}"}}
"""


def direct(workspace: Acts, user: str) -> list[str]:
    """What the bot told somebody in a direct message."""
    return [words(message) for message in workspace.messages(workspace.dm(user))]


async def told(workspace: Acts, user: str, part: str) -> dict[str, Any]:
    """The direct message that says this, once it is there."""
    await workspace.wait_for(lambda: any(part in text for text in direct(workspace, user)))
    return next(m for m in workspace.messages(workspace.dm(user)) if part in words(m))


async def sets(workspace: Acts, town: Town, user: str, **given: Any) -> None:
    """Somebody fills in who answers while they are away."""
    await workspace.open_home(user)
    await workspace.wait_for(lambda: "While I am away" in words(workspace.home(user) or {}))
    home = workspace.home(user) or {}
    await workspace.press_in_view(user, home["id"], text="While I am away…")
    await workspace.wait_for(lambda: workspace.views(user))
    view = workspace.views(user)[-1]
    assert await workspace.submit_view(user, view["id"], given) == {"closed": True}
    await town.settle()


def day(town: Town, ahead: int) -> str:
    """A day as a calendar names it."""
    return f"{datetime.fromtimestamp(town.seconds(), UTC) + timedelta(days=ahead):%Y-%m-%d}"


async def days_pass(town: Town, count: int) -> None:
    """Both clocks continue at once: nobody waits for days in which nothing happens."""
    town.ahead += count * 86400
    town.bot.service.notify()
    town.bot.outbound.notify()
    await asyncio.sleep(5)


@in_town({"gate": GATE.replace(", ben@example.com", "")})
async def test_who_stands_in_decides_and_that_is_recorded(workspace: TownWorkspace, place: Town) -> None:
    """While Dev is away Cleo decides in Dev's place; once Dev is back she no longer can."""
    await sets(workspace, place, "dev", stand_in=workspace.user("cleo").id, until=day(place, 3))
    thread = await start_flow(workspace, "ana", "ops", "gate")
    await thread.approve("cleo", await thread.asks())
    await thread.says("It is approve by")
    await thread.says("<@U0LOCALCLEO> for <@U0LOCALDEV>")
    await days_pass(place, 3)
    later = await start_flow(workspace, "ana", "ops", "gate")
    await later.approve("cleo", await later.asks())
    await whispered(workspace, "cleo", "Only ")
    assert later.count("It is approve") == 0


@in_town({"gate": GATE.replace(", ben@example.com]", "], exclude_requester: true")})
async def test_who_asked_does_not_decide_in_the_place_of_somebody(
    workspace: TownWorkspace, place: Town
) -> None:
    """With `exclude_requester` the requester is no way around it for whoever named them."""
    await sets(workspace, place, "dev", stand_in=workspace.user("ana").id, until=day(place, 3))
    thread = await start_flow(workspace, "ana", "ops", "gate")
    await thread.approve("ana", await thread.asks())
    await whispered(workspace, "ana", "You started this")
    assert thread.count("It is approve") == 0


@in_town({"gate": GATE.replace("ben@example.com]", "ben@example.com], required: 2")})
async def test_two_who_must_agree_are_two_people_also_while_one_is_away(
    workspace: TownWorkspace, place: Town
) -> None:
    """Ben, who is asked himself and stands in for Dev, has one vote."""
    await sets(workspace, place, "dev", stand_in=workspace.user("ben").id, until=day(place, 3))
    thread = await start_flow(workspace, "ana", "ops", "gate")
    await thread.approve("ben", await thread.asks())
    await thread.says("1 of 2")
    await thread.approve("ben", await thread.asks())
    await whispered(workspace, "ben", "You have already voted")
    assert thread.count("It is approve") == 0
    await thread.approve("dev", await thread.asks())
    await thread.says("It is approve by")


PEOPLE = """
people:
  ana@example.com: {manager: ben@example.com}
  ben@example.com: {manager: cleo@example.com}
rotas:
  gates: {people: [dev@example.com, cleo@example.com], from: "2020-01-06T00:00:00Z", each: 7d}
  pager: {command: [cat, on-call]}
"""


@simulated
async def test_whoever_is_on_call_decides(tmp_path: Path) -> None:
    """A rota names one person after the other: in one week Dev may, in the next Cleo, for the same question."""
    flow = GATE.replace("dev@example.com, ben@example.com", "'rota:gates'")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "people.yml").write_text(PEOPLE)
    async with inhabited_town(tmp_path, {"gate": flow}) as (workspace, town):
        thread = await start_flow(workspace, "ana", "ops", "gate")
        (email,) = await town.bot.people.on_call("rota:gates")
        first, second = ("dev", "cleo") if email.startswith("dev") else ("cleo", "dev")
        await thread.approve(second, await thread.asks())
        await workspace.wait_for(lambda: "on call for gates" in str(workspace.ephemerals(second)))
        await days_pass(town, 7)
        await thread.approve(first, await thread.asks())
        await workspace.wait_for(lambda: "on call for gates" in str(workspace.ephemerals(first)))
        await thread.approve(second, await thread.asks())
        await thread.says("It is approve by")


@simulated
async def test_an_escalation_goes_along_the_managers(tmp_path: Path) -> None:
    """Nobody answers: an hour later the manager of who is asked may, and an hour after that the one above."""
    steps = "escalate: [{after: 1h, to: manager, may_answer: true}, {after: 2h, to: 'dm:manager', may_answer: true}]"
    flow = GATE.replace("[dev@example.com, ben@example.com],", f"[ana@example.com], {steps},")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "people.yml").write_text(PEOPLE)
    async with inhabited_town(tmp_path, {"gate": flow}) as (workspace, _):
        thread = await start_flow(workspace, "dev", "ops", "gate")
        await thread.asks()
        await asyncio.sleep(3601)
        await thread.says("<@U0LOCALBEN>")
        assert direct(workspace, "cleo") == []
        await asyncio.sleep(3601)
        assert "Open the gate?" not in words(await told(workspace, "cleo", "gate"))
        await thread.approve("cleo", await thread.asks())
        await thread.says("It is approve by")


@simulated
async def test_the_manager_of_the_requester_is_asked_by_expression(tmp_path: Path) -> None:
    """`session.requester` says who manages whoever asked for the run, and `manager` means the same person."""
    flow = GATE.replace(
        "[dev@example.com, ben@example.com]", "['{{ session.requester.manager or \"@sre\" }}', manager]"
    )
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "people.yml").write_text(PEOPLE)
    async with inhabited_town(tmp_path, {"gate": flow}) as (workspace, _):
        thread = await start_flow(workspace, "ana", "ops", "gate")
        await thread.approve("ben", await thread.asks())
        await thread.says("It is approve by")
