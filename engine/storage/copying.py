"""A copy of everything that a store holds, in another one: from SQLite to Postgres or back, or to other keys.

Each row is verified with the keys of the store that it comes from, signed and encrypted with those of the other one, and read
back. What does not verify comes as it is: signing it again would make it believed. Chains are linked again, so a session with a
damaged row is as damaged there as here. What was erased stays so: its ciphertext comes, under a data key that is gone.

The copy is one transaction: it is there as a whole, or nothing is.
"""

from __future__ import annotations

from typing import Any

from engine.journal.records import Head
from engine.language.errors import Corrupt, Erased, RowRefused
from engine.storage.errors import CopyRefused
from engine.storage.flows import TEXT_ABOUT, TEXTS
from engine.storage.sealing import ENCRYPTED, JOURNAL, JournalRecord
from engine.storage.store import META, PUT_META, Store, has_rows
from engine.storage.tables import COPIED, DATA_KEYS, JOURNALS, Copied, session_number
from engine.storage.vault import ERASED

_AT_ONCE = 500
_JOURNALS = "SELECT session FROM journal GROUP BY session"
_EVENTS = "SELECT n, seq, version, body, mac FROM journal WHERE session = ? ORDER BY seq"
_CHAINS = """SELECT s.session_id, s.origin, s.chain, p.chain FROM sessions s
 LEFT JOIN snapshots p ON p.session_id = s.session_id"""
_ERASED = DATA_KEYS.where("key_id = ?")


def copy_store(source: Store, target: Store) -> int:
    """Copy all rows to an empty store; how many sessions came. Raises `StorageError`."""
    if has_rows(target._db):
        raise CopyRefused(why="The target store already has rows; name a new one.")
    for store, which in ((source, "from"), (target, "to")):
        if others := store.serving():
            raise CopyRefused(
                why=f"The store that is copied {which} is in use by {', '.join(others)}. Stop them first."
            )
    if (reason := source.suspended()) is not None:
        raise CopyRefused(why=f"The source store is suspended: {reason}")
    if source.vault is not None and target.vault is None:
        raise CopyRefused(why="The source store is encrypted, but the target has no SAYSO_ENCRYPTION_KEYS.")
    source.changed()
    try:
        if target.vault is not None:
            target.vault.alone = True
        with target._db.write():
            with source._db.read():
                sessions = _Copy(source, target).all()
            if source.changed():
                raise CopyRefused(why="The source store was changed meanwhile. Stop everything that uses it.")
    finally:
        if target.vault is not None:
            target.vault.alone = False
            target.vault.forget()
    return sessions


