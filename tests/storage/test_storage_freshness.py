"""A database that is older than what it acknowledged, or was changed outside, is noticed when it is opened."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from engine.journal.records import Commit, Consumed, DropLock, PutOutbox
from engine.language.errors import KeyMissing, StorageError, StoreSuspended
from engine.storage.freshness import Anchor, Freshness, anchor_of
from engine.storage.group_commit import Writer
from engine.storage.sqlite import back_up, open_sqlite, restore
from engine.storage.store import Store
from tests.storage.storagekit import (
    KEY,
    NOW,
    SqliteBackend,
    at,
    claim,
    done,
    event,
    new_session,
    rich_session,
    sample_item,
    step,
    tried,
)
from tests.support.proving import PROVE

FRAME = 24 + 4096
"""Bytes of a frame in the WAL: its header and a page."""
WAL_HEADER = 32
STEPS = 12


@pytest.fixture
def backend(tmp_path: Path) -> SqliteBackend:
    """A database in a folder of its own."""
    return SqliteBackend(tmp_path / "home")


@pytest.fixture
def store(backend: SqliteBackend) -> Iterator[Store]:
    """A connection to it."""
    backend.path.parent.mkdir(mode=0o700)
    store = backend.open()
    yield store
    store.close()


def busy(store: Store) -> None:
    """Several commits of two sessions, a message that was taken and one that was not."""
    rich_session(store, "session-1")
    owner = rich_session(store, "session-2")
    assert owner
    for seq in range(4, 4 + STEPS):
        done(store, step("session-1", 1, seq, event(str(seq))))


def killed(backend: SqliteBackend, tmp_path: Path, name: str) -> Path:
    """The files as a kill at this moment would leave them: copied while the store is open."""
    target = tmp_path / name
    shutil.copytree(backend.path.parent, target)
    return target / backend.path.name


def why(path: Path) -> str | None:
    """Why this database opens suspended, or None."""
    store = open_sqlite(path, key=KEY)
    try:
        return store.suspended()
    finally:
        store.close()


def flip(path: Path, offset: int) -> None:
    """Change one byte of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        [byte] = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))


# --- what opens as it should ------------------------------------------------------------------------------


def test_what_was_killed_opens_as_it_was(backend: SqliteBackend, store: Store, tmp_path: Path) -> None:
    """A kill leaves the anchor as new as the last commit."""
    busy(store)
    assert why(killed(backend, tmp_path, "killed")) is None


def test_an_anchor_that_is_behind_is_no_harm(backend: SqliteBackend, store: Store, tmp_path: Path) -> None:
    """The anchor is not synced, so a power loss may take it back; the database is then newer, and the anchor follows."""
    rich_session(store)
    behind = anchor_of(backend.path).read_bytes()
    done(store, step("session-1", 1, 4, event("e")))
    path = killed(backend, tmp_path, "lost")
    anchor_of(path).write_bytes(behind)
    assert why(path) is None
    shutil.rmtree(path.parent)
    path = killed(backend, tmp_path, "lost")
    anchor_of(path).write_bytes(behind)
    open_sqlite(path, key=KEY).close()
    assert anchor_of(path).read_bytes() != behind


