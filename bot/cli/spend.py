"""`spend`: what agents have cost, by day, by flow and by session."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal

from bot.terminal.cli_context import Place, database_exists, opened
from bot.terminal.exit_codes import Exit
from bot.terminal.output import Paint, clean, plural, print_json, table
from engine.journal.records import NANO, SpendRow
from engine.language.codec import Json
from engine.messages.money import dollars
from engine.run.active import utc_now

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
