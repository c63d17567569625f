"""Timers, locks, prompts and intents follow from the journal: compared with it, and written anew where they differ.

They are written in the commit of the events that they follow from, so a difference means that somebody changed or
deleted rows, or wrote older ones back: a deadline would never come, a button would find no question, two sessions would
work under one lock. `mend` is called before a process serves anything; `differences` changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bot.intents.session_rows import unseen
from engine.decide.projections import delivery
from engine.journal.records import (
    Commit,
    DropLock,
    DropTimer,
    Head,
    LockRow,
    PromptRow,
    PutLock,
    PutOutbox,
    Row,
    TakeLock,
    Timer,
)
from engine.journal.state import State
from engine.language.codec import decode
from engine.language.errors import LockHeld, SaysoError
from engine.nodes.types.registry import mode_of
from engine.run.stored import stored_state
from engine.storage.backoff import passes
from engine.storage.port import Store
from prompt_state.question_row import prompt_row

log = logging.getLogger("sayso")

_OPEN = ("running", "paused")
R = TypeVar("R", Timer, LockRow)


@dataclass(frozen=True)
class Difference:
    """A session of which some rows are not what its journal says, the rows that put that right, and which they are."""

    head: Head
    rows: Sequence[Row]

    def __str__(self) -> str:
        kinds = sorted({_KINDS[type(row)] for row in self.rows})
        return f"{self.head.session_id}: {len(self.rows)} rows ({', '.join(kinds)}) are not what its journal says"


_KINDS: dict[type, str] = {
    Timer: "timers",
    DropTimer: "timers",
    PutLock: "locks",
    TakeLock: "locks",
    DropLock: "locks",
    PromptRow: "prompts",
    PutOutbox: "messages",
}


def differences(store: Store) -> Iterator[Difference]:
    """All sessions of which stored rows are not what their journals say. Sessions that cannot be read are left out. Raises
    `StorageError` where nothing can be read just now."""
    timers, locks = _by_session(store.timers(limit=None)), _by_session(store.locks())
    ended = [store.head(session_id) for session_id in {*timers, *locks}]
    heads = {head.session_id: head for head in (*store.heads(statuses=_OPEN, limit=None), *ended) if head}
    for session_id, head in heads.items():
        if head.quarantined is not None:
            continue
        try:
            state = stored_state(store, session_id)
            prompts = store.prompts(session_id=session_id, limit=None)
            found = Stored(timers.get(session_id, []), locks.get(session_id, []), prompts)
            rows = [*repairs(state, found), *_lost_intents(store, state)]
        except SaysoError as error:
            if passes(error):
                raise
            continue  # whoever takes it up sets it aside, and says so
        if rows:
            yield Difference(head, rows)


def _by_session(rows: Iterable[R]) -> dict[str, list[R]]:
    found: dict[str, list[R]] = {}
    for row in rows:
        found.setdefault(row.session_id, []).append(row)
    return found


@dataclass(frozen=True)
class Stored:
    """What is stored of one session beside its journal."""

    timers: Sequence[Timer]
    locks: Sequence[LockRow]
    prompts: Sequence[PromptRow]


def repairs(state: State, stored: Stored) -> list[Row]:
    """The rows that make what is stored what the journal says. Pure."""
    return [*_timers(state, stored.timers), *_locks(state, stored.locks), *_prompts(state, stored.prompts)]


def _timers(state: State, stored: Sequence[Timer]) -> Iterator[Row]:
    known = {timer.timer_id: timer.due_at for timer in stored}
    for timer_id in known.keys() - state.timers.keys():
        yield DropTimer(timer_id, state.session_id)
    for timer_id, timer in state.timers.items():
        if known.get(timer_id) != timer.due_at:
            yield Timer(timer_id, state.session_id, timer.due_at)


def _locks(state: State, stored: Sequence[LockRow]) -> Iterator[Row]:
    wanted = None if state.ended else state.lock
    for row in stored:
        if row.verified and (wanted is None or row.name != wanted.name):
            yield DropLock(row.name, state.session_id)
    if wanted is None:
        return
    place = next((row for row in stored if row.name == wanted.name), None)
    if place is None:
        yield PutLock(wanted.name, state.session_id, first=wanted.acquired_at is not None)
    if wanted.acquired_at is not None and (place is None or place.taken_at is None):
        yield TakeLock(wanted.name, state.session_id)


def _prompts(state: State, stored: Sequence[PromptRow]) -> Iterator[Row]:
    known = {row.prompt_id: row for row in stored}
    for prompt_id, prompt in state.prompts.items():
        wanted = prompt_row(state, prompt)
        if prompt_id not in known or not _same(wanted, known[prompt_id]):
            yield wanted


def _same(wanted: PromptRow, stored: PromptRow) -> bool:
    """Whether a row says what it should. What one of them lacks was no part of a prompt in the release that wrote it."""
    mine, theirs = decode(wanted.body), decode(stored.body)
    both = (mine.keys() & theirs.keys()) - {"snapshotSeq"}
    return (wanted.status, wanted.deadline) == (stored.status, stored.deadline) and all(
        mine[name] == theirs[name] for name in both
    )


def _lost_intents(store: Store, state: State) -> Iterator[Row]:
    """Questions that nobody sees yet and messages that are under way, of which there is no row: each is looked for first."""
    wanted = [
        delivery(state, path, run.attempt, run.input)
        for path in state.active
        if (run := state.nodes[path]).status == "started" and mode_of(run.type) == "delivery"
    ]
    if (state.thread or {}).get("key"):
        wanted += [
            unseen(state, prompt_id) for prompt_id in state.open_prompts if not _shown(state, prompt_id)
        ]
    for row in wanted:
        if store.outbox_row(row.key) is None:
            yield row.but(uncertain=True)


def _shown(state: State, prompt_id: str) -> bool:
    return state.prompts[prompt_id].shown is not None


def mend(store: Store, now: str) -> None:
    """Write the rows anew that are not what the journals say, and log them. A session that lost its lock to another one is
    set aside. One that a living process owns is left to it."""
    for found in differences(store):
        head = found.head
        if head.owner is not None and store.alive(head.owner):
            continue
        log.error("%s; they are written anew", found)
        rows = tuple(found.rows)
        commit = Commit(head.session_id, head.epoch, head.seq, now, head.status, head.phase, rows=rows)
        [error] = store.commit([commit])
        if isinstance(error, LockHeld):
            store.quarantine(head.session_id, f"its place in the queue for a lock was deleted ({error})", now)
        elif error is not None:
            log.error("%s: its rows could not be written anew: %s", head.session_id, error)
