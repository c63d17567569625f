"""For tests of flows and of programs that embed sayso: a clock that only the test moves, and processes that crash.

May import: everything in `engine`. Nothing in `engine` imports it.

Invariants:

* A crash is told by the store alone: after it the process writes nothing, whatever it still does.
* Nothing here sleeps or draws lots.

A crash: that is what it makes.
"""

from __future__ import annotations

from engine.testing.clock import ManualClock
from engine.testing.crashes import CrashingStore, nth

__all__ = ["CrashingStore", "ManualClock", "nth"]
