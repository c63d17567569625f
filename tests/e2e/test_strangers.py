"""Who is not a colleague decides nothing: guests, people of other organisations, bots, workflows, deactivated accounts, other
teams. The real bot over real sockets, with Slack's payloads for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bot.workspace.state import User
from tests.e2e.test_conversation import reactions, whispers
from tests.support.acting import Acts
from tests.support.bot import ThreadView, start_flow
from tests.support.simulated import inhabited_town, simulated

OPEN_TO_ALL = """
flow: open
nodes:
  - id: both
    type: parallel
    branches:
      left: [{id: word, type: ask, with: {message: "Which word?", who: [channel]}}]
      right: [{id: gate, type: approval, with: {message: "Open the gate?", approvers: [channel], on_reject: continue}}]
  - id: tell
    type: message
    with:
      text: "{{ nodes.both.branches.left.word.text }}, {{ nodes.both.branches.right.gate.decision }}"
"""

STRANGERS: dict[str, dict[str, Any]] = {
    "guest": {"is_restricted": True},
    "visitor": {"is_restricted": True, "is_ultra_restricted": True},
    "partner": {"is_stranger": True, "team_id": "T0OTHER01"},
    "robot": {"is_bot": True},
    "leaver": {"deleted": True},
}


def strangers(workspace: Acts) -> dict[str, User]:
    """One of each kind, all members of #ops."""
    found = {name: workspace.add_user(name, **fields) for name, fields in STRANGERS.items()}
    for user in found.values():
        workspace.join(user, "ops")
    return found


async def both_asked(workspace: Acts) -> tuple[ThreadView, dict[str, Any]]:
    """The thread in which both questions are open, and the message with the buttons."""
    thread = await start_flow(workspace, "ana", "ops", "open")
    await thread.says("Which word?")
    return thread, await thread.says("Open the gate?")


async def finished(thread: ThreadView, prompt: dict[str, Any]) -> None:
    """Ben answers both; his word and his decision are what counts."""
    await thread.reply("ben", "tree")
    await thread.approve("ben", prompt)
    await thread.says("tree, approve")


@simulated
async def test_no_stranger_answers_decides_or_starts_anything(tmp_path: Path) -> None:
    """Replies, presses, mentions and commands of guests, partners, bots and deactivated people have no effect; only a person who presses a button is told why."""
    async with inhabited_town(tmp_path, {"open": OPEN_TO_ALL}) as (workspace, _):
        people = strangers(workspace)
        thread, prompt = await both_asked(workspace)
        said = []
        for user in people.values():
            said.append(await thread.reply(user.id, "mine"))
            await thread.reply(user.id, "pause")
            await thread.press(user.id, prompt, "Reject")
            await workspace.post(user, "ops", "@sayso open")
        for name in people:
            await workspace.wait_for(lambda name=name: bool(whispers(workspace, name)))
        await finished(thread, prompt)
        assert [reactions(thread, ts) for ts in said] == [[]] * len(said)
        assert thread.find("is paused by") is None
        asked = [m for m in workspace.messages("ops") if m.get("reply_count") and _asks(workspace, m["ts"])]
        assert [message["ts"] for message in asked] == [thread.root_ts], "one session was started"
        assert whispers(workspace, "ben") == []


def _asks(workspace: Acts, ts: str) -> bool:
    return ThreadView(workspace, "ops", ts).find("Which word?") is not None


@simulated
async def test_guests_count_where_the_installation_says_so(tmp_path: Path) -> None:
    """With SAYSO_ALLOW_GUESTS a guest answers and decides like a member; somebody of another organisation does not."""
    async with inhabited_town(tmp_path, {"open": OPEN_TO_ALL}, allow_guests=True) as (workspace, _):
        people = strangers(workspace)
        thread, prompt = await both_asked(workspace)
        await thread.press(people["partner"].id, prompt, "Reject")
        await workspace.wait_for(lambda: bool(whispers(workspace, "partner")))
        await thread.reply(people["guest"].id, "bush")
        await thread.press(people["guest"].id, prompt, "Approve")
        await thread.says("bush, approve")


def _reply_event(thread: ThreadView, text: str, **fields: Any) -> dict[str, Any]:
    ts = f"{float(thread.messages()[-1]['ts']) + 0.5:.6f}"
    channel = {"channel": thread.channel, "channel_type": "channel"}
    return {
        "type": "message",
        "ts": ts,
        "event_ts": ts,
        "thread_ts": thread.root_ts,
        "text": text,
        **channel,
        **fields,
    }


@simulated
async def test_what_apps_and_workflows_write_is_no_answer(tmp_path: Path) -> None:
    """A workflow's message, an app's, one that an app wrote in a person's name, and a join notice answer nothing."""
    async with inhabited_town(tmp_path, {"open": OPEN_TO_ALL}) as (workspace, _):
        thread, prompt = await both_asked(workspace)
        thread.channel = workspace.channel("ops").id
        ben = workspace.user("ben").id
        for fields in (
            {"subtype": "bot_message", "bot_id": "B0WORKFLOW", "username": "Workflow"},
            {"user": "U0ROBOT001", "bot_id": "B0ROBOT001", "app_id": "A0ROBOT001"},
            {"user": ben, "app_id": "A0ROBOT001", "team": workspace.team_id},
            {"user": ben, "subtype": "channel_join"},
            {"user": ben, "edited": {"user": ben, "ts": "1.0"}, "team": workspace.team_id},
        ):
            workspace.admin.emit(_reply_event(thread, "mine", **fields))
            await workspace.settled()
        await finished(thread, prompt)


@simulated
async def test_somebody_who_leaves_the_company_in_the_meantime_decides_nothing(tmp_path: Path) -> None:
    """An approver whose account was deactivated after the question is refused; others can finish the run of a requester who left."""
    async with inhabited_town(tmp_path, {"open": OPEN_TO_ALL}) as (workspace, _):
        thread, prompt = await both_asked(workspace)
        workspace.user("ana").deleted = True
        workspace.user("cleo").deleted = True
        await thread.reject("cleo", prompt)
        await workspace.wait_for(lambda: bool(whispers(workspace, "cleo")))
        await finished(thread, prompt)


@simulated
async def test_payloads_of_another_team_or_app_are_dropped(tmp_path: Path) -> None:
    """A message in an envelope of another team, and one of another app, change nothing."""
    async with inhabited_town(tmp_path, {"open": OPEN_TO_ALL}) as (workspace, _):
        thread, prompt = await both_asked(workspace)
        ben = workspace.user("ben").id
        own_team, own_app = workspace.state.team_id, workspace.state.app_id
        thread.channel = workspace.channel("ops").id
        for team, app in (("T0OTHER01", own_app), (own_team, "A0OTHER01")):
            workspace.state.team_id, workspace.state.app_id = team, app
            workspace.admin.emit(_reply_event(thread, "mine", user=ben, team=own_team))
            workspace.state.team_id, workspace.state.app_id = own_team, own_app
            await workspace.settled()
        await finished(thread, prompt)
