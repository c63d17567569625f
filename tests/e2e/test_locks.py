"""Locks in threads: who waits for whom is on the card, and the next one continues by itself."""

from __future__ import annotations

from tests.support.bot import start_flow
from tests.support.inprocess import Town
from tests.support.simulated import TownWorkspace, in_town

DEPLOY = """
flow: deploy
inputs: {service: {}}
lock: "deploy-{{ inputs.service }}"
nodes: [{id: sure, type: ask, with: {message: "Deploy it?"}}]
"""
HOTFIX = DEPLOY.replace("flow: deploy", "flow: hotfix\non_conflict: refuse")


@in_town({"deploy": DEPLOY, "hotfix": HOTFIX})
async def test_the_queue_for_a_lock_is_on_the_cards(workspace: TownWorkspace, bot: Town) -> None:
    """Two wait behind a third; each card says whom it waits for and its place, also after the bot was killed; when
    the holder has ended the next one continues and the last one moves up."""
    first = await start_flow(workspace, "ana", "releases", "deploy service=api", says="Deploy it?")
    second = await start_flow(workspace, "ben", "releases", "deploy service=api", says="1st in the queue")
    third = await start_flow(workspace, "ana", "releases", "deploy service=api")
    card = str(await third.says("2nd in the queue"))
    assert "🟡 *Waiting* for lock `deploy-api`, held by `session-" in card
    assert "|its thread>) · 2nd in the queue" in card
    assert first.root_ts in card, "the link leads to the thread of the holder"
    await third.reply("ana", "status")
    await third.says("waits for lock `deploy-api`, held by `session-")
    refused = await start_flow(workspace, "ana", "releases", "hotfix service=api")
    await refused.says("lock deploy-api is held by session-")
    await refused.says("Open the run that holds the lock")
    await bot.close()
    await bot.open()
    await first.reply("ana", "yes")
    await first.says("*Completed*")
    await second.says("Deploy it?")
    await third.says("1st in the queue")
    await second.reply("ben", "yes")
    await third.says("Deploy it?")
