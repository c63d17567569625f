"""Waiting times of the outbox that are not settings."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

LOOK_DELAYS = (2.0, 10.0)
"""Seconds after an attempt at which a message with a lost response is searched for; it may appear late."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """Waiting times of the outbox. The defaults are for Slack; tests wait less."""

    look_delays: tuple[float, ...] = LOOK_DELAYS
    """Seconds after an attempt at which a message with a lost response is searched for."""
    card_seconds: float = 1.0
    """Seconds for which a change of a card waits for the next one, which is drawn with it."""
    mark_seconds: float = 3.0
    """Seconds before the first reaction on the message that started a run: a run that ends by then needs only one."""
    backoff: tuple[float, float] = (1.0, 60.0)
    """The first and the longest wait after an error that will pass."""
    unreachable_seconds: float = 300.0
    """Seconds between tries to post in an unreachable thread."""
    poll_seconds: float = 0.25
    """Seconds between reads of the outbox without a wake-up."""
    jitter: Callable[[], float] = random.random


SLACK_PACE = Tuning()
