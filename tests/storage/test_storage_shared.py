"""Named leases, wake-ups and who serves: what a server has for several processes at once."""

from __future__ import annotations

import os
import queue
from collections.abc import Iterator

import pytest

from engine.journal.records import InboxItem, PutOutbox
from engine.language.errors import StorageBroken, StorageError
from engine.storage import postgres_leases
from engine.storage.leases import Served, holder_of
from engine.storage.postgres import PostgresStore, open_postgres
from tests.storage.storagekit import KEY, NOW
from tests.storage.test_storage_postgres import soon
from tests.support import postgres

pytestmark = pytest.mark.process


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[PostgresStore, PostgresStore]]:
    """Two processes on one database, as far as the server can tell."""
    monkeypatch.setattr(postgres_leases, "PING_SECONDS", 0.02)
    url = postgres.shared_database()
    postgres.emptied(url)
    stores = open_postgres(url, KEY), open_postgres(url, KEY)
    for store in stores:
        store.register("bot")
    yield stores
    for store in stores:
        store.close()


Two = tuple[PostgresStore, PostgresStore]


def test_a_named_lease_has_one_holder(two: Two) -> None:
    """It is kept until it is given back, also when it is asked for twice."""
    one, other = two
    assert one.lease("x")
    assert one.lease("x")
    assert not other.lease("x")
    one.unlease("x")
    assert other.lease("x")


def test_a_named_lease_ends_with_its_process(two: Two) -> None:
    """The server drops it together with the connection that carries it."""
    one, other = two
    assert one.lease("x")
    postgres.end_leases(one._db.url, next(iter(one._owners._held)) + "%")
    soon(lambda: other.lease("x"))
    with pytest.raises(StorageBroken):
        soon(lambda: one.inbox.ingest([InboxItem("k", "said", b"{}")], NOW) is None, 5)


def test_nobody_takes_a_lease_right_after_a_restart(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who had it before the server was restarted may be about to take it again."""
    one, other = two
    assert one.lease("x")
    one.unlease("x")
    monkeypatch.setattr(postgres_leases, "GRACE_SECONDS", 60.0)
    other._db.raw.execute("UPDATE serving SET holder = 'before' WHERE n = 2")
    other._owners._clear_of = ""
    assert not other.lease("x")
    monkeypatch.setattr(postgres_leases, "GRACE_SECONDS", 0.0)
    assert other.lease("x")


def test_others_hear_of_what_was_committed(two: Two) -> None:
    """Of what arrived, of what is to be sent, and of leases that were given back; of one's own commits nobody hears."""
    one, other = two
    heard: queue.SimpleQueue[str] = queue.SimpleQueue()
    own: queue.SimpleQueue[str] = queue.SimpleQueue()
    other.listen(lambda word: heard.put(word) if word != "peers" else None)
    one.listen(lambda word: own.put(word) if word != "peers" else None)
    assert heard.get(timeout=5) == own.get(timeout=5) == "all"
    one.inbox.ingest([InboxItem("k", "said", b"{}")], NOW)
    assert heard.get(timeout=5) == "inbox"
    one.consume([], NOW, [PutOutbox("o", "lane", "note", b"{}")])
    assert heard.get(timeout=5) == "outbox"
    assert one.lease("x")
    one.unlease("x", tell=True)
    assert heard.get(timeout=5) == "all"
    other.inbox.ingest([InboxItem("k2", "said", b"{}")], NOW)
    assert own.get(timeout=5) == "inbox"
    assert heard.empty()


def test_who_serves_is_known(two: Two) -> None:
    """In which role, with which leases; one that goes is noticed with the next sign of life."""
    one, other = two
    heard: queue.SimpleQueue[str] = queue.SimpleQueue()
    one.listen(heard.put)
    one.serve_beside("worker")
    other.serve_beside("socket")
    soon(lambda: sorted(one.peers().values()) == ["socket", "worker"])
    other.lease("leader")
    other.lease("lane T")
    found = {member.role: (member.leases, member.others) for member in one.members(["leader"])}
    assert found == {"worker": ((), 0), "socket": (("leader",), 1)}
    other.close()
    soon(lambda: list(one.peers().values()) == ["worker"])
    words = []
    soon(lambda: words.append(heard.get(timeout=5)) or words[-1] == "peers")


def test_a_program_that_serves_alone_keeps_others_out(two: Two) -> None:
    """And the other way round: who shows the sessions of a database to people is told which others do."""
    one, other = two
    alone = one.try_serving(holder_of("python app.py", NOW))
    assert alone is not None
    with pytest.raises(Served, match="`python app"):
        other.serve_beside("all")
    alone.close()
    other.serve_beside("all")
    assert one.try_serving(holder_of("python app.py", NOW)) is None
    assert f"`sayso start`, process {os.getpid()}" in str(one.served())


def test_a_lease_needs_an_owner() -> None:
    """Named leases are carried by the connection of the owner."""
    url = postgres.shared_database()
    postgres.emptied(url)
    store = open_postgres(url, KEY)
    with pytest.raises(StorageError, match="registers"):
        store.lease("x")
    store.close()
