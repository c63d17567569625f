"""Inbox, prompts, timers, outbox and marks: statements and what they mean."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Literal

from engine.journal.records import (
    DEAD,
    DROPPED,
    NOTICE,
    Consumed,
    DropTimer,
    InboxItem,
    InboxRow,
    Mark,
    OutboxRow,
    PromptRow,
    PutOutbox,
    Timer,
)
from engine.language.errors import Corrupt, Fenced
from engine.storage.database import Database, SqlValue
from engine.storage.errors import NoSuchRow, PromptOfAnother
from engine.storage.lanes import LaneTable
from engine.storage.sealing import Sealer
from engine.storage.tables import (
    INBOX,
    MARKS,
    OUTBOX,
    PROMPTS,
    TIMERS,
    Tables,
    at_most,
    listed,
    reads,
    reads_once,
    writes,
    writes_suspended,
)

_log = logging.getLogger("sayso.storage")

SWEPT_AT_ONCE = 200
"""Most rows that one deleting or emptying transaction examines."""
GAP = "gap"
"""The mark that other processes wait for: when something may have been missed last."""
_INBOX = INBOX.where("id = ?")
_INBOX_BY_KEY = INBOX.where("key = ?")
_PUT_INBOX = INBOX.insert + " ON CONFLICT (key) DO NOTHING"
_INBOX_HELD = "inbox"
"""The name that is held while rows of the inbox are made."""
_INBOX_KNOWN = "SELECT 1 FROM inbox WHERE key = ?"
_INBOX_OPEN = """SELECT id FROM inbox INDEXED BY inbox_open WHERE outcome IS NULL AND id > ?
 ORDER BY id LIMIT ?"""
_LANE = """SELECT id FROM inbox INDEXED BY inbox_open
 WHERE outcome IS NULL AND coalesce(thread_key, session_id, key) = ? ORDER BY id"""
_INBOX_DEAD = "SELECT id FROM inbox WHERE outcome = 'dead' ORDER BY id LIMIT ?"
_DROP_INBOX = "DELETE FROM inbox WHERE id = ?"
# Names the columns that change only: SQLite rewrites the index entries of every column that an UPDATE names.
_CONSUME = "UPDATE inbox SET outcome = ?, result = ?, session_id = ?, mac = ? WHERE id = ?"
_INBOX_CORRUPT = "UPDATE inbox SET outcome = 'corrupt' WHERE id = ?"
_SAID = """SELECT id FROM inbox WHERE id > ? AND outcome IS NOT NULL
 AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.session_id = inbox.session_id) AND (session_id IS NOT NULL
 OR (thread_key IS NOT NULL AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.thread_key = inbox.thread_key)))
 ORDER BY id LIMIT ?"""

_PUT_PROMPT = PROMPTS.upsert("prompt_id", " WHERE prompts.session_id = excluded.session_id")
_PROMPT = PROMPTS.where("prompt_id = ?")
_PROMPT_BY_N = PROMPTS.where("n = ?")
_PROMPTS = "SELECT n FROM prompts ORDER BY n"
_PROMPTS_OF_STATUS = "SELECT n FROM prompts WHERE status IN (SELECT value FROM json_each(?)) ORDER BY n"
_PROMPTS_OF_SESSION = "SELECT n FROM prompts WHERE session_id = ? ORDER BY n"
_PROMPTS_OF_SESSION_AND_STATUS = _PROMPTS_OF_STATUS.replace("WHERE", "WHERE session_id = ? AND")
_PROMPTS_OF_THREAD = "SELECT n FROM prompts WHERE thread_key = ? ORDER BY n"
_PROMPTS_OF_THREAD_AND_STATUS = _PROMPTS_OF_STATUS.replace("WHERE", "WHERE thread_key = ? AND")

_PUT_TIMER = TIMERS.upsert("session_id, timer_id")
_DROP_TIMER = "DELETE FROM timers WHERE session_id = ? AND timer_id = ?"
_TIMERS = """SELECT n FROM timers
 WHERE NOT EXISTS (SELECT 1 FROM quarantine WHERE quarantine.session_id = timers.session_id)
 ORDER BY due_at, session_id, timer_id"""
_TIMERS_DUE = """SELECT n FROM timers WHERE due_at <= ?
 AND NOT EXISTS (SELECT 1 FROM quarantine WHERE quarantine.session_id = timers.session_id)
 ORDER BY due_at, session_id, timer_id"""
_TIMERS_OF = "SELECT n FROM timers WHERE session_id = ? ORDER BY due_at, timer_id"
_TIMER = TIMERS.where("n = ?")

_OUTBOX_ID = "SELECT id FROM outbox WHERE key = ?"
_OUTBOX = OUTBOX.where("id = ?")
_PUT_OUTBOX = OUTBOX.insert + " ON CONFLICT (key) DO NOTHING"
_OUTBOX_BY_KEY = OUTBOX.where("key = ?")
_OUTBOX_OF_SESSION = """SELECT id FROM outbox WHERE session_id = ?1
 AND substr(key, 1, length(?2)) = ?2 ORDER BY id"""
_OUTBOX_PENDING = """WITH ahead (lane, id) AS MATERIALIZED (SELECT lane, min(id) FROM outbox INDEXED BY outbox_pending
  WHERE state = 'pending' AND attempts > 0 AND not_before > ?1 GROUP BY lane)
 SELECT outbox.id FROM outbox INDEXED BY outbox_pending LEFT JOIN ahead ON ahead.lane = outbox.lane
 WHERE state = 'pending' AND (not_before IS NULL OR not_before <= ?1) AND (ahead.id IS NULL OR ahead.id > outbox.id)
 ORDER BY outbox.id LIMIT ?2"""
_OUTBOX_NOTICES = """SELECT id FROM outbox INDEXED BY outbox_pending WHERE state = 'pending'
 AND (not_before IS NULL OR not_before <= ?1) AND substr(key, 1, length(?3)) = ?3 ORDER BY id LIMIT ?2"""
_OUTBOX_CORRUPT = "UPDATE outbox SET state = 'failed' WHERE id = ?"


_MARK = MARKS.where("scope = ?")
_MARKS = MARKS.where("substr(scope, 1, length(?1)) = ?1 ORDER BY scope")
_PUT_MARK = MARKS.upsert("scope")


class InboxTable(Tables):
    """Input from outside, until it is consumed and for as long as its keys are needed."""

    def __init__(self, db: Database, sealer: Sealer, lanes: LaneTable) -> None:
        super().__init__(db, sealer)
        self._lanes = lanes

    @writes
    def ingest(self, items: Sequence[InboxItem], now: str) -> list[int | None]:
        """Store items; the new row's id for each, or None where the key was known. Durable on return."""
        return [self.receive(item, now) for item in items]

    def receive(self, item: InboxItem, now: str) -> int | None:
        """Store an item, inside a transaction."""
        # Looked up first: an INSERT that ends in a conflict would write nevertheless (it spends an id).
        if self._db.one(_INBOX_KNOWN, (item.key,)):
            return None
        row_id = self._inbox_id()
        row = InboxRow(
            row_id, item.key, item.kind, item.payload, item.session_id, item.thread_key, now, None, None
        )
        # The lane first: nothing waits for the answer to that alone.
        self._lanes.arrive(item.thread_key or item.session_id or item.key)
        return row_id if self._put_counted(INBOX, _PUT_INBOX, row) else None

    def _inbox_id(self) -> int:
        """The id of a new inbox row. Rows appear in the order of their ids: whoever reads on from one misses none."""
        self._db.hold(_INBOX_HELD)
        return self._next("inbox")

    def rows(self, *, after: int = 0, limit: int | None = 100) -> list[InboxRow]:
        """Rows that nobody has consumed, oldest first, with id > `after`. Verified; a row that does not verify is
        marked with outcome `corrupt` and left out."""
        return self._open(_INBOX_OPEN, after, at_most(limit))

    def lane(self, lane: str) -> list[InboxRow]:
        """The rows with this ordering key that nobody has consumed, oldest first. Verified as for `rows`."""
        return self._open(_LANE, lane)

    def _open(self, ids: str, *values: SqlValue) -> list[InboxRow]:
        corrupt: list[int] = []
        # Not in one transaction: what was consumed in between is left out.
        with self._db.read(single=True):
            found = self._db.all(ids, values)
        with self._db.read(single=True):
            rows = list(self._each(INBOX, _INBOX, found, corrupt))
        self._set_aside("inbox row", _INBOX_CORRUPT, corrupt)
        return [row for row in rows if row.outcome is None]

    @reads
    def row(self, key: str) -> InboxRow | None:
        """One row by its key, consumed or not."""
        return self._get(INBOX, _INBOX_BY_KEY, key)

    @reads
    def dead_letters(self, limit: int = 1000) -> list[InboxRow]:
        """Rows whose outcome is `dead`, oldest first. Rows that do not verify are left out."""
        return list(self._each(INBOX, _INBOX, self._db.each(_INBOX_DEAD, (limit,))))

    @writes
    def decide_letter(self, key: str, *, again: bool) -> bool:
        """Open a dead letter again, under a new id since readers are past the old one, or drop it. False where there is
        no dead letter with this key."""
        row_id = self._inbox_id() if again else 0
        row = self._held(INBOX, _INBOX_BY_KEY, key)
        if row is None or row.outcome != DEAD:
            return False
        after = row.but(id=row_id, outcome=None, result=None) if again else row.but(outcome=DROPPED)
        self._db.run(_DROP_INBOX, (row.id,))
        self._put(INBOX, INBOX.insert, after)
        self._lanes.arrive(row.thread_key or row.session_id or row.key)
        return True

    def take(self, consumed: Iterable[Consumed], session_id: str | None = None) -> None:
        """Mark rows as done, and as those of the session that took them, inside a transaction. Raises `Fenced` for one that is done,
        `StorageError` for one that is not there."""
        for done in consumed:
            row = self._closed(INBOX, _INBOX + self._db.for_update, done.inbox_id)
            if row is None:
                raise NoSuchRow(table="inbox", row_id=done.inbox_id)
            if row.outcome is not None:
                raise Fenced(f"Inbox row {done.inbox_id} was consumed already ({row.outcome}).")
            after = row.but(outcome=done.outcome, result=done.result, session_id=row.session_id or session_id)
            *_, result, mac = INBOX.sealed(self._sealer, after)
            self._db.post(_CONSUME, (after.outcome, result, after.session_id, mac, after.id))

    def empty(self, after: int = 0) -> int | None:
        """Empty consumed inbox rows of sessions that are gone, for a few milliseconds: their keys stay. After which row to go
        on, or None when that was all; then the log, which has what was deleted, is emptied too, unless others read it."""
        after = self._db.atomically(partial(self._empty_some, after))
        if not after:
            with self._db.thorough():
                return None
        return after

    def _empty_some(self, after: int) -> int:
        ids = self._all_held(_SAID, (after, SWEPT_AT_ONCE))
        for row in self._each(INBOX, _INBOX, ids):
            self.empty_row(row)
        return int(ids[-1][0]) if ids else 0

    def empty_row(self, row: InboxRow) -> None:
        """Take what a consumed row holds. Its key stays, so that what is delivered again starts nothing."""
        after = row.but(payload=b"{}", result=None, outcome=DROPPED if row.outcome == DEAD else row.outcome)
        if after != row:
            self._update(INBOX, after)


