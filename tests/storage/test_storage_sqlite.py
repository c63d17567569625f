"""What only the SQLite backend promises: its files, its key, its schema, its settings, a full or failing disk."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from storagekit import (
    FLOW,
    FLOW_DIGEST,
    KEY,
    NOW,
    SqliteBackend,
    done,
    event,
    new_session,
    rich_session,
    step,
)

from engine.errors import KeyMissing, SchemaTooNew, StorageBroken, StorageError, StorageFull
from engine.storage import connection
from engine.storage.memory import MemoryStore
from engine.storage.opening import open_store
from engine.storage.port import Consumed, InboxItem
from engine.storage.schema import STEPS, migrate, version_of
from engine.storage.sqlite import SqliteStore, open_sqlite

GOLDEN = Path(__file__).parent / "golden"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- opening ---------------------------------------------------------------------------------------------


def test_urls_open_the_backend_that_they_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative and absolute paths and memory; anything else is refused with an example."""
    monkeypatch.chdir(tmp_path)
    for url, file in (
        ("sqlite:///.sayso/sayso.db", tmp_path / ".sayso" / "sayso.db"),
        (f"sqlite:///{tmp_path}/other/x.db", tmp_path / "other" / "x.db"),
    ):
        open_store(url).close()
        assert file.exists()
    assert isinstance(open_store("memory:"), MemoryStore)
    for url in ("postgres://x", "sqlite://x", "sqlite:///", ""):
        with pytest.raises(StorageError, match="sqlite:///path"):
            open_store(url)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_files_are_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """Directories are 0700 and files 0600 from the moment they exist."""
    before = os.umask(umask)
    try:
        store = open_sqlite(tmp_path / "new" / "deep" / "sayso.db")
        rich_session(store)
        found = list((tmp_path / "new").rglob("*"))
        open_modes = {path: mode(path) for path in found}
    finally:
        os.umask(before)
    store.close()
    names = {path.name for path in found if path.suffix}
    assert {"sayso.db", "sayso.db-wal", "sayso.db-shm", "sayso.db.key", "sayso.db.lock"} <= names
    directories = {tmp_path / "new", *(path for path in found if path.is_dir())}
    assert len(directories) == 4
    for path, found_mode in open_modes.items():
        assert found_mode == (0o700 if path in directories else 0o600), path
    assert mode(tmp_path / "new") == 0o700


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", ".key", ".lock"])
def test_a_symbolic_link_is_refused(tmp_path: Path, suffix: str) -> None:
    """A link in place of one of our files could lead anywhere, so it is not followed."""
    target = tmp_path / "elsewhere"
    target.write_bytes(b"")
    target.chmod(0o600)
    (tmp_path / f"sayso.db{suffix}").symlink_to(target)
    with pytest.raises(StorageError, match="not a regular file"):
        open_sqlite(tmp_path / "sayso.db")
    assert target.read_bytes() == b""


@pytest.mark.parametrize("suffix", ["", ".key"])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, suffix: str) -> None:
    """The mode is not repaired in silence: somebody may have read the file."""
    open_sqlite(tmp_path / "sayso.db").close()
    (tmp_path / f"sayso.db{suffix}").chmod(0o640)
    with pytest.raises(StorageError, match="chmod 600"):
        open_sqlite(tmp_path / "sayso.db")


