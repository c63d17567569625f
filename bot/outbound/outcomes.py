"""What sending a row can end with, and what it reads: shared by all kinds of rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bot.outbound.calls import Posted
from engine.flow import Flow
from engine.journal.records import InboxItem
from engine.journal.state import State
from engine.language.codec import Json
from engine.nodes.types.meter import Meter


@dataclass(frozen=True, slots=True)
class Sent:
    """The row is done: what is recorded of it, and the inbox items that follow."""

    result: dict[str, Json]
    items: Sequence[InboxItem] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The row will never be sent: why, and the inbox items that follow."""

    result: dict[str, Json]
    items: Sequence[InboxItem] = ()


Outcome: TypeAlias = Sent | Failed

DROPPED: dict[str, Json] = {"dropped": True}


@dataclass(frozen=True, slots=True)
class Sessions:
    """Reads a session as it is now: its state, and the flow that it pinned."""

    state: Callable[[str], Awaitable[State]]
    flow: Callable[[str], Awaitable[Flow]]
    meters: Callable[[str], Mapping[str, Meter]] = lambda session_id: {}
    """How far its running nodes say that they are, by path."""


def position(posted: Posted) -> dict[str, Json]:
    """Where a message stands, as it is recorded."""
    return {"channel": posted.channel, "ts": posted.ts}
