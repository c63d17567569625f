"""One SQLite connection with the settings that durability needs, and SQLite's errors in our words.

Settings: WAL with `synchronous=FULL`, since with NORMAL an acknowledged reply can vanish at power loss; every
write is `BEGIN IMMEDIATE`, so a reader never becomes a writer half way and loses a race that it had checked.
Checkpoints are made here, after a commit, and not by SQLite on its own: SQLite ignores their errors, and an fsync
that failed once is not to be trusted when it succeeds the next time.

After such an error the connection refuses all further work (`StorageBroken`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw

from engine.language.errors import Corrupt, RowRefused, StorageBroken, StorageBusy, StorageError, StorageFull
from engine.storage.backoff import Patience
from engine.storage.database import UNREADABLE, Database, Refusal, SqlValue, T, WriteWatch
from engine.storage.errors import DatabaseRefused, DiskFailed, NotWritable, NoWriteAheadLog

BUSY_MILLISECONDS = 5_000
"""Milliseconds for which a write waits for another process's write."""
CHECKPOINT_PAGES = 400
"""Size of the WAL (pages of 4 KiB) from which it is folded back into the file."""
GIVE_BACK = "PRAGMA incremental_vacuum(64)"
"""Gives free pages back, a few in one transaction: each of them may move another page."""
KEPT_PAGES = 256
"""Free pages that stay: what is written next needs them."""
_INCREMENTAL = 2

_UNSYNCED = {
    apsw.SQLITE_IOERR_FSYNC,
    apsw.SQLITE_IOERR_DIR_FSYNC,
    apsw.SQLITE_IOERR_CLOSE,
}
_SHM_GROWTH = {apsw.SQLITE_IOERR_SHMSIZE, apsw.SQLITE_IOERR_SHMMAP}


