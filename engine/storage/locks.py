"""Queues for locks, and what model calls cost: statements and what they mean."""

from __future__ import annotations

from decimal import Decimal

from engine.journal.records import (
    NANO,
    DropLock,
    LockRow,
    PutLock,
    PutSpend,
    SettleSpend,
    SpendRow,
    TakeLock,
)
from engine.language.errors import DayBudgetSpent, LockHeld
from engine.storage.tables import LOCKS, SPEND, Tables, reads

_LOCK = LOCKS.where("n = ?")
_LOCK_OF = "SELECT n FROM locks WHERE session_id = ? AND name = ?"
_LOCK_FIRST = "SELECT n, session_id FROM locks WHERE name = ? ORDER BY n LIMIT 1"
_LOWEST_LOCK = "SELECT coalesce(min(n), 1) FROM locks"
_LOCKS = "SELECT n FROM locks ORDER BY name, n"
_LOCKS_OF_NAME = "SELECT n FROM locks WHERE name = ? ORDER BY n"
_LOCK_GRANTS = """SELECT n FROM locks INDEXED BY locks_waiting WHERE taken_at IS NULL AND NOT EXISTS
 (SELECT 1 FROM locks AS ahead WHERE ahead.name = locks.name AND ahead.n < locks.n) ORDER BY n LIMIT ?"""
_UNPLACED = """SELECT session_id, flow_digest FROM sessions WHERE status IN ('idle', 'running', 'paused')
 AND NOT EXISTS (SELECT 1 FROM locks WHERE locks.session_id = sessions.session_id) ORDER BY n"""
_LEFT_BEHIND = """SELECT session_id FROM timers UNION SELECT session_id FROM locks
 EXCEPT SELECT session_id FROM sessions WHERE status IN ('running', 'paused')"""
_DIGEST = "SELECT session_id, flow_digest FROM sessions WHERE session_id = ?"
_DROP_LOCK = "DELETE FROM locks WHERE session_id = ? AND name = ?"
_SPEND = SPEND.where("n = ?")
_SPEND_OF = "SELECT n FROM spend WHERE session_id = ? AND path = ? AND attempt = ?"
_SPENT = "SELECT coalesce(sum(coalesce(cost, reserved)), 0) FROM spend INDEXED BY spend_day WHERE day = ?"
_SPEND_SINCE = "SELECT n FROM spend WHERE day >= ? ORDER BY n"


class LockTable(Tables):
    """Locks: who waits for them and who has them."""

    def put(self, put: PutLock, now: str) -> None:
        """Put a session into a queue, inside a transaction. Raises `LockHeld`."""
        self._db.hold(f"lock {put.name}")
        if self._db.one(_LOCK_OF, (put.session_id, put.name)):
            return
        if put.first:
            # The row of a holder was lost: its place is ahead of all others.
            found = self._db.one(_LOCK_FIRST, (put.name,))
            first = self._get(LOCKS, _LOCK, found[0]) if found else None
            if first is not None and first.taken_at is not None:
                raise LockHeld(
                    f"Lock {put.name} was lost by {put.session_id}, and {first.session_id} has taken it."
                )
            self._db.hold("lost places")
            n = self._number(_LOWEST_LOCK) - 1
        else:
            n = self._next("locks", "n")
        self._put(LOCKS, LOCKS.insert, LockRow(put.name, put.session_id, now, None), n)

    def take(self, take: TakeLock, now: str) -> None:
        """Give the lock to the first in its queue, inside a transaction. Raises `LockHeld`."""
        self._db.hold(f"lock {take.name}")
        own = self._db.one(_LOCK_OF, (take.session_id, take.name))
        first = self._db.one(_LOCK_FIRST, (take.name,))
        record = self._get(LOCKS, _LOCK, own[0]) if own else None
        if record is None or own is None or first is None:
            raise LockHeld(f"Session {take.session_id} has no place in the queue for lock {take.name}.")
        if first[0] != own[0]:
            raise LockHeld(
                f"Lock {take.name} is held by session {first[1]}; {take.session_id} cannot take it."
            )
        self._update(LOCKS, record.but(taken_at=record.taken_at or now), own[0])

    def drop(self, drop: DropLock) -> None:
        """Take a session out of a queue, inside a transaction."""
        self._db.post(_DROP_LOCK, (drop.session_id, drop.name))

    @reads
    def rows(self, name: str | None = None) -> list[LockRow]:
        """The queue for a lock, or all queues by name; each in its order, the first has the lock or is to get it."""
        ids = self._db.all(_LOCKS) if name is None else self._db.all(_LOCKS_OF_NAME, (name,))
        queue = []
        for (n,) in ids:
            try:
                row = self._db.one(_LOCK, (n,))
            except UnicodeDecodeError:
                row = None
            if row is None:
                queue.append(LockRow(name or "?", "?", "", None, verified=False))
            else:
                queue.append(LOCKS.verified(self._sealer, row) or LockRow(*row[1:-1]).but(verified=False))
        return queue

    @reads
    def unplaced(self) -> list[tuple[str, str]]:
        """Open sessions that have no place in any queue that verifies, each with the digest of its flow."""
        changed = [row.session_id for row in self.rows() if not row.verified]
        return self._db.all(_UNPLACED) + [row for name in changed for row in self._db.all(_DIGEST, (name,))]

    @reads
    def left_behind(self) -> list[str]:
        """Sessions that have timers or a place in a queue although they are not open."""
        return [row[0] for row in self._db.all(_LEFT_BEHIND)]

    @reads
    def grants(self, limit: int = 100) -> list[str]:
        """Sessions that are first in their queue and have not taken the lock yet, longest waiting first. A row that does not verify gets nothing."""
        return [row.session_id for row in self._each(LOCKS, _LOCK, self._db.all(_LOCK_GRANTS, (limit,)))]


class SpendTable(Tables):
    """Costs of model calls."""

    def put(self, put: PutSpend) -> None:
        """Set an amount aside, inside a transaction. Raises `DayBudgetSpent`."""
        self._db.hold(f"spend {put.day}")
        if self._db.one(_SPEND_OF, (put.session_id, put.path, put.attempt)):
            return
        spent = self.on(put.day)
        if put.cap is not None and spent + put.amount > put.cap:
            left = max(0, put.cap - spent)
            raise DayBudgetSpent(put.day, Decimal(left) / NANO, Decimal(put.amount) / NANO)
        row = SpendRow(put.session_id, put.path, put.attempt, put.flow_name, put.day, put.amount, None)
        self._put(SPEND, SPEND.insert, row, self._next("spend", "n"))

    def settle(self, settle: SettleSpend) -> None:
        """Note what a call cost, inside a transaction. A row that does not verify is left as it is: then what was set aside
        counts."""
        found = self._db.all(_SPEND_OF, (settle.session_id, settle.path, settle.attempt))
        for (n,) in found:
            for row in self._each(SPEND, _SPEND, [(n,)]):
                cost = settle.amount if settle.sure else max(settle.amount, row.reserved)
                self._update(SPEND, row.but(cost=cost), n)

    @reads
    def on(self, day: str) -> int:
        """Return the amount that counts on that day, in billionths of a dollar."""
        return self._number(_SPENT, day)

    @reads
    def rows(self, since: str) -> list[SpendRow]:
        """The model calls of that day and of all later ones, oldest first. Rows that do not verify are left out."""
        return list(self._each(SPEND, _SPEND, self._db.all(_SPEND_SINCE, (since,))))
