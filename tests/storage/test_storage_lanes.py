"""Lanes, for every backend that several processes serve: who takes what, and what is found again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from engine.journal.records import DropLock, InboxItem, Lost, PutLock, PutOutbox, Timer
from engine.language.errors import StoreSuspended
from engine.storage import lanes, postgres_workers
from engine.storage.database import WriteWatch
from engine.storage.lanes import SEND, Lane, LaneTable
from engine.storage.postgres import PostgresStore
from engine.storage.store import Store
from tests.storage.storagekit import NOW, PooledBackend, PostgresBackend, at, done, event, new_session, step
from tests.support.lanes import LanedStore

Two = tuple[Store, Store]


SERVED = ("postgres", "pooled")


@pytest.fixture(params=["memory", *(pytest.param(one, marks=pytest.mark.process) for one in SERVED)])
def two(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Two]:
    """Two processes that serve one database, for a long time already. Only the test gives signs of life."""
    monkeypatch.setattr(postgres_workers, "BEAT_SECONDS", 3600.0)
    if request.param in SERVED:
        backend = PostgresBackend() if request.param == "postgres" else PooledBackend()
        stores: Two = backend.open(), backend.open()
    else:
        one = LanedStore()
        stores = one, one.another()
    for store in stores:
        store.register("bot")
        if isinstance(store, PostgresStore):
            store._owners.signs._since -= 60
    move(stores[0], "since", -60)
    move(stores[0], "beat", 3600)
    yield stores
    for store in stores:
        store.close()
    if request.param in SERVED:
        backend.close()


def move(store: Store, column: str, seconds: int, owner: str | None = None) -> None:
    """Change a time of workers: all, or one."""
    where, values = (" WHERE id = ?", [owner]) if owner else ("", [])
    with store._db.write():
        store._db.run(f"UPDATE workers SET {column} = moment({seconds * 1000}){where}", values)  # noqa: S608


def dies(store: Store, owner: str) -> None:
    """Nothing was heard of a process for a while."""
    move(store, "beat", -5, owner)


def says(store: Store, *keys: str, thread: str = "T") -> None:
    """Something arrives in a thread."""
    store.inbox.ingest([InboxItem(key, "said", b"{}", thread_key=thread) for key in keys], NOW)


def test_whoever_gave_no_sign_itself_takes_nobody_for_dead(two: Two) -> None:
    """Right after an outage all signs are old, those of the living too: nobody takes a lane before all have given some."""
    one, other = two
    says(one, "a")
    [lane] = one.lanes.take(5)
    assert one.lanes.claim(SEND) is not None
    for store in two:
        dies(store, store.lanes.owner)
    assert (other.lanes.take(5), other.lanes.claim(SEND)) == ([], None)
    move(other, "beat", 3600, other.lanes.owner)
    assert [taken.key for taken in other.lanes.take(5)] == [lane.key]
    assert other.lanes.claim(SEND) is not None


def test_what_arrives_is_taken_by_one(two: Two) -> None:
    """The other one finds nothing to do."""
    one, other = two
    says(one, "a")
    [lane] = one.lanes.take(8)
    assert lane == Lane("T", 1)
    assert (other.lanes.take(8), one.lanes.take(8)) == ([], [])
    assert one.lanes.mine(lane)
    assert not other.lanes.mine(lane)


def test_what_arrives_meanwhile_wakes_whoever_has_the_lane(two: Two) -> None:
    """And nobody else; its epoch stays."""
    one, other = two
    says(one, "a")
    [lane] = one.lanes.take(8)
    says(other, "b")
    assert other.lanes.take(8) == []
    assert one.lanes.take(8) == [lane]


def test_nothing_is_lost_between_the_last_look_and_the_letting_go(two: Two) -> None:
    """What came in between makes the lane due at once, whatever was said of the next time."""
    one, other = two
    says(one, "a")
    [lane] = one.lanes.take(8)
    says(other, "b")
    one.lanes.let_go(lane, 3600.0)
    assert other.lanes.take(8) == [Lane("T", 2)]
    assert not one.lanes.mine(lane)


def test_a_lane_without_anything_to_do_rests(two: Two) -> None:
    """Until its time, or until something arrives."""
    one, other = two
    says(one, "a")
    [lane] = one.lanes.take(8)
    one.lanes.let_go(lane)
    assert other.lanes.take(8) == []
    says(one, "b")
    [lane] = other.lanes.take(8)
    other.lanes.let_go(lane, 0.0)
    assert one.lanes.take(8) == [Lane("T", 3)]


def test_whoever_lost_a_lane_lets_nothing_go(two: Two) -> None:
    """It is another process's by now."""
    one, other = two
    says(one, "a")
    [lane] = one.lanes.take(8)
    dies(other, one.lanes.owner)
    [theirs] = other.lanes.take(8)
    one.lanes.let_go(lane, 0.0)
    assert other.lanes.mine(theirs)