def test_a_directory_that_others_can_write_is_refused(tmp_path: Path) -> None:
    """Whoever can write the directory can swap the files."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    with pytest.raises(StorageError, match="chmod 700"):
        open_sqlite(shared / "sayso.db")
    assert list(shared.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", ["", "sayso.db", "sayso.db.key"])
def test_files_of_another_user_are_refused(tmp_path: Path, name: str) -> None:
    """A database of somebody else is not opened, not even by root."""
    home = tmp_path / "home"
    open_sqlite(home / "sayso.db").close()
    os.chown(home / name, 12345, -1)
    with pytest.raises(StorageError, match="another user"):
        open_sqlite(home / "sayso.db")


def test_a_path_that_is_a_directory_is_refused(tmp_path: Path) -> None:
    """A directory is no database; neither is a file a directory, nor other bytes a database."""
    with pytest.raises(StorageError):
        open_sqlite(tmp_path)
    (tmp_path / "file").write_bytes(b"x" * 4096)
    (tmp_path / "file").chmod(0o600)
    with pytest.raises(StorageError):
        open_sqlite(tmp_path / "file" / "sayso.db")
    with pytest.raises(StorageError, match="damaged"):
        open_sqlite(tmp_path / "file")


# --- the key ---------------------------------------------------------------------------------------------


def test_the_key_is_made_once_and_used_again(tmp_path: Path) -> None:
    """A database finds its key beside it."""
    store = open_sqlite(tmp_path / "sayso.db")
    rich_session(store)
    store.close()
    key = (tmp_path / "sayso.db.key").read_text()
    assert len(bytes.fromhex(key)) == 32
    store = open_sqlite(tmp_path / "sayso.db")
    assert len(store.load("session-1").events) == 2
    store.close()
    assert (tmp_path / "sayso.db.key").read_text() == key


def test_rows_without_their_key_are_refused(tmp_path: Path) -> None:
    """A missing key beside rows is an error, and no new key is made."""
    store = open_sqlite(tmp_path / "sayso.db")
    rich_session(store)
    store.close()
    key = tmp_path / "sayso.db.key"
    kept = key.read_bytes()
    key.unlink()
    with pytest.raises(KeyMissing, match="not beside it"):
        open_sqlite(tmp_path / "sayso.db")
    assert not key.exists()
    open_sqlite(tmp_path / "sayso.db", key=bytes.fromhex(kept.decode())).close()


def test_another_key_is_refused(tmp_path: Path) -> None:
    """A key with which the rows were not written is said to be wrong, before every row is called corrupt."""
    store = open_sqlite(tmp_path / "sayso.db", key=KEY)
    rich_session(store)
    store.close()
    with pytest.raises(KeyMissing, match="not the one"):
        open_sqlite(tmp_path / "sayso.db", key=b"x" * 32)
    with pytest.raises(KeyMissing, match="not beside it"):
        open_sqlite(tmp_path / "sayso.db")


def test_a_database_without_rows_takes_a_new_key(tmp_path: Path) -> None:
    """Where nothing was written, nothing can be lost."""
    open_sqlite(tmp_path / "sayso.db").close()
    (tmp_path / "sayso.db.key").unlink()
    store = open_sqlite(tmp_path / "sayso.db")
    assert store.ingest([InboxItem("m", "message", b"{}")], NOW) == [1]
    store.close()


def test_a_damaged_key_file_is_named(tmp_path: Path) -> None:
    """A key file that holds no key is an error that says which file."""
    open_sqlite(tmp_path / "sayso.db").close()
    (tmp_path / "sayso.db.key").write_text("no key\n")
    with pytest.raises(KeyMissing, match=r"sayso\.db\.key"):
        open_sqlite(tmp_path / "sayso.db")


# --- the schema ------------------------------------------------------------------------------------------


def test_a_newer_database_is_left_untouched(tmp_path: Path) -> None:
    """A file of a later release is refused; not a byte of it changes and nothing appears beside it."""
    path = tmp_path / "sayso.db"
    raw = apsw.Connection(str(path))
    raw.pragma("user_version", len(STEPS) + 1)
    raw.execute("CREATE TABLE future (x)")
    raw.close()
    path.chmod(0o600)
    before = hashlib.sha256(path.read_bytes()).digest()
    with pytest.raises(SchemaTooNew, match="newer release"):
        open_sqlite(path)
    assert hashlib.sha256(path.read_bytes()).digest() == before
    assert {file.name for file in tmp_path.iterdir()} <= {"sayso.db", "sayso.db.lock"}


def golden(directory: Path) -> Path:
    """A database as release 0.1 wrote it."""
    path = directory / "sayso.db"
    raw = apsw.Connection(str(path))
    raw.execute((GOLDEN / "v1.sql").read_text())
    raw.close()
    path.chmod(0o600)
    return path


def test_a_database_of_schema_1_is_read(tmp_path: Path) -> None:
    """What the first release wrote verifies and says what it said."""
    store = open_sqlite(golden(tmp_path), key=KEY)
    loaded = store.load("session-1")
    assert (loaded.snapshot, loaded.snapshot_seq) == (b'{"at":2}', 2)
    assert list(store.journal("session-1")) == [event(text) for text in "abcd"]
    assert [row.prompt_id for row in store.prompts(statuses=["open"])] == ["prompt-session-1"]
    assert [row.timer_id for row in store.timers()] == ["timer"]
    assert [row.key for row in store.outbox(now=NOW)] == ["show-session-1"]
    assert store.flow(FLOW_DIGEST) == FLOW
    message = store.inbox_row("message-session-1")
    assert message is not None
    assert message.outcome == "applied"
    assert store.mark("T1:C1") == "1700000000.000100"
    store.bind("T1", "A1")
    done(store, step("session-1", store.claim("session-1", store.register("bot"), NOW), 4, event("e")))
    store.close()


NEXT = (*STEPS, "ALTER TABLE sessions ADD COLUMN colour TEXT; UPDATE sessions SET colour = 'red';")


def test_a_migration_copies_the_file_first(tmp_path: Path) -> None:
    """An upgrade leaves a whole private copy of the file beside it, and the rows readable."""
    path = golden(tmp_path)
    raw = apsw.Connection(str(path))
    migrate(raw, path, [], NEXT)
    assert version_of(raw) == len(NEXT)
    assert raw.execute("SELECT colour FROM sessions").fetchall() == [("red",)]
    migrate(raw, path, [], NEXT)
    raw.close()
    copy = tmp_path / "sayso.db.v1.bak"
    assert mode(copy) == 0o600
    copy.rename(tmp_path / "old.db")
    old = open_sqlite(tmp_path / "old.db", key=KEY)
    assert len(list(old.journal("session-1"))) == 4
    old.close()
    with pytest.raises(SchemaTooNew):
        open_sqlite(path, key=KEY)


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    """All steps or none: after an error the file is what it was, and the upgrade can be tried again."""
    path = golden(tmp_path)
    raw = apsw.Connection(str(path))
    with pytest.raises(apsw.SQLError):
        migrate(raw, path, [], (*NEXT, "CREATE TABLE oops ("))
    assert version_of(raw) == 1
    assert "colour" not in [row[1] for row in raw.execute("PRAGMA table_info(sessions)")]
    migrate(raw, path, [], NEXT)
    assert version_of(raw) == 2
    raw.close()


def test_no_migration_under_a_living_owner(tmp_path: Path) -> None:
    """A process of the old release would not understand the new rows: it has to stop first."""
    path = golden(tmp_path)
    raw = apsw.Connection(str(path))
    with pytest.raises(StorageError, match="bot-1"):
        migrate(raw, path, ["bot-1"], NEXT)
    assert version_of(raw) == 1
    assert not (tmp_path / "sayso.db.v1.bak").exists()
    raw.close()


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


def test_a_commit_is_synced_before_it_returns(tmp_path: Path, faults: Faults) -> None:
    """Every acknowledged write has reached the device: one sync of the log for each."""
    store = open_sqlite(tmp_path / "sayso.db", vfs=faults.name)
    done(store, new_session("session-1", store.register("bot"), event("a")))
    for work in (
        lambda: done(store, step("session-1", 1, 1, event("b"), event("c"))),
        lambda: store.ingest([InboxItem("m", "message", b"{}")], NOW),
        lambda: store.set_mark("T", "1.0"),
    ):
        faults.syncs.clear()
        work()
        assert faults.syncs == ["wal"]
    store.close()


def test_a_duplicate_costs_no_sync(tmp_path: Path, faults: Faults) -> None:
    """Deliveries that are known already write nothing."""
    store = open_sqlite(tmp_path / "sayso.db", vfs=faults.name)
    store.ingest([InboxItem("m", "message", b"{}")], NOW)
    faults.syncs.clear()
    assert store.ingest([InboxItem("m", "message", b"{}")], NOW) == [None]
    assert faults.syncs == []
    store.close()


def test_a_refused_commit_costs_no_sync(tmp_path: Path, faults: Faults) -> None:
    """A group in which every commit is undone writes nothing, and others see no change."""
    store, other = (open_sqlite(tmp_path / "sayso.db", key=KEY, vfs=faults.name) for _ in range(2))
    done(store, new_session("session-1", None, event("a")))
    assert other.changed()
    faults.syncs.clear()
    late = step("session-1", 1, 1, event("b"), consumed=(Consumed(9, "applied"),))
    assert [type(error) for error in store.commit([late, late])] == [StorageError] * 2
    assert faults.syncs == []
    assert not other.changed()
    store.close()
    other.close()


def test_a_group_of_commits_is_synced_once(tmp_path: Path, faults: Faults) -> None:
    """Sessions that are ready together share one wait for the disk."""
    store = open_sqlite(tmp_path / "sayso.db", vfs=faults.name)
    done(store, *(new_session(f"session-{n}", None, event("a")) for n in range(20)))
    faults.syncs.clear()
    done(store, *(step(f"session-{n}", 1, 1, event("b")) for n in range(20)))
    assert faults.syncs == ["wal"]
    store.close()


def test_the_settings_are_those_that_survive_power_loss(tmp_path: Path) -> None:
    """WAL and FULL: anything less can lose an acknowledged reply."""
    store = open_sqlite(tmp_path / "sayso.db")
    raw = store._db.raw
    assert raw.pragma("journal_mode") == "wal"
    assert raw.pragma("synchronous") == 2
    assert raw.pragma("checkpoint_fullfsync") == 1
    store.close()


def test_a_failed_sync_ends_the_use_of_the_store(tmp_path: Path, faults: Faults) -> None:
    """After an fsync error nothing more is written, even when the device says yes again."""
    store = open_sqlite(tmp_path / "sayso.db", vfs=faults.name)
    done(store, new_session("session-1", None, event("a")))
    faults.fail_sync = "wal"
    with pytest.raises(StorageBroken, match="End this process"):
        store.commit([step("session-1", 1, 1, event("b"))])
    faults.fail_sync = None
    with pytest.raises(StorageBroken):
        store.ingest([InboxItem("m", "message", b"{}")], NOW)
    with pytest.raises(StorageBroken):
        store.load("session-1")
    store.close()
    after = open_sqlite(tmp_path / "sayso.db")
    assert len(list(after.journal("session-1"))) in (1, 2)
    after.close()


def test_a_failed_sync_of_a_checkpoint_is_not_forgotten(
    tmp_path: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit before the checkpoint is durable and reported so; the next call refuses."""
    monkeypatch.setattr(connection, "CHECKPOINT_PAGES", 1)
    store = open_sqlite(tmp_path / "sayso.db", vfs=faults.name)
    faults.fail_sync = "db"
    assert store.ingest([InboxItem("m", "message", b"{}")], NOW) == [1]
    with pytest.raises(StorageBroken):
        store.ingest([InboxItem("m2", "message", b"{}")], NOW)
    faults.fail_sync = None
    store.close()
    after = open_sqlite(tmp_path / "sayso.db")
    assert after.inbox_row("m") is not None
    after.close()


