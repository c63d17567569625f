"""Lanes of a store that several processes serve: one works on each, and none is lost with a process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from engine.journal.records import Consumed, InboxItem, InboxRow
from engine.language.errors import KeyMissing, Owned
from engine.run import shared_lanes
from engine.run.dispatcher import Dispatcher, LocalWakeups, OwnLanes
from engine.run.engine import Engine
from engine.run.shared_lanes import SharedLanes
from engine.storage.open import MemoryStore
from tests.support.engine import Clock, EngineRig, running, until

NOW = "2026-11-21T09:00:00.000Z"


class Replica:
    """A process that handles rows of kind `said`, as far as it is told to."""

    def __init__(self, rig: EngineRig, log: list[str], name: str) -> None:
        self.rig, self.log, self.name = rig, log, name
        self.free = asyncio.Event()
        self.free.set()
        self.refusal: Exception | None = None
        self.began = asyncio.Event()
        self.service = Dispatcher(rig.engine, handlers={"said": self.handle})
        self.task = asyncio.create_task(self.service.run())

    async def handle(self, row: InboxRow) -> bool:
        self.log.append(f"{self.name}+{row.key}")
        self.began.set()
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

    def __init__(self, one: Replica, two: Replica, store: MemoryStore, log: list[str]) -> None:
        self.one, self.two, self.store, self.log = one, two, store, log

    def says(self, thread: str, *keys: str) -> None:
        """Somebody says something in a thread."""
        self.store.inbox.ingest([InboxItem(key, "said", b"{}", thread_key=thread) for key in keys], NOW)
        self.one.service.notify()
        self.two.service.notify()

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
    log: list[str] = []
    store = MemoryStore()
    store.shared = store.database.shared = True
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


async def overlapping(fleet: Fleet) -> bool:
    """Whether two rows of one thread were handled at the same time, or one of them twice."""
    fleet.one.free.clear()
    fleet.two.free.clear()
    fleet.says("T", "a", "b")
    await asyncio.wait(
        [asyncio.create_task(r.began.wait()) for r in (fleet.one, fleet.two)],
        return_when=asyncio.FIRST_COMPLETED,
    )
    for _ in range(3):
        fleet.one.service.notify()
        fleet.two.service.notify()
        await asyncio.sleep(0.02)
    fleet.one.free.set()
    fleet.two.free.set()
    await fleet.handled("a", "b")
    return not in_turn(fleet.log) or len(fleet.log) != 4


async def test_a_lane_is_worked_on_by_one_process(fleet: Fleet) -> None:
    """Rows of one thread are handled once and one after the other, however often both look."""
    assert not await overlapping(fleet)


async def test_a_lane_without_its_lease_is_noticed(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded fault: the lease is not asked for."""

    async def granted(self: SharedLanes, name: str) -> bool:
        return True

    monkeypatch.setattr(SharedLanes, "alone", granted)
    assert await overlapping(fleet)


async def left_behind(fleet: Fleet) -> bool:
    """Whether a row stays that a process had in hand when it went."""
    fleet.one.free.clear()
    fleet.two.free.clear()
    fleet.says("T", "a")
    await asyncio.wait(
        [asyncio.create_task(r.began.wait()) for r in (fleet.one, fleet.two)],
        return_when=asyncio.FIRST_COMPLETED,
    )
    dead, other = (fleet.one, fleet.two) if fleet.one.began.is_set() else (fleet.two, fleet.one)
    dead.task.cancel()
    for worker in dead.service._lanes.values():
        worker.cancel()
    other.free.set()
    try:
        async with asyncio.timeout(0.3):
            await fleet.handled("a")
    except TimeoutError:
        return True
    finally:
        dead.task = asyncio.create_task(asyncio.sleep(0))
    return False


async def test_what_a_process_had_in_hand_is_taken_by_another(fleet: Fleet) -> None:
    """It looks again although nothing tells it."""
    assert not await left_behind(fleet)


