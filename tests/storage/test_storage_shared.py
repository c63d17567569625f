"""Who serves a database on a server, and how others are woken."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest

from engine.journal.records import InboxItem, PutOutbox
from engine.language.errors import StorageError
from engine.storage import lanes, postgres_workers
from engine.storage.lanes import CHORES
from engine.storage.leases import Served, holder_of
from engine.storage.postgres import PostgresStore, open_postgres
from engine.storage.postgres_words import lock_number
from engine.storage.postgres_workers import BURST_SECONDS
from tests.storage.storagekit import KEY, NOW
from tests.storage.test_storage_postgres import soon

pytestmark = pytest.mark.process


@pytest.fixture
def two(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[PostgresStore, PostgresStore]]:
    """Two processes on one database, as far as the server can tell."""
    monkeypatch.setattr(postgres_workers, "BEAT_SECONDS", 0.02)
    # Nobody here is silent on purpose: however busy the machine is, nobody counts as dead.
    monkeypatch.setattr(lanes, "LIMIT_SECONDS", 600.0)
    stores = open_postgres(url, KEY), open_postgres(url, KEY)
    for store in stores:
        store.register("bot")
    yield stores
    for store in stores:
        store.close()


Two = tuple[PostgresStore, PostgresStore]


def test_others_hear_that_something_was_committed(two: Two) -> None:
    """What arrived, what is to be sent, lanes that were let go. What is heard says nothing: others may say it too."""
    one, other = two
    heard = threading.Event()
    other.listen(heard.set)
    time.sleep(0.3)
    lane = one.lanes.claim(CHORES)
    assert lane is not None
    for work in (
        lambda: one.inbox.ingest([InboxItem("k", "said", b"{}")], NOW),
        lambda: one.consume([], NOW, [PutOutbox("o", "lane", "note", b"{}")]),
        lambda: one.lanes.let_go(lane),
    ):
        heard.clear()
        work()
        assert heard.wait(5)


def test_a_storm_of_notifications_is_few_looks(two: Two) -> None:
    """Whoever may connect can send them, with any words."""
    one, _ = two
    looks: list[float] = []
    one.listen(lambda: looks.append(time.monotonic()))
    time.sleep(0.3)
    with psycopg.connect(one._db.url, autocommit=True) as raw:
        begun = time.monotonic()
        for number in range(500):
            raw.execute(f"SELECT pg_notify('sayso ' || hashtext(current_schema()), 'lost {number}')")
        took = time.monotonic() - begun
    assert 1 <= len(looks) <= 2 + took / BURST_SECONDS
    assert len(looks) < 500
    assert one._db.broken is None


def test_names_of_connections_say_nothing(two: Two) -> None:
    """Another program on the same server may give itself any."""
    one, _ = two
    with psycopg.connect(f"{one._db.url}&application_name=sayso/0%20bot-1-0123456789abcdef%20all"):
        assert len(one.members()) == 2
        assert one.peers() == {}


def test_advisory_locks_of_others_hold_up_nothing(two: Two) -> None:
    """Any role that may connect can take those numbers, and keep them."""
    one, other = two
    names = ["roles", "inbox", "schema", "evidence", "lost places"]
    with psycopg.connect(one._db.url, autocommit=True) as raw:
        for name in names:
            raw.execute("SELECT pg_advisory_lock(%s)", (lock_number(name, one._db.schema),))
        one.serve_beside("worker")
        other.inbox.ingest([InboxItem("k", "said", b"{}")], NOW)
        open_postgres(one._db.url, KEY).close()
    assert {member.role for member in other.members()} == {"worker", ""}


def test_one_at_a_time_holds_a_name_that_is_forgotten_meanwhile(url: str, two: Two) -> None:
    """Housekeeping drops the names that nobody holds; who waits for one takes it anew."""
    inside: list[PostgresStore] = []
    overlaps: list[int] = []
    ended = threading.Event()

    def work(store: PostgresStore) -> None:
        for _ in range(40):
            with store._db.write():
                store._db.hold("a name")
                inside.append(store)
                store._db.raw.execute("SELECT 1")
                overlaps.append(len(inside))
                inside.remove(store)

    def forget() -> None:
        with closing(open_postgres(url, KEY)) as third:
            while not ended.is_set():
                with third._db.write():
                    third._db.give_back()

    forgetting, *working = (
        threading.Thread(target=forget),
        *(threading.Thread(target=work, args=(each,)) for each in two),
    )
    for thread in (forgetting, *working):
        thread.start()
    for thread in working:
        thread.join()
    ended.set()
    forgetting.join()
    assert overlaps == [1] * 80
    assert two[0]._db.raw.execute("SELECT n FROM holds").fetchall() in (
        [],
        [(lock_number("a name", two[0]._db.schema),)],
    )


def test_who_serves_is_known(two: Two) -> None:
    """In which role, with which lanes; one that goes is noticed with the next sign of life."""
    one, other = two
    heard = threading.Event()
    one.listen(heard.set)
    one.serve_beside("worker")
    other.serve_beside("socket")
    soon(lambda: one.peers() == {other.lanes.owner: "socket"})
    other.lanes.claim(CHORES)
    assert {member.role: member.lanes for member in one.members()} == {"worker": (), "socket": (CHORES,)}
    heard.clear()
    other.leave()
    soon(lambda: one.peers() == {})
    assert heard.wait(5)


def test_a_sign_of_life_under_way_takes_no_role_back(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was made before the role was taken, and reaches the server afterwards."""
    one, other = two
    monkeypatch.setattr(postgres_workers, "BEAT_SECONDS", 3600.0)
    serving = threading.Thread(target=one.serve_beside, args=("worker",))
    given = one._owners._given

    def late(values: tuple[object, ...]) -> tuple[object, ...]:
        if serving.ident is None:
            serving.start()
            serving.join(0.2)
        return given(values)

    monkeypatch.setattr(one._owners, "_given", late)
    one._owners.beat()
    serving.join()
    assert {member.owner: member.role for member in other.members()}[one.lanes.owner] == "worker"


