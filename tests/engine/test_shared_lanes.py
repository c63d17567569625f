"""Lanes of a store that several processes serve: one works on each, and none is lost with a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from engine.journal.records import Consumed, InboxItem, InboxRow
from engine.language.errors import KeyMissing, Owned
from engine.run import shared_lanes
from engine.run.dispatcher import Dispatcher
from engine.storage.lanes import Lane, LaneTable
from tests.support.engine import Clock, EngineRig, running, until
from tests.support.lanes import LanedStore

NOW = "2026-11-21T09:00:00.000Z"


class Replica:
    """A process that handles rows of kind `said`, as far as it is told to."""

    def __init__(self, rig: EngineRig, log: list[str], name: str) -> None:
        self.rig, self.log, self.name = rig, log, name
        self.free = asyncio.Event()
        self.free.set()
        self.refusal: Exception | None = None
        self.service = Dispatcher(rig.engine, handlers={"said": self.handle})
        self.task = asyncio.create_task(self.service.run())

    async def handle(self, row: InboxRow) -> bool:
        self.log.append(f"{self.name}+{row.key}")
        if self.refusal is not None:
            raise self.refusal
        await self.free.wait()
        self.log.append(f"{self.name}-{row.key}")
        await self.service.consume(row, "done")
        return True

    async def stop(self) -> None:
        self.free.set()
        self.service.stop()
        await self.task


class Fleet:
    """Two of them over one store. `log` says who began and ended what."""

    def __init__(self, one: Replica, two: Replica, store: LanedStore, log: list[str]) -> None:
        self.one, self.two, self.store, self.log = one, two, store, log

    def says(self, thread: str, *keys: str) -> None:
        """Somebody says something in a thread."""
        self.store.inbox.ingest([InboxItem(key, "said", b"{}", thread_key=thread) for key in keys], NOW)
        self.one.service.notify()
        self.two.service.notify()

    async def begins(self, thread: str, *keys: str) -> None:
        """Somebody says something, and one of them begins with it and may not end it."""
        self.one.free.clear()
        self.two.free.clear()
        self.says(thread, *keys)
        await until(lambda: bool(self.log), pause=0.002)

    async def handled(self, *keys: str) -> None:
        """Return once these rows are consumed."""
        await until(lambda: all(map(self.done, keys)), pause=0.002)

    def done(self, key: str) -> bool:
        """Whether a row is consumed."""
        row = self.store.inbox.row(key)
        return row is not None and row.outcome is not None


@pytest.fixture
async def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    """Two processes, as far as the store can tell."""
    monkeypatch.setattr(shared_lanes, "BACKOFF_SECONDS", (0.02,))
    monkeypatch.setattr(shared_lanes, "LOOK_SECONDS", 0.02)
    log: list[str] = []
    store = LanedStore()
    async with AsyncExitStack() as stack:
        replicas = []
        for name in ("one", "two"):
            rig = await stack.enter_async_context(running(store.another(), tmp_path / name, now=Clock()))
            replicas.append(Replica(rig, log, name))
            stack.push_async_callback(replicas[-1].stop)
        yield Fleet(*replicas, store, log)
    store.close()


def in_turn(log: list[str]) -> bool:
    """Whether each row was ended before the next one began."""
    return all(
        a[0:4] == b[0:4] and a[4:] == b[4:]
        for a, b in zip(log[::2], [e.replace("-", "+") for e in log[1::2]], strict=True)
    )


async def test_a_lane_is_worked_on_by_one_process(fleet: Fleet) -> None:
    """Rows of one thread are handled once and one after the other, however often both look."""
    await fleet.begins("T", "a", "b")
    for _ in range(10):
        fleet.one.service.notify()
        fleet.two.service.notify()
        await asyncio.sleep(0.02)
    fleet.one.free.set()
    fleet.two.free.set()
    await fleet.handled("a", "b")
    assert in_turn(fleet.log)
    assert len(fleet.log) == 4


async def test_what_a_process_had_in_hand_is_taken_by_another(fleet: Fleet) -> None:
    """It looks again although nothing tells it."""
    await fleet.begins("T", "a")
    dead, other = (fleet.one, fleet.two) if fleet.log == ["one+a"] else (fleet.two, fleet.one)
    dead.task.cancel()
    with fleet.store._db.write():
        fleet.store._db.run("UPDATE workers SET since = moment(-60000)")
        fleet.store._db.run(
            "UPDATE workers SET beat = moment(-60000) WHERE id = ?", (dead.rig.store.lanes.owner,)
        )
    for worker in dead.service._lanes.values():
        worker.cancel()
    other.free.set()
    dead.task = asyncio.create_task(asyncio.sleep(0))
    async with asyncio.timeout(1):
        await fleet.handled("a")


async def test_the_dead_are_looked_for_now_and_then(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a wake-up only if nobody did for as long as a process waits without one."""
    take, looks = LaneTable.take, list[bool]()

    def noted(*given: Any, soon: bool) -> list[Lane]:
        looks.append(soon)
        return take(*given, soon=soon)

    monkeypatch.setattr(LaneTable, "take", noted)
    for seconds, soon in ((3600.0, True), (0.001, False)):
        monkeypatch.setattr(shared_lanes, "LOOK_SECONDS", seconds)
        fleet.one.service.notify()
        await until(lambda soon=soon: looks[-1:] == [soon], pause=0.002)  # type: ignore[misc]


