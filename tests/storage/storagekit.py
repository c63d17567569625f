"""What the storage tests share: short ways to make commits, and a hand that changes stored rows from outside."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from engine.journal.records import (
    Commit,
    Conflict,
    Consumed,
    Head,
    InboxItem,
    InboxRow,
    Lost,
    NewSession,
    PromptRow,
    PutOutbox,
    Row,
    Stored,
    Sweep,
    Timer,
)
from engine.language.errors import Overtaken
from engine.storage.open import MemoryStore
from engine.storage.sqlite import open_sqlite
from engine.storage.store import Store
from tests.support import prefork

ROOT = Path(__file__).resolve().parents[2]
KEY = b"0123456789abcdef0123456789abcdef"
OUTER, OUTER_BEFORE = b"o" * 32, b"p" * 32
"""Key-encryption keys."""
FLOW = b'{"flow":"deploy"}'
FLOW_DIGEST = hashlib.sha256(FLOW).hexdigest()


def at(seconds: int) -> str:
    """A moment, as many seconds into the tests' day."""
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"2026-11-21T{hour:02}:{minute:02}:{second:02}.000Z"


NOW = at(0)


def event(text: str) -> bytes:
    """An event's bytes; the store never looks inside."""
    return b'{"type":"session:message","text":"%b"}' % text.encode()


def new_session(session_id: str, owner: str | None, *events: bytes, **changes: Any) -> Commit:
    """The commit that creates a session."""
    thread_key = changes.pop("thread_key", None)
    parent = changes.pop("parent", (None, None))
    new = NewSession("deploy", FLOW_DIGEST, FLOW, thread_key, *parent)
    values: dict[str, Any] = {"status": "running", "phase": "running", "now": NOW, **changes}
    return Commit(session_id, 1, 0, events=events, new=new, owner=owner, **values)


def step(session_id: str, epoch: int, seq: int, *events: bytes, **changes: Any) -> Commit:
    """A later commit."""
    values: dict[str, Any] = {"status": "running", "phase": "running", "now": NOW, **changes}
    return Commit(session_id, epoch, seq, events=events, **values)


def claim(store: Store, session_id: str, owner: str, now: str) -> int:
    """Claim a session with a commit that does nothing else; the new epoch."""
    while True:
        head = store.sessions.head(session_id)
        epoch, seq = (head.epoch, head.seq) if head else (0, 0)
        status, phase = (head.status, head.phase) if head else ("running", "running")
        [error] = tried(store, [Commit(session_id, epoch + 1, seq, now, status, phase, owner=owner)])
        if error is None:
            return epoch + 1
        if not isinstance(error, Overtaken):
            raise error


def done(store: Store, *commits: Commit) -> None:
    """Commit, and raise the first error."""
    for error in tried(store, commits):
        if error is not None:
            raise error


def tried(store: Store, commits: Sequence[Commit]) -> list[Exception | None]:
    """Commit; for each None where it is stored, or why it is not."""
    found: list[Exception | None] = []
    for result in store.commit(commits):
        match result:
            case Stored():
                found.append(None)
            case Conflict(reason) | Lost(reason) | reason:
                found.append(reason)
    return found


def head_of(store: Store, session_id: str) -> Head:
    """The head of a session that is there."""
    head = store.sessions.head(session_id)
    assert head is not None
    return head


def row_of(store: Store, key: str) -> InboxRow:
    """The row of the inbox under a key that is there."""
    row = store.inbox.row(key)
    assert row is not None
    return row


def outcome(work: Callable[[], object]) -> object:
    """What a call gives, or the type of what it raises."""
    try:
        return work()
    except Exception as error:
        return type(error)


def reaped(store: Store, ended_before: str, inbox_before: str) -> int:
    """Everything that a round of the retention deletes; how many sessions went."""
    gone = 0
    while found := store.sessions.ended(ended_before):
        gone += len(found)
        while found := store.sessions.delete(found):
            pass
    at: Sweep | None = Sweep(ended_before, inbox_before)
    while at is not None:
        at = store.sweep(at)
    return gone


