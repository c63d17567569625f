"""Notes of agents in Slack: approved on a card, read by the next run, told and changed by a mention, private channels apart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import patch

from bot.config.settings import AgentSettings
from bot.wire.users import Channels
from engine.decide.agents import memory
from engine.journal.records import KeptRow
from tests.support.inprocess import Town
from tests.support.simulated import TownWorkspace, inhabited_town, simulated

BENS = "{approvers: [U0LOCALBEN], message: This is to be remembered}"
FLOWS = {
    name: f"""
flow: {name}
nodes:
  - {{id: {agent}, type: agent, with: {{prompt: "Go", memory: {mode}}}}}
"""
    for name, agent, mode in (
        ("learn", "keep", "approve"),
        ("use", "read", "approve"),
        ("shared", "both", "{write: auto, scope: flow}"),
        ("strict", "keep", f"approve, approvals: {{remember: {BENS}}}"),
    )
}
SCRIPT = """
agents:
  keep:
    - tools: [{name: remember, input: {text: "The disk of db is full on Mondays."}}]
    - text: Done.
  read:
    - expect: {user: "Mondays"}
      text: I know about Mondays.
      or: [{text: I know nothing.}]
  both:
    - expect: {user: "(there are no notes yet)"}
      tools: [{name: remember, input: {text: "Noted in CHANNEL."}}]
      or: [{text: I know something.}]
    - text: Done.
"""


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[TownWorkspace, Town]]:
    """A bot with agents that keep and read notes."""
    script = folder / "script.yml"
    script.write_text(SCRIPT)
    async with inhabited_town(folder, FLOWS, agents=AgentSettings(script=script)) as (work, bot):
        yield work, bot


async def learnt(bot: Town, flow: str = "learn") -> KeptRow:
    """A note that ben has approved in #ops."""
    root = await bot.start("ana", flow)
    await bot.until(lambda: "to be remembered" in str(bot.thread(root)))
    await bot.settle()
    message, where = bot.find(root, "sayso:option:0")
    assert "full on Mondays" in str(message)
    assert bot.store.kept.rows("note") == []
    await bot.press("ben", message, where)
    await bot.settle()
    (row,) = bot.store.kept.rows("note")
    return row


async def says(bot: Town, line: str, user: str = "ana", channel: str = "ops") -> str:
    """What the bot answers to a mention."""
    since = len(bot.calls)
    root = await bot.start(user, line, channel=channel)
    whispered = " ".join(str(call.args.get("text")) for call in bot.told(user, since))
    return str(bot.thread(root, channel)[1:]) + whispered


@simulated
async def test_a_note_that_is_approved_is_read_by_the_next_run_of_the_channel_only(tmp_path: Path) -> None:
    """Behind a restart too; in another channel nobody knows it."""
    async with serving(tmp_path) as (work, bot):
        row = await learnt(bot)
        assert [actor["name"] for actor in memory.note(row)["by"]] == ["Ben Okafor"]
        await bot.close()
        await bot.open()
        assert "I know about Mondays" in await says(bot, "use")
        work.add_channel("other", members=["ana", bot.core.state.bot_user_id])
        assert "I know nothing" in await says(bot, "use", channel="other")
        assert "There are no notes here" in await says(bot, "memory", channel="other")


@simulated
async def test_members_list_edit_and_forget_notes_where_they_were_made(tmp_path: Path) -> None:
    """With who approved and who changed; what is forgotten no agent knows, and its row says who did it."""
    async with serving(tmp_path) as (work, bot):
        row = await learnt(bot)
        listed = await says(bot, "memory")
        assert row.kept_id in listed
        assert "full on Mondays" in listed
        assert "approved by" in listed
        work.add_channel("other", members=["ana", bot.core.state.bot_user_id])
        for refused in (f"memory forget {row.kept_id}", f"memory edit {row.kept_id} x"):
            assert "belongs to another place" in await says(bot, refused, channel="other")
        assert "Mondays & Fridays" in (
            await says(bot, f"memory edit {row.kept_id} Mondays & Fridays")
        ).replace("&amp;", "&")
        assert "changed by" in await says(bot, "memory", "ben")
        assert "was deleted" in await says(bot, f"memory forget {row.kept_id}", "ben")
        assert "There is no note" in await says(bot, f"memory forget {row.kept_id}", "ben")
        assert "I know nothing" in await says(bot, "use")
        (gone,) = bot.store.kept.rows("note")
        assert b"Mondays" not in gone.body
        did = [(each["did"], each["by"]["name"]) for each in memory.note(gone)["changes"]]
        assert did == [("edited", "Ana Ruiz"), ("forgot", "Ben Okafor")]


