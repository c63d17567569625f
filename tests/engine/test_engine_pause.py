"""Pausing through the shell: what runs leaves first, completion wins, and a pause that fails changes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine.journal.events import Event, decode_event
from engine.journal.state import State
from engine.language.errors import NotAllowed, SessionEnded, StorageFull
from tests.support.engine import ANA, BEN, Backing, EngineRig, FaultyStore, nobody_but, running, served

SAFE = "nodes: [{id: a, type: shell, on_crash: again, with: {run: [wait]}}, {id: b, type: shell, with: {run: [now]}}]"
LAST = "nodes: [{id: a, type: shell, with: {run: [stubborn]}}]"
ASK = "nodes: [{id: q, type: ask, with: {message: How?}}, {id: b, type: shell, with: {run: [now]}}]"


async def test_a_pause_lets_what_runs_leave_and_starts_nothing(rig: EngineRig) -> None:
    """The node is cut and recorded, the session is held and given up; the resume runs it again."""
    session_id = await rig.start(SAFE)
    await rig.shop.running("a")
    state = await rig.engine.pause(session_id, actor=ANA, reason="lunch")
    assert (state.phase, state.pause_reason) == ("held", "lunch")
    await rig.engine.parked(session_id)
    head = await rig.engine.head(session_id)
    assert (head.status, head.owner) == ("paused", None)
    await rig.engine.resume(session_id, "go on", actor=ANA)
    await rig.shop.finish("a")
    assert (await rig.engine.parked(session_id)).status == "complete"
    assert rig.shop.ran == ["a", "a", "b"]


async def test_a_pause_is_told_once_and_after_its_commit(backing: Backing, tmp_path: Path) -> None:
    """Subscribers hear one `flow:paused`, and by then the store has it."""
    heard: list[bool] = []
    async with running(backing.open(), tmp_path) as rig:
        session_id = await rig.start(SAFE)
        await rig.shop.running("a")

        def hear(state: State, events: list[Event]) -> None:
            stored = [decode_event(row).type for row in rig.store.sessions.journal(session_id)]
            heard.extend("flow:paused" in stored for event in events if event.type == "flow:paused")

        rig.engine.subscribe(hear)
        await rig.engine.pause(session_id, actor=ANA)
    assert heard == [True]


async def test_a_completion_wins_over_a_pause(rig: EngineRig) -> None:
    """A node that ends well although it was told to leave has completed; nothing was left to pause."""
    session_id = await rig.start(LAST)
    await rig.shop.running("a")
    pausing = asyncio.create_task(rig.engine.pause(session_id, actor=ANA))
    await rig.shop.open["a"].context.aborted.wait()
    await rig.shop.finish("a")
    with pytest.raises(SessionEnded):
        await pausing
    assert (await rig.engine.state(session_id)).status == "complete"
    assert "flow:paused" not in await rig.types(session_id)


ENDING = """
nodes: [{id: a, type: shell, with: {run: [stubborn]}}]
finally: [{id: tidy, type: shell, on_crash: again, with: {run: [wait]}}]
"""


async def test_a_pause_of_a_session_that_is_ending_disturbs_nothing(rig: EngineRig) -> None:
    """What runs at the end is not told to leave by a pause that is refused."""
    session_id = await rig.start(ENDING)
    await rig.shop.finish("a")
    work = await rig.shop.running("finally/tidy")
    with pytest.raises(SessionEnded):
        await rig.engine.pause(session_id, actor=ANA)
    assert not work.context.aborted.is_set()
    await rig.shop.finish("finally/tidy")
    assert (await rig.engine.parked(session_id)).status == "complete"


async def test_what_comes_at_the_end_runs_when_the_flow_ends_during_a_pause(rig: EngineRig) -> None:
    """The completion wins, the pause is refused, and `finally` begins although a pause was in progress."""
    session_id = await rig.start(ENDING)
    await rig.shop.running("a")
    pausing = asyncio.create_task(rig.engine.pause(session_id, actor=ANA))
    await rig.shop.open["a"].context.aborted.wait()
    await rig.shop.finish("a")
    with pytest.raises(SessionEnded):
        await pausing
    await rig.shop.finish("finally/tidy")
    assert (await rig.engine.parked(session_id)).status == "complete"
    assert rig.shop.ran == ["a", "finally/tidy"]


async def test_a_pause_that_is_not_allowed_disturbs_nothing(backing: Backing, tmp_path: Path) -> None:
    """Who may not pause is refused before anything is told to leave."""
    async with running(backing.open(), tmp_path, policy=nobody_but(ANA)) as rig:
        session_id = await rig.start(SAFE)
        work = await rig.shop.running("a")
        with pytest.raises(NotAllowed):
            await rig.engine.pause(session_id, actor=BEN)
        assert not work.context.aborted.is_set()
        await rig.shop.finish("a")
        assert (await rig.engine.parked(session_id)).status == "complete"


async def test_a_pause_that_could_not_be_stored_is_no_pause(backing: Backing, tmp_path: Path) -> None:
    """The caller hears of it, and the session, whose node has left, continues."""
    store = FaultyStore(backing.open())
    async with running(store, tmp_path) as rig, served(rig.engine) as service:
        session_id = (await rig.settled(ASK)).session_id
        store.failures = [StorageFull("no space is left")]
        with pytest.raises(StorageFull):
            await rig.engine.pause(session_id, actor=ANA)
        assert (await rig.engine.state(session_id)).phase == "waiting"
        service._swept = float("-inf")
        service.notify()
        assert (await rig.reply(session_id, "fine")).status == "complete"


async def test_a_held_session_survives_a_restart(backing: Backing, tmp_path: Path) -> None:
    """Nothing takes it up; answers are recorded by the next process and start nothing until it is resumed."""
    async with running(backing.open(), tmp_path) as rig:
        session_id = (await rig.settled(ASK)).session_id
        await rig.engine.pause(session_id, actor=ANA)
    async with running(backing.open(), tmp_path) as rig, served(rig.engine):
        assert (await rig.engine.state(session_id)).phase == "held"
        await rig.answer(session_id, text="fine")
        assert rig.shop.ran == []
        await rig.engine.resume(session_id, "go on", actor=ANA)
        assert (await rig.engine.parked(session_id)).status == "complete"
        assert rig.shop.ran == ["b"]


async def test_what_looks_at_nothing_is_shown_to_be_waited_for(
    rig: EngineRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a node that was told to leave runs on, the session is stored as pausing; then it is held."""
    monkeypatch.setattr("engine.run.engine.PAUSING_SECONDS", 0.001)
    flow = "nodes: [{id: a, type: shell, with: {run: [stubborn]}}, {id: b, type: shell, with: {run: [now]}}]"
    session_id = await rig.start(flow)
    await rig.shop.running("a")
    seen = asyncio.Event()
    rig.engine.subscribe(lambda state, events: seen.set() if state.phase == "pausing" else None)
    task = asyncio.create_task(rig.engine.pause(session_id, actor=ANA, reason="lunch"))
    await seen.wait()
    assert (await rig.engine.head(session_id)).phase == "pausing"
    await rig.shop.finish("a")
    assert (await task).phase == "held"
    await rig.engine.resume(session_id, "go on", actor=ANA)
    assert (await rig.engine.parked(session_id)).status == "complete"
    assert rig.shop.ran == ["a", "b"]
