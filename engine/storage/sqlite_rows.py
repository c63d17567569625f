"""Inbox, prompts, timers, outbox and marks in SQLite. Statements only; `sqlite` holds the transactions.

Lists first ask for row numbers and then read row by row: a row whose text was damaged cannot take the others of
its list with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

import orjson

from engine.journal.records import (
    DEAD,
    NOTICE,
    Consumed,
    DropLock,
    DropTimer,
    InboxItem,
    InboxRow,
    OutboxRow,
    PromptRow,
    PutLock,
    PutOutbox,
    PutPrompt,
    PutSpend,
    PutTimer,
    Row,
    SettleSpend,
    SpendRow,
    Sweep,
    TakeLock,
    TimerRow,
)
from engine.language.errors import Corrupt, Fenced, StorageError
from engine.storage.sealing import (
    InboxRecord,
    MarkRecord,
    OutboxRecord,
    OutboxState,
    PromptRecord,
    SpendRecord,
    TimerRecord,
    consumed_row,
    decided_letter,
    finished,
    genuine,
    is_later,
    outbox_record,
    prompt_record,
    received,
    replaced,
    sealed,
    settled,
    spend_record,
    timer_record,
)
from engine.storage.sqlite_locks import LockTables

_log = logging.getLogger("sayso.storage")

_EVER = "9999"
_NEXT_INBOX = """SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'inbox'), 0),
 coalesce((SELECT max(id) FROM inbox), 0)) + 1"""
_NEXT_OUTBOX = """SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'outbox'), 0),
 coalesce((SELECT max(id) FROM outbox), 0)) + 1"""
_INGEST = """INSERT INTO inbox (id, key, kind, payload, session_id, thread_key, received_at, outcome, result, mac)
 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_INBOX_KNOWN = "SELECT 1 FROM inbox WHERE key = ?"
_INBOX_OPEN = """SELECT id FROM inbox INDEXED BY inbox_open WHERE outcome IS NULL AND id > ?
 ORDER BY id LIMIT ?"""
_INBOX = """SELECT id, key, kind, payload, session_id, thread_key, received_at, outcome, result, mac FROM inbox
 WHERE id = ?"""
_INBOX_BY_KEY = """SELECT id, key, kind, payload, session_id, thread_key, received_at, outcome, result, mac
 FROM inbox WHERE key = ?"""
_INBOX_DEAD = "SELECT id FROM inbox WHERE outcome = ? ORDER BY id LIMIT ?"
_DROP_INBOX = "DELETE FROM inbox WHERE id = ?"
_CONSUME = "UPDATE inbox SET outcome = ?, result = ?, mac = ? WHERE id = ?"
_INBOX_CORRUPT = "UPDATE inbox SET outcome = 'corrupt' WHERE id = ?"
_STALE_INBOX = """SELECT id, received_at, outcome IS NOT NULL AND received_at < ?1
 AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.session_id = inbox.session_id)
 AND (session_id IS NOT NULL OR thread_key IS NULL
      OR NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.thread_key = inbox.thread_key))
 FROM inbox WHERE id > ?2 ORDER BY id LIMIT ?3"""

_PUT_PROMPT = """INSERT INTO prompts (prompt_id, session_id, thread_key, status, deadline, body, mac)
 VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (prompt_id) DO UPDATE SET thread_key = excluded.thread_key,
 status = excluded.status, deadline = excluded.deadline, body = excluded.body, mac = excluded.mac
 WHERE prompts.session_id = excluded.session_id"""
_PROMPT = """SELECT prompt_id, session_id, thread_key, status, deadline, body, mac FROM prompts
 WHERE prompt_id = ?"""
_PROMPT_BY_N = (
    "SELECT prompt_id, session_id, thread_key, status, deadline, body, mac FROM prompts WHERE n = ?"
)
_PROMPTS = "SELECT n FROM prompts ORDER BY n"
_PROMPTS_OF_THREAD = "SELECT n FROM prompts WHERE thread_key = ? ORDER BY n"
_PROMPTS_OF_SESSION = "SELECT n FROM prompts WHERE session_id = ? ORDER BY n"
_PROMPTS_OF_STATUS = "SELECT n FROM prompts WHERE status IN (SELECT value FROM json_each(?)) ORDER BY n"

