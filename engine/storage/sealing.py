"""Stored rows as values, and what the port's commands make of them: the part that all backends share. Pure.

Each record's last field is its MAC. A backend reads a record, verifies it, asks the function here for what it
becomes, seals that, and writes it; so the backends cannot drift apart in meaning.
"""

from __future__ import annotations

import hashlib
from decimal import Decimal
from typing import Literal, NamedTuple, TypeVar

from engine.journal.events import SCHEMA_VERSION
from engine.journal.records import (
    DROPPED,
    NANO,
    Commit,
    Consumed,
    Head,
    InboxItem,
    InboxRow,
    LockRow,
    NewSession,
    OutboxRow,
    PromptRow,
    PutLock,
    PutOutbox,
    PutPrompt,
    PutSpend,
    PutTimer,
    SettleSpend,
    SpendRow,
    TimerRow,
)
from engine.journal.transitions import ENDED
from engine.language.errors import Corrupt, DayBudgetSpent, LockHeld, SchemaTooNew, StorageError
from engine.storage.macs import Sealer

UNVERIFIED = "its head does not verify: it was changed outside this program"
"""What lists say of a session that nobody has set aside yet, but should."""
BEING_DELETED = "it is being deleted"
"""Why a session is set aside while its long journal is deleted in pieces."""
OutboxState = Literal["pending", "sent", "failed"]


class SessionRecord(NamedTuple):
    """A session's head. `origin` is where its chain begins, `chain` the MAC of its last journal row."""

    session_id: str
    flow_name: str
    flow_digest: str
    parent_session_id: str | None
    thread_key: str | None
    status: str
    phase: str
    epoch: int
    seq: int
    owner: str | None
    created_at: str
    updated_at: str
    ended_at: str | None
    origin: bytes
    chain: bytes
    mac: bytes = b""

    def head(self, quarantined: str | None) -> Head:
        """What the port shows; a session that was set aside is owned by nobody."""
        owner = None if quarantined else self.owner
        return Head(*self[:9], owner, *self[10:13], quarantined)


class JournalRecord(NamedTuple):
    """One event. Its MAC covers the one before it (see `Sealer.link`)."""

    session_id: str
    seq: int
    version: int
    body: bytes
    mac: bytes = b""


class SnapshotRecord(NamedTuple):
    """The state at `seq`; `chain` is the journal MAC there, so that a reader verifies only what follows."""

    session_id: str
    seq: int
    chain: bytes
    body: bytes
    mac: bytes = b""


class QuarantineRecord(NamedTuple):
    """Why a session was set aside. Beside the head and not in it: what is suspect stays as it was found."""

    session_id: str
    reason: str
    at: str
    mac: bytes = b""


class InboxRecord(NamedTuple):
    """`InboxRow` with its MAC."""

    id: int
    key: str
    kind: str
    payload: bytes
    session_id: str | None
    thread_key: str | None
    received_at: str
    outcome: str | None
    result: bytes | None
    mac: bytes = b""

    def row(self) -> InboxRow:
        return InboxRow(*self[:-1])


class PromptRecord(NamedTuple):
    """`PromptRow` with its MAC."""

    prompt_id: str
    session_id: str
    thread_key: str | None
    status: str
    deadline: str | None
    body: bytes
    mac: bytes = b""

    def row(self) -> PromptRow:
        return PromptRow(*self[:-1])


class TimerRecord(NamedTuple):
    """`TimerRow` with its MAC."""

    timer_id: str
    session_id: str
    due_at: str
    mac: bytes = b""

    def row(self) -> TimerRow:
        return TimerRow(*self[:-1])


class OutboxRecord(NamedTuple):
    """`OutboxRow` with its MAC."""

    id: int
    key: str
    lane: str
    kind: str
    payload: bytes
    session_id: str | None
    state: OutboxState
    rev: int
    attempts: int
    not_before: str | None
    created_at: str
    attempted_at: str | None
    result: bytes | None
    mac: bytes = b""

    def row(self) -> OutboxRow:
        return OutboxRow(*self[:-1])


class LockRecord(NamedTuple):
    """`LockRow` with its number, which is its place, and its MAC."""

    n: int
    name: str
    session_id: str
    requested_at: str
    taken_at: str | None
    mac: bytes = b""

    def row(self, *, verified: bool = True) -> LockRow:
        return LockRow(*self[1:-1], verified)


class SpendRecord(NamedTuple):
    """`SpendRow` with its number and its MAC."""

    n: int
    session_id: str
    path: str
    attempt: int
    flow_name: str
    day: str
    reserved: int
    cost: int | None
    mac: bytes = b""

    def row(self) -> SpendRow:
        return SpendRow(*self[1:-1])


class MarkRecord(NamedTuple):
    """How far a catch-up read has come."""

    scope: str
    ts: str
    mac: bytes = b""


