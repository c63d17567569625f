"""The backend in memory: for tests, dry runs and trying things. It keeps the same sealed bytes as SQLite.

It passes the same contract suite. Nothing outlives the process, and owners are only those of this process.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from engine.journal.records import (
    NOTICE,
    Claim,
    Commit,
    Consumed,
    Head,
    InboxItem,
    InboxRow,
    Loaded,
    LockRow,
    OutboxRow,
    PromptRow,
    PutOutbox,
    Row,
    SpendRow,
    Sweep,
    TimerRow,
)
from engine.language.errors import Corrupt, Owned, SessionError, StorageError, WrongWorkspace
from engine.storage.macs import Sealer
from engine.storage.memory_rows import MemoryRows
from engine.storage.memory_sessions import MemorySessions
from engine.storage.memory_tables import Tables
from engine.storage.process_leases import label_of, new_owner_id
from engine.storage.sealing import SessionRecord


class MemoryStore:
    """`Store` in memory."""

    def __init__(self, key: bytes | None = None, tables: Tables | None = None) -> None:
        """An empty store, or, with `tables` (and the same key), another connection to one."""
        self.tables = tables or Tables()
        self._key = key or secrets.token_bytes(32)
        self._sealer = Sealer(self._key)
        self._sessions = MemorySessions(self.tables, self._sealer)
        self._rows = MemoryRows(self.tables, self._sealer)
        self._owned: set[str] = set()
        self._own_commits = 0
        self._seen = self.tables.commits
        self._closed = False
        self._trouble: str | None = None

    def another(self) -> MemoryStore:
        """A second connection to the same rows."""
        return MemoryStore(self._key, self.tables)

    def close(self) -> None:
        """See `Store.close`."""
        self.tables.living -= self._owned
        self._closed = True

    def _write(self, work: Callable[[], None]) -> None:
        """One transaction."""
        self._usable()
        with self.tables.read():
            before = self.tables.commits
            with self.tables.write():
                work()
            self._own_commits += self.tables.commits - before

    def _usable(self) -> None:
        if self._closed:
            raise StorageError("This store was closed.")

    def bind(self, team_id: str, app_id: str) -> None:
        """See `Store.bind`."""
        value = f"{team_id} {app_id}"
        mac = self._sealer.mac(b"meta", "workspace", value)
        found = self.tables.meta.get("workspace")
        if found is None:
            self._write(lambda: self.tables.put(self.tables.meta, "workspace", (value, mac)))
        elif found[1] != self._sealer.mac(b"meta", "workspace", found[0]):
            raise Corrupt("The note of which Slack team this database belongs to was changed.")
        elif found != (value, mac):
            raise WrongWorkspace(f"This store belongs to Slack team and app {found[0]}, not to {value}.")

    # -- ingest

    def ingest(self, items: Sequence[InboxItem], now: str) -> list[int | None]:
        """See `Store.ingest`."""
        ids: list[int | None] = []
        self._write(lambda: ids.extend(self._rows.ingest(items, now)))
        return ids

    def inbox(self, *, after: int = 0, limit: int = 100) -> list[InboxRow]:
        """See `Store.inbox`."""
        found: list[InboxRow] = []
        self._write(lambda: found.extend(self._rows.open_inbox(after, limit)))
        return found

    def inbox_row(self, key: str) -> InboxRow | None:
        """See `Store.inbox_row`."""
        self._usable()
        with self.tables.read():
            return self._rows.inbox_row(key)

    def consume(self, consumed: Sequence[Consumed], now: str, rows: Sequence[Row] = ()) -> None:
        """See `Store.consume`."""

        def work() -> None:
            self._rows.consume(consumed)
            self._rows.put_all(rows, now)

        self._write(work)

    def dead_letters(self, limit: int = 1000) -> list[InboxRow]:
        """See `Store.dead_letters`."""
        self._usable()
        with self.tables.read():
            return self._rows.dead_letters(limit)

    def decide_letter(self, key: str, *, again: bool) -> bool:
        """See `Store.decide_letter`."""
        done: list[bool] = []
        self._write(lambda: done.append(self._rows.decide_letter(key, again)))
        return done[0]

    # -- ownership

    def register(self, label: str) -> str:
        """See `Store.register`."""
        self._usable()
        owner = new_owner_id(label)
        self._owned.add(owner)
        self.tables.living.add(owner)
        return owner

    def alive(self, owner: str) -> bool:
        """See `Store.alive`."""
        return owner in self.tables.living

    def serving(self) -> list[str]:
        """See `Store.serving`."""
        return [label_of(owner) for owner in sorted(self.tables.living)]

    def note_trouble(self, text: str | None) -> None:
        """See `Store.note_trouble`."""
        self._trouble = text

    def troubles(self) -> list[str]:
        """See `Store.troubles`."""
        return [self._trouble] if self._trouble else []

    def claim(self, session_id: str, owner: str, now: str) -> int:
        """See `Store.claim`."""
        outcome = self.claims([Claim(session_id, owner, now)])[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def claims(self, batch: Sequence[Claim]) -> list[int | Exception]:
        """See `Store.claims`."""
        outcomes: list[int | Exception] = []
        self._write(lambda: outcomes.extend([self._claimed(claim) for claim in batch]))
        return outcomes

    def _claimed(self, claim: Claim) -> int | Exception:
        """One claim of a batch. Whatever refuses it does so before anything is written."""

        def check(head: SessionRecord) -> None:
            if head.owner not in (None, claim.owner) and self.alive(head.owner):
                raise Owned(f"Session {claim.session_id} is run by {head.owner}, which is alive.")

        try:
            return self._sessions.claim(claim.session_id, claim.owner, claim.now, check)
        except (Owned, SessionError, Corrupt) as error:
            return error

    # -- sessions

    def commit(self, batch: Sequence[Commit]) -> list[Exception | None]:
        """See `Store.commit`."""
        outcomes: list[Exception | None] = []
        self._write(lambda: outcomes.extend([self._part(commit) for commit in batch]))
        return outcomes

    def _part(self, commit: Commit) -> Exception | None:
        try:
            with self.tables.savepoint():
                self._sessions.apply(commit)
                self._rows.consume(commit.consumed)
                self._rows.put_all(commit.rows, commit.now)
        except (StorageError, SessionError) as error:
            return error
        return None

    def head(self, session_id: str) -> Head | None:
        """See `Store.head`."""
        self._usable()
        with self.tables.read():
            return self._sessions.head(session_id)

    def heads(
        self, *, statuses: Sequence[str] = (), thread_key: str | None = None, limit: int = 100
    ) -> list[Head]:
        """See `Store.heads`."""
        self._usable()
        with self.tables.read():
            return self._sessions.heads(statuses, thread_key, limit)

    def orphans(self, limit: int = 100) -> list[str]:
        """See `Store.orphans`."""
        self._usable()
        with self.tables.read():
            return self._sessions.orphans(self.alive, limit)

    def load(self, session_id: str) -> Loaded:
        """See `Store.load`."""
        self._usable()
        with self.tables.read():
            return self._sessions.load(session_id)

    def journal(self, session_id: str, *, after: int = 0) -> Iterator[bytes]:
        """See `Store.journal`."""
        self._usable()
        with self.tables.read():
            return self._sessions.journal(session_id, after)

    def quarantine(self, session_id: str, reason: str, now: str, rows: Sequence[Row] = ()) -> None:
        """See `Store.quarantine`."""

        def work() -> None:
            self._sessions.quarantine(session_id, reason, now)
            self._rows.put_all(rows, now)

        self._write(work)

    def release(self, session_id: str) -> None:
        """See `Store.release`."""
        self._write(lambda: self._sessions.release(session_id))

    def flow(self, digest: str) -> bytes:
        """See `Store.flow`."""
        self._usable()
        with self.tables.read():
            return self._sessions.flow(digest)

    # -- prompts, timers

    def prompt(self, prompt_id: str) -> PromptRow | None:
        """See `Store.prompt`."""
        self._usable()
        with self.tables.read():
            return self._rows.prompt(prompt_id)

    def prompts(
        self,
        *,
        thread_key: str | None = None,
        session_id: str | None = None,
        statuses: Sequence[str] = (),
        limit: int = 500,
    ) -> list[PromptRow]:
        """See `Store.prompts`."""
        self._usable()
        with self.tables.read():
            return self._rows.prompts(thread_key, session_id, statuses, limit)

    def timers(self, *, due: str | None = None, limit: int = 100) -> list[TimerRow]:
        """See `Store.timers`."""
        self._usable()
        with self.tables.read():
            return self._rows.timers(due, limit)

    # -- locks

    def locks(self, name: str | None = None) -> list[LockRow]:
        """See `Store.locks`."""
        self._usable()
        with self.tables.read():
            return self._rows.locks(name)

    def grants(self, limit: int = 100) -> list[str]:
        """See `Store.grants`."""
        self._usable()
        with self.tables.read():
            return self._rows.grants(limit)

    # -- spending

    def spent(self, day: str) -> int:
        """See `Store.spent`."""
        self._usable()
        with self.tables.read():
            return self._rows.spent(day)

    def spend(self, since: str) -> list[SpendRow]:
        """See `Store.spend`."""
        self._usable()
        with self.tables.read():
            return self._rows.spend(since)

    # -- outbox, marks

    def outbox(self, *, now: str, limit: int = 100) -> list[OutboxRow]:
        """See `Store.outbox`."""
        found: list[OutboxRow] = []
        self._write(lambda: found.extend(self._rows.pending_outbox(now, limit)))
        return found

    def outbox_row(self, key: str) -> OutboxRow | None:
        """See `Store.outbox_row`."""
        self._usable()
        with self.tables.read():
            return self._rows.outbox_row(key)

    def outbox_attempt(self, row_id: int, now: str) -> None:
        """See `Store.outbox_attempt`."""
        self._write(lambda: self._rows.attempt(row_id, now))

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
        """See `Store.outbox_finish`."""
        done: list[bool] = []

        def work() -> None:
            done.append(self._rows.finish(row_id, rev, state, result, not_before))
            self._rows.ingest(items, now)

        self._write(work)
        return done[0]

    def mark(self, scope: str) -> str | None:
        """See `Store.mark`."""
        self._usable()
        with self.tables.read():
            return self._rows.mark(scope)

    def marks(self, prefix: str) -> list[tuple[str, str]]:
        """See `Store.marks`."""
        self._usable()
        with self.tables.read():
            return self._rows.marks(prefix)

    def set_mark(self, scope: str, ts: str) -> None:
        """See `Store.set_mark`."""
        self._write(lambda: self._rows.set_mark(scope, ts))

    def sign(self, purpose: str, body: bytes) -> bytes:
        """See `Store.sign`."""
        return self._sealer.mac(b"sign", purpose, body)

    # -- freshness: rows in memory have no older copy

    def suspended(self) -> str | None:
        """See `Store.suspended`."""
        return None

    def stale(self) -> str | None:
        """See `Store.stale`."""
        return None

    def give_notice(self, notices: Sequence[PutOutbox], now: str) -> None:
        """See `Store.give_notice`."""
        self._write(lambda: self._rows.put_all([row.but(key=NOTICE + row.key) for row in notices], now))

    def unsuspend(self) -> None:
        """See `Store.unsuspend`."""

    # -- housekeeping

    def changed(self) -> bool:
        """See `Store.changed`."""
        self._usable()
        others = self.tables.commits - self._own_commits
        before, self._seen = self._seen, others
        return others != before

    def ended(self, before: str, *, limit: int = 100) -> list[str]:
        """See `Store.ended`."""
        self._usable()
        with self.tables.read():
            return self._sessions.ended(before, limit)

    def delete(self, session_ids: Sequence[str]) -> list[str]:
        """See `Store.delete`."""

        def work() -> None:
            for session_id in session_ids:
                self._sessions.delete(session_id)

        self._write(work)
        return []

    def compact(self) -> None:
        """See `Store.compact`."""

    def sweep(self, at: Sweep) -> Sweep | None:
        """See `Store.sweep`; all at once."""

        def work() -> None:
            self._rows.reap(at.ended_before, at.inbox_before)
            self._sessions.drop_flows()

        self._write(work)
        return None
