"""The index by which sessions are found: in memory, read once in pages, newest first, and then kept up to date by what changed.

A page of 50 reads 50 heads, however many there are. What a session began with never changes, so its first event is read
once. Its errors and outputs are read once it rests: of one that failed at once, for its list tells why, of others once all
are listed. Everything here runs on the thread of the store.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from typing import NamedTuple

from bot.terminal.console import clean, one_line
from bot.terminal.lists import head_json, waits_for
from bot.terminal.narration import error_text
from engine.journal.events import Completion, Failure, FlowFailed, SessionStarted, decode_event
from engine.journal.phases import ENDED, standing
from engine.journal.queries import is_rejection, verdict
from engine.journal.records import Head
from engine.language import timestamps
from engine.language.codec import Json, encode
from engine.language.errors import Erased, SaysoError
from engine.storage.store import Store
from prompt_state import question_row

_AT_ONCE = 100
"""Sessions that are read before whoever asks for something gets the store."""
_OVERLAP = timedelta(seconds=10)
"""The time by which a look for changes overlaps with the last one: other processes commit a little late, and their clocks differ."""
_MOST_WORDS = 500
_MOST_TOLD, _MOST_PART = 4_000, 1_000
"""Characters of a session's errors and outputs that are searched, the last ones, and of each of them its end."""
_TELLING = (b'"output"', b'"error"')
"""Parts of events that are searched; others need not be decoded."""
_RESTS = ("paused", *ENDED)
ON_HOLD = "on hold"
_MENTION = re.compile(r"@([UW][A-Z0-9]{2,})\b")


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


class Index:
    """The sessions of a store, as they are searched."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, Known] = {}
        self._order: list[str] | None = []
        self._newest = ""
        self.names: dict[str, str] = {}
        """The names of people by id, as far as sessions tell."""
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
            for session_id in self._untold[:_AT_ONCE]:
                known = self._known.get(session_id)
                if known is not None and known.told is None:
                    self._known[session_id] = self._with_told(known)
            self._untold = self._untold[_AT_ONCE:]
            return
        heads = self._store.sessions.heads(limit=_AT_ONCE, before=self._read_to)
        for head in heads:
            self._note(head)
        self._listed = len(heads) < _AT_ONCE
        self._read_to = heads[-1].session_id if heads else self._read_to

    def refresh(self) -> list[str]:
        """Read what changed since the last time: the ids of it."""
        since = timestamps.to_text(timestamps.from_text(self._newest) - _OVERLAP) if self._newest else ""
        changed = []
        for head in self._store.sessions.stirred(since):
            before = self._known.get(head.session_id)
            if before is None or before.head != head:
                self._note(head)
                changed.append(head.session_id)
        return changed

    def _note(self, head: Head) -> None:
        before = self._known.get(head.session_id)
        if not head.quarantined:  # what somebody changed may say anything
            self._newest = max(self._newest, head.updated_at)
        if before is None:
            self._order = None
            known = self._read(head)
        elif before.head.seq == head.seq and before.head.quarantined == head.quarantined:
            known = before._replace(head=head)
        else:
            known = before._replace(head=head, told=None)
        self._known[head.session_id] = known
        if head.status == "failed" and known.told is None:
            self._known[head.session_id] = self._with_told(known)
        elif head.status in _RESTS and known.told is None:
            self._untold.append(head.session_id)

    def _with_told(self, known: Known) -> Known:
        """A session with what its steps gave and why it failed, as its journal says."""
        error: dict[str, Json] | None = None
        told: list[str] = []
        with suppress(SaysoError):
            rows = [] if known.head.quarantined else self._store.sessions.journal(known.head.session_id)
            for event in (decode_event(row) for row in rows if any(part in row for part in _TELLING)):
                if isinstance(event, Completion) and event.output is not None:
                    output = event.output if isinstance(event.output, str) else encode(event.output).decode()
                    told.append(output[-_MOST_PART:])
                elif isinstance(event, Failure | FlowFailed):
                    told.append(encode(event.error).decode()[-_MOST_PART:])
                    error = event.error if isinstance(event, FlowFailed) else error
        text = " ".join(told)[-_MOST_TOLD:].lower()
        return known._replace(error=error if known.head.status == "failed" else None, told=text)

    def _read(self, head: Head) -> Known:
        began: SessionStarted | None = None
        with suppress(SaysoError):
            event = decode_event(self._store.sessions.opening(head.session_id))
            began = event if isinstance(event, SessionStarted) else None
        actor, thread = (began.actor, began.thread or {}) if began else ({}, {})
        person = clean(str(actor.get("name") or actor.get("id") or ""))
        self.names[str(actor.get("id"))] = person
        channel = clean(str(thread.get("channelName") or thread.get("channel") or ""))
        given = encode(began.given).decode()[:_MOST_WORDS] if began else ""
        words = (head.session_id, head.flow_name, person, actor.get("id"), actor.get("email"), channel, given)
        found = " ".join(str(word) for word in words if word).lower()
        return Known(head, person, channel, found)

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

    def facets(self) -> dict[str, Json]:
        """The number of sessions of each status and flow, and the people and channels that there are."""
        statuses: dict[str, int] = {}
        standings: dict[str, int] = {}
        flows: dict[str, int] = {}
        for known in self._known.values():
            statuses[known.status] = statuses.get(known.status, 0) + 1
            standings[known.standing] = standings.get(known.standing, 0) + 1
            flows[known.head.flow_name] = flows.get(known.head.flow_name, 0) + 1
        people = sorted({known.person for known in self._known.values() if known.person})
        channels = sorted({known.channel for known in self._known.values() if known.channel})
        return {
            "statuses": statuses,
            "standings": standings,
            "flows": flows,
            "people": people[:500],
            "channels": channels[:500],
        }

    def named(self, text: str) -> str:
        """A text in which people are mentioned, with what they are called."""
        return _MENTION.sub(lambda found: f"@{self.names.get(found[1], found[1])}", text)

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
            if _fits(self._known[session_id], wanted, words) and _fits(
                self._unerased(session_id), wanted, words
            ):
                yield session_id

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
        if head != known.head:  # kept for `refresh`, which tells whoever watches
            known = known._replace(head=head)
            known = self._with_told(known) if head.status == "failed" else known
        asked: Sequence[question_row.PromptState] = ()
        if head.status == "paused":
            with suppress(SaysoError):
                asked = question_row.waiting(self._store.prompts, session_id=session_id)
        return {
            **head_json(head, asked),
            "status": known.status,
            "standing": known.standing,
            "person": known.person,
            "channel": known.channel,
            "parent": head.parent_session_id,
            "events": head.seq,
            "waits": waits_for(head, asked, lock, None) or _reason(known.error),
        }


def _reason(error: Mapping[str, Json] | None) -> str:
    """Why a session ended badly, on one line; empty where it did not."""
    if error is None:
        return ""
    return one_line(verdict(error), 120) if is_rejection(error) else error_text(dict(error))


def _fits(known: Known, wanted: Wanted, words: Collection[str]) -> bool:
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
        and all(map(known.finds, words))
    )
