"""Somebody who leaves the company while a flow waits for them, and guests where the installation lets them in."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.test_conversation import whispers
from tests.support.bot import start_flow
from tests.support.simulated import inhabited_town, simulated

GATE = """
flow: gate
nodes:
  - {id: gate, type: approval, with: {message: "Open the gate?", approvers: [channel]}}
  - {id: tell, type: message, with: {text: "It is {{ nodes.gate.decision }}"}}
"""


@simulated
async def test_somebody_who_leaves_the_company_in_the_meantime_decides_nothing(tmp_path: Path) -> None:
    """An approver whose account was deactivated after the question is refused; others can finish the run of a requester who left."""
    async with inhabited_town(tmp_path, {"gate": GATE}) as (workspace, _):
        thread = await start_flow(workspace, "ana", "ops", "gate")
        asked = await thread.asks()
        workspace.user("ana").deleted = True
        workspace.user("cleo").deleted = True
        await thread.reject("cleo", asked)
        await workspace.wait_for(lambda: bool(whispers(workspace, "cleo")))
        await thread.approve("ben", asked)
        await thread.says("It is approve")


@simulated
async def test_guests_count_where_the_installation_says_so(tmp_path: Path) -> None:
    """With SAYSO_ALLOW_GUESTS a guest decides like a member; somebody of another organisation does not."""
    async with inhabited_town(tmp_path, {"gate": GATE}, allow_guests=True) as (workspace, _):
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
