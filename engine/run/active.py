"""A session that a process works for, what is cached of a released one, and what a step's extensions and subscribers are."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple, Protocol

from engine.flow import Flow
from engine.journal.events import Event
from engine.journal.records import Row
from engine.journal.state import State
from engine.language import timestamps
from engine.language.errors import SessionError


class Extension(Protocol):
    """A pure function: what rows follow from a step. Written in the step's own commit."""

    def __call__(self, before: State, after: State, events: Sequence[Event]) -> Sequence[Row]: ...


class Subscriber(Protocol):
    """Told about committed events, after the commit."""

    def __call__(self, state: State, events: Sequence[Event]) -> None: ...


@dataclass
class ActiveSession:
    """A session that this process works for."""

    session_id: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    claimed: bool = False
    fresh: bool = False
    """It was claimed, and no step was taken since."""
    found: bool = False
    """The last claim loaded it from the store: another process may have left work behind in it."""
    epoch: int = 0
    state: State = field(default_factory=State)
    flow: Flow | None = None
    pausing: bool = False
    """A person pauses the session: nothing new begins, what runs is told to leave."""
    stale: bool = False
    """The last step failed: whether it was stored is not known, so it is loaded again before the next."""
    snapshot_seq: int = 0
    snapshot_bytes: int = 0
    """Which event the stored snapshot is of, and how large it is."""
    day_left: Decimal | None = None
    """Dollars that may still be spent today, where the last commit was refused for that (`DayBudgetSpent`)."""
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    stops: dict[str, asyncio.Event] = field(default_factory=dict)
    """Tells each task that it is to leave."""

    def stop_all(self) -> None:
        """Tell every task to leave."""
        for stop in self.stops.values():
            stop.set()


class Cached(NamedTuple):
    """A session that this process released under `epoch`."""

    epoch: int
    state: State
    flow: Flow
    snapshot_seq: int
    snapshot_bytes: int


_SESSION_ID = re.compile(r"session-[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


def checked_id(session_id: str) -> str:
    """A session id that a caller gave, or a file: it names a folder and files. Raises `SessionError`."""
    if _SESSION_ID.fullmatch(session_id) is None:
        raise SessionError(
            f"{session_id!r} is no session id: it is `session-` and 1 to 100 letters, digits, `-` or `_`."
        )
    return session_id


def utc_now() -> str:
    """Now, as it is stored."""
    return timestamps.to_text(datetime.now(UTC))


_DRAWN: list[str] = []


def random_text() -> str:
    """Randomness for ids. It is drawn for many at once: asking the system for it lets other threads run, and while the
    writer is busy it takes milliseconds until it is our turn again."""
    while not _DRAWN:
        drawn = os.urandom(16 * 256).hex()
        _DRAWN.extend(drawn[at : at + 32] for at in range(0, len(drawn), 32))
    return _DRAWN.pop()
