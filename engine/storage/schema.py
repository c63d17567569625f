"""The schema of a database, and how one of an older release becomes one of this release.

Migrations go forward only: `user_version` counts the steps that a file has taken. A file that
has taken more than this release knows is refused before anything is written to it. Before an older file is
changed it is copied beside itself (`<name>.v<version>.bak`), and it is not changed while a process of the
older release still serves it.

Sizes and keys: `n` and `id` give the order in which rows came to be. A journal row has the events of one commit, packed
(`engine.storage.packing`); its `seq` is that of the first one. Journal rows are in the order of their commits and are found by
a number made of the session's id. Beside a pinned text, which its digest holds, stands what a release made of it
(`engine.flow.form`), under a MAC of its own. Ids of inbox and outbox rows are never used again (AUTOINCREMENT),
since readers hold them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw

from engine.language.errors import SchemaTooNew, StoreTooOld
from engine.storage.errors import UpgradeInUse
from engine.storage.private_files import check_private, make_private, sync_directory

V1 = """
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    mac BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE flows (
    digest TEXT PRIMARY KEY,
    body BLOB NOT NULL,
    release TEXT,
    form BLOB,
    mac BLOB
) STRICT;

CREATE TABLE sessions (
    n INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL UNIQUE,
    flow_name TEXT NOT NULL,
    flow_digest TEXT NOT NULL,
    parent_session_id TEXT,
    thread_key TEXT,
    status TEXT NOT NULL,
    phase TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    owner TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    ended_at TEXT,
    origin BLOB NOT NULL,
    chain BLOB NOT NULL,
    mac BLOB NOT NULL
) STRICT;
CREATE INDEX sessions_status ON sessions (status, n);
CREATE INDEX sessions_thread ON sessions (thread_key, n) WHERE thread_key IS NOT NULL;
CREATE INDEX sessions_flow ON sessions (flow_digest);
CREATE INDEX sessions_ended ON sessions (ended_at, n) WHERE ended_at IS NOT NULL;

CREATE TABLE quarantine (
    session_id TEXT PRIMARY KEY,
    reason TEXT NOT NULL,
    at TEXT NOT NULL,
    mac BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE journal (
    n INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    version INTEGER NOT NULL,
    body BLOB NOT NULL,
    mac BLOB NOT NULL,
    UNIQUE (session, seq)
) STRICT;

CREATE TABLE snapshots (
    session_id TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,
    chain BLOB NOT NULL,
    body BLOB NOT NULL,
    mac BLOB NOT NULL
) STRICT;

CREATE TABLE inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    payload BLOB NOT NULL,
    session_id TEXT,
    thread_key TEXT,
    received_at TEXT NOT NULL,
    outcome TEXT,
    result BLOB,
    mac BLOB NOT NULL
) STRICT;
CREATE INDEX inbox_open ON inbox (id) WHERE outcome IS NULL;
CREATE INDEX inbox_dead ON inbox (id) WHERE outcome = 'dead';
CREATE INDEX inbox_done ON inbox (received_at) WHERE outcome IS NOT NULL;

CREATE TABLE prompts (
    n INTEGER PRIMARY KEY,
    prompt_id TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL,
    thread_key TEXT,
    status TEXT NOT NULL,
    deadline TEXT,
    body BLOB NOT NULL,
    mac BLOB NOT NULL
) STRICT;
CREATE INDEX prompts_session ON prompts (session_id, status, n);
CREATE INDEX prompts_thread ON prompts (thread_key, status, n) WHERE thread_key IS NOT NULL;
CREATE INDEX prompts_status ON prompts (status, n);

CREATE TABLE timers (
    n INTEGER PRIMARY KEY,
    timer_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    due_at TEXT NOT NULL,
    mac BLOB NOT NULL,
    UNIQUE (session_id, timer_id)
) STRICT;
CREATE INDEX timers_due ON timers (due_at, n);

CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    lane TEXT NOT NULL,
    kind TEXT NOT NULL,
    payload BLOB NOT NULL,
    session_id TEXT,
    state TEXT NOT NULL,
    rev INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    not_before TEXT,
    created_at TEXT NOT NULL,
    attempted_at TEXT,
    result BLOB,
    mac BLOB NOT NULL
) STRICT;
CREATE INDEX outbox_pending ON outbox (lane, id) WHERE state = 'pending';
CREATE INDEX outbox_session ON outbox (session_id) WHERE session_id IS NOT NULL;

