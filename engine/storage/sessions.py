"""Sessions: heads, journals, snapshots, pinned flows, quarantine. Statements and what they mean.

A commit finds the head that it builds on in memory when this store wrote it, so the usual step reads nothing. That
memory is never trusted: the update names the MAC it expects, which covers epoch, seq and chain, and changes no
row when anything has moved.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import islice
from typing import Any

from msgspec.structs import astuple

from engine.journal.phases import standing
from engine.journal.records import (
    Commit,
    Head,
    Loaded,
    NewSession,
    Quarantine,
    Snapshot,
)
from engine.language.errors import (
    Corrupt,
    Fenced,
    Overtaken,
    Owned,
    SessionError,
    SessionQuarantined,
    UnknownSession,
)
from engine.storage.database import UNREADABLE, Database, SqlValue
from engine.storage.errors import NoSuchEvent
from engine.storage.flows import FlowTable
from engine.storage.packing import packed, unpacked
from engine.storage.sealing import (
    JournalRecord,
    Sealer,
    StoredHead,
    advanced,
    check_chain,
    check_new,
    check_pin,
    created,
    genuine,
    linked,
    row_events,
    verified_events,
)
from engine.storage.tables import (
    FORMS,
    HEADS,
    QUARANTINE,
    SNAPSHOTS,
    Tables,
    at_most,
    listed,
    reads,
    reads_once,
    session_number,
    writes,
)

_REMEMBERED = 4_096
_UNVERIFIED = "its head does not verify: it was changed outside this program"
"""Text in lists for a session that should be quarantined and is not yet."""

_HEAD = HEADS.where("session_id = ?")
_HEAD_BY_N = HEADS.where("n = ?")
_INSERT_HEAD = HEADS.insert + " ON CONFLICT (session_id) DO NOTHING"
_EXISTS = "SELECT 1 FROM sessions WHERE session_id = ?"
_ANY_IN = "SELECT 1 FROM sessions WHERE thread_key = ? LIMIT 1"
# Three forms, since SQLite rewrites the index entries of every column that an UPDATE names.
_ADVANCE = """UPDATE sessions SET phase = ?, epoch = ?, seq = ?, owner = ?, updated_at = ?, chain = ?, mac = ?
 WHERE session_id = ? AND epoch = ? AND seq = ? AND mac = ?
 AND NOT EXISTS (SELECT 1 FROM quarantine WHERE quarantine.session_id = sessions.session_id)"""
_ADVANCE_STATUS = _ADVANCE.replace("SET ", "SET status = ?, ended_at = ?, ")
_ADVANCE_PIN = _ADVANCE_STATUS.replace("SET ", "SET flow_digest = ?, ")
_INSERT_EVENTS = """INSERT INTO journal (session, seq, version, body, mac) VALUES (?, ?, ?, ?, ?)
 ON CONFLICT (session, seq) DO NOTHING"""
_EVENTS = "SELECT seq, version, body, mac FROM journal WHERE session = ? AND seq > ? ORDER BY seq"
_EVENT_MAC = """SELECT mac FROM journal WHERE session = ?1 AND seq <= ?2
 AND ?2 <= (SELECT seq FROM sessions WHERE session_id = ?3) ORDER BY seq DESC LIMIT 1"""
_FIRST = "SELECT seq, version, body, mac FROM journal WHERE session = ? ORDER BY seq LIMIT 1"
_LAST = "SELECT seq, version, body, mac FROM journal WHERE session = ? ORDER BY seq DESC LIMIT ?"
_ANY_EVENT = "SELECT 1 FROM journal WHERE session = ? LIMIT 1"
_PUT_SNAPSHOT = SNAPSHOTS.upsert("session_id")
_SNAPSHOT = SNAPSHOTS.where("session_id = ?")
_QUARANTINE = QUARANTINE.insert + " ON CONFLICT (session_id) DO NOTHING"
_LEAVE_QUEUES = "DELETE FROM locks WHERE session_id = ? AND taken_at IS NULL"
_QUARANTINED = QUARANTINE.where("session_id = ?")
_RUNNING = """SELECT n FROM sessions WHERE status = 'running'
 AND NOT EXISTS (SELECT 1 FROM quarantine WHERE quarantine.session_id = sessions.session_id) ORDER BY n"""
_LIST = {
    (False, False): "SELECT n FROM sessions WHERE n < ?4 ORDER BY n DESC LIMIT ?3",
    (True, False): """SELECT n FROM sessions WHERE status IN (SELECT value FROM json_each(?1))
 AND n < ?4 ORDER BY n DESC LIMIT ?3""",
    (False, True): "SELECT n FROM sessions WHERE thread_key = ?2 AND n < ?4 ORDER BY n DESC LIMIT ?3",
    (True, True): """SELECT n FROM sessions WHERE thread_key = ?2
 AND +status IN (SELECT value FROM json_each(?1)) AND n < ?4 ORDER BY n DESC LIMIT ?3""",
}
_NUMBER = "SELECT n FROM sessions WHERE session_id = ?"
# What has ended is found by when it ended, the rest among what is open: nobody reads all sessions to see what is new.
_STIRRED = """SELECT n FROM sessions WHERE ended_at >= ?1
 UNION ALL SELECT n FROM sessions WHERE status IN ('idle', 'running', 'paused') AND updated_at >= ?1"""
_JOURNAL = "SELECT seq, version, body, mac FROM journal WHERE session = ? ORDER BY seq"
_DROP_SNAPSHOT = "DELETE FROM snapshots WHERE session_id = ?"
_DROP_QUARANTINE = "DELETE FROM quarantine WHERE session_id = ?"


_SLICE_SECONDS = 0.004
"""Seconds that a deleting transaction may take: commits of others wait no longer."""
_BEING_DELETED = "it is being deleted"
"""Why a session is on hold while its long journal is deleted in pieces."""

_ENDED = "SELECT n FROM sessions WHERE ended_at < ? ORDER BY ended_at, n"
_EVENTS_AT_ONCE = 500
_DELETE_EVENTS = """DELETE FROM journal WHERE n IN
 (SELECT n FROM journal WHERE session = ? ORDER BY seq DESC LIMIT ?)"""
_DELETE = (
    _DROP_SNAPSHOT,
    _DROP_QUARANTINE,
    "DELETE FROM prompts WHERE session_id = ?",
    "DELETE FROM timers WHERE session_id = ?",
    "DELETE FROM outbox WHERE session_id = ?",
    "DELETE FROM locks WHERE session_id = ?",
    "DELETE FROM kept WHERE kind = 'files' AND scope = ?",
    "DELETE FROM data_keys WHERE scope = ?",
    "DELETE FROM sessions WHERE session_id = ?",
)


class SessionTable(Tables):
    """Heads of sessions with their journals, snapshots and notes of why they are on hold."""

    def __init__(self, db: Database, sealer: Sealer, alive: Callable[[str], bool], flows: FlowTable) -> None:
        super().__init__(db, sealer)
        self._alive, self._flows = alive, flows
        self.known: dict[str, StoredHead] = {}
        """Heads of sessions that this process owns."""
        self.free: dict[str, StoredHead] = {}
        """Heads that were read and verified for a claim: the commit that stores it need not read them again."""

    def forget(self, session_id: str) -> None:
        """Read this session's head again before the next commit."""
        self.known.pop(session_id, None)
        self.free.pop(session_id, None)

    # -- reading

    def _find(self, session_id: str) -> StoredHead | None:
        """The head, verified; None when there is no such session."""
        try:
            row = self._db.one(_HEAD, (session_id,))
        except UnicodeDecodeError:
            raise Corrupt(f"The head of {session_id} is unreadable.") from None
        if row is None:
            return None
        record = StoredHead(*row)
        if not genuine(self._sealer, record):
            raise Corrupt(f"The head of {session_id} was changed outside this program.")
        return record

    def _stored(self, session_id: str) -> StoredHead:
        """The head, verified. Raises `UnknownSession`, `Corrupt`."""
        record = self._find(session_id)
        if record is not None:
            return record
        if self._db.one(_ANY_EVENT, (session_number(session_id),)):
            raise Corrupt(f"Session {session_id} has a journal but no head: its head was removed.")
        raise UnknownSession(f"There is no session {session_id}.")

    def _reason(self, session_id: str) -> str | None:
        """Why the session is on hold, or None."""
        return next(self._reasons([session_id]))

    def _reasons(self, session_ids: Iterable[str]) -> Iterator[str | None]:
        return (self._told(row) for _, row in self._db.found(_QUARANTINED, session_ids))

    def _told(self, row: tuple[Any, ...] | None) -> str | None:
        if row is None:
            return None
        if row == UNREADABLE:
            return "its quarantine note is unreadable"
        note = QUARANTINE.verified(self._sealer, row)
        return note.reason if note else "its quarantine note does not verify"

    @reads
    def head(self, session_id: str) -> Head | None:
        """Return the head of a session, or None. Raises `Corrupt` for a head that does not verify, unless the session
        is quarantined: then the head is shown as it was found."""
        reason = self._reason(session_id)
        if reason is None:
            record = self._find(session_id)
            return record.head(None) if record else None
        row = self._db.one(_HEAD, (session_id,))
        return StoredHead(*row).head(reason) if row else None

    @reads
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
        row = None if before is None else self._db.one(_NUMBER, (before,))
        until = at_most(None) if before is None else row[0] if row else 0
        wanted = (listed(statuses), thread_key, at_most(limit), until)
        return self._listed(self._db.all(_LIST[bool(statuses), thread_key is not None], wanted))

    @reads_once
    def any_in(self, thread_key: str) -> bool:
        """True if a thread has a session, whether that verifies or not."""
        return self._db.one(_ANY_IN, (thread_key,)) is not None

    @reads
    def stirred(self, since: str) -> list[Head]:
        """The sessions of `heads` that have been changed at that time or later, in no order."""
        return self._listed(self._db.all(_STIRRED, (since,)))

    @reads
    def opening(self, session_id: str) -> bytes:
        """The first event of a session, verified; what follows is not read. Raises `Corrupt`, `UnknownSession`."""
        head = self._stored(session_id)
        row = self._db.one(_FIRST, (session_number(session_id),))
        if row is None:
            raise Corrupt(f"Session {session_id} has no journal.")
        return row_events(self._sealer, head, JournalRecord(*row), seq=0, chain=head.origin)[0]

    @reads
    def ending(self, session_id: str, rows: int) -> tuple[bytes, ...]:
        """The events of the last so many rows of a journal, verified; what came before is not read. Raises `Corrupt`,
        `UnknownSession`."""
        head = self._stored(session_id)
        found = [JournalRecord(*row) for row in self._db.all(_LAST, (session_number(session_id), rows + 1))][
            ::-1
        ]
        if len(found) <= rows:
            return verified_events(self._sealer, head, found, seq=0, chain=head.origin)
        before, *found = found  # the next row's MAC covers this one's
        return verified_events(self._sealer, head, found, seq=found[0].seq - 1, chain=before.mac)

    def _listed(self, numbers: Iterable[tuple[int]]) -> list[Head]:
        records = list(self._by_n(numbers))
        reasons = self._reasons(record.session_id for record in records)
        return [
            record.head(reason or (None if genuine(self._sealer, record) else _UNVERIFIED))
            for record, reason in zip(records, reasons, strict=True)
        ]

    @reads
    def orphans(self, limit: int = 100) -> list[str]:
        """Sessions of status `running` that nobody alive owns: work to be taken up after a crash. One whose head does not verify is among them: its claim will say so."""
        alive, heads = cache(self._alive), self._by_n(self._db.all(_RUNNING))
        return list(islice((h.session_id for h in heads if h.owner is None or not alive(h.owner)), limit))

    def _by_n(self, rows: Iterable[tuple[int]]) -> Iterator[StoredHead]:
        """The heads with these numbers as they are, without those of which not even the text can be read."""
        for n, row in self._db.found(_HEAD_BY_N, (n for (n,) in rows)):
            if row == UNREADABLE:
                self._warn(f"the session in row {n!r} cannot be read and is left out of lists")
            elif row is not None and type(row[0]) is str:
                yield StoredHead(*row)

    @reads
    def load(self, session_id: str) -> Loaded:
        """Snapshot and tail, verified. A snapshot that does not verify, or is ahead of the journal, is ignored and
        the whole journal returned. A journal or head that does not verify raises `Corrupt`. `UnknownSession`."""
        record = self._stored(session_id)
        return self._loaded(record, self._reason(session_id))

    def claimable(self, session_id: str, owner: str, known: tuple[int, int] | None = None) -> Loaded | None:
        """A session that this owner may claim, as `load` gives it; None where it is at a `known` epoch and seq. Inside a
        transaction. Raises `UnknownSession`, `Owned`, `SessionQuarantined`, `Corrupt`."""
        record = self._found_free(session_id, owner)
        self._keep(self.free, record)
        return None if (record.epoch, record.seq) == known else self._loaded(record, None)

    def _loaded(self, record: StoredHead, quarantined: str | None) -> Loaded:
        head = record.head(quarantined)
        try:
            snapshot = self._snapshot(record)
            if snapshot is not None:
                state = unpacked(snapshot.body)
                return Loaded(head, state, snapshot.seq, self._events(record, snapshot.seq, snapshot.chain))
        except Corrupt as error:
            self._warn(f"{error} The journal is read in its place.")
        return Loaded(head, None, 0, self._whole(record))

    @reads
    def journal(self, session_id: str, *, after: int = 0) -> Iterator[bytes]:
        """All events from the first, verified from the beginning; those with seq > `after` are given. Everything
        is read and verified before this returns, so the iterator may be used on any thread."""
        return iter(self._whole(self._stored(session_id))[after:])

    def _whole(self, record: StoredHead) -> tuple[bytes, ...]:
        return self._events(record, 0, record.origin)

    def _events(self, record: StoredHead, after: int, chain: bytes) -> tuple[bytes, ...]:
        rows = self._db.all(_EVENTS, (session_number(record.session_id), after))
        return verified_events(
            self._sealer, record, [JournalRecord(*row) for row in rows], seq=after, chain=chain
        )

    def _snapshot(self, head: StoredHead) -> Snapshot | None:
        """The snapshot. A session that is paused has one of its last commit; one that runs may have an earlier one, or
        none. Raises `Corrupt`."""
        snapshot = self._get(SNAPSHOTS, _SNAPSHOT, head.session_id)
        if snapshot is not None and snapshot.seq > head.seq:
            raise Corrupt(f"The snapshot of {head.session_id} is ahead of its journal.")
        if head.status == "paused" and (snapshot is None or snapshot.seq < head.seq):
            found = "is missing" if snapshot is None else "is older than its pause"
            self._warn(f"The snapshot of {head.session_id} {found}. The journal is read in its place.")
        return snapshot

    @reads
    def check_chain(self, session_id: str) -> None:
        """Verify a session's journal from the beginning, without reading what is in it: that needs no key for what is encrypted,
        and holds for what was erased. Raises `Corrupt`, `UnknownSession`."""
        record = self._stored(session_id)
        rows = self._db.all(_JOURNAL, (session_number(session_id),))
        check_chain(self._sealer, record, [JournalRecord(*row) for row in rows])

    # -- writing

    def apply(self, commit: Commit, body: bytes) -> None:
        """Move the head, append the events, keep the snapshot, inside a transaction. Raises `Fenced`, `Owned`, `UnknownSession`, `Corrupt`."""
        if commit.new is not None:
            head = self._created(commit, commit.new)
        elif commit.owner is not None:
            head = self._claimed(commit, commit.owner)
        else:
            head = self._expected(commit)
        check_pin(commit)
        row = linked(self._sealer, commit, body, head.chain) if commit.events else None
        chain = head.chain if row is None else row.mac
        after = advanced(self._sealer, head, commit, chain)
        if commit.new is not None:
            self._db.post(_INSERT_HEAD, astuple(after), 1, partial(_created_already, commit))
        else:
            self._db.post(*_advance(head, after), 1, partial(self._why_not, commit))
        if commit.pin is not None:
            self._flows.pin(commit.pin.flow_digest, commit.pin.flow_body)
        if row is not None:
            values = (session_number(commit.session_id), *astuple(row))
            self._db.post(_INSERT_EVENTS, values, 1, partial(_there_already, commit))
        if commit.snapshot:
            snapshot = Snapshot(commit.session_id, after.seq, chain, packed(commit.snapshot))
            with contextlib.suppress(*self._db.unreadable):  # its place is damaged: the journal has all of it
                self._put(SNAPSHOTS, _PUT_SNAPSHOT, snapshot)
        elif commit.snapshot is not None:
            self._db.post(_DROP_SNAPSHOT, (commit.session_id,))
        self.forget(after.session_id)
        if after.owner is not None and after.ended_at is None:
            self._keep(self.known, after)

    def _claimed(self, commit: Commit, owner: str) -> StoredHead:
        """The head of a session that this commit claims."""
        head = self.free.get(commit.session_id)
        known = head is not None and (head.epoch + 1, head.seq) == (commit.epoch, commit.seq)
        # An owner that was dead when the head was read may have come back, and have gone on with its work.
        if head is not None and known and (head.owner in (None, owner) or not self._alive(head.owner)):
            return head
        try:
            head = self._found_free(commit.session_id, owner)
        except Corrupt as error:
            raise Overtaken(str(error)) from error
        if (head.epoch + 1, head.seq) != (commit.epoch, commit.seq):
            raise Overtaken(f"Session {commit.session_id} is at epoch {head.epoch}, seq {head.seq} by now.")
        return head

    def _found_free(self, session_id: str, owner: str) -> StoredHead:
        """The head of a session that this owner may claim."""
        if (reason := self._reason(session_id)) is not None:
            raise SessionQuarantined(f"Session {session_id} is on hold: {reason}.")
        head = self._stored(session_id)
        if head.owner not in (None, owner) and self._alive(head.owner):
            raise Owned(f"Session {session_id} is run by {head.owner}, which is alive.")
        return head

    def _expected(self, commit: Commit) -> StoredHead:
        """The head that this commit builds on."""
        head = self.known.get(commit.session_id)
        if head is None or (head.epoch, head.seq) != (commit.epoch, commit.seq):
            head = self._stored(commit.session_id)
            if (head.epoch, head.seq) != (commit.epoch, commit.seq):
                raise _fenced(commit, head)
        return head

    def _why_not(self, commit: Commit) -> Fenced | SessionQuarantined:
        reason = self._reason(commit.session_id)
        if reason is not None and commit.owner is None:
            return Fenced(f"Session {commit.session_id} was put on hold: {reason}.")
        if reason is not None:
            return SessionQuarantined(f"Session {commit.session_id} is on hold: {reason}.")
        if commit.owner is not None:
            return Overtaken(f"Session {commit.session_id} was claimed by another owner at the same time.")
        return _fenced(commit, self._stored(commit.session_id))

    def _created(self, commit: Commit, new: NewSession) -> StoredHead:
        check_new(commit, new)
        if self._db.one(_EXISTS, (commit.session_id,)):
            raise _created_already(commit)
        parent = b""
        if new.parent_session_id is not None and new.parent_seq is not None:
            parent_number = session_number(new.parent_session_id)
            row = self._db.one(_EVENT_MAC, (parent_number, new.parent_seq, new.parent_session_id))
            if row is None:
                raise NoSuchEvent(session_id=new.parent_session_id, seq=new.parent_seq)
            parent = row[0]
        self._flows.pin(new.flow_digest, new.flow_body)
        if new.form is not None:
            self._update(FORMS, new.form)
        origin = self._sealer.origin(commit.session_id, new.parent_session_id, new.parent_seq, parent)
        return created(commit, new, origin)

    def set_aside(self, session_id: str, reason: str, now: str) -> None:
        """See `Store.quarantine`; inside a transaction."""
        if not self._db.one(_EXISTS, (session_id,)) and not self._db.one(
            _ANY_EVENT, (session_number(session_id),)
        ):
            raise UnknownSession(f"There is no session {session_id}.")
        self._put(QUARANTINE, _QUARANTINE, Quarantine(session_id, reason, now))
        with contextlib.suppress(*self._db.unreadable):  # what is damaged gives nobody a lock
            self._db.run(_LEAVE_QUEUES, (session_id,))
        self.forget(session_id)

    @writes
    def release(self, session_id: str) -> None:
        """Take back a quarantine: its head and its whole journal are verified first, and its snapshot, which may be what
        was damaged, is deleted. `Corrupt` where they do not verify, and nothing is changed; `UnknownSession`."""
        self._whole(self._stored(session_id))
        self._db.run(_DROP_SNAPSHOT, (session_id,))
        self._db.run(_DROP_QUARANTINE, (session_id,))
        self.forget(session_id)

    def _keep(self, heads: dict[str, StoredHead], head: StoredHead) -> None:
        if len(heads) >= _REMEMBERED:
            heads.clear()
        heads[head.session_id] = head

    # -- deleting

    @reads
    def ended(self, before: str, *, limit: int | None = 100) -> list[str]:
        """Sessions that ended before that time, in the order of their starts. One whose head does not verify is left out:
        a date that was changed must not delete a living session."""
        heads = self._by_n(self._db.each(_ENDED, (before,)))
        genuine_ones = (head for head in heads if genuine(self._sealer, head))
        return [head.session_id for head in islice(genuine_ones, limit)]

    @writes
    def delete(self, session_ids: Sequence[str]) -> list[str]:
        """Delete sessions with all their rows, for a few milliseconds; those that are still to be deleted. What was spent
        stays, and consumed inbox rows, whose keys are needed longer. A session that has not ended raises `SessionError`
        unless it is quarantined; one that does not exist is not an error."""
        left = list(session_ids)
        until = time.monotonic() + _SLICE_SECONDS
        while left and time.monotonic() < until:
            if self._delete(left[0]):
                del left[0]
        return left

    def _delete(self, session_id: str) -> bool:
        """Delete a session, or, where its journal is long, the end of that; whether it is gone. In between it is set
        aside, so that nobody takes what is left of its journal for damage."""
        if self._reason(session_id) is None:
            head = self._find(session_id)
            if head is not None and head.ended_at is None:
                raise SessionError(
                    f"Session {session_id} is {standing(head.status, head.phase)}: only ended sessions can be deleted."
                )
            if head is not None and head.seq > _EVENTS_AT_ONCE:
                self.set_aside(session_id, _BEING_DELETED, head.updated_at)
        number = session_number(session_id)
        if self._db.run(_DELETE_EVENTS, (number, _EVENTS_AT_ONCE)) == _EVENTS_AT_ONCE:
            return False
        for statement in _DELETE:
            self._db.run(statement, (session_id,))
        self.forget(session_id)
        return True


