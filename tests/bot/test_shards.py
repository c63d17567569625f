"""Channel shards: of several processes that send, one has each channel, and nothing is sent twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from bot.intents.session_rows import card_row, ephemeral_row
from bot.outbound.outbox_worker import Outbound
from bot.outbound.shards import SHARDS, Shards, shard_of
from engine.journal.records import OutboxRow, PutOutbox
from engine.language.errors import StorageBusy
from engine.storage.group_commit import Writer
from engine.storage.open import MemoryStore
from tests.bot.outbound_kit import FAST, Rig, running_rig

TWO = "flow: two\nnodes: [{id: a, type: message, with: {text: first}}, {id: b, type: message, with: {text: second}}]\n"


class Posters:
    """Processes that send, as far as leases go; `living` is how many each sees."""

    def __init__(self, number: int) -> None:
        first = MemoryStore()
        first.database.shared = True
        self.stores = [first.another() for _ in range(number)]
        self.living = number
        self.all: list[Shards] = []
        self._first = first

    async def __aenter__(self) -> list[Shards]:
        for store in self.stores:
            writer = Writer(store)
            writer.start()
            self.all.append(Shards(writer, lambda: self.living, nobody))
        return self.all

    async def __aexit__(self, *_: object) -> None:
        for shards, store in zip(self.all, self.stores, strict=True):
            await asyncio.to_thread(shards._writer.close)
            store.close()
        self._first.close()


async def nobody(session_id: str) -> None:
    """No session is known."""


def held(shards: list[Shards]) -> list[int]:
    """How many each has; no shard is had twice."""
    everything = [shard for each in shards for shard in each.mine]
    assert len(everything) == len(set(everything))
    return sorted(len(each.mine) for each in shards)


async def test_shards_are_spread_evenly_over_those_who_live() -> None:
    """Who was there first gives up what is beyond its part, and takes it back when the others are gone."""
    posters = Posters(3)
    async with posters as (one, two, three):
        posters.living = 1
        await one.share(())
        assert held([one]) == [SHARDS]
        posters.living = 3
        for each in (one, two, three, one, two, three):
            each.look_again()
            await each.share(())
        assert held([one, two, three]) == [4, 6, 6]
        await two.give_up()
        await three.give_up()
        posters.living = 1
        one.look_again()
        await one.share(())
        assert held([one]) == [SHARDS]


async def test_shards_that_the_server_could_not_give_are_asked_for_again() -> None:
    """The look was cut short by an error: the next one is not half a minute later."""
    posters = Posters(1)
    async with posters as (one,):
        store = posters.stores[0]
        give, asked = store.lease, 0

        def lease(name: str) -> bool:
            nonlocal asked
            asked += 1
            if asked == 3:
                raise StorageBusy("The lease is interrupted.")
            return give(name)

        store.lease = lease  # type: ignore[method-assign]
        with pytest.raises(StorageBusy):
            await one.share(())
        await one.share(())
        assert held([one]) == [SHARDS]


async def test_a_shard_of_which_something_is_on_its_way_is_kept() -> None:
    """It is given up once nothing is."""
    posters = Posters(2)
    async with posters as (one, two):
        posters.living = 1
        await one.share(())
        posters.living = 2
        await one.share(range(10))
        assert set(range(10)) <= one.mine
        await two.share(())
        assert not two.mine & one.mine
        await one.share(())
        assert len(one.mine) == SHARDS // 2


def row(put: PutOutbox) -> OutboxRow:
    """A row of the outbox."""
    return OutboxRow(
        1, put.key, put.lane, put.kind, put.payload, put.session_id, "pending", 1, 0, None, "", None, None
    )


async def test_all_that_a_session_shows_has_one_shard(tmp_path: Path) -> None:
    """A card names no channel: it goes with its session's thread."""
    async with running_rig(tmp_path, "memory:") as rig:
        session_id = await rig.start(TWO)
        shards = Shards(rig.writer, lambda: 1, lambda name: rig.writer.peek(rig.store.sessions.head, name))
        channel = rig.workspace.channel("ops").id
        assert await shards.of(row(card_row(session_id, 1))) == shard_of(channel)
        whisper = ephemeral_row("e", channel, "U0LOCALANA", None, "x")
        assert await shards.of(row(whisper)) == shard_of(channel)


@asynccontextmanager
async def two_posters(rig: Rig, living: int) -> AsyncIterator[None]:
    """Two processes that send the rows of one store."""
    store = cast(MemoryStore, rig.store)
    store.database.shared = True
    rig.send()
    assert rig.outbound is not None
    senders, writers = [], []
    first, writer = rig.outbound, Writer(store.another())
    for outbound in (first, None):
        writer = Writer(store.another())
        writer.start()
        writers.append(writer)
        shards = Shards(writer, lambda: living, lambda name: rig.writer.peek(rig.store.sessions.head, name))
        if outbound is None:
            outbound = Outbound(
                rig.writer,
                rig.client,
                rig.load_state,
                rig.engine.flow_of,
                rig.workspace.bot_user_id,
                taken=rig.service.notify,
                now=rig.now,
                tuning=FAST,
                shards=shards,
            )
            rig.engine.subscribe(lambda state, events, to=outbound: to.notify())
            senders.append((outbound, asyncio.create_task(outbound.run())))
        else:
            outbound._shards = shards
            await shards.share(())
    try:
        yield
    finally:
        for outbound, task in senders:
            outbound.stop()
            await task
        first._shards = None
        for each in writers:
            await asyncio.to_thread(each.close)
            each.store.close()


async def posted(rig: Rig, living: int) -> int:
    """How often something was posted for three sessions, each of which shows a card and two messages, by a Slack that takes
    its time."""
    rig.workspace.faults.slow("chat.postMessage", 0.15)
    async with two_posters(rig, living):
        sessions = [await rig.start(TWO, channel) for channel in ("ops", "releases", "ops")]
        async with asyncio.timeout(10):
            for session_id in sessions:
                await rig.engine.parked(session_id)
                await rig.until(lambda name=session_id: ended(rig, name))
    return rig.calls("chat.postMessage")


async def ended(rig: Rig, session_id: str) -> Any:
    """Whether a session has ended."""
    return (await rig.engine.state(session_id)).ended


async def test_two_posters_send_nothing_twice(tmp_path: Path) -> None:
    """Each sends what is in its channels."""
    async with running_rig(tmp_path, "memory:") as rig:
        assert await posted(rig, living=2) == 9
        assert len(rig.posts("first")) == 3


async def test_a_shard_that_is_had_twice_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded fault: the lease is not looked at. Copies are posted, and taken back where they are found."""
    monkeypatch.setattr(MemoryStore, "lease", lambda self, name: True)
    async with running_rig(tmp_path, "memory:") as rig:
        assert await posted(rig, living=1) > 9
