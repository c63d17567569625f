"""What only the SQLite backend promises: its files, its key, its schema, its indexes."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import stat
from pathlib import Path

import apsw
import pytest

from engine.journal.records import InboxItem, PutOutbox
from engine.language.errors import KeyMissing, SchemaTooNew, StorageError, StoreTooOld
from engine.storage.open import MemoryStore, open_store
from engine.storage.schema import STEPS, migrate, take_steps, version_of
from engine.storage.sqlite import open_sqlite
from tests.storage.storagekit import (
    KEY,
    NOW,
    rich_session,
)


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
    for url in ("mysql://x", "sqlite://x", "sqlite:///", ""):
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
    """A link instead of one of our files could lead anywhere, so it is not followed."""
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
    """A directory is not a database; neither is a file a directory, nor other bytes a database."""
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
    assert len(store.sessions.load("session-1").events) == 2
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
    with pytest.raises(KeyMissing, match="is missing"):
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
    with pytest.raises(KeyMissing, match="is missing"):
        open_sqlite(tmp_path / "sayso.db")


def test_a_database_without_rows_takes_a_new_key(tmp_path: Path) -> None:
    """Where nothing was written, nothing can be lost."""
    open_sqlite(tmp_path / "sayso.db").close()
    (tmp_path / "sayso.db.key").unlink()
    store = open_sqlite(tmp_path / "sayso.db")
    assert store.inbox.ingest([InboxItem("m", "message", b"{}")], NOW) == [1]
    store.close()


def test_a_damaged_key_file_is_named(tmp_path: Path) -> None:
    """A key file that holds no key is an error that says which file."""
    open_sqlite(tmp_path / "sayso.db").close()
    (tmp_path / "sayso.db.key").write_text("no key\n")
    with pytest.raises(KeyMissing, match=r"sayso\.db\.key"):
        open_sqlite(tmp_path / "sayso.db")


# --- the schema ------------------------------------------------------------------------------------------


def test_a_newer_database_is_left_untouched(tmp_path: Path) -> None:
    """A file from a newer release is refused: it does not change by a byte, and nothing is created beside it."""
    path = tmp_path / "sayso.db"
    raw = apsw.Connection(str(path))
    take_steps(raw, (*STEPS, "CREATE TABLE future (x)"))
    raw.close()
    path.chmod(0o600)
    before = hashlib.sha256(path.read_bytes()).digest()
    with pytest.raises(SchemaTooNew, match="newer release"):
        open_sqlite(path)
    assert hashlib.sha256(path.read_bytes()).digest() == before
    assert {file.name for file in tmp_path.iterdir()} <= {"sayso.db", "sayso.db.lock"}


def test_a_file_of_a_build_before_1_0_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """Neither it nor anything beside it changes, whatever its schema was."""
    path = tmp_path / "sayso.db"
    raw = apsw.Connection(str(path))
    raw.execute("CREATE TABLE sessions (session_id TEXT PRIMARY KEY)")
    for version in (1, 8):
        raw.pragma("user_version", version)
        path.chmod(0o600)
        before = path.read_bytes()
        with pytest.raises(
            StoreTooOld, match=r"sayso\.db was written by a build of sayso before 1\.0, [^.]*\.$"
        ):
            open_sqlite(path, key=KEY)
        assert path.read_bytes() == before
    raw.close()


def first(directory: Path) -> Path:
    """A database of this release with a session."""
    store = open_sqlite(directory / "sayso.db", key=KEY)
    rich_session(store)
    store.close()
    return directory / "sayso.db"


NEXT = (*STEPS, "ALTER TABLE sessions ADD COLUMN colour TEXT; UPDATE sessions SET colour = 'red';")


def test_a_migration_copies_the_file_first(tmp_path: Path) -> None:
    """An upgrade keeps a complete private copy of the file beside it, and the rows stay readable."""
    path = first(tmp_path)
    raw = apsw.Connection(str(path))
    migrate(raw, path, [], NEXT)
    assert version_of(raw) == len(NEXT)
    assert raw.execute("SELECT colour FROM sessions").fetchall() == [("red",)]
    migrate(raw, path, [], NEXT)
    raw.close()
    copy = tmp_path / f"sayso.db.v{len(STEPS)}.bak"
    assert mode(copy) == 0o600
    copy.rename(tmp_path / "old.db")
    old = open_sqlite(tmp_path / "old.db", key=KEY)
    assert len(list(old.sessions.journal("session-1"))) == 4
    old.close()
    with pytest.raises(SchemaTooNew):
        open_sqlite(path, key=KEY)


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    """All steps or none: after an error the file is what it was, and the upgrade can be tried again."""
    path = first(tmp_path)
    raw = apsw.Connection(str(path))
    with pytest.raises(apsw.SQLError):
        migrate(raw, path, [], (*NEXT, "CREATE TABLE oops ("))
    assert version_of(raw) == len(STEPS)
    assert "colour" not in [row[1] for row in raw.execute("PRAGMA table_info(sessions)")]
    migrate(raw, path, [], NEXT)
    assert version_of(raw) == len(NEXT)
    raw.close()


def test_no_migration_under_a_living_owner(tmp_path: Path) -> None:
    """A process of the old release would not understand the new rows: it has to stop first."""
    path = first(tmp_path)
    raw = apsw.Connection(str(path))
    with pytest.raises(StorageError, match="bot-1"):
        migrate(raw, path, ["bot-1"], NEXT)
    assert version_of(raw) == len(STEPS)
    assert not (tmp_path / f"sayso.db.v{len(STEPS)}.bak").exists()
    raw.close()


# --- queries ---------------------------------------------------------------------------------------------


def test_the_usual_lists_use_their_indexes(tmp_path: Path) -> None:
    """What is asked all the time reads only what it gives, however much history there is."""
    from engine.storage import rows, sessions

    store = open_sqlite(tmp_path / "sayso.db")
    for statement in (
        rows._INBOX_OPEN,
        rows._OUTBOX_PENDING,
        rows._TIMERS_DUE,
        rows._PROMPTS_OF_THREAD,
        rows._PROMPTS_OF_SESSION,
        rows._PROMPTS_OF_THREAD_AND_STATUS,
        rows._PROMPTS_OF_SESSION_AND_STATUS,
        rows._PROMPTS_OF_STATUS,
        rows._INBOX_DEAD,
        sessions._RUNNING,
        sessions._HEAD,
        sessions._EVENTS,
        sessions._ENDED,
        sessions._STIRRED,
        sessions._FIRST,
    ):
        values = (None,) * (len(set(re.findall(r"\?\d+", statement))) or statement.count("?"))
        plan = [str(row[3]) for row in store._db.raw.execute("EXPLAIN QUERY PLAN " + statement, values)]
        assert [line for line in plan if line.startswith("SCAN") and "USING" not in line] in (
            [],
            ["SCAN json_each VIRTUAL TABLE INDEX 1:"],
        ), statement
    store.close()


def test_what_is_due_of_a_long_lane_costs_as_much_as_it_is_long() -> None:
    """Three times as many pending rows of one lane take three times the steps, not nine times."""
    store = MemoryStore(KEY)
    taken = []
    for n in (400, 800):
        store.consume([], NOW, [PutOutbox(f"{n}-{k}", "lane", "post", b"{}") for k in range(n)])
        steps = itertools.count()
        store._db.raw.set_progress_handler(lambda steps=steps: bool(next(steps) < 0), 10)
        assert len(store.outbox.due(now=NOW, limit=1)) == 1
        store._db.raw.set_progress_handler(None)
        taken.append(next(steps))
    assert taken[1] < 4 * taken[0]
    store.close()
