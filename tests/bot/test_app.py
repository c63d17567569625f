"""What is acknowledged to Slack: what was stored, and nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from slack_bolt.request.async_request import AsyncBoltRequest

from bot.inbound import decisions
from bot.outbound.calls import Modals
from bot.serve.bolt import SlackApp
from bot.views.service import Views
from bot.wire.client import bot_client
from bot.workspace import payloads
from engine.journal.records import InboxItem
from engine.language.errors import StorageBusy, StorageError
from engine.run.stored import utc_now
from engine.storage import backoff
from engine.storage.database import Database
from engine.storage.group_commit import Writer
from engine.storage.lanes import LaneTable
from engine.storage.open import MemoryStore
from engine.storage.rows import InboxTable
from engine.storage.sealing import Sealer
from tests.simulation.mutants import a_live_reply_moves_the_mark, acknowledges_before_it_stores
from tests.support.acting import Workspace
from tests.support.workspace import running_workspace


async def _unasked(ask: decisions.Ask) -> dict[str, Any]:
    raise AssertionError(f"nobody asked for {ask.word}")


def _mention(workspace: Workspace) -> dict[str, Any]:
    """The payload of a message that mentions the bot."""
    channel = workspace.core.state.channel("ops")
    ana = workspace.core.state.user("ana")
    message = workspace.core.post(ana, channel, f"<@{workspace.bot_user_id}> deploy")
    event = payloads.message_event(channel, message)
    return dict(payloads.event_callback(workspace.core.state, event, "Ev1", 1_790_000_000.0))


def _app(workspace: Workspace, writer: Writer) -> SlackApp:
    client = bot_client(workspace.bot_token, workspace.api_url)
    return SlackApp(
        client,
        bot_client(workspace.app_token, workspace.api_url),
        app_token=workspace.app_token,
        home=decisions.Home(workspace.team_id, workspace.app_id, workspace.bot_user_id),
        writer=writer,
        now=utc_now,
        answer=_unasked,
        taken=lambda: None,
        views=Views(Modals(client), [], writer, utc_now),
        connections=0,
    )


async def test_a_payload_is_stored_before_it_is_acknowledged_while_slack_refuses_every_call() -> None:
    """A message that arrives while Slack answers no call of the Web API is stored, and only then acknowledged."""
    store = MemoryStore()
    writer = Writer(store)
    writer.start()
    async with running_workspace() as workspace:
        slack = _app(workspace, writer)
        workspace.faults.fail("auth.test", times=5, error="internal_error")
        body = _mention(workspace)
        answer = await slack.app.async_dispatch(AsyncBoltRequest(mode="socket_mode", body=body))
    assert answer.status == 200
    assert [row.kind for row in store.inbox.rows()] == [decisions.MESSAGE]
    writer.close()


class _Full(InboxTable):
    """An inbox whose disk is full for a while."""

    full = True

    def ingest(self, items: Sequence[InboxItem], now: str) -> list[int | None]:
        if self.full:
            raise StorageError("disk full")
        return super().ingest(items, now)


async def test_what_cannot_be_stored_is_not_acknowledged() -> None:
    """While the disk is full a message gets no acknowledgement; delivered again when there is room it is stored once."""
    store = MemoryStore()
    store.inbox = inbox = _Full(store._db, store._sealer, store.lanes)
    writer = Writer(store)
    writer.start()
    async with running_workspace() as workspace:
        slack, body = _app(workspace, writer), _mention(workspace)

        async def delivered() -> int:
            request = AsyncBoltRequest(mode="socket_mode", body=body)
            try:
                return int((await slack.app.async_dispatch(request)).status)
            except StorageError:
                return 500  # the socket's handler sends nothing then

        assert await delivered() != 200
        assert store.inbox.rows() == []
        inbox.full = False
        assert [await delivered(), await delivered()] == [200, 200]
    assert [row.kind for row in store.inbox.rows()] == [decisions.MESSAGE]
    writer.close()


class _Held(InboxTable):
    """An inbox that another program holds at the first tries."""

    tries = 2

    def ingest(self, items: Sequence[InboxItem], now: str) -> list[int | None]:
        self.tries -= 1
        if self.tries >= 0:
            raise StorageBusy("held by another process")
        return super().ingest(items, now)


async def test_what_comes_while_another_program_holds_the_store_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slack delivers a press once: it is stored and acknowledged when the other program lets go."""
    monkeypatch.setattr(backoff, "FIRST_SECONDS", 0.001)
    store = MemoryStore()
    store.inbox = _Held(store._db, store._sealer, store.lanes)
    writer = Writer(store)
    writer.start()
    async with running_workspace() as workspace:
        slack, body = _app(workspace, writer), _mention(workspace)
        answer = await slack.app.async_dispatch(AsyncBoltRequest(mode="socket_mode", body=body))
    assert answer.status == 200
    assert [row.kind for row in store.inbox.rows()] == [decisions.MESSAGE]
    writer.close()


class _Slow(InboxTable):
    """An inbox that stores once the test lets it."""

    def __init__(self, db: Database, sealer: Sealer, lanes: LaneTable) -> None:
        super().__init__(db, sealer, lanes)
        self.asked, self.let = threading.Event(), threading.Event()

    def ingest(self, items: Sequence[InboxItem], now: str) -> list[int | None]:
        self.asked.set()
        assert self.let.wait(20)
        return super().ingest(items, now)


@pytest.mark.parametrize("fault", [False, True], ids=["as it is", "with the fault"])
async def test_no_acknowledgement_leaves_before_the_row_is_stored(
    fault: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is acknowledged while the store is writing; the acknowledgement follows the commit. A seeded fault that acknowledges first fails here."""
    if fault:
        acknowledges_before_it_stores(monkeypatch)
    store = MemoryStore()
    store.inbox = inbox = _Slow(store._db, store._sealer, store.lanes)
    writer = Writer(store)
    writer.start()
    async with running_workspace() as workspace:
        slack, body = _app(workspace, writer), _mention(workspace)
        request = AsyncBoltRequest(mode="socket_mode", body=body)
        answer = asyncio.create_task(slack.app.async_dispatch(request))
        assert await asyncio.to_thread(inbox.asked.wait, 20)
        for _ in range(100):
            await asyncio.sleep(0)  # whatever can go on without the store has gone on
        assert answer.done() is fault
        inbox.let.set()
        assert (await answer).status == 200
        assert fault or [row.kind for row in store.inbox.rows()] == [decisions.MESSAGE]
    writer.close()


@pytest.mark.parametrize("fault", [False, True], ids=["as it is", "with the fault"])
async def test_what_is_delivered_moves_no_mark(fault: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply that is delivered does not count as read up to there: one that was missed before it is still found. Where
    a fault is seeded that moves the mark, this is what shows it."""
    if fault:
        a_live_reply_moves_the_mark(monkeypatch)
    store = MemoryStore()
    writer = Writer(store)
    writer.start()
    async with running_workspace() as workspace:
        slack = _app(workspace, writer)
        body = _mention(workspace)
        await slack.app.async_dispatch(AsyncBoltRequest(mode="socket_mode", body=body))
    (row,) = store.inbox.rows()
    assert (store.marks.ts(f"thread:{row.thread_key}") is None) is not fault
    writer.close()
