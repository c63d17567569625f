"""`sessions list`; `spend`: what agents have cost, by day, by flow and by session. Looking claims nothing and changes
nothing. Neither loads what reads flows, nor an event loop: a list is mostly imports.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal

from bot.rendering.text import plain
from bot.terminal.console import (
    Exit,
    Paint,
    Place,
    UsageError,
    ago,
    clean,
    database_exists,
    moment,
    one_line,
    opened,
    plural,
    print_json,
    table,
)
from engine.journal.queries import REJECTED
from engine.journal.records import NANO, Head, SpendRow
from engine.language.codec import Json
from engine.language.errors import SaysoError
from engine.messages.money import dollars
from engine.run.stored import stored_state, utc_now
from engine.storage.port import Store
from prompt_state import question_row as prompt_store
from prompt_state.question_row import PromptState

STATUSES = ("running", "paused", "complete", "failed", "aborted")
OPEN = ("idle", "running", "paused")
_MOST_TIMERS = 10_000


def list_sessions(place: Place, statuses: Sequence[str], *, show_all: bool, limit: int, as_json: bool) -> int:
    """Print sessions, newest first. Raises `UsageError` for a status that does not exist."""
    for status in statuses:
        if status not in STATUSES:
            raise UsageError(f"There is no status {status!r}; there are: {', '.join(STATUSES)}.")
    wanted = tuple(statuses) or (() if show_all else OPEN)
    settings = place.settings()
    heads: list[Head] = []
    asked: dict[str, list[PromptState]] = {}
    queued: dict[str, str] = {}
    due: dict[str, str] = {}
    codes: dict[str, str | None] = {}
    if database_exists(settings):
        with opened(settings) as store:
            heads = store.heads(statuses=wanted, limit=limit)
            codes = {head.session_id: _code(store, head) for head in heads if head.status == "failed"}
            queued = (
                {row.session_id: row.name for row in store.locks() if row.taken_at is None} if heads else {}
            )
            for prompt in prompt_store.waiting(store) if heads else ():
                asked.setdefault(prompt.session_id, []).append(prompt)
            for timer in store.timers(limit=_MOST_TIMERS) if heads else ():
                due.setdefault(timer.session_id, timer.due_at)
    if as_json:
        print_json({"sessions": [_row_json(head, asked, codes) for head in heads]})
    elif not heads:
        print("There are no sessions." if show_all or statuses else "No session is open. Ended ones: --all")
    else:
        _print_table(heads, asked, queued, due, codes)
    return Exit.OK


def _print_table(
    heads: Sequence[Head],
    asked: Mapping[str, Sequence[PromptState]],
    queued: Mapping[str, str],
    due: Mapping[str, str],
    codes: Mapping[str, str | None],
) -> None:
    now, paint = utc_now(), Paint(sys.stdout)
    rows = []
    for head in heads:
        questions = asked.get(head.session_id, [])
        waits = _waits(head, questions, queued.get(head.session_id), due.get(head.session_id))
        rejected = codes.get(head.session_id) == REJECTED
        status = "set aside" if head.quarantined else REJECTED if rejected else head.status
        place = "slack" if head.thread_key else "terminal"
        rows.append((head.session_id, clean(head.flow_name), status, place, ago(head.updated_at, now), waits))
    for line in table(("SESSION", "FLOW", "STATUS", "WHERE", "CHANGED", "WAITS FOR"), rows, paint):
        print(line)


def _code(store: Store, head: Head) -> str | None:
    """The code of the error that a session failed with; None where its records cannot be read."""
    try:
        return (stored_state(store, head.session_id).error or {}).get("type")
    except SaysoError:
        return None


def _row_json(
    head: Head, asked: Mapping[str, Sequence[PromptState]], codes: Mapping[str, str | None]
) -> dict[str, Json]:
    found = head_json(head, asked.get(head.session_id, []))
    return {**found, "code": codes.get(head.session_id)}


def _waits(head: Head, questions: Sequence[PromptState], lock: str | None, due_at: str | None) -> str:
    """What a session waits for: a lock, its thread, people, somebody to let it go on, or a time."""
    if lock is not None:
        return one_line(f"lock {lock}", 60)
    found = [one_line(plain(prompt.message), 60) for prompt in questions]
    if head.phase == "unreachable":
        found.insert(0, "its thread: nothing can be posted there")
    elif head.phase == "held":
        found.insert(0, "somebody to resume it")
    elif not found and head.phase == "waiting" and due_at is not None:
        found.append(f"a time: {moment(due_at)}")
    return "; ".join(found)


def head_json(head: Head, asked: Sequence[PromptState]) -> dict[str, Json]:
    """A session for a machine: where it stands, without its records."""
    return {
        "sessionId": head.session_id,
        "flow": head.flow_name,
        "status": head.status,
        "phase": "quarantined" if head.quarantined else head.phase,
        "threadKey": head.thread_key,
        "createdAt": head.created_at,
        "updatedAt": head.updated_at,
        "endedAt": head.ended_at,
        "owner": head.owner,
        "quarantined": head.quarantined,
        "prompts": [prompt.prompt_id for prompt in asked],
    }


# --- spend -------------------------------------------------------------------------------------------------


_MOST_SESSIONS = 10


@dataclass
class Sum:
    """What some model calls came to, in billionths of a dollar."""

    calls: int = 0
    paid: int = 0
    unsure: int = 0
    """Set aside for calls of which nobody knows what they cost, or which are under way."""
    sessions: set[str] = field(default_factory=set)

    def add(self, row: SpendRow) -> None:
        """Count one more call."""
        self.calls += 1
        self.sessions.add(row.session_id)
        if row.cost is None:
            self.unsure += row.reserved
        else:
            self.paid += row.cost

    def cells(self) -> tuple[str, str, str, str]:
        """Sessions, calls, dollars, and dollars that may have been paid."""
        unsure = _told(self.unsure) if self.unsure else ""
        return str(len(self.sessions)), str(self.calls), _told(self.paid), unsure

    def as_json(self) -> dict[str, Json]:
        """The same for machines; amounts are exact dollars."""
        return {
            "sessions": len(self.sessions),
            "calls": self.calls,
            "cost": _exact(self.paid),
            "unsure": _exact(self.unsure),
        }


def show_spend(place: Place, days: int, *, as_json: bool) -> int:
    """Print what model calls of the last `days` days cost, today included."""
    settings = place.settings()
    today = date.fromisoformat(utc_now()[:10])
    rows: list[SpendRow] = []
    if database_exists(settings):
        with opened(settings) as store:
            rows = store.spend((today - timedelta(days=days - 1)).isoformat())
    cap = settings.agents.day_cap
    if as_json:
        print_json(_document(rows, days, cap, today.isoformat()))
        return Exit.OK
    if not rows:
        print(f"No agent has asked a model in the last {plural(days, 'day')}.")
    else:
        _print_tables(rows)
    print(_of_today(rows, cap, today.isoformat()))
    return Exit.OK


def _told(amount: int) -> str:
    """An amount of the store as people read it."""
    return dollars(Decimal(amount) / NANO)


def _print_tables(rows: Sequence[SpendRow]) -> None:
    paint = Paint(sys.stdout)
    heads = ("SESSIONS", "CALLS", "COST", "NOT SURE")
    by_day = sorted(_sums(rows, lambda row: row.day).items())
    by_flow = _dearest(_sums(rows, lambda row: row.flow_name))
    by_session = _dearest(_sums(rows, lambda row: row.session_id))
    for name, sums in (("DAY", by_day), ("FLOW", by_flow)):
        for line in table((name, *heads), [(clean(key), *each.cells()) for key, each in sums], paint):
            print(line)
        print()
    flows = {row.session_id: row.flow_name for row in rows}
    listed = [(clean(key), clean(flows[key]), *each.cells()[1:]) for key, each in by_session[:_MOST_SESSIONS]]
    for line in table(("SESSION", "FLOW", *heads[1:]), listed, paint):
        print(line)
    if len(by_session) > _MOST_SESSIONS:
        print(f"and {plural(len(by_session) - _MOST_SESSIONS, 'session')} more that cost less")
    print()


def _of_today(rows: Iterable[SpendRow], cap: Decimal | None, today: str) -> str:
    amount = sum(row.amount for row in rows if row.day == today)
    if cap is None:
        return f"Today (UTC): {_told(amount)}. No cap is set for a day (SAYSO_MAX_COST_PER_DAY)."
    left = max(0, int(cap * NANO) - amount)
    return (
        f"Today (UTC): {_told(amount)} of {_told(int(cap * NANO))} (SAYSO_MAX_COST_PER_DAY), "
        f"{_told(left)} left."
    )


def _document(rows: Sequence[SpendRow], days: int, cap: Decimal | None, today: str) -> dict[str, Json]:
    parts: dict[str, Callable[[SpendRow], str]] = {
        "byDay": lambda row: row.day,
        "byFlow": lambda row: row.flow_name,
        "bySession": lambda row: row.session_id,
    }
    spent = sum(row.amount for row in rows if row.day == today)
    return {
        "days": days,
        "today": {"day": today, "counted": _exact(spent), "cap": None if cap is None else format(cap, "f")},
        **{
            name: {key: each.as_json() for key, each in sorted(_sums(rows, part).items())}
            for name, part in parts.items()
        },
    }


def _sums(rows: Iterable[SpendRow], part: Callable[[SpendRow], str]) -> dict[str, Sum]:
    found: dict[str, Sum] = {}
    for row in rows:
        found.setdefault(part(row), Sum()).add(row)
    return found


def _dearest(sums: dict[str, Sum]) -> list[tuple[str, Sum]]:
    return sorted(sums.items(), key=lambda item: (-item[1].paid - item[1].unsure, item[0]))


def _exact(amount: int) -> str:
    return format(Decimal(amount) / NANO, "f")
