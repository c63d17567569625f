"""How fast things follow each other: nothing waits for a sweep, and no question for an edit."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from bot.outbound import outbox_worker
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


TWO = """
flow: two
nodes:
  - {id: first, type: ask, with: {message: "First?", choices: [a, b]}}
  - {id: second, type: ask, with: {message: "Second?"}}
"""


async def no_question_waits_for_an_edit(folder: Path) -> None:
    """While Slack refuses every edit for minutes, the next question comes at once; in the end all is drawn, each
    message once."""
    async with inhabited_town(folder, {"two": TWO}) as (workspace, place):
        thread = await start_flow(workspace, "ana", "ops", "two")
        await thread.says("First?")
        await workspace.settled()
        place.limited["chat.update"] = [60] * 3
        before, begun = len(place.calls), place.seconds()
        await thread.reply("ana", "a")
        await thread.says("Second?")
        assert place.seconds() - begun < 3
        await thread.reply("ana", "b")
        await thread.says("*Completed*", timeout=300)
        await workspace.settled()
        edits = place.called("chat.update", before)
        drawn = [call.args["ts"] for call in edits if call.answer["ok"]]
        assert len(edits) - len(drawn) == 3
        assert len(drawn) == len(set(drawn))
    assert place.seconds() - begun >= 180


@simulated
async def test_no_question_waits_for_an_edit(tmp_path: Path) -> None:
    """While Slack refuses every edit for minutes, the next question comes at once."""
    await no_question_waits_for_an_edit(tmp_path)


@simulated
async def test_an_edit_in_the_lane_of_its_thread_is_noticed(tmp_path: Path) -> None:
    """Seeded fault: edits stand in the thread's order, before the next question."""
    with (
        patch.object(outbox_worker, "lane_of", lambda row: row.lane),
        pytest.raises((AssertionError, TimeoutError)),
    ):
        await no_question_waits_for_an_edit(tmp_path)
