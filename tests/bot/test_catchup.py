"""Reading what was missed, while Slack answers with anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bot.handlers.catchup import CatchUp
from bot.inbound import decisions
from bot.wire.client import bot_client
from bot.wire.users import LookupFailed, People
from engine.language.actors import Actor
from engine.run.stored import utc_now
from engine.storage.group_commit import Writer
from engine.storage.open import MemoryStore
from tests.support.acting import Workspace
from tests.support.workspace import running_workspace


@asynccontextmanager
async def reading(workspace: Workspace) -> AsyncIterator[tuple[CatchUp, MemoryStore]]:
    """A catch-up over an empty store."""
    store = MemoryStore()
    writer = Writer(store)
    writer.start()
    client = bot_client(workspace.bot_token, workspace.api_url)
    home = decisions.Home(workspace.team_id, workspace.app_id, workspace.bot_user_id)
    yield CatchUp(client, writer, home, now=utc_now, taken=lambda: None), store
    writer.close()


@pytest.mark.parametrize("method", ["users.conversations", "conversations.history"])
async def test_what_could_not_be_read_is_read_later(method: str) -> None:
    """A read that fails ends nothing, is known to be incomplete, and finds at its next attempt what was missed."""
    async with running_workspace() as workspace, reading(workspace) as (catchup, store):
        await workspace.post("ana", "ops", "@sayso deploy")
        workspace.faults.fail(method, times=100, status=503)
        assert await catchup.run() == 0
        assert not catchup.complete
        workspace.faults.clear()
        assert await catchup.run() == 1
        assert catchup.complete
        assert [row.kind for row in store.inbox.rows()] == [decisions.MESSAGE]


async def test_a_right_that_is_missing_is_not_asked_for_again() -> None:
    """Kinds of conversations that the bot may not list are left alone: the read counts as complete."""
    async with running_workspace() as workspace, reading(workspace) as (catchup, _):
        workspace.faults.fail("users.conversations", times=3, error="missing_scope")
        assert await catchup.run() == 0
        assert catchup.complete


async def test_who_asks_for_the_same_person_at_once_shares_one_lookup() -> None:
    """One call for all; where the one who makes it leaves, the next one makes it."""
    async with running_workspace() as workspace:
        people = People(bot_client(workspace.bot_token, workspace.api_url), workspace.team_id)
        ana = {"user": "U0LOCALANA", "channel": "C0LOCALOPS"}
        asked = [asyncio.ensure_future(people.actor(ana, in_channel=True)) for _ in range(5)]
        await asyncio.sleep(0)
        asked[0].cancel()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert [actor.name for actor in found[1:] if isinstance(actor, Actor)] == ["Ana Ruiz"] * 4
        assert len(workspace.calls_to("users.info")) <= 2


async def test_the_page_of_a_broken_server_says_nothing_about_a_person() -> None:
    """A lookup that is answered with a page instead of JSON is a failed lookup, like any other."""
    async with running_workspace() as workspace:
        people = People(bot_client(workspace.bot_token, workspace.api_url), workspace.team_id)
        workspace.faults.fail("users.info", status=503)
        with pytest.raises(LookupFailed):
            await people.actor({"user": "U0LOCALANA", "channel": "C0LOCALOPS"}, in_channel=True)