@pytest.mark.parametrize("failing", ["pwrite", "fsync", "replace"])
def test_an_anchor_that_could_not_be_made_is_made_by_the_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """A disk that is full while the anchor is made leaves none, and no damage that somebody has to release."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "sayso.db"
    with monkeypatch.context() as patched:
        patched.setattr(f"engine.storage.freshness.os.{failing}", full)
        with pytest.raises(StorageError, match="No space left"):
            open_sqlite(path, key=KEY)
    assert why(path) is None


def test_a_torn_write_leaves_the_older_point(backend: SqliteBackend, store: Store, tmp_path: Path) -> None:
    """Either half of the anchor may be lost: the other one still says how new the database must be."""
    busy(store)
    for half in range(2):
        path = killed(backend, tmp_path, f"torn-{half}")
        flip(anchor_of(path), half * 40 + 20)
        assert why(path) is None


def test_commits_that_were_undone_do_not_count(backend: SqliteBackend, store: Store) -> None:
    """A commit that is refused beside a good one does not count up."""
    rich_session(store)
    bad: Commit = step("session-1", 7, 9, event("x"))
    duplicate = new_session("session-3", None, event("a"))
    refused = new_session(
        "session-4", None, event("a"), rows=(DropLock("l", "s"), PutOutbox("k", "l", "p", b"{}"))
    )
    assert tried(store, [bad, duplicate, refused.but(consumed=(Consumed(99, "x"),))])[1] is None
    store.close()
    assert why(backend.path) is None


def test_several_connections_move_one_anchor_forward(backend: SqliteBackend, store: Store) -> None:
    """Whoever commits last leaves the newest point, whichever process it is."""
    rich_session(store)
    other = backend.open()
    for seq in range(4, 10):
        done(store if seq % 2 else other, step("session-1", 1, seq, event("e")))
        other.inbox.ingest([sample_item(f"session-{seq}")], NOW)
    assert other.stale() is None
    other.close()
    assert why(backend.path) is None


def test_what_was_deleted_by_retention_is_not_missed(backend: SqliteBackend, store: Store) -> None:
    """Sessions and messages that are reaped make it no older."""
    rich_session(store)
    done(store, step("session-1", 1, 4, event("end"), status="complete", phase="ended", release=True))
    assert store.sessions.delete(["session-1"]) == []
    assert store.sessions.heads() == []
    assert store.stale() is None


# --- what does not ----------------------------------------------------------------------------------------


def test_a_damaged_log_is_noticed_wherever_it_is_damaged(
    backend: SqliteBackend, store: Store, tmp_path: Path
) -> None:
    """SQLite takes a WAL up to the first frame that does not verify, and says nothing: the commits after it are missed."""
    busy(store)
    frames = (backend.path.with_name("sayso.db-wal").stat().st_size - WAL_HEADER) // FRAME
    assert frames > 40
    for frame in range(0, frames, 1 if PROVE else frames // 8):
        path = killed(backend, tmp_path, f"frame-{frame}")
        flip(path.with_name("sayso.db-wal"), WAL_HEADER + frame * FRAME + 100)
        assert "older" in (why(path) or ""), f"frame {frame}"
        shutil.rmtree(path.parent)


def test_a_deleted_log_is_noticed(backend: SqliteBackend, store: Store, tmp_path: Path) -> None:
    """What stood only in the WAL is gone with it."""
    busy(store)
    path = killed(backend, tmp_path, "deleted")
    path.with_name("sayso.db-wal").unlink()
    assert "older" in (why(path) or "")


def test_a_file_that_was_put_back_is_noticed(backend: SqliteBackend, store: Store, tmp_path: Path) -> None:
    """Yesterday's copy of the database has good MACs, and is not what was acknowledged."""
    rich_session(store)
    copy = killed(backend, tmp_path, "yesterday")
    done(store, step("session-1", 1, 4, event("e")))
    store.close()
    for suffix in ("", "-wal"):
        shutil.copy(copy.with_name(copy.name + suffix), backend.path.with_name(backend.path.name + suffix))
    assert "1 commit is missing" in (why(backend.path) or "")


def test_an_older_point_in_the_database_is_noticed(backend: SqliteBackend, store: Store) -> None:
    """The record in the database goes back with the rows; the anchor does not."""
    rich_session(store)
    [point], [head] = backend.rows("freshness"), backend.rows("sessions")
    done(store, step("session-1", 1, 4, event("e")))
    for table, row in (("freshness", point), ("sessions", head)):
        for column, value in row.items():
            backend.change(table, 0, column, value)
    store.close()
    assert "1 commit is missing" in (why(backend.path) or "")


def test_a_changed_record_or_anchor_is_noticed(backend: SqliteBackend, store: Store) -> None:
    """Neither says anything without its MAC."""
    rich_session(store)
    counter = backend.rows("freshness")[0]["counter"]
    backend.change("freshness", 0, "counter", counter + 1)
    store.close()
    assert "record" in (why(backend.path) or "")
    backend.change("freshness", 0, "counter", counter)
    assert why(backend.path) is None
    for half in range(2):
        flip(anchor_of(backend.path), half * 40 + 20)
    assert "does not verify" in (why(backend.path) or "")


