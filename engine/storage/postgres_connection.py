"""One connection to Postgres, and its errors in our words.

Write transactions are READ COMMITTED: what must not overlap says so (`hold`, `for_update`), and every statement sees what
was committed before it. One that lost against another (a deadlock), or its connection, is carried out again. What is posted
goes out in a pipeline, without waiting for the answer of what went before it. Reads are REPEATABLE READ.

Nothing is set in a session, for behind a pooler each transaction may be carried out by another one. A connection that is lost
is made again at the next use. Where it was lost while COMMIT was in progress, the server is asked what became of the transaction:
nothing is said to have failed that was stored, nor the other way round. So each transaction writes its number beside the name
of its connection.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import psycopg
from psycopg import errors

from engine.language.errors import Corrupt, RowRefused, StorageBroken, StorageBusy, StorageError, StorageFull
from engine.storage.backoff import delays
from engine.storage.database import Database, Refusal, SqlValue, WriteWatch
from engine.storage.errors import (
    ConnectionLost,
    DatabaseRefused,
    ForeignTables,
    NotTheOwner,
    StoreClosed,
    TransactionUndone,
)
from engine.storage.postgres_connect import connect, shown, told
from engine.storage.postgres_words import lock_number, of_many, statement

_log = logging.getLogger("sayso.storage")
logging.getLogger("psycopg").setLevel(logging.ERROR)  # what it warns of is raised too
T = TypeVar("T")

UNSURE_SECONDS = 60.0
"""Seconds for which a command asks for the outcome of a COMMIT with a lost response; a server asks until it is known."""
READ_AT_ONCE = 250
"""Rows that are read together."""
ATTEMPTS = 20
"""Tries of a transaction that loses against others."""
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_SET = """SELECT set_config('lock_timeout', '5s', true),
 set_config('idle_in_transaction_session_timeout', '10s', true),
 set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)"""
"""For this transaction alone: nothing lasts in a session, since behind a pooler the next one may have another."""
_BEGIN_SET = "; ".join((_BEGIN, _SET))
_BEGIN_READ_SET = f"""{_BEGIN_READ}; SET LOCAL lock_timeout = '5s';
 SET LOCAL idle_in_transaction_session_timeout = '10s'"""
_COUNTED = "SELECT nextval('changes')"
"""Behind each COMMIT: others look at `changes` for whether there is anything new."""
_TELL = "SELECT pg_notify('sayso ' || hashtext(current_schema()), '')"
_COUNTED_AND_TELL = _TELL.replace("SELECT", "SELECT nextval('changes'),")
"""A transaction that notifies is committed under a lock of the whole server. So it is one of its own, with nothing to sync."""
_CHANGES = "SELECT last_value FROM changes"
_NUMBERED = """INSERT INTO transactions AS last (writer, n, at) SELECT $1::text, $2::bigint, now()
 ON CONFLICT (writer) DO UPDATE SET n = greatest(last.n, excluded.n), at = excluded.at RETURNING n"""
"""With 0 it only asks, and waits for a transaction of this writer that is still in progress. The server's own ids would not do:
after a crash or on a standby that took over it gives one that was lost to another transaction."""
_SET_NUMBERED = _NUMBERED.replace(" ON CONFLICT", f" FROM ({_SET}) AS settings ON CONFLICT")
_FORGET = "DELETE FROM transactions WHERE writer = $1"
_FORGET_KILLED = "DELETE FROM transactions WHERE at < now() - interval '1 day'"
_HOLD = """WITH found AS (SELECT 1 FROM holds WHERE n = $1::bigint FOR UPDATE)
 INSERT INTO holds SELECT $1::bigint WHERE NOT EXISTS (SELECT 1 FROM found) ON CONFLICT (n) DO UPDATE SET n = excluded.n"""
"""Rows, not advisory locks: any role that may connect can take those, and keep them."""
_HOLD_SHARED = _HOLD.replace("FOR UPDATE", "FOR SHARE")
_FORGET_HOLDS = "DELETE FROM holds WHERE n IN (SELECT n FROM holds FOR UPDATE SKIP LOCKED)"
_NEXT = "SELECT nextval(pg_get_serial_sequence($1, $2))"


class Overlapped(StorageBusy):
    """A transaction lost against another one; carried out again it may not."""


class Outage:
    """A server outage with its start, logged once when it begins and once when it ends, for all connections together."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._gate = threading.Lock()
        self._without: set[str] = set()
        """Those of this process whom the server does not answer."""
        self._since = 0.0

    def failed(self, who: str, error: BaseException) -> None:
        """The server does not answer one of this process."""
        with self._gate:
            if not self._without:
                self._since = time.monotonic()
                _log.warning(
                    "%s does not answer (%s): work waits", self._place, told(error.__cause__ or error)
                )
            self._without.add(who)

    def answered(self, who: str) -> bool:
        """The server answers one of this process. True if that ends the outage."""
        with self._gate:
            if self._without != {who}:
                self._without.discard(who)
                return False
            self._without.clear()
            _log.warning("%s answers again after %.0f s", self._place, time.monotonic() - self._since)
        return True


