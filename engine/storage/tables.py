# ruff: noqa: S608 - the names of records and their fields are ours
"""Records in SQL: the columns of a table, the MAC over them, the transactions in which they are read and written.

Statements are built here from the names of records and their fields only. Lists first ask for row numbers and then read
by them: a row with damaged text cannot take the others of its list with it. Nothing is parsed before it was verified.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, wraps
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

import orjson
from msgspec import Struct
from msgspec.structs import astuple, replace

from engine.journal.records import (
    DataKey,
    FlowForm,
    InboxRow,
    KeptRow,
    LeafRow,
    LockRow,
    Mark,
    OutboxRow,
    PromptRow,
    Quarantine,
    Snapshot,
    SpendRow,
    Timer,
)
from engine.language.errors import Corrupt, Erased, KeyMissing, RowRefused
from engine.storage.database import UNREADABLE, Database, SqlValue
from engine.storage.sealing import ENCRYPTED, Sealer, StoredHead, check_texts

_log = logging.getLogger("sayso.storage")


P = ParamSpec("P")
R = TypeVar("R", bound=Struct)
S = TypeVar("S", bound="Tables")
T = TypeVar("T")


_ALL = 1 << 62


class Table(Generic[R]):
    """A table whose rows are records of one class: its fields are the columns, in order, and what the MAC covers.

    With `numbered` there is a column `n` before them, which the MAC covers too: it says in which order rows came to be.
    Fields of the class that are `beside` are no columns. Those that are `secret` are encrypted where there are keys, as bodies of
    the row with this `key`: under the data key of the row's session, or, where it has none, of the table. With `prose` its texts
    may be long.
    """

    def __init__(
        self,
        name: str,
        record: type[R],
        domain: bytes,
        what: str,
        *,
        numbered: bool = False,
        beside: int = 0,
        secret: Sequence[str] = (),
        key: str = "",
        prose: bool = False,
    ) -> None:
        self.name, self.record, self.domain, self.what, self._prose = name, record, domain, what, prose
        self.secret, self.key = tuple(secret), key
        self._of_session = "session_id" in record.__struct_fields__ and name != "inbox"
        fields = record.__struct_fields__
        self._width = len(fields) - beside
        self._skip = int(numbered)
        self.columns = ("n",) * self._skip + fields[: self._width]
        stored = (*self.columns, "mac")
        listed = ", ".join(stored)
        self._select = f"SELECT {listed} FROM {name} WHERE "
        self.insert = f"INSERT INTO {name} ({listed}) VALUES ({', '.join('?' * len(stored))})"
        self._replace = ", ".join(f"{column} = excluded.{column}" for column in stored)
        changed = ", ".join(f"{column} = ?" for column in stored[1:])
        self.update = f"UPDATE {name} SET {changed} WHERE {stored[0]} = ?"
        self.first = stored[0]
        plain = " OR ".join(f"substr({column}, 1, 1) != ?" for column in self.secret)
        self.count_plain = f"SELECT count(*) FROM {name} WHERE {plain}"

    def where(self, condition: str) -> str:
        """The statement that reads the rows of which this holds."""
        return self._select + condition

    def upsert(self, key: str, condition: str = "") -> str:
        """The statement that writes a row instead of the one with its key, where the condition holds for that."""
        return f"{self.insert} ON CONFLICT ({key}) DO UPDATE SET {self._replace}{condition}"

    def sealed(self, sealer: Sealer, record: R, n: int | None = None) -> tuple[Any, ...]:
        """The columns of a row, with its MAC."""
        if sealer.cipher is not None and self.secret:
            record = self._changed(record, sealer.cipher.encrypted, encrypted=False)
        values = astuple(record)[: self._width]
        if not self._prose:
            check_texts(self.what, values)
        if self._skip:
            values = (n, *values)
        return (*values, sealer.seal(self.domain, *values))

    def verified(self, sealer: Sealer, row: tuple[Any, ...]) -> R | None:
        """The record of a row as it is, which may be encrypted; None where it does not carry its MAC."""
        return self.record(*row[self._skip : -1]) if sealer.genuine(self.domain, row) else None

    def opened(self, sealer: Sealer, record: R) -> R:
        """A record that was verified, decrypted. Raises `KeyMissing`, `Erased`, `Corrupt`."""
        return self._changed(record, sealer.opened, encrypted=True)

    def _changed(
        self, record: R, change: Callable[[str, tuple[object, ...], bytes], bytes], *, encrypted: bool
    ) -> R:
        """The record with those bodies changed that are `encrypted`, or are not yet."""
        session_id = getattr(record, "session_id") if self._of_session else None  # noqa: B009 - of some
        scope = kind_of(self.name) if session_id is None else str(session_id)
        found = {
            name: change(scope, (self.domain, getattr(record, self.key), name), body)
            for name in self.secret
            if (body := getattr(record, name)) is not None and (body[:1] == ENCRYPTED) is encrypted
        }
        return replace(record, **found) if found else record


def kind_of(table: str) -> str:
    """Return the scope of the data key for rows without a session."""
    return f"rows of {table}"


KINDS = frozenset(map(kind_of, ("inbox", "outbox", "flows", "kept")))
"""The scopes of data keys that belong to no session."""

HEADS = Table("sessions", StoredHead, b"session", "head", beside=1)
SNAPSHOTS = Table("snapshots", Snapshot, b"snapshot", "snapshot", secret=["body"], key="seq")
QUARANTINE = Table("quarantine", Quarantine, b"quarantine", "quarantine note", prose=True)
INBOX = Table("inbox", InboxRow, b"inbox", "inbox row", secret=["payload", "result"], key="key")
PROMPTS = Table("prompts", PromptRow, b"prompt", "prompt", secret=["body"], key="prompt_id")
TIMERS = Table("timers", Timer, b"timer", "timer in row")
OUTBOX = Table("outbox", OutboxRow, b"outbox", "outbox row", secret=["payload", "result"], key="key")
FORMS = Table("flows", FlowForm, b"form", "form of the flow", secret=["form"], key="digest")
LOCKS = Table("locks", LockRow, b"lock", "lock in row", numbered=True, beside=1)
SPEND = Table("spend", SpendRow, b"spend", "spending in row", numbered=True)
MARKS = Table("marks", Mark, b"mark", "mark")
KEPT = Table("kept", KeptRow, b"kept", "note or grant in row", numbered=True, secret=["body"], key="kept_id")
LEAVES = Table("leaves", LeafRow, b"leaf", "leaf of the audit log", numbered=True, prose=True)
DATA_KEYS = Table("data_keys", DataKey, b"data key", "data key")


class Copied(NamedTuple):
    """All rows of a table, to copy them to another database: in the order of its first column, which is unique."""

    name: str
    columns: tuple[str, ...]
    table: Table[Any] | None
    """Record of its rows; None if a copy builds them otherwise."""
    counted: bool
    """True if the first column is a number assigned by the database."""

    @property
    def read(self) -> str:
        """The statement that reads some rows after a first column."""
        first, *_ = self.columns
        return f"SELECT {', '.join(self.columns)} FROM {self.name} WHERE {first} > ? ORDER BY {first} LIMIT ?"

    @property
    def write(self) -> str:
        """The statement that writes a row with its number."""
        marks = ", ".join("?" * len(self.columns))
        return f"INSERT INTO {self.name} ({', '.join(self.columns)}) VALUES ({marks})"

    @property
    def follow(self) -> str:
        """The statement that makes a server give out numbers behind those that came."""
        first = self.columns[0]
        return (
            f"SELECT setval(pg_get_serial_sequence('{self.name}', '{first}'), max({first})) FROM {self.name}"
        )


def _copied(table: Table[Any], *before: str, counted: bool = True) -> Copied:
    return Copied(table.name, (*before, *table.columns, "mac"), table, counted)


JOURNALS = Copied("journal", ("n", "session", "seq", "version", "body", "mac"), None, counted=True)
COPIED = (
    Copied("flows", ("digest", "body"), None, counted=False),
    JOURNALS,
    _copied(SNAPSHOTS, counted=False),
    _copied(HEADS, "n"),
    _copied(QUARANTINE, counted=False),
    _copied(INBOX),
    _copied(PROMPTS, "n"),
    _copied(TIMERS, "n"),
    _copied(OUTBOX),
    _copied(LOCKS),
    _copied(SPEND),
    _copied(KEPT),
    _copied(LEAVES),
    _copied(MARKS, counted=False),
)
"""All tables but `meta`, data keys, and what is only of one backend."""


def reads(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """The method in a read transaction, or in the one that is open."""

    @wraps(method)
    def inside(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._db.read():
            return method(self, *args, **kwargs)

    return inside


def reads_once(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """The method, which reads by one statement; in the transaction that is open, if one is."""

    @wraps(method)
    def inside(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._db.read(single=True):
            return method(self, *args, **kwargs)

    return inside


def writes(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """The method in a write transaction: durable when it returns, undone when it raises."""
    return _written(method, suspended=False)


def writes_suspended(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """The same, also in a store that is suspended."""
    return _written(method, suspended=True)


def _written(method: Callable[Concatenate[S, P], T], *, suspended: bool) -> Callable[Concatenate[S, P], T]:
    @wraps(method)
    def inside(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._db.atomically(partial(method, self, *args, **kwargs), suspended=suspended)

    return inside


def at_most(limit: int | None) -> int:
    """A limit in SQL."""
    return _ALL if limit is None else limit


def listed(values: Sequence[str]) -> str:
    """A list of texts in SQL. Raises `RowRefused` for text that is not Unicode."""
    try:
        return orjson.dumps(list(values)).decode()
    except TypeError as error:
        raise RowRefused(f"Text that is not Unicode cannot be looked up ({error}).") from error


class Tables:
    """Reads and writes the rows of a database: what the parts of a store share."""

    def __init__(self, db: Database, sealer: Sealer) -> None:
        self._db = db
        self._sealer = sealer
        self._warned: set[str] = set()

    def _warn(self, text: str) -> None:
        """Log what will be found again at every look, once."""
        if text not in self._warned:
            self._warned.add(text)
            _log.warning("%s", text)

    def _all_held(self, sql: str, values: Sequence[SqlValue]) -> list[tuple[Any, ...]]:
        """Rows that are going to be changed or deleted: nobody else changes them meanwhile."""
        return self._db.all(sql + self._db.for_update, values)

    def _held(self, table: Table[R], sql: str, *key: SqlValue) -> R | None:
        """One record that is going to be changed: nobody else changes it meanwhile. Raises `Corrupt`."""
        return self._get(table, sql + self._db.for_update, *key)

    def _get(self, table: Table[R], sql: str, *key: SqlValue) -> R | None:
        """One record, verified and decrypted. Raises `Corrupt`."""
        return self._opened(table, self._closed(table, sql, *key))

    def _opened(self, table: Table[R], record: R | None) -> R | None:
        return record if record is None or not table.secret else table.opened(self._sealer, record)

    def _closed(self, table: Table[R], sql: str, *key: SqlValue) -> R | None:
        """One record, verified; what is encrypted of it is as it is. Raises `Corrupt`."""
        try:
            row = self._db.one(sql, key)
        except self._db.unreadable:
            row = UNREADABLE
        return self._record(table, key[0], row)

    def _record(self, table: Table[R], key: SqlValue, row: tuple[Any, ...] | None) -> R | None:
        """The record of a row, verified. Raises `Corrupt`."""
        if row is None:
            return None
        if row == UNREADABLE:
            raise Corrupt(f"The {table.what} {key!r} is unreadable.")
        record = table.verified(self._sealer, row)
        if record is None:
            raise Corrupt(f"The {table.what} {key!r} was changed outside this program.")
        return record

    def _each(
        self, table: Table[R], sql: str, ids: Iterable[tuple[Any, ...]], corrupt: list[Any] | None = None
    ) -> Iterator[R]:
        """The records of these rows that verify; the others are left out, and noted as `corrupt` or in the log."""
        for row_id, row in self._db.found(sql, (row_id for (row_id,) in ids)):
            try:
                record = self._opened(table, self._record(table, row_id, row))
            except (Corrupt, Erased, KeyMissing) as error:
                if isinstance(error, KeyMissing) and self._sealer.cipher is None:
                    raise  # this process has none at all
                if corrupt is None or not isinstance(error, Corrupt):
                    self._warn(f"{error} It is left out.")  # another key may open it later
                else:
                    corrupt.append(row_id)
                continue
            if record is not None:
                yield record

    def _set_aside(self, what: str, sql: str, row_ids: Sequence[int]) -> None:
        """Mark rows whose MAC does not fit. The MAC stays, so that nobody takes them for good ever again."""
        for row_id in row_ids:
            try:
                with self._db.write():
                    self._db.run(sql, (row_id,))
                _log.error("%s %d was changed outside this program; it is set aside", what, row_id)
            except Corrupt as error:
                self._warn(f"The {what} {row_id} cannot even be set aside, and is left out: {error}")

    def _put(self, table: Table[R], sql: str, record: R, n: int | None = None) -> None:
        """Run a statement with a record's columns and MAC."""
        self._db.post(sql, table.sealed(self._sealer, record, n))

    def _put_counted(self, table: Table[R], sql: str, record: R) -> int:
        """The same at once: how many rows it changed."""
        return self._db.run(sql, table.sealed(self._sealer, record))

    def _update(self, table: Table[R], record: R, n: int | None = None) -> None:
        """Write the row with this record's first column, or this number, again."""
        first, *others = table.sealed(self._sealer, record, n)
        self._db.post(table.update, (*others, first))

    def _next(self, table: str, column: str = "id") -> int:
        """The next id of a table."""
        look = (
            f"SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{table}'), 0),"
            f" coalesce((SELECT max({column}) FROM {table}), 0)) + 1"
        )
        return self._db.next_number(table, column, look)

    def _number(self, sql: str, *values: SqlValue) -> int:
        """The outcome of an aggregate."""
        row = self._db.one(sql, values)
        assert row is not None, "an aggregate without GROUP BY always gives a row"
        return int(row[0])


def session_number(session_id: str) -> int:
    """The number under which a session's journal stands: eight bytes instead of a text in each row and its index. Two
    sessions with the same one could not both be stored."""
    digest = hashlib.blake2b(session_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
