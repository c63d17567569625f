"""Documents about all sessions together: who waits for whom, what was spent, dead letters, locks, queues."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import date, timedelta
from decimal import Decimal

from bot.rendering.text import message_line, plain, read, waiting_on
from bot.terminal.console import clean, one_line
from bot.terminal.lists import letter_json, spend_json
from bot.terminal.narration import standing
from bot.web.documents import text_of
from bot.web.names import Names
from engine.journal.records import InboxRow
from engine.language.codec import Json
from engine.language.errors import SaysoError
from engine.run.stored import stored_state
from engine.storage.store import Store
from prompt_state import question_row
from prompt_state.question_row import PromptState

_MOST = 200
_LOOKED_UP = 50
"""Questions of which the session is read, to say since when they wait: the oldest ones."""
_KEPT = 10_000
_LISTED = 50
"""Flows, and sessions, of which it is told what they cost: the dearest ones."""


class Waiting:
    """Open questions and whom they ask. Since when a question waits never changes, and is remembered."""

    def __init__(self, store: Store, names: Names) -> None:
        self._store, self._names = store, names
        self._since: dict[str, str] = {}

    def document(self) -> dict[str, Json]:
        """Open questions, oldest first, the sessions that wait for locks, and timers."""
        rows = self._store.prompts.rows(statuses=question_row.OPEN_STATUSES, limit=_MOST)
        asked: list[PromptState] = []
        for row in rows:
            with suppress(SaysoError):
                asked.append(question_row.read(row))
        questions = [self._question(prompt, number) for number, prompt in enumerate(asked)]
        counts = self._store.counts()
        return {
            "questions": questions,
            "people": Counter(one["asks"] for one in questions).most_common(),
            "inAll": sum(counts.prompts.values()),
            "locks": locks(self._store),
            "timers": [
                {
                    "sessionId": timer.session_id,
                    "flow": _flow(self._store, timer.session_id),
                    "due": timer.due_at,
                }
                for timer in self._store.timers.rows(limit=_MOST)
            ],
        }

    def _question(self, prompt: PromptState, number: int) -> dict[str, Json]:
        return {
            "promptId": prompt.prompt_id,
            "sessionId": prompt.session_id,
            "flow": _flow(self._store, prompt.session_id),
            "kind": prompt.kind,
            "message": one_line(self._names.within(message_line(read(prompt.message), 200)), 200),
            "asks": self._names.asked(one_line(plain(waiting_on(prompt, prompt.requester)), 120)),
            "for": self._names.of(prompt.requester_name or prompt.requester_id or ""),
            "channel": self._names.of(prompt.channel or ""),
            "since": self._asked_at(prompt) if number < _LOOKED_UP else None,
            "deadline": prompt.deadline,
        }

    def _asked_at(self, prompt: PromptState) -> str | None:
        if prompt.prompt_id not in self._since:
            with suppress(SaysoError):
                asked = stored_state(self._store, prompt.session_id).prompts[prompt.prompt_id]
                if len(self._since) >= _KEPT:
                    self._since.clear()
                self._since[prompt.prompt_id] = asked.requested_at
        return self._since.get(prompt.prompt_id)


def _flow(store: Store, session_id: str) -> str:
    """The name of a session's flow; empty where it is gone, or its records are damaged."""
    with suppress(SaysoError):
        head = store.sessions.head(session_id)
        return "" if head is None else head.flow_name
    return ""


def locks(store: Store) -> list[Json]:
    """The queues of all locks, each in its order, with who has it."""
    found, before, place = list[Json](), None, 0
    for row in store.locks.rows():
        place = place + 1 if row.name == before else 0
        before = row.name
        head = store.sessions.head(row.session_id)
        told = {
            "name": clean(row.name),
            "sessionId": row.session_id,
            "flow": None if head is None else head.flow_name,
            "status": None if head is None else head.status,
            "standing": None if head is None else standing(head),
            "place": place,
            "has": row.taken_at is not None,
            "since": (row.taken_at or row.requested_at) if row.verified else None,
        }
        found.append(told)
    return found


def queues(store: Store) -> dict[str, Json]:
    """Rows that came and were not handled, are to be sent, or were set aside, and the processes that serve."""
    counts = store.counts()
    return {
        "inbox": {"rows": counts.inbox, "oldest": counts.oldest_inbox},
        "outbox": {"rows": counts.outbox, "oldest": counts.oldest_outbox},
        "letters": [_letter(row) for row in store.inbox.dead_letters(_MOST)],
        "dead": counts.dead,
        "quarantined": counts.quarantined,
        "locks": locks(store),
        "serving": store.serving(),
        "troubles": [clean(trouble) for trouble in store.troubles()],
        "suspended": store.suspended(),
    }


def _letter(row: InboxRow) -> dict[str, Json]:
    told = letter_json(row)
    payload = text_of(told.pop("payload"))
    return {**told, "message": one_line(str(told.get("message") or ""), 500), "payload": payload}


def spend(store: Store, today: str, days: int, cap: Decimal | None) -> dict[str, Json]:
    """The cost of the model calls of the last days, today included."""
    since = (date.fromisoformat(today) - timedelta(days=days - 1)).isoformat()
    found = spend_json(store.spend.rows(since), days, cap, today)
    for name in ("byFlow", "bySession"):
        dearest = sorted(found[name].items(), key=lambda item: -Decimal(item[1]["cost"]))
        found[name] = dict(dearest[:_LISTED])
    for session_id, cost in found["bySession"].items():
        cost["flow"] = _flow(store, session_id)
    most = max((float(day["cost"]) + float(day["unsure"]) for day in found["byDay"].values()), default=0.0)
    return {**found, "most": most or 1.0}