def test_the_lanes_of_the_dead_are_taken(two: Two) -> None:
    """Although nothing arrived; those of the living are not."""
    one, other = two
    says(one, "a")
    one.lanes.take(8)
    assert other.lanes.take(8) == []
    dies(other, one.lanes.owner)
    assert other.lanes.take(8) == [Lane("T", 2)]


def test_nobody_looks_for_the_dead_at_each_wake_up(two: Two) -> None:
    """Soon after a look for them, only for what arrived; it takes less time."""
    one, other = two
    says(one, "a")
    one.lanes.take(8)
    dies(other, one.lanes.owner)
    assert other.lanes.take(8, soon=True) == []
    says(other, "b", thread="U")
    assert Lane("U", 1) in other.lanes.take(8, soon=True)


def test_a_look_soon_after_another_forgets_who_let_go_and_learns_of_nobody(two: Two) -> None:
    """Whether the owner of `send` is dead only a look for the dead tells."""
    one, other = two
    lane = one.lanes.claim(SEND)
    assert lane is not None
    other.lanes.take(8, soon=True)
    assert other.lanes.others == set()
    other.lanes.take(8)
    assert other.lanes.others == {SEND}
    one.lanes.let_go(lane)
    other.lanes.take(8, soon=True)
    assert other.lanes.others == set()


def test_a_suspended_store_takes_no_lane(two: Two) -> None:
    """Nor does it let one go: nothing is written."""
    one, other = two
    says(other, "a")
    one._db.watch = Refusing()
    for work in (lambda: one.lanes.take(8), lambda: one.lanes.let_go(Lane("T", 1))):
        with pytest.raises(StoreSuspended):
            work()
    one._db.watch = WriteWatch()
    assert one.lanes.take(8) == [Lane("T", 1)]


class Refusing(WriteWatch):
    """The watch of a store that is suspended."""

    def begin(self, *, suspended: bool) -> None:
        """Refuse what is not allowed then."""
        if not suspended:
            raise StoreSuspended("it is older than it was")


def test_whoever_was_away_itself_takes_nothing_from_others(two: Two) -> None:
    """After an outage all signs of life are old: whoever comes back first waits for the others."""
    one, other = two
    says(one, "a")
    one.lanes.take(8)
    dies(other, one.lanes.owner)
    move(other, "since", -1, other.lanes.owner)
    assert other.lanes.take(8) == []
    says(other, "b", thread="U")
    assert other.lanes.take(8) == [Lane("U", 1)]


def test_a_process_that_ends_lets_all_go(two: Two) -> None:
    """At once."""
    one, other = two
    says(one, "a")
    one.lanes.take(8)
    one.close()
    assert other.lanes.take(8) == [Lane("T", 2)]


def test_lanes_that_are_left_to_others_are_not_taken(two: Two) -> None:
    """Nor any but the one that is named."""
    one, other = two
    says(one, "a")
    says(one, "b", thread="U")
    assert one.lanes.take(8, ["T"], "T") == []
    assert one.lanes.take(8, (), "T") == [Lane("T", 1)]
    assert other.lanes.take(1, ["T"]) == [Lane("U", 1)]


def test_a_lane_is_claimed_whether_something_arrived_or_not(two: Two) -> None:
    """By one process, until that lets it go or is dead."""
    one, other = two
    lane = one.lanes.claim(SEND)
    assert lane is not None
    assert other.lanes.claim(SEND) is None
    assert other.lanes.take(8) == []
    one.lanes.let_go(lane)
    theirs = other.lanes.claim(SEND)
    assert theirs == Lane(SEND, lane.epoch + 1)
    dies(one, other.lanes.owner)
    assert one.lanes.take(8) == [], "whoever sends is not found among the lanes of threads"
    assert one.lanes.claim(SEND) == Lane(SEND, lane.epoch + 2)


def test_the_sender_of_a_process_that_ended_is_claimed_and_not_taken(two: Two) -> None:
    """A process that ends wakes what it had. Who takes a lane of threads also lets it go, so two would post at once."""
    one, other = two
    one.lanes.claim(SEND)
    one.close()
    assert other.lanes.take(8) == []
    theirs = other.lanes.claim(SEND)
    assert theirs is not None
    assert other.lanes.take(8) == []
    assert other.lanes.mine(theirs)


def test_a_timer_wakes_the_lane_of_its_session(two: Two) -> None:
    """When it is due."""
    one, _ = two
    timers = Timer("late", "session-1", at(60)), Timer("due", "session-2", at(0))
    commits = [
        new_session(t.session_id, one.lanes.owner, event("a"), rows=(t,), thread_key=f"T{n}")
        for n, t in enumerate(timers)
    ]
    done(one, *commits)
    assert one.lanes.take(8) == [Lane("T1", 1)]
    assert [timer.timer_id for timer in one.agenda("T0")[2]] == ["late"]