class SqliteBackend:
    """A database in a directory of its own, as the contract suite sees it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "sayso.db"
        self._outside: apsw.Connection | None = None

    def open(self) -> Store:
        return open_sqlite(self.path, key=KEY)

    @property
    def outside(self) -> apsw.Connection:
        """A plain connection, as another program would have."""
        if self._outside is None:
            self._outside = apsw.Connection(str(self.path))
            self._outside.pragma("synchronous", "OFF")
            self._outside.set_busy_timeout(5000)
        return self._outside

    def columns(self, table: str) -> dict[str, str]:
        """Names and types of a table's columns."""
        return {
            row[1]: row[2] for row in self.outside.execute("SELECT * FROM pragma_table_info(?)", (table,))
        }

    def rows(self, table: str) -> list[dict[str, Any]]:
        columns = self.columns(table)
        chosen = ", ".join(f"CAST({c} AS BLOB)" if kind == "TEXT" else c for c, kind in columns.items())
        found = self.outside.execute(f"SELECT {chosen} FROM {table} ORDER BY 1, 2")  # noqa: S608 - our own names
        return [dict(zip(columns, row, strict=True)) for row in found]

    def _where(self, table: str, row: int) -> tuple[str, list[Any]]:
        """Finds a row by all its columns, for tables with and without row ids."""
        columns = self.columns(table)
        values = self.rows(table)[row]
        tests = [f"CAST({c} AS BLOB) IS ?" if columns[c] == "TEXT" else f"{c} IS ?" for c in columns]
        return " AND ".join(tests), list(values.values())

    def change(self, table: str, row: int, column: str, value: object) -> None:
        where, values = self._where(table, row)
        place = "CAST(? AS TEXT)" if self.columns(table)[column] == "TEXT" else "?"
        sql = f"UPDATE {table} SET {column} = {place} WHERE {where}"  # noqa: S608 - our own names
        self.outside.execute(sql, [value, *values])
        assert self.outside.changes() == 1

    def delete(self, table: str, row: int) -> None:
        where, values = self._where(table, row)
        self.outside.execute(f"DELETE FROM {table} WHERE {where}", values)  # noqa: S608 - our own names
        assert self.outside.changes() == 1


class MemoryBackend(SqliteBackend):
    """A database in memory."""

    def __init__(self, encryption_keys: Sequence[bytes] = (), key: bytes = KEY) -> None:
        self._first = MemoryStore(key, encryption_keys=encryption_keys)
        self._outside = self._first.database.connect()

    def open(self) -> Store:
        return self._first.another()

    def close(self) -> None:
        """Close the store that keeps it."""
        self._first.close()


class PostgresBackend(SqliteBackend):
    """A database on the server of this run."""

    def __init__(self, key: bytes = KEY) -> None:
        from tests.support import postgres

        self.key = key
        self.url = postgres.empty_database()
        self._raw: Any = None

    def open(self) -> Store:
        from engine.storage.postgres import open_postgres

        return open_postgres(self.url, self.key)

    @property
    def outside(self) -> Any:
        """A plain connection that takes SQLite's words where tests use them."""
        if self._raw is None:
            import psycopg

            self._raw = psycopg.connect(self.url, autocommit=True, cursor_factory=psycopg.RawCursor)
        return _InTheirWords(self._raw)

    def close(self) -> None:
        """Close the connection of `outside`."""
        if self._raw is not None:
            self._raw.close()

    def columns(self, table: str) -> dict[str, str]:
        found = self.outside.execute(
            "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = ? ORDER BY ordinal_position",
            [table],
        )
        return {name: kind.upper() for name, kind in found}

    def rows(self, table: str) -> list[dict[str, Any]]:
        columns = self.columns(table)
        found = self.outside.execute(f"SELECT * FROM {table} ORDER BY 1, 2")  # noqa: S608 - our own names
        values = [[v.encode() if type(v) is str else v for v in row] for row in found]
        return [dict(zip(columns, row, strict=True)) for row in values]

    def _where(self, table: str, row: int) -> tuple[str, list[Any]]:
        columns, values = self.columns(table), self.rows(table)[row]
        tests = [f"{c} IS NOT DISTINCT FROM ?" for c in columns]
        return " AND ".join(tests), [_typed(columns[c], v) for c, v in values.items()]

    def change(self, table: str, row: int, column: str, value: object) -> None:
        import psycopg

        where, values = self._where(table, row)
        sql = f"UPDATE {table} SET {column} = ? WHERE {where}"  # noqa: S608 - our own names
        try:
            changed = self.outside.execute(
                sql, [_typed(self.columns(table)[column], value), *values]
            ).rowcount
        except (psycopg.DataError, psycopg.IntegrityError, UnicodeDecodeError, Untypable):
            raise Refused("Postgres itself refuses such a value") from None
        assert changed == 1

    def delete(self, table: str, row: int) -> None:
        where, values = self._where(table, row)
        assert self.outside.execute(f"DELETE FROM {table} WHERE {where}", values).rowcount == 1  # noqa: S608


