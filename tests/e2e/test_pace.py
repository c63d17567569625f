"""How fast things follow each other: nothing waits for a sweep, and no question for an edit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest

from bot.outbound import outbox_worker
from engine.run.dispatcher import SWEEP_SECONDS
from tests.support.bot import start_flow, words
from tests.support.inprocess import Town
from tests.support.simulated import TownWorkspace, in_town, inhabited_town, simulated

MESSAGES = 4
FLOW = "flow: talk\nnodes:\n" + "".join(
    f"  - {{id: m{number}, type: message, with: {{text: 'message {number} of {MESSAGES}'}}}}\n"
    for number in range(1, MESSAGES + 1)
)


@in_town({"talk": FLOW})
async def test_messages_follow_each_other_at_once(workspace: TownWorkspace) -> None:
    """A flow continues as soon as Slack has its message: several in a row take less than a sweep for each."""
    thread = await start_flow(workspace, "ana", "ops", "talk", says=f"message 1 of {MESSAGES}")
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
        thread = await start_flow(workspace, "ana", "ops", "two", says="First?")
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
    """Seeded fault: edits are in the thread's order, before the next question."""
    with (
        patch.object(outbox_worker, "lane_of", lambda row: row.lane),
        patch.object(outbox_worker, "_order", lambda row: row.id),
        pytest.raises((AssertionError, TimeoutError)),
    ):
        await no_question_waits_for_an_edit(tmp_path)


SHOWN = (
    "chat.postMessage",
    "chat.update",
    "reactions.add",
    "reactions.remove",
    "response_url",
    "chat.getPermalink",
)
MARKS = {"reactions.add": 2, "reactions.remove": 1}
"""What shows on the message that started a run how it stands."""
THREE = TWO + "  - {id: tell, type: message, with: {text: 'All done.'}}\n"
ONE = "flow: one\nnodes:\n  - {id: only, type: ask, with: {message: 'First?'}}\n"


def shown_by(place: Town, since: int) -> Counter[str]:
    """The calls that show something, by method."""
    return Counter(call.method for call in place.calls[since:] if call.method in SHOWN)


@in_town({"two": THREE})
async def test_a_flow_with_two_questions_takes_seven_calls(workspace: TownWorkspace, place: Town) -> None:
    """The card with the first question, the second and the result are posted; each question and the end is one edit, and
    the first reply of a person that counts has a reaction."""
    place.bot._bot.workspace_url = "https://acme.slack.com/"
    before = len(place.calls)
    thread = await start_flow(workspace, "ana", "ops", "two", says="First?")
    await place.settle()
    await thread.reply("ana", "a")
    await thread.says("Second?")
    await place.settle()
    await thread.reply("ana", "b")
    await thread.says("*Completed*")
    await place.settle()
    found = shown_by(place, before)
    assert found - Counter(MARKS) == {"chat.postMessage": 3, "chat.update": 3, "reactions.add": 1}
    assert found >= Counter(MARKS)
    session_id = place.store.sessions.heads()[0].session_id
    assert sum(f"`{session_id}`" in words(message) for message in thread.messages()) == 1


@in_town({"one": ONE})
async def test_a_flow_with_one_question_takes_three_calls(workspace: TownWorkspace, place: Town) -> None:
    """Card and question are one message, whose one edit closes the question and shows the end."""
    before = len(place.calls)
    thread = await start_flow(workspace, "ana", "ops", "one", says="First?")
    await place.settle()
    await thread.reply("ana", "yes")
    await thread.says("*Completed*")
    await place.settle()
    found = shown_by(place, before)
    assert found - Counter(MARKS) == {"chat.postMessage": 1, "chat.update": 1, "reactions.add": 1}
    assert found >= Counter(MARKS)


@in_town({"two": THREE})
async def test_a_press_is_disarmed_without_an_edit(workspace: TownWorkspace, place: Town) -> None:
    """What was pressed is replaced through the press, also while Slack refuses every edit; where that fails, it is edited."""
    thread = await start_flow(workspace, "ana", "ops", "two", says="First?")
    await place.settle()
    place.limited["chat.update"] = [60]
    begun = place.seconds()
    message, found = place.find(thread.root_ts, "sayso:option")
    await place.press("ana", message, found)
    await thread.says("☑️ *Answered*")
    assert place.seconds() - begun < 3
    place.hands.responses.clear()
    await thread.says("Second?")
    await thread.reply("ana", "b")
    await thread.says("*Completed*", timeout=200)


@in_town({"two": THREE})
async def test_a_press_whose_address_is_used_up_is_disarmed_by_an_edit(
    workspace: TownWorkspace, place: Town
) -> None:
    """Slack takes nothing at a response URL any more: the message is edited."""
    thread = await start_flow(workspace, "ana", "ops", "two", says="First?")
    await place.settle()
    message, found = place.find(thread.root_ts, "sayso:option")
    press = place.press("ana", message, found)
    await press
    place.hands.responses.clear()
    await thread.says("☑️ *Answered*")
    assert place.called("chat.update")
