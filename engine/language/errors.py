"""All errors of the engine, in one tree. An error names the fault, its place and the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from decimal import Decimal


class SaysoError(Exception):
    """Root of all errors of this project; `str(error)` is written for people."""

    code = "error"


# --- flows ---------------------------------------------------------------------------------------------


class Problem(NamedTuple):
    """One fault in a flow file, with its place and the remedy."""

    file: str
    line: int
    column: int
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}:{self.column}: {self.message}"
        return f"{text}\n  hint: {self.hint}" if self.hint else text


class FlowError(SaysoError):
    """A flow file cannot be used; `problems` lists everything found in it, in file order."""

    code = "flow_invalid"

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class UnknownFlow(SaysoError):
    """No flow of that name is being served."""

    code = "flow_unknown"


class InvalidInputs(SaysoError):
    """An input of a start is unknown, missing or of the wrong type."""

    code = "inputs_invalid"


class ExpressionError(SaysoError):
    """A `{{ }}` expression could not be evaluated."""

    code = "expression"


class NotJson(SaysoError):
    """A value is not plain JSON (a date, NaN, an object, text that is not Unicode)."""

    code = "not_json"


class Inexact(NotJson):
    """An integer in JSON has more than 64 bits: it would become another number."""

    code = "inexact"


# --- sessions ------------------------------------------------------------------------------------------


class SessionError(SaysoError):
    """A command for a session failed; nothing was changed."""

    code = "session"


class UnknownSession(SessionError):
    """There is no session with that id."""

    code = "session_unknown"


class SessionEnded(SessionError):
    """The session has completed, failed or was aborted: it takes no more commands."""

    code = "session_ended"


class AgentOver(SessionError):
    """The agent that a message is addressed to takes none any more."""

    code = "agent_over"


class SessionRunning(SessionError):
    """The session runs already; a second resume is a no-op that says so."""

    code = "session_running"


class SessionQuarantined(SessionError):
    """The journal of this session does not verify. It is kept untouched, and the session does not run."""

    code = "session_quarantined"


class EmptyMessage(SessionError):
    """The message to resume with is empty."""

    code = "message_empty"


class Erased(SessionError):
    """The content of this session was erased: its data key is gone for good. Its existence and its chain remain."""

    code = "session_erased"


class SnapshotRefused(SessionError):
    """A snapshot file cannot be resumed: it does not verify, is malformed, or the journal here is further."""

    code = "snapshot_refused"


class MalformedJournal(SaysoError):
    """An event does not follow from the events before it."""

    code = "journal_malformed"


# --- agents --------------------------------------------------------------------------------------------


class ToolRefused(SaysoError):
    """A tool call of a model is invalid. The text is written for the model: the fault and the allowed values."""

    code = "tool_refused"


# --- refusals: a person's answer that changes nothing ---------------------------------------------------


class Refused(SaysoError):
    """A person's action is refused; nothing changed, and only that person is told why."""

    code = "refused"


class NotAllowed(Refused):
    """This person may not do this."""

    code = "not_allowed"


class AlreadyAnswered(Refused):
    """Somebody else answered first; the message says who and when."""

    code = "already_answered"


class PromptClosed(Refused):
    """The prompt has expired, was cancelled, or the button belongs to an older copy of it."""

    code = "prompt_closed"


class PromptTimedOut(PromptClosed):
    """The deadline of the prompt has passed; says when."""

    code = "prompt_timed_out"


class InvalidAnswer(Refused):
    """The answer does not fit the prompt; the prompt stays open."""

    code = "answer_invalid"


class SeveralPrompts(Refused):
    """Several prompts could take this message; names them."""

    code = "several_prompts"


class ClockJumped(SaysoError):
    """Only a clock that was just put forward says that the time is over: wait until the clock is confirmed."""

    code = "clock_jumped"


# --- storage -------------------------------------------------------------------------------------------


class StorageError(SaysoError):
    """The store failed to carry out a request; everything durable before still is."""

    code = "storage"


class Fenced(StorageError):
    """Another owner has claimed this session: stop at once and post nothing."""

    code = "fenced"