Sealed = TypeVar(
    "Sealed",
    SessionRecord,
    SnapshotRecord,
    QuarantineRecord,
    InboxRecord,
    PromptRecord,
    TimerRecord,
    OutboxRecord,
    LockRecord,
    SpendRecord,
    MarkRecord,
)
_DOMAINS: dict[type, bytes] = {
    SessionRecord: b"session",
    SnapshotRecord: b"snapshot",
    QuarantineRecord: b"quarantine",
    InboxRecord: b"inbox",
    PromptRecord: b"prompt",
    TimerRecord: b"timer",
    OutboxRecord: b"outbox",
    LockRecord: b"lock",
    SpendRecord: b"spend",
    MarkRecord: b"mark",
}


def sealed(sealer: Sealer, record: Sealed) -> Sealed:
    """The record with its MAC."""
    return record._replace(mac=sealer.seal(_DOMAINS[type(record)], record))


def genuine(sealer: Sealer, record: Sealed) -> bool:
    """Whether the record carries its MAC."""
    return sealer.genuine(_DOMAINS[type(record)], record)


# --- sessions --------------------------------------------------------------------------------------------


def check_new(commit: Commit, new: NewSession) -> None:
    """Refuse a creation that could not be read back. Raises `StorageError`."""
    if (commit.epoch, commit.seq) != (1, 0):
        raise StorageError(
            f"Session {commit.session_id} is created with epoch {commit.epoch} and seq {commit.seq}; "
            "a creation has epoch 1 and seq 0."
        )
    if digest_of(new.flow_body) != new.flow_digest:
        raise StorageError(
            f"The digest of flow {new.flow_name!r} is not the SHA-256 (hex) of its body; "
            "compute it over the bytes that are stored."
        )
    if commit.pin is not None:
        raise StorageError(f"Session {commit.session_id} is created with one flow and pinned to another.")
    if new.parent_seq is not None and new.parent_session_id is None:
        raise StorageError(f"Session {commit.session_id} has a parent seq and no parent.")


def check_pin(commit: Commit) -> None:
    """Refuse a flow that could not be read back. Raises `StorageError`."""
    if commit.pin is not None and digest_of(commit.pin.flow_body) != commit.pin.flow_digest:
        raise StorageError(
            f"The digest of the flow for {commit.session_id} is not the SHA-256 (hex) of its body; "
            "compute it over the bytes that are stored."
        )


def digest_of(body: bytes) -> str:
    """A pinned flow's digest."""
    return hashlib.sha256(body).hexdigest()


def created(commit: Commit, new: NewSession, origin: bytes) -> SessionRecord:
    """The head before the first event."""
    return SessionRecord(
        session_id=commit.session_id,
        flow_name=new.flow_name,
        flow_digest=new.flow_digest,
        parent_session_id=new.parent_session_id,
        thread_key=new.thread_key,
        status=commit.status,
        phase=commit.phase,
        epoch=1,
        seq=0,
        owner=commit.owner,
        created_at=commit.now,
        updated_at=commit.now,
        ended_at=None,
        origin=origin,
        chain=origin,
    )


def linked(sealer: Sealer, commit: Commit, chain: bytes) -> list[JournalRecord]:
    """The journal rows of a commit, chained on to `chain`."""
    records = []
    for seq, body in enumerate(commit.events, commit.seq + 1):
        chain = sealer.link(commit.session_id, seq, chain, SCHEMA_VERSION, body)
        records.append(JournalRecord(commit.session_id, seq, SCHEMA_VERSION, body, chain))
    return records


def advanced(sealer: Sealer, head: SessionRecord, commit: Commit, chain: bytes) -> SessionRecord:
    """The head after a commit whose last journal MAC is `chain`, sealed."""
    ended = commit.status in ENDED
    after = head._replace(
        status=commit.status,
        phase=commit.phase,
        seq=head.seq + len(commit.events),
        owner=None if commit.release else head.owner,
        flow_digest=head.flow_digest if commit.pin is None else commit.pin.flow_digest,
        updated_at=commit.now,
        ended_at=(head.ended_at or commit.now) if ended else None,
        chain=chain,
    )
    return sealed(sealer, after)


def claimed(sealer: Sealer, head: SessionRecord, owner: str, now: str) -> SessionRecord:
    """The head after a claim, sealed."""
    return sealed(sealer, head._replace(epoch=head.epoch + 1, owner=owner, updated_at=now))


def verify_chain(
    sealer: Sealer, head: SessionRecord, records: list[JournalRecord], *, seq: int, chain: bytes
) -> None:
    """Verify the journal rows after `seq`, where the chain stood at `chain`, up to the head. Raises `Corrupt`, and
    `SchemaTooNew` where all of them verify and some are a newer release's."""
    for record in records:
        seq += 1
        if record.seq != seq or record.session_id != head.session_id:
            raise Corrupt(
                f"The journal of {head.session_id} has no row {seq} where one should be (found {record.seq})."
            )
        if type(record.version) is not int or type(record.body) is not bytes:
            raise Corrupt(f"Row {seq} in the journal of {head.session_id} is unreadable.")
        chain = sealer.link(head.session_id, seq, chain, record.version, record.body)
        if chain != record.mac:
            raise Corrupt(f"Row {seq} in the journal of {head.session_id} was changed outside this program.")
    if seq != head.seq or chain != head.chain:
        raise Corrupt(
            f"The journal of {head.session_id} ends at {seq} and its head says {head.seq}: "
            "one of them was cut or rolled back."
        )
    newest = max((record.version for record in records), default=0)
    if newest > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"Session {head.session_id} has events of schema {newest}, and this release reads up to {SCHEMA_VERSION}."
        )