class _Copy:
    """One copy, inside the transactions of both stores."""

    def __init__(self, source: Store, target: Store) -> None:
        self._source, self._target = source, target
        self._chains: dict[bytes, bytes] = {}
        """Chain of a head or a snapshot in the copy, by that in the source."""

    def all(self) -> int:
        """Copy all tables; how many sessions came."""
        source, target = self._source, self._target
        for row in source._db.all(_ERASED, (ERASED,)):
            if (record := DATA_KEYS.verified(source._sealer, row)) is not None:
                target._put(DATA_KEYS, DATA_KEYS.insert, record)
        for table in COPIED:
            if table is JOURNALS:
                self._journals()
            else:
                self._rows(table)
            if table.counted:
                target._db.follow(table.follow)
        if (workspace := source._db.one(META, ("workspace",))) is not None:
            value, mac = workspace
            if mac == source._sealer.mac(b"meta", "workspace", value):
                mac = target._sealer.mac(b"meta", "workspace", value)
            target._db.run(PUT_META, ("workspace", value, mac))
        heads = source.sessions.heads(limit=None)
        for head in heads:
            if _state_of(source, head) != _state_of(target, head):
                raise CopyRefused(why=f"Session {head.session_id} differs in the copy.")
        return len(heads)

    def _rows(self, table: Copied) -> None:
        """Copy a table, and read it back."""
        last: int | str = -1 << 62 if table.counted else ""
        while rows := self._source._db.all(table.read, (last, _AT_ONCE)):
            self._write(table, [self._resealed(table, row) for row in rows])
            there = self._target._db.all(table.read, (last, _AT_ONCE))
            if [_told(self._source, table, row) for row in rows] != [
                _told(self._target, table, row) for row in there
            ]:
                raise CopyRefused(why=f"The copy has other rows of {table.name}.")
            last = rows[-1][0]

    def _resealed(self, table: Copied, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """A row with the keys of the other store; as it is where it cannot be read."""
        record, sealer = _read(self._source, table, row), self._target._sealer
        if record is None:
            return row
        if table.table is None:
            if sealer.cipher is not None:
                record = sealer.cipher.encrypted(TEXTS, (TEXT_ABOUT, row[0]), record)
            return row[0], record
        if "chain" in table.columns:
            record = record.but(chain=self._chains.get(record.chain, record.chain))
        beside = len(table.columns) - len(table.table.columns) - 1
        try:
            return (*row[:beside], *table.table.sealed(sealer, record, row[0]))
        except RowRefused as error:
            raise CopyRefused(why=f"A row of {table.name} cannot be copied. {error}") from error

    def _write(self, table: Copied, rows: list[tuple[Any, ...]]) -> None:
        try:
            self._target._db.many(table.write, rows)
        except self._target._db.refused as error:
            raise CopyRefused(
                why=f"A row of {table.name} cannot be copied. {self._target._db.row_error(error)}"
            ) from error

    def _journals(self) -> None:
        """Copy all journals, each row linked to the one before it."""
        source = self._source._db
        chains = {session_number(row[0]): row for row in source.all(_CHAINS)}
        for (number,) in source.all(_JOURNALS):
            session_id, origin, *wanted = chains.get(number, (None, b""))
            before = chain = origin
            rows = []
            for n, *columns in source.all(_EVENTS, (number,)):
                record = JournalRecord(*columns)
                after = record if session_id is None else self._linked(session_id, record, before, chain)
                before, chain = record.mac, after.mac
                if before in wanted:
                    self._chains[before] = chain
                rows.append((n, number, after.seq, after.version, after.body, after.mac))
            self._write(JOURNALS, rows)

    def _linked(self, session_id: str, record: JournalRecord, before: bytes, chain: bytes) -> JournalRecord:
        """A row of a journal with the keys of the other store; as it is where it does not follow on the row before."""
        sealer, about, body = self._target._sealer, (JOURNAL, record.seq), record.body
        row = (session_id, record.seq, before, record.version, body, record.mac)
        if not self._source._sealer.genuine(JOURNAL, row):
            return record
        try:
            body = self._source._sealer.opened(session_id, about, body)
        except Erased:
            pass
        except Corrupt:
            return record
        if sealer.cipher is not None and body[:1] != ENCRYPTED:
            body = sealer.cipher.encrypted(session_id, about, body)
        return record.but(body=body, mac=sealer.link(session_id, record.seq, chain, record.version, body))


def _read(store: Store, table: Copied, row: tuple[Any, ...]) -> Any:
    """The record of a row or the text of a flow, decrypted unless it was erased; None where it does not verify."""
    try:
        if table.table is None:
            return store.flows.text(row[0])
        record = table.table.verified(store._sealer, row[len(table.columns) - len(table.table.columns) - 1 :])
        return None if record is None else table.table.opened(store._sealer, record)
    except Erased:
        return record
    except Corrupt:
        return None


def _told(store: Store, table: Copied, row: tuple[Any, ...]) -> Any:
    """Return a row's content, independent of keys."""
    record = _read(store, table, row)
    return record.but(chain=b"") if record is not None and "chain" in table.columns else record


def _state_of(store: Store, head: Head) -> object:
    """Return a session's content, or the kind of damage if it does not verify."""
    try:
        return store.sessions.head(head.session_id), list(store.sessions.journal(head.session_id))
    except (Corrupt, Erased) as error:
        return type(error)
