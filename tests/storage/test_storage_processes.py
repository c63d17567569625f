"""Several processes on one database of SQLite: death is noticed at once, and what is stored is stored whole. Their races are in
`test_storage_races`."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from engine.journal.records import Timer
from engine.language.errors import Fenced, Owned, StorageError
from engine.storage.sqlite import SqliteStore, open_sqlite
from tests.storage.storagekit import (
    KEY,
    NOW,
    claim,
    done,
    event,
    head_of,
    new_session,
    python,
    step,
    tell,
    tried,
)
from tests.support.prefork import Forked

pytestmark = pytest.mark.process

WORKER = """
import sys
from tests.storage.storagekit import KEY, done, event, new_session, outcome, step
from engine.storage.sqlite import open_sqlite

store = open_sqlite(sys.argv[1], key=KEY)
owner = store.register("bot")
print("ready", flush=True)
for line in sys.stdin:
    word, name = line.split()
    commit = new_session(name, owner, event("a")) if word == "create" else step(name, 1, 1, event("b"))
    found = outcome(lambda: done(store, commit))
    print(found.__name__ if isinstance(found, type) else found, flush=True)
"""
OPENS = """
import sys
from tests.storage.storagekit import NOW
from engine.journal.records import InboxItem
from engine.storage.sqlite import open_sqlite

store = open_sqlite(sys.argv[1])
store.inbox.ingest([InboxItem("m", "message", b"{}")], NOW)
print(store.sign("test", b"").hex())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the database of a test stands."""
    return tmp_path / "sayso.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    """This process's connection."""
    store = open_sqlite(path, key=KEY)
    yield store
    store.close()


@pytest.fixture
def worker(path: Path, store: SqliteStore) -> Iterator[Forked]:
    """Another process on the same database."""
    process = python(WORKER, str(path))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    with suppress(OSError):
        process.communicate(timeout=30)


def test_a_killed_owners_session_can_be_claimed_at_once(store: SqliteStore, worker: Forked) -> None:
    """After kill -9 the session is an orphan, a claim raises its epoch, and the dead one's commit is fenced."""
    ours = store.register("cli")
    assert tell(worker, "create session-1") == "None"
    with pytest.raises(Owned):
        claim(store, "session-1", ours, NOW)
    assert store.sessions.orphans() == []
    worker.kill()
    worker.wait()
    assert store.sessions.orphans() == ["session-1"]
    assert store.serving() == ["cli"]
    assert claim(store, "session-1", ours, NOW) == 2
    [error] = tried(store, [step("session-1", 1, 1, event("zombie"))])
    assert isinstance(error, Fenced)
    assert list(store.sessions.journal("session-1")) == [event("a")]


def test_a_stopped_process_is_alive(store: SqliteStore, worker: Forked) -> None:
    """A process that merely hangs keeps its sessions: it may wake up."""
    assert tell(worker, "create session-1") == "None"
    worker.send_signal(signal.SIGSTOP)
    with pytest.raises(Owned):
        claim(store, "session-1", store.register("cli"), NOW)
    worker.send_signal(signal.SIGCONT)
    assert tell(worker, "step session-1") == "None"


def test_files_of_dead_owners_are_removed(path: Path, store: SqliteStore, worker: Forked) -> None:
    """Owner files do not pile up after crashes."""
    worker.kill()
    worker.wait()
    folder = path.parent / "owners" / "sayso.db"
    assert len(list(folder.iterdir())) == 1
    store.register("cli")
    assert [file.name.split("-")[0] for file in folder.iterdir()] == ["cli"]


def test_two_that_ask_do_not_mistake_each_other_for_the_owner(
    path: Path, store: SqliteStore, worker: Forked
) -> None:
    """While somebody else looks whether an owner is dead, it is dead for us too."""
    assert tell(worker, "create session-1") == "None"
    worker.kill()
    worker.wait()
    head = head_of(store, "session-1")
    with (path.parent / "owners" / "sayso.db" / f"{head.owner}.lock").open() as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        assert store.sessions.orphans() == ["session-1"]


def test_a_fenced_process_goes_on_with_what_it_may(store: SqliteStore, worker: Forked) -> None:
    """A process that is fenced in one session continues its other sessions."""
    assert tell(worker, "create session-1") == "None"
    assert tell(worker, "create session-2") == "None"
    store.quarantine("session-1", "set aside", NOW)
    assert tell(worker, "step session-1") == "Fenced"
    assert tell(worker, "step session-2") == "None"


@pytest.mark.parametrize("changes", [1, 2, 3, 4])
def test_killed_between_two_rows_of_a_commit_leaves_nothing_of_it(path: Path, changes: int) -> None:
    """A process killed after any row of a commit (head, events, snapshot, timer) leaves what was committed before it."""
    child = os.fork()
    if child == 0:
        writing = open_sqlite(path, key=KEY)
        done(writing, new_session("session-1", None, event("a"), snapshot=b"1"))
        seen: list[str] = []

        def changed(kind: int, database: str, table: str, row: int) -> None:
            seen.append(table)
            if len(seen) == changes:
                os.kill(os.getpid(), signal.SIGKILL)

        writing._db.raw.set_update_hook(changed)
        rows = (Timer("t", "session-1", "x"),)
        done(writing, step("session-1", 1, 1, event("b"), event("c"), rows=rows, snapshot=b"3"))
        os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    store = open_sqlite(path, key=KEY)
    assert (list(store.sessions.journal("session-1")), store.timers.rows()) == ([event("a")], [])
    loaded = store.sessions.load("session-1")
    assert (loaded.snapshot, loaded.snapshot_seq) == (b"1", 1)
    store.close()


def test_a_new_database_may_be_opened_by_many_at_once(path: Path) -> None:
    """Key, schema and log are made once, by whoever comes first."""
    processes = [python(OPENS, str(path)) for _ in range(8)]
    signatures = {process.communicate(timeout=30)[0] for process in processes}
    [signature] = signatures
    assert bytes.fromhex(signature)
    with pytest.raises(StorageError):
        open_sqlite(path, key=b"x" * 32)
