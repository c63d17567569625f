"""Protection against jumps of the machine's clock: after a jump forward, nothing expires before a second look.

A jump is time that a steady clock did not see pass: either a laptop that was suspended, or a virtual machine that comes
back with a wrong time and is corrected soon after. The first look cannot distinguish them. So after a jump of more than
an hour nothing times out and no timer fires until a second look, at least half a minute later, agrees with the first. A
process that has just started has nothing to compare with: its first look counts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from engine.language import timestamps
from engine.run.stored import utc_now

log = logging.getLogger("sayso.engine")

JUMP_SECONDS = 3600.0
"""Seconds by which a clock may be ahead of the expected time."""

CONFIRM_SECONDS = 30.0
"""Least seconds between a jump and the second look."""


class ClockWatch:
    """Compares the wall clock with a steady one. `steady` gives the seconds of a clock that only goes forward."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._offset: float | None = None
        self._jump: tuple[float, float] | None = None
        """The offset and the steady time of the first look after a jump."""

    def jumped(self, now: str) -> bool:
        """Look at the wall clock, which says `now`: True while it has jumped and was not confirmed."""
        steady = self._steady()
        offset = timestamps.from_text(now).timestamp() - steady
        if self._offset is not None and offset - self._offset > JUMP_SECONDS:
            if self._jump is None or abs(offset - self._jump[0]) > JUMP_SECONDS:
                ahead = offset - self._offset
                log.warning(
                    "the clock jumped forward by %.0f s; timers wait until it is checked again", ahead
                )
                self._jump = offset, steady
            if steady - self._jump[1] < CONFIRM_SECONDS:
                return True
        self._offset, self._jump = offset, None
        return False


def watch_of(now: Callable[[], str], steady: Callable[[], float] | None) -> ClockWatch | None:
    """Return a watch for jumps of `now`, or None without a steady clock; this machine's clock is always watched."""
    if steady is None and now is utc_now:
        steady = time.monotonic
    return None if steady is None else ClockWatch(steady)
