"""Records of the store: the content of commits, and rows that are read back. One class for each change and each row."""

from __future__ import annotations

from typing import Any, Literal, Self, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from engine.language.errors import SaysoError


class Record(Struct, frozen=True):
    """A value that never changes."""

    def but(self, **changes: Any) -> Self:
        """The same with other values in these fields."""
        return replace(self, **changes)


class InboxItem(Record, frozen=True):
    """Input from outside. `key` is unique forever: a second item with it is a no-op."""

    key: str
    kind: str
    payload: bytes
    session_id: str | None = None
    thread_key: str | None = None


class InboxRow(Record, frozen=True):
    """An inbox item as stored. `outcome` is None until it is consumed, then a word (`applied`, `refused`, ...)."""

    id: int
    key: str
    kind: str
    payload: bytes
    session_id: str | None
    thread_key: str | None
    received_at: str
    outcome: str | None
    result: bytes | None


DEAD, DROPPED = "dead", "dropped"
"""Outcomes of a dead letter, which is a row that its handler failed at each time, and of one that a person dropped."""


class Consumed(Record, frozen=True):
    """Marks an inbox row as done, with its `result` (JSON bytes for the requester).

    A row is consumed once: a second attempt gets `Fenced`, and its whole commit is dropped.
    """

    inbox_id: int
    outcome: str
    result: bytes | None = None


class PromptRow(Record, frozen=True):
    """A prompt; in a commit it takes the place of the one with its id. `body` is the whole prompt as JSON, `prompt_state`'s."""

    prompt_id: str
    session_id: str
    thread_key: str | None
    status: str
    deadline: str | None
    body: bytes


class Timer(Record, frozen=True):
    """A timer that is set; in a commit it takes the place of the one with its id."""

    timer_id: str
    session_id: str
    due_at: str


class DropTimer(Record, frozen=True):
    """Removes a timer; no error when it is not there."""

    timer_id: str
    session_id: str


class PutOutbox(Record, frozen=True):
    """An intent to show something. A second one with the same key is a no-op, or, with `replace`, takes the
    place of its payload, counts `rev` up and makes the row pending again (a card that is edited in place). Its
    result and the count of its attempts stay.
    `lane` orders: rows of one lane are sent one after the other. With `uncertain` it may have been sent, and its record was
    lost: it is looked for first."""

    key: str
    lane: str
    kind: str
    payload: bytes
    session_id: str | None = None
    not_before: str | None = None
    replace: bool = False
    uncertain: bool = False


class PutLock(Record, frozen=True):
    """Takes a place at the end of the queue for a lock; no error for a session that has one. With `first` it is the
    place of a holder whose row was lost: `LockHeld` if another one has taken the lock since."""

    name: str
    session_id: str
    first: bool = False


class TakeLock(Record, frozen=True):
    """Takes the lock. A session that is not first in its queue gets `LockHeld`, and its whole commit is dropped."""

    name: str
    session_id: str


class DropLock(Record, frozen=True):
    """Gives the lock, or a place in its queue, back; no error when it is not there."""

    name: str
    session_id: str


NOTICE = "suspended:"
"""Prefix of the keys of intents that are sent even if the store is suspended."""

NANO = 1_000_000_000
"""Costs are stored as whole billionths of a dollar."""


class PutSpend(Record, frozen=True):
    """Reserves the maximum cost of a model call (`amount`, billionths of a dollar) on a day (`2026-11-22`, UTC).

    If the day's total would exceed `cap`, it is refused (`DayBudgetSpent`), and the whole commit is dropped. A second
    one for the same attempt of the same call is a no-op.
    """

    session_id: str
    path: str
    attempt: int
    flow_name: str
    day: str
    amount: int
    cap: int | None = None


class SettleSpend(Record, frozen=True):
    """Replaces a reservation with the call's actual cost; if that is not `sure`, the larger of the two counts. No error
    without a reservation."""

    session_id: str
    path: str
    attempt: int
    amount: int
    sure: bool = True


class KeptRow(Record, frozen=True):
    """A row that outlives its session and is read by others: a note of an agent (`kind` note), a grant. `scope` is
    where it applies. In a commit `rev` 1 stores it, which is a no-op if it is stored; a higher one replaces the
    previous one, and is `KeptMoved` if another one is stored."""

    kept_id: str
    kind: str
    scope: str
    rev: int
    expires_at: str
    body: bytes


Row: TypeAlias = (
    PromptRow
    | Timer
    | DropTimer
    | PutOutbox
    | PutLock
    | TakeLock
    | DropLock
    | PutSpend
    | SettleSpend
    | KeptRow
)


class FlowForm(Record, frozen=True):
    """Form of a pinned text that a release has read, so that it need not read it again; see `engine.flow.form`."""

    digest: str
    release: str
    form: bytes


class NewSession(Record, frozen=True):
    """Additional content of the commit that creates a session. The flow's text is stored once per digest.

    `flow_digest` is the SHA-256 of `flow_body` in hex. With `parent_seq` the session is a fork: its chain of MACs
    begins at the parent's journal row of that seq, which must exist.
    """

    flow_name: str
    flow_digest: str
    flow_body: bytes
    thread_key: str | None = None
    parent_session_id: str | None = None
    parent_seq: int | None = None
    form: FlowForm | None = None