class PromptTable(Tables):
    """Open questions, for showing and listing them."""

    def put(self, row: PromptRow) -> None:
        """Store a prompt instead of the one with its id, inside a transaction."""
        another = partial(PromptOfAnother, prompt_id=row.prompt_id, session_id=row.session_id)
        self._db.post(_PUT_PROMPT, PROMPTS.sealed(self._sealer, row), 1, another)

    @reads
    def row(self, prompt_id: str) -> PromptRow | None:
        """One prompt, verified."""
        return self._get(PROMPTS, _PROMPT, prompt_id)

    @reads
    def rows(
        self,
        *,
        thread_key: str | None = None,
        session_id: str | None = None,
        statuses: Sequence[str] = (),
        limit: int | None = 500,
    ) -> list[PromptRow]:
        """Prompts, oldest first; rows that do not verify are left out."""
        if session_id is not None:
            asked, sql = [session_id], _PROMPTS_OF_SESSION_AND_STATUS if statuses else _PROMPTS_OF_SESSION
        elif thread_key is not None:
            asked, sql = [thread_key], _PROMPTS_OF_THREAD_AND_STATUS if statuses else _PROMPTS_OF_THREAD
        else:
            asked, sql = [], _PROMPTS_OF_STATUS if statuses else _PROMPTS
        if statuses:
            asked.append(listed(statuses))
        ids = self._db.each(sql, asked)
        found = self._each(PROMPTS, _PROMPT_BY_N, ids)
        return list(islice((row for row in found if thread_key in (None, row.thread_key)), limit))