def test_the_log_is_folded_back_into_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write-ahead log does not grow without end."""
    monkeypatch.setattr(connection, "CHECKPOINT_PAGES", 20)
    store = open_sqlite(tmp_path / "sayso.db")
    for n in range(200):
        store.ingest([InboxItem(f"m{n}", "message", b"x" * 1000)], NOW)
    assert (tmp_path / "sayso.db-wal").stat().st_size < 100 * 4096
    assert (tmp_path / "sayso.db").stat().st_size > 200_000
    store.close()


# --- a full disk -----------------------------------------------------------------------------------------


def fill(store: SqliteStore, limited: bool) -> None:
    """Let the file not grow any more, or again."""
    raw = store._db.raw
    raw.pragma("max_page_count", raw.pragma("page_count") if limited else 1_000_000)


def test_a_full_disk_changes_nothing_and_work_goes_on_later(tmp_path: Path) -> None:
    """Every write that finds no space is undone as a whole; when there is space it succeeds."""
    store = open_sqlite(tmp_path / "sayso.db", key=KEY)
    rich_session(store)
    before = SqliteBackend(tmp_path).rows("journal"), store.head("session-1")
    fill(store, True)
    big = b"x" * 100_000
    for _ in range(2):
        with pytest.raises(StorageFull, match="Free some"):
            store.commit([step("session-1", 1, 4, event("e")), step("session-1", 1, 5, big)])
        with pytest.raises(StorageFull):
            store.ingest([InboxItem("small", "message", b"{}"), InboxItem("big", "message", big)], NOW)
    assert (SqliteBackend(tmp_path).rows("journal"), store.head("session-1")) == before
    assert store.inbox_row("small") is None
    fill(store, False)
    done(store, step("session-1", 1, 4, event("e")), step("session-1", 1, 5, big))
    assert store.ingest([InboxItem("small", "message", b"{}")], NOW) == [2]
    assert list(store.journal("session-1"))[-1] == big
    store.close()


def test_a_log_that_cannot_be_written_changes_nothing(tmp_path: Path, faults: Faults) -> None:
    """No space for the write-ahead log is no space: undone, and it goes on later."""
    store = open_sqlite(tmp_path / "sayso.db", vfs=faults.name)
    done(store, new_session("session-1", None, event("a")))
    faults.fail_write = "wal"
    with pytest.raises(StorageFull):
        store.commit([step("session-1", 1, 1, event("b"))])
    assert list(store.journal("session-1")) == [event("a")]
    faults.fail_write = None
    done(store, step("session-1", 1, 1, event("c")))
    assert list(store.journal("session-1")) == [event("a"), event("c")]
    store.close()


def test_a_checkpoint_without_space_is_made_later(
    tmp_path: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that cannot grow now does not fail the commit, which stands in the log."""
    monkeypatch.setattr(connection, "CHECKPOINT_PAGES", 1)
    store = open_sqlite(tmp_path / "sayso.db", vfs=faults.name)
    faults.fail_write = "db"
    assert store.ingest([InboxItem("m", "message", b"{}")], NOW) == [1]
    assert store.ingest([InboxItem("m2", "message", b"{}")], NOW) == [2]
    faults.fail_write = None
    assert store.ingest([InboxItem("m3", "message", b"{}")], NOW) == [3]
    assert [row.key for row in store.inbox()] == ["m", "m2", "m3"]
    store.close()


