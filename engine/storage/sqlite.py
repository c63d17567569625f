"""The embedded backend: one SQLite file, no server.

Every method is one transaction. What a crash does: a transaction whose COMMIT returned is there after a power
loss (WAL, `synchronous=FULL`), any other is gone as a whole. Files beside the database: its key
(`<name>.key`), its owners (`owners/<name>/`), the lock under which it is opened (`<name>.lock`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import apsw

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
from engine.storage.connection import Connection, row_error
from engine.storage.freshness import Freshness
from engine.storage.macs import Sealer
from engine.storage.private_files import check_private, make_private, only_opener, private_directory
from engine.storage.process_leases import MemoryOwners, Owners, label_of
from engine.storage.schema import migrate, refuse_newer
from engine.storage.sealing import SessionRecord
from engine.storage.sqlite_key import META, PUT_META, check_key, key_for
from engine.storage.sqlite_rows import SWEPT, RowTables
from engine.storage.sqlite_sessions import SessionTables

SLICE_SECONDS = 0.004
"""How long a transaction deletes: commits of others are not held up for longer."""


def open_sqlite(
    path: str | os.PathLike[str],
    *,
    key: bytes | None = None,
    vfs: str | None = None,
    patience: float | None = None,
) -> SqliteStore:
    """Open a database, or make it with its directory and key.

    `key` is the secret under which rows are signed; without it the one in `<path>.key` is used. `vfs` names an
    SQLite VFS, for fault injection. `patience` is how many seconds another program is waited for. Raises
    `KeyMissing`, `SchemaTooNew`, and `StorageError` when the files are not ours alone.
    """
    given = Path(path)
    if not given.name:
        raise StorageError(f"{str(path)!r} names no database file.")
    file = private_directory(given.parent) / given.name
    with only_opener(file.with_name(f"{file.name}.lock")):
        for suffix in ("", "-wal", "-shm", "-journal"):
            check_private(file.with_name(file.name + suffix))
        make_private(file)
        db = Connection(file, vfs, patience)
        try:
            return _prepared(db, file, key)
        except BaseException:
            with suppress(StorageError):
                db.close()
            raise


def _prepared(db: Connection, file: Path, key: bytes | None) -> SqliteStore:
    with db.translated():
        refuse_newer(db.raw, file)
    db.shrinkable()
    db.use_wal()
    owners = Owners(file.parent / "owners" / file.name)
    with db.translated():
        migrate(db.raw, file, owners.living())
    sealer = Sealer(key_for(db, file, key))
    check_key(db, file, sealer)
    db.watch = Freshness(db, sealer, file)
    return SqliteStore(db, sealer, owners)


class _NothingStored(Exception):
    """Every commit of a batch was undone: the transaction need not wait for the disk."""


class SqliteStore:
    """`Store` on one SQLite file. Threads may share it; their calls run one after the other."""

    def __init__(self, db: Connection, sealer: Sealer, owners: Owners | MemoryOwners) -> None:
        """Made by `open_sqlite` and `MemoryStore`."""
        self._db = db
        self._sealer = sealer
        self._owners = owners
        self._sessions = SessionTables(db, sealer)
        self._rows = RowTables(db, sealer)
        self._version = db.data_version()

    def close(self) -> None:
        """See `Store.close`."""
        self._owners.close()
        self._db.watch.close()
        self._db.close()

    def bind(self, team_id: str, app_id: str) -> None:
        """See `Store.bind`."""
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

    # -- ingest

    def ingest(self, items: Sequence[InboxItem], now: str) -> list[int | None]:
        """See `Store.ingest`."""
        with self._db.write():
            return self._rows.ingest(items, now)

    def inbox(self, *, after: int = 0, limit: int = 100) -> list[InboxRow]:
        """See `Store.inbox`."""
        with self._db.read():
            rows, corrupt = self._rows.open_inbox(after, limit)
        if corrupt:
            with self._db.write():
                self._rows.mark_inbox_corrupt(corrupt)
        return rows

    def inbox_row(self, key: str) -> InboxRow | None:
        """See `Store.inbox_row`."""
        with self._db.read():
            return self._rows.inbox_row(key)

    def consume(self, consumed: Sequence[Consumed], now: str, rows: Sequence[Row] = ()) -> None:
        """See `Store.consume`."""
        with self._db.write():
            self._rows.consume(consumed)
            for row in rows:
                self._rows.put(row, now)

    def dead_letters(self, limit: int = 1000) -> list[InboxRow]:
        """See `Store.dead_letters`."""
        with self._db.read():
            return self._rows.dead_letters(limit)

    def decide_letter(self, key: str, *, again: bool) -> bool:
        """See `Store.decide_letter`."""
        with self._db.write():
            return self._rows.decide_letter(key, again)

    # -- ownership

    def register(self, label: str) -> str:
        """See `Store.register`."""
        return self._owners.register(label)

    def alive(self, owner: str) -> bool:
        """See `Store.alive`."""
        return self._owners.alive(owner)

    def serving(self) -> list[str]:
        """See `Store.serving`."""
        return [label_of(owner) for owner in self._owners.living()]

    def note_trouble(self, text: str | None) -> None:
        """See `Store.note_trouble`."""
        self._owners.note(text)

    def troubles(self) -> list[str]:
        """See `Store.troubles`."""
        return self._owners.notes()

    def claim(self, session_id: str, owner: str, now: str) -> int:
        """See `Store.claim`."""
        outcome = self.claims([Claim(session_id, owner, now)])[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def claims(self, batch: Sequence[Claim]) -> list[int | Exception]:
        """See `Store.claims`."""
        outcomes: list[int | Exception] = []
        try:
            with self._db.write():
                outcomes += [self._claimed(claim) for claim in batch]
                if not any(isinstance(outcome, int) for outcome in outcomes):
                    raise _NothingStored
        except _NothingStored:
            pass
        except BaseException:
            for claim in batch:
                self._sessions.forget(claim.session_id)
            raise
        return outcomes

    def _claimed(self, claim: Claim) -> int | Exception:
        """One claim of a batch. Whatever refuses it does so before anything is written."""

        def check(head: SessionRecord) -> None:
            if head.owner not in (None, claim.owner) and self._owners.alive(head.owner):
                raise Owned(f"Session {claim.session_id} is run by {head.owner}, which is alive.")

        try:
            return self._sessions.claim(claim.session_id, claim.owner, claim.now, check)
        except (Owned, SessionError, Corrupt) as error:
            return error

    # -- sessions

    def commit(self, batch: Sequence[Commit]) -> list[Exception | None]:
        """See `Store.commit`."""
        outcomes: list[Exception | None] = []
        try:
            with self._db.write():
                outcomes += [self._part(commit) for commit in batch]
                if None not in outcomes:
                    raise _NothingStored
        except _NothingStored:
            pass
        except BaseException:
            for commit in batch:
                self._sessions.forget(commit.session_id)
            raise
        return outcomes

    def _part(self, commit: Commit) -> Exception | None:
        """One commit of a batch: None, or why it alone was undone. What concerns the whole database raises."""
        try:
            with self._db.savepoint():
                self._sessions.apply(commit)
                self._rows.consume(commit.consumed)
                for row in commit.rows:
                    self._rows.put(row, commit.now)
            return None
        except (StorageError, SessionError) as error:
            cause: Exception = error
        except (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError) as error:
            cause = row_error(error) or error
        except UnicodeError as error:
            cause = StorageError(f"A row of {commit.session_id} has text that is not Unicode: {error}.")
        self._sessions.forget(commit.session_id)
        return cause

    def head(self, session_id: str) -> Head | None:
        """See `Store.head`."""
        with self._db.read():
            return self._sessions.head(session_id)

    def heads(
        self, *, statuses: Sequence[str] = (), thread_key: str | None = None, limit: int = 100
    ) -> list[Head]:
        """See `Store.heads`."""
        with self._db.read():
            return self._sessions.heads(statuses, thread_key, limit)

    def orphans(self, limit: int = 100) -> list[str]:
        """See `Store.orphans`."""
        with self._db.read():
            return self._sessions.orphans(self._owners.alive, limit)

    def load(self, session_id: str) -> Loaded:
        """See `Store.load`."""
        with self._db.read():
            return self._sessions.load(session_id)

    def journal(self, session_id: str, *, after: int = 0) -> Iterator[bytes]:
        """See `Store.journal`."""
        with self._db.read():
            return self._sessions.journal(session_id, after)

    def quarantine(self, session_id: str, reason: str, now: str, rows: Sequence[Row] = ()) -> None:
        """See `Store.quarantine`."""
        with self._db.write():
            self._sessions.quarantine(session_id, reason, now)
            for row in rows:
                self._rows.put(row, now)

    def release(self, session_id: str) -> None:
        """See `Store.release`."""
        with self._db.write():
            self._sessions.release(session_id)

    def flow(self, digest: str) -> bytes:
        """See `Store.flow`."""
        with self._db.read():
            return self._sessions.flow(digest)

    # -- prompts, timers

    def prompt(self, prompt_id: str) -> PromptRow | None:
        """See `Store.prompt`."""
        with self._db.read():
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
        with self._db.read():
            return self._rows.prompts(thread_key, session_id, statuses, limit)

    def timers(self, *, due: str | None = None, limit: int = 100) -> list[TimerRow]:
        """See `Store.timers`."""
        with self._db.read():
            return self._rows.timers(due, limit)

    # -- locks

    def locks(self, name: str | None = None) -> list[LockRow]:
        """See `Store.locks`."""
        with self._db.read():
            return self._rows.locks(name)

    def grants(self, limit: int = 100) -> list[str]:
        """See `Store.grants`."""
        with self._db.read():
            return self._rows.grants(limit)

    # -- spending

    def spent(self, day: str) -> int:
        """See `Store.spent`."""
        with self._db.read():
            return self._rows.spent(day)

    def spend(self, since: str) -> list[SpendRow]:
        """See `Store.spend`."""
        with self._db.read():
            return self._rows.spend(since)

    # -- outbox, marks

    def outbox(self, *, now: str, limit: int = 100) -> list[OutboxRow]:
        """See `Store.outbox`."""
        with self._db.read():
            rows, corrupt = self._rows.pending_outbox(
                now, limit, notices=self._db.watch.suspended is not None
            )
        if corrupt:
            with self._db.write():
                self._rows.mark_outbox_corrupt(corrupt)
        return rows

    def outbox_row(self, key: str) -> OutboxRow | None:
        """See `Store.outbox_row`."""
        with self._db.read():
            return self._rows.outbox_row(key)

    def outbox_attempt(self, row_id: int, now: str) -> None:
        """See `Store.outbox_attempt`."""
        with self._db.write(suspended=True):
            self._rows.attempt(row_id, now)

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
        with self._db.write(suspended=True):
            done = self._rows.finish(row_id, rev, state, result, not_before)
            if items:
                self._rows.ingest(items, now)
            return done

    def mark(self, scope: str) -> str | None:
        """See `Store.mark`."""
        with self._db.read():
            return self._rows.mark(scope)

    def marks(self, prefix: str) -> list[tuple[str, str]]:
        """See `Store.marks`."""
        with self._db.read():
            return self._rows.marks(prefix)

    def set_mark(self, scope: str, ts: str) -> None:
        """See `Store.set_mark`."""
        with self._db.write():
            self._rows.set_mark(scope, ts)

    def sign(self, purpose: str, body: bytes) -> bytes:
        """See `Store.sign`."""
        return self._sealer.mac(b"sign", purpose, body)

    # -- freshness

    def suspended(self) -> str | None:
        """See `Store.suspended`."""
        return self._db.watch.look_again()

    def stale(self) -> str | None:
        """See `Store.stale`."""
        return self._db.watch.findings()

    def give_notice(self, notices: Sequence[PutOutbox], now: str) -> None:
        """See `Store.give_notice`."""
        with self._db.write(suspended=True):
            for row in notices:
                self._rows.put(row.but(key=NOTICE + row.key), now)

    def unsuspend(self) -> None:
        """See `Store.unsuspend`."""
        with self._db.write(suspended=True):
            self._rows.drop_notices()
        self._db.watch.release()

    # -- housekeeping

    def changed(self) -> bool:
        """See `Store.changed`."""
        before, self._version = self._version, self._db.data_version()
        return self._version != before

    def ended(self, before: str, *, limit: int = 100) -> list[str]:
        """See `Store.ended`."""
        with self._db.read():
            return self._sessions.ended(before, limit)

    def delete(self, session_ids: Sequence[str]) -> list[str]:
        """See `Store.delete`."""
        left = list(session_ids)
        with self._db.write():
            until = time.monotonic() + SLICE_SECONDS
            while left and time.monotonic() < until:
                if self._sessions.delete(left[0]):
                    del left[0]
        return left

    def compact(self) -> None:
        """See `Store.compact`."""
        self._db.compact()

    def sweep(self, at: Sweep) -> Sweep | None:
        """See `Store.sweep`."""
        with self._db.write():
            if at.stage < len(SWEPT):
                return self._rows.sweep(at)
            return at if self._db.give_back() else None
