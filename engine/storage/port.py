"""The storage port: what every backend does, and the plain values that go in and out.

Two transactions carry everything. *Ingest* stores what came from outside under a key that is unique; only after
it returned may Slack be told that the delivery was taken. *Commit* appends a session's events together with all
that follows from them (consumed inbox rows, prompts, timers, outbox intents, snapshot) or nothing at all; it
carries the epoch and the seq that the writer believes in and raises `Fenced` when either has moved on.

The port is synchronous. `engine.storage.group_commit.Writer` runs it on one thread and groups commits.
Times are UTC ISO-8601 text with milliseconds and `Z` (`2026-11-21T22:40:00.000Z`), which sort as they compare.
Bodies are bytes that the caller encoded; a backend stores them, gives them a MAC, and never looks inside.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Literal, Protocol

from engine.journal.records import (
    Commit,
    Consumed,
    Counts,
    Derived,
    FlowForm,
    Head,
    InboxItem,
    InboxRow,
    KeptRow,
    Loaded,
    LockRow,
    OutboxRow,
    PromptRow,
    PutOutbox,
    Row,
    SpendRow,
    Sweep,
    Timer,
)
from engine.storage.fence import Fence
from engine.storage.leases import Holder, Member, Served, Serving


class Store(Fence, Protocol):
    """One backend. Every method is one transaction; all raise `StorageError` subclasses and nothing else."""

    file: Path | None
    """The database's file; None for one in memory or on a server."""
    dated: bool
    """Whether it is known how new the database has to be: one that was put back to an older state is suspended."""

    shared: bool
    """Whether several processes may serve this store at once: each takes work under a `lease`."""

    def close(self) -> None:
        """Close; durable already, so nothing is flushed."""

    def bind(self, team_id: str, app_id: str) -> None:
        """Bind this database to a Slack team and app at the first call; `WrongWorkspace` for another one later."""

    # -- ingest
    def ingest(self, items: Sequence[InboxItem], now: str) -> list[int | None]:
        """Store items; the new row's id for each, or None where the key was known. Durable on return."""

    def inbox(self, *, after: int = 0, limit: int | None = 100) -> list[InboxRow]:
        """Rows that nobody has consumed, oldest first, with id > `after`. Verified; a row that does not verify is
        marked with outcome `corrupt` and left out."""

    def lanes(self, kinds: Collection[str]) -> list[tuple[str, int, int]]:
        """The ordering keys of rows of these kinds that nobody has consumed, the oldest first: each with its newest id, and
        with how many there are."""

    def lane(self, lane: str) -> list[InboxRow]:
        """The rows with this ordering key that nobody has consumed, oldest first. Verified as for `inbox`."""

    def inbox_row(self, key: str) -> InboxRow | None:
        """One row by its key, consumed or not."""

    def consume(self, consumed: Sequence[Consumed], now: str, rows: Sequence[Row] = ()) -> None:
        """Mark rows as done outside of any session, with intents that follow, in one transaction."""

    def dead_letters(self, limit: int = 1000) -> list[InboxRow]:
        """Rows whose outcome is `dead`, oldest first. Rows that do not verify are left out."""

    def decide_letter(self, key: str, *, again: bool) -> bool:
        """Open a dead letter anew, under a new id since readers are past the old one, or drop it. False where there is
        no dead letter with this key."""

    # -- ownership
    def register(self, label: str) -> str:
        """Make this process known as an owner and return its owner id. It counts as alive until the process dies
        or `close()`; a `kill -9` is noticed at once (a lock the kernel holds)."""

    def alive(self, owner: str) -> bool:
        """Whether that owner's process lives."""

    def serving(self) -> list[str]:
        """Labels of living owners (`bot`, `cli`, ...), this process included."""

    def try_serving(self, holder: Holder) -> Serving | None:
        """The lease to serve this database, or None while another process has it. Raises `StorageError`."""

    def served(self) -> Served:
        """The error that says who serves it."""

    # -- several processes at once
    def serve_beside(self, role: str) -> None:
        """Serve in this role beside others that do the same, from now on; in none: `stopping`. Raises `Served` while a
        process serves this store alone."""

    def lease(self, name: str) -> bool:
        """Take a named lease, or keep it: False while another process has it. It ends with this process, or on `unlease`.
        Where only one process can serve a store it is always granted."""

    def unlease(self, name: str, *, tell: bool = False) -> None:
        """Give a lease back; with `tell` others are woken to take it."""

    def listen(self, wake: Callable[[str], None]) -> None:
        """Call this, on any thread, when others have committed: with `inbox`, `outbox`, `locks`, `marks` or `all`, and with
        `peers` when one came or went; with `lost` when the leases of this process are gone. Any of it may be lost."""

    def peers(self) -> dict[str, str]:
        """The owners that serve, this process included, with their roles, as they were a moment ago. Asks nobody."""

    def members(self, names: Sequence[str] = ()) -> list[Member]:
        """Who has this store open under a lease, with those of these leases that each holds."""

    def give_up(self, why: str) -> None:
        """Do no work any more, from whatever thread this is called: another process may do what this one did. Everything
        raises `StorageBroken` from here on."""

    def note_trouble(self, text: str | None) -> None:
        """Note for other processes what this one has trouble with, outside of the database; None: nothing any more."""

    def troubles(self) -> list[str]:
        """What living owners have noted, each with its label."""

    # -- sessions
    def commit(self, batch: Sequence[Commit]) -> list[Exception | None]:
        """All commits in one transaction: for each None, or why that one alone was left out (`Fenced`, ...). A failure
        of the transaction itself raises and nothing of the batch is stored. One that claims its session may also be
        refused as `Owned`, `SessionQuarantined`, or `Overtaken` where the session is not where it was found."""

    def head(self, session_id: str) -> Head | None:
        """Where a session stands, or None. Raises `Corrupt` for a head that does not verify, unless the session is
        quarantined: then the head is shown as it was found."""

    def heads(
        self,
        *,
        statuses: Sequence[str] = (),
        thread_key: str | None = None,
        limit: int | None = 100,
        before: str | None = None,
    ) -> list[Head]:
        """Sessions, newest first; with no limit all of them; with `before` those that are older than that session. One whose
        head does not verify is listed with a `quarantined` that says so."""

    def stirred(self, since: str) -> list[Head]:
        """The sessions of `heads` that have been changed at that time or later, in no order."""

    def opening(self, session_id: str) -> bytes:
        """The first event of a session, verified; what follows is not read. Raises `Corrupt`, `UnknownSession`."""

    def orphans(self, limit: int = 100) -> list[str]:
        """Sessions of status `running` that nobody alive owns: work to be taken up after a crash."""

    def load(self, session_id: str) -> Loaded:
        """Snapshot and tail, verified. A snapshot that does not verify, or is ahead of the journal, is ignored and
        the whole journal returned. A journal or head that does not verify raises `Corrupt`. `UnknownSession`."""

    def journal(self, session_id: str, *, after: int = 0) -> Iterator[bytes]:
        """All events from the first, verified from the beginning; those with seq > `after` are given. Everything
        is read and verified before this returns, so the iterator may be used on any thread."""

    def check_chain(self, session_id: str) -> None:
        """Verify a session's journal from the beginning, without reading what is in it: that needs no key for what is encrypted,
        and holds for what was erased. Raises `Corrupt`, `UnknownSession`."""

    def quarantine(self, session_id: str, reason: str, now: str, rows: Sequence[Row] = ()) -> None:
        """Set the session aside: nobody claims it or commits to it (`Fenced`) until a person decides. Its rows stay
        as they were found, and a lock that it took stays its own; a place in a queue it loses. A second call keeps the
        first reason. With intents (the thread is told)."""

    def release(self, session_id: str) -> None:
        """Take back a quarantine: its head and its whole journal are verified first, and its snapshot, which may be what
        was damaged, is deleted. `Corrupt` where they do not verify, and nothing is changed; `UnknownSession`."""

    def flow(self, digest: str) -> bytes:
        """The pinned flow's body, verified against its digest. `Corrupt`, `StorageError` when absent."""

    def form(self, digest: str, release: str) -> bytes | None:
        """What this release made of the pinned flow, verified; None where it has not, or where it does not verify. Raises what
        `flow` raises: a text that was changed is never run, in no form."""

    def keep_form(self, form: FlowForm) -> None:
        """Keep what this release made of a pinned flow, in place of what another one has."""

    # -- prompts, timers
    def derived(self, session_id: str) -> Derived:
        """The rows of a session that follow from its journal, to be compared with it. Those that do not verify are left out,
        but for locks."""

    def prompt(self, prompt_id: str) -> PromptRow | None:
        """One prompt, verified."""

    def prompts(
        self,
        *,
        thread_key: str | None = None,
        session_id: str | None = None,
        statuses: Sequence[str] = (),
        limit: int | None = 500,
    ) -> list[PromptRow]:
        """Prompts, oldest first; rows that do not verify are left out."""

    def timers(self, *, due: str | None = None, limit: int | None = 100) -> list[Timer]:
        """Timers, soonest first; with `due` only those at or before it. Rows that do not verify are left out."""

    # -- locks
    def locks(self, name: str | None = None) -> list[LockRow]:
        """The queue for a lock, or all queues by name; each in its order, the first has the lock or is to get it."""

    def unplaced(self) -> list[tuple[str, str]]:
        """Open sessions that have no place in any queue that verifies, each with the digest of its flow."""

    def grants(self, limit: int = 100) -> list[str]:
        """Sessions that are first in their queue and have not taken the lock yet, longest waiting first."""

    # -- spending
    def spent(self, day: str) -> int:
        """What counts on that day, in billionths of a dollar."""

    def spend(self, since: str) -> list[SpendRow]:
        """The model calls of that day and of all later ones, oldest first. Rows that do not verify are left out."""

    # -- what is kept for others
    def kept(self, kind: str, scopes: Sequence[str] | None = None) -> list[KeptRow]:
        """What is kept of a kind in these scopes, or in all, oldest first. Rows that do not verify are left out."""

    def kept_row(self, kept_id: str) -> KeptRow | None:
        """One of them, verified: `Corrupt` where it was changed outside."""

    # -- outbox, marks
    def outbox(self, *, now: str, limit: int | None = 100) -> list[OutboxRow]:
        """Pending rows whose `not_before` has come, oldest first. A row that was attempted and has to wait holds
        back the later rows of its lane. A row that does not verify is set to `failed` and left out."""

    def outbox_row(self, key: str) -> OutboxRow | None:
        """One row by its key, in any state."""

    def outbox_of(self, session_id: str, prefix: str) -> list[OutboxRow]:
        """The rows of a session whose keys begin so, in any state, oldest first. Those that do not verify are left out."""

    def outbox_attempt(self, row_id: int, attempts: int, now: str) -> bool:
        """Count an attempt, durably, before the request is made. False, and nothing is changed, where the row is not as it
        was read: it has another number of `attempts`, or is not pending any more."""

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
        When the row was replaced meanwhile (`rev` moved) the result is kept and the row stays pending: False."""

    def mark(self, scope: str) -> str | None:
        """How far a catch-up read has come in that thread or channel (a Slack ts)."""

    def marks(self, prefix: str) -> list[tuple[str, str]]:
        """The marks whose scope begins so, each with its ts, in the order of their scopes. Those that do not verify are
        left out."""

    def set_mark(self, scope: str, ts: str) -> None:
        """Move a mark forward; it never goes back. A mark that does not verify counts as none."""

    def sign(self, purpose: str, body: bytes) -> bytes:
        """A MAC under this store's key for what leaves it (an exported snapshot)."""

    def enclose(self, data: bytes) -> bytes:
        """What leaves the store as a line of a file, without its end: encrypted where the store is. See
        `engine.storage.envelopes`."""

    def disclose(self, data: bytes) -> bytes:
        """What a file holds that was written so, by this store or by one with the same keys. Raises `SnapshotRefused`,
        `KeyMissing`."""

    # -- freshness
    def suspended(self) -> str | None:
        """Why nothing may be written, or None: the store is older than what it acknowledged, or its record of that
        was changed. Then every write raises `StoreSuspended`. Whether somebody released it meanwhile is looked up."""

    def stale(self) -> str | None:
        """The same, looked up anew: the files may have been changed since the store was opened."""

    def give_notice(self, notices: Sequence[PutOutbox], now: str) -> None:
        """Intents that tell people of a suspended store: `outbox` gives no others then. Those that were not sent are
        dropped by `unsuspend`."""

    def unsuspend(self) -> None:
        """Take what is stored for true, and allow writes: a person has seen to what may happen a second time."""

    # -- housekeeping
    def counts(self) -> Counts:
        """How much there is of what waits, unverified: for metrics, never for a decision."""

    def changed(self) -> bool:
        """Whether another connection or process has committed since the last call."""

    def ended(self, before: str, *, limit: int | None = 100) -> list[str]:
        """Sessions that ended before that time, in the order of their starts. One whose head does not verify is left out:
        a date that was changed must not delete a living session."""

    def delete(self, session_ids: Sequence[str]) -> list[str]:
        """Delete sessions with all their rows, for a few milliseconds; those that are still to be deleted. What was spent
        stays, and consumed inbox rows, whose keys are needed longer. A session that has not ended raises `SessionError`
        unless it is quarantined; one that does not exist is no error."""

    def empty_inbox(self, after: int = 0) -> int | None:
        """Empty consumed inbox rows of sessions that are gone, for a few milliseconds: their keys stay. After which row to go
        on, or None when that was all; then the log, which has what was deleted, is emptied too, unless others read it."""

    def compact(self) -> None:
        """Write everything anew without free space. Only while nobody else uses the store."""

    def sweep(self, at: Sweep) -> Sweep | None:
        """Delete what no session needs any more, for a few milliseconds; where to go on, or None when that was all:
        consumed inbox rows from before one time whose session, if any, is gone, intents whose session is gone or that have
        none, what was spent, and notes that are over, from before the other time, texts of flows that nobody pins. Then free pages are given back."""
