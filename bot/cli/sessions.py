"""`sessions list`, `show` and `export`; `spend`: what agents have cost, by day, by flow and by session.
Looking claims nothing and changes nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from bot.cli.lookup import also_in_workspace, find_session, need_database
from bot.rendering.card import Behind
from bot.rendering.text import plain
from bot.terminal.console import (
    Exit,
    Paint,
    Place,
    UsageError,
    clean,
    database_exists,
    one_line,
    opened,
    plural,
    print_json,
    table,
)
from bot.terminal.narration import ago, moment
from bot.terminal.show import View, show_lines
from engine.decide.limits import standing
from engine.flow import Flow
from engine.flow.load import flow_from_body
from engine.journal.events import Event, decode_event
from engine.journal.fold import derive_state
from engine.journal.history import inspection, tree
from engine.journal.queries import REJECTED, differing
from engine.journal.records import NANO, Head, SpendRow
from engine.journal.state import State
from engine.language.codec import Json, encode
from engine.language.errors import Corrupt, FlowError, MalformedJournal, SaysoError, StorageError
from engine.messages.money import dollars
from engine.nodes.runtime.digests import CodeDigests
from engine.run.executor import utc_now
from engine.run.sessions import stored_state
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
    found = _head_json(head, asked.get(head.session_id, []))
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


def _head_json(head: Head, asked: Sequence[PromptState]) -> dict[str, Json]:
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


@dataclass(frozen=True)
class Look:
    """What of a session is shown: the journal too, as it was at event `at`, every pass, as JSON."""

    events: bool
    at: int | None
    whole: bool
    as_json: bool


@also_in_workspace
def show_session(place: Place, /, text: str, **options: Any) -> int:
    """Print one session; damaged records are said, and shown as far as they can be. Raises `UnknownSession`."""
    settings, look = place.settings(), Look(**options)
    need_database(settings, f"no session {text!r}")
    with opened(settings) as store:
        head = find_session(store, text)
        try:
            return _show(store, head, place, look)
        except (Corrupt, MalformedJournal) as error:
            if look.as_json:
                print_json({**_head_json(head, []), "problem": str(error)})
            else:
                print(_damaged(head, str(error)))
            return Exit.STORE


def _show(store: Store, head: Head, place: Place, look: Look) -> int:
    journal = [decode_event(row) for row in store.journal(head.session_id)]
    if look.at is not None and not 1 <= look.at <= len(journal):
        raise UsageError(f"There is no event {look.at}; {head.session_id} has events 1 to {len(journal)}.")
    events = journal[: look.at]
    state = derive_state(events)
    flow, unread = _flow_then(store, head, state)
    if look.as_json:
        document = inspection(state, head)
        document["tree"] = tree(events, flow).to_json()
        if look.events:
            document["events"] = [event.to_wire() for event in events]
        print_json(document)
        return Exit.OK
    earlier = len(events) < len(journal)
    queue = store.locks(state.lock.name) if state.lock is not None else []
    found = standing(queue, head.session_id)
    view = View(
        state.updated_at if earlier else utc_now(),
        Paint(sys.stdout),
        len(journal) if earlier else None,
        look.whole,
        None if earlier or found is None else Behind(*found),
        () if earlier or state.ended or flow is None else differing(state, CodeDigests().of(flow)),
        unread,
        () if earlier or state.ended or flow is None else tuple(flow.absent.values()),
    )
    for line in show_lines(state, head, flow, events, view, place.command):
        print(line)
    if look.events:
        print()
    for event in events if look.events else ():
        print(_event_line(event))
    return Exit.OK


def _flow_then(store: Store, head: Head, state: State) -> tuple[Flow | None, str | None]:
    """The flow that a session had then, if it is still stored; or why it cannot be read."""
    try:
        flow = flow_from_body(store.flow(head.flow_digest))
        with suppress(StorageError):
            flow = flow_from_body(store.flow(state.flow_digest))
    except FlowError as error:
        return None, error.problems[0].message
    return flow, None


def _event_line(event: Event) -> str:
    """An event on one line, what is particular to it as JSON."""
    wire = event.to_wire()
    facts = {name: value for name, value in wire.items() if name not in ("seq", "timestamp", "type", "path")}
    path = f" {event.path}" if event.path else ""
    return (
        f"{event.seq:5} {event.timestamp} {event.type}{clean(path)} {one_line(encode(facts).decode(), 200)}"
    )


def _damaged(head: Head, problem: str) -> str:
    reason = head.quarantined or problem
    return (
        f"{head.session_id}  {clean(head.flow_name)}  set aside\n"
        f"  Its records do not verify: {one_line(reason, 300)}\n"
        "  Nothing of it runs and nothing was changed. Restore the database from a backup, or start the flow anew."
    )


@also_in_workspace
def export_session(place: Place, text: str, output: Path | None) -> int:
    """Write the portable file, readable by its owner only. Raises `UnknownSession`, `Corrupt`, `UsageError`."""
    settings = place.settings()
    need_database(settings, f"no session {text!r}")
    with opened(settings) as store:
        data = asyncio.run(_export(store, find_session(store, text).session_id))
    if output is None:
        sys.stdout.buffer.write(data + b"\n")
        sys.stdout.flush()
        return Exit.OK
    try:
        _write_private(output, data)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}.") from error
    print(
        f"Written to {output}. Go on with it: {place.command('sessions', 'resume', '--snapshot', str(output))}"
    )
    return Exit.OK


async def _export(store: Store, session_id: str) -> bytes:
    from engine.run.engine import Engine

    engine = Engine(store, policy=lambda *_: "looking only", runners={}, home=Path())
    engine.writer.start()
    try:
        return await engine.export(session_id)
    finally:
        engine.writer.close()


def _write_private(path: Path, data: bytes) -> None:
    import os

    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


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
