"""Rows of the outbox that a newer release wrote: an older one neither guesses nor fails them."""

from __future__ import annotations

import asyncio
import logging

import pytest

from bot.intents.session_rows import note_row
from bot.outbound import outbox_worker
from bot.outbound.posts import Outcome, Sent
from bot.outbound.senders import Rows
from engine.journal.records import OutboxRow, PutOutbox
from tests.bot.outbound_kit import Rig
from tests.support.workspace import Json

HOLOGRAM = PutOutbox("x:1", "x", "hologram", b"{}")


async def test_a_row_of_a_kind_that_is_not_known_is_left(rig: Rig) -> None:
    """It stays as it is, and rows of other lanes pass it."""
    ts = await rig.workspace.post("ana", "ops", "hello")
    await rig.put(HOLOGRAM, note_row("note:1", "T", "C0LOCALOPS", ts, "a note"))
    rig.send()
    assert (await rig.settled("note:1"))["state"] == "sent"
    left = await rig.row("x:1")
    assert (left.state, left.result) == ("pending", None)


async def test_what_is_left_is_said_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One line in the log, however often the row is looked at."""
    looks: asyncio.Queue[str] = asyncio.Queue()
    send = Rows.send

    async def seen(rows: Rows, row: OutboxRow) -> Outcome:
        looks.put_nowait(row.key)
        return await send(rows, row)

    monkeypatch.setattr(Rows, "send", seen)
    monkeypatch.setattr(outbox_worker, "_NEWER_SECONDS", 0.0)
    await rig.put(HOLOGRAM)
    with caplog.at_level(logging.WARNING, "sayso.outbound"):
        rig.send()
        async with asyncio.timeout(10):
            assert [await looks.get() for _ in range(3)] == ["x:1"] * 3
    assert len([line for line in caplog.messages if "newer release" in line]) == 1


async def test_what_was_left_is_sent_after_the_upgrade(rig: Rig) -> None:
    """A release that knows the kind sends what an older one left."""
    ts = await rig.workspace.post("ana", "ops", "hello")
    await rig.put(HOLOGRAM, note_row("note:1", "T", "C0LOCALOPS", ts, "a note"))
    rig.send()
    await rig.settled("note:1")
    await rig.crash()

    async def projected(row: OutboxRow, data: dict[str, Json]) -> Outcome:
        return Sent({"ts": "1.5"})

    rig.send()._rows._kinds["hologram"] = projected
    assert await rig.settled("x:1") == {"state": "sent", "ts": "1.5"}