CREATE TABLE marks (
    scope TEXT PRIMARY KEY,
    ts TEXT NOT NULL,
    mac BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- A row is a place in a queue: the first of a name has the lock. The database itself refuses a second taker.
CREATE TABLE locks (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    session_id TEXT NOT NULL,
    requested_at TEXT NOT NULL,
    taken_at TEXT,
    mac BLOB NOT NULL,
    UNIQUE (session_id, name)
) STRICT;
CREATE INDEX locks_queue ON locks (name, n);
CREATE UNIQUE INDEX locks_taken ON locks (name) WHERE taken_at IS NOT NULL;
CREATE INDEX locks_waiting ON locks (n) WHERE taken_at IS NULL;

-- What model calls cost, in billionths of a dollar: what was set aside for each, and what it came to once that is known. The
-- rows outlive their sessions, so that deleting one makes no room in a day's budget.
CREATE TABLE spend (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL,
    path TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    flow_name TEXT NOT NULL,
    day TEXT NOT NULL,
    reserved INTEGER NOT NULL CHECK (reserved >= 0),
    cost INTEGER CHECK (cost >= 0),
    mac BLOB NOT NULL,
    UNIQUE (session_id, path, attempt)
) STRICT;
CREATE INDEX spend_day ON spend (day, cost, reserved);

-- What outlives its session and is read by others.
CREATE TABLE kept (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    kept_id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    scope TEXT NOT NULL,
    rev INTEGER NOT NULL,
    expires_at TEXT NOT NULL,
    body BLOB NOT NULL,
    mac BLOB NOT NULL
) STRICT;
CREATE INDEX kept_scope ON kept (kind, scope, n);

-- The keys that bodies are encrypted with.
CREATE TABLE data_keys (
    scope TEXT PRIMARY KEY,
    key_id TEXT NOT NULL,
    wrapped BLOB NOT NULL,
    mac BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX data_keys_id ON data_keys (key_id, scope);

-- How many transactions there were.
CREATE TABLE freshness (
    n INTEGER PRIMARY KEY CHECK (n = 1),
    counter INTEGER NOT NULL,
    mac BLOB NOT NULL
) STRICT;
"""

V2 = """
-- The audit log: leaves of a Merkle tree, never changed or deleted.
CREATE TABLE leaves (
    n INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    line TEXT NOT NULL,
    note TEXT,
    peaks BLOB,
    mac BLOB NOT NULL
) STRICT;
CREATE INDEX leaves_session ON leaves (session_id, n);
"""

STEPS: tuple[str, ...] = (V1, V2)
"""`STEPS[n]` makes version n + 1 out of version n. A step that was released is never edited."""
_OURS = 0x5361796F
"""The application id of a file of ours ("Sayo"); builds before 1.0 gave none."""


def take_steps(connection: apsw.Connection, steps: Sequence[str], taken: int = 0) -> None:
    """Take the steps after the first `taken`, in the transaction that is open."""
    for step in steps[taken:]:
        connection.execute(step)
    connection.pragma("application_id", _OURS)
    connection.pragma("user_version", len(steps))


def version_of(connection: apsw.Connection) -> int:
    """Return the number of steps this file has taken."""
    return int(connection.pragma("user_version"))


def refuse_foreign(connection: apsw.Connection, path: Path, steps: Sequence[str] = STEPS) -> None:
    """Raise `SchemaTooNew` for a file of a later release, `StoreTooOld` for one from before 1.0. Reads only."""
    version = version_of(connection)
    if version > 0 and connection.pragma("application_id") != _OURS:
        raise StoreTooOld(str(path))
    if version > len(steps):
        raise SchemaTooNew(
            f"{path} was written by a newer release (schema {version}; this one knows {len(steps)}). "
            "It was left untouched: install that release, or restore the copy made before the upgrade."
        )


def migrate(
    connection: apsw.Connection, path: Path, living: Sequence[str], steps: Sequence[str] = STEPS
) -> None:
    """Bring the file to this release in one transaction, after a copy. Only under `files.only_opener`.

    Raises `SchemaTooNew`, and `StorageError` while owners (`living`) of an older release serve the file.
    """
    refuse_foreign(connection, path, steps)
    version = version_of(connection)
    if version == len(steps):
        return
    if version > 0:
        if living:
            raise UpgradeInUse(place=path, version=version, latest=len(steps), who=", ".join(living))
        copy_to(connection, path.with_name(f"{path.name}.v{version}.bak"))
    connection.execute("BEGIN IMMEDIATE")
    try:
        take_steps(connection, steps, version)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def copy_to(connection: apsw.Connection, target: Path) -> None:
    """A whole, durable copy of a database, instead of any file of that name."""
    if check_private(target):
        target.unlink()
    make_private(target)
    copy = apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW)
    try:
        with copy.backup("main", connection, "main") as backup:
            backup.step(-1)
    finally:
        copy.close()
    sync_directory(target.absolute().parent)
