"""The database of each home is upgraded as a whole or not at all, beside a copy of what it was: see README.md."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from engine.journal.events import decode_event
from engine.journal.fold import derive_state
from engine.language.errors import Corrupt
from engine.run.stored import stored_state
from engine.storage.open import open_store
from engine.storage.port import Store
from engine.storage.schema import STEPS, version_of
from engine.storage.sqlite import back_up, restore
from tests.homes.corpus import FOLDER, unpacked

HOMES = sorted(path.name.removesuffix(".tar.gz") for path in FOLDER.glob("*.tar.gz"))
KILLED = """
import os, signal, sys
from engine.storage import schema
from engine.storage.open import open_store

def cut(found, name, before):
    def call(*given):
        if not before:
            found(*given)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(schema, name, call)

cut(getattr(schema, sys.argv[2]), sys.argv[2], sys.argv[3] == "before")
open_store(f"sqlite:///{sys.argv[1]}", None)
"""


@pytest.fixture(params=HOMES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The database of a home, as its release left it."""
    return next(unpacked(request.param, tmp_path).rglob("sayso.db"))


def opened(database: Path) -> Store:
    return open_store(f"sqlite:///{database}", None)


def plainly(database: Path) -> apsw.Connection:
    """A plain connection, as another program would have."""
    return apsw.Connection(str(database))


def events_before(database: Path) -> dict[str, list[bytes]]:
    """The events that stand in a database of an older release, by session."""
    db = plainly(database)
    assert version_of(db) < len(STEPS)
    found: dict[str, list[bytes]] = {}
    for session_id, body in db.execute("SELECT session_id, body FROM journal ORDER BY session_id, seq"):
        found.setdefault(str(session_id), []).append(bytes(body))
    db.close()
    return found


def test_every_event_is_there_and_every_state_the_same(database: Path) -> None:
    """Byte for byte, verified; the store is as new as its anchor says, and nothing is set aside."""
    before = events_before(database)
    store = opened(database)
    assert (store.suspended(), store.stale()) == (None, None)
    heads = store.heads(limit=None)
    assert sorted(head.session_id for head in heads) == sorted(before)
    for head in heads:
        rows = list(store.journal(head.session_id))
        assert (rows, head.quarantined) == (before[head.session_id], None)
        assert stored_state(store, head.session_id) == derive_state(map(decode_event, rows))
    store.close()


def test_the_copy_beside_it_is_what_it_was(database: Path) -> None:
    """Whoever goes back to the older release finds all of it there."""
    before, version = events_before(database), version_of(plainly(database))
    opened(database).close()
    copy = database.with_name(f"{database.name}.v{version}.bak")
    assert events_before(copy) == before
    assert copy.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("name", "when"),
    [("copy_to", "before"), ("copy_to", "after"), ("take_steps", "before"), ("take_steps", "after")],
)
@pytest.mark.parametrize("database", ["6520e98"], indirect=True)
def test_an_upgrade_that_is_killed_begins_anew(database: Path, name: str, when: str) -> None:
    """Around the copy and around the steps: the file is the old one then, and the next opening upgrades it."""
    before = events_before(database)
    script = [sys.executable, "-c", KILLED, str(database), name, when]
    assert subprocess.run(script, env=dict(os.environ), check=False).returncode == -signal.SIGKILL
    assert events_before(database) == before
    store = opened(database)
    assert {head.session_id: list(store.journal(head.session_id)) for head in store.heads()} == before
    assert store.suspended() is None
    store.close()


def test_what_was_damaged_before_is_damaged_after(database: Path) -> None:
    """An upgrade takes nothing for true that did not verify: rows are carried over with the MACs that they had."""
    db = plainly(database)
    session_id, seq = db.execute("SELECT session_id, seq FROM journal ORDER BY session_id, seq").fetchall()[1]
    db.execute(
        "UPDATE journal SET body = CAST(body || x'20' AS BLOB) WHERE session_id = ? AND seq = ?",
        (session_id, seq),
    )
    db.close()
    store = opened(database)
    with pytest.raises(Corrupt):
        store.journal(session_id)
    for head in store.heads(limit=None):
        if head.session_id != session_id:
            assert len(list(store.journal(head.session_id))) == head.seq
    store.close()


@pytest.mark.parametrize("database", ["6520e98"], indirect=True)
def test_a_backup_of_an_older_release_is_put_back(database: Path) -> None:
    """It is upgraded like the database that it was, opens suspended, and goes on once a person has said so."""
    backup = database.with_name("older.db")
    back_up(database, backup)
    before = events_before(backup)
    opened(database).close()
    restore(database, backup, None, "now")
    store = opened(database)
    assert "older than what was acknowledged" in (store.suspended() or "")
    store.unsuspend()
    assert {head.session_id: list(store.journal(head.session_id)) for head in store.heads()} == before
    store.close()
