"""Questions that are answered on the app's Home, by whoever is asked, while the thread shows it."""

from __future__ import annotations

import asyncio
from typing import Any

from bot.views.home import LOOKS_SECONDS
from tests.support.acting import Acts
from tests.support.bot import start_flow, words
from tests.support.simulated import TownWorkspace, in_town

GATE = """
flow: gate
nodes:
  - {id: gate, type: approval, with: {message: "Open the gate?", approvers: ["@sre"], on_reject: continue}}
  - {id: tell, type: message, with: {text: "It is {{ nodes.gate.decision }}: {{ nodes.gate.reason }}"}}
"""
WHY = """
flow: why
nodes:
  - {id: why, type: ask, with: {message: "Why now?", who: ["@sre"]}}
  - {id: tell, type: message, with: {text: "Because {{ nodes.why.text }}"}}
"""
RING = """
flow: ring
inputs: {host: {type: string}}
nodes:
  - id: ring
    type: approval
    with: {message: "Restart {{ inputs.host }}?", approvers: ["@sre"], on_reject: continue}
  - {id: tell, type: message, with: {text: "{{ inputs.host }}: {{ nodes.ring.decision }} {{ nodes.ring.reason }}"}}
"""


def seen(workspace: Acts, user: str) -> str:
    """What somebody's Home shows now."""
    return words(workspace.home(user) or {})


async def shows(workspace: Acts, user: str, part: str, *, gone: bool = False) -> str:
    """Wait until somebody's Home shows this by itself, or does not any more."""
    await workspace.wait_for(lambda: (part in seen(workspace, user)) != gone)
    return seen(workspace, user)


async def press_home(workspace: Acts, user: str, label: str, **which: Any) -> None:
    """Press something on somebody's Home."""
    home = workspace.home(user)
    assert home is not None
    await workspace.press_in_view(user, home["id"], text=label, **which)


@in_town({"gate": GATE})
async def test_a_question_is_decided_on_the_home(workspace: TownWorkspace) -> None:
    """`Approve` there decides the same prompt: the thread continues and shows who it was, and the Home is empty by itself."""
    await workspace.open_home("dev")
    thread = await start_flow(workspace, "ana", "ops", "gate")
    await shows(workspace, "dev", "Open the gate?")
    await press_home(workspace, "dev", "Approve")
    await thread.says("It is approve")
    await thread.says("*Approved* by <@U0LOCALDEV>")
    assert "Nothing is waiting for you" in await shows(workspace, "dev", "Open the gate?", gone=True)


@in_town({"why": WHY})
async def test_a_question_is_answered_on_the_home_with_words(workspace: TownWorkspace) -> None:
    """`Answer…` opens a modal, and what is written there is the answer."""
    await workspace.open_home("dev")
    thread = await start_flow(workspace, "ana", "ops", "why")
    await shows(workspace, "dev", "Why now?")
    await press_home(workspace, "dev", "Answer…")
    await workspace.wait_for(lambda: workspace.views("dev"))
    view = workspace.views("dev")[-1]
    assert "Why now?" in words(view)
    await workspace.submit_view("dev", view["id"], {"reason": "the disk is full"})
    await thread.says("Because the disk is full")


@in_town({"gate": GATE})
async def test_a_press_on_an_old_home_is_refused_in_a_direct_message(workspace: TownWorkspace) -> None:
    """Whoever comes second is told who was first where they can see it, and nothing is decided twice."""
    await workspace.open_home("dev")
    thread = await start_flow(workspace, "ana", "ops", "gate")
    asked = await thread.asks()
    await shows(workspace, "dev", "Open the gate?")
    old = workspace.home("dev") or {}
    await thread.approve("ben", asked)
    await thread.says("It is approve")
    await shows(workspace, "dev", "Open the gate?", gone=True)
    workspace.state.homes[workspace.user("dev").id] = old
    await press_home(workspace, "dev", "Reject")
    direct = workspace.dm("dev")
    await workspace.wait_for(lambda: "Already answered by Ben" in str(workspace.messages(direct)))
    assert thread.count("It is reject") == 0


@in_town({"ring": RING})
async def test_alike_approvals_are_decided_together_and_recorded_one_by_one(workspace: TownWorkspace) -> None:
    """Of four that are alike three are ticked: those are approved, each in its own thread, by a command of its own."""
    await workspace.open_home("dev")
    threads = [await start_flow(workspace, "ana", "ops", f"ring host=web-{n}") for n in range(4)]
    await shows(workspace, "dev", "4 alike")
    await press_home(workspace, "dev", "Decide 4 together…")
    await workspace.wait_for(lambda: workspace.views("dev"))
    view = workspace.views("dev")[-1]
    spared = next(b for b in view["blocks"] if "web-2" in str(b.get("label")))["block_id"]
    given = {"decision": "approve", "reason": "checked all", spared: []}
    assert await workspace.submit_view("dev", view["id"], given) == {"closed": True}
    for number in (0, 1, 3):
        await threads[number].says(f"web-{number}: approve checked all")
        await threads[number].says("*Approved* by <@U0LOCALDEV>")
    left = await shows(workspace, "dev", "web-3", gone=True)
    assert "Restart web-2?" in left
    assert threads[2].count("web-2: ") == 0
    recorded = [thread.count("*Approved* by <@U0LOCALDEV>") for thread in threads]
    assert recorded == [1, 1, 0, 1]


@in_town({"gate": GATE, "why": WHY})
async def test_a_home_says_who_waits_for_whom_and_can_be_narrowed(workspace: TownWorkspace) -> None:
    """Whoever started a run sees for whom it waits; whoever has questions of several kinds sees one kind alone."""
    await workspace.open_home("ana")
    await workspace.open_home("dev")
    for name in ("gate", "why"):
        await start_flow(workspace, "ana", "ops", name, says="@sre")
    assert "You are waiting for" in await shows(workspace, "ana", "waiting for @sre")
    await shows(workspace, "dev", "Why now?")
    home = workspace.home("dev") or {}
    await workspace.press_in_view("dev", home["id"], "sayso:open:home:kind", value="kind:question")
    assert "Why now?" in await shows(workspace, "dev", "Open the gate?", gone=True)


@in_town({"gate": GATE})
async def test_a_home_that_nobody_looks_at_is_not_published(workspace: TownWorkspace) -> None:
    """A quarter of an hour after it was opened it is left alone, and a burst costs one publish a person, not one a run."""
    await workspace.open_home("dev")
    await asyncio.gather(*(start_flow(workspace, "ana", "ops", "gate") for _ in range(10)))
    await shows(workspace, "dev", "10 alike")
    published = len(workspace.calls_to("views.publish"))
    assert published < 30
    await asyncio.sleep(LOOKS_SECONDS + 1)
    before = len(workspace.calls_to("views.publish"))
    await (await start_flow(workspace, "ana", "ops", "gate")).asks()
    await asyncio.sleep(5)
    assert len(workspace.calls_to("views.publish")) == before
