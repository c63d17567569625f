"""The contract of locks, for every backend: a queue in which the first one holds, and nobody else ever takes."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from engine.journal.records import DropLock, LockRow, PutLock, TakeLock, Timer
from engine.language.errors import Corrupt, LockHeld
from engine.storage.sqlite import open_sqlite
from engine.storage.store import Store
from tests.storage.storagekit import KEY, NOW, at, done, event, new_session, reaped, step, tried

ONE, TWO, THREE = "session-1", "session-2", "session-3"


def put(name: str, session_id: str) -> PutLock:
    return PutLock(name, session_id)


def holders(store: Store, name: str | None = None) -> list[tuple[str, str, bool]]:
    """The queues in short."""
    return [(row.name, row.session_id, row.taken_at is not None) for row in store.locks.rows(name)]


def begin(store: Store, session_id: str, *rows: PutLock | TakeLock | DropLock) -> None:
    """A session whose first commit has these rows."""
    done(store, new_session(session_id, store.register("bot"), event("a"), rows=rows))


def test_places_are_in_the_order_in_which_they_were_asked_for(store: Store) -> None:
    """Each name has its own queue; a second request of a session changes nothing."""
    store.consume([], NOW, [put("x", ONE), put("y", THREE), put("x", TWO), put("x", ONE)])
    assert holders(store) == [("x", ONE, False), ("x", TWO, False), ("y", THREE, False)]
    assert store.locks.rows("x")[0] == LockRow("x", ONE, NOW, None)
    assert store.locks.rows("nobody") == []


def test_the_first_takes_the_lock_and_nobody_else(store: Store) -> None:
    """Whoever is behind is refused, by name, and so is whoever has no place; taking twice changes nothing."""
    store.consume([], NOW, [put("x", ONE), put("x", TWO), TakeLock("x", ONE)])
    store.consume([], at(9), [TakeLock("x", ONE)])
    assert store.locks.rows("x")[0].taken_at == NOW
    with pytest.raises(LockHeld, match=f"held by session {ONE}"):
        store.consume([], NOW, [TakeLock("x", TWO)])
    with pytest.raises(LockHeld, match="no place"):
        store.consume([], NOW, [TakeLock("x", THREE)])
    assert holders(store, "x") == [("x", ONE, True), ("x", TWO, False)]


def test_a_commit_that_cannot_take_its_lock_stores_nothing(store: Store) -> None:
    """Its events, and the place that it asked for in the same commit, are undone; its neighbours' are kept."""
    begin(store, ONE, put("x", ONE), TakeLock("x", ONE))
    owner = store.register("bot")
    outcomes = tried(
        store,
        [
            new_session(TWO, owner, event("a"), rows=(put("x", TWO), TakeLock("x", TWO))),
            new_session(THREE, owner, event("a"), rows=(put("y", THREE), TakeLock("y", THREE))),
        ],
    )
    assert [type(outcome) for outcome in outcomes] == [LockHeld, type(None)]
    assert store.sessions.head(TWO) is None
    assert holders(store) == [("x", ONE, True), ("y", THREE, True)]


def test_two_commits_of_one_batch_take_a_lock_once(store: Store) -> None:
    """The second one sees what the first one did in the same transaction."""
    owner = store.register("bot")
    rows = {who: (put("x", who), TakeLock("x", who)) for who in (ONE, TWO)}
    outcomes = tried(store, [new_session(who, owner, event("a"), rows=rows[who]) for who in (ONE, TWO)])
    assert [type(outcome) for outcome in outcomes] == [type(None), LockHeld]


