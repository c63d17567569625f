"""The rows of a store in memory, with transactions that undo.

Rows are the same sealed records that SQLite keeps; only the tables are dictionaries. A write notes what stood
there before, and going back replays those notes in reverse.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from engine.storage.sealing import (
    InboxRecord,
    JournalRecord,
    LockRecord,
    MarkRecord,
    OutboxRecord,
    PromptRecord,
    QuarantineRecord,
    SessionRecord,
    SnapshotRecord,
    SpendRecord,
    TimerRecord,
)

K = TypeVar("K")
V = TypeVar("V")


class Tables:
    """What several stores on the same memory share; tables are named as in SQLite."""

    def __init__(self) -> None:
        self.meta: dict[str, tuple[str, bytes]] = {}
        self.flows: dict[str, bytes] = {}
        self.sessions: dict[str, SessionRecord] = {}
        self.quarantine: dict[str, QuarantineRecord] = {}
        self.journal: dict[tuple[str, int], JournalRecord] = {}
        self.snapshots: dict[str, SnapshotRecord] = {}
        self.inbox: dict[int, InboxRecord] = {}
        self.inbox_ids: dict[str, int] = {}
        self.prompts: dict[str, PromptRecord] = {}
        self.timers: dict[tuple[str, str], TimerRecord] = {}
        self.outbox: dict[int, OutboxRecord] = {}
        self.outbox_ids: dict[str, int] = {}
        self.locks: dict[int, LockRecord] = {}
        self.spend: dict[tuple[str, str, int], SpendRecord] = {}
        self.marks: dict[str, MarkRecord] = {}
        self.last_ids: dict[str, int] = {}
        self.living: set[str] = set()
        self.commits = 0
        self._lock = threading.RLock()
        self._undo: list[Callable[[], None]] = []

    def put(self, table: dict[K, V], key: K, value: V) -> None:
        """Set a row, inside a write."""
        if key in table:
            before = table[key]
            self._undo.append(lambda: table.__setitem__(key, before))
        else:
            self._undo.append(lambda: table.__delitem__(key))
        table[key] = value

    def drop(self, table: dict[K, V], key: K) -> None:
        """Remove a row if it is there, inside a write."""
        if key in table:
            before = table.pop(key)
            self._undo.append(lambda: table.__setitem__(key, before))

    def next_id(self, table: str) -> int:
        """An id that was never used in this table; used once `put` into `last_ids`."""
        return self.last_ids.get(table, 0) + 1

    @contextlib.contextmanager
    def read(self) -> Iterator[None]:
        """Everything in the block sees one moment."""
        with self._lock:
            yield

    @contextlib.contextmanager
    def write(self) -> Iterator[None]:
        """A transaction: undone when the block raises."""
        with self._lock:
            self._undo.clear()
            try:
                yield
            except BaseException:
                self._back_to(0)
                raise
            self.commits += bool(self._undo)
            self._undo.clear()

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """A part of a write that is undone alone when it raises."""
        start = len(self._undo)
        try:
            yield
        except BaseException:
            self._back_to(start)
            raise

    def _back_to(self, length: int) -> None:
        while len(self._undo) > length:
            self._undo.pop()()

    def of_session(self, session_id: str) -> list[tuple[dict[Any, Any], Any]]:
        """Table and key of every row that goes when the session goes."""
        found: list[tuple[dict[Any, Any], Any]] = [
            (self.journal, key) for key in self.journal if key[0] == session_id
        ]
        found += [(self.timers, key) for key in self.timers if key[0] == session_id]
        found += [(self.prompts, key) for key, row in self.prompts.items() if row.session_id == session_id]
        for row_id, row in self.outbox.items():
            if row.session_id == session_id:
                found += [(self.outbox, row_id), (self.outbox_ids, row.key)]
        found += [(self.locks, n) for n, row in self.locks.items() if row.session_id == session_id]
        return [
            *found,
            (self.snapshots, session_id),
            (self.quarantine, session_id),
            (self.sessions, session_id),
        ]
