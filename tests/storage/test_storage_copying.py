"""A store is copied to another backend and back, and continues there. Copies with other keys: `test_storage_encryption`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.journal.records import InboxItem, PutLock, PutSpend
from engine.language.errors import StorageError
from engine.storage import copying, tables
from engine.storage.copying import copy_store
from engine.storage.database import Database
from engine.storage.errors import CopyRefused
from engine.storage.postgres import PostgresStore, open_postgres
from engine.storage.postgres_connection import PostgresConnection
from engine.storage.sqlite import open_sqlite
from engine.storage.store import Store
from engine.storage.tables import COPIED
from tests.storage.storagekit import (
    KEY,
    NOW,
    PostgresBackend,
    SqliteBackend,
    claim,
    done,
    event,
    outcome,
    rich_session,
    step,
)

OF_ONE_BACKEND = {"data_keys", "freshness", "format", "holds", "lanes", "transactions", "workers", "meta"}


def filled(path: Path) -> Store:
    """A database with a row of each kind."""
    store = open_sqlite(path, key=KEY)
    store.bind("T1", "A1")
    rich_session(store)
    spend = PutSpend("session-1", "root/agent", 1, "deploy", "2026-11-21", 10, 30)
    store.consume([], NOW, [PutLock("deploy", "session-1"), spend])
    store.marks.move("T1:C1", "1.000100")
    store.quarantine("session-1", "a test", NOW)
    store.sessions.release("session-1")
    store.close()
    return open_sqlite(path, key=KEY)


@pytest.fixture
def server() -> PostgresBackend:
    """An empty database on a server."""
    return PostgresBackend()


@pytest.fixture
def new(server: PostgresBackend) -> Iterator[PostgresStore]:
    """An empty store on it."""
    store = open_postgres(server.url, KEY)
    yield store
    store.close()


def test_every_table_is_copied(server: PostgresBackend) -> None:
    """A table that a later release adds is not forgotten."""
    found = server.outside.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    assert {name for (name,) in found} - OF_ONE_BACKEND == {table.name for table in COPIED}


def test_a_copy_of_a_copy_has_the_same_rows(server: PostgresBackend, tmp_path: Path) -> None:
    """From a file to a server and to another file: byte by byte."""
    (tmp_path / "old").mkdir(mode=0o700)
    (tmp_path / "new").mkdir(mode=0o700)
    backends = SqliteBackend(tmp_path / "old"), server, SqliteBackend(tmp_path / "new")
    old, middle, new = filled(backends[0].path), server.open(), backends[2].open()
    assert isinstance(middle, Store)
    assert isinstance(new, Store)
    assert copy_store(old, middle) == 1
    assert copy_store(middle, new) == 1
    for table in COPIED:
        rows = [backend.rows(table.name) for backend in backends]
        assert rows[0] == rows[1] == rows[2]
    for store in (old, middle, new):
        store.close()


def test_a_paused_session_goes_on_in_the_copy(new: PostgresStore, tmp_path: Path) -> None:
    """It is claimed there, and what is stored gets numbers behind those that came."""
    old = filled(tmp_path / "old.db")
    copy_store(old, new)
    old.close()
    owner = new.register("bot")
    epoch = claim(new, "session-1", owner, NOW)
    done(new, step("session-1", epoch, 4, event("e")))
    assert new.inbox.ingest([InboxItem("later", "message", b"{}")], NOW) == [2]
    assert len(list(new.sessions.journal("session-1"))) == 5


def test_a_copy_that_gives_out_old_numbers_is_noticed(
    new: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of a row that came would be given to another one."""
    monkeypatch.setattr(PostgresConnection, "follow", Database.follow)
    with pytest.raises((StorageError, AssertionError)):
        test_a_paused_session_goes_on_in_the_copy(new, tmp_path)


def test_a_copy_goes_to_an_empty_store_only(new: PostgresStore, tmp_path: Path) -> None:
    """Nothing is written over, and nothing is copied that somebody works on."""
    old = filled(tmp_path / "old.db")
    used = open_sqlite(tmp_path / "old.db", key=KEY)
    used.register("bot")
    with pytest.raises(StorageError, match="in use by bot"):
        copy_store(old, new)
    used.close()
    copy_store(old, new)
    with pytest.raises(StorageError, match="already has rows"):
        copy_store(old, new)
    old.close()


@pytest.mark.parametrize("lost", ["prompts", "journal"])
def test_a_copy_that_differs_is_undone(
    new: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """It is read back before it counts."""
    old = filled(tmp_path / "old.db")
    write = copying._Copy._write

    def lossy(copy: Any, table: Any, rows: Any) -> None:
        write(copy, table, rows[1:] if table.name == lost else rows)

    monkeypatch.setattr(copying._Copy, "_write", lossy)
    assert outcome(lambda: copy_store(old, new)) is CopyRefused
    assert new.sessions.heads() == []
    old.close()


def test_what_is_written_meanwhile_is_not_left_behind(
    new: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply that came to the old store while it was copied would be lost with it."""
    old, other = filled(tmp_path / "old.db"), open_sqlite(tmp_path / "old.db", key=KEY)
    compare = copying._state_of

    def later(*given: Any) -> object:
        other.inbox.ingest([InboxItem("late", "message", b"{}")], NOW)
        return compare(*given)

    monkeypatch.setattr(copying, "_state_of", later)
    with pytest.raises(StorageError, match="was changed meanwhile"):
        copy_store(old, new)
    assert new.sessions.heads() == []
    other.close()
    old.close()


def test_a_row_that_the_other_store_cannot_hold_is_said_to_be_one(
    new: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Postgres takes no NUL in text, and a file that has one: it says in which table there is one."""
    old = filled(tmp_path / "old.db")
    with monkeypatch.context() as unchecked:
        unchecked.setattr(tables, "check_texts", lambda what, values: None)
        old.inbox.ingest([InboxItem("nul\0", "message", b"{}")], NOW)
    with pytest.raises(StorageError, match="A row of inbox cannot be copied"):
        copy_store(old, new)
    old.close()
