"""What a session says of its lock. Pure."""

from __future__ import annotations

from typing import NamedTuple

from bot.rendering.text import safe
from engine.decide import locks
from engine.journal.state import State
from engine.language.codec import Json


class Behind(NamedTuple):
    """Whom a session waits for: the first of the queue for its lock, and its own place behind that one, from 1.
    `link` leads to the thread of the first one, where it has one."""

    holder: str
    place: int
    link: str | None = None


def lock_wait(state: State, behind: Behind | None) -> str:
    """What a session waits for, as mrkdwn: `lock deploy-x, held by session-1 · 2nd in the queue`; "" where it does
    not wait for a lock."""
    if state.lock is None or not locks.pending(state):
        return ""
    name = f"lock `{safe(state.lock.name)}`"
    if behind is None:
        return name
    where = f" (<{behind.link}|its thread>)" if behind.link else ""
    return f"{name}, held by `{safe(behind.holder)}`{where} · {ordinal(behind.place)} in the queue"


def lock_fact(state: State, behind: Behind | None) -> str:
    """The same for a terminal, or which lock the session holds; the caller makes its text harmless."""
    if state.lock is None or state.ended:
        return ""
    if not locks.pending(state):
        return f"holds {state.lock.name}"
    if behind is None:
        return f"waits for {state.lock.name}"
    place = ordinal(behind.place)
    return f"waits for {state.lock.name}, held by {behind.holder}; {place} in the queue"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `4th`, `11th`, `21st`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def holder_thread(error: dict[str, Json] | None) -> str | None:
    """The thread key of the session that held the lock when this error refused another one."""
    held_by = (error or {}).get("heldBy")
    return held_by.get("threadKey") if isinstance(held_by, dict) else None
