"""Somebody who leaves the company while a flow waits for them, and guests where the installation lets them in."""

from __future__ import annotations

from tests.e2e.test_conversation import whispers
from tests.support.bot import start_flow
from tests.support.simulated import TownWorkspace, in_town

GATE = """
flow: gate
nodes:
  - {id: gate, type: approval, with: {message: "Open the gate?", approvers: [channel]}}
  - {id: tell, type: message, with: {text: "It is {{ nodes.gate.decision }}"}}
"""


@in_town({"gate": GATE})
async def test_somebody_who_leaves_the_company_in_the_meantime_decides_nothing(
    workspace: TownWorkspace,
) -> None:
    """An approver whose account was deactivated after the question is refused; others can finish the run of a requester who left."""
    thread = await start_flow(workspace, "ana", "ops", "gate")
    asked = await thread.asks()
    workspace.user("ana").deleted = True
    workspace.user("cleo").deleted = True
    await thread.reject("cleo", asked)
    await workspace.wait_for(lambda: bool(whispers(workspace, "cleo")))
    await thread.approve("ben", asked)
    await thread.says("It is approve")


@in_town({"gate": GATE}, allow_guests=True)
async def test_guests_count_where_the_installation_says_so(workspace: TownWorkspace) -> None:
    """With SAYSO_ALLOW_GUESTS a guest decides like a member; somebody of another organisation does not."""
    partner = workspace.add_user("partner", is_stranger=True, team_id="T0OTHER01")
    guest = workspace.add_user("guest", is_restricted=True)
    workspace.join(partner, "ops")
    workspace.join(guest, "ops")
    thread = await start_flow(workspace, "ana", "ops", "gate")
    asked = await thread.asks()
    await thread.reject(partner.id, asked)
    await workspace.wait_for(lambda: bool(whispers(workspace, "partner")))
    await thread.approve(guest.id, asked)
    await thread.says("It is approve")
