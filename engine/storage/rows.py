"""Inbox, prompts, timers, outbox and marks: statements and what they mean."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Literal, NamedTuple

from engine.journal.records import (
    DEAD,
    DROPPED,
    NOTICE,
    Consumed,
    Derived,
    DropLock,
    DropTimer,
    InboxItem,
    InboxRow,
    KeptRow,
    LockRow,
    Mark,
    OutboxRow,
    PromptRow,
    PutLock,
    PutOutbox,
    PutSpend,
    Row,
    SettleSpend,
    Sweep,
    TakeLock,
    Timer,
)
from engine.language.errors import Corrupt, Fenced, StorageError
from engine.storage.counts import CountTables
from engine.storage.flows import FLOWS_HELD, FlowTables
from engine.storage.kept import KeptTables
from engine.storage.locks import LockTables, SpendTables
from engine.storage.tables import (
    INBOX,
    LOCKS,
    MARKS,
    OUTBOX,
    PROMPTS,
    TIMERS,
    at_most,
    listed,
    reads,
    writes,
    writes_suspended,
)

_log = logging.getLogger("sayso.storage")

_EVER = "9999"
TOLD_MARKS = ("gap", "alias:", "person:")
"""Marks that other processes wait for."""
_INBOX = INBOX.where("id = ?")
_INBOX_BY_KEY = INBOX.where("key = ?")
_PUT_INBOX = INBOX.insert + " ON CONFLICT (key) DO NOTHING"
_INBOX_HELD = "inbox"
"""The name that is held while rows of the inbox are made."""
_INBOX_KNOWN = "SELECT 1 FROM inbox WHERE key = ?"
_INBOX_OPEN = """SELECT id FROM inbox INDEXED BY inbox_open WHERE outcome IS NULL AND id > ?
 ORDER BY id LIMIT ?"""
_LANES = """SELECT coalesce(thread_key, session_id, key), max(id), count(*) FROM inbox INDEXED BY inbox_open
 WHERE outcome IS NULL AND kind IN (SELECT value FROM json_each(?)) GROUP BY 1 ORDER BY min(id)"""
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
_STALE_INBOX = """SELECT id, received_at, outcome IS NOT NULL AND received_at < ?1
 AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.session_id = inbox.session_id)
 AND (session_id IS NOT NULL OR thread_key IS NULL
      OR NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.thread_key = inbox.thread_key))
 FROM inbox WHERE id > ?2 ORDER BY id LIMIT ?3"""

_PUT_PROMPT = PROMPTS.upsert("prompt_id", " WHERE prompts.session_id = excluded.session_id")
_PROMPT = PROMPTS.where("prompt_id = ?")
_PROMPT_BY_N = PROMPTS.where("n = ?")
_PROMPTS = "SELECT n FROM prompts ORDER BY n"
_PROMPTS_OF_STATUS = "SELECT n FROM prompts WHERE status IN (SELECT value FROM json_each(?)) ORDER BY n"
_PROMPTS_OF_SESSION = "SELECT n FROM prompts WHERE session_id = ? ORDER BY n"
_PROMPTS_OF_SESSION_AND_STATUS = """SELECT n FROM prompts WHERE session_id = ?
 AND status IN (SELECT value FROM json_each(?)) ORDER BY n"""
_PROMPTS_OF_THREAD = "SELECT n FROM prompts WHERE thread_key = ? ORDER BY n"
_PROMPTS_OF_THREAD_AND_STATUS = """SELECT n FROM prompts WHERE thread_key = ?
 AND status IN (SELECT value FROM json_each(?)) ORDER BY n"""

_DERIVED = """SELECT 'prompt', 0, prompt_id, session_id, thread_key, status, deadline, body, mac FROM prompts
  WHERE session_id = ?1 AND status IN ('requested', 'shown')
 UNION ALL SELECT 'timer', 0, timer_id, session_id, due_at, NULL, NULL, NULL, mac FROM timers WHERE session_id = ?1
 UNION ALL SELECT 'lock', n, name, session_id, requested_at, taken_at, NULL, NULL, mac FROM locks WHERE session_id = ?1"""
_PUT_TIMER = TIMERS.upsert("session_id, timer_id")
_DROP_TIMER = "DELETE FROM timers WHERE session_id = ? AND timer_id = ?"
_TIMERS = "SELECT n FROM timers ORDER BY due_at, session_id, timer_id"
_TIMERS_DUE = "SELECT n FROM timers WHERE due_at <= ? ORDER BY due_at, session_id, timer_id"
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
_DROP_NOTICES = "DELETE FROM outbox WHERE state = 'pending' AND substr(key, 1, length(?1)) = ?1"
_OUTBOX_CORRUPT = "UPDATE outbox SET state = 'failed' WHERE id = ?"
_STALE_OUTBOX = """SELECT id, created_at, state != 'pending' AND created_at < ?1
 AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.session_id = outbox.session_id)
 FROM outbox WHERE id > ?2 ORDER BY id LIMIT ?3"""

_STALE_SPEND = "SELECT n, day, day < ?1 FROM spend WHERE n > ?2 ORDER BY n LIMIT ?3"
_STALE_FLOWS = """SELECT digest, '', ?1 != '' AND NOT EXISTS
 (SELECT 1 FROM sessions WHERE sessions.flow_digest = flows.digest) FROM flows WHERE digest > ?2 ORDER BY digest LIMIT ?3"""

_MARK = MARKS.where("scope = ?")
_MARKS = MARKS.where("substr(scope, 1, length(?1)) = ?1 ORDER BY scope")
_PUT_MARK = MARKS.upsert("scope")

_STALE_KEPT = "SELECT n, '', expires_at < ?1 FROM kept WHERE n > ?2 ORDER BY n LIMIT ?3"


class Swept(NamedTuple):
    """A table that is swept: `look` gives keys after one with their times and whether nobody needs them."""

    look: str
    delete: str
    before: Callable[[Sweep], str]
    first: int | str = 0
    held: str | None = None
    """What is held meanwhile: others might begin to need a row."""


_SWEPT_AT_ONCE = 200
_SWEPT = (
    Swept(_STALE_INBOX, _DROP_INBOX, lambda at: at.inbox_before),
    Swept(
        _STALE_OUTBOX, "DELETE FROM outbox WHERE id = ? AND state != 'pending'", lambda at: at.ended_before
    ),
    Swept(_STALE_SPEND, "DELETE FROM spend WHERE n = ?", lambda at: at.ended_before[:10]),
    Swept(_STALE_KEPT, "DELETE FROM kept WHERE n = ?", lambda at: at.ended_before),
    Swept(_STALE_FLOWS, "DELETE FROM flows WHERE digest = ?", lambda at: _EVER, "", FLOWS_HELD),
)


class RowTables(FlowTables, LockTables, SpendTables, KeptTables, CountTables):
    """Everything but sessions."""

    def _put_all(self, rows: Iterable[Row], now: str) -> None:
        """Insert, replace or drop rows."""
        for row in rows:
            match row:
                case PromptRow():
                    sealed = PROMPTS.sealed(self._sealer, row)
                    self._db.post(_PUT_PROMPT, sealed, 1, partial(_of_another, row))
                case Timer():
                    self._put(TIMERS, _PUT_TIMER, row)
                case DropTimer():
                    self._db.post(_DROP_TIMER, (row.session_id, row.timer_id))
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
                case KeptRow():
                    self._put_kept(row)

    # -- inbox

    @writes
    def ingest(self, items: Sequence[InboxItem], now: str) -> list[int | None]:
        """Store items; the new row's id for each, or None where the key was known. Durable on return."""
        return [self._receive(item, now) for item in items]

    def _receive(self, item: InboxItem, now: str) -> int | None:
        # Looked up first: an INSERT that ends in a conflict would write nevertheless (it spends an id).
        if self._db.one(_INBOX_KNOWN, (item.key,)):
            return None
        row_id = self._inbox_id()
        row = InboxRow(
            row_id, item.key, item.kind, item.payload, item.session_id, item.thread_key, now, None, None
        )
        self._db.notify("inbox")
        return row_id if self._put_counted(INBOX, _PUT_INBOX, row) else None

    def _inbox_id(self) -> int:
        """The id of a new inbox row. Rows appear in the order of their ids: whoever reads on from one misses none."""
        self._db.hold(_INBOX_HELD)
        return self._next("inbox")

    def inbox(self, *, after: int = 0, limit: int | None = 100) -> list[InboxRow]:
        """Rows that nobody has consumed, oldest first, with id > `after`. Verified; a row that does not verify is
        marked with outcome `corrupt` and left out."""
        corrupt: list[int] = []
        with self._db.read():
            ids = self._db.all(_INBOX_OPEN, (after, at_most(limit)))
            rows = list(self._each(INBOX, _INBOX, ids, corrupt))
        self._set_aside("inbox row", _INBOX_CORRUPT, corrupt)
        return [row for row in rows if row.outcome is None]

    @reads
    def lanes(self, kinds: Collection[str]) -> list[tuple[str, int, int]]:
        """The ordering keys of rows of these kinds that nobody has consumed, the oldest first: each with its newest id, and
        with how many there are."""
        return self._db.all(_LANES, (listed(list(kinds)),))

    def lane(self, lane: str) -> list[InboxRow]:
        """The rows with this ordering key that nobody has consumed, oldest first. Verified as for `inbox`."""
        corrupt: list[int] = []
        with self._db.read():
            rows = list(self._each(INBOX, _INBOX, self._db.all(_LANE, (lane,)), corrupt))
        self._set_aside("inbox row", _INBOX_CORRUPT, corrupt)
        return [row for row in rows if row.outcome is None]

    @reads
    def inbox_row(self, key: str) -> InboxRow | None:
        """One row by its key, consumed or not."""
        return self._get(INBOX, _INBOX_BY_KEY, key)

    @reads
    def dead_letters(self, limit: int = 1000) -> list[InboxRow]:
        """Rows whose outcome is `dead`, oldest first. Rows that do not verify are left out."""
        return list(self._each(INBOX, _INBOX, self._db.each(_INBOX_DEAD, (limit,))))

    @writes
    def decide_letter(self, key: str, *, again: bool) -> bool:
        """Open a dead letter anew, under a new id since readers are past the old one, or drop it. False where there is
        no dead letter with this key."""
        row_id = self._inbox_id() if again else 0
        row = self._held(INBOX, _INBOX_BY_KEY, key)
        if row is None or row.outcome != DEAD:
            return False
        after = row.but(id=row_id, outcome=None, result=None) if again else row.but(outcome=DROPPED)
        self._db.run(_DROP_INBOX, (row.id,))
        self._put(INBOX, INBOX.insert, after)
        self._db.notify("inbox")
        return True

    @writes
    def consume(self, consumed: Sequence[Consumed], now: str, rows: Sequence[Row] = ()) -> None:
        """Mark rows as done outside of any session, with intents that follow, in one transaction."""
        self._consume(consumed)
        self._put_all(rows, now)

    def _consume(self, consumed: Iterable[Consumed], session_id: str | None = None) -> None:
        """Mark inbox rows as done, and as those of the session that took them. Raises `Fenced` for one that is done,
        `StorageError` for one that is not there."""
        for done in consumed:
            row = self._closed(INBOX, _INBOX + self._db.for_update, done.inbox_id)
            if row is None:
                raise StorageError(f"There is no inbox row {done.inbox_id}.")
            if row.outcome is not None:
                raise Fenced(f"Inbox row {done.inbox_id} was consumed already ({row.outcome}).")
            after = row.but(outcome=done.outcome, result=done.result, session_id=row.session_id or session_id)
            *_, result, mac = INBOX.sealed(self._sealer, after)
            self._db.post(_CONSUME, (after.outcome, result, after.session_id, mac, after.id))

    def empty_inbox(self, after: int = 0) -> int | None:
        """Empty consumed inbox rows of sessions that are gone, for a few milliseconds: their keys stay. After which row to go
        on, or None when that was all; then the log, which has what was deleted, is emptied too, unless others read it."""
        after = self._db.atomically(partial(self._empty_some, after))
        if not after:
            with self._db.thorough():
                return None
        return after

    def _empty_some(self, after: int) -> int:
        ids = self._all_held(_SAID, (after, _SWEPT_AT_ONCE))
        for row in self._each(INBOX, _INBOX, ids):
            self._empty(row)
        return int(ids[-1][0]) if ids else 0

    def _empty(self, row: InboxRow) -> None:
        """Take what a consumed row holds. Its key stays, so that what is delivered again starts nothing."""
        after = row.but(payload=b"{}", result=None, outcome=DROPPED if row.outcome == DEAD else row.outcome)
        if after != row:
            self._update(INBOX, after)

    @writes
    def sweep(self, at: Sweep) -> Sweep | None:
        """Delete what no session needs any more, for a few milliseconds; where to go on, or None when that was all:
        consumed inbox rows from before one time whose session, if any, is gone, intents whose session is gone or that have
        none, what was spent, and notes that are over, from before the other time, texts of flows that nobody pins. Then free pages are given back. Rows are looked at in the order in which they came, so the first one that is too young ends
        its table."""
        if at.stage == len(_SWEPT):
            return at if self._db.give_back() else None
        table = _SWEPT[at.stage]
        if table.held is not None:
            self._db.hold(table.held)
        before = table.before(at)
        rows = self._all_held(table.look, (before, at.after, _SWEPT_AT_ONCE))
        self._db.many(table.delete, [(key,) for key, _, stale in rows if stale])
        if len(rows) == _SWEPT_AT_ONCE and rows[-1][1] < before:
            return at.but(after=rows[-1][0])
        stage = at.stage + 1
        return at.but(stage=stage, after=_SWEPT[stage].first if stage < len(_SWEPT) else 0)

    # -- prompts, timers

    @reads
    def derived(self, session_id: str) -> Derived:
        """The rows of a session that follow from its journal, to be compared with it. Those that do not verify are left out,
        but for locks."""
        found = Derived([], [], [])
        try:
            rows = self._db.all(_DERIVED, (session_id,))
        except UnicodeDecodeError:
            return found  # all of it is written anew
        for kind, n, *values, mac in rows:
            if kind == "lock":
                row = (n, *values[:4], mac)
                found.locks.append(
                    LOCKS.verified(self._sealer, row) or LockRow(*row[1:-1]).but(verified=False)
                )
            elif kind == "timer" and (timer := TIMERS.verified(self._sealer, (*values[:3], mac))):
                found.timers.append(timer)
            elif kind == "prompt" and (prompt := PROMPTS.verified(self._sealer, (*values, mac))):
                found.prompts.append(prompt)
        return found

    @reads
    def prompt(self, prompt_id: str) -> PromptRow | None:
        """One prompt, verified."""
        return self._get(PROMPTS, _PROMPT, prompt_id)

    @reads
    def prompts(
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

    @reads
    def timers(self, *, due: str | None = None, limit: int | None = 100) -> list[Timer]:
        """Timers, soonest first; with `due` only those at or before it. Rows that do not verify are left out."""
        ids = self._db.each(_TIMERS) if due is None else self._db.each(_TIMERS_DUE, (due,))
        return list(islice(self._each(TIMERS, _TIMER, ids), limit))

    # -- outbox

    def _put_outbox(self, put: PutOutbox, now: str) -> None:
        self._db.notify("outbox")
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
                self._put_outbox(put, now)  # another process has made it just now

    @writes_suspended
    def give_notice(self, notices: Sequence[PutOutbox], now: str) -> None:
        """Intents that tell people of a suspended store: `outbox` gives no others then. Those that were not sent are
        dropped by `unsuspend`."""
        self._put_all([row.but(key=NOTICE + row.key) for row in notices], now)

    def unsuspend(self) -> None:
        """Take what is stored for true, and allow writes: a person has seen to what may happen a second time."""
        with self._db.write(suspended=True):
            self._db.run(_DROP_NOTICES, (NOTICE,))
        self._db.watch.release()

    def outbox(self, *, now: str, limit: int | None = 100) -> list[OutboxRow]:
        """Pending rows whose `not_before` has come, oldest first. A row that was attempted and has to wait holds
        back the later rows of its lane. A row that does not verify is set to `failed` and left out."""
        corrupt: list[int] = []
        with self._db.read():
            if self._db.watch.suspended is None:
                ids = self._db.all(_OUTBOX_PENDING, (now, at_most(limit)))
            else:
                ids = self._db.all(_OUTBOX_NOTICES, (now, at_most(limit), NOTICE))
            rows = list(self._each(OUTBOX, _OUTBOX, ids, corrupt))
        self._set_aside("outbox row", _OUTBOX_CORRUPT, corrupt)
        return [row for row in rows if row.state == "pending"]

    @reads
    def outbox_row(self, key: str) -> OutboxRow | None:
        """One row by its key, in any state."""
        found = self._db.one(_OUTBOX_ID, (key,))
        return self._get(OUTBOX, _OUTBOX, found[0]) if found else None

    @reads
    def outbox_of(self, session_id: str, prefix: str) -> list[OutboxRow]:
        """The rows of a session whose keys begin so, in any state, oldest first. Those that do not verify are left out."""
        return list(self._each(OUTBOX, _OUTBOX, self._db.all(_OUTBOX_OF_SESSION, (session_id, prefix))))

    def _outbox(self, row_id: int) -> OutboxRow:
        """A row that is going to be changed."""
        row = self._closed(OUTBOX, _OUTBOX + self._db.for_update, row_id)
        if row is None:
            raise StorageError(f"There is no outbox row {row_id}.")
        return row

    @writes_suspended
    def outbox_attempt(self, row_id: int, attempts: int, now: str) -> bool:
        """Count an attempt, durably, before the request is made. False, and nothing is changed, where the row is not as it
        was read: it has another number of `attempts`, or is not pending any more."""
        row = self._outbox(row_id)
        if (row.attempts, row.state) != (attempts, "pending"):
            return False
        self._update(OUTBOX, row.but(attempts=attempts + 1, attempted_at=now))
        return True

    @writes_suspended
    def outbox_finish(
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
        """Record what became of an attempt, and ingest what follows (`prompt shown`), in one transaction.
        When the row was replaced meanwhile (`rev` moved) the result is kept and the row stays pending: False. A result that was there stays when none is given."""
        row = self._outbox(row_id)
        after = row.but(result=row.result if result is None else result)
        if row.rev == rev:
            after = after.but(state=state, not_before=not_before)
        self._update(OUTBOX, after)
        if after.state == "pending" and after.not_before is None:
            self._db.notify("outbox")
        for item in items:
            self._receive(item, now)
        return row.rev == rev

    # -- marks

    @reads
    def mark(self, scope: str) -> str | None:
        """How far a catch-up read has come in that thread or channel (a Slack ts)."""
        try:
            found = self._get(MARKS, _MARK, scope)
        except Corrupt as error:
            _log.warning("%s Catch-up reads from further back.", error)
            return None
        return found.ts if found else None

    @reads
    def marks(self, prefix: str) -> list[tuple[str, str]]:
        """The marks whose scope begins so, each with its ts, in the order of their scopes. Those that do not verify are
        left out."""
        found = (MARKS.verified(self._sealer, row) for row in self._db.all(_MARKS, (prefix,)))
        return [(mark.scope, mark.ts) for mark in found if mark is not None]

    @writes
    def set_mark(self, scope: str, ts: str) -> None:
        """Move a mark forward; it never goes back. A mark that does not verify counts as none."""
        self._db.hold(f"mark {scope}")
        before = self.mark(scope)
        if before is None or _ts_order(ts) > _ts_order(before):
            self._put(MARKS, _PUT_MARK, Mark(scope, ts))
            if scope.startswith(TOLD_MARKS):
                self._db.notify("marks")


def _of_another(row: PromptRow) -> StorageError:
    return StorageError(
        f"Prompt {row.prompt_id} belongs to another session than {row.session_id}; prompt ids are unique."
    )


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
    """What sorts Slack's timestamps as they came."""
    whole, _, fraction = ts.partition(".")
    whole = whole.lstrip("0")
    return len(whole), whole, fraction
