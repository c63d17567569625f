"""Locks in running engines: two sessions never hold the same one, and the next in the queue continues by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.journal.records import DropLock, LockRow
from engine.journal.state import State
from engine.language.errors import SessionError, SessionQuarantined, SnapshotRefused
from engine.run.dispatcher import Dispatcher
from engine.run.engine import Engine
from engine.storage.locks import LockTable
from engine.storage.open import MemoryStore
from engine.storage.store import Store
from tests.support.engine import ANA, BEN, Backing, EngineRig, FaultyStore, abandon, running, served

DEPLOY = """flow: deploy
inputs: {service: {type: string}}
lock: "deploy-{{ inputs.service }}"
nodes: [{id: a, type: shell, with: {run: [wait]}}]
"""
REFUSING = DEPLOY.replace("nodes:", "on_conflict: refuse\nnodes:")
ASKING = DEPLOY.replace("type: shell, with: {run: [wait]}", "type: ask, with: {message: Sure?}")
QUICK = DEPLOY.replace("type: shell, with: {run: [wait]}", "type: noop")


async def holding(rig: EngineRig, flow: str = DEPLOY) -> str:
    """A session that holds the lock and works."""
    session_id = await rig.start(flow, service="api")
    await rig.shop.running("a")
    return session_id


async def queued(rig: EngineRig, flow: str = DEPLOY) -> str:
    """A session that waits for the lock."""
    state = await rig.settled(flow, service="api")
    assert (state.phase, state.pause_reason) == ("waiting", "waiting for lock deploy-api")
    return state.session_id


def order(store: Store) -> list[tuple[str, bool]]:
    """Who is in the queue, and whether that one took the lock."""
    return [(row.session_id, row.taken_at is not None) for row in store.locks.rows("deploy-api")]


async def test_a_free_lock_costs_no_commit_of_its_own(backing: Backing, tmp_path: Path) -> None:
    """The start, the lock and the first node are one commit; the end gives the lock back in its own."""
    faulty = FaultyStore(backing.open())
    async with running(faulty, tmp_path) as rig:
        session_id = await holding(rig)
        assert faulty.batches == [1]
        assert order(rig.store) == [(session_id, True)]
        await rig.shop.finish("a")
        assert (await rig.engine.parked(session_id)).status == "complete"
        assert order(rig.store) == []


@pytest.mark.usefixtures("service")
async def test_the_queue_goes_on_in_its_order(rig: EngineRig) -> None:
    """Each session starts when the one before it has ended, however that ended."""
    first = await holding(rig)
    second, third = await queued(rig), await queued(rig)
    other = await rig.settled(QUICK, service="web")
    assert other.status == "complete"
    assert order(rig.store) == [(first, True), (second, False), (third, False)]
    await rig.engine.abort(first, actor=ANA)
    await rig.committed.until("lock:acquired", second)
    assert order(rig.store) == [(second, True), (third, False)]
    await rig.shop.finish("a")
    await rig.committed.until("session:end", second)
    await rig.committed.until("lock:acquired", third)
    assert (await rig.types(third))[:5] == [
        "session:start", "lock:requested", "flow:paused", "flow:resumed", "lock:acquired",
    ]  # fmt: skip
    await rig.shop.finish("a")
    await rig.committed.until("session:end", third)
    assert order(rig.store) == []


async def test_a_refused_session_says_who_holds_the_lock(rig: EngineRig) -> None:
    """It ends failed with the holder's id and thread, and leaves no place in the queue."""
    holder = await rig.start(DEPLOY, service="api", thread={"key": "T1:C1:1.2", "channel": "C1"})
    state = await rig.settled(REFUSING, service="api")
    assert (state.status, (state.error or {})["type"]) == ("failed", "locked")
    assert (state.error or {})["heldBy"] == {"sessionId": holder, "threadKey": "T1:C1:1.2"}
    assert order(rig.store) == [(holder, True)]
    assert (await rig.settled(REFUSING.replace("[wait]", "[now]"), service="web")).status == "complete"


