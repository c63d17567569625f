"""A standby takes over while processes store: what was acknowledged is there, once, and nobody ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from engine.journal.records import InboxItem
from engine.language.errors import StorageError
from engine.storage.backoff import passes
from engine.storage.postgres import PostgresStore, open_postgres
from tests.storage.storagekit import KEY, NOW, done, event, new_session, step
from tests.support.standby import Pair

pytestmark = [pytest.mark.process, pytest.mark.long]
BEFORE, AFTER = 100, 100
"""How many replies each worker stores before and after the standby takes over."""


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A server and its standby."""
    found = Pair()
    yield found
    found.close()


class Worker(threading.Thread):
    """Stores replies and steps, and tries again what is said not to be stored."""

    def __init__(self, url: str, number: int) -> None:
        super().__init__(daemon=True)
        self.store: PostgresStore = open_postgres(url, KEY)
        self.name, self.session = f"worker-{number}", f"session-{number}"
        self.keys: list[str] = []
        self.steps = 1
        self.refused = 0
        self.ended: Exception | None = None
        self.most = 1 << 30
        done(self.store, new_session(self.session, self.store.register("bot"), event("a")))

    def run(self) -> None:
        """Until it has stored enough, or must end."""
        try:
            while len(self.keys) < self.most:
                self._stored(f"{self.name}-{len(self.keys)}")
        except Exception as error:
            self.ended = error

    def _stored(self, key: str) -> None:
        self._tried(lambda: self.store.inbox.ingest([InboxItem(key, "message", b"{}")], NOW))
        self.keys.append(key)
        self._tried(lambda: done(self.store, step(self.session, 1, self.steps, event("b"))))
        self.steps += 1

    def _tried(self, work: object) -> None:
        while True:
            try:
                work()  # type: ignore[operator]
                return
            except StorageError as error:
                if not passes(error):
                    raise
                self.refused += 1
                time.sleep(0.02)


def test_what_was_acknowledged_outlives_the_primary(pair: Pair) -> None:
    """All processes of the primary are killed under load: the standby has every reply and every step, once."""
    workers = [Worker(pair.url, number) for number in range(4)]
    for worker in workers:
        worker.start()
    while min(len(worker.keys) for worker in workers) < BEFORE:
        time.sleep(0.005)
    pair.fail_over()
    for worker in workers:
        worker.most = len(worker.keys) + AFTER
    for worker in workers:
        worker.join(60)
        assert worker.ended is None
        assert len(worker.keys) == worker.most
    assert sum(worker.refused for worker in workers) > 0, "nobody noticed"
    store = open_postgres(pair.url, KEY)
    assert {row.key for row in store.inbox.rows(limit=None)} == {
        key for worker in workers for key in worker.keys
    }
    for worker in workers:
        assert len(list(store.sessions.journal(worker.session))) == worker.steps
        worker.store.close()
    store.close()


def test_a_transaction_that_was_lost_is_not_taken_for_another_one(pair: Pair) -> None:
    """The server that took over gives its id to another one, and says of that that it was committed."""
    store, other = open_postgres(pair.url, KEY), open_postgres(pair.url, KEY)
    with suppress(StorageError), store._db.write():
        row = store._db.one("SELECT pg_current_xact_id()::text")
        store._db.run("INSERT INTO flows (digest, body) VALUES (?, ?)", ("lost", b""))
        pair.fail_over()
    assert row is not None
    for number in range(10):
        other.inbox.ingest([InboxItem(f"later-{number}", "message", b"{}")], NOW)
    assert other._db.one("SELECT pg_xact_status(?::text::xid8)", row) == ("committed",)
    assert not store._db._was_committed()
    for one in (store, other):
        one.close()
