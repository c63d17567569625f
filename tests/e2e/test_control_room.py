"""The control room beside a real bot and the local workspace: what people of Slack start there, and what things are called."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, CookieJar

from bot.config.settings import load_settings
from bot.pages import LOOPBACK
from bot.web.access import Access
from bot.web.server import Room
from engine.language.actors import Actor
from engine.storage.sqlite import open_sqlite
from tests.support.acting import Workspace
from tests.support.bot import ThreadView, running_bot
from tests.web.conftest import Visitor

LISTED = """flow: listed
allowed_to_start: [ana@example.com]
inputs: {why: {type: string}}
nodes:
  - {id: gate, type: approval, with: {message: "Go on with {{ inputs.why }}?", approvers: [channel]}}
"""
OPEN = 'flow: open\nnodes: [{id: done, type: message, with: {text: "done"}}]\n'
MAILED = """flow: mailed
nodes:
  - {id: gate, type: approval, with: {message: "Go, ben@example.com?", approvers: [ben@example.com, who@example.com]}}
"""


@asynccontextmanager
async def beside(workspace: Workspace, tmp_path: Path) -> AsyncIterator[Visitor]:
    """A bot that serves these flows, and a control room over its database with the same token."""
    async with running_bot(workspace, tmp_path, {"listed": LISTED, "open": OPEN, "mailed": MAILED}) as bot:
        settings = load_settings(bot.env, cwd=bot.home, home=str(bot.home))
        with closing(open_sqlite(bot.home / "sayso.db")) as store:
            access = Access(Actor.local("ana"), time.monotonic)
            room = Room(store, settings, access, LOOPBACK, write=True)
            url = await room.start("127.0.0.1", 0)
            try:
                async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as http:
                    yield Visitor(room, store, url, http)
            finally:
                await room.stop()


async def started(
    visitor: Visitor, user: str, flow: str, channel: str = "#ops", **values: str
) -> dict[str, Any]:
    """What the page tells somebody of Slack who starts a flow."""
    visitor.log_in_as(Actor(id=user, name="somebody"))
    return (await visitor.post("start", {"flow": flow, "channel": channel, "values": values}))[1]


async def test_somebody_of_slack_starts_a_flow_on_the_page_and_it_runs_in_its_channel(
    workspace: Workspace, tmp_path: Path
) -> None:
    """The message in the channel names them as a command does, the session is theirs, and it asks in that thread."""
    ana, ops = workspace.user("ana").id, workspace.channel("ops").id
    async with beside(workspace, tmp_path) as visitor:
        told = await started(visitor, ana, "listed", why="a leak")
        assert told["outcome"] == "started", told
        thread = (await visitor.get(f"sessions/{told['session']}"))["thread"]
        assert thread["channel"] == ops
        await ThreadView(workspace, ops, thread["threadTs"]).says("Go on with a leak?")
        [root] = [one for one in workspace.messages(ops) if one["ts"] == thread["threadTs"]]
        assert f"<@{ana}> started *listed*" in root["text"]
        assert (await visitor.get(f"sessions/{told['session']}"))["actor"]["name"] == "Ana Ruiz"


@pytest.mark.parametrize(
    ("user", "flow", "channel", "says"),
    [
        ("ben", "listed", "#ops", "Only"),
        ("ana", "open", "#nowhere", "#nowhere"),
        ("outsider", "open", "#ops", "You are not in #ops"),
    ],
    ids=["not-listed", "no-channel", "not-a-member"],
)
async def test_a_start_that_slack_would_refuse_is_refused_on_the_page(
    workspace: Workspace, tmp_path: Path, user: str, flow: str, channel: str, says: str
) -> None:
    """Whoever may not start it there reads why, and nothing is posted in the channel."""
    ops = workspace.channel("ops")
    if user == "outsider":
        ops.members.remove(workspace.user("ben").id)
    who = workspace.user("ben" if user == "outsider" else user).id
    async with beside(workspace, tmp_path) as visitor:
        told = await started(visitor, who, flow, channel, **({"why": "no"} if flow == "listed" else {}))
        assert says in told["message"], told
        assert visitor.store.sessions.heads() == []
        assert not [one for one in workspace.messages(ops.id) if "started" in one["text"]]


async def test_people_and_channels_are_called_by_their_names(workspace: Workspace, tmp_path: Path) -> None:
    """With the token of the bot the page asks Slack once what an id is called, and shows and finds that instead of it."""
    ana = workspace.user("ana").id
    async with beside(workspace, tmp_path) as visitor:
        told = await started(visitor, ana, "listed", why=f"<@{workspace.user('ben').id}>")
        await visitor.all_read()
        page: dict[str, Any] = {}
        while "@Ben" not in str(page.get("prompts")) or page["channel"] != "#ops":
            await asyncio.sleep(0.05)
            page = await visitor.get(f"sessions/{told['session']}")
        [row] = (await visitor.get("sessions", q="#ops"))["sessions"]
        assert (row["channelName"], row["person"]) == ("#ops", "Ana Ruiz")
        assert "@Ben" in row["waits"]
        [asked] = (await visitor.get("waiting"))["questions"]
        assert (asked["channel"], "@Ben" in asked["message"]) == ("#ops", True)
        like = await visitor.get("start", flow="listed", like=told["session"])
        assert like["channel"] == "#ops"


async def test_who_is_asked_by_an_address_is_called_by_name(workspace: Workspace, tmp_path: Path) -> None:
    """In the list of what waits, and beside the question; an address in its words stays, and one that Slack does not know."""
    async with beside(workspace, tmp_path) as visitor:
        told = await started(visitor, workspace.user("ana").id, "mailed")
        asked: dict[str, Any] = {"asks": ""}
        while "Ben" not in asked["asks"]:
            await asyncio.sleep(0.05)
            asked = next(iter((await visitor.get("waiting"))["questions"]), asked)
        assert (asked["asks"], asked["message"]) == ("Ben Okafor and who@example.com", "Go, ben@example.com?")
        [prompt] = (await visitor.get(f"sessions/{told['session']}"))["prompts"]
        assert "Ben Okafor and who@example.com" in prompt["lines"][0]
