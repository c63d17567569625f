"""The index by which sessions are found: in memory, read once in pages, newest first, and then kept up to date by what changed.

A page of 50 reads 50 heads, however many there are. Of a journal the first row is read, and where it failed the last ones, for
the list tells why. Errors and outputs of those at rest are read
once all are listed, a bounded number of rows at a time. Everything here runs on the thread of the store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from typing import NamedTuple

from bot.terminal.console import clean
from bot.terminal.lists import head_json, waits_for
from bot.terminal.narration import error_of, why_failed
from bot.web.names import Names
from engine.journal.events import Completion, Event, Failure, FlowFailed, SessionStarted, decode_event
from engine.journal.phases import ENDED, standing
from engine.journal.queries import is_retry, next_try
from engine.journal.records import Head
from engine.language import timestamps
from engine.language.codec import Json, encode
from engine.language.errors import Erased, SaysoError
from engine.run.stored import stored_state
from engine.storage.store import Store
from prompt_state import question_row

_AT_ONCE = 100
"""Sessions that are read before whoever asks for something gets the store."""
_OVERLAP = timedelta(seconds=10)
"""The time by which a look for changes overlaps with the last one: other processes commit a little late, and their clocks differ."""
_MOST_WORDS = 500
_MOST_TOLD, _MOST_PART = 4_000, 1_000
"""Characters of a session's errors and outputs that are searched, the last ones, and of each of them its end."""
_ROWS, _ROWS_AT_ONCE, _LAST_ROWS = 200, 1_000, 20
"""Rows of a journal in which errors and outputs are searched, the last ones; those of all journals that one call reads; and those
that tell why a session failed."""
_TELLING = (b'"output"', b'"error"')
"""Parts of events that are searched; others need not be decoded."""
_RESTS = ("paused", *ENDED)
ON_HOLD = "on hold"


class Known(NamedTuple):
    """A session as it is searched: where it stood last, who started it where, and all words that find it."""

    head: Head
    person: str
    channel: str
    words: str
    error: dict[str, Json] | None = None
    """Why it failed."""
    told: str | None = None
    """Outputs and errors of its steps, in small letters; None until read."""

    @property
    def status(self) -> str:
        """Its status on the wire."""
        return ON_HOLD if self.head.quarantined else self.head.status

    @property
    def standing(self) -> str:
        """Return the state as people see it."""
        if self.head.quarantined:
            return ON_HOLD
        return standing(self.head.status, self.head.phase, self.error)

    def finds(self, word: str) -> bool:
        """True if a word, in small letters, is among what it is found by."""
        return word in self.words or word in (self.told or "")


class Wanted(NamedTuple):
    """Filter for sessions; empty fields match any. `before` is the last one of the page before."""

    q: str = ""
    status: Collection[str] = ()
    standing: Collection[str] = ()
    flow: str = ""
    person: str = ""
    channel: str = ""
    since: str = ""
    until: str = ""
    """The times between which it was started."""
    before: str = ""
    limit: int = 50


_ALL = Wanted()