class PostgresConnection(Database):
    """A connection. Threads may share it; their transactions run one after the other."""

    refused = (errors.IntegrityError, errors.DataError, errors.ProgramLimitExceeded)
    unreadable = ()
    for_update = " FOR UPDATE"
    laned = True

    def __init__(self, url: str) -> None:
        """Raises `StorageError`."""
        self.watch: WriteWatch = WriteWatch()
        self.url = url
        self.outage = Outage(shown(url))
        self.unsure_seconds = UNSURE_SECONDS
        """Seconds for which the outcome of a COMMIT with a lost response is asked for."""
        self.broken: str | None = None
        """Why this process must end, once it must."""
        self._lock = threading.RLock()
        self._closed = False
        self._inside = False
        self._own = 0
        self._writer = os.urandom(8).hex()
        self._number = 0
        self._pipeline: psycopg.Pipeline | None = None
        self._posted: list[tuple[psycopg.Cursor[tuple[Any, ...]], int, Refusal]] = []
        self._tell = False
        self.writing = False
        """True while a write transaction is open."""
        self.raw, self.schema, self.pooled = connect(url)

    def close(self) -> None:
        """See `Database.close`."""
        with self._lock:
            self._closed = True
            if self._number and self.broken is None:
                with contextlib.suppress(psycopg.Error):
                    self.raw.execute(_FORGET, (self._writer,))
            self.raw.close()

    # -- transactions

    @contextlib.contextmanager
    def write(self, *, suspended: bool = False) -> Iterator[None]:
        """See `Database.write`."""
        with self._writing(suspended):
            yield

    @contextlib.contextmanager
    def _writing(self, suspended: bool, *, piped: bool = False) -> Iterator[None]:
        with self._lock:
            self._usable()
            self.watch.begin(suspended=suspended)
            self.transactions += 1
            self._committing = False
            with self.translated(), self._committed(), self._piped() if piped else contextlib.nullcontext():
                self._first(lambda: self.raw.execute(_BEGIN if piped else _BEGIN_SET))
                self._inside = True
                self._number += 1
                self._tell, self.writing = False, True
                try:
                    # Where no answer is waited for at the begin, else at the end, when the table is there.
                    if piped:
                        self._note(_SET_NUMBERED)
                    yield
                    if not piped:
                        self._note(_NUMBERED)
                    self.settle()
                except BaseException:
                    self._roll_back()
                    raise
                finally:
                    self.writing = False
                self._committing = True
                self._end = self.raw.execute("COMMIT")
                self.raw.execute(_COUNTED_AND_TELL if self._tell else _COUNTED)

    def _note(self, words: str) -> None:
        """Write this transaction's number."""
        self.raw.execute(words, (self._writer, self._number))

    @contextlib.contextmanager
    def _piped(self) -> Iterator[None]:
        """Statements go out without waiting for the answers to those before."""
        with self.raw.pipeline() as self._pipeline:
            try:
                yield
            finally:
                self._pipeline = None

    def atomically(self, work: Callable[[], T], *, suspended: bool = False) -> T:
        """See `Database.atomically`."""
        for attempt in range(ATTEMPTS):
            try:
                with self._writing(suspended, piped=True):
                    return work()
            except (Overlapped, ConnectionLost) as error:
                if attempt == ATTEMPTS - 1:
                    raise StorageBusy(str(error)) from error
        raise AssertionError("the last attempt returns or raises")

    @contextlib.contextmanager
    def read(self, *, single: bool = False) -> Iterator[None]:
        """See `Database.read`."""
        with self._lock:
            if self._inside:
                yield
                return
            self._usable()
            with self.translated():
                if single:
                    yield
                    return
                self._first(lambda: self.raw.execute(_BEGIN_READ_SET))
                self._inside = True
                try:
                    yield
                finally:
                    self._roll_back()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """See `Database.alone`."""
        with self.read(single=True):
            self.watch.begin(suspended=False)
            self._tell = False
            yield
            if self._tell:
                self.raw.execute(_TELL)

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """See `Database.savepoint`."""
        self.raw.execute("SAVEPOINT part")
        try:
            yield
        except BaseException:
            self._drop_posted()
            if not self.raw.closed:
                self.raw.execute("ROLLBACK TO SAVEPOINT part")
                self.raw.execute("RELEASE SAVEPOINT part")
            raise
        self.raw.execute("RELEASE SAVEPOINT part")

    def _first(self, send: Callable[[], T]) -> T:
        """Send a statement, on a new connection where this one was lost while no transaction was open."""
        try:
            return send()
        except psycopg.OperationalError:
            if self._inside or self._pipeline is not None or not self.raw.closed:
                raise
            self._connect()
            return send()

    @contextlib.contextmanager
    def _committed(self) -> Iterator[None]:
        """The outcome of a block that ends in a COMMIT."""
        try:
            yield
            self._own += 1
            if self._end.statusmessage != "COMMIT":
                raise TransactionUndone(place=shown(self.url))
        except psycopg.Error as error:
            if not self._committing:
                raise
            # COMMIT may have been carried out, and what came after it refused.
            ours = self._translate(error)
            if not self._was_committed():
                raise ours from error
            _log.info("COMMIT ended in an error (%s); the server says that it was stored", told(error))
        finally:
            self._inside = False

    def _was_committed(self) -> bool:
        """The server's word on a transaction whose connection was lost. Waits for it; all other work waits meanwhile. Raises
        `StorageBroken` where it cannot be had."""
        begun = time.monotonic()
        for delay in delays(1.0):
            try:
                self._reconnect()
                self.raw.execute(_BEGIN_SET)
                row = self.raw.execute(_NUMBERED, (self._writer, 0)).fetchone()
                self.raw.execute("COMMIT")
            except (StorageError, psycopg.Error):
                self._roll_back()
            else:
                if row != (0,) or not self._own:
                    return row == (self._number,)
                break  # there were numbers of this connection, and they were dropped
            if time.monotonic() - begun > self.unsure_seconds:
                break
            time.sleep(delay)
        self.broken = f"{shown(self.url)} went away during a commit, and its outcome is unknown. End this process, and start it again once the server is back."
        raise StorageBroken(self.broken)

    def _roll_back(self) -> None:
        self._inside = False
        self._drop_posted()
        with contextlib.suppress(psycopg.Error):
            if not self.raw.closed:
                self.raw.execute("ROLLBACK")

    # -- statements

    def one(self, sql: str, values: Sequence[SqlValue] = ()) -> tuple[Any, ...] | None:
        """See `Database.one`."""
        return self._execute(sql, values).fetchone()

    def all(self, sql: str, values: Sequence[SqlValue] = ()) -> list[tuple[Any, ...]]:
        """See `Database.all`."""
        return self._execute(sql, values).fetchall()

    def each(self, sql: str, values: Sequence[SqlValue] = ()) -> Iterator[tuple[Any, ...]]:
        """See `Database.each`."""
        return iter(self.all(sql, values))

    def found(self, sql: str, keys: Iterable[SqlValue]) -> Iterator[tuple[SqlValue, tuple[Any, ...] | None]]:
        """See `Database.found`. The server itself refuses text that is none, so that rows can be read together."""
        left = iter(keys)
        while some := list(islice(left, READ_AT_ONCE)):
            cursor = self.raw.execute(of_many(sql), (some,))
            rows = {row[0]: row[1:] for row in cursor.fetchall()}
            yield from ((key, rows.get(key)) for key in some)

    def run(self, sql: str, values: Sequence[SqlValue] = ()) -> int:
        """See `Database.run`."""
        return self._execute(sql, values).rowcount

    def many(self, sql: str, rows: Iterable[Sequence[SqlValue]]) -> None:
        """See `Database.many`."""
        words, picked = statement(sql)
        self.raw.cursor().executemany(words, [[values[index] for index in picked] for values in rows])

    def _execute(self, sql: str, values: Sequence[SqlValue]) -> psycopg.Cursor[tuple[Any, ...]]:
        cursor = self._first(lambda: self._send(sql, values))
        self.settle()
        return cursor

    def _send(self, sql: str, values: Sequence[SqlValue]) -> psycopg.Cursor[tuple[Any, ...]]:
        words, picked = statement(sql)
        return self.raw.execute(words, [values[index] for index in picked])

    def post(
        self,
        sql: str,
        values: Sequence[SqlValue],
        changes: int | None = None,
        otherwise: Refusal = StorageError,
    ) -> None:
        """See `Database.post`."""
        cursor = self._send(sql, values)
        if self._pipeline is None and changes not in (None, cursor.rowcount):
            raise otherwise()
        if self._pipeline is not None and changes is not None:
            self._posted.append((cursor, changes, otherwise))

    def settle(self) -> None:
        """See `Database.settle`."""
        if self._pipeline is not None and self._pipeline.result_queue:
            self._pipeline.sync()
        posted, self._posted = self._posted, []
        for cursor, changes, otherwise in posted:
            if cursor.rowcount != changes:
                raise otherwise()

    def _drop_posted(self) -> None:
        """Forget what was posted, since it is undone."""
        self._posted.clear()
        if self._pipeline is not None and not self.raw.closed:
            with contextlib.suppress(psycopg.Error):
                self._pipeline.sync()

    def next_number(self, table: str, column: str, look: str) -> int:
        """See `Database.next_number`."""
        row = self.raw.execute(_NEXT, (table, column)).fetchone()
        assert row is not None, "a SELECT without FROM gives a row"
        return int(row[0])

    def follow(self, sql: str) -> None:
        """See `Database.follow`."""
        self.raw.execute(sql)

    def hold(self, *names: str, shared: bool = False) -> None:
        """See `Database.hold`."""
        for name in sorted(names):
            self.raw.execute(_HOLD_SHARED if shared else _HOLD, (lock_number(name, self.schema),))

    def notify(self) -> None:
        """See `Database.notify`."""
        self._tell = True

    def give_back(self) -> bool:
        """See `Database.give_back`: the numbers that killed processes left, and the names that nobody holds. The
        server sees to the rest."""
        self.raw.execute(_FORGET_KILLED)
        self.raw.execute(_FORGET_HOLDS)
        return False

    def data_version(self) -> int:
        """See `Database.data_version`: how many transactions there were, without those of this connection."""
        with self.read(single=True):
            row = self.one(_CHANGES)
        assert row is not None, "a sequence has one row"
        return int(row[0]) - self._own

    # -- errors

    def row_error(self, error: Exception) -> StorageError | None:
        """See `Database.row_error`."""
        if isinstance(error, errors.IntegrityError):
            return RowRefused(f"A row was refused by the database: {told(error)}.")
        if isinstance(error, errors.DataError | errors.ProgramLimitExceeded):
            return RowRefused(f"A value cannot be stored: {told(error)}.")
        return None

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Whatever the driver raises inside becomes one of our errors."""
        try:
            yield
        except psycopg.Error as error:
            raise self._translate(error) from error
        except UnicodeEncodeError as error:
            raise RowRefused(f"Text that is not Unicode cannot be stored or looked up ({error}).") from error

    def _translate(self, error: psycopg.Error) -> StorageError:
        where, says = shown(self.url), told(error)
        if self.raw.closed:
            return ConnectionLost(place=where, error=says)
        if isinstance(error, errors.DeadlockDetected | errors.SerializationFailure):
            return Overlapped(f"{where} was changed by others at the same time ({says}).")
        if isinstance(error, errors.LockNotAvailable):
            return StorageBusy(f"{where} was held by another transaction for 5 s ({says}).")
        if isinstance(error, errors.DiskFull):
            return StorageFull(
                f"No space is left for {where}; nothing was written. Free some space, and work continues."
            )
        if isinstance(error, errors.InsufficientPrivilege):
            return NotTheOwner(place=where, error=says)
        if isinstance(error, errors.DuplicateTable):
            return ForeignTables(place=where, error=says)
        if isinstance(error, errors.DataCorrupted | errors.IndexCorrupted):
            return Corrupt(f"{where} is damaged ({says}); restore it from a copy.")
        return self.row_error(error) or DatabaseRefused(place=where, error=says)

    def _usable(self) -> None:
        """Raise where no work can be done; connect again where the connection was lost."""
        if self.broken is not None:
            raise StorageBroken(self.broken)
        if self._closed:
            raise StoreClosed()
        self._reconnect()

    def _reconnect(self) -> None:
        if self.raw.closed:
            self._connect()

    def _connect(self) -> None:
        try:
            self.raw, self.schema, self.pooled = connect(self.url)
        except StorageError as error:
            self.outage.failed("work", error)
            raise
        self.outage.answered("work")
