"""Inbox rows whose handlers failed: the count and kind of failures, and the resulting dead letters."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from engine.journal.records import DEAD, Consumed, InboxRow, Row
from engine.language.codec import encode
from engine.language.errors import (
    ClockJumped,
    Fenced,
    KeyMissing,
    LockHeld,
    Owned,
    StorageBroken,
    StorageBusy,
    StorageError,
)
from engine.run.engine import Engine

log = logging.getLogger("sayso.service")

Tell: TypeAlias = Callable[[InboxRow], Awaitable[Sequence[Row]]]
"""The intents that say in its thread that a row could not be handled."""

MOST_FAILURES = 5
"""Number of failures of one type that make a row a dead letter; with the waits in between about eight seconds."""

_LONGEST = 500
_WAITS = (ClockJumped, Fenced, KeyMissing, LockHeld, Owned, StorageBusy)


class Failures:
    """The rows in hand that failed, and how often in which way."""

    def __init__(self, engine: Engine, tell: Tell | None) -> None:
        self._engine = engine
        self._tell = tell
        self._counts: dict[int, Counter[str]] = {}

    def failed(self, row: InboxRow) -> bool:
        """True if the row failed at its last try."""
        return row.id in self._counts

    def forget(self, row: InboxRow) -> None:
        """The row was handled, or waits for its backoff."""
        self._counts.pop(row.id, None)

    async def add(self, row: InboxRow, error: Exception) -> None:
        """A handler raised: count it, or set the row aside. Raises `StorageBroken`."""
        if isinstance(error, _WAITS) or not await self._store_works(error):
            # A key that others have is given by a person, and this process started again.
            level = logging.ERROR if isinstance(error, KeyMissing) else logging.INFO
            log.log(level, "inbox row %s waits: %s", row.key, error)
            return
        counts = self._counts.setdefault(row.id, Counter())
        way = type(error).__name__
        counts[way] += 1
        if counts.total() == 1:
            log.error("inbox row %s failed and is retried", row.key, exc_info=error)
        if counts[way] >= MOST_FAILURES:
            tries = counts.total()
            now, message = self._engine.now(), str(error)[:_LONGEST].encode("utf-8", "replace").decode()
            result = encode({"error": way, "message": message, "tries": tries, "at": now})
            try:
                said = await self._tell(row) if self._tell is not None else ()
            except Exception:
                log.exception("nobody could be notified that inbox row %s is a dead letter", row.key)
                said = ()
            await self._engine.writer.call(
                self._engine.store.consume, [Consumed(row.id, DEAD, result)], now, list(said)
            )
            log.error(
                "inbox row %s failed %d times and is now a dead letter (sayso inbox list): %s",
                row.key,
                tries,
                way,
            )
            self.forget(row)

    async def _store_works(self, error: Exception) -> bool:
        """True if an error is the row's own: errors of the store are not while it takes no writes."""
        if not isinstance(error, StorageError):
            return True
        try:
            await self._engine.writer.call(self._engine.store.consume, [], self._engine.now())
        except StorageBroken:
            raise
        except StorageError:
            return False
        return True