class Index:
    """The sessions of a store, as they are searched."""

    def __init__(self, store: Store, names: Names) -> None:
        self._store, self._names = store, names
        self._known: dict[str, Known] = {}
        self._order: list[str] | None = []
        self._newest = ""
        self._read_to: str | None = None
        self._untold: list[str] = []
        """Sessions at rest of which nobody has read what they gave."""
        self._listed = False

    @property
    def complete(self) -> bool:
        """True if all sessions are listed, and found by all that finds them."""
        return self._listed and not self._untold

    def read_on(self) -> None:
        """Read the next older sessions, then what they gave, the newest first."""
        if self._listed:
            rows = 0
            while self._untold and rows < _ROWS_AT_ONCE:
                known = self._known.get(self._untold.pop(0))
                if known is not None and known.told is None:
                    rows += min(known.head.seq, _ROWS)
                    self._known[known.head.session_id] = self._named(known)._replace(
                        told=self._told(known.head)
                    )
            return
        heads = self._store.sessions.heads(limit=_AT_ONCE, before=self._read_to)
        for head in heads:
            self._note(head)
        self._listed = len(heads) < _AT_ONCE
        self._read_to = heads[-1].session_id if heads else self._read_to

    def refresh(self) -> list[str]:
        """Read what changed since the last time, and return the ids of the sessions whose pages look different: also of those
        of which another one is a fork or a retry."""
        since = timestamps.to_text(timestamps.from_text(self._newest) - _OVERLAP) if self._newest else ""
        changed = []
        for head in self._store.sessions.stirred(since):
            before = self._known.get(head.session_id)
            if before is None or before.head != head:
                self._note(head)
                changed.append(head.session_id)
                if before is None and head.parent_session_id:
                    changed.append(head.parent_session_id)
        return changed

    def _note(self, head: Head) -> None:
        before = self._known.get(head.session_id)
        if not head.quarantined:  # what somebody changed may say anything
            self._newest = max(self._newest, head.updated_at)
        if before is not None and (before.head.seq, before.head.quarantined) == (head.seq, head.quarantined):
            self._known[head.session_id] = before._replace(head=head)
            return
        if before is None:
            self._order = None
        self._known[head.session_id] = self._read(head)
        if head.status in _RESTS:
            self._untold.append(head.session_id)

    def _told(self, head: Head) -> str:
        """Outputs and errors of the last steps of a session, as its journal has them, in small letters."""
        told: list[str] = []
        for event in self._last(head, _ROWS):
            if isinstance(event, Completion):
                told.append(_words(event.output)[-_MOST_PART:])
            elif isinstance(event, Failure | FlowFailed):
                told.append(_words(event.error)[-_MOST_PART:])
        return " ".join(told)[-_MOST_TOLD:].lower()

    def _named(self, known: Known) -> Known:
        """A session whose error says at which item a loop failed, where one did: of its records only the whole state tells."""
        if known.error is None or "item" in known.error or "[" not in str(known.error.get("path")):
            return known
        found: dict[str, Json] | None = None
        with suppress(SaysoError):
            found = error_of(stored_state(self._store, known.head.session_id))
        error = {**known.error, "item": (found or {}).get("item")}
        return known._replace(error=error, words=f"{known.words} {why_failed(error).lower()}")

    def _last(self, head: Head, rows: int) -> Iterator[Event]:
        """The events with outputs and errors among the last so many rows; none of a journal that cannot be read."""
        with suppress(SaysoError):
            found = () if head.quarantined else self._store.sessions.ending(head.session_id, rows)
            yield from (decode_event(row) for row in found if any(part in row for part in _TELLING))

    def _read(self, head: Head) -> Known:
        began: SessionStarted | None = None
        with suppress(SaysoError):
            event = decode_event(self._store.sessions.opening(head.session_id))
            began = event if isinstance(event, SessionStarted) else None
        actor, thread = (began.actor, began.thread or {}) if began else ({}, {})
        person = clean(str(actor.get("name") or actor.get("id") or ""))
        self._names.learn(str(actor.get("id")), person)
        channel = clean(str(thread.get("channel") or ""))
        last = self._last(head, _LAST_ROWS) if head.status == "failed" else ()
        error = next((event.error for event in last if isinstance(event, FlowFailed)), None)
        reason, given = _words(error), _words(began.given)[:_MOST_WORDS] if began else ""
        words = (head.session_id, head.flow_name, person, actor.get("id"), actor.get("email"), channel)
        found = " ".join(str(word) for word in (*words, given, reason[:_MOST_PART]) if word).lower()
        return Known(head, person, channel, found, error)

    # -- what is asked of it

    def page(self, wanted: Wanted) -> dict[str, Json]:
        """A page of sessions as the store has them now, and which others there are."""
        found = list(islice(self._matching(wanted), wanted.limit + 1))
        queued = {row.session_id: row.name for row in self._store.locks.rows() if row.taken_at is None}
        rows = [
            row for each in found[: wanted.limit] if (row := self._row(each, queued.get(each))) is not None
        ]
        return {
            "sessions": rows,
            "next": found[wanted.limit - 1] if len(found) > wanted.limit else None,
            "known": len(self._known),
            "listed": self._listed,
            "complete": self.complete,
        }

    def facets(self, wanted: Wanted = _ALL) -> dict[str, Json]:
        """The number of sessions of each status, as far as the other filters let them through, and of each flow; and the people
        and channels that there are."""
        others = wanted._replace(status=(), standing=(), before="", limit=_ALL.limit)
        words = wanted.q.lower().split()
        statuses: dict[str, int] = {}
        standings: dict[str, int] = {}
        flows: dict[str, int] = {}
        for known in self._known.values():
            counts = others == _ALL or self._fits(known, others, words)
            statuses[known.status] = statuses.get(known.status, 0) + counts
            standings[known.standing] = standings.get(known.standing, 0) + counts
            flows[known.head.flow_name] = flows.get(known.head.flow_name, 0) + 1
        people = sorted({known.person for known in self._known.values() if known.person})
        channels = sorted({known.channel for known in self._known.values() if known.channel})
        return {
            "statuses": statuses,
            "standings": standings,
            "flows": flows,
            "people": [[each, self._names.of(each)] for each in people[:500]],
            "channels": [[each, self._names.of(each)] for each in channels[:500]],
        }

    def matching(self, prefix: str) -> list[str]:
        """Sessions by the beginning of their ids, which may be written without `session-`."""
        return [each for each in self._sorted() if each.startswith((prefix, f"session-{prefix}"))][:8]

    def _sorted(self) -> list[str]:
        if self._order is None:
            self._order = sorted(
                self._known, key=lambda each: (self._known[each].head.created_at, each), reverse=True
            )
        return self._order

    def _matching(self, wanted: Wanted) -> Iterator[str]:
        order, words = self._sorted(), wanted.q.lower().split()
        start = order.index(wanted.before) + 1 if wanted.before in self._known else 0
        for session_id in islice(order, start, None):
            if self._fits(self._known[session_id], wanted, words) and self._fits(
                self._unerased(session_id), wanted, words
            ):
                yield session_id

    def _fits(self, known: Known, wanted: Wanted, words: Collection[str]) -> bool:
        pairs = (
            (wanted.flow, known.head.flow_name),
            (wanted.person, known.person),
            (wanted.channel, known.channel),
        )
        return (
            (not wanted.status or known.status in wanted.status)
            and (not wanted.standing or known.standing in wanted.standing)
            and (not wanted.since or known.head.created_at >= wanted.since)
            and (not wanted.until or known.head.created_at < wanted.until)
            and all(not asked or asked == had for asked, had in pairs)
            and all(known.finds(word) or word in self._names.of(known.channel).lower() for word in words)
        )

    def _unerased(self, session_id: str) -> Known:
        """A session as it is known, without what was erased since it was read: its head does not tell."""
        known = self._known[session_id]
        with suppress(SaysoError):
            try:
                self._store.sessions.opening(session_id)
            except Erased:
                known = self._known[session_id] = self._read(known.head)._replace(told="")
        return known

    def _row(self, session_id: str, lock: str | None) -> dict[str, Json] | None:
        """A session as it stands now; None, and forgotten, where it was deleted."""
        known = self._known[session_id]
        try:
            head = self._store.sessions.head(session_id)
        except SaysoError as error:
            head = known.head.but(quarantined=str(error))
        if head is None:
            del self._known[session_id]
            self._order = None
            return None
        if head == known.head:
            known = self._known[session_id] = self._named(known)
        else:  # kept for `refresh`, which tells whoever watches
            known = self._named(self._read(head))
        asked: Sequence[question_row.PromptState] = ()
        until: str | None = None
        if head.status == "paused":
            with suppress(SaysoError):
                asked = question_row.waiting(self._store.prompts, session_id=session_id)
                timers = self._store.timers.of(session_id) if head.phase == "waiting" and not asked else []
                until = min((timer.due_at for timer in timers), default=None)
        return {
            **head_json(head, asked),
            "status": known.status,
            "standing": known.standing,
            "person": self._names.of(known.person),
            "channel": known.channel,
            "channelName": self._names.of(known.channel),
            "parent": head.parent_session_id,
            "isRetry": is_retry(head.session_id, head.parent_session_id),
            "isRetried": next_try(head.session_id) in self._known,
            "events": head.seq,
            "until": until,
            "waits": self._names.within(waits_for(head, asked, lock, None) or why_failed(known.error)),
        }


def _words(value: Json) -> str:
    """The texts and numbers in a value, as people read and search them."""
    if isinstance(value, Mapping):
        return " ".join(f"{name} {_words(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(_words, value))
    return "" if value is None else value if isinstance(value, str) else encode(value).decode()
