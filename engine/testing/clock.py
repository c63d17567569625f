"""`ManualClock`, a time that only the test moves."""

from __future__ import annotations

from engine.language import timestamps

START = "2026-11-21T09:00:00.000Z"


class ManualClock:
    """The `now` of an engine or a runtime: `Runtime(..., now=ManualClock())`."""

    def __init__(self, now: str = START) -> None:
        self.now = now

    def __call__(self) -> str:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass. A runtime sees it at its next look, at once after `Runtime.wake`."""
        self.now = timestamps.after(self.now, seconds)