def test_a_database_that_another_process_holds_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write waits for a while, and then tells what may be in the way."""
    monkeypatch.setattr(connection, "BUSY_MILLISECONDS", 50)
    store = open_sqlite(tmp_path / "sayso.db")
    other = apsw.Connection(str(tmp_path / "sayso.db"))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="another process"):
        store.ingest([InboxItem("m", "message", b"{}")], NOW)
    assert store.inbox() == []
    other.execute("COMMIT")
    assert store.ingest([InboxItem("m", "message", b"{}")], NOW) == [1]
    other.close()
    store.close()


def test_the_usual_lists_use_their_indexes(tmp_path: Path) -> None:
    """What is asked all the time reads only what it gives, however much history there is."""
    from engine.storage import sqlite_rows, sqlite_sessions

    store = open_sqlite(tmp_path / "sayso.db")
    for statement in (
        sqlite_rows._INBOX_OPEN,
        sqlite_rows._OUTBOX_PENDING,
        sqlite_rows._TIMERS_DUE,
        sqlite_rows._PROMPTS_OF_THREAD,
        sqlite_rows._PROMPTS_OF_SESSION,
        sqlite_rows._PROMPTS_OF_STATUS,
        sqlite_sessions._RUNNING,
        sqlite_sessions._HEAD,
        sqlite_sessions._EVENTS,
        sqlite_sessions._ENDED,
    ):
        values = (None,) * (2 if "?1" in statement else statement.count("?"))
        plan = [str(row[3]) for row in store._db.raw.execute("EXPLAIN QUERY PLAN " + statement, values)]
        assert [line for line in plan if line.startswith("SCAN") and "USING" not in line] in (
            [],
            ["SCAN json_each VIRTUAL TABLE INDEX 1:"],
        ), statement
    store.close()