class SqliteConnection(Database):
    """A connection. Not for two threads at once."""

    near = True
    refused = (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError)
    unreadable = (UnicodeDecodeError, apsw.CorruptError)

    def __init__(self, path: Path, vfs: str | None = None, patience: float | None = None) -> None:
        """Open an existing file. `vfs` names another SQLite VFS, for fault injection. `patience` is how many seconds another
        program is waited for, instead of `BUSY_MILLISECONDS`. Raises `StorageError`."""
        self._patience = patience
        self._path = path
        self._broken: str | None = None
        self._wal_pages = 0
        self.watch: WriteWatch = WriteWatch()
        self._given: dict[str, tuple[int, int]] = {}
        """The last id that was given out, by its table, and in which transaction."""
        self._lock = threading.RLock()
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
        with self.translated():
            self.raw = apsw.Connection(str(path), flags=flags, vfs=vfs, statementcachesize=200)
            try:
                self._configure()
            except BaseException:
                self.raw.close()
                raise

    def _configure(self) -> None:
        raw = self.raw
        self._wait_for_others()
        raw.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        raw.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
        for name, value in (
            ("synchronous", "FULL"),
            ("fullfsync", 1),
            ("checkpoint_fullfsync", 1),
            ("trusted_schema", 0),
            ("cell_size_check", 1),
            ("secure_delete", 1),
            ("temp_store", "MEMORY"),
            ("journal_size_limit", 64 * 1024 * 1024),
        ):
            raw.pragma(name, value)
        raw.wal_autocheckpoint(0)
        raw.set_wal_hook(self._committed)

    def _wait_for_others(self) -> None:
        if self._patience is None:
            self.raw.set_busy_timeout(BUSY_MILLISECONDS)
        else:
            self.raw.set_busy_handler(Patience(self._path, self._patience))

    @contextlib.contextmanager
    def impatient(self) -> Iterator[None]:
        """See `Database.impatient`."""
        with self._lock:
            self.raw.set_busy_timeout(0)
            try:
                yield
            finally:
                self._wait_for_others()

    def give_back(self) -> bool:
        """Give some free pages back to the disk; whether there are more. Inside a write transaction."""
        if (
            self.raw.pragma("auto_vacuum") != _INCREMENTAL
            or int(self.raw.pragma("freelist_count")) <= KEPT_PAGES
        ):
            return False
        self.raw.execute(GIVE_BACK).fetchall()
        return True

    def compact(self) -> None:
        """Write the file again without free pages, and let it give pages back from now on. It needs as much disk again, and
        nobody else may use the file meanwhile."""
        with self._lock, self.translated():
            self._usable()
            self.raw.pragma("auto_vacuum", "INCREMENTAL")
            self.raw.execute("VACUUM")
            self.raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    @contextlib.contextmanager
    def thorough(self) -> Iterator[None]:
        """See `Database.thorough`: freed parts of pages are overwritten anyway, and the log, which has what they held, is
        emptied, unless others read it."""
        yield
        with self.impatient(), self.translated(), contextlib.suppress(apsw.BusyError):
            self.raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def use_wal(self) -> None:
        """Switch to WAL, and let a new file give pages back; one that has tables must be compacted for that. Apart from
        opening, so that a file of a newer release can be refused untouched."""
        with self.translated():
            if int(self.raw.pragma("user_version")) == 0:
                self.raw.pragma("auto_vacuum", "INCREMENTAL")
            mode = self.raw.pragma("journal_mode", "WAL")
        if mode != "wal":
            raise NoWriteAheadLog(path=self._path, mode=mode)

    def close(self) -> None:
        """Close; a second call does nothing."""
        with self._lock, self.translated():
            self.raw.close()

    # -- transactions

    @contextlib.contextmanager
    def write(self, *, suspended: bool = False) -> Iterator[None]:
        """A write transaction: durable when the block is left normally, undone when it raises.

        With `suspended` it is allowed where a watch refuses all others."""
        with self._lock:
            self._usable()
            self.watch.begin(suspended=suspended)
            self.transactions += 1
            with self.translated():
                try:
                    self.raw.execute("BEGIN IMMEDIATE")
                    before = self.raw.total_changes()
                    yield
                    if self.raw.total_changes() != before:
                        self.watch.advance()
                    self.raw.execute("COMMIT")
                except BaseException:
                    self._rollback()
                    raise
            self.watch.publish()
            if self._wal_pages >= CHECKPOINT_PAGES:
                self.checkpoint()

    def atomically(self, work: Callable[[], T], *, suspended: bool = False) -> T:
        """See `Database.atomically`."""
        with self.write(suspended=suspended):
            return work()

    def post(
        self,
        sql: str,
        values: Sequence[SqlValue],
        changes: int | None = None,
        otherwise: Refusal = StorageError,
    ) -> None:
        """See `Database.post`. Carried out at once."""
        self.raw.execute(sql, values)
        if changes is not None and self.raw.changes() != changes:
            raise otherwise()

    @contextlib.contextmanager
    def read(self, *, single: bool = False) -> Iterator[None]:
        """See `Database.read`."""
        with self._lock:
            self._usable()
            with self.translated():
                if self.raw.in_transaction:
                    yield
                    return
                try:
                    self.raw.execute("BEGIN")
                    yield
                finally:
                    self._rollback()

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """A part of a write transaction that is undone alone when it raises."""
        self.raw.execute("SAVEPOINT part")
        try:
            yield
        except BaseException:
            # A full disk may have ended the whole transaction; then there is nothing left to go back to.
            if self.raw.in_transaction:
                self.raw.execute("ROLLBACK TO part")
                self.raw.execute("RELEASE part")
            raise
        self.raw.execute("RELEASE part")

    def checkpoint(self) -> None:
        """Fold the WAL into the file as far as readers allow. What was committed is durable whatever happens."""
        try:
            self.raw.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as error:
            # Only noted: the commit before it succeeded. The next call raises. Full or busy: later.
            if isinstance(_translate(error, self._path), StorageBroken):
                self._broken = str(error)
        self._wal_pages = 0

    # -- statements

    def one(self, sql: str, values: Sequence[SqlValue] = ()) -> tuple[Any, ...] | None:
        """The first row, or None."""
        row: tuple[Any, ...] | None = self.raw.execute(sql, values).fetchone()
        return row

    def all(self, sql: str, values: Sequence[SqlValue] = ()) -> list[tuple[Any, ...]]:
        """All rows."""
        rows: list[tuple[Any, ...]] = self.raw.execute(sql, values).fetchall()
        return rows

    def each(self, sql: str, values: Sequence[SqlValue] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield rows one by one, inside a transaction: callers that need only the first rows read only those."""
        yield from self.raw.execute(sql, values)

    def found(self, sql: str, keys: Iterable[SqlValue]) -> Iterator[tuple[SqlValue, tuple[Any, ...] | None]]:
        """See `Database.found`."""
        for key in keys:
            try:
                row = self.one(sql, (key,))
            except self.unreadable:
                row = UNREADABLE
            yield key, row

    def run(self, sql: str, values: Sequence[SqlValue] = ()) -> int:
        """Run a statement that changes rows; how many it changed."""
        self.raw.execute(sql, values)
        return self.raw.changes()

    def many(self, sql: str, rows: Iterable[Sequence[SqlValue]]) -> None:
        """Run a statement once for each row of values."""
        self.raw.executemany(sql, rows)

    def next_number(self, table: str, column: str, look: str) -> int:
        """See `Database.next_number`. It is looked up once in a write transaction, in which nobody else gives numbers out;
        one that was given out in a part that was undone is left out."""
        transaction, number = self._given.get(table, (0, 0))
        if transaction == self.transactions:
            number += 1
        else:
            row = self.one(look)
            assert row is not None, "an aggregate without GROUP BY always gives a row"
            number = int(row[0])
        self._given[table] = (self.transactions, number)
        return number

    def row_error(self, error: Exception) -> StorageError | None:
        """See `Database.row_error`."""
        return row_error(error)

    def data_version(self) -> int:
        """A number that moves when another connection has committed."""
        with self._lock:
            self._usable()
            with self.translated():
                return int(self.raw.pragma("data_version"))

    # -- errors

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Whatever SQLite raises inside becomes one of our errors."""
        try:
            yield
        except apsw.Error as error:
            ours = _translate(error, self._path, self._patience)
            if isinstance(ours, StorageBroken):
                self._broken = str(error)
            raise ours from error
        except UnicodeDecodeError as error:
            raise Corrupt(f"A row in {self._path} holds bytes that are no text.") from error
        except UnicodeEncodeError as error:
            raise RowRefused(f"Text that is not Unicode cannot be stored or looked up ({error}).") from error

    def _usable(self) -> None:
        if self.broken is not None:
            raise StorageBroken(self.broken)
        if self._broken is not None:
            raise StorageBroken(_broken_text(self._path, self._broken))

    def _rollback(self) -> None:
        try:
            if self.raw.in_transaction:
                self.raw.execute("ROLLBACK")
        except apsw.Error as error:
            self._broken = f"a failed write could not be undone: {error}"

    def _committed(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Whatever SQLite raises inside about this file becomes one of our errors."""
    try:
        yield
    except apsw.Error as error:
        raise _translate(error, path) from error


def row_error(error: Exception) -> StorageError | None:
    """Our error when this one concerns only the row that was written, not the database; else None."""
    if isinstance(error, apsw.ConstraintError):
        return RowRefused(f"A row was refused by the database: {error}.")
    if isinstance(error, apsw.MismatchError | apsw.TooBigError):
        return RowRefused(f"A value cannot be stored: {error}.")
    return None


def _translate(error: apsw.Error, path: Path, patience: float | None = None) -> StorageError:
    extended = getattr(error, "extendedresult", 0)
    if isinstance(error, apsw.FullError):
        return StorageFull(
            f"No space is left for {path}; nothing was written. Free some space, and work continues."
        )
    if isinstance(error, apsw.IOError):
        if extended in _UNSYNCED:
            return StorageBroken(_broken_text(path, str(error)))
        if extended in _SHM_GROWTH:
            return StorageFull(f"{path} cannot grow its shared memory file ({error}); is the disk full?")
        return DiskFailed(path=path, error=error)
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return Corrupt(f"{path} is damaged ({error}); restore it from a copy.")
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        waited = BUSY_MILLISECONDS / 1000 if patience is None else patience
        return StorageBusy(
            f"{path} was held by another process for {waited:g} s ({error}). "
            "Is something else writing to it (a backup, an open `sqlite3` shell)?"
        )
    if isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError | apsw.PermissionsError):
        return NotWritable(path=path, error=error)
    return row_error(error) or DatabaseRefused(
        place=f"The database {path}", error=f"{type(error).__name__}: {error}"
    )


def _broken_text(path: Path, cause: str) -> str:
    return (
        f"The device did not make a write to {path} durable ({cause}). "
        "End this process, check the disk, and start again."
    )
