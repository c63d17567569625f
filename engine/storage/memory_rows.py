"""Inbox, prompts, timers, outbox and marks in memory: the counterpart of `sqlite_rows`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from engine.journal.records import (
    DEAD,
    Consumed,
    DropLock,
    DropTimer,
    InboxItem,
    InboxRow,
    LockRow,
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
    TakeLock,
    TimerRow,
)
from engine.language.errors import Corrupt, Fenced, LockHeld, StorageError
from engine.storage.macs import Sealer
from engine.storage.memory_tables import Tables
from engine.storage.sealing import (
    InboxRecord,
    LockRecord,
    MarkRecord,
    OutboxRecord,
    OutboxState,
    Sealed,
    consumed_row,
    decided_letter,
    finished,
    genuine,
    is_later,
    lock_record,
    lost_place,
    outbox_record,
    prompt_record,
    received,
    replaced,
    sealed,
    settled,
    spend_record,
    taken,
    timer_record,
)


class MemoryRows:
    """What concerns everything but sessions."""

    def __init__(self, tables: Tables, sealer: Sealer) -> None:
        self._tables = tables
        self._sealer = sealer

    def _checked(self, record: Sealed, what: str) -> Sealed:
        if not genuine(self._sealer, record):
            raise Corrupt(f"The {what} was changed outside this program.")
        return record

    def put_all(self, rows: Iterable[Row], now: str) -> None:
        """Insert, replace or drop rows."""
        for row in rows:
            self._put(row, now)

    def _put(self, row: Row, now: str) -> None:
        tables = self._tables
        match row:
            case PutPrompt():
                self._put_prompt(row)
            case PutTimer():
                key = (row.session_id, row.timer_id)
                tables.put(tables.timers, key, sealed(self._sealer, timer_record(row)))
            case DropTimer():
                tables.drop(tables.timers, (row.session_id, row.timer_id))
            case PutOutbox():
                self._put_outbox(row, now)
            case PutLock():
                self._put_lock(row, now)
            case TakeLock():
                self._take_lock(row, now)
            case DropLock():
                place = self._place(row.name, row.session_id)
                if place is not None:
                    tables.drop(tables.locks, place.n)
            case PutSpend():
                self._put_spend(row)
            case SettleSpend():
                self._settle_spend(row)

    # -- locks

    def _queue(self, name: str) -> list[LockRecord]:
        return sorted(record for record in self._tables.locks.values() if record.name == name)

    def _place(self, name: str, session_id: str) -> LockRecord | None:
        return next((record for record in self._queue(name) if record.session_id == session_id), None)

    def _put_lock(self, put: PutLock, now: str) -> None:
        tables = self._tables
        if self._place(put.name, put.session_id) is not None:
            return
        if put.first:
            first = next(iter(self._queue(put.name)), None)
            record = lost_place(first, min(tables.locks, default=1), put, now)
            tables.put(tables.locks, record.n, sealed(self._sealer, record))
        else:
            n = tables.next_id("locks")
            tables.put(tables.locks, n, sealed(self._sealer, lock_record(n, put, now)))
            tables.put(tables.last_ids, "locks", n)

    def _take_lock(self, take: TakeLock, now: str) -> None:
        record = self._place(take.name, take.session_id)
        if record is None:
            raise LockHeld(f"Session {take.session_id} has no place in the queue for lock {take.name}.")
        self._checked(record, f"lock {record.n}")
        first = self._queue(take.name)[0]
        after = taken(record, first=first.n == record.n, ahead=first.session_id, now=now)
        self._tables.put(self._tables.locks, record.n, sealed(self._sealer, after))

    def locks(self, name: str | None) -> list[LockRow]:
        """What `Store.locks` says."""
        records = [record for record in self._tables.locks.values() if name in (None, record.name)]
        records.sort(key=lambda record: (record.name, record.n))
        return [record.row(verified=genuine(self._sealer, record)) for record in records]

    def grants(self, limit: int) -> list[str]:
        """What `Store.grants` says. A row that does not verify gets nothing."""
        firsts: dict[str, LockRecord] = {}
        for record in sorted(self._tables.locks.values()):
            firsts.setdefault(record.name, record)
        waiting = [record for record in firsts.values() if record.taken_at is None]
        return [record.session_id for record in waiting[:limit] if genuine(self._sealer, record)]

    # -- spending

    def _put_spend(self, put: PutSpend) -> None:
        tables, key = self._tables, (put.session_id, put.path, put.attempt)
        if key not in tables.spend:
            n = tables.next_id("spend")
            record = spend_record(n, put, self.spent(put.day))
            tables.put(tables.spend, key, sealed(self._sealer, record))
            tables.put(tables.last_ids, "spend", n)

    def _settle_spend(self, settle: SettleSpend) -> None:
        key = (settle.session_id, settle.path, settle.attempt)
        record = self._tables.spend.get(key)
        if record is not None and genuine(self._sealer, record):
            self._tables.put(self._tables.spend, key, sealed(self._sealer, settled(record, settle)))

    def spent(self, day: str) -> int:
        """What `Store.spent` says."""
        return sum(record.row().amount for record in self._tables.spend.values() if record.day == day)

    def spend(self, since: str) -> list[SpendRow]:
        """What `Store.spend` says."""
        records = sorted(record for record in self._tables.spend.values() if record.day >= since)
        return [record.row() for record in records if genuine(self._sealer, record)]

    # -- inbox

    def ingest(self, items: Sequence[InboxItem], now: str) -> list[int | None]:
        """What `Store.ingest` says."""
        return [self._receive(item, now) for item in items]

    def _receive(self, item: InboxItem, now: str) -> int | None:
        tables = self._tables
        if item.key in tables.inbox_ids:
            return None
        row_id = tables.next_id("inbox")
        tables.put(tables.inbox, row_id, sealed(self._sealer, received(row_id, item, now)))
        tables.put(tables.inbox_ids, item.key, row_id)
        tables.put(tables.last_ids, "inbox", row_id)
        return row_id

    def open_inbox(self, after: int, limit: int) -> list[InboxRow]:
        """What `Store.inbox` says."""
        tables = self._tables
        rows = []
        waiting = [row for row in tables.inbox.values() if row.outcome is None and row.id > after]
        for record in waiting[:limit]:
            if genuine(self._sealer, record):
                rows.append(record.row())
            else:
                # The MAC stays as it is: nobody takes this row for good ever again.
                tables.put(tables.inbox, record.id, record._replace(outcome="corrupt"))
        return rows

    def inbox_row(self, key: str) -> InboxRow | None:
        """What `Store.inbox_row` says."""
        row_id = self._tables.inbox_ids.get(key)
        return None if row_id is None else self._inbox(row_id).row()

    def dead_letters(self, limit: int) -> list[InboxRow]:
        """What `Store.dead_letters` says."""
        dead = sorted(row for row in self._tables.inbox.values() if row.outcome == DEAD)
        return [row.row() for row in dead if genuine(self._sealer, row)][:limit]

    def decide_letter(self, key: str, again: bool) -> bool:
        """What `Store.decide_letter` says."""
        tables, row_id = self._tables, self._tables.inbox_ids.get(key)
        if row_id is None or self._inbox(row_id).outcome != DEAD:
            return False
        then = tables.next_id("inbox") if again else row_id
        after = sealed(self._sealer, decided_letter(self._inbox(row_id), then if again else None))
        tables.drop(tables.inbox, row_id)
        tables.put(tables.inbox, then, after)
        tables.put(tables.inbox_ids, key, then)
        tables.put(tables.last_ids, "inbox", max(then, tables.next_id("inbox") - 1))
        return True

    def _inbox(self, row_id: int) -> InboxRecord:
        record = self._tables.inbox.get(row_id)
        if record is None:
            raise StorageError(f"There is no inbox row {row_id}.")
        return self._checked(record, f"inbox row {row_id}")

    def consume(self, consumed: Sequence[Consumed]) -> None:
        """Mark inbox rows as done. Raises `Fenced` for one that is done, `StorageError` for one that is not there."""
        for done in consumed:
            record = self._inbox(done.inbox_id)
            if record.outcome is not None:
                raise Fenced(f"Inbox row {done.inbox_id} was consumed already ({record.outcome}).")
            after = sealed(self._sealer, consumed_row(record, done))
            self._tables.put(self._tables.inbox, record.id, after)

    def reap(self, ended_before: str, inbox_before: str) -> None:
        """Delete consumed inbox rows, outbox rows without a session, and what was spent, that are old enough."""
        tables = self._tables
        threads = {record.thread_key for record in tables.sessions.values()}
        for row in list(tables.inbox.values()):
            kept = (
                row.session_id in tables.sessions
                if row.session_id is not None
                else row.thread_key is not None and row.thread_key in threads
            )
            if row.outcome is not None and row.received_at < inbox_before and not kept:
                tables.drop(tables.inbox, row.id)
                tables.drop(tables.inbox_ids, row.key)
        for key, call in list(tables.spend.items()):
            if call.day < ended_before[:10]:
                tables.drop(tables.spend, key)
        for intent in list(tables.outbox.values()):
            old = intent.state != "pending" and intent.created_at < ended_before
            if old and intent.session_id is None:
                tables.drop(tables.outbox, intent.id)
                tables.drop(tables.outbox_ids, intent.key)

    # -- prompts, timers

    def _put_prompt(self, put: PutPrompt) -> None:
        tables = self._tables
        before = tables.prompts.get(put.prompt_id)
        if before is not None and before.session_id != put.session_id:
            raise StorageError(
                f"Prompt {put.prompt_id} belongs to another session than {put.session_id}; prompt ids are unique."
            )
        tables.put(tables.prompts, put.prompt_id, sealed(self._sealer, prompt_record(put)))

    def prompt(self, prompt_id: str) -> PromptRow | None:
        """What `Store.prompt` says."""
        record = self._tables.prompts.get(prompt_id)
        return None if record is None else self._checked(record, f"prompt {prompt_id!r}").row()

    def prompts(
        self, thread_key: str | None, session_id: str | None, statuses: Sequence[str], limit: int
    ) -> list[PromptRow]:
        """What `Store.prompts` says."""
        wanted = (
            record.row()
            for record in self._tables.prompts.values()
            if session_id in (None, record.session_id)
            and thread_key in (None, record.thread_key)
            and (not statuses or record.status in statuses)
            and genuine(self._sealer, record)
        )
        return list(islice(wanted, limit))

    def timers(self, due: str | None, limit: int) -> list[TimerRow]:
        """What `Store.timers` says."""
        wanted = [
            record.row()
            for record in self._tables.timers.values()
            if (due is None or record.due_at <= due) and genuine(self._sealer, record)
        ]
        return sorted(wanted, key=lambda row: (row.due_at, row.session_id, row.timer_id))[:limit]

    # -- outbox

    def _put_outbox(self, put: PutOutbox, now: str) -> None:
        tables = self._tables
        known = tables.outbox_ids.get(put.key)
        if known is None:
            row_id = tables.next_id("outbox")
            self._write_outbox(outbox_record(row_id, put, now))
            tables.put(tables.outbox_ids, put.key, row_id)
            tables.put(tables.last_ids, "outbox", row_id)
        elif put.replace:
            record = tables.outbox[known]
            if genuine(self._sealer, record):
                self._write_outbox(replaced(record, put))
            else:
                # Nothing of the old row can be believed, except that something may have been sent: so look first.
                self._write_outbox(outbox_record(known, put, now)._replace(attempts=1))

    def _write_outbox(self, record: OutboxRecord) -> None:
        self._tables.put(self._tables.outbox, record.id, sealed(self._sealer, record))

    def pending_outbox(self, now: str, limit: int) -> list[OutboxRow]:
        """What `Store.outbox` says."""
        held: set[str] = set()
        rows: list[OutboxRecord] = []
        for record in self._tables.outbox.values():
            if record.state != "pending":
                continue
            waits = record.not_before is not None and record.not_before > now
            if not waits and record.lane not in held:
                rows.append(record)
            elif waits and record.attempts > 0:
                held.add(record.lane)
        return [record.row() for record in rows[:limit] if self._sound(record)]

    def _sound(self, record: OutboxRecord) -> bool:
        sound = genuine(self._sealer, record)
        if not sound:
            self._tables.put(self._tables.outbox, record.id, record._replace(state="failed"))
        return sound

    def outbox_row(self, key: str) -> OutboxRow | None:
        """What `Store.outbox_row` says."""
        row_id = self._tables.outbox_ids.get(key)
        return None if row_id is None else self._outbox(row_id).row()

    def _outbox(self, row_id: int) -> OutboxRecord:
        record = self._tables.outbox.get(row_id)
        if record is None:
            raise StorageError(f"There is no outbox row {row_id}.")
        return self._checked(record, f"outbox row {row_id}")

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
        record = self._tables.marks.get(scope)
        return record.ts if record is not None and genuine(self._sealer, record) else None

    def marks(self, prefix: str) -> list[tuple[str, str]]:
        """What `Store.marks` says."""
        found = (record for scope, record in sorted(self._tables.marks.items()) if scope.startswith(prefix))
        return [(record.scope, record.ts) for record in found if genuine(self._sealer, record)]

    def set_mark(self, scope: str, ts: str) -> None:
        """What `Store.set_mark` says."""
        before = self.mark(scope)
        if before is None or is_later(ts, before):
            self._tables.put(self._tables.marks, scope, sealed(self._sealer, MarkRecord(scope, ts)))
