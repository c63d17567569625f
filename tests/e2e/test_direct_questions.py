"""Questions in direct messages: copies for who is asked, with the buttons of the thread; who is away; who is on call."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.support.acting import Acts
from tests.support.bot import start_flow, words
from tests.support.inprocess import Town
from tests.support.simulated import inhabited_town, simulated

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
    """Somebody fills in how they are told."""
    await workspace.open_home(user)
    await workspace.wait_for(lambda: "How I am told" in words(workspace.home(user) or {}))
    home = workspace.home(user) or {}
    await workspace.press_in_view(user, home["id"], text="How I am told…")
    await workspace.wait_for(lambda: workspace.views(user))
    view = workspace.views(user)[-1]
    assert await workspace.submit_view(user, view["id"], {"direct": "at_once", **given}) == {"closed": True}
    await town.settle()


def day(town: Town, ahead: int) -> str:
    """A day as a calendar names it."""
    return f"{datetime.fromtimestamp(town.seconds(), UTC) + timedelta(days=ahead):%Y-%m-%d}"


async def days_pass(town: Town, count: int) -> None:
    """Both clocks go on at once: nobody waits for days in which nothing happens."""
    town.ahead += count * 86400
    town.bot.service.notify()
    town.bot.outbound.notify()
    await asyncio.sleep(5)


@simulated
async def test_a_copy_decides_and_all_copies_are_disarmed(tmp_path: Path) -> None:
    """Both who are asked get the question; one decides in the direct message, and neither copy has buttons then."""
    async with inhabited_town(tmp_path, {"gate": GATE}) as (workspace, town):
        thread = await start_flow(workspace, "ana", "ops", "gate")
        for user in ("dev", "ben"):
            await told(workspace, user, "Open the gate?")
        copy = await told(workspace, "dev", "Open the gate?")
        await workspace.press("dev", workspace.dm("dev"), copy["ts"], text="Approve")
        await thread.says("It is approve by")
        await town.settle()
        for user in ("dev", "ben"):
            (message,) = workspace.messages(workspace.dm(user))
            assert "☑️ *approved* by <@U0LOCALDEV>" in words(message)
            assert "actions" not in [block["type"] for block in message["blocks"]]


@simulated
async def test_a_copy_that_is_pressed_late_says_so_where_it_was_pressed(tmp_path: Path) -> None:
    """The loser of two presses is told in the direct message, not in a thread that they do not look at."""
    async with inhabited_town(tmp_path, {"gate": GATE}) as (workspace, town):
        thread = await start_flow(workspace, "ana", "ops", "gate")
        copy = await told(workspace, "dev", "Open the gate?")
        asked = await thread.says("Approval needed")
        await thread.press("ben", asked, "Reject")
        await thread.says("It is reject")
        await town.settle()
        stale = workspace.state.message(workspace.dm("dev").id, copy["ts"])
        assert stale is not None
        stale["blocks"] = copy["blocks"]
        await workspace.press("dev", workspace.dm("dev"), copy["ts"], text="Approve")
        await workspace.wait_for(lambda: workspace.ephemerals("dev"))
        assert workspace.ephemerals("dev")[-1]["channel"] == workspace.dm("dev").id
        assert thread.count("It is approve") == 0


@simulated
async def test_whoever_cannot_read_the_thread_gets_no_word_of_the_question(tmp_path: Path) -> None:
    """Somebody who is asked and no member of the channel is told that they are waited for, and nothing else."""
    async with inhabited_town(tmp_path, {"gate": GATE}) as (workspace, _):
        workspace.add_channel("secret", ["ana", "dev", "sayso"], is_private=True)
        await start_flow(workspace, "ana", "secret", "gate")
        await told(workspace, "dev", "Open the gate?")
        message = await told(workspace, "ben", "waits for you")
        assert "Open the gate?" not in words(message)


@simulated
async def test_nobody_is_told_who_wants_no_direct_messages(tmp_path: Path) -> None:
    """`Never` keeps the question in its thread and on the Home."""
    async with inhabited_town(tmp_path, {"gate": GATE}) as (workspace, town):
        await sets(workspace, town, "dev", direct="never")
        await start_flow(workspace, "ana", "ops", "gate")
        await told(workspace, "ben", "Open the gate?")
        await town.settle()
        assert direct(workspace, "dev") == []


@simulated
async def test_a_digest_comes_once_a_day_and_its_buttons_go_with_the_questions(tmp_path: Path) -> None:
    """Three questions come together when the next working day begins; what is decided then loses its buttons there."""
    async with inhabited_town(tmp_path, {"gate": GATE}) as (workspace, town):
        await sets(workspace, town, "dev", direct="digest")
        threads = [await start_flow(workspace, "ana", "ops", "gate") for _ in range(3)]
        await asyncio.sleep(5)  # what waits for the morning is not settled
        assert direct(workspace, "dev") == []
        await days_pass(town, 4)
        digest = await told(workspace, "dev", "3 questions wait for you")
        assert len(direct(workspace, "dev")) == 1
        await workspace.press("dev", workspace.dm("dev"), digest["ts"], text="Approve")
        await told(workspace, "dev", "2 questions wait for you* · 1 decided since")
        assert sum(thread.count("It is approve") for thread in threads) == 1


@simulated
async def test_a_copy_waits_for_working_hours(tmp_path: Path) -> None:
    """Whoever has set hours hears of a question when their work begins, and never of one that was answered by then."""
    async with inhabited_town(tmp_path, {"gate": GATE}) as (workspace, town):
        hour = datetime.fromtimestamp(town.seconds(), UTC).hour
        begin, end = f"{(hour + 3) % 24:02}:00", f"{(hour + 4) % 24:02}:00"
        await sets(workspace, town, "dev", **{"from": begin, "to": end})
        answered = await start_flow(workspace, "ana", "ops", "gate")
        await answered.press("ben", await answered.says("Approval needed"), "Approve")
        await start_flow(workspace, "ana", "ops", "gate")
        await told(workspace, "ben", "Open the gate?")
        await asyncio.sleep(5)  # what waits for the morning is not settled
        assert direct(workspace, "dev") == []
        await days_pass(town, 4)
        assert len(direct(workspace, "dev")) == 1


@simulated
async def test_who_stands_in_decides_and_that_is_recorded(tmp_path: Path) -> None:
    """While Dev is away Cleo gets the question and decides it in Dev's place; once Dev is back she no longer can."""
    alone = GATE.replace(", ben@example.com", "")
    async with inhabited_town(tmp_path, {"gate": alone}) as (workspace, town):
        await sets(workspace, town, "dev", stand_in=workspace.user("cleo").id, until=day(town, 3))
        thread = await start_flow(workspace, "ana", "ops", "gate")
        copy = await told(workspace, "cleo", "Open the gate?")
        await workspace.press("cleo", workspace.dm("cleo"), copy["ts"], text="Approve")
        await thread.says("It is approve by")
        await thread.says("<@U0LOCALCLEO> for <@U0LOCALDEV>")
        await days_pass(town, 3)
        later = await start_flow(workspace, "ana", "ops", "gate")
        await later.press("cleo", await later.says("Approval needed"), "Approve")
        await workspace.wait_for(lambda: "Only " in str(workspace.ephemerals("cleo")))
        assert later.count("It is approve") == 0


