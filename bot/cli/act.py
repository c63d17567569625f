"""Requests for a session that another process serves, through the inbox: no CLI claims what a living process owns.

A session of a Slack thread is the bot's to run. A session of the terminal is run by whoever follows it; where nobody
does, the command that wants something of it takes it up itself.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from bot.terminal.exit_codes import Exit
from bot.terminal.follower import terminal_label
from engine.journal.records import Consumed, Head, InboxRow
from engine.language.actors import Actor
from engine.language.codec import Json, decode
from engine.language.errors import Fenced, Owned, SaysoError
from engine.run.active import utc_now
from engine.run.remote_commands import item
from engine.storage.port import Store

REPLY_SECONDS = 15.0
"""How long a living process has to take a request."""

_LOOK_SECONDS = 0.05


class RefusedElsewhere(SaysoError):
    """The process that runs the session refused; carries its error code and its words."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


@dataclass(frozen=True)
class Handed:
    """What became of a request: `applied`, or `queued` until the process named in `by` takes it; `there` says whether that
    process lives."""

    outcome: str
    by: str
    there: bool = True

    @property
    def code(self) -> Exit:
        """The exit code: what is only kept for later is not done."""
        return Exit.OK if self.outcome == "applied" else Exit.PAUSED


def served(store: Store, head: Head) -> bool:
    """Whether a living process takes requests for this session."""
    return _label(head) in store.serving()


def runs_here(store: Store, head: Head) -> bool:
    """Whether this process may take the session up: it is one of the terminal that nobody follows."""
    return head.thread_key is None and not served(store, head)


def hand_over(
    store: Store, head: Head, do: str, actor: Actor, *, patience: float = REPLY_SECONDS, **fields: Json
) -> Handed:
    """Put a request into the inbox and wait for what becomes of it. Raises `RefusedElsewhere`, `Owned` where the terminal
    that had the session ended without taking the request (which is void then), storage errors."""
    key = f"cli:{os.urandom(8).hex()}"
    request = item(key, head.session_id, do, actor=actor, **fields)
    store.ingest([request], utc_now())
    by = "bot" if head.thread_key else "terminal"
    deadline = time.monotonic() + patience
    while True:
        # Asked before the row is read: a process that took the request and ended is seen to have taken it.
        there = served(store, head)
        row = store.inbox_row(key)
        if row is not None and row.outcome is not None:
            return _outcome(row, by)
        if row is not None and not there and head.thread_key is None:
            _take_back(store, row)
        elif not there or time.monotonic() >= deadline:
            return Handed("queued", by, there)
        else:
            time.sleep(_LOOK_SECONDS)


def _take_back(store: Store, row: InboxRow) -> None:
    """Void a request that nobody is there to take, so that whoever made it can take the session up; returns where somebody
    took it in this moment. Raises `Owned`."""
    try:
        store.consume([Consumed(row.id, "withdrawn")], utc_now())
    except Fenced:
        return
    raise Owned("The process that had this session ended before it took the request. Nothing was changed.")


def _outcome(row: InboxRow, by: str) -> Handed:
    if row.outcome != "applied":
        result = decode(row.result) if row.result else {}
        message = result.get("message") or f"The request was not carried out ({row.outcome})."
        raise RefusedElsewhere(str(result.get("error") or "refused"), str(message))
    return Handed("applied", by)


def _label(head: Head) -> str:
    return "bot" if head.thread_key else terminal_label(head.session_id)


def told(handed: Handed, done: str) -> str:
    """What became of a request, in words; `done` says what was done."""
    if handed.outcome == "applied":
        return done
    if handed.by == "bot" and handed.there:
        return "The bot runs and has not taken the request yet. It is kept, and carried out when the bot gets to it."
    if handed.by == "bot":
        return (
            "The bot does not run right now. The request is kept, and carried out when it runs (sayso start)."
        )
    return (
        "The terminal that has this session did not answer. The request is kept for whoever goes on with it."
    )
