"""The app's Home: what waits for whoever opens it, what runs where they are, and the flows to start."""

from __future__ import annotations

from tests.support.acting import Acts
from tests.support.bot import start_flow, words
from tests.support.simulated import TownWorkspace, in_town

GATE = """
flow: gate
description: Opens the gate
nodes:
  - {id: gate, type: approval, with: {message: "Open the gate?", approvers: ["@sre"], on_reject: continue}}
  - {id: tell, type: message, with: {text: "It is {{ nodes.gate.decision }}"}}
"""
MAILED = """
flow: mailed
nodes:
  - {id: gate, type: approval, with: {message: "Open it?", approvers: [ben@example.com, who@example.com]}}
"""


async def home_of(workspace: Acts, user: str, part: str) -> str:
    """What somebody's Home says, opened until it says this: a question needs a moment until it can be linked to."""
    for _ in range(50):
        before = (workspace.home(user) or {}).get("hash")
        await workspace.open_home(user)
        await workspace.wait_for(lambda: (workspace.home(user) or {}).get("hash") != before)  # noqa: B023
        said = words(workspace.home(user) or {})
        if part in said:
            return said
    raise AssertionError(f"the Home of {user} does not say {part!r} but:\n{said}")


@in_town({"gate": GATE})
async def test_a_home_has_what_waits_for_this_person(workspace: TownWorkspace) -> None:
    """Whoever may answer a question finds it on their Home with a link; others see only that the flow runs."""
    thread = await start_flow(workspace, "ana", "ops", "gate")
    asked = await thread.asks()
    dev = await home_of(workspace, "dev", "Open the gate?")
    assert f"/{thread.root_ts}|gate>*" in dev.split("Open runs")[0]
    assert "Opens the gate" in dev
    cleo = await home_of(workspace, "cleo", "1 open question")
    assert "Open the gate?" not in cleo
    assert "Nothing is waiting for you" in cleo
    await thread.approve("dev", asked)
    await thread.says("It is approve")
    assert "Nothing is waiting for you" in await home_of(workspace, "dev", "completed")


@in_town({"gate": GATE})
async def test_a_home_shows_nothing_of_channels_one_is_not_in(workspace: TownWorkspace) -> None:
    """A run in a private channel is on the Home of its members only."""
    workspace.add_channel("secret", ["ana", "dev", "sayso"], is_private=True)
    await start_flow(workspace, "ana", "secret", "gate", says="Open the gate?")
    assert "Open the gate?" in await home_of(workspace, "dev", "Open the gate?")
    ben = await home_of(workspace, "ben", "Nothing is waiting for you")
    assert "There are no open runs for you or in your channels" in ben


@in_town({"gate": GATE})
async def test_a_home_counts_all_runs_that_it_has_no_room_for(workspace: TownWorkspace) -> None:
    """Eight are listed; the others are as many as they are."""
    for _ in range(11):
        await start_flow(workspace, "ana", "ops", "gate", says="Open the gate?")
    assert "… and 3 more" in (await home_of(workspace, "cleo", "and 3 more")).split("Recent")[0]


@in_town({"mailed": MAILED})
async def test_a_home_mentions_whoever_is_asked_by_an_address(workspace: TownWorkspace) -> None:
    """As the thread does; an address that Slack does not know stays as it is written."""
    await start_flow(workspace, "ana", "ops", "mailed", says="Open it?")
    said = await home_of(workspace, "ana", "has been waiting for")
    assert "has been waiting for <@U0LOCALBEN> and who@example.com" in said


def shown(workspace: Acts, user: str) -> list[object]:
    """The blocks of somebody's Home without the last one, which says when it was made."""
    home = workspace.home(user)
    assert home is not None
    return list(home["blocks"][:-1])


@in_town({"gate": GATE})
async def test_a_home_is_as_the_run_stands_whatever_answer_was_lost(workspace: TownWorkspace) -> None:
    """A view was published and nobody knows, then the run is back where it was: so is the Home."""
    thread = await start_flow(workspace, "ana", "ops", "gate")
    await thread.asks()
    await home_of(workspace, "cleo", "1 open question")
    before = shown(workspace, "cleo")
    workspace.faults.effect_then_fail("views.publish", times=1)
    await thread.reply("ana", "pause")
    await workspace.wait_for(lambda: shown(workspace, "cleo") != before)
    await thread.reply("ana", "resume")
    await workspace.wait_for(lambda: shown(workspace, "cleo") == before)
