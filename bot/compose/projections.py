"""Timers, locks, prompts and intents follow from the journal: compared with it, and rewritten if they differ.

They are written in the commit of their events, so a difference means that somebody changed, deleted or restored rows: a
deadline would never come, a button would find no question, two sessions would hold one lock. `bot.compose.comparing`
decides when; `differences` changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bot.intents.session_rows import question_row, sharing
from engine.decide.projections import repairs as own_repairs
from engine.decide.projections import undelivered
from engine.journal.records import (
    Commit,
    Conflict,
    Derived,
    DropLock,
    DropTimer,
    Head,
    Lost,
    PromptRow,
    PutLock,
    PutOutbox,
    Row,
    Stored,
    TakeLock,
    Timer,
)
from engine.journal.state import State
from engine.language.codec import decode
from engine.language.errors import LockHeld, SaysoError
from engine.run.stored import stored_state
from engine.storage.backoff import passes
from engine.storage.store import Store
from prompt_state.question_row import prompt_row

log = logging.getLogger("sayso")

OPEN = ("running", "paused")


@dataclass(frozen=True)
class Difference:
    """A session with rows that differ from its journal, the rows that correct them, and their description."""

    head: Head
    rows: Sequence[Row]

    def __str__(self) -> str:
        kinds = sorted({_KINDS[type(row)] for row in self.rows})
        return f"{self.head.session_id}: {len(self.rows)} rows ({', '.join(kinds)}) differ from its journal"


_KINDS: dict[type, str] = {
    Timer: "timers",
    DropTimer: "timers",
    PutLock: "locks",
    TakeLock: "locks",
    DropLock: "locks",
    PromptRow: "prompts",
    PutOutbox: "messages",
}


def heads_of(store: Store) -> list[Head]:
    """Return all sessions that have rows derived from their journals: open ones, and those with leftover locks."""
    left = filter(None, map(store.sessions.head, store.locks.left_behind()))
    return [*store.sessions.heads(statuses=OPEN, limit=None), *left]


def differences(store: Store, heads: Sequence[Head]) -> Iterator[Difference]:
    """Yield those of these sessions whose stored rows differ from their journals. Unreadable sessions are left out.
    Raises `StorageError` while nothing can be read."""
    for head in heads:
        session_id = head.session_id
        if head.quarantined is not None:
            continue
        try:
            state = stored_state(store, session_id)
            prompts = store.prompts.rows(session_id=session_id, limit=None)
            rows = [*own_repairs(state, store.derived(session_id)), *_prompts(state, prompts)]
            lost = [row for row in intents(state) if store.outbox.row(row.key) is None]
            rows += [row.but(uncertain=True) for row in lost]
        except SaysoError as error:
            if passes(error):
                raise
            continue  # whoever takes it up sets it aside, and says so
        if rows:
            yield Difference(head, rows)


def repairs(state: State, stored: Derived) -> list[Row]:
    """Return the rows that bring those of a claimed session in line with its journal: `_prompts` reads all of them.
    Pure."""
    known = {row.prompt_id: (row.status, row.deadline) for row in stored.prompts}
    wanted = {name: (state.prompts[name].status, state.prompts[name].deadline) for name in state.open_prompts}
    differ = [name for name in {**known, **wanted} if known.get(name) != wanted.get(name)]
    prompts = [prompt_row(state, state.prompts[name]) for name in differ if name in state.prompts]
    return [*own_repairs(state, stored), *prompts]


def _prompts(state: State, stored: Sequence[PromptRow]) -> Iterator[Row]:
    known = {row.prompt_id: row for row in stored}
    for prompt_id, prompt in state.prompts.items():
        wanted, row = prompt_row(state, prompt), known.get(prompt_id)
        if row is not None:
            mine, theirs = decode(wanted.body), decode(row.body)
            # Fields that one of them lacks did not exist in the release that wrote it.
            both = (mine.keys() & theirs.keys()) - {"snapshotSeq"}
            stands = (wanted.status, wanted.deadline) == (row.status, row.deadline)
            if stands and all(mine[name] == theirs[name] for name in both):
                continue
        yield wanted


def intents(state: State) -> list[PutOutbox]:
    """Return intents for unshown questions and undelivered messages, which look for an existing row first. Pure."""
    wanted = undelivered(state)
    if (state.thread or {}).get("key"):
        asked = [state.prompts[prompt_id] for prompt_id in state.open_prompts]
        unseen = dict.fromkeys(sharing(state, one)[0].prompt_id for one in asked if one.shown is None)
        wanted += [question_row(state, prompt_id) for prompt_id in unseen]
    return wanted


def mend(store: Store, now: str, heads: Sequence[Head]) -> None:
    """Rewrite the rows of these sessions that differ from their journals, and log them. A session that lost its lock to
    another one is quarantined. One with a living owner is left to it: its claim has compared them."""
    mine = [head for head in heads if head.owner is None or not store.alive(head.owner)]
    for found in differences(store, mine):
        head = found.head
        log.error("%s; they are rewritten", found)
        rows = tuple(found.rows)
        commit = Commit(head.session_id, head.epoch, head.seq, now, head.status, head.phase, rows=rows)
        match store.commit([commit])[0]:
            case Stored():
                pass
            case Conflict(LockHeld() as error):
                reason = f"its place in the queue for a lock was deleted ({error})"
                store.quarantine(head.session_id, reason, now)
            case Conflict(error) | Lost(error) | error:
                log.error("%s: its rows could not be rewritten: %s", head.session_id, error)
