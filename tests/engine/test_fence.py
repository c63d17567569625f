"""Effects are fenced: a process that froze after it had stored the start of a node, while others could take its session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from engine.decide.commands import Abort
from engine.journal.events import Event, NodeStarted
from engine.journal.state import State
from engine.language.errors import StorageBusy
from engine.run.runtime import Runtime
from engine.run.sessions import Sessions
from engine.storage import fence
from engine.storage.fence import WorkPermit
from engine.storage.open import MemoryStore
from tests.engine.test_runtime import SAYS, Recorder, begun
from tests.support.engine import ANA, EngineRig, FaultyStore, abandon, running
from tests.support.fencing import Lease

WORK = "nodes: [{id: a, type: shell, on_crash: again, with: {run: [now]}}]"


class Zombie(FaultyStore):
    """A store of a process that freezes when a test says so."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.first, self.lease = store, Lease()

    def generation(self) -> int:
        """See `Fence.generation`."""
        return self.lease.generation()

    def holds(self, generation: int) -> bool:
        """See `Fence.holds`."""
        return self.lease.holds(generation)


def stands_still(rig: EngineRig, meanwhile: Callable[[str], object], path: str = "a") -> None:
    """Between the commit that starts this node and what launches it the process freezes, and then its sign of life runs
    first."""

    def frozen(before: State, after: State, events: Sequence[Event]) -> None:
        if any(isinstance(event, NodeStarted) and event.path == path for event in events):
            rig.store.lease.gap()  # type: ignore[attr-defined]  # a `Zombie`
            meanwhile(after.session_id)

    rig.engine.observe(frozen)


class Waking:
    """A permit that is asked once the other process is through."""

    def __init__(self, permit: WorkPermit, other: asyncio.Future[list[str]]) -> None:
        self.holds, self._permit, self._other = permit.holds, permit, other

    async def ask(self) -> None:
        """See `Permit.ask`."""
        await self._other
        await self._permit.ask()


async def taken_over(folder: Path, *, aborted: bool) -> tuple[list[str], list[str], list[str]]:
    """A process freezes, another one takes its session, and it wakes: which nodes the two ran, and the journal."""
    store = Zombie(MemoryStore())
    other: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
    tasks: list[asyncio.Task[None]] = []

    async def go_on(session_id: str) -> None:
        abandon(store.first)
        async with running(store.first.another(), folder) as thief:
            await thief.engine.apply(session_id, Abort(ANA) if aborted else None)
            await thief.engine.parked(session_id)
            other.set_result(thief.shop.ran)

    async with running(store, folder) as rig:
        stands_still(rig, lambda session_id: tasks.append(asyncio.create_task(go_on(session_id))))
        sessions = rig.engine.sessions
        rig.engine.executor.permit = lambda live: Waking(sessions.permit(live), other)
        session_id = await rig.start(WORK)
        await sessions.active[session_id].parked.wait()
        await asyncio.gather(*tasks)
        return rig.shop.ran, await other, await rig.types(session_id)


@pytest.mark.parametrize("aborted", [False, True])
async def test_a_node_that_another_process_has_taken_over_does_not_run(tmp_path: Path, aborted: bool) -> None:
    """It runs once, where the session continued; not at all, where it was aborted there."""
    ours, theirs, journal = await taken_over(tmp_path, aborted=aborted)
    assert (ours, theirs) == ([], [] if aborted else ["a"])
    assert journal.count("node:completed") == len(theirs)
    assert journal.count("node:interrupted") == 1


async def _no_check(self: WorkPermit) -> None:
    return


def _begun_now(self: Sessions, live: object) -> WorkPermit:
    return WorkPermit(self.store, self.store.generation())


@pytest.mark.parametrize("fault", ["no check", "no generation"])
async def test_a_fault_of_the_fence_of_nodes_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Without a check it runs twice; so it does with a bare look at the last sign of life, which ran first."""
    if fault == "no check":
        monkeypatch.setattr(WorkPermit, "ask", _no_check)
    else:
        monkeypatch.setattr(Sessions, "permit", _begun_now)
    ours, _, _ = await taken_over(tmp_path, aborted=False)
    assert ours == ["a"]


async def test_a_gap_in_which_nobody_took_the_session_costs_nothing(tmp_path: Path) -> None:
    """The server was away, or the machine was suspended with it: the session is ours, and its node runs once."""
    async with running(Zombie(MemoryStore()), tmp_path) as rig:
        stands_still(rig, lambda session_id: None)
        state = await rig.settled(WORK)
        assert (state.status, rig.shop.ran) == ("complete", ["a"])
        assert "node:interrupted" not in await rig.types(state.session_id)


async def test_work_waits_for_a_store_that_is_away_after_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing begins while nobody can say whose it is; then it begins once."""
    monkeypatch.setattr(fence, "_ASK_AGAIN_SECONDS", 0.0)
    store = Zombie(MemoryStore())
    async with running(store, tmp_path) as rig:
        asked = asyncio.Event()

        class Away(StorageBusy):
            def __init__(self) -> None:
                super().__init__("away")

        def away(session_id: str) -> None:
            store.answers["sessions.head"] = Away()
            real = rig.engine.writer.call

            async def call(method: object, *args: object, **named: object) -> object:
                try:
                    return await real(method, *args, **named)  # type: ignore[arg-type]
                except Away:
                    asked.set()
                    raise

            rig.engine.writer.call = call  # type: ignore[method-assign,assignment]

        stands_still(rig, away)
        session_id = await rig.start(WORK)
        await asked.wait()
        assert rig.shop.ran == []
        del store.answers["sessions.head"]
        assert (await rig.engine.parked(session_id)).status == "complete"
        assert rig.shop.ran == ["a"]


async def test_a_frontend_is_called_once_although_its_process_stood_still(tmp_path: Path) -> None:
    """It had stored that it is about to show a message: after the gap it reads again what is to be shown."""
    store, lease, shown = MemoryStore(), Lease(), Recorder()
    store.generation, store.holds = lease.generation, lease.holds  # type: ignore[method-assign]
    real, attempts = store.outbox.attempt, []

    def outbox_attempt(row_id: int, before: int, now: str) -> bool:
        made = real(row_id, before, now)
        attempts.append(made)
        if len(attempts) == 1:
            lease.gap()
        return made

    store.outbox.attempt = outbox_attempt  # type: ignore[method-assign]
    with closing(store):
        async with Runtime(store, home=tmp_path, frontend=shown) as place:
            assert (await begun(place, SAYS)).status == "complete"
    assert (attempts, shown.keys) == ([True, True], shown.keys[:1])