@simulated
async def test_what_was_noted_in_a_private_channel_is_read_in_no_other(tmp_path: Path) -> None:
    """The notes of a flow go from one public channel to the others; from a private one, or a direct message, to none."""
    async with serving(tmp_path) as (work, bot):
        work.add_channel("secret", members=["ana", bot.core.state.bot_user_id], is_private=True)
        await says(bot, "shared", channel="secret")
        assert len(bot.store.kept.rows("note")) == 1
        assert "I know something" not in await says(bot, "shared")
        assert "There are no notes" not in await says(bot, "memory", channel="secret")
        assert len(bot.store.kept.rows("note")) == 2  # the agent in #ops knew of none
        assert "I know something" in await says(bot, "shared", channel="secret")
        (here,) = [
            row for row in bot.store.kept.rows("note") if memory.note(row)["channel"] == bot.channel().id
        ]
        listed = {word for word in (await says(bot, "memory")).split("`") if word.startswith("n")}
        assert listed & {row.kept_id for row in bot.store.kept.rows("note")} == {here.kept_id}


@simulated
async def test_what_was_noted_here_is_not_read_where_other_organisations_read(tmp_path: Path) -> None:
    """Neither by the flow's agent in a shared channel, nor in the list there."""
    async with serving(tmp_path) as (work, bot):
        work.add_channel("partners", members=["ana", bot.core.state.bot_user_id], is_ext_shared=True)
        await says(bot, "shared")
        assert "I know something" not in await says(bot, "shared", channel="partners")
        (here,) = [
            row for row in bot.store.kept.rows("note") if memory.note(row)["channel"] == bot.channel().id
        ]
        listed = await says(bot, "memory", channel="partners")
        assert "Noted in CHANNEL" in listed
        assert here.kept_id not in listed


@simulated
async def test_guests_change_no_notes(tmp_path: Path) -> None:
    """What is refused changes nothing, and says why."""
    async with serving(tmp_path) as (_, bot):
        row = await learnt(bot)
        bot.newcomer("gus", is_restricted=True)
        assert "Guests cannot do this" in await says(bot, f"memory forget {row.kept_id}", "gus")
        assert bot.store.kept.rows("note") == [row]


@simulated
async def test_reading_notes_in_every_channel_is_noticed(tmp_path: Path) -> None:
    """A seeded fault: a bot that takes every channel for a public one."""

    async def everywhere(self: Channels, channel: str) -> bool:
        return True

    async with serving(tmp_path) as (work, bot):
        with patch.object(Channels, "public", everywhere):
            await bot.close()
            await bot.open()
            work.add_channel("secret", members=["ana", bot.core.state.bot_user_id], is_private=True)
            await says(bot, "shared", channel="secret")
            assert "I know something" in await says(bot, "shared")


@simulated
async def test_reading_notes_where_others_read_is_noticed(tmp_path: Path) -> None:
    """A seeded fault: a bot that takes no channel for a shared one."""

    async def nowhere(self: Channels, channel: str) -> bool:
        return False

    async with serving(tmp_path) as (work, bot):
        with patch.object(Channels, "_shared", nowhere):
            work.add_channel("partners", members=["ana", bot.core.state.bot_user_id], is_ext_shared=True)
            await says(bot, "shared")
            assert "I know something" in await says(bot, "shared", channel="partners")
