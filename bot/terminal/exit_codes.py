"""Exit codes: one table, which `--help` and the documentation show."""

from __future__ import annotations

from enum import IntEnum

from engine.journal.queries import is_rejection
from engine.journal.state import State
from engine.language.errors import SaysoError


class Exit(IntEnum):
    """What the exit code of a command says."""

    OK = 0
    FAILED = 1
    USAGE = 2
    PAUSED = 3
    INVALID_FLOW = 4
    REFUSED = 5
    STORE = 6
    SLACK = 7
    REJECTED = 8
    SERVED = 9
    SUSPENDED = 10


MEANINGS: dict[Exit, str] = {
    Exit.OK: "done",
    Exit.FAILED: "the session failed or was aborted; a check of doctor, or a scenario, failed",
    Exit.USAGE: "wrong usage, unknown name, a setting or a scenario that cannot be used",
    Exit.PAUSED: "paused: waiting for people, kept for later",
    Exit.INVALID_FLOW: "a flow file is not valid",
    Exit.REFUSED: "refused: not allowed, already answered, already ended",
    Exit.STORE: "the database cannot be used, or the session's records are damaged",
    Exit.SLACK: "Slack cannot be reached, or does not accept the tokens",
    Exit.REJECTED: "the session ended because an approval was rejected, or nobody decided in time",
    Exit.SERVED: "another process serves this home",
    Exit.SUSPENDED: "the store is suspended: it is older than what was acknowledged",
}

INTERRUPTED = 130
"""Ctrl-C where there was nothing to keep; what a shell expects of a program that ends by SIGINT."""

_BY_CODE: dict[str, Exit] = {
    "flow_invalid": Exit.INVALID_FLOW,
    "flow_unknown": Exit.USAGE,
    "inputs_invalid": Exit.USAGE,
    "settings": Exit.USAGE,
    "usage": Exit.USAGE,
    "session_unknown": Exit.USAGE,
    "session": Exit.REFUSED,
    "message_empty": Exit.USAGE,
    "session_ended": Exit.REFUSED,
    "session_running": Exit.REFUSED,
    "migration_refused": Exit.REFUSED,
    "snapshot_refused": Exit.REFUSED,
    "refused": Exit.REFUSED,
    "not_allowed": Exit.REFUSED,
    "already_answered": Exit.REFUSED,
    "prompt_closed": Exit.REFUSED,
    "prompt_timed_out": Exit.REFUSED,
    "clock_jumped": Exit.REFUSED,
    "answer_invalid": Exit.REFUSED,
    "text_too_long": Exit.REFUSED,
    "several_prompts": Exit.REFUSED,
    "session_quarantined": Exit.STORE,
    "journal_malformed": Exit.STORE,
    "storage": Exit.STORE,
    "fenced": Exit.STORE,
    "owned": Exit.STORE,
    "lock_held": Exit.STORE,
    "day_budget": Exit.STORE,
    "corrupt": Exit.STORE,
    "key_missing": Exit.STORE,
    "schema_too_new": Exit.STORE,
    "wrong_workspace": Exit.STORE,
    "storage_full": Exit.STORE,
    "storage_broken": Exit.STORE,
    "store_suspended": Exit.SUSPENDED,
    "prompt_malformed": Exit.STORE,
    "start_failed": Exit.SLACK,
    "slack": Exit.SLACK,
    "served": Exit.SERVED,
}


class UsageError(SaysoError):
    """What was asked for does not exist, or is said in a way that cannot be carried out."""

    code = "usage"


def exit_for(code: str) -> Exit:
    """The exit code for an error's `code`; one that is not listed is a failure."""
    return _BY_CODE.get(code, Exit.FAILED)


def exit_of(state: State) -> Exit:
    """The exit code for a session that was left like this."""
    if state.status == "complete":
        return Exit.OK
    if state.status == "failed" and is_rejection(state.error):
        return Exit.REJECTED
    return Exit.FAILED if state.status in ("failed", "aborted") else Exit.PAUSED


def epilog() -> str:
    """The table as `--help` shows it (`\\b` keeps its lines)."""
    lines = [f"  {code.value}  {meaning}" for code, meaning in MEANINGS.items()]
    return "\b\nExit codes:\n" + "\n".join(lines)
