"""`sessions list`; `spend`: what agents have cost, by day, by flow and by session. Looking claims nothing and changes
nothing. Neither loads what reads flows, nor an event loop: a list is mostly imports.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal

from bot.terminal.console import (
    Exit,
    Paint,
    Place,
    UsageError,
    ago,
    clean,
    database_exists,
    opened,
    plural,
    print_json,
    table,
)
from bot.terminal.lists import Sum, head_json, in_dollars, spend_json, sums, waits_for
from bot.terminal.narration import standing
from engine.journal.phases import REJECTED
from engine.journal.records import NANO, Head, SpendRow
from engine.language.codec import Json
from engine.language.errors import SaysoError
from engine.run.stored import stored_state, utc_now
from engine.storage.store import Store
from prompt_state.question_row import PromptState, waiting

STATUSES = ("running", "paused", "complete", "failed", "aborted")
"""Values of `--status` beside the words of `_STANDINGS`: `paused` is every waiting one, `failed` excludes rejections."""
_STANDINGS = {"waiting": "paused", REJECTED: "failed"}
"""A part of those that have this status."""
OPEN = ("idle", "running", "paused")


def list_sessions(place: Place, statuses: Sequence[str], *, show_all: bool, limit: int, as_json: bool) -> int:
    """Print sessions, newest first. Raises `UsageError` for a status that does not exist."""
    for status in statuses:
        if status not in (*STATUSES, *_STANDINGS):
            known_words = ", ".join((*STATUSES, *_STANDINGS))
            raise UsageError(f"There is no status {status!r}; there are: {known_words}.")
    wanted = tuple(_STANDINGS.get(one, one) for one in statuses) or (() if show_all else OPEN)
    settings = place.settings()
    heads: list[Head] = []
    asked: dict[str, list[PromptState]] = {}
    queued: dict[str, str] = {}
    due: dict[str, str] = {}
    codes: dict[str, str | None] = {}
    if database_exists(settings):
        with opened(settings) as store:
            read = store.sessions.heads(statuses=wanted, limit=limit)
            while read:
                codes |= {head.session_id: _code(store, head) for head in read if head.status == "failed"}
                heads += [head for head in read if not statuses or _is_asked_for(head, statuses, codes)]
                full = len(read) < limit or len(heads) >= limit
                last = read[-1].session_id
                read = [] if full else store.sessions.heads(statuses=wanted, limit=limit, before=last)
            heads = heads[:limit]
            for head in heads:
                if head.status not in OPEN:
                    continue
                beside = store.derived(head.session_id)
                asked[head.session_id] = waiting(store.prompts, session_id=head.session_id)
                queued.update((row.session_id, row.name) for row in beside.locks if row.taken_at is None)
                if beside.timers:
                    due[head.session_id] = min(timer.due_at for timer in beside.timers)
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
        waits = waits_for(head, questions, queued.get(head.session_id), due.get(head.session_id))
        status = REJECTED if codes.get(head.session_id) == REJECTED else standing(head)
        place = "slack" if head.thread_key else "terminal"
        rows.append((head.session_id, clean(head.flow_name), status, place, ago(head.updated_at, now), waits))
    for line in table(("SESSION", "FLOW", "STATUS", "WHERE", "CHANGED", "WAITS FOR"), rows, paint):
        print(line)


def _is_asked_for(head: Head, statuses: Sequence[str], codes: Mapping[str, str | None]) -> bool:
    """True if a session with one of the wanted statuses is among what was asked for: a decision is no failure."""
    word = REJECTED if codes.get(head.session_id) == REJECTED else standing(head)
    return word in statuses or (head.status in statuses and word != REJECTED)


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
    code = codes.get(head.session_id)
    return {**found, "code": code, **({"standing": REJECTED} if code == REJECTED else {})}


# --- spend -------------------------------------------------------------------------------------------------


_MOST_SESSIONS = 10


def show_spend(place: Place, days: int, *, as_json: bool) -> int:
    """Print what model calls of the last `days` days cost, today included."""
    settings = place.settings()
    today = date.fromisoformat(utc_now()[:10])
    rows: list[SpendRow] = []
    if database_exists(settings):
        with opened(settings) as store:
            rows = store.spend.rows((today - timedelta(days=days - 1)).isoformat())
    cap = settings.agents.day_cap
    if as_json:
        print_json(spend_json(rows, days, cap, today.isoformat()))
        return Exit.OK
    if not rows:
        print(f"No agent has asked a model in the last {plural(days, 'day')}.")
    else:
        paint = Paint(sys.stdout)
        heads = ("SESSIONS", "CALLS", "COST", "NOT SURE")
        by_day = sorted(sums(rows, lambda row: row.day).items())
        by_flow = _dearest(sums(rows, lambda row: row.flow_name))
        by_session = _dearest(sums(rows, lambda row: row.session_id))
        for name, found in (("DAY", by_day), ("FLOW", by_flow)):
            for line in table((name, *heads), [(clean(key), *each.cells()) for key, each in found], paint):
                print(line)
            print()
        flows = {row.session_id: row.flow_name for row in rows}
        listed = [
            (clean(key), clean(flows[key]), *each.cells()[1:]) for key, each in by_session[:_MOST_SESSIONS]
        ]
        for line in table(("SESSION", "FLOW", *heads[1:]), listed, paint):
            print(line)
        if len(by_session) > _MOST_SESSIONS:
            print(f"and {plural(len(by_session) - _MOST_SESSIONS, 'session')} more that cost less")
        print()
    print(_of_today(rows, cap, today.isoformat()))
    return Exit.OK


def _of_today(rows: Iterable[SpendRow], cap: Decimal | None, today: str) -> str:
    amount = sum(row.amount for row in rows if row.day == today)
    if cap is None:
        return f"Today (UTC): {in_dollars(amount)}. No cap is set for a day (SAYSO_MAX_COST_PER_DAY)."
    left = max(0, int(cap * NANO) - amount)
    return (
        f"Today (UTC): {in_dollars(amount)} of {in_dollars(int(cap * NANO))} (SAYSO_MAX_COST_PER_DAY), "
        f"{in_dollars(left)} left."
    )


def _dearest(sums: dict[str, Sum]) -> list[tuple[str, Sum]]:
    return sorted(sums.items(), key=lambda item: (-item[1].paid - item[1].unsure, item[0]))