class Late:
    """A store whose first look at a queue shows it as it was before anybody came."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.locks = LateQueue(inner.locks)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class LateQueue:
    """The queues of such a store."""

    def __init__(self, inner: LockTable) -> None:
        self.inner = inner
        self.looks = 0

    def rows(self, name: str | None = None) -> list[LockRow]:
        """Empty at the first look."""
        self.looks += 1
        return [] if self.looks == 1 else self.inner.rows(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


async def test_whoever_looked_too_early_decides_again(backing: Backing, tmp_path: Path) -> None:
    """The commit finds somebody ahead and stores nothing; the session then queues, or is refused."""
    async with running(backing.open(), tmp_path) as rig:
        await holding(rig)
        for flow, status in ((DEPLOY, "paused"), (REFUSING, "failed"), (QUICK, "paused")):
            late: Any = Late(backing.open())
            async with running(late, tmp_path) as other:
                state = await other.settled(flow, service="api")
                assert (state.status, late.locks.looks) == (status, 2)
                assert "lock:acquired" not in await other.types(state.session_id)


async def test_another_process_goes_on_when_the_holder_has_ended(backing: Backing, tmp_path: Path) -> None:
    """It sees the commit of the process in which the holder ended, and needs no message from it."""
    async with running(backing.open(), tmp_path) as rig, running(backing.open(), tmp_path) as other:
        holder = await holding(rig)
        async with served(other.engine):
            waits = await queued(other)
            await rig.shop.finish("a")
            await rig.engine.parked(holder)
            await other.committed.until("lock:acquired", waits)


async def test_a_release_that_nobody_was_woken_for_is_found(backing: Backing, tmp_path: Path) -> None:
    """The holder's process ended right after the commit of its end: whoever comes next looks at the queues first."""
    async with running(backing.open(), tmp_path) as rig:
        holder, waits = await holding(rig), await queued(rig, QUICK)
        await rig.shop.finish("a")
        await rig.engine.parked(holder)
        assert (await rig.engine.state(waits)).phase == "waiting"
    async with running(backing.open(), tmp_path) as rig, served(rig.engine):
        await rig.committed.until("session:end", waits)


async def test_a_lock_outlives_the_process_that_held_it(backing: Backing, tmp_path: Path) -> None:
    """After a crash it is still the holder's, which continues; the queue waits as before."""
    store = backing.open()
    async with running(store, tmp_path) as rig:
        holder, waits = await holding(rig), await queued(rig, QUICK)
        abandon(store)
        async with running(backing.open(), tmp_path) as other, served(other.engine):
            state = await other.engine.apply(holder, None)
            assert state.open_prompts, "a person is asked about what was interrupted"
            assert (await other.engine.state(waits)).phase == "waiting"
            await other.answer(holder, "done")
            await other.committed.until("session:end", waits)
            assert order(other.store) == []


@pytest.mark.usefixtures("service")
async def test_a_fork_of_a_holder_queues_behind_it(rig: EngineRig) -> None:
    """It starts nothing while its parent holds the lock, also when it is answered; then it continues where it is."""
    parent = (await rig.settled(ASKING, service="api")).session_id
    seq = (await rig.engine.state(parent)).seq
    fork = await rig.engine.fork(parent, seq, actor=BEN)
    assert order(rig.store) == [(parent, True), (fork, False)]
    state = await rig.answer(fork, actor=BEN, text="yes")
    assert (state.phase, state.pause_reason) == ("waiting", "waiting for lock deploy-api")
    await rig.engine.resume(parent, "yes", actor=ANA)
    await rig.committed.until("session:end", fork)
    assert order(rig.store) == []


REFUSED = ASKING.replace("nodes:", "on_conflict: refuse\nnodes:")


@pytest.mark.usefixtures("service")
async def test_a_fork_that_may_not_wait_for_its_lock_is_refused(rig: EngineRig) -> None:
    """With `on_conflict: refuse` nothing is stored while another one holds it, and it says which one does."""
    parent = (await rig.settled(REFUSED, service="api")).session_id
    seq = (await rig.engine.state(parent)).seq
    with pytest.raises(SessionError, match=f"held by {parent}"):
        await rig.engine.fork(parent, seq, actor=BEN)
    assert [head.session_id for head in rig.store.sessions.heads()] == [parent]
    await rig.engine.abort(parent, actor=ANA)
    fork = await rig.engine.fork(parent, seq, actor=BEN)
    assert order(rig.store) == [(fork, True)]


