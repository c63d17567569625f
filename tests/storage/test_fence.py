"""The fence before effects, for every backend: a clock that continues while the machine sleeps, gaps counted as generations, and
the number of attempts that a sender has read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.journal.records import OutboxRow, PutOutbox
from engine.language.errors import FenceLost, StorageBroken, StorageBusy
from engine.storage import fence, postgres_workers
from engine.storage.fence import Signs, WorkPermit
from engine.storage.postgres_workers import Workers
from engine.storage.rows import OutboxTable
from engine.storage.store import Store
from tests.storage.storagekit import NOW, PostgresBackend, SqliteBackend
from tests.support.fencing import Lease

HOUR = 3600.0


class Asleep:
    """The clocks of a machine: both continue while it is awake, one alone while it sleeps."""

    def __init__(self) -> None:
        self.awake = self.slept = 0.0

    def read(self, which: int) -> float:
        """`time.clock_gettime`."""
        return 1000.0 + self.awake + (self.slept if which == time.CLOCK_BOOTTIME else 0.0)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Asleep:
    """Clocks that only the test moves; nobody gives a sign of life but the test."""
    machine = Asleep()
    monkeypatch.setattr(time, "clock_gettime", machine.read)
    monkeypatch.setattr(postgres_workers, "BEAT_SECONDS", HOUR)
    return machine


def signs_of(store: Store) -> list[Workers]:
    """What gives signs of life for a store; nothing where the kernel keeps its leases."""
    return [store._owners] if isinstance(store._owners, Workers) else []


@pytest.fixture
def postgres_backend() -> Iterator[SqliteBackend]:
    """A database on a server."""
    backend = PostgresBackend()
    yield backend
    backend.close()


# --- the contract --------------------------------------------------------------------------------------------


def check_awake(store: Store, machine: Asleep) -> None:
    """Work that began a moment ago may have effects."""
    store.register("bot")
    generation = store.generation()
    machine.awake += 1.0
    assert store.holds(generation)


def check_silent(store: Store, machine: Asleep) -> None:
    """Without a sign for longer than the lease, whoever others may take for dead has no effects; others have them on."""
    store.register("bot")
    generation = store.generation()
    machine.awake += HOUR
    assert store.holds(generation) is not store.shared


def check_slept(store: Store, machine: Asleep) -> None:
    """A suspended machine: with a lease on a server it has lost its work; with a locked file nobody can have had it."""
    owner = store.register("bot")
    generation = store.generation()
    machine.slept += HOUR
    assert store.holds(generation) is not store.shared
    assert store.alive(owner)


def check_woken(store: Store, machine: Asleep) -> None:
    """The sign of life runs first when the machine wakes: what began before is lost all the same, what begins now is not."""
    store.register("bot")
    generation = store.generation()
    machine.slept += HOUR
    for held in signs_of(store):
        held.beat()
    assert store.holds(generation) is not store.shared
    assert store.holds(store.generation())


def check_slow_sign(store: Store, machine: Asleep) -> None:
    """A sign that arrives later than the lease says nothing about the time in between."""
    store.register("bot")
    generation = store.generation()
    for held in signs_of(store):
        given = held.signs.clock()
        machine.awake += HOUR
        held.signs.confirmed(given)
    assert store.holds(generation) is not store.shared


CONTRACT = [check_awake, check_silent, check_slept, check_woken, check_slow_sign]


@pytest.mark.parametrize("check", CONTRACT)
def test_the_fence_of_a_store(store: Store, machine: Asleep, check: Callable[[Store, Asleep], None]) -> None:
    """Work has effects only if no other process can have taken it over since it began."""
    check(store, machine)


def _bare(signs: Signs, given: float) -> None:
    signs._last = given


FAULTS: dict[str, tuple[object, str, object]] = {
    "no check": (Workers, "holds", lambda self, generation: True),
    "a clock that stops while the machine sleeps": (fence, "_BOOTTIME", time.CLOCK_MONOTONIC),
    "gaps are not counted": (Signs, "confirmed", _bare),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_fence_is_noticed(
    name: str, machine: Asleep, monkeypatch: pytest.MonkeyPatch, postgres_backend: SqliteBackend
) -> None:
    """Each fault lets work continue that others may have taken over."""
    monkeypatch.setattr(*FAULTS[name])  # type: ignore[arg-type]  # an object, a name, a value
    noticed = []
    for check in CONTRACT:
        store = postgres_backend.open()
        try:
            check(store, machine)
        except AssertionError:
            noticed.append(check)
        finally:
            store.close()
    assert noticed


# --- the permit of a piece of work ---------------------------------------------------------------------------


async def asked(lease: Lease, *answers: Any) -> bool:
    """Whether work that began before a gap may continue, where the store answers this, one after the other."""
    told = list(answers)

    async def still() -> bool:
        answer = told.pop(0)
        if callable(answer):
            answer = answer()
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    permit = WorkPermit(lease, lease.generation(), still)
    lease.gap()
    try:
        await permit.ask()
    except FenceLost:
        return False
    assert permit.holds()
    return True


async def test_after_a_gap_the_store_is_asked_and_without_a_yes_nothing_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that was away took nobody's work; where another process has it, or nothing can be asked any more, it ends."""
    monkeypatch.setattr(fence, "_ASK_AGAIN_SECONDS", 0.0)
    assert await asked(Lease(), True)
    assert not await asked(Lease(), False)
    assert not await asked(Lease(), StorageBroken("gone"))
    assert await asked(Lease(), StorageBusy("away"), StorageBusy("away"), True)
    lease = Lease()
    # Another gap while it was asked: what was answered then says nothing any more.
    assert not await asked(lease, lambda: lease.gap() or True, False)


async def test_work_that_nobody_can_ask_about_ends_at_a_gap() -> None:
    """A row that was read before the gap is read again."""
    lease = Lease()
    permit = WorkPermit(lease, lease.generation())
    await permit.ask()
    lease.gap()
    with pytest.raises(FenceLost):
        await permit.ask()


# --- attempts --------------------------------------------------------------------------------------------------


def a_row(store: Store) -> OutboxRow:
    """A row as a sender reads it."""
    store.consume([], NOW, [PutOutbox("note", "lane", "note", b"{}")])
    [row] = store.outbox.due(now=NOW)
    return row


def check_attempts(backend: SqliteBackend) -> None:
    """Of two senders that have read a row one makes the attempt."""
    first, second = backend.open(), backend.open()
    try:
        row = a_row(first)
        assert first.outbox.attempt(row.id, row.attempts, NOW)
        assert not second.outbox.attempt(row.id, row.attempts, NOW)
        again = second.outbox.row("note")
        assert again is not None
        assert again.attempts == 1
        first.outbox.finish(row.id, row.rev, now=NOW, state="sent")
        assert not second.outbox.attempt(row.id, again.attempts, NOW)
    finally:
        first.close()
        second.close()


def test_an_attempt_is_made_on_the_row_as_it_was_read(backend: SqliteBackend) -> None:
    """Another attempt since, or its success, is noticed by whoever comes second."""
    check_attempts(backend)


def test_an_attempt_without_compare_and_set_is_noticed(
    backend: SqliteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both senders would post."""
    real = OutboxTable.attempt

    def blind(self: OutboxTable, row_id: int, attempts: int, now: str) -> bool:
        return real(self, row_id, self._changed(row_id).attempts, now)

    monkeypatch.setattr(OutboxTable, "attempt", blind)
    with pytest.raises(AssertionError):
        check_attempts(backend)
