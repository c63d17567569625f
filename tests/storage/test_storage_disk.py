"""Which writes reach the disk and when, and behaviour on a full or failing disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from engine.journal.records import Consumed, InboxItem
from engine.language.errors import StorageBroken, StorageFull
from engine.storage import connection
from engine.storage.errors import NoSuchRow
from engine.storage.sqlite import SqliteStore, open_sqlite
from tests.storage.storagekit import (
    KEY,
    NOW,
    SqliteBackend,
    done,
    event,
    new_session,
    rich_session,
    step,
    tried,
)

# --- durability ------------------------------------------------------------------------------------------


class Faults(apsw.VFS):
    """A VFS that counts syncs and fails where it is told to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.syncs: list[str] = []
        self.fail_sync: str | None = None
        self.fail_write: str | None = None
        super().__init__(name, base="")

    def xOpen(self, name: Any, flags: list[int]) -> FaultFile:
        return FaultFile(self, name, flags)


class FaultFile(apsw.VFSFile):
    """A file of that VFS."""

    def __init__(self, faults: Faults, name: Any, flags: list[int]) -> None:
        self.faults = faults
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name or "")
        self.kind = "wal" if path.endswith("-wal") else "db"
        super().__init__("", name, flags)

    def xSync(self, flags: int) -> None:
        if self.faults.fail_sync == self.kind:
            error = apsw.IOError("the device said no")
            setattr(error, "extendedresult", apsw.SQLITE_IOERR_FSYNC)  # noqa: B010 - unknown to apsw's stubs
            raise error
        self.faults.syncs.append(self.kind)
        super().xSync(flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        if self.faults.fail_write == self.kind:
            raise apsw.FullError("no space left on device")
        super().xWrite(data, offset)


@pytest.fixture
def faults(tmp_path: Path) -> Iterator[Faults]:
    """A VFS of this test's own."""
    vfs = Faults(f"faults-{tmp_path.name}")
    yield vfs
    vfs.unregister()


@pytest.fixture
def store(tmp_path: Path, faults: Faults) -> Iterator[SqliteStore]:
    """A store on that VFS."""
    store = open_sqlite(tmp_path / "sayso.db", vfs=faults.name)
    yield store
    store.close()


def test_a_commit_is_synced_before_it_returns(store: SqliteStore, faults: Faults) -> None:
    """Every acknowledged write has reached the device: one sync of the log for each."""
    done(store, new_session("session-1", store.register("bot"), event("a")))
    for work in (
        lambda: done(store, step("session-1", 1, 1, event("b"), event("c"))),
        lambda: store.inbox.ingest([InboxItem("m", "message", b"{}")], NOW),
        lambda: store.marks.move("T", "1.0"),
    ):
        faults.syncs.clear()
        work()
        assert faults.syncs == ["wal"]


def test_a_duplicate_costs_no_sync(store: SqliteStore, faults: Faults) -> None:
    """Deliveries that are known already write nothing."""
    store.inbox.ingest([InboxItem("m", "message", b"{}")], NOW)
    faults.syncs.clear()
    assert store.inbox.ingest([InboxItem("m", "message", b"{}")], NOW) == [None]
    assert faults.syncs == []


def test_a_refused_commit_costs_no_sync(tmp_path: Path, faults: Faults) -> None:
    """A group in which every commit is undone writes nothing, and others see no change."""
    store, other = (open_sqlite(tmp_path / "sayso.db", key=KEY, vfs=faults.name) for _ in range(2))
    done(store, new_session("session-1", None, event("a")))
    assert other.changed()
    faults.syncs.clear()
    late = step("session-1", 1, 1, event("b"), consumed=(Consumed(9, "applied"),))
    assert [type(error) for error in tried(store, [late, late])] == [NoSuchRow] * 2
    assert faults.syncs == []
    assert not other.changed()
    store.close()
    other.close()


def test_a_group_of_commits_is_synced_once(store: SqliteStore, faults: Faults) -> None:
    """Sessions that are ready together share one wait for the disk."""
    done(store, *(new_session(f"session-{n}", None, event("a")) for n in range(20)))
    faults.syncs.clear()
    done(store, *(step(f"session-{n}", 1, 1, event("b")) for n in range(20)))
    assert faults.syncs == ["wal"]


def test_the_settings_are_those_that_survive_power_loss(tmp_path: Path) -> None:
    """WAL and FULL: anything less can lose an acknowledged reply."""
    store = open_sqlite(tmp_path / "sayso.db")
    raw = store._db.raw
    assert raw.pragma("journal_mode") == "wal"
    assert raw.pragma("synchronous") == 2
    assert raw.pragma("checkpoint_fullfsync") == 1
    store.close()


def test_a_failed_sync_ends_the_use_of_the_store(store: SqliteStore, tmp_path: Path, faults: Faults) -> None:
    """After an fsync error nothing more is written, even when the device says yes again."""
    done(store, new_session("session-1", None, event("a")))
    faults.fail_sync = "wal"
    with pytest.raises(StorageBroken, match="End this process"):
        tried(store, [step("session-1", 1, 1, event("b"))])
    faults.fail_sync = None
    with pytest.raises(StorageBroken):
        store.inbox.ingest([InboxItem("m", "message", b"{}")], NOW)
    with pytest.raises(StorageBroken):
        store.sessions.load("session-1")
    store.close()
    after = open_sqlite(tmp_path / "sayso.db")
    assert len(list(after.sessions.journal("session-1"))) in (1, 2)
    after.close()


def test_a_failed_sync_of_a_checkpoint_is_not_forgotten(
    store: SqliteStore, tmp_path: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit before the checkpoint is durable and reported so; the next call refuses."""
    monkeypatch.setattr(connection, "CHECKPOINT_PAGES", 1)
    faults.fail_sync = "db"
    assert store.inbox.ingest([InboxItem("m", "message", b"{}")], NOW) == [1]
    with pytest.raises(StorageBroken):
        store.inbox.ingest([InboxItem("m2", "message", b"{}")], NOW)
    faults.fail_sync = None
    store.close()
    after = open_sqlite(tmp_path / "sayso.db")
    assert after.inbox.row("m") is not None
    after.close()


def test_the_log_is_folded_back_into_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write-ahead log does not grow without end."""
    monkeypatch.setattr(connection, "CHECKPOINT_PAGES", 20)
    store = open_sqlite(tmp_path / "sayso.db")
    for n in range(200):
        store.inbox.ingest([InboxItem(f"m{n}", "message", b"x" * 1000)], NOW)
    assert (tmp_path / "sayso.db-wal").stat().st_size < 100 * 4096
    assert (tmp_path / "sayso.db").stat().st_size > 200_000
    store.close()


# --- a full disk -----------------------------------------------------------------------------------------


def fill(store: SqliteStore, limited: bool) -> None:
    """Let the file not grow any more, or again."""
    raw = store._db.raw
    raw.pragma("max_page_count", raw.pragma("page_count") if limited else 1_000_000)


def test_a_full_disk_changes_nothing_and_work_goes_on_later(tmp_path: Path) -> None:
    """A write without disk space is undone completely, and succeeds once there is space."""
    store = open_sqlite(tmp_path / "sayso.db", key=KEY)
    rich_session(store)
    before = SqliteBackend(tmp_path).rows("journal"), store.sessions.head("session-1")
    fill(store, True)
    big = os.urandom(100_000)
    for _ in range(2):
        with pytest.raises(StorageFull, match="Free some"):
            tried(store, [step("session-1", 1, 4, event("e")), step("session-1", 1, 5, big)])
        with pytest.raises(StorageFull):
            store.inbox.ingest([InboxItem("small", "message", b"{}"), InboxItem("big", "message", big)], NOW)
    assert (SqliteBackend(tmp_path).rows("journal"), store.sessions.head("session-1")) == before
    assert store.inbox.row("small") is None
    fill(store, False)
    done(store, step("session-1", 1, 4, event("e")), step("session-1", 1, 5, big))
    assert store.inbox.ingest([InboxItem("small", "message", b"{}")], NOW) == [2]
    assert list(store.sessions.journal("session-1"))[-1] == big
    store.close()


def test_a_log_that_cannot_be_written_changes_nothing(store: SqliteStore, faults: Faults) -> None:
    """If there is no space for the write-ahead log, the write is undone and succeeds later."""
    done(store, new_session("session-1", None, event("a")))
    faults.fail_write = "wal"
    with pytest.raises(StorageFull):
        tried(store, [step("session-1", 1, 1, event("b"))])
    assert list(store.sessions.journal("session-1")) == [event("a")]
    faults.fail_write = None
    done(store, step("session-1", 1, 1, event("c")))
    assert list(store.sessions.journal("session-1")) == [event("a"), event("c")]


def test_a_checkpoint_without_space_is_made_later(
    store: SqliteStore, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that cannot grow now does not fail the commit, which is in the log."""
    monkeypatch.setattr(connection, "CHECKPOINT_PAGES", 1)
    faults.fail_write = "db"
    assert store.inbox.ingest([InboxItem("m", "message", b"{}")], NOW) == [1]
    assert store.inbox.ingest([InboxItem("m2", "message", b"{}")], NOW) == [2]
    faults.fail_write = None
    assert store.inbox.ingest([InboxItem("m3", "message", b"{}")], NOW) == [3]
    assert [row.key for row in store.inbox.rows()] == ["m", "m2", "m3"]
