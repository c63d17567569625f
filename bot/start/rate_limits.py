"""How often flows are started: by one person, in one channel, in the workspace. Counted in memory, so a restart forgets
what was before it. Whoever is refused is told the limit, and when it is over."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from bot.config.settings import Rate, Rates


class Over(NamedTuple):
    """A limit is reached. `first`: nobody was told so since it was; `text` says which one and until when."""

    text: str
    first: bool


class RateLimits:
    """Counts starts within moving windows."""

    def __init__(self, rates: Rates, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates = rates
        self._clock = clock
        self._starts: dict[tuple[str, str], deque[float]] = {}
        self._told: dict[tuple[str, str], float] = {}

    def over(self, person: str | None, channel: str) -> Over | None:
        """The limit that one more start would pass, or None. Nothing is counted."""
        now = self._clock()
        for key, rate, whose in self._scopes(person, channel):
            starts = self._within(key, rate, now)
            if len(starts) >= rate.most:
                until = starts[0] + rate.seconds
                first = self._told.get(key, 0.0) <= now
                self._told[key] = until
                return Over(_words(whose, rate, until - now), first)
        return None

    def count(self, person: str | None, channel: str) -> None:
        """Something was started."""
        now = self._clock()
        for key, rate, _ in self._scopes(person, channel):
            self._within(key, rate, now).append(now)

    def _scopes(self, person: str | None, channel: str) -> list[tuple[tuple[str, str], Rate, str]]:
        limits = [
            (("person", person), self._rates.person, "You have started"),
            (("channel", channel), self._rates.channel, "In this channel people and triggers have started"),
            (("workspace", ""), self._rates.workspace, "In this workspace people and triggers have started"),
        ]
        return [
            ((kind, scope), rate, whose)
            for (kind, scope), rate, whose in limits
            if rate is not None and scope is not None
        ]

    def _within(self, key: tuple[str, str], rate: Rate, now: float) -> deque[float]:
        starts = self._starts.setdefault(key, deque())
        while starts and starts[0] <= now - rate.seconds:
            starts.popleft()
        return starts


def _words(whose: str, rate: Rate, left: float) -> str:
    flows = "1 flow" if rate.most == 1 else f"{rate.most} flows"
    wait = max(1, round(left))
    return (
        f"{whose} {flows} within {_span(rate.seconds)}, which is the limit. Nothing was started; "
        f"try again in {wait} s."
    )


def _span(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
