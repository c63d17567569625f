"""What is shown wakes the session that waits for it: nothing of a thread waits for the sweep that looks for orphans."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.run.dispatcher import SWEEP_SECONDS
from tests.support.acting import Workspace
from tests.support.bot import running_bot, start_flow

pytestmark = pytest.mark.process

MESSAGES = 4
FLOW = "flow: talk\nnodes:\n" + "".join(
    f"  - {{id: m{number}, type: message, with: {{text: 'message {number} of {MESSAGES}'}}}}\n"
    for number in range(1, MESSAGES + 1)
)


async def test_messages_follow_each_other_at_once(workspace: Workspace, tmp_path: Path) -> None:
    """A flow goes on as soon as Slack has its message: several in a row take less than a sweep for each."""
    async with running_bot(workspace, tmp_path, {"talk": FLOW}):
        thread = await start_flow(workspace, "ana", "ops", "talk")
        await thread.says(f"message 1 of {MESSAGES}")
        await thread.says("*Completed*", timeout=SWEEP_SECONDS * (MESSAGES - 1))