@pytest.mark.parametrize("error", [Owned("another process runs it"), KeyMissing("not this key")])
async def test_a_lane_that_is_for_others_is_given_back(fleet: Fleet, error: Exception) -> None:
    """The process that has the session, or its key, takes it, and nobody tries it in a rush."""
    fleet.one.refusal = fleet.two.refusal = error
    fleet.says("T", "a")
    await until(lambda: bool(fleet.log), pause=0.002)
    other = fleet.two if fleet.log[0] == "one+a" else fleet.one
    other.refusal = None
    await fleet.handled("a")
    assert fleet.log[-2:] == [f"{other.name}+a", f"{other.name}-a"]
    assert len(fleet.log) <= 6


async def test_what_is_said_while_a_lane_is_worked_on_is_handled(fleet: Fleet) -> None:
    """A row that comes when the last one was read already waits for no sweep."""
    fleet.one.free.clear()
    fleet.two.free.clear()
    fleet.says("T", "a")
    await asyncio.sleep(0.01)
    fleet.says("T", "b")
    fleet.one.free.set()
    fleet.two.free.set()
    async with asyncio.timeout(2):
        await fleet.handled("a", "b")


async def test_rows_in_other_hands_hide_nothing(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has as many lanes in hand as it takes at once leaves the others to its peers."""
    monkeypatch.setattr(shared_lanes, "MOST_LANES", 3)
    async with fleet.one.service._reading, fleet.two.service._reading:
        fleet.one.free.clear()  # no look is under way that may take more
    for number in range(12):
        fleet.says(f"T{number}", f"k{number}")
    keys = [f"k{number}" for number in range(12)]
    await until(lambda: sum(fleet.done(key) for key in keys) >= 9)
    fleet.one.free.set()
    await fleet.handled(*keys)
    assert len(fleet.log) == 24


async def test_a_row_that_is_for_somebody_else_is_passed_over_once(fleet: Fleet) -> None:
    """A handler that is done with a row and leaves it open is not asked again, and what comes behind it is handled."""
    seen: list[str] = []

    async def passing(row: InboxRow) -> bool:
        seen.append(row.key)
        if row.key == "b":
            fleet.store.consume([Consumed(row.id, "done")], NOW)
        return True

    for replica in (fleet.one, fleet.two):
        replica.service._handlers["said"] = passing
    fleet.says("T", "a")
    await asyncio.sleep(0.05)
    fleet.says("T", "b")
    await fleet.handled("b")
    await asyncio.sleep(0.05)
    assert sorted(seen) in (["a", "a", "b"], ["a", "b"])


async def test_a_lane_is_kept_while_its_session_runs(fleet: Fleet) -> None:
    """Whatever arrives for a session meanwhile is for the process that runs it."""
    session_id = await fleet.one.rig.start("nodes: [{id: a, type: shell, with: {run: [wait]}}]")
    live = fleet.one.rig.engine.sessions.active[session_id]
    async with fleet.two.service._reading:  # it looks for nothing yet
        fleet.says(session_id, "a")
        await fleet.handled("a")
    for _ in range(10):
        fleet.two.service.notify()
        await asyncio.sleep(0.02)
    with fleet.store._db.read():
        owner = fleet.store._db.one("SELECT owner FROM lanes WHERE key = ?", (session_id,))
    assert owner == (fleet.one.rig.engine.store.lanes.owner,)
    fleet.says(session_id, "b")
    await fleet.handled("b")
    assert fleet.log == ["one+a", "one-a", "one+b", "one-b"]
    assert live.claimed


async def test_the_look_alone_finds_everything(fleet: Fleet) -> None:
    """Where no wake-up ever comes, a row waits for the next look."""
    fleet.store.inbox.ingest([InboxItem("k", "said", b"{}", thread_key="T")], NOW)
    async with asyncio.timeout(1):
        await fleet.handled("k")


async def test_a_timer_of_a_lane_is_fired(fleet: Fleet) -> None:
    """By whichever process takes the lane then."""
    session_id = await fleet.one.rig.start("nodes: [{id: a, type: wait, with: {for: 1s}}]")
    fleet.one.rig.clock.advance(2)
    fleet.two.rig.clock.advance(2)
    async with asyncio.timeout(5):
        await until(lambda: fleet.store.sessions.head(session_id).status == "complete")
