"""How the outbox waits. Apart from the outbox, so that no library of Slack's is loaded to know it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

LOOK_DELAYS = (2.0, 10.0)
"""Seconds after an attempt at which a message is looked for whose answer was lost; it may appear late."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """How the outbox waits. The defaults are for Slack; tests wait less."""

    look_delays: tuple[float, ...] = LOOK_DELAYS
    """Seconds after an attempt at which a message is looked for whose answer was lost."""
    rate: float | None = 1.0
    """Slack's advice: messages a second and channel; None for no limit of our own."""
    burst: int = 5
    card_seconds: float = 1.0
    """The least time between two edits of a card."""
    live_seconds: float = 1.2
    """The least time between two edits of messages that are still being written, all of them together."""
    backoff: tuple[float, float] = (1.0, 60.0)
    """The first and the longest wait after an error that will pass."""
    unreachable_seconds: float = 300.0
    """How often it is tried whether a thread can be posted in again."""
    lanes: int = 8
    """How many lanes are served at once."""
    poll_seconds: float = 0.25
    """How often the outbox is read although nobody said that there is anything new."""
    jitter: Callable[[], float] = random.random


SLACK_PACE = Tuning()