def test_a_program_that_serves_alone_keeps_others_out(two: Two) -> None:
    """And the other way round: who shows the sessions of a database to people is told which others do."""
    one, other = two
    alone = one.try_serving(holder_of("python app.py", NOW))
    assert alone is not None
    assert other.try_serving(holder_of("sayso start", NOW)) is None
    with pytest.raises(Served, match="`python app"):
        other.serve_beside("all")
    alone.close()
    second = other.try_serving(holder_of("sayso start", NOW))
    assert second is not None
    second.close()
    other.serve_beside("all")
    assert one.try_serving(holder_of("python app.py", NOW)) is None
    assert f"`sayso start`, process {os.getpid()}" in str(one.served())


def test_a_connection_that_is_ended_ends_nobody(two: Two) -> None:
    """All of them, again and again: the process continues with what it has."""
    one, other = two
    lane = one.lanes.claim(CHORES)
    assert lane is not None
    for number in range(5):
        with psycopg.connect(one._db.url, autocommit=True) as raw:
            raw.execute(
                "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid != pg_backend_pid()"
            )
        one.inbox.ingest([InboxItem(f"k{number}", "said", b"{}")], NOW)
    assert one.lanes.mine(lane)
    assert other.lanes.claim(CHORES) is None
    soon(lambda: one.holds(one.generation()))


def test_a_worker_whose_row_was_dropped_comes_back(two: Two) -> None:
    """What it began before is asked about."""
    one, _ = two
    generation = one.generation()
    with psycopg.connect(one._db.url, autocommit=True) as raw:
        raw.execute("DELETE FROM workers")
    soon(lambda: one.generation() != generation)
    assert one.alive(one.lanes.owner)
    assert one.lanes.owner in one._owners.living()


def test_a_worker_that_never_reaches_the_server_says_so(url: str) -> None:
    """At the first sign of life."""
    store = open_postgres(url, KEY)
    store._db.url = "postgresql:///none?host=/nowhere"
    with pytest.raises(StorageError, match="cannot be opened"):
        store.register("bot")
    store._owners._owner = ""
    store.close()


# --- the event loop ----------------------------------------------------------------------------------------------


def test_a_busy_process_lives_and_a_hung_one_is_dead(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Signs of life come from a thread while the loop freezes, for a while. When it moves again, another generation begins."""
    for name, seconds in (("BEAT_SECONDS", 0.05), ("STILL_SECONDS", 0.2), ("HUNG_SECONDS", 3.0)):
        monkeypatch.setattr(postgres_workers, name, seconds)
    monkeypatch.setattr(lanes, "LIMIT_SECONDS", 2.0)
    moves = threading.Event()
    moves.set()
    asked: list[Callable[[], None]] = []

    def call_soon(answer: Callable[[], None]) -> None:
        if moves.is_set():
            answer()
        else:
            asked.append(answer)

    with closing(open_postgres(url, KEY)) as one, closing(open_postgres(url, KEY)) as other:
        owner = one.register("bot")
        one.watch(call_soon)
        generation = one.generation()
        moves.clear()
        soon(lambda: any("is blocked" in record.message for record in caplog.records))
        assert other.alive(owner)
        assert one.holds(generation)
        soon(lambda: not other.alive(owner), 20)
        assert not one.holds(generation)
        moves.set()
        asked.pop()()
        soon(lambda: other.alive(owner), 20)
        soon(lambda: one.generation() == generation + 1)  # it learns of its new sign after the others do
    told = [record.message.partition(":")[0].partition(",")[0] for record in caplog.records]
    assert told == ["the event loop is blocked", "the event loop runs again"]


async def test_a_loop_that_is_held_up_is_seen(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A real one: it is asked to move by whoever gives the signs, and says that it does."""
    monkeypatch.setattr(postgres_workers, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(postgres_workers, "STILL_SECONDS", 0.5)
    with closing(open_postgres(url, KEY)) as one:
        one.register("bot")
        one.watch(asyncio.get_running_loop().call_soon_threadsafe)
        await asyncio.sleep(1.0)
        assert caplog.records == []
        time.sleep(1.5)  # noqa: ASYNC251 - the loop is held up
        await asyncio.sleep(0.5)
    assert [record.message.partition(":")[0].partition(",")[0] for record in caplog.records] == [
        "the event loop is blocked",
        "the event loop runs again",
    ]
