"""Sessions in memory: the counterpart of `sqlite_sessions`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from engine.journal.records import Commit, Head, Loaded, NewSession
from engine.language.errors import (
    Corrupt,
    Fenced,
    SessionError,
    SessionQuarantined,
    StorageError,
    UnknownSession,
)
from engine.storage.macs import Sealer
from engine.storage.memory_tables import Tables
from engine.storage.sealing import (
    UNVERIFIED,
    JournalRecord,
    QuarantineRecord,
    SessionRecord,
    SnapshotRecord,
    advanced,
    check_new,
    check_pin,
    claimed,
    created,
    digest_of,
    genuine,
    linked,
    sealed,
    verify_chain,
)


class MemorySessions:
    """What concerns sessions."""

    def __init__(self, tables: Tables, sealer: Sealer) -> None:
        self._tables = tables
        self._sealer = sealer

    def find(self, session_id: str) -> SessionRecord | None:
        """The head, verified; None when there is no such session."""
        record = self._tables.sessions.get(session_id)
        if record is None:
            return None
        if record.session_id != session_id or not genuine(self._sealer, record):
            raise Corrupt(f"The head of {session_id} was changed outside this program.")
        return record

    def get(self, session_id: str) -> SessionRecord:
        """The head, verified. Raises `UnknownSession`, `Corrupt`."""
        record = self.find(session_id)
        if record is not None:
            return record
        if self._has_events(session_id):
            raise Corrupt(f"Session {session_id} has a journal but no head: its head was removed.")
        raise UnknownSession(f"There is no session {session_id}.")

    def _has_events(self, session_id: str) -> bool:
        return any(key[0] == session_id for key in self._tables.journal)

    def reason(self, session_id: str) -> str | None:
        """Why the session is set aside, or None."""
        record = self._tables.quarantine.get(session_id)
        if record is None:
            return None
        return record.reason if genuine(self._sealer, record) else "its quarantine note does not verify"

    def head(self, session_id: str) -> Head | None:
        """What `Store.head` says."""
        reason = self.reason(session_id)
        record = self.find(session_id) if reason is None else self._tables.sessions.get(session_id)
        return record.head(reason) if record else None

    def heads(self, statuses: Sequence[str], thread_key: str | None, limit: int) -> list[Head]:
        """What `Store.heads` says."""
        found: list[Head] = []
        for record in reversed(self._tables.sessions.values()):
            wanted = (not statuses or record.status in statuses) and thread_key in (None, record.thread_key)
            if wanted and len(found) < limit:
                verifies = genuine(self._sealer, record)
                reason = self.reason(record.session_id) or (None if verifies else UNVERIFIED)
                found.append(record.head(reason))
        return found

    def orphans(self, alive: Callable[[str], bool], limit: int) -> list[str]:
        """What `Store.orphans` says."""
        found = [
            record.session_id
            for record in self._tables.sessions.values()
            if record.status == "running"
            and self.reason(record.session_id) is None
            and (record.owner is None or not alive(record.owner))
        ]
        return found[:limit]

    def load(self, session_id: str) -> Loaded:
        """What `Store.load` says."""
        record = self.get(session_id)
        head = record.head(self.reason(session_id))
        snapshot = self._tables.snapshots.get(session_id)
        if snapshot and self._fits(snapshot, record):
            tail = self._events(session_id, snapshot.seq)
            try:
                verify_chain(self._sealer, record, tail, seq=snapshot.seq, chain=snapshot.chain)
                return Loaded(head, snapshot.body, snapshot.seq, tuple(event.body for event in tail))
            except Corrupt:
                pass
        return Loaded(head, None, 0, tuple(event.body for event in self._whole(record)))

    def _fits(self, snapshot: SnapshotRecord, head: SessionRecord) -> bool:
        ours = snapshot.session_id == head.session_id
        return ours and genuine(self._sealer, snapshot) and snapshot.seq <= head.seq

    def journal(self, session_id: str, after: int) -> Iterator[bytes]:
        """What `Store.journal` says."""
        events = self._whole(self.get(session_id))
        return iter([event.body for event in events if event.seq > after])

    def _whole(self, record: SessionRecord) -> list[JournalRecord]:
        events = self._events(record.session_id, 0)
        verify_chain(self._sealer, record, events, seq=0, chain=record.origin)
        return events

    def _events(self, session_id: str, after: int) -> list[JournalRecord]:
        found = []
        while (event := self._tables.journal.get((session_id, after + 1))) is not None:
            found.append(event)
            after += 1
        return found

    def flow(self, digest: str) -> bytes:
        """What `Store.flow` says."""
        body = self._tables.flows.get(digest)
        if body is None:
            raise StorageError(f"No flow with digest {digest} is stored.")
        if digest_of(body) != digest:
            raise Corrupt(f"The stored flow {digest} was changed outside this program.")
        return body

    def claim(self, session_id: str, owner: str, now: str, check: Callable[[SessionRecord], None]) -> int:
        """Raise the epoch for `owner`; `check` refuses the head of somebody else. The new epoch."""
        reason = self.reason(session_id)
        if reason is not None:
            raise SessionQuarantined(f"Session {session_id} is set aside: {reason}.")
        head = self.get(session_id)
        check(head)
        after = claimed(self._sealer, head, owner, now)
        self._tables.put(self._tables.sessions, session_id, after)
        return after.epoch

    def apply(self, commit: Commit) -> None:
        """Move the head, append the events, keep the snapshot. Raises `Fenced`, `UnknownSession`, `Corrupt`."""
        tables = self._tables
        head = self._expected(commit) if commit.new is None else self._created(commit, commit.new)
        check_pin(commit)
        events = linked(self._sealer, commit, head.chain)
        chain = events[-1].mac if events else head.chain
        after = advanced(self._sealer, head, commit, chain)
        tables.put(tables.sessions, commit.session_id, after)
        if commit.pin is not None and commit.pin.flow_digest not in tables.flows:
            tables.put(tables.flows, commit.pin.flow_digest, commit.pin.flow_body)
        for event in events:
            if (event.session_id, event.seq) in tables.journal:
                raise Corrupt(
                    f"The journal of {event.session_id} already has a row {event.seq}: its head was rolled back."
                )
            tables.put(tables.journal, (event.session_id, event.seq), event)
        if commit.snapshot is not None:
            snapshot = SnapshotRecord(commit.session_id, after.seq, chain, commit.snapshot)
            tables.put(tables.snapshots, commit.session_id, sealed(self._sealer, snapshot))

    def _expected(self, commit: Commit) -> SessionRecord:
        head = self.get(commit.session_id)
        if (head.epoch, head.seq) != (commit.epoch, commit.seq):
            raise Fenced(
                f"Session {commit.session_id} is at epoch {head.epoch}, seq {head.seq}; "
                f"this commit believed in epoch {commit.epoch}, seq {commit.seq}. Another owner has it: stop."
            )
        reason = self.reason(commit.session_id)
        if reason is not None:
            raise Fenced(f"Session {commit.session_id} was set aside: {reason}.")
        return head

    def _created(self, commit: Commit, new: NewSession) -> SessionRecord:
        check_new(commit, new)
        tables = self._tables
        if commit.session_id in tables.sessions:
            raise Fenced(f"Session {commit.session_id} exists already: somebody else created it.")
        parent = b""
        if new.parent_session_id is not None and new.parent_seq is not None:
            event = tables.journal.get((new.parent_session_id, new.parent_seq))
            if event is None:
                raise StorageError(
                    f"Session {new.parent_session_id} has no event {new.parent_seq} to fork at."
                )
            parent = event.mac
        if new.flow_digest not in tables.flows:
            tables.put(tables.flows, new.flow_digest, new.flow_body)
        origin = self._sealer.origin(commit.session_id, new.parent_session_id, new.parent_seq, parent)
        return created(commit, new, origin)

    def quarantine(self, session_id: str, reason: str, now: str) -> None:
        """What `Store.quarantine` says, without the rows."""
        tables = self._tables
        if session_id not in tables.sessions and not self._has_events(session_id):
            raise UnknownSession(f"There is no session {session_id}.")
        if session_id not in tables.quarantine:
            record = sealed(self._sealer, QuarantineRecord(session_id, reason, now))
            tables.put(tables.quarantine, session_id, record)
            places = [n for n, row in tables.locks.items() if row.session_id == session_id]
            for n in places:
                if tables.locks[n].taken_at is None:
                    tables.drop(tables.locks, n)

    def release(self, session_id: str) -> None:
        """What `Store.release` says."""
        self.journal(session_id, 0)
        self._tables.drop(self._tables.snapshots, session_id)
        self._tables.drop(self._tables.quarantine, session_id)

    def ended(self, before: str, limit: int) -> list[str]:
        """What `Store.ended` says."""
        heads = [record for record in self._tables.sessions.values() if (record.ended_at or before) < before]
        heads.sort(key=lambda record: str(record.ended_at))
        return [record.session_id for record in heads if genuine(self._sealer, record)][:limit]

    def delete(self, session_id: str) -> None:
        """Delete a session with all its rows."""
        if self.reason(session_id) is None:
            head = self.find(session_id)
            if head is not None and head.ended_at is None:
                raise SessionError(
                    f"Session {session_id} is {head.status}: only what has ended can be deleted."
                )
        for table, key in self._tables.of_session(session_id):
            self._tables.drop(table, key)

    def drop_flows(self) -> None:
        """Delete the texts that nobody pins."""
        used = {record.flow_digest for record in self._tables.sessions.values()}
        for digest in [digest for digest in self._tables.flows if digest not in used]:
            self._tables.drop(self._tables.flows, digest)