def _advance(head: StoredHead, after: StoredHead) -> tuple[str, tuple[SqlValue, ...]]:
    """The statement that moves a head, and its values."""
    then = (after.phase, after.epoch, after.seq, after.owner, after.updated_at, after.chain, after.mac)
    where = (head.session_id, head.epoch, head.seq, head.mac)
    if head.flow_digest != after.flow_digest:
        return _ADVANCE_PIN, (after.flow_digest, after.status, after.ended_at, *then, *where)
    if (head.status, head.ended_at) == (after.status, after.ended_at):
        return _ADVANCE, then + where
    return _ADVANCE_STATUS, (after.status, after.ended_at, *then, *where)


def _there_already(commit: Commit) -> Corrupt:
    return Corrupt(
        f"The journal of {commit.session_id} already has a row {commit.seq + 1}: its head was rolled back."
    )


def _created_already(commit: Commit) -> Fenced:
    return Fenced(f"Session {commit.session_id} exists already: somebody else created it.")


def _fenced(commit: Commit, head: StoredHead) -> Fenced:
    return Fenced(
        f"Session {commit.session_id} is at epoch {head.epoch}, seq {head.seq}; "
        f"this commit believed in epoch {commit.epoch}, seq {commit.seq}. Another owner has it: stop."
    )
