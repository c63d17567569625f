"""A store that refuses, breaks, or answers nobody: what is kept, tried again, given up; and rows consumed twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from engine.decide.commands import Message
from engine.journal.events import Event
from engine.journal.records import Consumed, InboxItem, Row
from engine.journal.state import State
from engine.language.actors import Actor
from engine.language.errors import Fenced, NotJson, StorageBroken, StorageError, StorageFull
from engine.nodes.runtime.runner import Completed
from tests.support.engine import ANA, Backing, EngineRig, FaultyStore, flow_of, running, served, until

ASK = "nodes: [{id: q, type: ask, with: {message: How?}}, {id: b, type: shell, with: {run: [now]}}]"
WORK = "nodes: [{id: a, type: shell, with: {run: [wait]}}, {id: b, type: shell, with: {run: [now]}}]"
FULL = StorageFull("no space is left")


@pytest.fixture
async def store(backing: Backing) -> FaultyStore:
    """A store that fails when a test says so."""
    return FaultyStore(backing.open())


@pytest.fixture
async def rig(store: FaultyStore, tmp_path: Path) -> AsyncIterator[EngineRig]:
    """An engine over it."""
    async with running(store, tmp_path) as made:
        yield made


async def test_a_full_disk_refuses_an_answer_and_takes_it_later(store: FaultyStore, rig: EngineRig) -> None:
    """The failed commit changes nothing; the same answer is accepted once there is space."""
    session_id = (await rig.settled(ASK)).session_id
    before = await rig.types(session_id)
    store.failures = [FULL]
    with pytest.raises(StorageFull):
        await rig.engine.resume(session_id, "fine", actor=ANA, key="m1")
    assert await rig.types(session_id) == before
    assert (await rig.engine.state(session_id)).phase == "waiting"
    assert rig.live() == [], "a session that waits is not kept in memory because a commit failed"
    await rig.engine.resume(session_id, "fine", actor=ANA, key="m1")
    assert (await rig.engine.parked(session_id)).status == "complete"
    assert rig.shop.ran == ["b"]


async def test_a_full_disk_makes_no_session(store: FaultyStore, rig: EngineRig) -> None:
    """A start that could not be stored fails, and a service makes nothing of it later."""
    store.failures = [FULL]
    with pytest.raises(StorageFull):
        await rig.start(ASK)
    async with served(rig.engine):
        await until(lambda: rig.engine.sessions.stale() == frozenset())
    assert rig.store.sessions.heads() == []
    assert rig.live() == []


@pytest.mark.parametrize("error", [FULL, StorageError("the database is locked")])
async def test_an_outcome_is_kept_until_it_can_be_stored(
    store: FaultyStore, rig: EngineRig, error: StorageError
) -> None:
    """The work was done, so its outcome is tried again until the store takes it; the node does not run again."""
    session_id = await rig.start(WORK)
    await rig.shop.running("a")
    store.failures = [error, error, error]
    await rig.shop.finish("a")
    await store.failed.wait()
    assert (await rig.engine.parked(session_id)).status == "complete"
    assert rig.shop.ran == ["a", "b"]


async def test_a_shutdown_does_not_wait_for_space(backing: Backing, tmp_path: Path) -> None:
    """While the store refuses, a process that was told to go gives the outcome up: the next start asks."""
    store = FaultyStore(backing.open())
    async with running(store, tmp_path) as rig:
        session_id = await rig.start(WORK)
        await rig.shop.running("a")
        store.failures = [FULL] * 1000
        await rig.shop.finish("a")
        await store.failed.wait()
        await asyncio.wait_for(rig.engine.drain(0), 20)
        store.failures = []
    async with running(backing.open(), tmp_path) as rig:
        await rig.engine.apply(session_id, None)
        assert (await rig.open_prompt(session_id)).kind == "interrupted"


async def test_a_broken_disk_ends_the_engine(store: FaultyStore, rig: EngineRig) -> None:
    """After an error that makes memory untrustworthy, `on_broken` is told and waiters get the error."""
    told: list[BaseException] = []
    rig.engine.stepper.on_poisoned = told.append
    session_id = await rig.start(WORK)
    await rig.shop.running("a")
    store.failures = [StorageBroken("fsync failed")]
    await rig.shop.finish("a")
    with pytest.raises(StorageBroken):
        await rig.engine.parked(session_id)
    assert [type(error) for error in told] == [StorageBroken]


async def test_a_service_ends_when_the_disk_is_broken(store: FaultyStore, rig: EngineRig) -> None:
    """`run()` raises, so that the process ends."""
    with pytest.raises(StorageBroken):
        async with served(rig.engine) as service:
            session_id = await rig.start(WORK)
            await rig.shop.running("a")
            store.failures = [StorageBroken("fsync failed")]
            await rig.shop.finish("a")
            with pytest.raises(StorageBroken):
                await rig.engine.parked(session_id)
            assert service.failure is not None


async def test_a_session_whose_take_up_failed_is_taken_up_later(backing: Backing, tmp_path: Path) -> None:
    """An orphan whose first commit found a full disk is not forgotten, although this process owns it by then."""
    async with running(backing.open(), tmp_path) as rig:
        await rig.engine.drain(0)
        session_id = await rig.start(WORK.replace("[wait]", "[now]"))
    store = FaultyStore(backing.open())
    async with running(store, tmp_path) as rig:
        store.failures = [FULL]
        with pytest.raises(StorageFull):
            await rig.engine.apply(session_id, None)
        assert rig.engine.sessions.stale() == {session_id}
        async with served(rig.engine):
            await rig.committed.until("session:end", session_id)
        assert rig.shop.ran == ["a", "b"]
        assert rig.engine.sessions.stale() == frozenset()


async def test_a_cancelled_caller_takes_nothing_back(store: FaultyStore, rig: EngineRig) -> None:
    """What was queued is carried out although its caller left; memory is folded again and nothing runs twice."""
    store.near = False
    session_id = (await rig.settled(ASK)).session_id
    answer = asyncio.ensure_future(rig.engine.resume(session_id, "fine", actor=ANA))
    await until(lambda: bool(rig.live()) and rig.engine.sessions.active[session_id].claimed, pause=0)
    answer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answer
    async with served(rig.engine):
        await until(lambda: phase_of(rig, session_id) != "running")
    types = await rig.types(session_id)
    assert types.count("prompt:answered") == 1
    assert len(rig.shop.ran) <= 1


def phase_of(rig: EngineRig, session_id: str) -> str:
    """Where the session is in the store."""
    head = rig.store.sessions.head(session_id)
    assert head is not None
    return head.phase


async def test_a_message_during_work_that_could_not_be_stored_disturbs_no_work(
    store: FaultyStore, rig: EngineRig
) -> None:
    """The running node continues, its outcome is recorded on what is stored, and the message can come again."""
    session_id = await rig.start(WORK)
    work = await rig.shop.running("a")
    store.failures = [FULL]
    with pytest.raises(StorageFull):
        await rig.engine.apply(session_id, Message("hello", ANA, "m1"))
    assert not work.context.aborted.is_set()
    await rig.engine.apply(session_id, Message("hello", ANA, "m1"))
    await rig.shop.finish("a")
    state = await rig.engine.parked(session_id)
    assert (state.status, len(state.messages)) == ("complete", 1)


# --- what follows from events -------------------------------------------------------------------------------


async def test_an_extension_that_raises_leaves_the_session_as_it_was(
    backing: Backing, tmp_path: Path
) -> None:
    """Nothing of the step is stored, and the session is neither kept nor lost."""
    broken = [False]

    def extension(before: State, after: State, events: Sequence[Event]) -> Sequence[Row]:
        if broken[0]:
            raise ZeroDivisionError("an extension that is broken")
        return ()

    async with running(backing.open(), tmp_path, extensions=[extension]) as rig:
        session_id = (await rig.settled(ASK)).session_id
        broken[0] = True
        with pytest.raises(ZeroDivisionError):
            await rig.engine.resume(session_id, "fine", actor=ANA)
        assert rig.live() == []
        broken[0] = False
        assert (await rig.reply(session_id, "fine")).status == "complete"


async def test_a_payload_that_cannot_be_stored_is_refused_as_a_whole(rig: EngineRig) -> None:
    """A name that is not Unicode stops that command and nothing else."""
    strange = Actor(id="U0X", name="\ud800", facts_known=True)
    session_id = (await rig.settled(ASK)).session_id
    with pytest.raises(NotJson):
        await rig.engine.resume(session_id, "fine", actor=strange)
    assert (await rig.reply(session_id, "fine")).status == "complete"


# --- inbox rows ---------------------------------------------------------------------------------------------


async def test_a_row_is_consumed_with_what_it_caused(rig: EngineRig) -> None:
    """Row and events are one commit; a second step with the same row is refused and changes nothing."""
    session_id = (await rig.settled(ASK)).session_id
    (row_id,) = rig.store.inbox.ingest([InboxItem("m1", "message", b"{}", session_id)], rig.clock.now)
    assert row_id is not None
    consumed = [Consumed(row_id, "applied")]
    await rig.engine.apply(session_id, Message("fine", ANA, "m1"), consumed=consumed)
    row = rig.store.inbox.row("m1")
    assert row is not None
    assert row.outcome == "applied"
    await rig.engine.parked(session_id)
    other = (await rig.settled(ASK)).session_id
    with pytest.raises(Fenced):
        await rig.engine.apply(other, Message("fine", ANA, "m1"), consumed=consumed)
    assert (await rig.engine.state(other)).phase == "waiting"


async def test_a_row_that_was_consumed_before_disturbs_no_running_node(rig: EngineRig) -> None:
    """The step is refused, but the session is still ours: its node is not told to leave."""
    session_id = await rig.start(WORK)
    work = await rig.shop.running("a")
    (row_id,) = rig.store.inbox.ingest([InboxItem("m1", "message", b"{}", session_id)], rig.clock.now)
    assert row_id is not None
    await rig.engine.writer.call(rig.engine.store.consume, [Consumed(row_id, "elsewhere")], rig.clock.now)
    with pytest.raises(Fenced):
        await rig.engine.apply(session_id, Message("x", ANA, "m1"), consumed=[Consumed(row_id, "applied")])
    assert not work.context.aborted.is_set()
    await rig.shop.finish("a", Completed({}))
    state = await rig.engine.parked(session_id)
    assert (state.status, state.messages) == ("complete", ())


async def test_a_start_consumes_its_row_once(rig: EngineRig) -> None:
    """Two starts from one mention make one session."""
    (row_id,) = rig.store.inbox.ingest([InboxItem("m1", "message", b"{}")], rig.clock.now)
    assert row_id is not None
    starts = [
        rig.engine.start(flow_of(ASK), {}, actor=ANA, consumed=[Consumed(row_id, "started")])
        for _ in range(3)
    ]
    outcomes = await asyncio.gather(*starts, return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Fenced", "Fenced", "str"]
    assert len(rig.store.sessions.heads()) == 1