_PUT_TIMER = """INSERT INTO timers (timer_id, session_id, due_at, mac) VALUES (?, ?, ?, ?)
 ON CONFLICT (session_id, timer_id) DO UPDATE SET due_at = excluded.due_at, mac = excluded.mac"""
_DROP_TIMER = "DELETE FROM timers WHERE session_id = ? AND timer_id = ?"
_TIMERS = "SELECT n FROM timers ORDER BY due_at, session_id, timer_id"
_TIMERS_DUE = "SELECT n FROM timers WHERE due_at <= ? ORDER BY due_at, session_id, timer_id"
_TIMER = "SELECT timer_id, session_id, due_at, mac FROM timers WHERE n = ?"

_INSERT_OUTBOX = """INSERT INTO outbox (id, key, lane, kind, payload, session_id, state, rev, attempts, not_before,
 created_at, attempted_at, result, mac) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_UPDATE_OUTBOX = """UPDATE outbox SET key = ?, lane = ?, kind = ?, payload = ?, session_id = ?, state = ?, rev = ?,
 attempts = ?, not_before = ?, created_at = ?, attempted_at = ?, result = ?, mac = ? WHERE id = ?"""
_OUTBOX_ID = "SELECT id FROM outbox WHERE key = ?"
_OUTBOX = """SELECT id, key, lane, kind, payload, session_id, state, rev, attempts, not_before, created_at,
 attempted_at, result, mac FROM outbox WHERE id = ?"""
_OUTBOX_BY_KEY = """SELECT id, key, lane, kind, payload, session_id, state, rev, attempts, not_before, created_at,
 attempted_at, result, mac FROM outbox WHERE key = ?"""
_OUTBOX_PENDING = """SELECT id FROM outbox INDEXED BY outbox_pending
 WHERE state = 'pending' AND (not_before IS NULL OR not_before <= ?1)
 AND NOT EXISTS (SELECT 1 FROM outbox AS ahead INDEXED BY outbox_pending WHERE ahead.state = 'pending'
                 AND ahead.lane = outbox.lane AND ahead.id < outbox.id
                 AND ahead.attempts > 0 AND ahead.not_before > ?1)
 ORDER BY id LIMIT ?2"""
_OUTBOX_NOTICES = """SELECT id FROM outbox INDEXED BY outbox_pending WHERE state = 'pending'
 AND (not_before IS NULL OR not_before <= ?1) AND substr(key, 1, length(?3)) = ?3 ORDER BY id LIMIT ?2"""
_DROP_NOTICES = "DELETE FROM outbox WHERE state = 'pending' AND substr(key, 1, length(?1)) = ?1"
_OUTBOX_CORRUPT = "UPDATE outbox SET state = 'failed' WHERE id = ?"
_STALE_OUTBOX = """SELECT id, created_at, session_id IS NULL AND state != 'pending' AND created_at < ?1
 FROM outbox WHERE id > ?2 ORDER BY id LIMIT ?3"""

_NEXT_SPEND = """SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'spend'), 0),
 coalesce((SELECT max(n) FROM spend), 0)) + 1"""
_PUT_SPEND = """INSERT INTO spend (n, session_id, path, attempt, flow_name, day, reserved, cost, mac)
 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_SPEND = "SELECT n, session_id, path, attempt, flow_name, day, reserved, cost, mac FROM spend WHERE n = ?"
_SPEND_OF = "SELECT n FROM spend WHERE session_id = ? AND path = ? AND attempt = ?"
_SPENT = "SELECT coalesce(sum(coalesce(cost, reserved)), 0) FROM spend INDEXED BY spend_day WHERE day = ?"
_SPEND_SINCE = "SELECT n FROM spend WHERE day >= ? ORDER BY n"
_SETTLE_SPEND = "UPDATE spend SET cost = ?, mac = ? WHERE n = ?"
_STALE_SPEND = "SELECT n, day, day < ?1 FROM spend WHERE n > ?2 ORDER BY n LIMIT ?3"
_STALE_FLOWS = """SELECT digest, '', ?1 != '' AND NOT EXISTS
 (SELECT 1 FROM sessions WHERE sessions.flow_digest = flows.digest) FROM flows WHERE digest > ?2 ORDER BY digest LIMIT ?3"""

_MARK = "SELECT scope, ts, mac FROM marks WHERE scope = ?"
_MARKS = "SELECT scope, ts, mac FROM marks WHERE substr(scope, 1, ?) = ? ORDER BY scope"
_PUT_MARK = """INSERT INTO marks (scope, ts, mac) VALUES (?, ?, ?)
 ON CONFLICT (scope) DO UPDATE SET ts = excluded.ts, mac = excluded.mac"""


