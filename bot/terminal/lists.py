"""Sessions, dead letters and spending as rows of lists, for people and machines. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from bot.rendering.text import message_line, read
from bot.terminal.console import clean, moment, one_line
from bot.terminal.narration import standing
from engine.journal.records import NANO, Head, InboxRow, SpendRow
from engine.language.codec import Json, decode
from engine.messages.money import dollars
from prompt_state.question_row import PromptState


def waits_for(head: Head, questions: Sequence[PromptState], lock: str | None, due_at: str | None) -> str:
    """Describe a session's wait: a lock, its thread, people, a `resume`, or a time."""
    if lock is not None:
        return one_line(f"lock {lock}", 60)
    found = [clean(message_line(read(prompt.message), 60)) for prompt in questions]
    if head.phase == "unreachable":
        found.insert(0, "its thread, where the bot cannot post")
    elif head.phase == "held":
        found.insert(0, "somebody to resume it")
    elif not found and head.phase == "waiting" and due_at is not None:
        found.append(f"a time: {moment(due_at)}")
    return "; ".join(found)


def head_json(head: Head, asked: Sequence[PromptState]) -> dict[str, Json]:
    """A session for a machine: where it is, without its records."""
    return {
        "sessionId": head.session_id,
        "flow": head.flow_name,
        "status": head.status,
        "standing": standing(head),
        "phase": "quarantined" if head.quarantined else head.phase,
        "threadKey": head.thread_key,
        "createdAt": head.created_at,
        "updatedAt": head.updated_at,
        "endedAt": head.ended_at,
        "owner": head.owner,
        "quarantined": head.quarantined,
        "prompts": [prompt.prompt_id for prompt in asked],
    }


def letter_json(row: InboxRow) -> dict[str, Json]:
    """A dead letter for a machine: what came, and why it failed."""
    return {
        "id": row.id,
        "key": row.key,
        "kind": row.kind,
        "threadKey": row.thread_key,
        "sessionId": row.session_id,
        "receivedAt": row.received_at,
        "payload": decode(row.payload),
        **decode(row.result or b"{}"),
    }


# --- spend -------------------------------------------------------------------------------------------------


@dataclass
class Sum:
    """Sum of model calls, in billionths of a dollar."""

    calls: int = 0
    paid: int = 0
    unsure: int = 0
    """Set aside for calls of which nobody knows what they cost, or which are in progress."""
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
        unsure = in_dollars(self.unsure) if self.unsure else ""
        return str(len(self.sessions)), str(self.calls), in_dollars(self.paid), unsure

    def as_json(self) -> dict[str, Json]:
        """The same for machines; amounts are exact dollars."""
        return {
            "sessions": len(self.sessions),
            "calls": self.calls,
            "cost": _exact(self.paid),
            "unsure": _exact(self.unsure),
        }


def in_dollars(amount: int) -> str:
    """An amount of the store as people read it."""
    return dollars(Decimal(amount) / NANO)


def spend_json(rows: Sequence[SpendRow], days: int, cap: Decimal | None, today: str) -> dict[str, Json]:
    """Return the costs of so many days, by day, flow and session, for a machine; `cap` is in dollars a day."""
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
            name: {key: each.as_json() for key, each in sorted(sums(rows, part).items())}
            for name, part in parts.items()
        },
    }


def sums(rows: Iterable[SpendRow], part: Callable[[SpendRow], str]) -> dict[str, Sum]:
    """The calls by what `part` gives for each."""
    found: dict[str, Sum] = {}
    for row in rows:
        found.setdefault(part(row), Sum()).add(row)
    return found


def _exact(amount: int) -> str:
    return format(Decimal(amount) / NANO, "f")
