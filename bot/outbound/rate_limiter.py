"""When Slack may be called: its advice of a message a second and channel, what it asked us to wait for, and whether it
seems to be there at all.

Times are seconds of a clock that only goes forward.
"""

from __future__ import annotations

from collections.abc import Callable

POST = "chat.postMessage"

_AWAY = 3
"""After so many calls in a row without an answer Slack is taken for away."""


class Hold(Exception):
    """Nothing can be done for this lane yet; try again in `seconds`. Nothing was sent."""

    def __init__(self, seconds: float, why: str = "") -> None:
        self.seconds = seconds
        super().__init__(f"{why or 'held'} for {seconds:.2f} s")


class Pace:
    """A token bucket for each channel, and the waits that Slack asked for, by method and channel."""

    def __init__(self, clock: Callable[[], float], *, rate: float | None = 1.0, burst: int = 5) -> None:
        """`rate` is messages a second and channel; None for no limit of our own."""
        self._clock = clock
        self._rate = rate
        self._burst = burst
        self._buckets: dict[str, tuple[float, float]] = {}
        self._until: dict[tuple[str, str], float] = {}
        self._unanswered = 0

    # --- whether Slack is there ----------------------------------------------------------------------------

    @property
    def away(self) -> bool:
        """Whether Slack seems to be away: then one call at a time is enough to find out that it is back."""
        return self._unanswered >= _AWAY

    def answered(self) -> None:
        """Slack has answered, whatever it said."""
        self._unanswered = 0

    def unanswered(self) -> None:
        """A call had no answer, or one that says nothing."""
        self._unanswered += 1

    # --- waits ---------------------------------------------------------------------------------------------

    def take(self, method: str, channel: str) -> None:
        """Reserve a call. Raises `Hold` when it has to wait."""
        now = self._clock()
        wait = self._until.get(_scope(method, channel), now) - now
        if wait > 0:
            raise Hold(wait, f"Slack limits {method} in {channel}")
        self._until.pop(_scope(method, channel), None)
        if method == POST and self._rate is not None:
            self._spend(channel, now, self._rate)

    def block(self, method: str, channel: str, seconds: float) -> None:
        """Slack asked to wait so long with this method: in this channel for posts, in the workspace for all else."""
        scope = _scope(method, channel)
        self._until[scope] = max(self._until.get(scope, 0.0), self._clock() + seconds)

    def _spend(self, channel: str, now: float, rate: float) -> None:
        tokens, at = self._buckets.get(channel, (float(self._burst), now))
        tokens = min(float(self._burst), tokens + (now - at) * rate)
        if tokens < 1:
            raise Hold((1 - tokens) / rate, f"a message a second in {channel}")
        self._buckets[channel] = (tokens - 1, now)
        if len(self._buckets) > 10_000:
            self._buckets.clear()


def _scope(method: str, channel: str) -> tuple[str, str]:
    """What a limit holds for: Slack counts posts by channel, and the other methods in the whole workspace."""
    return method, channel if method == POST else ""
