"""`sessions list`; `spend`: what agents have cost, by day, by flow and by session. Looking claims nothing and changes
nothing. Neither loads what reads flows, nor an event loop: a list is mostly imports.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

from bot.terminal.console import (
    Exit,
    Place,
    UsageError,
    ago,
    clean,
    database_exists,
    opened,
    plural,
    print_json,
    print_table,
)
from bot.terminal.lists import Sum, head_json, in_dollars, spend_json, sums, waits_for
from bot.terminal.narration import standing
from engine.journal.phases import REJECTED
from engine.journal.records import NANO, Head, SpendRow
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
    waits: dict[str, str] = {}
    codes: dict[str, str | None] = {}
    if database_exists(settings):
        with opened(settings) as store:
            read = store.sessions.heads(statuses=wanted, limit=limit)
            while read:
                codes |= {head.session_id: _code(store, head) for head in read if head.status == "failed"}
                for head in read:
                    # A decision is no failure.
                    word = REJECTED if codes.get(head.session_id) == REJECTED else standing(head)
                    if not statuses or word in statuses or (head.status in statuses and word != REJECTED):
                        heads.append(head)
                full = len(read) < limit or len(heads) >= limit
                last = read[-1].session_id
                read = [] if full else store.sessions.heads(statuses=wanted, limit=limit, before=last)
            heads = heads[:limit]
            for head in heads:
                if head.status not in OPEN:
                    continue
                beside = store.derived(head.session_id)
                asked[head.session_id] = waiting(store.prompts, session_id=head.session_id)
                locks = [row.name for row in beside.locks if row.taken_at is None]
                due = min((timer.due_at for timer in beside.timers), default=None)
                lock = locks[-1] if locks else None
                waits[head.session_id] = waits_for(head, asked[head.session_id], lock, due)
    if as_json:
        found = []
        for head in heads:
            code = codes.get(head.session_id)
            rejected = {"standing": REJECTED} if code == REJECTED else {}
            found.append({**head_json(head, asked.get(head.session_id, [])), "code": code, **rejected})
        print_json({"sessions": found})
    elif not heads:
        print("There are no sessions." if show_all or statuses else "No session is open. Ended ones: --all")
    else:
        now, rows = utc_now(), []
        for head in heads:
            status = REJECTED if codes.get(head.session_id) == REJECTED else standing(head)
            where, changed = "slack" if head.thread_key else "terminal", ago(head.updated_at, now)
            what = waits.get(head.session_id) or waits_for(head, [], None, None)
            rows.append((head.session_id, clean(head.flow_name), status, where, changed, what))
        print_table(("SESSION", "FLOW", "STATUS", "WHERE", "CHANGED", "WAITS FOR"), rows)
    return Exit.OK


def _code(store: Store, head: Head) -> str | None:
    """The code of the error that a session failed with; None where its records cannot be read."""
    try:
        return (stored_state(store, head.session_id).error or {}).get("type")
    except SaysoError:
        return None


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
        heads = ("SESSIONS", "CALLS", "COST", "NOT SURE")
        by_day = sorted(sums(rows, lambda row: row.day).items())
        by_flow = _dearest(sums(rows, lambda row: row.flow_name))
        by_session = _dearest(sums(rows, lambda row: row.session_id))
        for name, found in (("DAY", by_day), ("FLOW", by_flow)):
            print_table((name, *heads), [(clean(key), *each.cells()) for key, each in found])
            print()
        flows = {row.session_id: row.flow_name for row in rows}
        listed = [
            (clean(key), clean(flows[key]), *each.cells()[1:]) for key, each in by_session[:_MOST_SESSIONS]
        ]
        print_table(("SESSION", "FLOW", *heads[1:]), listed)
        if len(by_session) > _MOST_SESSIONS:
            print(f"and {plural(len(by_session) - _MOST_SESSIONS, 'session')} more that cost less")
        print()
    amount = sum(row.amount for row in rows if row.day == today.isoformat())
    if cap is None:
        print(f"Today (UTC): {in_dollars(amount)}. No cap is set for a day (SAYSO_MAX_COST_PER_DAY).")
    else:
        of, left = int(cap * NANO), max(0, int(cap * NANO) - amount)
        print(
            f"Today (UTC): {in_dollars(amount)} of {in_dollars(of)} (SAYSO_MAX_COST_PER_DAY), "
            f"{in_dollars(left)} left."
        )
    return Exit.OK


def _dearest(sums: dict[str, Sum]) -> list[tuple[str, Sum]]:
    return sorted(sums.items(), key=lambda item: (-item[1].paid - item[1].unsure, item[0]))