class KeptMoved(StorageError):
    """A kept row was changed since it was read. Nothing was stored; read it again."""

    code = "kept_moved"


class Overtaken(Fenced):
    """A session has moved on since the claim: another process was first. Nothing was stored; read it again."""

    code = "overtaken"


class LockHeld(StorageError):
    """Another session is ahead in the queue for that lock; nothing of the commit was stored."""

    code = "lock_held"


class DayBudgetSpent(StorageError):
    """The model call could pass the cap of its day; nothing of the commit was stored. `left` is the remaining budget of
    that day, in dollars."""

    code = "day_budget"

    def __init__(self, day: str, left: Decimal, wanted: Decimal) -> None:
        self.left = left
        super().__init__(
            f"${left:f} are left of the budget for model calls on {day} (UTC), but this call may cost "
            f"${wanted:f}."
        )


class Owned(StorageError):
    """A living process owns this session."""

    code = "owned"


class Corrupt(StorageError):
    """A stored row does not carry the MAC it should: changed, cut or moved outside this program."""

    code = "corrupt"


class BlobLost(SaysoError):
    """A file of a session is gone from where files are kept, or was changed there."""

    code = "blob_lost"


class KeyMissing(StorageError):
    """There are rows but not the key that they were written with."""

    code = "key_missing"


class StorePlain(StorageError):
    """The store holds rows from before encryption keys were set; they would stay readable beside encrypted ones."""

    code = "store_plain"

    def __init__(self, place: str) -> None:
        super().__init__(
            f"{place} has unencrypted rows, which would stay readable. Move SAYSO_ENCRYPTION_KEYS from your settings to a "
            "file new.env, stop everything that uses the store, and continue in an encrypted copy: sayso store copy FROM TO --to-env new.env"
        )


class StoreTooOld(StorageError):
    """The store was written by a build before 1.0, which is no longer supported."""

    code = "store_too_old"

    def __init__(self, place: str) -> None:
        super().__init__(
            f"{place} was written by a build of sayso before 1.0, or by another program; it was left untouched, so name a new "
            "database (SAYSO_DATABASE_URL)."
        )


class SchemaTooNew(StorageError):
    """A newer release wrote the database, or a verified row of it, which is left for that release."""

    code = "schema_too_new"


class WrongWorkspace(StorageError):
    """The database belongs to another Slack team or app."""

    code = "wrong_workspace"


class StoreSuspended(StorageError):
    """The database is older than the acknowledged state, or was changed outside: it is read-only until a person
    releases it. `reason` is the finding."""

    code = "store_suspended"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)

    def __str__(self) -> str:
        return f"{self.reason} The store is suspended: nothing runs and nothing is stored. `sayso doctor` lists the work that may run a second time; `sayso store release` releases it."


class RowRefused(StorageError):
    """A value does not fit into a row (text that is not Unicode, a key that is too long): nothing was written. The
    store itself is fine."""


class StorageBusy(StorageError):
    """Another program holds the database; nothing was written. Work continues when it is released."""


class StorageFull(StorageError):
    """The device is full; nothing was written. Work continues when there is space."""

    code = "storage_full"


class StorageBroken(StorageError):
    """The device refused to make a write durable; the process must end, since memory can no longer be trusted."""

    code = "storage_broken"


# --- not an error --------------------------------------------------------------------------------------


class FenceLost(BaseException):
    """Another process may have taken over the work: it has no more effects here, and its end is not recorded.

    Not an `Exception`, so that no error handling takes it for an outcome.
    """


class PauseError(BaseException):
    """Raised by `ctx.checkpoint(saved)` inside a Python node that was asked to leave, with its `saved` state, and by
    `hub.checkpoint()`, with the session's `state` (`SessionState`) at the pause.

    Not an `Exception`, so that a node's own error handling lets it pass. Catch it (with `except*` too, if a task group
    wraps it) only to clean up, and raise it again.
    """

    def __init__(self, saved: object = None, state: dict[str, object] | None = None) -> None:
        self.saved = saved
        self.state = state
        super().__init__("the node was asked to stop")