class Swept(NamedTuple):
    """A table that is swept: `look` gives keys after one with their times and whether nobody needs them."""

    look: str
    delete: str
    before: Callable[[Sweep], str]
    first: int | str = 0


_SWEPT_AT_ONCE = 200
SWEPT = (
    Swept(_STALE_INBOX, "DELETE FROM inbox WHERE id = ?", lambda at: at.inbox_before),
    Swept(_STALE_OUTBOX, "DELETE FROM outbox WHERE id = ?", lambda at: at.ended_before),
    Swept(_STALE_SPEND, "DELETE FROM spend WHERE n = ?", lambda at: at.ended_before[:10]),
    Swept(_STALE_FLOWS, "DELETE FROM flows WHERE digest = ?", lambda at: _EVER, ""),
)


class RowTables(LockTables):
    """The statements that concern everything but sessions."""

    def put(self, row: Row, now: str) -> None:
        """Insert, replace or drop one row."""
        match row:
            case PutPrompt():
                self._put_prompt(row)
            case PutTimer():
                self._db.run(_PUT_TIMER, sealed(self._sealer, timer_record(row)))
            case DropTimer():
                self._db.run(_DROP_TIMER, (row.session_id, row.timer_id))
            case PutOutbox():
                self._put_outbox(row, now)
            case PutLock():
                self._put_lock(row, now)
            case TakeLock():
                self._take_lock(row, now)
            case DropLock():
                self._drop_lock(row)
            case PutSpend():
                self._put_spend(row)
            case SettleSpend():
                self._settle_spend(row)

    # -- inbox

    def ingest(self, items: Sequence[InboxItem], now: str) -> list[int | None]:
        """What `Store.ingest` says."""
        return [self._receive(item, now) for item in items]

    def _receive(self, item: InboxItem, now: str) -> int | None:
        # Looked up first: an INSERT that ends in a conflict would write nevertheless (it spends an id).
        if self._db.one(_INBOX_KNOWN, (item.key,)):
            return None
        row_id = self._next(_NEXT_INBOX)
        self._db.run(_INGEST, sealed(self._sealer, received(row_id, item, now)))
        return row_id

    def open_inbox(self, after: int, limit: int) -> tuple[list[InboxRow], list[int]]:
        """Rows that nobody has consumed, and the ids of those that do not verify."""
        rows: list[InboxRow] = []
        corrupt: list[int] = []
        for (row_id,) in self._db.all(_INBOX_OPEN, (after, limit)):
            try:
                record = self._get(InboxRecord, _INBOX, row_id, "inbox row")
            except Corrupt:
                corrupt.append(row_id)
                continue
            if record is not None and record.outcome is None:
                rows.append(record.row())
        return rows, corrupt

    def mark_inbox_corrupt(self, row_ids: Sequence[int]) -> None:
        """Set rows aside whose MAC does not fit; the MAC stays, so that nobody takes them for good ever again."""
        self._set_aside(_INBOX_CORRUPT, "inbox row", row_ids)

    def _set_aside(self, sql: str, what: str, row_ids: Sequence[int]) -> None:
        for row_id in row_ids:
            _log.error("%s %d was changed outside this program; it is set aside", what, row_id)
            self._db.run(sql, (row_id,))

    def inbox_row(self, key: str) -> InboxRow | None:
        """What `Store.inbox_row` says."""
        record = self._get(InboxRecord, _INBOX_BY_KEY, key, "inbox row")
        return record.row() if record else None

    def dead_letters(self, limit: int) -> list[InboxRow]:
        """What `Store.dead_letters` says."""
        ids = self._db.each(_INBOX_DEAD, (DEAD, limit))
        return [record.row() for record in self._verified(InboxRecord, _INBOX, "inbox row", ids)]

    def decide_letter(self, key: str, again: bool) -> bool:
        """What `Store.decide_letter` says."""
        record = self._get(InboxRecord, _INBOX_BY_KEY, key, "inbox row")
        if record is None or record.outcome != DEAD:
            return False
        row_id = self._next(_NEXT_INBOX) if again else None
        self._db.run(_DROP_INBOX, (record.id,))
        self._db.run(_INGEST, sealed(self._sealer, decided_letter(record, row_id)))
        return True

    def consume(self, consumed: Sequence[Consumed]) -> None:
        """Mark inbox rows as done. Raises `Fenced` for one that is done, `StorageError` for one that is not there."""
        for done in consumed:
            record = self._get(InboxRecord, _INBOX, done.inbox_id, "inbox row")
            if record is None:
                raise StorageError(f"There is no inbox row {done.inbox_id}.")
            if record.outcome is not None:
                raise Fenced(f"Inbox row {done.inbox_id} was consumed already ({record.outcome}).")
            after = sealed(self._sealer, consumed_row(record, done))
            self._db.run(_CONSUME, (after.outcome, after.result, after.mac, after.id))

    def sweep(self, at: Sweep) -> Sweep:
        """Look at the next rows of a table and delete those that nobody needs; where to go on. Rows are looked at in the
        order in which they came, so the first one that is too young ends its table."""
        table = SWEPT[at.stage]
        before = table.before(at)
        rows = self._db.all(table.look, (before, at.after, _SWEPT_AT_ONCE))
        self._db.many(table.delete, [(key,) for key, _, stale in rows if stale])
        if len(rows) < _SWEPT_AT_ONCE or rows[-1][1] >= before:
            return at._replace(
                stage=at.stage + 1, after=SWEPT[at.stage + 1].first if at.stage + 1 < len(SWEPT) else 0
            )
        return at._replace(after=rows[-1][0])

    # -- prompts, timers

    def _put_prompt(self, put: PutPrompt) -> None:
        if self._db.run(_PUT_PROMPT, sealed(self._sealer, prompt_record(put))) == 0:
            raise StorageError(
                f"Prompt {put.prompt_id} belongs to another session than {put.session_id}; prompt ids are unique."
            )

    def prompt(self, prompt_id: str) -> PromptRow | None:
        """What `Store.prompt` says."""
        record = self._get(PromptRecord, _PROMPT, prompt_id, "prompt")
        return record.row() if record else None

    def prompts(
        self, thread_key: str | None, session_id: str | None, statuses: Sequence[str], limit: int
    ) -> list[PromptRow]:
        """What `Store.prompts` says."""
        if session_id is not None:
            ids = self._db.each(_PROMPTS_OF_SESSION, (session_id,))
        elif thread_key is not None:
            ids = self._db.each(_PROMPTS_OF_THREAD, (thread_key,))
        elif statuses:
            ids = self._db.each(_PROMPTS_OF_STATUS, (orjson.dumps(list(statuses)).decode(),))
        else:
            ids = self._db.each(_PROMPTS)

        def wanted(record: PromptRecord) -> bool:
            return (
                session_id in (None, record.session_id)
                and thread_key in (None, record.thread_key)
                and (not statuses or record.status in statuses)
            )

        records = self._verified(PromptRecord, _PROMPT_BY_N, "prompt in row", ids)
        return list(islice((record.row() for record in records if wanted(record)), limit))

    def timers(self, due: str | None, limit: int) -> list[TimerRow]:
        """What `Store.timers` says."""
        ids = self._db.each(_TIMERS) if due is None else self._db.each(_TIMERS_DUE, (due,))
        records = self._verified(TimerRecord, _TIMER, "timer in row", ids)
        return list(islice((record.row() for record in records), limit))

    # -- spending

    def _put_spend(self, put: PutSpend) -> None:
        if not self._db.one(_SPEND_OF, (put.session_id, put.path, put.attempt)):
            record = spend_record(self._next(_NEXT_SPEND), put, self.spent(put.day))
            self._db.run(_PUT_SPEND, sealed(self._sealer, record))

    def _settle_spend(self, settle: SettleSpend) -> None:
        """A row that does not verify is left as it is: then what was set aside counts."""
        found = self._db.all(_SPEND_OF, (settle.session_id, settle.path, settle.attempt))
        for record in self._verified(SpendRecord, _SPEND, "spending in row", found):
            after = sealed(self._sealer, settled(record, settle))
            self._db.run(_SETTLE_SPEND, (after.cost, after.mac, after.n))

    def spent(self, day: str) -> int:
        """What `Store.spent` says."""
        row = self._db.one(_SPENT, (day,))
        assert row is not None, "an aggregate without GROUP BY always gives a row"
        return int(row[0])

    def spend(self, since: str) -> list[SpendRow]:
        """What `Store.spend` says."""
        records = self._verified(SpendRecord, _SPEND, "spending in row", self._db.all(_SPEND_SINCE, (since,)))
        return [record.row() for record in records]

    # -- outbox

    def _put_outbox(self, put: PutOutbox, now: str) -> None:
        try:
            record = self._get(OutboxRecord, _OUTBOX_BY_KEY, put.key, "outbox row") if put.replace else None
        except Corrupt as error:
            row = self._db.one(_OUTBOX_ID, (put.key,))
            assert row is not None, "found by its key in this transaction"
            # Nothing of the old row can be believed, except that something may have been sent: so look first.
            _log.warning("%s It is replaced.", error)
            self._write_outbox(outbox_record(row[0], put, now)._replace(attempts=1))
            return
        if record is not None:
            self._write_outbox(replaced(record, put))
        elif put.replace or not self._db.one(_OUTBOX_ID, (put.key,)):
            record = outbox_record(self._next(_NEXT_OUTBOX), put, now)
            self._db.run(_INSERT_OUTBOX, sealed(self._sealer, record))

    def _write_outbox(self, record: OutboxRecord) -> None:
        record = sealed(self._sealer, record)
        self._db.run(_UPDATE_OUTBOX, (*record[1:], record.id))

    def drop_notices(self) -> None:
        """Send no more of the notices of a suspended store."""
        self._db.run(_DROP_NOTICES, (NOTICE,))

    def pending_outbox(
        self, now: str, limit: int, *, notices: bool = False
    ) -> tuple[list[OutboxRow], list[int]]:
        """Intents that may be sent (of a suspended store, its notices), and the ids of those that do not verify."""
        rows: list[OutboxRow] = []
        corrupt: list[int] = []
        ids = (
            self._db.all(_OUTBOX_NOTICES, (now, limit, NOTICE))
            if notices
            else self._db.all(_OUTBOX_PENDING, (now, limit))
        )
        for (row_id,) in ids:
            try:
                record = self._get(OutboxRecord, _OUTBOX, row_id, "outbox row")
            except Corrupt:
                corrupt.append(row_id)
                continue
            if record is not None and record.state == "pending":
                rows.append(record.row())
        return rows, corrupt

    def mark_outbox_corrupt(self, row_ids: Sequence[int]) -> None:
        """Set intents aside whose MAC does not fit: they are never sent."""
        self._set_aside(_OUTBOX_CORRUPT, "outbox row", row_ids)

    def outbox_row(self, key: str) -> OutboxRow | None:
        """What `Store.outbox_row` says."""
        row = self._db.one(_OUTBOX_ID, (key,))
        return self._outbox(row[0]).row() if row else None

    def _outbox(self, row_id: int) -> OutboxRecord:
        record = self._get(OutboxRecord, _OUTBOX, row_id, "outbox row")
        if record is None:
            raise StorageError(f"There is no outbox row {row_id}.")
        return record

    def attempt(self, row_id: int, now: str) -> None:
        """What `Store.outbox_attempt` says."""
        record = self._outbox(row_id)
        self._write_outbox(record._replace(attempts=record.attempts + 1, attempted_at=now))

    def finish(
        self, row_id: int, rev: int, state: OutboxState, result: bytes | None, not_before: str | None
    ) -> bool:
        """What `Store.outbox_finish` says, without the items."""
        record = self._outbox(row_id)
        self._write_outbox(finished(record, rev, state, result, not_before))
        return record.rev == rev

    # -- marks

    def mark(self, scope: str) -> str | None:
        """What `Store.mark` says."""
        try:
            record = self._get(MarkRecord, _MARK, scope, "mark")
        except Corrupt as error:
            _log.warning("%s Catch-up reads from further back.", error)
            return None
        return record.ts if record else None

    def marks(self, prefix: str) -> list[tuple[str, str]]:
        """What `Store.marks` says."""
        found = [MarkRecord(*row) for row in self._db.all(_MARKS, (len(prefix), prefix))]
        return [(record.scope, record.ts) for record in found if genuine(self._sealer, record)]

    def set_mark(self, scope: str, ts: str) -> None:
        """What `Store.set_mark` says."""
        before = self.mark(scope)
        if before is None or is_later(ts, before):
            self._db.run(_PUT_MARK, sealed(self._sealer, MarkRecord(scope, ts)))
