"""`sessions list`; `spend`: what agents have cost, by day, by flow and by session. Looking claims nothing and changes
nothing. Neither loads what reads flows, nor an event loop: a list is mostly imports.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from heapq import merge
from typing import NamedTuple

from bot.terminal.console import (
    Exit,
    Place,
    UsageError,
    ago,
    clean,
    plural,
    print_json,
    print_list,
    print_table,
    read_there,
    stores,
)
from bot.terminal.lists import Sum, head_json, in_dollars, spend_json, sums, waits_for
from bot.terminal.narration import as_played, error_of, standing, why_failed
from engine.journal.phases import REJECTED, in_words
from engine.journal.records import NANO, Head
from engine.language.codec import Json
from engine.language.errors import SaysoError
from engine.run.stored import stored_state, utc_now
from engine.storage.store import Store
from prompt_state.question_row import PromptState, waiting

_STATUSES = {
    "running": "running",
    "waiting": "paused",
    "paused": "paused",
    "out of reach": "paused",
    "completed": "complete",
    REJECTED: "failed",
    "failed": "failed",
    "cancelled": "aborted",
}
"""Values of `--status`, as the list has them, and the status on the wire of the sessions that can stand so."""
OPEN = ("idle", "running", "paused")


def list_sessions(place: Place, statuses: Sequence[str], *, show_all: bool, limit: int, as_json: bool) -> int:
    """Print sessions of this home and of its local workspace, newest first. Raises `UsageError` for a status that does not
    exist."""
    words = [in_words(status) for status in statuses]
    for word in words:
        if word not in _STATUSES:
            raise UsageError(f"There is no status {word!r}; there are: {', '.join(_STATUSES)}.")
    wanted = tuple({_STATUSES[word] for word in words}) or (() if show_all else OPEN)
    found = [_listed(store, wanted, words, limit, local=local) for local, store in stores(place)]
    listed = list(merge(*found, key=lambda one: one.head.created_at, reverse=True))[:limit]
    now, nothing = utc_now(), "No open sessions. Add --all to list ended ones."
    if show_all or statuses:
        nothing = "There are no sessions."
    items, rows = map(_Listed.to_json, listed), (one.row(now) for one in listed)
    headers = ("SESSION", "FLOW", "STATUS", "WHERE", "CHANGED", "WAITS FOR / REASON")
    return print_list("sessions", items, headers, rows, nothing, as_json=as_json)


class _Listed(NamedTuple):
    """A session in the list: `error` is what it failed with, `local` is it in the local workspace."""

    head: Head
    error: dict[str, Json] | None
    local: bool
    asked: Sequence[PromptState] = ()
    waits: str = ""

    @property
    def code(self) -> str | None:
        """The code of its error."""
        return None if self.error is None else self.error.get("type")

    @property
    def standing(self) -> str:
        # A decision is no failure.
        return REJECTED if self.code == REJECTED else standing(self.head)

    def row(self, now: str) -> tuple[str, ...]:
        """The cells for people."""
        head = self.head
        where = "dev" if self.local else "slack" if head.thread_key else "terminal"
        status, changed = in_words(self.standing), ago(head.updated_at, now)
        why = self.waits or why_failed(self.error)
        return head.session_id, clean(head.flow_name), status, where, changed, why

    def to_json(self) -> dict[str, Json]:
        """The same for a machine."""
        told = {"standing": self.standing, "error": self.error, "code": self.code, "workspace": self.local}
        return head_json(self.head, self.asked) | told


def _listed(
    store: Store, statuses: Sequence[str], words: Sequence[str], limit: int, *, local: bool
) -> list[_Listed]:
    """The newest sessions of a store with one of these statuses and, if any are given, with one of these words."""
    found: list[_Listed] = []
    read = store.sessions.heads(statuses=statuses, limit=limit)
    while read:
        these = [_Listed(head, _error(store, head), local) for head in read]
        found += [one for one in these if not words or in_words(one.standing) in words]
        full = len(read) < limit or len(found) >= limit
        read = (
            [] if full else store.sessions.heads(statuses=statuses, limit=limit, before=read[-1].session_id)
        )
    return [_waiting(store, one) for one in found[:limit]]


def _waiting(store: Store, one: _Listed) -> _Listed:
    """A session of the list with what it waits for."""
    head = one.head
    if head.status not in OPEN:
        return one._replace(waits=waits_for(head, [], None, None))
    beside, asked = store.derived(head.session_id), waiting(store.prompts, session_id=head.session_id)
    locks = [row.name for row in beside.locks if row.taken_at is None]
    due = min((timer.due_at for timer in beside.timers), default=None)
    return one._replace(asked=asked, waits=waits_for(head, asked, locks[-1] if locks else None, due))


def _error(store: Store, head: Head) -> dict[str, Json] | None:
    """The error that a session failed with; None where its records cannot be read."""
    if head.status != "failed":
        return None
    try:
        state = stored_state(store, head.session_id)
    except SaysoError:
        return None
    return as_played(state, error_of(state))


# --- spend -------------------------------------------------------------------------------------------------


_MOST_SESSIONS = 10


def show_spend(place: Place, days: int, *, as_json: bool) -> int:
    """Print what model calls of the last `days` days cost, today included."""
    settings, today = place.settings(), date.fromisoformat(utc_now()[:10])
    since = (today - timedelta(days=days - 1)).isoformat()
    rows = read_there(settings, lambda store: store.spend.rows(since))
    cap = settings.agents.day_cap
    if as_json:
        print_json(spend_json(rows, days, cap, today.isoformat()))
        return Exit.OK
    if not rows:
        print(f"No agent has called a model in the last {plural(days, 'day')}.{place.elsewhere('spend')}")
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
            print(f"and {plural(len(by_session) - _MOST_SESSIONS, 'cheaper session')}")
        print()
    amount = sum(row.amount for row in rows if row.day == today.isoformat())
    if cap is None:
        print(f"Today (UTC): {in_dollars(amount)}. No daily cap is set (SAYSO_MAX_COST_PER_DAY).")
    else:
        of, left = int(cap * NANO), max(0, int(cap * NANO) - amount)
        print(
            f"Today (UTC): {in_dollars(amount)} of {in_dollars(of)} (SAYSO_MAX_COST_PER_DAY), "
            f"{in_dollars(left)} left."
        )
    return Exit.OK


def _dearest(sums: dict[str, Sum]) -> list[tuple[str, Sum]]:
    return sorted(sums.items(), key=lambda item: (-item[1].paid - item[1].unsure, item[0]))
