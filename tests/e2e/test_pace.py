"""What is shown wakes the session that waits for it: nothing of a thread waits for the sweep that looks for orphans."""

from __future__ import annotations

from pathlib import Path

from engine.run.dispatcher import SWEEP_SECONDS
from tests.support.bot import start_flow
from tests.support.simulated import inhabited_town, simulated

MESSAGES = 4
FLOW = "flow: talk\nnodes:\n" + "".join(
    f"  - {{id: m{number}, type: message, with: {{text: 'message {number} of {MESSAGES}'}}}}\n"
    for number in range(1, MESSAGES + 1)
)


@simulated
async def test_messages_follow_each_other_at_once(tmp_path: Path) -> None:
    """A flow goes on as soon as Slack has its message: several in a row take less than a sweep for each."""
    async with inhabited_town(tmp_path, {"talk": FLOW}) as (workspace, _):
        thread = await start_flow(workspace, "ana", "ops", "talk")
        await thread.says(f"message 1 of {MESSAGES}")
        await thread.says("*Completed*", timeout=SWEEP_SECONDS * (MESSAGES - 1))
