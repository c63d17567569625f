"""A store: what it does beside its rows, and what all of it is.

Two transactions carry everything. *Ingest* stores what came from outside under a key that is unique; only after
it returned may Slack be told that the delivery was taken. *Commit* appends a session's events together with all
that follows from them (consumed inbox rows, prompts, timers, outbox intents, snapshot) or nothing at all; it
carries the epoch and the seq that the writer believes in, and stores nothing when either has moved on.

A store is synchronous. `engine.storage.group_commit.Writer` runs it on one thread and groups commits.
Times are UTC ISO-8601 text with milliseconds and `Z` (`2026-11-21T22:40:00.000Z`), which sort as they compare.
Bodies are bytes that the caller encoded; a backend stores them, gives them a MAC, and never looks inside.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from engine.journal.records import (
    NOTICE,
    Commit,
    CommitResult,
    Conflict,
    Consumed,
    Counts,
    Derived,
    DropLock,
    DropTimer,
    KeptRow,
    Loaded,
    LockRow,
    Lost,
    PromptRow,
    PutLock,
    PutOutbox,
    PutSpend,
    Row,
    SettleSpend,
    Stored,
    Sweep,
    TakeLock,
    Timer,
)
from engine.language import timestamps
from engine.language.errors import (
    Corrupt,
    DayBudgetSpent,
    Fenced,
    KeptMoved,
    KeyMissing,
    LockHeld,
    Overtaken,
    Owned,
    RowRefused,
    SessionError,
    SessionQuarantined,
    StorageError,
    StorePlain,
    WrongWorkspace,
)
from engine.storage.database import Database
from engine.storage.evidence import EvidenceTable
from engine.storage.flows import FLOWS_HELD, FlowTable
from engine.storage.kept import KeptTable
from engine.storage.lanes import LaneTable
from engine.storage.leases import (
    Holder,
    Member,
    Served,
    Serving,
    label_of,
    note_of,
    read_holder,
    try_lease,
)
from engine.storage.locks import LockTable, SpendTable
from engine.storage.packing import packed_together
from engine.storage.rows import SWEPT_AT_ONCE, InboxTable, MarkTable, OutboxTable, PromptTable, TimerTable
from engine.storage.sealing import BEGINS, Sealer
from engine.storage.sessions import SessionTable
from engine.storage.tables import LOCKS, PROMPTS, TIMERS, Tables, reads, writes

if TYPE_CHECKING:
    from engine.storage.vault import Vault

_ANY_KEY = "SELECT 1 FROM data_keys LIMIT 1"
_ANY_BODY = """SELECT EXISTS (SELECT 1 FROM journal) OR EXISTS (SELECT 1 FROM inbox) OR EXISTS (SELECT 1 FROM prompts)
 OR EXISTS (SELECT 1 FROM outbox) OR EXISTS (SELECT 1 FROM flows) OR EXISTS (SELECT 1 FROM kept)"""
"""True where something was written that is encrypted wherever keys are set."""
META = "SELECT value, mac FROM meta WHERE name = ?"
PUT_META = """INSERT INTO meta (name, value, mac) VALUES (?, ?, ?)
 ON CONFLICT (name) DO UPDATE SET value = excluded.value, mac = excluded.mac"""
_ANY_ROW = """SELECT EXISTS (SELECT 1 FROM sessions) OR EXISTS (SELECT 1 FROM journal)
 OR EXISTS (SELECT 1 FROM inbox) OR EXISTS (SELECT 1 FROM prompts) OR EXISTS (SELECT 1 FROM timers)
 OR EXISTS (SELECT 1 FROM outbox) OR EXISTS (SELECT 1 FROM marks)
 OR EXISTS (SELECT 1 FROM meta WHERE name = 'workspace')"""

_SESSIONS = "SELECT status, count(*) FROM sessions WHERE status IN ('running', 'paused') GROUP BY status"
_PROMPTS = (
    "SELECT s.flow_name, count(*) FROM prompts p JOIN sessions s ON s.session_id = p.session_id "
    "WHERE p.status IN ('requested', 'shown') "
    "AND NOT EXISTS (SELECT 1 FROM quarantine q WHERE q.session_id = s.session_id) GROUP BY s.flow_name"
)
_INBOX = "SELECT count(*), min(received_at) FROM inbox WHERE outcome IS NULL"
_DEAD = "SELECT count(*) FROM inbox WHERE outcome = 'dead'"
_OUTBOX = "SELECT count(*), min(created_at) FROM outbox WHERE state = 'pending'"
_QUARANTINE = "SELECT count(*) FROM quarantine"

_DERIVED = """SELECT 'prompt', 0, prompt_id, session_id, thread_key, status, deadline, body, mac FROM prompts
  WHERE session_id = ?1 AND status IN ('requested', 'shown')
 UNION ALL SELECT 'timer', 0, timer_id, session_id, due_at, NULL, NULL, NULL, mac FROM timers WHERE session_id = ?1
 UNION ALL SELECT 'lock', n, name, session_id, requested_at, taken_at, NULL, NULL, mac FROM locks WHERE session_id = ?1"""
_OPEN_IN = """SELECT session_id, status, owner, EXISTS (SELECT 1 FROM locks
  WHERE locks.session_id = sessions.session_id AND taken_at IS NULL AND NOT EXISTS
  (SELECT 1 FROM locks AS ahead WHERE ahead.name = locks.name AND ahead.n < locks.n))
 FROM sessions WHERE (thread_key = ?1 OR session_id = ?1) AND status IN ('idle', 'running', 'paused')
 AND NOT EXISTS (SELECT 1 FROM quarantine WHERE quarantine.session_id = sessions.session_id) ORDER BY n"""
"""The sessions of a lane that have not ended, and whether each is to get a lock."""
_STALE_INBOX = """SELECT id, received_at, outcome IS NOT NULL AND received_at < ?1
 AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.session_id = inbox.session_id)
 AND (session_id IS NOT NULL OR thread_key IS NULL
      OR NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.thread_key = inbox.thread_key))
 FROM inbox WHERE id > ?2 ORDER BY id LIMIT ?3"""
_STALE_OUTBOX = """SELECT id, created_at, state != 'pending' AND created_at < ?1
 AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.session_id = outbox.session_id)
 FROM outbox WHERE id > ?2 ORDER BY id LIMIT ?3"""
_STALE_SPEND = "SELECT n, day, day < ?1 FROM spend WHERE n > ?2 ORDER BY n LIMIT ?3"
_STALE_FLOWS = """SELECT digest, '', ?1 != '' AND NOT EXISTS
 (SELECT 1 FROM sessions WHERE sessions.flow_digest = flows.digest) FROM flows WHERE digest > ?2 ORDER BY digest LIMIT ?3"""
_STALE_KEPT = "SELECT n, '', expires_at < ?1 FROM kept WHERE n > ?2 ORDER BY n LIMIT ?3"
_DROP_NOTICES = "DELETE FROM outbox WHERE state = 'pending' AND substr(key, 1, length(?1)) = ?1"


class _NothingStored(Exception):
    """Every part of a batch was undone: the transaction need not wait for the disk."""


class Swept(NamedTuple):
    """A table that is swept: `look` gives keys after one with their times and whether nobody needs them."""

    look: str
    delete: str
    before: Callable[[Sweep], str]
    first: int | str = 0
    held: str | None = None
    """Table locked meanwhile, as others might begin to need a row."""


_EVER = "9999"
_SWEPT = (
    Swept(_STALE_INBOX, "DELETE FROM inbox WHERE id = ?", lambda at: at.inbox_before),
    Swept(
        _STALE_OUTBOX, "DELETE FROM outbox WHERE id = ? AND state != 'pending'", lambda at: at.ended_before
    ),
    Swept(_STALE_SPEND, "DELETE FROM spend WHERE n = ?", lambda at: at.ended_before[:10]),
    Swept(_STALE_KEPT, "DELETE FROM kept WHERE n = ?", lambda at: at.ended_before),
    Swept(_STALE_FLOWS, "DELETE FROM flows WHERE digest = ?", lambda at: _EVER, "", FLOWS_HELD),
)


Parts: TypeAlias = Sequence[tuple[Commit, bytes]]
"""Commits, each with its events packed."""
PartResult: TypeAlias = CommitResult | Exception
"""Result of one commit of a batch; an error concerns that one alone."""


class AnyOwners(Protocol):
    """The owners of one database, whatever keeps their leases."""

    def register(self, label: str) -> str:
        """Become an owner that lives until this process ends or `close()`."""

    def alive(self, owner: str) -> bool:
        """True if that owner is alive."""

    def living(self) -> list[str]:
        """The ids of all owners that live, sorted."""

    def note(self, text: str | None) -> None:
        """Leave a note, for `notes`; None takes it back."""

    def notes(self) -> list[str]:
        """Return the notes of living owners."""

    def close(self) -> None:
        """Release all leases of this process."""


class Store(Tables):
    """A store on a database: its parts, and what concerns several of them. Every method is one transaction unless it says that
    it belongs inside one; all raise `StorageError` subclasses and nothing else. Threads may share it; their calls run one
    after the other."""

    file: Path | None = None
    """The database's file; None for one in memory or on a server."""
    dated = True
    """True if the required age of the database is known: one that was put back to an older state is suspended."""
    shared = False
    """True if several processes may serve this store at once: each takes lanes (`engine.storage.lanes`)."""

    def __init__(self, db: Database, sealer: Sealer, owners: AnyOwners, vault: Vault | None = None) -> None:
        """Made by those that open databases."""
        super().__init__(db, sealer)
        self.flows = FlowTable(db, sealer)
        self.sessions = SessionTable(db, sealer, owners.alive, self.flows)
        self.lanes = LaneTable(db, sealer)
        self.inbox = InboxTable(db, sealer, self.lanes)
        self.outbox = OutboxTable(db, sealer, self.inbox)
        self.prompts = PromptTable(db, sealer)
        self.timers = TimerTable(db, sealer)
        self.locks = LockTable(db, sealer)
        self.spend = SpendTable(db, sealer)
        self.kept = KeptTable(db, sealer)
        self.marks = MarkTable(db, sealer)
        self.evidence = EvidenceTable(db, sealer)
        self.vault = vault
        if vault is not None:
            vault.owned = self.sessions.known
        self._owners = owners
        self._version = db.data_version()

    def close(self) -> None:
        """Close; durable already, so nothing is flushed."""
        self._owners.close()
        self._db.watch.close()
        self._db.close()

    def bind(self, team_id: str, app_id: str) -> None:
        """Bind this database to a Slack team and app at the first call; `WrongWorkspace` for another one later."""
        value = f"{team_id} {app_id}"
        mac = self._sealer.mac(b"meta", "workspace", value)
        with self._db.read():
            row = self._db.one(META, ("workspace",))
        if row is None:
            with self._db.write():
                row = self._db.one(META, ("workspace",))
                if row is None:
                    self._db.run(PUT_META, ("workspace", value, mac))
        if row is None or row == (value, mac):
            return
        if row[1] != self._sealer.mac(b"meta", "workspace", row[0]):
            raise Corrupt("The note of which Slack team this database belongs to was changed.")
        team, _, app = row[0].partition(" ")
        raise WrongWorkspace(
            f"This database belongs to Slack team {team}, app {app}, not to team {team_id}, app {app_id}; "
            "use another SAYSO_DATABASE_URL."
        )

    @property
    def near(self) -> bool:
        """See `Database.near`."""
        return self._db.near

    def impatient(self) -> AbstractContextManager[None]:
        """See `Database.impatient`."""
        return self._db.impatient()

    # -- what concerns several parts

    def commit(self, batch: Sequence[Commit]) -> list[PartResult]:
        """Store all commits in one transaction, and return the outcome of each. A failure of the transaction itself
        raises, and nothing of the batch is stored then.

        Nearly always all of them can be stored. Only where one cannot are they undone, and carried out once more so that each
        can be undone alone."""
        parts = [(commit, packed_together(commit.events) if commit.events else b"") for commit in batch]
        results: list[PartResult] = []
        self._batch(parts, results, alone=False)
        if len(parts) > 1 and not all(isinstance(result, Stored) for result in results):
            self._batch(parts, results, alone=True)
        return results

    def _batch(self, parts: Parts, results: list[PartResult], *, alone: bool) -> None:
        """A write transaction of several sessions: what becomes of each, or, unless they are carried out `alone`, that one
        of them cannot be stored. Where it is undone, what is remembered of them is forgotten."""

        tried = False

        def work() -> None:
            nonlocal tried
            results.clear()
            if tried:
                self._forget_all(parts)
            tried = True
            for number, part in enumerate(parts, 1):
                results.append(
                    self._part_alone(*part) if alone else self._part(*part, settle=number == len(parts))
                )
                if not (alone or isinstance(results[-1], Stored)):
                    raise _NothingStored
            if not any(isinstance(result, Stored) for result in results):
                raise _NothingStored

        try:
            self._db.atomically(work)
        except BaseException as error:
            self._forget_all(parts)
            if not isinstance(error, _NothingStored):
                raise

    def _forget_all(self, parts: Parts) -> None:
        for commit, _ in parts:
            self.sessions.forget(commit.session_id)

    def _part_alone(self, commit: Commit, body: bytes) -> PartResult:
        """One commit of a batch, undone alone where it cannot be stored."""
        result: PartResult = Stored()
        with contextlib.suppress(_NothingStored), self._db.savepoint():
            result = self._part(commit, body, settle=True)
            if not isinstance(result, Stored):
                raise _NothingStored
        return result

    def _part(self, commit: Commit, body: bytes, *, settle: bool) -> PartResult:
        """Carry out one commit of a batch. Unless the database is waited for (`settle`), what is wrong may be wrong with one
        before it. What concerns the whole database raises."""
        try:
            self.sessions.apply(commit, body)
            self.inbox.take(commit.consumed, commit.session_id)
            self._put_all(commit.rows, commit.now)
            if settle:
                self._db.settle()
            return Stored()
        except (Overtaken, LockHeld, DayBudgetSpent, KeptMoved) as error:
            result: PartResult = Conflict(error)
        except (Fenced, Owned, SessionQuarantined) as error:
            result = Lost(error)
        except (StorageError, SessionError) as error:
            result = error
        except self._db.refused as error:
            result = self._db.row_error(error) or error
        except self._db.unreadable as error:
            result = Corrupt(f"What {commit.session_id} is stored in is damaged: {error}.")
        except UnicodeError as error:
            result = RowRefused(f"A row of {commit.session_id!r} has text that is not Unicode: {error}.")
        self.sessions.forget(commit.session_id)
        return result

    def _put_all(self, rows: Iterable[Row], now: str) -> None:
        """Insert, replace or drop rows."""
        for row in rows:
            match row:
                case PromptRow():
                    self.prompts.put(row)
                case Timer():
                    self.timers.put(row)
                    if self._db.laned:
                        self.lanes.arrive_for(row.session_id, timestamps.seconds_between(now, row.due_at))
                case DropTimer():
                    self.timers.drop(row)
                case PutOutbox():
                    self.outbox.put(row, now)
                case PutLock():
                    self.locks.put(row, now)
                case TakeLock():
                    self.locks.take(row, now)
                case DropLock():
                    self.locks.drop(row)
                    self.lanes.arrive_next(row.name)
                case PutSpend():
                    self.spend.put(row)
                case SettleSpend():
                    self.spend.settle(row)
                case KeptRow():
                    self.kept.put(row)

    @writes
    def consume(self, consumed: Sequence[Consumed], now: str, rows: Sequence[Row] = ()) -> None:
        """Mark rows as done outside of any session, with intents that follow, in one transaction."""
        self.inbox.take(consumed)
        self._put_all(rows, now)

    @writes
    def quarantine(self, session_id: str, reason: str, now: str, rows: Sequence[Row] = ()) -> None:
        """Set the session aside: nobody claims it or commits to it (`Fenced`) until a person decides. Its rows stay
        as they were found, and a lock that it took stays its own; a place in a queue it loses. A second call keeps the
        first reason. With intents (the thread is told)."""
        self.sessions.set_aside(session_id, reason, now)
        self._put_all(rows, now)

    @reads
    def claimable(
        self, session_id: str, owner: str, known: tuple[int, int] | None
    ) -> tuple[Loaded | None, Derived]:
        """See `SessionTable.claimable`; with the rows that follow from the journal."""
        return self.sessions.claimable(session_id, owner, known), self.derived(session_id)

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
    def agenda(self, lane: str) -> tuple[list[str], list[str], list[Timer]]:
        """Return the work for the sessions of a lane: running ones without an owner, those that are to get a lock, and
        the timers of all, soonest first."""
        orphans, granted, timers = [], [], list[Timer]()
        for session_id, status, owner, next_in_queue in self._db.all(_OPEN_IN, (lane,)):
            if status == "running" and (owner is None or not self.alive(owner)):
                orphans.append(session_id)
            if next_in_queue:
                granted.append(session_id)
            timers += self.timers.of(session_id)
        return orphans, granted, sorted(timers, key=attrgetter("due_at"))

    @reads
    def counts(self) -> Counts:
        """Return the numbers of waiting items, unverified: for metrics, never for a decision."""
        inbox, outbox = self._db.one(_INBOX) or (0, None), self._db.one(_OUTBOX) or (0, None)
        return Counts(
            sessions=dict(self._db.all(_SESSIONS)),
            prompts=dict(self._db.all(_PROMPTS)),
            inbox=inbox[0],
            oldest_inbox=inbox[1],
            dead=(self._db.one(_DEAD) or (0,))[0],
            outbox=outbox[0],
            oldest_outbox=outbox[1],
            quarantined=(self._db.one(_QUARANTINE) or (0,))[0],
        )

    @writes
    def sweep(self, at: Sweep) -> Sweep | None:
        """Delete what no session needs any more, for a few milliseconds; where to continue, or None when that was all:
        consumed inbox rows from before one time whose session, if any, is gone, intents whose session is gone or that have
        none, what was spent, and notes that have ended, from before the other time, texts of flows that nobody pins. Then free pages are given back. Rows are looked at in the order in which they came, so the first one that is too young ends
        its table."""
        if at.stage == len(_SWEPT):
            return at if self._db.give_back() else None
        table = _SWEPT[at.stage]
        if table.held is not None:
            self._db.hold(table.held)
        before = table.before(at)
        rows = self._all_held(table.look, (before, at.after, SWEPT_AT_ONCE))
        self._db.many(table.delete, [(key,) for key, _, stale in rows if stale])
        if len(rows) == SWEPT_AT_ONCE and rows[-1][1] < before:
            return at.but(after=rows[-1][0])
        stage = at.stage + 1
        return at.but(stage=stage, after=_SWEPT[stage].first if stage < len(_SWEPT) else 0)

    def unsuspend(self) -> None:
        """Take what is stored for true, and allow writes: a person has seen to what may happen a second time."""
        with self._db.write(suspended=True):
            self._db.run(_DROP_NOTICES, (NOTICE,))
        self._db.watch.release()

    # -- ownership

    def register(self, label: str) -> str:
        """Make this process known as an owner and return its owner id. It counts as alive until the process dies
        or `close()`; a `kill -9` is noticed at once (a lock the kernel holds)."""
        self.lanes.owner = self._owners.register(label)
        return self.lanes.owner

    def alive(self, owner: str) -> bool:
        """True if that owner's process is alive."""
        return self._owners.alive(owner)

    def generation(self) -> int:
        """See `Fence.generation`. The kernel takes no lock from a process that lives: however long it slept, nobody else
        had its work."""
        return 0

    def holds(self, generation: int) -> bool:
        """See `Fence.holds`."""
        return self._db.broken is None

    def serving(self) -> list[str]:
        """Labels of living owners (`bot`, `cli`, ...), this process included."""
        return [label_of(owner) for owner in self._owners.living()]

    def try_serving(self, holder: Holder) -> Serving | None:
        """The lease to serve this database, or None while another process has it. Raises `StorageError`."""
        return Serving() if self.file is None else try_lease(note_of(self.file), holder)

    def served(self) -> Served:
        """The error that says who serves it."""
        return Served(self.file or "memory:", None if self.file is None else read_holder(note_of(self.file)))

    def serve_beside(self, role: str) -> None:
        """Serve in this role beside others that do the same, from now on. Raises `Served` while a process serves this store
        alone."""

    def leave(self) -> None:
        """Say that this process is stopping: others take what it does."""

    def listen(self, wake: Callable[[], None], url: str | None = None) -> None:
        """Call this, on any thread, when others have committed, came or went. Any call may be lost. `url`: where to hear of
        it, instead of the store's own address."""

    def watch(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """Count as alive only while the event loop moves that this calls something on."""

    def pooled(self) -> bool:
        """True if nothing is heard at its own address, since a connection pooler is in between."""
        return False

    def hears(self, url: str) -> bool:
        """True if `listen` would hear something at this address. Raises `StorageError`."""
        return True

    def peers(self) -> dict[str, str]:
        """The other processes that serve, with their roles, as they were a moment ago. Asks nobody."""
        return {}

    def members(self) -> list[Member]:
        """Return the processes that have this store open, with their lanes."""
        return []

    def note_trouble(self, text: str | None) -> None:
        """Note for other processes what this one has trouble with, outside of the database; None: nothing any more."""
        self._owners.note(text)

    def troubles(self) -> list[str]:
        """Return the notes of living owners, each with its label."""
        return self._owners.notes()

    # -- freshness and housekeeping

    def sign(self, purpose: str, body: bytes) -> bytes:
        """A MAC under this store's key for what leaves it (an exported snapshot)."""
        return self._sealer.mac(b"sign", purpose, body)

    def enclose(self, data: bytes) -> bytes:
        """Return the form in which data leaves the store as a line of a file, without its end: encrypted if the store
        is. See `engine.storage.envelopes`."""
        if self.vault is None:
            return data
        from engine.storage.envelopes import enclosed

        return enclosed(self.vault.wrapping, self._sealer, data)

    def disclose(self, data: bytes) -> bytes:
        """Return the content of a file written so, by this store or by one with the same keys. Raises
        `SnapshotRefused`, `KeyMissing`."""
        if not data.startswith(BEGINS):
            return data
        from engine.storage.envelopes import disclosed
        from engine.storage.vault import Wrapping

        return disclosed(self.vault.wrapping if self.vault else Wrapping.of(()), self._sealer, data)

    def suspended(self) -> str | None:
        """Why nothing may be written, or None: the store is older than what it acknowledged, or its record of that
        was changed. Then every write raises `StoreSuspended`. Whether somebody released it meanwhile is looked up."""
        return self._db.watch.look_again()

    def stale(self) -> str | None:
        """The same, looked up again: the files may have been changed since the store was opened."""
        return self._db.watch.findings()

    def changed(self) -> bool:
        """True if another connection or process has committed since the last call."""
        before, self._version = self._version, self._db.data_version()
        if self._version != before and self.vault is not None:
            self.vault.forget()
        return self._version != before

    def compact(self) -> None:
        """Write everything again without free space. Only while nobody else uses the store."""
        self._db.compact()


def vault_of(db: Database, name: str, sealer: Sealer, keys: Sequence[bytes] | None) -> Vault | None:
    """Return the vault for this database's bodies; None if it has no encrypted ones and no keys are given. With None
    for keys it can be verified but not read. Raises `KeyMissing`, and `StorePlain` for keys that come after rows."""
    with db.read():
        encrypted = db.one(_ANY_KEY) is not None
        written = db.one(_ANY_BODY)
    if not keys and not encrypted:
        return None
    if written and written[0] and not encrypted:
        raise StorePlain(name)
    from engine.storage.vault import Vault  # by those who encrypt

    vault = Vault(db, sealer, keys or ())
    if keys is not None:
        vault.check(name)
    sealer.cipher = vault
    return vault


def has_rows(db: Database) -> bool:
    """True if anything was written to this database yet."""
    with db.read():
        row = db.one(_ANY_ROW)
    return bool(row and row[0])


def check_key(db: Database, name: str, sealer: Sealer) -> bool:
    """Note this key in a database where nothing was written yet; whether another one was noted. Raises `KeyMissing` for a key
    with which the rows were not written, before each of them is taken for corrupt."""
    mac = sealer.mac(b"meta", "key", "sayso")
    with db.read():
        row = db.one(META, ("key",))
    if row == ("sayso", mac):
        return False
    if row is not None and has_rows(db):
        raise KeyMissing(
            f"The key given for {name} is not the one that its rows were written with; "
            "check SAYSO_SECRET_KEY and the key file."
        )
    with db.write():
        db.run(PUT_META, ("key", "sayso", mac))
        db.run("DELETE FROM freshness")
    return row is not None