def test_a_file_that_is_put_back_while_it_is_served_takes_no_more_writes(
    backend: SqliteBackend, store: Store, tmp_path: Path
) -> None:
    """Whoever serves it notices at the next commit."""
    rich_session(store)
    [point] = backend.rows("freshness")
    done(store, step("session-1", 1, 4, event("e")))
    for column, value in point.items():
        backend.change("freshness", 0, column, value)
    with pytest.raises(StoreSuspended):
        tried(store, [step("session-1", 1, 5, event("f"))])
    with pytest.raises(StoreSuspended):
        store.inbox.ingest([sample_item("session-9")], NOW)


# --- suspended --------------------------------------------------------------------------------------------


@pytest.fixture
def suspended(backend: SqliteBackend, store: Store) -> Iterator[Store]:
    """A store that opens suspended."""
    busy(store)
    store.close()
    anchor_of(backend.path).unlink()
    found = backend.open()
    yield found
    found.close()


WRITES: dict[str, Callable[[Store], object]] = {
    "commit": lambda store: tried(store, [step("session-1", 1, 4 + STEPS, event("x"))]),
    "create": lambda store: tried(store, [new_session("session-3", None, event("a"))]),
    "claim": lambda store: claim(store, "session-1", store.register("bot"), NOW),
    "ingest": lambda store: store.inbox.ingest([sample_item("session-3")], NOW),
    "consume": lambda store: store.consume((), NOW, [DropLock("lock", "session-1")]),
    "quarantine": lambda store: store.quarantine("session-1", "why", NOW),
    "release": lambda store: store.sessions.release("session-1"),
    "mark": lambda store: store.marks.move("thread", "1.0"),
    "delete": lambda store: store.sessions.delete(["session-1"]),
    "bind": lambda store: store.bind("T1", "A1"),
}


@pytest.mark.parametrize("name", WRITES)
def test_nothing_is_written_to_a_suspended_store(suspended: Store, name: str) -> None:
    """Nobody claims, commits or ingests; everything can be read."""
    with pytest.raises(StoreSuspended, match="sayso store release"):
        WRITES[name](suspended)
    assert suspended.sessions.load("session-1").head.seq == 4 + STEPS


async def test_whoever_waits_for_a_write_is_told_once(suspended: Store) -> None:
    """Each waiter gets an error of its own, which says what the first one says."""
    queue = Writer(suspended)
    queue.start()
    with pytest.raises(StoreSuspended) as refused:
        await queue.ingest([sample_item("session-3")], NOW)
    queue.close()
    assert str(refused.value).count("The store is suspended") == 1


def test_a_suspended_store_sends_nothing_but_its_notices(suspended: Store) -> None:
    """Intents of an older time may have been sent already; what tells people is sent, and recorded."""
    assert suspended.outbox.due(now=at(99)) == []
    notice = PutOutbox("told", "T1:C1:1.0", "note", b"{}")
    suspended.outbox.give_notice([notice, notice], NOW)
    [row] = suspended.outbox.due(now=at(99))
    suspended.outbox.attempt(row.id, 0, NOW)
    assert suspended.outbox.finish(row.id, row.rev, now=NOW, state="sent")
    suspended.outbox.give_notice([notice], NOW)
    assert suspended.outbox.due(now=at(99)) == []


def test_what_is_told_meanwhile_does_not_make_it_newer(
    backend: SqliteBackend, store: Store, tmp_path: Path
) -> None:
    """However many notices are written, the missing commits stay missing."""
    rich_session(store)
    older = killed(backend, tmp_path, "older")
    done(store, step("session-1", 1, 4, event("e")))
    anchor_of(older).write_bytes(anchor_of(backend.path).read_bytes())
    found = open_sqlite(older, key=KEY)
    for number in range(3):
        found.outbox.give_notice([PutOutbox(f"told-{number}", "T1:C1:1.0", "note", b"{}")], NOW)
    found.close()
    assert "1 commit is missing" in (why(older) or "")


def test_a_person_releases_it(backend: SqliteBackend, suspended: Store) -> None:
    """From then on what is stored counts, for whoever has it open too; notices that were not sent are dropped."""
    suspended.outbox.give_notice([PutOutbox("told", "T1:C1:1.0", "note", b"{}")], NOW)
    other = backend.open()
    other.unsuspend()
    assert suspended.suspended() is None
    assert "suspended:told" not in [row.key for row in suspended.outbox.due(now=at(99))]
    done(suspended, step("session-1", 1, 4 + STEPS, event("x")))
    done(other, step("session-1", 1, 5 + STEPS, event("y")))
    other.close()
    suspended.close()
    assert why(backend.path) is None