class TimerTable(Tables):
    """Timers of sessions."""

    def put(self, timer: Timer) -> None:
        """Set a timer instead of the one with its id, inside a transaction."""
        self._put(TIMERS, _PUT_TIMER, timer)

    def drop(self, timer: DropTimer) -> None:
        """Remove a timer, inside a transaction."""
        self._db.post(_DROP_TIMER, (timer.session_id, timer.timer_id))

    @reads
    def rows(self, *, due: str | None = None, limit: int | None = 100) -> list[Timer]:
        """Timers, soonest first; with `due` only those at or before it. Rows that do not verify are left out, and those of
        sessions that are on hold: nothing of these runs before they are released."""
        ids = self._db.each(_TIMERS) if due is None else self._db.each(_TIMERS_DUE, (due,))
        return list(islice(self._each(TIMERS, _TIMER, ids), limit))

    @reads
    def of(self, session_id: str) -> list[Timer]:
        """The timers of a session, soonest first."""
        return list(self._each(TIMERS, _TIMER, self._db.all(_TIMERS_OF, (session_id,))))


class OutboxTable(Tables):
    """Intents to show something, with their outcomes."""

    def __init__(self, db: Database, sealer: Sealer, inbox: InboxTable) -> None:
        super().__init__(db, sealer)
        self._inbox = inbox

    def put(self, put: PutOutbox, now: str) -> None:
        """Store an intent, inside a transaction."""
        self._db.notify()
        try:
            row = self._held(OUTBOX, _OUTBOX_BY_KEY, put.key) if put.replace else None
        except Corrupt as error:
            # Nothing of the old row can be believed, except that something may have been sent: so look first.
            _log.warning("%s It is replaced.", error)
            found = self._db.one(_OUTBOX_ID, (put.key,))
            assert found is not None, "found by its key in this transaction"
            self._update(OUTBOX, _intent(found[0], put, now).but(attempts=1))
            return
        if row is not None:
            self._update(OUTBOX, replaced(row, put))
        elif put.replace or not self._db.one(_OUTBOX_ID, (put.key,)):
            new = _intent(self._next("outbox"), put, now)
            if not put.replace:
                self._put(OUTBOX, _PUT_OUTBOX, new)
            elif self._put_counted(OUTBOX, _PUT_OUTBOX, new) == 0:
                self.put(put, now)  # another process has made it just now

    @writes_suspended
    def give_notice(self, notices: Sequence[PutOutbox], now: str) -> None:
        """Intents that tell people of a suspended store: `due` gives no others then. Those that were not sent are
        dropped by `Store.unsuspend`."""
        for notice in notices:
            self.put(notice.but(key=NOTICE + notice.key), now)

    def due(self, *, now: str, limit: int | None = 100) -> list[OutboxRow]:
        """Pending rows whose `not_before` has come, oldest first. A row that was attempted and has to wait holds
        back the later rows of its lane. A row that does not verify is set to `failed` and left out."""
        corrupt: list[int] = []
        with self._db.read(single=True):
            if self._db.watch.suspended is None:
                ids = self._db.all(_OUTBOX_PENDING, (now, at_most(limit)))
            else:
                ids = self._db.all(_OUTBOX_NOTICES, (now, at_most(limit), NOTICE))
        if not ids:
            return []
        with self._db.read():
            rows = list(self._each(OUTBOX, _OUTBOX, ids, corrupt))
        self._set_aside("outbox row", _OUTBOX_CORRUPT, corrupt)
        return [row for row in rows if row.state == "pending"]

    @reads
    def row(self, key: str) -> OutboxRow | None:
        """One row by its key, in any state."""
        found = self._db.one(_OUTBOX_ID, (key,))
        return self._get(OUTBOX, _OUTBOX, found[0]) if found else None

    @reads
    def of(self, session_id: str, prefix: str) -> list[OutboxRow]:
        """The rows of a session whose keys begin so, in any state, oldest first. Those that do not verify are left out."""
        return list(self._each(OUTBOX, _OUTBOX, self._db.all(_OUTBOX_OF_SESSION, (session_id, prefix))))

    def _changed(self, row_id: int) -> OutboxRow:
        """A row that is going to be changed."""
        row = self._closed(OUTBOX, _OUTBOX + self._db.for_update, row_id)
        if row is None:
            raise NoSuchRow(table="outbox", row_id=row_id)
        return row

    @writes_suspended
    def attempt(self, row_id: int, attempts: int, now: str) -> bool:
        """Count an attempt, durably, before the request is made. False, and nothing is changed, where the row is not as it
        was read: it has another number of `attempts`, or is not pending any more."""
        row = self._changed(row_id)
        if (row.attempts, row.state) != (attempts, "pending"):
            return False
        self._update(OUTBOX, row.but(attempts=attempts + 1, attempted_at=now))
        return True

    @writes_suspended
    def finish(
        self,
        row_id: int,
        rev: int,
        *,
        now: str,
        state: Literal["pending", "sent", "failed"],
        result: bytes | None = None,
        not_before: str | None = None,
        items: Sequence[InboxItem] = (),
    ) -> bool:
        """Record the outcome of an attempt, and ingest its follow-ups (`prompt shown`), in one transaction.
        When the row was replaced meanwhile (`rev` moved) the result is kept and the row stays pending: False. A result that was there stays when none is given."""
        row = self._changed(row_id)
        after = row.but(result=row.result if result is None else result)
        if row.rev == rev:
            after = after.but(state=state, not_before=not_before)
        self._update(OUTBOX, after)
        if after.state == "pending" and after.not_before is None:
            self._db.notify()
        for item in items:
            self._inbox.receive(item, now)
        return row.rev == rev