@pytest.mark.usefixtures("service")
async def test_a_fork_before_which_another_takes_the_lock_waits(
    rig: EngineRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has run nodes is not failed by a lock: where somebody came first after all, it continues when that one has ended."""
    parent = (await rig.settled(REFUSED, service="api")).session_id

    async def nobody_looked(self: Engine, state: State) -> None:
        return None

    monkeypatch.setattr(Engine, "_refuse_locked", nobody_looked)
    fork = await rig.engine.fork(parent, (await rig.engine.state(parent)).seq, actor=BEN)
    await rig.engine.resume(parent, "yes", actor=ANA)
    await rig.committed.until("lock:acquired", fork)
    assert (await rig.answer(fork, actor=BEN, text="yes")).ended


async def test_a_fork_takes_a_lock_that_is_free(rig: EngineRig) -> None:
    """Its parent has ended: it waits for nobody, and holds the lock itself."""
    parent = (await rig.settled(ASKING, service="api")).session_id
    seq = (await rig.engine.state(parent)).seq
    await rig.engine.abort(parent, actor=ANA)
    fork = await rig.engine.fork(parent, seq, actor=BEN)
    assert order(rig.store) == [(fork, True)]
    assert len((await rig.engine.state(fork)).open_prompts) == 1


async def test_a_session_that_is_brought_here_takes_its_lock_here(tmp_path: Path) -> None:
    """Where another one holds it, it is refused and nothing is stored; where it is free, it is held from then on."""
    key = b"0123456789abcdef"
    async with running(MemoryStore(key), tmp_path) as rig:
        waits = (await rig.settled(ASKING, service="api")).session_id
        data = await rig.engine.export(waits)
    async with running(MemoryStore(key), tmp_path) as rig:
        holder = await holding(rig)
        with pytest.raises(SnapshotRefused, match=holder):
            await rig.engine.resume_from_snapshot(data)
        assert rig.store.sessions.head(waits) is None
        await rig.shop.finish("a")
        await rig.engine.parked(holder)
        await rig.engine.resume_from_snapshot(data)
        assert order(rig.store) == [(waits, True)]


async def test_a_holder_that_is_set_aside_keeps_the_lock(backing: Backing, tmp_path: Path) -> None:
    """Nobody knows what it did; the queue continues when a person takes the lock from it."""
    async with running(backing.open(), tmp_path) as rig, served(rig.engine) as service:
        holder = (await rig.settled(ASKING, service="api")).session_id
        waits = await queued(rig, QUICK)
        rig.store.quarantine(holder, "damaged", rig.clock())
        with pytest.raises(SessionQuarantined):
            await rig.engine.abort(holder, actor=ANA)
        await looked(service)
        assert (await rig.engine.state(waits)).phase == "waiting"
        cli = backing.open()
        cli.consume((), rig.clock(), [DropLock("deploy-api", holder)])
        cli.close()
        await rig.committed.until("session:end", waits)


async def looked(service: Dispatcher) -> None:
    """The service has looked for what may continue."""
    service._released = True
    await service._grant()


async def test_a_session_that_began_while_the_process_was_leaving_is_told_later(
    backing: Backing, tmp_path: Path
) -> None:
    """It keeps its place; the next process says how it stands."""
    async with running(backing.open(), tmp_path) as rig:
        await rig.engine.drain(0)
        session_id = await rig.start(QUICK, service="api")
        assert await rig.types(session_id) == ["session:start", "lock:requested"]
        assert order(rig.store) == [(session_id, False)]
    async with running(backing.open(), tmp_path) as rig, served(rig.engine):
        await rig.committed.until("session:end", session_id)


async def test_the_next_one_is_taken_up_only_by_who_wants_it(backing: Backing, tmp_path: Path) -> None:
    """A service continues with its own sessions; another one's turn is left to its own process."""

    def mine(head: Any) -> bool:
        return head.thread_key is not None

    async with running(backing.open(), tmp_path) as rig, served(rig.engine, wants=mine) as service:
        holder, waits = await holding(rig), await queued(rig, QUICK)
        await rig.engine.abort(holder, actor=ANA)
        await looked(service)
        state: State = await rig.engine.state(waits)
        assert state.phase == "waiting"
        assert (await rig.engine.apply(waits, None)).status == "complete"