# --- backup and restore -----------------------------------------------------------------------------------


def test_a_backup_of_a_served_store_restores_and_opens_suspended(
    backend: SqliteBackend, store: Store, tmp_path: Path
) -> None:
    """It holds everything that was committed; what came after it is not believed to be there."""
    busy(store)
    whole = store.sessions.load("session-1")
    back_up(backend.path, tmp_path / "backup")
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600
    done(store, step("session-1", 1, 4 + STEPS, event("later")))
    store.close()
    kept = restore(backend.path, tmp_path / "backup", KEY, "now")
    assert kept is not None
    assert kept.exists()
    assert "older" in (why(backend.path) or "")
    found = backend.open()
    assert found.sessions.load("session-1") == whole
    found.unsuspend()
    done(found, step("session-1", 1, 4 + STEPS, event("again")))
    found.close()
    assert why(backend.path) is None


def test_a_restore_is_suspended_even_where_nothing_is_missing(
    backend: SqliteBackend, store: Store, tmp_path: Path
) -> None:
    """Also on another machine, where no anchor was: only a person knows what was done since."""
    busy(store)
    back_up(backend.path, tmp_path / "backup")
    store.close()
    restore(backend.path, tmp_path / "backup", KEY, "now")
    assert why(backend.path) is not None
    elsewhere = tmp_path / "elsewhere" / "sayso.db"
    assert restore(elsewhere, tmp_path / "backup", KEY, "now") is None
    assert why(elsewhere) is not None


def test_a_restore_refuses_what_it_cannot_vouch_for(
    backend: SqliteBackend, store: Store, tmp_path: Path
) -> None:
    """A served database, another key, a damaged copy, a file of something else: nothing is changed."""
    rich_session(store)
    backup = tmp_path / "backup"
    back_up(backend.path, backup)
    with pytest.raises(StorageError, match="in use by bot"):
        restore(backend.path, backup, KEY, "now")
    store.close()
    with pytest.raises(KeyMissing):
        restore(backend.path, backup, b"another key of 32 bytes or so...", "now")
    other = tmp_path / "other"
    apsw.Connection(str(other)).execute("CREATE TABLE t (x)")
    with pytest.raises(StorageError, match="not a database of sayso"):
        restore(backend.path, other, KEY, "now")
    with pytest.raises(StorageError, match="exists"):
        back_up(backend.path, backup)
    assert why(backend.path) is None


def test_the_anchor_is_refused_where_others_may_write_it(backend: SqliteBackend, store: Store) -> None:
    """It is as private as the database."""
    store.close()
    anchor_of(backend.path).chmod(0o666)
    with pytest.raises(StorageError, match="chmod 600"):
        backend.open()


def test_an_anchor_that_cannot_be_written_does_not_fail_the_commit(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was committed is durable; that the anchor is behind is logged."""

    def refuse(anchor: Anchor, point: object, *, alone: bool) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Anchor, "move", refuse)
    rich_session(store)
    assert "could not be written" in caplog.text


# --- seeded faults ----------------------------------------------------------------------------------------

Check = Callable[[SqliteBackend, Store, Path], None]
FAULTS: dict[str, tuple[type, str, Callable[..., object], Check]] = {
    "the anchor is not written": (Anchor, "move", lambda *_, **__: None, test_a_deleted_log_is_noticed),
    "the anchor is not looked at": (Anchor, "newest", lambda anchor: None, test_a_deleted_log_is_noticed),
    "a suspended store is served": (
        Freshness,
        "begin",
        lambda freshness, *, suspended: None,
        test_a_file_that_is_put_back_while_it_is_served_takes_no_more_writes,
    ),
    "commits are not counted": (
        Freshness,
        "advance",
        lambda freshness: None,
        test_a_file_that_was_put_back_is_noticed,
    ),
}
"""Each fault, and the test that finds it."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_seeded_fault_is_seen(
    backend: SqliteBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Its test fails with it."""
    kind, name, wrong, check = FAULTS[fault]
    monkeypatch.setattr(kind, name, wrong)
    backend.path.parent.mkdir(mode=0o700)
    store = backend.open()
    with pytest.raises((AssertionError, StorageError, pytest.fail.Exception)):
        check(backend, store, tmp_path)
    store.close()