class MarkTable(Tables):
    """Progress of catch-up reads, and similar notes."""

    @reads_once
    def ts(self, scope: str) -> str | None:
        """Return the progress of a catch-up read in that thread or channel (a Slack ts)."""
        try:
            found = self._get(MARKS, _MARK, scope)
        except Corrupt as error:
            _log.warning("%s Catch-up reads from further back.", error)
            return None
        return found.ts if found else None

    @reads_once
    def rows(self, prefix: str) -> list[tuple[str, str]]:
        """The marks whose scope begins so, each with its ts, in the order of their scopes. Those that do not verify are
        left out."""
        found = (MARKS.verified(self._sealer, row) for row in self._db.all(_MARKS, (prefix,)))
        return [(mark.scope, mark.ts) for mark in found if mark is not None]

    @writes
    def move(self, scope: str, ts: str) -> None:
        """Move a mark forward; it never goes back. A mark that does not verify counts as none."""
        self._db.hold(f"mark {scope}")
        before = self.ts(scope)
        if before is None or _ts_order(ts) > _ts_order(before):
            self._put(MARKS, _PUT_MARK, Mark(scope, ts))
            if scope == GAP:
                self._db.notify()


def _intent(row_id: int, put: PutOutbox, now: str) -> OutboxRow:
    """A new intent."""
    return OutboxRow(
        row_id, put.key, put.lane, put.kind, put.payload, put.session_id, "pending", 1, int(put.uncertain),
        put.not_before, now, None, None,
    )  # fmt: skip


def replaced(row: OutboxRow, put: PutOutbox) -> OutboxRow:
    """An intent whose payload was replaced: pending again, one revision on.

    Its result (the message to edit) and the count of attempts stay: one may be out whose result is unknown, and then
    whoever sends must still look before sending again.
    """
    return row.but(
        lane=put.lane,
        kind=put.kind,
        payload=put.payload,
        session_id=put.session_id,
        state="pending",
        rev=row.rev + 1,
        not_before=put.not_before,
    )


def _ts_order(ts: str) -> tuple[int, str, str]:
    """Return a sort key for Slack's timestamps."""
    whole, _, fraction = ts.partition(".")
    whole = whole.lstrip("0")
    return len(whole), whole, fraction
