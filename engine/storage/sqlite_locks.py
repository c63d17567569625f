"""Queues for locks in SQLite, and what reads verified rows. Statements only; `sqlite` holds the transactions."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from engine.journal.records import DropLock, LockRow, PutLock, TakeLock
from engine.language.errors import Corrupt, LockHeld
from engine.storage.connection import Connection, Value
from engine.storage.macs import Sealer
from engine.storage.sealing import LockRecord, Sealed, genuine, lock_record, lost_place, sealed, taken

_log = logging.getLogger("sayso.storage")

_NEXT_LOCK = """SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'locks'), 0),
 coalesce((SELECT max(n) FROM locks), 0)) + 1"""
_PUT_LOCK = "INSERT INTO locks (n, name, session_id, requested_at, taken_at, mac) VALUES (?, ?, ?, ?, ?, ?)"
_LOCK = "SELECT n, name, session_id, requested_at, taken_at, mac FROM locks WHERE n = ?"
_LOCK_OF = "SELECT n FROM locks WHERE session_id = ? AND name = ?"
_LOCK_FIRST = "SELECT n, session_id FROM locks WHERE name = ? ORDER BY n LIMIT 1"
_LOWEST_LOCK = "SELECT coalesce(min(n), 1) FROM locks"
_LOCKS = "SELECT n FROM locks ORDER BY name, n"
_LOCKS_OF_NAME = "SELECT n FROM locks WHERE name = ? ORDER BY n"
_LOCK_GRANTS = """SELECT n FROM locks INDEXED BY locks_waiting WHERE taken_at IS NULL AND NOT EXISTS
 (SELECT 1 FROM locks AS ahead WHERE ahead.name = locks.name AND ahead.n < locks.n) ORDER BY n LIMIT ?"""
_TAKE_LOCK = "UPDATE locks SET taken_at = ?, mac = ? WHERE n = ?"
_DROP_LOCK = "DELETE FROM locks WHERE session_id = ? AND name = ?"


class VerifiedTables:
    """Reads records and leaves out those that do not verify; gives out ids."""

    def __init__(self, db: Connection, sealer: Sealer) -> None:
        self._db = db
        self._sealer = sealer
        self._given: dict[str, tuple[int, int]] = {}
        """The last id that was given out, by the statement that finds the first, and in which transaction."""

    def _get(self, kind: type[Sealed], sql: str, key: Value, what: str) -> Sealed | None:
        """One record, verified. Raises `Corrupt`."""
        try:
            row = self._db.one(sql, (key,))
        except UnicodeDecodeError:
            raise Corrupt(f"The {what} {key!r} is unreadable.") from None
        if row is None:
            return None
        record = kind(*row)
        if not genuine(self._sealer, record):
            raise Corrupt(f"The {what} {key!r} was changed outside this program.")
        return record

    def _verified(
        self, kind: type[Sealed], sql: str, what: str, ids: Iterable[tuple[Any, ...]]
    ) -> Iterable[Sealed]:
        """The records of these rows that verify; the others are left out, with a warning."""
        for (row_id,) in ids:
            try:
                record = self._get(kind, sql, row_id, what)
            except Corrupt as error:
                _log.warning("%s It is left out.", error)
                continue
            if record is not None:
                yield record

    def _next(self, sql: str) -> int:
        """The next id of a table. It is looked up once in a write transaction, in which nobody else gives ids out; one
        that was given out in a part that was undone is left out."""
        transaction, number = self._given.get(sql, (0, 0))
        if transaction == self._db.transactions:
            number += 1
        else:
            row = self._db.one(sql)
            assert row is not None, "an aggregate without GROUP BY always gives a row"
            number = int(row[0])
        self._given[sql] = (self._db.transactions, number)
        return number


class LockTables(VerifiedTables):
    """The statements that concern locks."""

    def _put_lock(self, put: PutLock, now: str) -> None:
        if not self._db.one(_LOCK_OF, (put.session_id, put.name)):
            self._db.run(_PUT_LOCK, sealed(self._sealer, self._new_lock(put, now)))

    def _drop_lock(self, drop: DropLock) -> None:
        self._db.run(_DROP_LOCK, (drop.session_id, drop.name))

    def _new_lock(self, put: PutLock, now: str) -> LockRecord:
        if not put.first:
            return lock_record(self._next(_NEXT_LOCK), put, now)
        found, lowest = self._db.one(_LOCK_FIRST, (put.name,)), self._db.one(_LOWEST_LOCK)
        first = self._get(LockRecord, _LOCK, found[0], "lock") if found else None
        assert lowest is not None, "an aggregate without GROUP BY always gives a row"
        return lost_place(first, lowest[0], put, now)

    def _take_lock(self, take: TakeLock, now: str) -> None:
        own, first = (
            self._db.one(_LOCK_OF, (take.session_id, take.name)),
            self._db.one(_LOCK_FIRST, (take.name,)),
        )
        record = self._get(LockRecord, _LOCK, own[0], "lock") if own else None
        if record is None or first is None:
            raise LockHeld(f"Session {take.session_id} has no place in the queue for lock {take.name}.")
        after = taken(record, first=first[0] == record.n, ahead=first[1], now=now)
        self._db.run(_TAKE_LOCK, (after.taken_at, sealed(self._sealer, after).mac, after.n))

    def locks(self, name: str | None) -> list[LockRow]:
        """What `Store.locks` says."""
        ids = self._db.all(_LOCKS) if name is None else self._db.all(_LOCKS_OF_NAME, (name,))
        return [self._lock_row(n, name) for (n,) in ids]

    def _lock_row(self, n: int, name: str | None) -> LockRow:
        try:
            row = self._db.one(_LOCK, (n,))
        except UnicodeDecodeError:
            return LockRow(name or "?", "?", "", None, verified=False)
        record = LockRecord(*row) if row else LockRecord(n, name or "?", "?", "", None)
        return record.row(verified=genuine(self._sealer, record))

    def grants(self, limit: int) -> list[str]:
        """What `Store.grants` says. A row that does not verify gets nothing."""
        records = self._verified(LockRecord, _LOCK, "lock in row", self._db.all(_LOCK_GRANTS, (limit,)))
        return [record.session_id for record in records]