def test_the_next_one_follows_when_a_lock_is_given_back(store: Store) -> None:
    """Grants name the first of each queue that has not taken its lock; dropping what is not there is no error."""
    store.consume([], NOW, [put("x", ONE), put("x", TWO), put("y", TWO), put("x", THREE)])
    assert store.locks.grants() == [ONE, TWO]
    store.consume([], NOW, [TakeLock("x", ONE)])
    assert store.locks.grants() == [TWO]
    store.consume([], NOW, [DropLock("x", ONE), DropLock("x", ONE), TakeLock("x", TWO), TakeLock("y", TWO)])
    assert (store.locks.grants(), holders(store, "x")) == ([], [("x", TWO, True), ("x", THREE, False)])
    store.consume([], NOW, [DropLock("x", TWO)])
    assert (store.locks.grants(), store.locks.grants(limit=0)) == ([THREE], [])


def test_whoever_leaves_the_queue_comes_back_last(store: Store) -> None:
    """A place is never used again."""
    store.consume([], NOW, [put("x", ONE), put("x", TWO), DropLock("x", TWO), put("x", THREE), put("x", TWO)])
    assert [row.session_id for row in store.locks.rows("x")] == [ONE, THREE, TWO]


def test_a_session_that_is_set_aside_keeps_its_lock_and_loses_its_place(store: Store) -> None:
    """What it did under the lock is not known, so a person decides; where it only waited, the queue continues."""
    begin(store, ONE, put("x", ONE), TakeLock("x", ONE), put("y", ONE))
    begin(store, TWO, put("x", TWO), put("y", TWO))
    store.quarantine(ONE, "damaged", NOW)
    assert holders(store) == [("x", ONE, True), ("x", TWO, False), ("y", TWO, False)]
    store.quarantine(TWO, "damaged", NOW)
    assert holders(store) == [("x", ONE, True)]


def test_what_was_left_of_sessions_that_are_over_is_named(store: Store) -> None:
    """By their places and their timers; those of open ones are their own."""
    begin(store, ONE, put("x", ONE))
    begin(store, TWO, put("x", TWO))
    begin(store, THREE)
    for session_id in (TWO, THREE):
        done(store, step(session_id, 1, 1, event("b"), status="complete", phase="ended", release=True))
    assert store.locks.left_behind() == [TWO]
    store.consume([], NOW, [Timer("wait", THREE, at(9))])
    assert sorted(store.locks.left_behind()) == [TWO, THREE]


def test_reaping_a_session_leaves_no_place_behind(store: Store) -> None:
    """Whatever was left of it goes with it."""
    begin(store, ONE, put("x", ONE))
    done(store, step(ONE, 1, 1, event("b"), status="complete", phase="ended", release=True))
    assert reaped(store, at(60), at(0)) == 1
    assert store.locks.rows() == []


def change(store: Store, session_id: str) -> None:
    """Change the place of a session from outside."""
    assert isinstance(store, Store)
    with store._db.write():
        store._db.run("UPDATE locks SET requested_at = ? WHERE session_id = ?", (at(59), session_id))


def test_a_place_that_was_changed_gets_no_lock_and_gives_none_away(store: Store) -> None:
    """It is shown as it is, nobody passes it, and only a person removes it."""
    store.consume([], NOW, [put("x", ONE), put("x", TWO)])
    change(store, ONE)
    assert [row.verified for row in store.locks.rows("x")] == [False, True]
    assert store.locks.grants() == []
    with pytest.raises(Corrupt):
        store.consume([], NOW, [TakeLock("x", ONE)])
    with pytest.raises(LockHeld):
        store.consume([], NOW, [TakeLock("x", TWO)])
    store.consume([], NOW, [DropLock("x", ONE)])
    assert store.locks.grants() == [TWO]


def test_the_database_itself_refuses_a_second_holder(tmp_path: Path) -> None:
    """Whatever a program does wrong, two rows of a name cannot both be taken."""
    store = open_sqlite(tmp_path / "sayso.db", key=KEY)
    store.consume([], NOW, [put("x", ONE), put("x", TWO), TakeLock("x", ONE)])
    with pytest.raises(apsw.ConstraintError):
        store._db.run("UPDATE locks SET taken_at = ? WHERE session_id = ?", (NOW, TWO))
    store.close()
