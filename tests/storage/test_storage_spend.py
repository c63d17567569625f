"""The contract of spending, for every backend: what is set aside for model calls never passes the cap of a day."""

from __future__ import annotations

import threading
from decimal import Decimal

import pytest

from engine.journal.records import NANO, PutSpend, SettleSpend, SpendRow
from engine.language.errors import DayBudgetSpent
from engine.storage.store import Store
from tests.storage.storagekit import NOW, SqliteBackend, at, done, event, new_session, reaped, step, tried

TODAY, TOMORROW = "2026-11-21", "2026-11-22"
ONE, TWO = "session-1", "session-2"


def call(session_id: str, number: int, amount: int, *, cap: int | None = None, day: str = TODAY) -> PutSpend:
    """What a model call sets aside."""
    return PutSpend(session_id, f"diagnose/turn[{number}]", 1, "incident", day, amount, cap)


def end(session_id: str, number: int, amount: int, *, sure: bool = True) -> SettleSpend:
    """What it came to."""
    return SettleSpend(session_id, f"diagnose/turn[{number}]", 1, amount, sure)


def test_what_is_set_aside_counts_until_it_is_settled(store: Store) -> None:
    """A call counts with its reservation while it runs and with its cost afterwards, on its own day."""
    store.consume([], NOW, [call(ONE, 1, 500), call(TWO, 1, 300), call(ONE, 2, 70, day=TOMORROW)])
    assert (store.spend.on(TODAY), store.spend.on(TOMORROW), store.spend.on("2026-11-20")) == (800, 70, 0)
    store.consume([], NOW, [end(ONE, 1, 120)])
    assert store.spend.on(TODAY) == 420
    first = store.spend.rows(TODAY)[0]
    assert first == SpendRow(ONE, "diagnose/turn[1]", 1, "incident", TODAY, 500, 120)
    assert [row.amount for row in store.spend.rows(TODAY)] == [120, 300, 70]
    assert [row.day for row in store.spend.rows(TOMORROW)] == [TOMORROW]


def test_a_call_that_was_cut_counts_with_the_larger_of_the_two(store: Store) -> None:
    """What is known of an interrupted call is the least that it cost, so its reservation stays, or more counts."""
    store.consume([], NOW, [call(ONE, 1, 500), call(ONE, 2, 500)])
    store.consume([], NOW, [end(ONE, 1, 20, sure=False), end(ONE, 2, 700, sure=False)])
    assert [row.amount for row in store.spend.rows(TODAY)] == [500, 700]


def test_setting_aside_twice_counts_once(store: Store) -> None:
    """A second reservation of the same attempt changes nothing, and is not refused for being a second one."""
    store.consume([], NOW, [call(ONE, 1, 500, cap=600)])
    store.consume([], NOW, [call(ONE, 1, 500, cap=600), end(ONE, 9, 5)])
    assert store.spend.on(TODAY) == 500
    again = PutSpend(ONE, "diagnose/turn[1]", 2, "incident", TODAY, 100)
    store.consume([], NOW, [again])
    assert store.spend.on(TODAY) == 600


def test_a_call_that_could_pass_the_cap_is_refused(store: Store) -> None:
    """The refusal says what is left in dollars; a call that fits exactly is taken, and another day has its own cap."""
    cap = 5 * NANO
    store.consume([], NOW, [call(ONE, 1, 4 * NANO, cap=cap)])
    with pytest.raises(DayBudgetSpent, match=r"\$1 are left .* 2026-11-21 .* may cost \$1.5") as refused:
        store.consume([], NOW, [call(ONE, 2, NANO * 3 // 2, cap=cap)])
    assert refused.value.left == Decimal(1)
    store.consume([], NOW, [call(ONE, 2, NANO, cap=cap), call(ONE, 3, 5 * NANO, cap=cap, day=TOMORROW)])
    store.consume([], NOW, [call(ONE, 4, NANO)])
    with pytest.raises(DayBudgetSpent) as refused:
        store.consume([], NOW, [call(ONE, 5, 0, cap=cap)])
    assert refused.value.left == 0


def test_a_commit_over_the_cap_stores_nothing_and_its_neighbours_stay(store: Store) -> None:
    """Of two sessions in one transaction the second sees what the first set aside, and is undone alone."""
    owner = store.register("bot")
    outcomes = tried(
        store,
        [
            new_session(who, owner, event("a"), rows=(call(who, 1, 600, cap=1000),), now=NOW)
            for who in (ONE, TWO)
        ],
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), DayBudgetSpent]
    assert store.sessions.head(TWO) is None
    assert store.spend.on(TODAY) == 600


def test_two_connections_that_race_do_not_pass_the_cap(backend: SqliteBackend) -> None:
    """Two connections set aside as much as they get: together they fill the cap exactly and never more."""
    begin, taken = threading.Barrier(2), {ONE: 0, TWO: 0}

    def take(session_id: str) -> None:
        store = backend.open()
        begin.wait()
        for number in range(40):
            try:
                store.consume([], NOW, [call(session_id, number, 10, cap=300)])
            except DayBudgetSpent:
                break
            taken[session_id] += 1
        store.close()

    threads = [threading.Thread(target=take, args=(who,)) for who in (ONE, TWO)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = backend.open()
    assert sum(taken.values()) == 30
    assert store.spend.on(TODAY) == 300
    store.close()


def test_a_deleted_session_makes_no_room(store: Store) -> None:
    """What a session cost stays when the session is deleted, until its day is older than what is kept."""
    done(store, new_session(ONE, store.register("bot"), event("a"), rows=(call(ONE, 1, 500),)))
    done(store, step(ONE, 1, 1, event("b"), status="complete", phase="ended", release=True))
    assert reaped(store, at(60), at(0)) == 1
    assert store.spend.on(TODAY) == 500
    reaped(store, "2026-11-22T00:00:00.000Z", at(0))
    assert store.spend.rows("2026-01-01") == []


def test_a_row_that_was_changed_is_not_shown_and_not_settled(backend: SqliteBackend, store: Store) -> None:
    """Spending that does not verify is left out of lists, and a settlement does not make it good."""
    store.consume([], NOW, [call(ONE, 1, 500), call(TWO, 1, 300)])
    backend.change("spend", 0, "path", b"diagnose/turn[7]")
    store.consume([], NOW, [SettleSpend(ONE, "diagnose/turn[7]", 1, 1)])
    assert [row.session_id for row in store.spend.rows(TODAY)] == [TWO]
    assert store.spend.on(TODAY) == 800