def test_a_lock_that_is_given_back_wakes_the_next(two: Two) -> None:
    """Its session is in the agenda of its lane then."""
    one, other = two
    for name in ("session-1", "session-2"):
        done(one, new_session(name, one.lanes.owner, event("a"), rows=(PutLock("prod", name),)))
    assert other.agenda("session-2") == ([], [], [])
    done(one, step("session-1", 1, 1, event("b"), rows=(DropLock("prod", "session-1"),)))
    assert other.lanes.take(8) == [Lane("session-2", 1)]
    assert other.agenda("session-2") == ([], ["session-2"], [])


def test_sessions_of_the_dead_are_in_the_agenda(two: Two) -> None:
    """Those of the living are not."""
    one, other = two
    done(one, new_session("session-1", one.lanes.owner, event("a")))
    assert other.agenda("session-1") == ([], [], [])
    dies(other, one.lanes.owner)
    assert other.agenda("session-1") == (["session-1"], [], [])


def test_no_session_is_taken_from_a_process_that_came_back(two: Two) -> None:
    """It was dead when another one read its session, and gave a sign of life before that one stored a step: it may have gone
    on, so the step is refused."""
    one, other = two
    done(one, new_session("session-1", one.lanes.owner, event("a")))
    dies(other, one.lanes.owner)
    other.claimable("session-1", other.lanes.owner, None)
    move(other, "beat", 0, one.lanes.owner)
    [result] = other.commit([step("session-1", 2, 1, event("b"), owner=other.lanes.owner)])
    assert isinstance(result, Lost)
    dies(other, one.lanes.owner)
    done(other, step("session-1", 2, 1, event("b"), owner=other.lanes.owner))


def test_what_nobody_was_woken_for_is_found(two: Two) -> None:
    """Rows that came with a copy, or what a command left."""
    one, _ = two
    says(one, "a")
    done(one, new_session("session-1", None, event("a"), rows=(Timer("t", "session-1", at(60)),)))
    with one._db.write():
        one._db.run("DELETE FROM lanes")
    one.lanes.wake_forgotten(at(30), 15.0)
    assert sorted(one.lanes.take(8)) == [Lane("T", 1), Lane("session-1", 1)]


def test_a_lane_whose_owner_never_learned_that_it_took_it_is_looked_at_again(two: Two) -> None:
    """The answer to the taking was lost: the lane has an owner that lives, and no time at which anybody looks."""
    one, other = two
    says(one, "a")
    assert one.lanes.take(8)
    assert (one.lanes.take(8), other.lanes.take(8)) == ([], [])
    other.lanes.wake_forgotten(NOW, 15.0)
    assert (other.lanes.take(8), one.lanes.take(8)) == ([], [Lane("T", 1)])


def test_rows_of_lanes_that_are_over_are_dropped(two: Two) -> None:
    """What is due or owned stays."""
    one, _ = two
    says(one, "a")
    [lane] = one.lanes.take(8)
    one.lanes.let_go(lane)
    one.consume([], NOW, [PutOutbox("o", "lane", "note", b"{}")])
    with one._db.write():
        one._db.run("DELETE FROM inbox")
    one.lanes.wake_forgotten(NOW, 15.0)
    with one._db.read():
        assert one._db.all("SELECT key FROM lanes") == []


# --- faults ----------------------------------------------------------------------------------------------------

FAULTS: dict[str, tuple[object, str, object, Callable[[Two], None]]] = {
    "a lane is let go whoever has it": (
        lanes,
        "_LET_GO",
        lanes._LET_GO.replace(" AND owner = ?2 AND epoch = ?3", " AND ?2 != '' AND ?3 >= 0"),
        test_whoever_lost_a_lane_lets_nothing_go,
    ),
    "whoever comes back first takes all": (
        lanes,
        "_TAKE",
        lanes._TAKE.replace("me.since <", "me.since >="),
        test_whoever_was_away_itself_takes_nothing_from_others,
    ),
    "who posts is found among the lanes of threads": (
        lanes,
        "_TAKE",
        lanes._TAKE.replace(lanes._OF_SESSIONS, "key != ''"),
        test_the_sender_of_a_process_that_ended_is_claimed_and_not_taken,
    ),
    "what arrives in a lane with an owner is not noted": (
        LaneTable,
        "arrive",
        lambda self, key: (
            None
            if self._db.one("SELECT 1 FROM lanes WHERE key = ? AND owner IS NOT NULL", (key,))
            else self._wake(lanes._ARRIVE, key, 0.0)
        ),
        test_nothing_is_lost_between_the_last_look_and_the_letting_go,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_lanes_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them loses or doubles work."""
    owner, attribute, fault, check = FAULTS[name]
    if name.startswith("whoever comes"):
        monkeypatch.setattr(lanes, "_LOOK", lanes._LOOK.replace("me.since <", "me.since >="))
    if name.startswith("who posts"):
        monkeypatch.setattr(
            LaneTable, "take", lambda self, limit: self._taken((self.owner, -4000, "[]", limit, ""))
        )
    monkeypatch.setattr(owner, attribute, fault)
    one = LanedStore()
    stores = one, one.another()
    for store in stores:
        store.register("bot")
    move(one, "since", -60)
    with pytest.raises(AssertionError):
        check(stores)
