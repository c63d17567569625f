"""Several processes on one database: races have one winner, and death is noticed at once."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from engine.journal.records import InboxItem, Timer
from engine.language.errors import Fenced, Owned, StorageError
from engine.storage.sqlite import SqliteStore, open_sqlite
from tests.storage.storagekit import KEY, NOW, claim, done, event, new_session, python, step, tell, tried
from tests.support.prefork import Forked

pytestmark = pytest.mark.process

WORKER = """
import sys
from tests.storage.storagekit import KEY, NOW, claim, done, event, new_session, outcome, step
from engine.journal.records import Consumed, InboxItem
from engine.storage.sqlite import open_sqlite

store = open_sqlite(sys.argv[1], key=KEY)
owner = store.register("bot")
print("ready", flush=True)
for line in sys.stdin:
    word, *args = line.split()
    if word == "claim":
        found = outcome(lambda: claim(store, args[0], owner, NOW))
    elif word == "create":
        found = outcome(lambda: done(store, new_session(args[0], owner, event("a"))))
    elif word == "step":
        found = outcome(lambda: done(store, step(args[0], int(args[1]), int(args[2]), event(args[3]))))
    elif word == "ingest":
        found = outcome(lambda: store.inbox.ingest([InboxItem(args[0], "message", b"{}")], NOW)[0])
    elif word == "take":
        found = outcome(lambda: store.consume([Consumed(int(args[0]), "applied")], NOW))
    else:
        found = store.serving()
    print(found.__name__ if isinstance(found, type) else found, flush=True)
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


def start(path: Path) -> Forked:
    return python(WORKER, str(path))


def ready(process: Forked) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"


@pytest.fixture
def worker(path: Path, store: SqliteStore) -> Iterator[Forked]:
    """Another process on the same database."""
    process = start(path)
    ready(process)
    yield process
    finish(process)


def finish(process: Forked) -> None:
    with suppress(OSError):
        process.communicate(timeout=30)


def ask_all(processes: list[Forked], line: str) -> list[str]:
    """Send a line to all before hearing any, so that they race."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()
    return [process.stdout.readline().strip() for process in processes if process.stdout]


def test_eight_processes_race_and_one_wins(path: Path) -> None:
    """If eight processes open, create, claim, ingest or consume at once, exactly one succeeds each time."""
    processes = [start(path) for _ in range(8)]
    for process in processes:
        ready(process)
    store = open_sqlite(path, key=KEY)
    for n in range(5):
        done(store, new_session(f"session-{n}", None, event("a")))
        assert sorted(ask_all(processes, f"claim session-{n}")) == ["2"] + ["Owned"] * 7
        assert sorted(ask_all(processes, f"create session-new-{n}")) == ["Fenced"] * 7 + ["None"]
        assert sorted(ask_all(processes, f"step session-{n} 2 1 x")) == ["Fenced"] * 7 + ["None"]
        assert sorted(ask_all(processes, f"ingest m{n}")) == sorted([str(n + 1)] + ["None"] * 7)
        assert sorted(ask_all(processes, f"take {n + 1}")) == ["Fenced"] * 7 + ["None"]
        assert list(store.sessions.journal(f"session-{n}")) == [event("a"), event("x")]
    assert store.serving() == ["bot"] * 8
    for process in processes:
        finish(process)
    assert store.serving() == []
    store.close()


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
    assert tell(worker, "step session-1 1 1 b") == "None"


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
    head = store.sessions.head("session-1")
    assert head is not None
    with (path.parent / "owners" / "sayso.db" / f"{head.owner}.lock").open() as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        assert store.sessions.orphans() == ["session-1"]


def test_commits_of_other_processes_are_noticed(store: SqliteStore, worker: Forked) -> None:
    """A message that another process stored is seen by asking, once."""
    assert store.changed() in (True, False)
    assert not store.changed()
    assert tell(worker, "ingest m1") == "1"
    assert store.changed()
    assert not store.changed()
    assert [row.key for row in store.inbox.rows()] == ["m1"]


def test_a_fenced_process_goes_on_with_what_it_may(store: SqliteStore, worker: Forked) -> None:
    """A process that is fenced in one session continues its other sessions."""
    assert tell(worker, "create session-1") == "None"
    assert tell(worker, "create session-2") == "None"
    store.quarantine("session-1", "set aside", NOW)
    assert tell(worker, "step session-1 1 1 b") == "Fenced"
    assert tell(worker, "step session-2 1 1 b") == "None"


def test_killed_while_writing_leaves_whole_commits(path: Path, store: SqliteStore) -> None:
    """A process killed in the middle of its commits leaves each of them whole or not at all."""
    script = """
import sys
from tests.storage.storagekit import KEY, done, event, new_session, step
from engine.journal.records import InboxItem, Timer
from engine.storage.sqlite import open_sqlite
store = open_sqlite(sys.argv[1], key=KEY)
done(store, new_session("session-1", store.register("bot"), event("a"), event("a")))
for seq in range(2, 100_000, 2):
    timer = Timer(f"t{seq}", "session-1", "x")
    done(store, step("session-1", 1, seq, event("b"), event("c"), rows=(timer,)))
    print(seq + 2, flush=True)
"""
    process = python(script, str(path))
    assert process.stdout is not None
    for _ in range(20):
        said = int(process.stdout.readline())
    process.kill()
    said = max([said, *(int(line) for line in process.stdout.read().splitlines() if line)])
    events = list(store.sessions.journal("session-1"))
    assert len(events) in (said, said + 2)
    assert len(store.timers.rows(limit=100_000)) == len(events) // 2 - 1
    store.inbox.ingest([InboxItem("after", "message", b"{}")], NOW)


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
    assert (store.sessions.load("session-1").snapshot, store.sessions.load("session-1").snapshot_seq) == (
        b"1",
        1,
    )
    store.close()


def test_a_new_database_may_be_opened_by_many_at_once(path: Path) -> None:
    """Key, schema and log are made once, by whoever comes first."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(4) as pool:
        signatures = pool.map(_open_and_sign, [str(path)] * 8)
    assert len(set(signatures)) == 1
    with pytest.raises(StorageError):
        open_sqlite(path, key=b"x" * 32)


def _open_and_sign(path: str) -> bytes:
    store = open_sqlite(path)
    store.inbox.ingest([InboxItem("m", "message", b"{}")], NOW)
    signature = store.sign("test", b"")
    store.close()
    return signature
