"""An app that is an agent of Slack's: how its sessions stand, what it suggests, and Slack's own button that stops one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bot.outbound.calls import AGENT_REFUSED
from bot.workspace.methods.call import DEFAULT_SCOPES
from engine.language.codec import decode
from tests.support.bot import start_flow, words
from tests.support.inprocess import Town
from tests.support.simulated import TownWorkspace, in_town, inhabited_town, simulated

STATUS = "agents.sessions.setStatus"
PROMPTS = "assistant.threads.setSuggestedPrompts"
ASK = """
flow: asks
description: Ask how it looks
nodes:
  - {id: first, type: ask, with: {message: "First?"}}
  - {id: tell, type: message, with: {text: "It was {{ nodes.first.text }}"}}
"""
WAIT = """
flow: waits
allowed_to_start: [ana@example.com]
nodes:
  - {id: nap, type: wait, with: {for: 1h}}
"""


@asynccontextmanager
async def agents_town(folder: Path) -> AsyncIterator[tuple[TownWorkspace, Town]]:
    """A workspace whose app is an agent."""
    async with inhabited_town(folder, {"asks": ASK, "waits": WAIT}) as (workspace, bot):
        await bot.close()
        workspace.core.faults.set_scopes([*DEFAULT_SCOPES, "assistant:write"])
        await bot.open()
        yield workspace, bot


@simulated
async def test_slack_is_told_how_a_session_stands_once_for_each_change(tmp_path: Path) -> None:
    """While people are asked it is suspended, and closed at its end; the thread is named, and who began it."""
    async with agents_town(tmp_path) as (workspace, _):
        thread = await start_flow(workspace, "ana", "ops", "asks", says="First?")
        await thread.reply("ana", "fine")
        await thread.says("Completed")
        await workspace.wait_for(lambda: statuses(workspace)[-1:] == ["closed"])
        told = [call.args for call in workspace.calls_to(STATUS)]
        assert [one["status"] for one in told] == list(dict.fromkeys(statuses(workspace)))
        assert "suspended" in statuses(workspace)
        assert {(one["thread_ts"], one["title"], one["initiator_user_id"]) for one in told} == {
            (thread.root_ts, "asks", workspace.user("ana").id)
        }


@simulated
async def test_the_messages_tab_suggests_what_one_may_start(tmp_path: Path) -> None:
    """No thread is named, and what somebody else may start is not offered."""
    async with agents_town(tmp_path) as (workspace, _):
        for person, flows in (("ana", ["asks", "waits"]), ("ben", ["asks"])):
            before = len(workspace.calls_to(PROMPTS))
            await workspace.open_home(person, "messages")
            await workspace.wait_for(lambda seen=before: len(workspace.calls_to(PROMPTS)) > seen)
            args = workspace.calls_to(PROMPTS)[-1].args
            prompts = args["prompts"] if isinstance(args["prompts"], list) else decode(args["prompts"])
            assert [prompt["message"] for prompt in prompts] == flows
            assert prompts[0]["title"] == "Ask how it looks"
            assert "thread_ts" not in args


@simulated
async def test_stopping_a_session_is_cancelling_it(tmp_path: Path) -> None:
    """Whoever may not cancel is told so, and the session continues; whoever may ends it."""
    async with agents_town(tmp_path) as (workspace, _):
        thread = await start_flow(workspace, "ana", "ops", "waits")
        await workspace.wait_for(lambda: statuses(workspace)[-1:] == ["active"])
        # Slack has its button while something works; the app may be late to say that nothing does.
        root = workspace.state.message(workspace.channel("ops").id, thread.root_ts)
        assert root is not None
        root["_session"]["status"] = "processing"
        await workspace.stop_session("ben", "ops", thread.root_ts)
        await workspace.wait_for(lambda: workspace.ephemerals("ben"))
        assert "only" in workspace.ephemerals("ben")[-1]["text"].lower()
        await workspace.stop_session("ana", "ops", thread.root_ts)
        assert "*waits* was cancelled by" in words(await thread.says("was cancelled by"))
        await workspace.wait_for(lambda: statuses(workspace)[-1] == "closed")


@simulated
async def test_a_refusal_of_what_agents_may_do_stops_nothing(tmp_path: Path) -> None:
    """The flow continues, and the reason is kept for whoever asks."""
    async with agents_town(tmp_path) as (workspace, bot):
        workspace.core.faults.fail(STATUS, times=99, error="paid_teams_only")
        thread = await start_flow(workspace, "ana", "ops", "asks", says="First?")
        await thread.reply("ana", "fine")
        await thread.says("Completed")
        await workspace.wait_for(lambda: "paid_teams_only" in (bot.store.marks.ts(AGENT_REFUSED) or ""))


@in_town({"asks": ASK})
async def test_an_app_that_is_no_agent_calls_nothing_of_that(workspace: TownWorkspace) -> None:
    """Neither how sessions stand nor suggestions."""
    await workspace.open_home("ana", "messages")
    await start_flow(workspace, "ana", "ops", "asks", says="First?")
    await workspace.settled()
    assert not workspace.calls_to(STATUS)
    assert not workspace.calls_to(PROMPTS)


def statuses(workspace: TownWorkspace) -> list[str]:
    """What was told of sessions, in order."""
    return [call.args["status"] for call in workspace.calls_to(STATUS)]