class PooledBackend(PostgresBackend):
    """A database on the server of this run, reached through a pooler in transaction mode."""

    def open(self) -> Store:
        from engine.storage.postgres import open_postgres
        from tests.support.pgbouncer import shared_pooler

        return open_postgres(shared_pooler(self.url).url, self.key)


class Refused(pytest.skip.Exception):
    """The database takes no such value: a test of this value alone has nothing to show, and one of many goes on."""


class Untypable(Exception):
    """A value of another type than its column has, which SQLite (outside STRICT) might take."""


def _typed(kind: str, value: object) -> object:
    if kind == "TEXT" and isinstance(value, bytes):
        return value.decode()
    if value is not None and isinstance(value, int) != (kind == "BIGINT"):
        raise Untypable(value)
    return value


class _InTheirWords:
    """A connection whose statements are translated."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Any:
        from engine.storage.postgres_words import statement

        words, picked = statement(re.sub(r"x'([0-9a-f]+)'", r"'\\x\1'::bytea", sql))
        return self._raw.execute(words, [values[index] for index in picked])


def rich_session(store: Store, session_id: str = "session-1") -> str:
    """A session with four events in three commits, a snapshot at the second, a prompt, a timer, an intent and a message."""
    owner = store.register("bot")
    rows: Sequence[Row] = sample_rows(session_id)
    first = new_session(session_id, owner, event("a"), event("b"), rows=tuple(rows), snapshot=b'{"at":2}')
    store.inbox.ingest([sample_item(session_id)], NOW)
    taken = (Consumed(1, "applied", b"{}"),) if session_id == "session-1" else ()
    done(store, first, step(session_id, 1, 2, event("c"), consumed=taken))
    done(store, step(session_id, 1, 3, event("d")))
    return owner


def sample_rows(session_id: str) -> list[Row]:
    """One of each row that follows from events."""
    return [
        PromptRow(f"prompt-{session_id}", session_id, "T1:C1:1.0", "open", at(60), b'{"ask":"?"}'),
        Timer("timer", session_id, at(60)),
        PutOutbox(f"show-{session_id}", "T1:C1", "post", b'{"text":"?"}', session_id),
    ]


def sample_item(session_id: str) -> InboxItem:
    """A message for a session."""
    return InboxItem(f"message-{session_id}", "message", b'{"text":"yes"}', session_id, "T1:C1:1.0")


def python(script: str, *args: str) -> prefork.Forked:
    """Another process that runs a script of ours, with pipes to talk to it."""
    read = ("tests.storage.storagekit",)
    return prefork.start(
        ["-c", script, *args], cwd=ROOT, env=os.environ, stdin=subprocess.PIPE, stderr=2, read=read
    )


def tell(process: prefork.Forked, line: str) -> str:
    """Send a line and wait for the answering line."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return process.stdout.readline().strip()
