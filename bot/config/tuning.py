"""How the outbox waits, which no setting says."""

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
    card_seconds: float = 1.0
    """How long a change of a card waits for the next one, which is drawn with it."""
    mark_seconds: float = 3.0
    """How long the first reaction on the message that started a run waits: a run that is over by then needs only one."""
    backoff: tuple[float, float] = (1.0, 60.0)
    """The first and the longest wait after an error that will pass."""
    unreachable_seconds: float = 300.0
    """How often it is tried whether a thread can be posted in again."""
    poll_seconds: float = 0.25
    """How often the outbox is read although nobody said that there is anything new."""
    jitter: Callable[[], float] = random.random


SLACK_PACE = Tuning()
