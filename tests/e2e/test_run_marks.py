"""The reaction on the message that started a run shows how the run stands."""

from __future__ import annotations

from tests.support.acting import Acts
from tests.support.bot import ThreadView, start_flow
from tests.support.inprocess import Town
from tests.support.simulated import TownWorkspace, in_town

GATE = """
flow: gate
triggers: [{message: "gate is open", channels: ["#ops"], from_bots: true}]
nodes:
  - {id: ok, type: approval, with: {message: "Go?", approvers: [U0LOCALBEN]}}
"""
QUICK = "flow: quick\nnodes: [{id: tell, type: message, with: {text: done}}]\n"


def marks(workspace: Acts, ts: str, channel: str = "ops") -> list[str]:
    """The names of the reactions on a message that begins a thread."""
    message = workspace.messages(channel, ts)[0]
    return [entry["name"] for entry in message.get("reactions") or ()]


async def marked(workspace: Acts, ts: str, name: str) -> None:
    """Wait until this is the only mark of a message."""
    await workspace.wait_for(lambda: marks(workspace, ts) == [name])


@in_town({"gate": GATE})
async def test_the_message_that_started_a_run_shows_how_it_stands(
    workspace: TownWorkspace, place: Town
) -> None:
    """Yellow while it waits, then the mark of its end, and one mark at a time in the end: three calls for a run."""
    for label, name in (("Approve", "white_check_mark"), ("Reject", "no_entry_sign")):
        before = len(place.calls)
        thread = await start_flow(workspace, "ana", "ops", "gate")
        question = await thread.says("Go?")
        await marked(workspace, thread.root_ts, "large_yellow_circle")
        await thread.press("ben", question, label)
        await marked(workspace, thread.root_ts, name)
        await place.settle()
        calls = [call.method for call in place.calls[before:] if call.method.startswith("reactions.")]
        assert calls == ["reactions.add", "reactions.add", "reactions.remove"]


@in_town({"gate": GATE})
async def test_an_alert_of_an_app_shows_how_its_run_stands(workspace: TownWorkspace) -> None:
    """The words that started it are marked, whoever said them."""
    pager = workspace.add_user("pager", is_bot=True)
    workspace.join(pager, "ops")
    ts = await workspace.post(pager, "ops", "gate is open")
    thread = ThreadView(workspace, "ops", ts)
    question = await thread.says("Go?")
    await marked(workspace, ts, "large_yellow_circle")
    await thread.reject("ben", question)
    await marked(workspace, ts, "no_entry_sign")


@in_town({"quick": QUICK})
async def test_a_run_that_is_over_at_once_gets_one_mark(workspace: TownWorkspace, place: Town) -> None:
    """Slack takes 50 reactions a minute: what lasts no three seconds takes one of them, and none away."""
    before = len(place.calls)
    thread = await start_flow(workspace, "ana", "ops", "quick")
    await marked(workspace, thread.root_ts, "white_check_mark")
    await place.settle()
    calls = [call.method for call in place.calls[before:] if call.method.startswith("reactions.")]
    assert calls == ["reactions.add"]


@in_town({"gate": GATE})
async def test_a_run_of_a_slash_command_is_marked_where_its_thread_begins(workspace: TownWorkspace) -> None:
    """Nobody's words are there, so the message that the bot posts for it shows how it stands, for whoever reads the channel."""
    await workspace.slash("ana", "ops", "/sayso", "run gate")
    await workspace.wait_for(lambda: len(workspace.messages("ops")) == 1)
    ts = workspace.messages("ops")[0]["ts"]
    question = await (thread := ThreadView(workspace, "ops", ts)).says("Go?")
    await marked(workspace, ts, "large_yellow_circle")
    await thread.reject("ben", question)
    await marked(workspace, ts, "no_entry_sign")


@in_town({"gate": GATE}, reactions=False)
async def test_marks_are_a_setting(workspace: TownWorkspace, place: Town) -> None:
    """With SAYSO_REACTIONS=off no message is marked."""
    await start_flow(workspace, "ana", "ops", "gate", says="Go?")
    await place.settle()
    assert not [call for call in place.calls if call.method.startswith("reactions.")]
