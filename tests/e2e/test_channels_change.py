"""Channels that get another id, and channels that strangers can read from now on."""

from __future__ import annotations

from tests.support.bot import start_flow, whispered
from tests.support.inprocess import Town
from tests.support.simulated import TownWorkspace, in_town

ASK = """
flow: asks
nodes:
  - {id: first, type: ask, with: {message: "First?"}}
  - {id: gate, type: approval, with: {message: "Go?", approvers: [channel], on_reject: continue}}
  - {id: tell, type: message, with: {text: "It was {{ nodes.first.text }}, {{ nodes.gate.decision }}"}}
"""


@in_town({"asks": ASK})
async def test_a_thread_goes_on_in_a_channel_with_another_id(workspace: TownWorkspace, bot: Town) -> None:
    """Replies and presses count, and posts arrive, after the channel's id has changed, also after a restart."""
    thread = await start_flow(workspace, "ana", "ops", "asks", says="First?")
    channel = workspace.channel("ops")
    workspace.admin.change_id(channel)
    await workspace.settled()
    thread.channel = channel.id
    await thread.reply("ana", "fine")
    await thread.asks()
    await bot.close()
    await bot.open()
    await thread.approve("ben", await thread.asks())
    await thread.says("It was fine, approve")


@in_town({"asks": ASK})
async def test_a_reply_that_was_missed_in_a_channel_with_another_id_is_found(
    workspace: TownWorkspace, bot: Town
) -> None:
    """What was said while the bot was down is read from the channel as it is called now."""
    thread = await start_flow(workspace, "ana", "ops", "asks", says="First?")
    channel = workspace.channel("ops")
    workspace.admin.change_id(channel)
    await workspace.settled()
    await bot.close()
    thread.channel = channel.id
    await thread.reply("ana", "missed")
    await bot.open()
    await thread.asks()


@in_town({"asks": ASK})
async def test_a_channel_that_is_shared_pauses_its_runs(workspace: TownWorkspace) -> None:
    """When another organisation can read the channel, its run is paused and says so; `resume` of its owner continues."""
    thread = await start_flow(workspace, "ana", "ops", "asks", says="First?")
    workspace.admin.share(workspace.channel("ops"))
    await thread.says("This channel is now shared with another organisation")
    await thread.reply("ana", "fine")
    await whispered(workspace, "ana", "will use it after `resume`")
    assert thread.find("Approval needed") is None
    await thread.reply("ana", "resume")
    await thread.asks()