# --- inbox, prompts, timers, outbox, marks ---------------------------------------------------------------


def received(row_id: int, item: InboxItem, now: str) -> InboxRecord:
    """A new inbox row."""
    return InboxRecord(
        row_id, item.key, item.kind, item.payload, item.session_id, item.thread_key, now, None, None
    )


def decided_letter(row: InboxRecord, row_id: int | None) -> InboxRecord:
    """A dead letter after a person's word: opened anew under this id, or dropped."""
    if row_id is None:
        return row._replace(outcome=DROPPED)
    return row._replace(id=row_id, outcome=None, result=None)


def consumed_row(row: InboxRecord, done: Consumed) -> InboxRecord:
    """An inbox row after somebody took it."""
    return row._replace(outcome=done.outcome, result=done.result)


def prompt_record(put: PutPrompt) -> PromptRecord:
    """A prompt row."""
    return PromptRecord(put.prompt_id, put.session_id, put.thread_key, put.status, put.deadline, put.body)


def timer_record(put: PutTimer) -> TimerRecord:
    """A timer row."""
    return TimerRecord(put.timer_id, put.session_id, put.due_at)


def lock_record(n: int, put: PutLock, now: str) -> LockRecord:
    """A place at the end of a queue."""
    return LockRecord(n, put.name, put.session_id, now, None)


def lost_place(first: LockRecord | None, lowest: int, put: PutLock, now: str) -> LockRecord:
    """The place of a holder whose row was lost, ahead of the `first` one and of the `lowest` number. Raises `LockHeld`."""
    if first is not None and first.taken_at is not None:
        raise LockHeld(f"Lock {put.name} was lost by {put.session_id}, and {first.session_id} has taken it.")
    return LockRecord(lowest - 1, put.name, put.session_id, now, None)


def taken(record: LockRecord, *, first: bool, ahead: str, now: str) -> LockRecord:
    """The place of whoever takes the lock. Raises `LockHeld` for one who is not first; `ahead` is."""
    if not first:
        raise LockHeld(f"Lock {record.name} is held by session {ahead}; {record.session_id} cannot take it.")
    return record._replace(taken_at=record.taken_at or now)


def spend_record(n: int, put: PutSpend, spent: int) -> SpendRecord:
    """A model call that begins on a day on which so much was spent. Raises `DayBudgetSpent`."""
    if put.cap is not None and spent + put.amount > put.cap:
        left = max(0, put.cap - spent)
        raise DayBudgetSpent(put.day, Decimal(left) / NANO, Decimal(put.amount) / NANO)
    return SpendRecord(n, put.session_id, put.path, put.attempt, put.flow_name, put.day, put.amount, None)


def settled(record: SpendRecord, settle: SettleSpend) -> SpendRecord:
    """A model call of which it is known what it came to, or at least came to."""
    cost = settle.amount if settle.sure else max(settle.amount, record.reserved)
    return record._replace(cost=cost)


def outbox_record(row_id: int, put: PutOutbox, now: str) -> OutboxRecord:
    """A new intent."""
    return OutboxRecord(
        row_id, put.key, put.lane, put.kind, put.payload, put.session_id, "pending", 1, int(put.uncertain),
        put.not_before, now, None, None,
    )  # fmt: skip


def replaced(row: OutboxRecord, put: PutOutbox) -> OutboxRecord:
    """An intent whose payload was replaced: pending again, one revision on.

    Its result (the message to edit) and the count of attempts stay: one may be out whose result is unknown, and then
    whoever sends must still look before sending again.
    """
    return row._replace(
        lane=put.lane,
        kind=put.kind,
        payload=put.payload,
        session_id=put.session_id,
        state="pending",
        rev=row.rev + 1,
        not_before=put.not_before,
    )


def finished(
    row: OutboxRecord, rev: int, state: OutboxState, result: bytes | None, not_before: str | None
) -> OutboxRecord:
    """An intent after an attempt on its revision `rev`. A result that was there stays when none is given."""
    kept = row.result if result is None else result
    if row.rev != rev:
        return row._replace(result=kept)
    return row._replace(state=state, result=kept, not_before=not_before)


def is_later(ts: str, than: str) -> bool:
    """Whether a Slack ts comes after another one."""
    return _ts_order(ts) > _ts_order(than)


def _ts_order(ts: str) -> tuple[int, str, str]:
    whole, _, fraction = ts.partition(".")
    whole = whole.lstrip("0")
    return len(whole), whole, fraction
