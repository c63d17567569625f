"""A connection to a database, as the parts of a store use it: statements, transactions, and what holds others back.

The statements of a store are written once, in SQLite's words. A backend that speaks otherwise translates them.
Transactions of several processes may overlap, except on SQLite, where one of them writes at a time. So whatever is read in
order to be changed is read with `for_update`, and what no row stands for is held by its name (`hold`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

from engine.language.errors import StorageError
from engine.storage.errors import NotCompacted

T = TypeVar("T")
SqlValue: TypeAlias = str | bytes | int | None
Refusal: TypeAlias = Callable[[], Exception]
"""Makes the error that is raised."""
UNREADABLE: tuple[Any, ...] = ()
"""Instead of a row whose text is none: damage."""


class WriteWatch:
    """Observer of the write transactions of a connection. This one allows all of them."""

    suspended: str | None = None
    """Why nothing may be written; None where the database is as it should be."""

    def begin(self, *, suspended: bool) -> None:
        """One begins; raising refuses it. With `suspended` none is refused."""

    def advance(self) -> None:
        """It has changed rows, and is about to be committed; raising undoes it."""

    def publish(self) -> None:
        """Its COMMIT has returned."""

    def look_again(self) -> str | None:
        """`suspended`, after a look whether another process has released the store."""
        return self.suspended

    def findings(self) -> str | None:
        """Return the fault of the stored data, or None."""
        return None

    def release(self) -> None:
        """Take what is stored for true."""

    def close(self) -> None:
        """Close what it has open."""


class Database(Protocol):
    """A connection. Not for two threads at once. Methods without a result do nothing where a backend has no use for them."""

    refused: ClassVar[tuple[type[Exception], ...]]
    """Errors of a statement that concern only the row that it writes."""
    unreadable: ClassVar[tuple[type[Exception], ...]]
    """Errors of reading a damaged row."""
    for_update: ClassVar[str] = ""
    """Suffix of a SELECT whose row is going to be changed: others that do the same wait."""

    laned: ClassVar[bool] = False
    """True if several processes may serve it: it has lanes, see `engine.storage.lanes`."""

    near: ClassVar[bool] = False
    """True for a file of this machine: a commit waits for the disk alone."""

    watch: WriteWatch
    """Check that it is as new as it should be."""

    transactions: int = 0
    """Number of write transactions so far: reads for one of them do not apply to the next."""

    broken: str | None = None
    """Why no work is done any more: everything raises `StorageBroken` with it."""

    def close(self) -> None:
        """Close; a second call does nothing."""

    def write(self, *, suspended: bool = False) -> AbstractContextManager[None]:
        """A write transaction: durable when the block is left normally, undone when it raises.

        With `suspended` it is allowed where a watch refuses all others."""

    def read(self, *, single: bool = False) -> AbstractContextManager[None]:
        """A read transaction, or the transaction that is open: everything in the block sees one moment. A `single` statement
        does so by itself."""

    def alone(self) -> AbstractContextManager[None]:
        """A write transaction of one statement, which a crash of the server may undo although it returned."""
        return self.write()

    def savepoint(self) -> AbstractContextManager[None]:
        """A part of a write transaction that is undone alone when it raises."""

    def atomically(self, work: Callable[[], T], *, suspended: bool = False) -> T:
        """Return the result of `work` in a write transaction, repeated in a new one if it lost against another."""

    def one(self, sql: str, values: Sequence[SqlValue] = ()) -> tuple[Any, ...] | None:
        """The first row, or None."""

    def all(self, sql: str, values: Sequence[SqlValue] = ()) -> list[tuple[Any, ...]]:
        """All rows."""

    def each(self, sql: str, values: Sequence[SqlValue] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield rows one by one, inside a transaction: callers that need only the first rows read only those."""

    def found(self, sql: str, keys: Iterable[SqlValue]) -> Iterator[tuple[SqlValue, tuple[Any, ...] | None]]:
        """Each of these keys with the row that `sql`, which ends on `column = ?`, finds by it: None, or `UNREADABLE`, for that
        one alone."""

    def run(self, sql: str, values: Sequence[SqlValue] = ()) -> int:
        """Run a statement that changes rows; how many it changed."""

    def post(
        self,
        sql: str,
        values: Sequence[SqlValue],
        changes: int | None = None,
        otherwise: Refusal = StorageError,
    ) -> None:
        """Run a statement, by the next `settle` at the latest. Where `changes` is given and it changed another number of
        rows, what `otherwise` gives is raised, there or here."""

    def settle(self) -> None:
        """Wait for what was posted, and raise what came of it. A transaction does so before it ends."""
        return

    def many(self, sql: str, rows: Iterable[Sequence[SqlValue]]) -> None:
        """Run a statement once for each row of values."""

    def next_number(self, table: str, column: str, look: str) -> int:
        """The next number for a row of this table, greater than any that was given out; `look` finds it on SQLite."""

    def follow(self, sql: str) -> None:
        """Give out numbers behind those of rows that were written with theirs. SQLite does by itself."""
        return

    def hold(self, *names: str, shared: bool = False) -> None:
        """Until this transaction ends no other one holds these names; with `shared` others may that hold it shared.
        SQLite has one writer anyhow."""
        return

    def notify(self) -> None:
        """Have other processes look, once the transaction is committed. A wake-up may be lost."""
        return

    def row_error(self, error: Exception) -> StorageError | None:
        """Our error for one that concerns only the row that was written, not the database; else None."""

    def data_version(self) -> int:
        """A number that moves when another connection has committed."""

    @contextmanager
    def thorough(self) -> Iterator[None]:
        """Leave no traces of data overwritten or deleted meanwhile, as far as this backend can."""
        yield

    @contextmanager
    def impatient(self) -> Iterator[None]:
        """Raise `StorageBusy` at once where another program writes meanwhile."""
        yield

    def give_back(self) -> bool:
        """Give some free space back to the disk; whether there is more. Inside a write transaction."""
        return False

    def compact(self) -> None:
        """Write everything again without free space. Only while nobody else uses the database."""
        raise NotCompacted()