class Pin(Record, frozen=True):
    """Another text of its flow, with which a session continues. The digest is the SHA-256 of the body in hex."""

    flow_digest: str
    flow_body: bytes


class Commit(Record, frozen=True):
    """One step of one session. `events` become `seq + 1`, `seq + 2`, ...; `status` and `phase` are those after them.

    With `new` the session is created: `epoch` must be 1 and `seq` 0, and `owner` becomes its owner; `Lost` if that id
    exists. Without `new`, `owner` claims the session: `epoch` is one more than the session's. The session must have no
    owner, a dead owner, or this one. `release` gives the session up in the same transaction. With `pin` the session's
    flow is that one from here on. `snapshot` replaces the previous one; an empty one deletes it.
    """

    session_id: str
    epoch: int
    seq: int
    now: str
    status: str
    phase: str
    events: tuple[bytes, ...] = ()
    consumed: tuple[Consumed, ...] = ()
    rows: tuple[Row, ...] = ()
    snapshot: bytes | None = None
    release: bool = False
    new: NewSession | None = None
    owner: str | None = None
    pin: Pin | None = None


class Stored(Record, frozen=True):
    """A commit is durable."""


class Conflict(Record, frozen=True):
    """Another session or process was first since the step was decided. Nothing was stored: reload and decide again."""

    reason: SaysoError


class Lost(Record, frozen=True):
    """Another owner has the session, it is quarantined, or a row was consumed before. Nothing was stored: stop."""

    reason: SaysoError


CommitResult: TypeAlias = Stored | Conflict | Lost


def check_stored(result: CommitResult) -> None:
    """Raise why a commit was not stored."""
    if not isinstance(result, Stored):
        raise result.reason


class HeadRow(Record, frozen=True):
    """Position of a session. `owner` is None if no process holds it."""

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


class Head(HeadRow, frozen=True):
    """Position of a session as its readers see it; `quarantined` is the reason, or None."""

    quarantined: str | None


class Loaded(Record, frozen=True):
    """A session as loaded: `snapshot` (or None) is the state at `snapshot_seq`; `events` are those after it."""

    head: Head
    snapshot: bytes | None
    snapshot_seq: int
    events: tuple[bytes, ...]


class LockRow(Record, frozen=True):
    """A place in the queue for a lock. The first one has it; `taken_at` is None until it took it."""

    name: str
    session_id: str
    requested_at: str
    taken_at: str | None
    verified: bool = True
    """True if the row is intact. A damaged row keeps its place: damaging a row gains nobody the lock."""


class Derived(Record, frozen=True):
    """Stored rows of one session beside its journal. Prompts are the open ones, with their stored bodies."""

    timers: list[Timer]
    locks: list[LockRow]
    prompts: list[PromptRow]


class SpendRow(Record, frozen=True):
    """A model call, in billionths of a dollar. `cost` is None if unknown: then the reservation counts."""

    session_id: str
    path: str
    attempt: int
    flow_name: str
    day: str
    reserved: int
    cost: int | None

    @property
    def amount(self) -> int:
        """Amount that counts."""
        return self.reserved if self.cost is None else self.cost


class LeafRow(Record, frozen=True):
    """A leaf of the audit log (`engine.journal.evidence`). The last one of a round has the checkpoint, a signed note, and the
    peaks of the tree. `session_id` is empty where it names a key."""

    session_id: str
    seq: int
    line: str
    note: str | None
    peaks: bytes | None


class Mark(Record, frozen=True):
    """Position of a catch-up read."""

    scope: str
    ts: str


class Snapshot(Record, frozen=True):
    """The state at `seq`; `chain` is the journal MAC there, so that a reader verifies only later rows."""

    session_id: str
    seq: int
    chain: bytes
    body: bytes


class Quarantine(Record, frozen=True):
    """Reason why a session is quarantined. Apart from the head: suspect data stays as it was found."""

    session_id: str
    reason: str
    at: str


class DataKey(Record, frozen=True):
    """The key that encrypts the bodies of a session, or of rows of a kind (`scope`), `wrapped` by the key with this id.
    Both are empty if it was erased."""

    scope: str
    key_id: str
    wrapped: bytes


class OutboxRow(Record, frozen=True):
    """An intent as stored. `attempts` > 0 without a `result` means: it may have been sent; look before sending again."""

    id: int
    key: str
    lane: str
    kind: str
    payload: bytes
    session_id: str | None
    state: Literal["pending", "sent", "failed"]
    rev: int
    attempts: int
    not_before: str | None
    created_at: str
    attempted_at: str | None
    result: bytes | None


class Sweep(Record, frozen=True):
    """Position of a sweep: its table, and the last row."""

    ended_before: str
    inbox_before: str
    stage: int = 0
    after: int | str = 0


class Counts(Struct, frozen=True, kw_only=True):
    """Numbers of open items in a store. Times are those of the oldest; None if there is none."""

    sessions: dict[str, int]
    """Number by status: `running` and `paused`."""
    prompts: dict[str, int]
    """Open questions, by flow."""
    inbox: int
    oldest_inbox: str | None
    dead: int
    """Dead letters."""
    outbox: int
    oldest_outbox: str | None
    quarantined: int
