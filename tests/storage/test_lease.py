"""The lease to serve: one process at a time, and a dead one never blocks the next."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from engine.language.errors import StorageError
from engine.storage import leases
from engine.storage.leases import Holder, Served, lease, read_holder, serving

NOW = "2026-11-22T12:00:00.000Z"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """The file of a database in a private folder."""
    tmp_path.chmod(0o700)
    return tmp_path / "sayso.db"


def note(database: Path) -> Path:
    """Where the holder is written down."""
    return database.with_name(f"{database.name}.serving")


def test_a_second_one_is_told_who_serves(database: Path) -> None:
    """It says which command, which process on which machine, since when and at which address."""
    with lease(database, "sayso dev", NOW) as held:
        held.reached_at("http://127.0.0.1:8765/")
        with pytest.raises(Served) as refused, lease(database, "sayso dev", NOW):
            pass
    who = (
        f"`sayso dev`, process {os.getpid()} on {os.uname().nodename}, since {NOW} at http://127.0.0.1:8765/"
    )
    assert who in str(refused.value)


def test_the_next_one_gets_it_after_the_first(database: Path) -> None:
    """What the last holder left written does not count: only the lock does."""
    with lease(database, "sayso start", NOW):
        pass
    with lease(database, "sayso dev", NOW):
        assert read_holder(note(database)) == Holder("sayso dev", os.getpid(), os.uname().nodename, NOW)


def test_a_killed_holder_blocks_nobody(database: Path) -> None:
    """The note of a process that ended without a word names a process id that lives: it counts for nothing."""
    child = os.fork()
    if child == 0:
        with lease(database, "sayso start", NOW):
            os._exit(0)
    os.waitpid(child, 0)
    left = read_holder(note(database))
    assert left is not None
    assert left.pid == child
    with lease(database, "sayso start", NOW):
        pass


def test_a_holder_that_stops_is_waited_for(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart that overlaps with the end of the old server gets the lease once that has drained."""
    waits = threading.Event()
    monkeypatch.setattr(leases.time, "sleep", lambda seconds: waits.set())
    ready, ended = threading.Event(), threading.Event()

    def old() -> None:
        with lease(database, "sayso start", NOW) as held:
            held.stopping()
            ready.set()
            waits.wait(10)
        ended.set()

    thread = threading.Thread(target=old)
    thread.start()
    ready.wait(10)
    with lease(database, "sayso start", NOW):
        assert ended.wait(10)
    thread.join()


def test_a_holder_that_never_stops_is_not_waited_for_for_ever(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time for draining the second one refuses, and says that the first is stopping."""
    monkeypatch.setattr(leases, "STOPPING_SECONDS", 0.0)
    with lease(database, "sayso start", NOW) as held:
        held.stopping()
        with pytest.raises(Served, match="and is stopping"), lease(database, "sayso start", NOW):
            pass


def test_a_lease_that_is_not_taken_is_noticed(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seeded fault: were the file written without its lock, two would serve."""
    monkeypatch.setattr(leases, "locked", lambda descriptor: True)
    with lease(database, "sayso dev", NOW), lease(database, "sayso dev", NOW):
        pass


def test_a_lease_file_of_others_is_refused(database: Path) -> None:
    """A symbolic link in its place is not followed."""
    note(database).symlink_to("/dev/null")
    with pytest.raises(StorageError, match="not a regular file"), lease(database, "sayso dev", NOW):
        pass


def test_whoever_asks_is_told_who_serves_and_for_how_long_nothing_was_heard(database: Path) -> None:
    """The lock says whether, the last beat since when; asking changes nothing."""
    assert serving(database, 0) is None
    assert list(database.parent.iterdir()) == []
    with lease(database, "sayso start", NOW) as held:
        held.beat()
        beat = note(database).stat().st_mtime
        os.utime(note(database), (0, 0))
        found = serving(database, 75.0)
        assert found is not None
        assert (found[0].command, found[1]) == ("sayso start", 75.0)
        held.beat()
        found = serving(database, beat)
        assert found is not None
        assert found[1] <= 0
    assert serving(database, 0) is None