async def test_a_cursor_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded fault: each process reads every row once. What it leaves to another one is gone with that."""

    class Cursor(OwnLanes):
        def __init__(self, engine: Engine, kinds: object, begin: object, look: object) -> None:
            super().__init__(engine, kinds, begin)  # type: ignore[arg-type]

        async def alone(self, name: str) -> bool:
            return await self._engine.writer.call(self._engine.store.lease, name)

        async def look(self) -> None:
            await super().look()
            for lane in list(self._lanes):
                if not await self.alone(f"lane {lane}"):
                    del self._lanes[lane]

        def _give(self, row: InboxRow) -> None:
            if self._engine.store.lease(f"lane {row.thread_key}"):
                super()._give(row)

    monkeypatch.setattr(shared_lanes, "SharedLanes", Cursor)
    log: list[str] = []
    store = MemoryStore()
    store.shared = store.database.shared = True
    async with (
        running(store.another(), tmp_path / "one") as a,
        running(store.another(), tmp_path / "two") as b,
    ):
        fleet = Fleet(Replica(a, log, "one"), Replica(b, log, "two"), store, log)
        assert await left_behind(fleet)
        await fleet.one.stop()
        await fleet.two.stop()
    store.close()


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
    fleet.one.free.clear()
    for number in range(12):
        fleet.says(f"T{number}", f"k{number}")
    keys = [f"k{number}" for number in range(12)]
    await until(lambda: sum(fleet.done(key) for key in keys) == 9)
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


async def test_what_is_told_while_timers_are_looked_at_ends_nothing(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word of another process comes at any time: the look that is under way ends as it began."""
    service = Dispatcher(fleet.one.rig.engine)
    look = service._look_for_timers

    async def looked() -> None:
        await look()
        service.told("all")

    monkeypatch.setattr(service, "_look_for_timers", looked)
    assert await service._fire() > 0
    assert await service._fire() > 0


async def unheard(tmp_path: Path, sweep_seconds: float) -> bool:
    """Whether a row stays of which no wake-up ever came."""

    async def never() -> bool:
        return False

    store = MemoryStore()
    store.shared = store.database.shared = True
    async with running(store.another(), tmp_path, now=Clock()) as rig:
        handled = asyncio.Event()

        async def handle(row: InboxRow) -> bool:
            await service.consume(row, "done")
            handled.set()
            return True

        service = Dispatcher(
            rig.engine,
            handlers={"said": handle},
            wakeups=LocalWakeups(never, float("inf")),
            sweep_seconds=sweep_seconds,
        )
        task = asyncio.create_task(service.run())
        await asyncio.sleep(0.02)
        store.inbox.ingest([InboxItem("k", "said", b"{}", thread_key="T")], NOW)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(handled.wait(), 0.5)
        service.stop()
        await task
    store.close()
    return not handled.is_set()


async def test_the_sweep_alone_finds_everything(tmp_path: Path) -> None:
    """Where no wake-up ever comes, a row waits for the next look."""
    assert not await unheard(tmp_path, 0.05)


async def test_a_process_that_only_waits_for_wake_ups_is_noticed(tmp_path: Path) -> None:
    """Seeded fault: no sweep beside the wake-ups, which may be lost."""
    assert await unheard(tmp_path, 3600.0)


async def test_a_lane_that_is_given_back_while_it_is_asked_for_is_asked_for_again(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would say so once more: a reply waited for half a second."""
    monkeypatch.setattr(shared_lanes, "BACKOFF_SECONDS", (60.0,))
    begun: list[str] = []
    lanes = SharedLanes(fleet.one.rig.engine, ["kept"], begun.append, lambda: None)
    fleet.store.inbox.ingest([InboxItem("k", "kept", b"{}", thread_key="T")], NOW)

    async def refused(name: str) -> bool:
        lanes.given_back()
        return False

    monkeypatch.setattr(lanes, "alone", refused)
    await lanes.look()
    monkeypatch.undo()
    await lanes.look()
    assert begun == ["T"]
