"""When Slack may be called: its advice of a message a second and channel, and what it asked us to wait for.

Times are seconds of a clock that only goes forward.
"""

from __future__ import annotations

from collections.abc import Callable

POST = "chat.postMessage"


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

    def take(self, method: str, channel: str) -> None:
        """Reserve a call. Raises `Hold` when it has to wait."""
        now = self._clock()
        wait = self._until.get((method, channel), now) - now
        if wait > 0:
            raise Hold(wait, f"Slack limits {method} in {channel}")
        self._until.pop((method, channel), None)
        if method == POST and self._rate is not None:
            self._spend(channel, now, self._rate)

    def block(self, method: str, channel: str, seconds: float) -> None:
        """Slack asked to wait so long with this method in this channel."""
        self._until[method, channel] = self._clock() + seconds

    def _spend(self, channel: str, now: float, rate: float) -> None:
        tokens, at = self._buckets.get(channel, (float(self._burst), now))
        tokens = min(float(self._burst), tokens + (now - at) * rate)
        if tokens < 1:
            raise Hold((1 - tokens) / rate, f"a message a second in {channel}")
        self._buckets[channel] = (tokens - 1, now)
        if len(self._buckets) > 10_000:
            self._buckets.clear()