@simulated
async def test_who_asked_does_not_decide_in_the_place_of_somebody(tmp_path: Path) -> None:
    """With `exclude_requester` the requester is no way around it for whoever named them."""
    flow = GATE.replace(", ben@example.com]", "], exclude_requester: true")
    async with inhabited_town(tmp_path, {"gate": flow}) as (workspace, town):
        await sets(workspace, town, "dev", stand_in=workspace.user("ana").id, until=day(town, 3))
        thread = await start_flow(workspace, "ana", "ops", "gate")
        await thread.press("ana", await thread.says("Approval needed"), "Approve")
        await workspace.wait_for(lambda: "You started this" in str(workspace.ephemerals("ana")))
        assert thread.count("It is approve") == 0


@simulated
async def test_two_who_must_agree_are_two_people_also_while_one_is_away(tmp_path: Path) -> None:
    """Ben, who is asked himself and stands in for Dev, has one vote."""
    flow = GATE.replace("ben@example.com]", "ben@example.com], required: 2")
    async with inhabited_town(tmp_path, {"gate": flow}) as (workspace, town):
        await sets(workspace, town, "dev", stand_in=workspace.user("ben").id, until=day(town, 3))
        thread = await start_flow(workspace, "ana", "ops", "gate")
        await thread.press("ben", await thread.says("Approval needed"), "Approve")
        await thread.says("1 of 2")
        await thread.press("ben", await thread.says("Approval needed"), "Approve")
        await workspace.wait_for(lambda: "You voted already" in str(workspace.ephemerals("ben")))
        assert thread.count("It is approve") == 0
        await thread.press("dev", await thread.says("Approval needed"), "Approve")
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
        await town.settle()
        first, second = ("dev", "cleo") if direct(workspace, "dev") else ("cleo", "dev")
        await thread.press(second, await thread.says("Approval needed"), "Approve")
        await workspace.wait_for(lambda: "on call for gates" in str(workspace.ephemerals(second)))
        await days_pass(town, 7)
        await thread.press(first, await thread.says("Approval needed"), "Approve")
        await workspace.wait_for(lambda: "on call for gates" in str(workspace.ephemerals(first)))
        await thread.press(second, await thread.says("Approval needed"), "Approve")
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
        await thread.says("Approval needed")
        await asyncio.sleep(3601)
        await told(workspace, "ben", "Open the gate?")
        assert direct(workspace, "cleo") == []
        await asyncio.sleep(3601)
        copy = await told(workspace, "cleo", "Open the gate?")
        await workspace.press("cleo", workspace.dm("cleo"), copy["ts"], text="Approve")
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
        await told(workspace, "ben", "Open the gate?")
        await thread.press("ben", await thread.says("Approval needed"), "Approve")
        await thread.says("It is approve by")
