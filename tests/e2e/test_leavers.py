"""Somebody who leaves the company while a flow waits for them."""

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
