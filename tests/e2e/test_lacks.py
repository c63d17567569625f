"""A secret that is not set is known in the thread from the start."""

from __future__ import annotations

from pathlib import Path

from tests.support.bot import start_flow
from tests.support.simulated import inhabited_town, simulated

FLOW = """
flow: call
nodes:
  - {id: q, type: ask, with: {message: "Whom?"}}
  - {id: call, type: shell, with: {run: [env], env: {A: "{{ secrets.NOBODY_SET }}"}}}
"""


@simulated
async def test_the_card_names_a_secret_that_is_not_set_before_anybody_answers(tmp_path: Path) -> None:
    """The card that opens a thread says which secret is missing, beside the first question."""
    async with inhabited_town(tmp_path, {"call": FLOW}) as (workspace, _):
        thread = await start_flow(workspace, "ana", "releases", "call")
        await thread.says("secret NOBODY_SET is not set")
        await thread.says("Whom?")
