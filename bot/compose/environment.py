"""What the bot has from the machine that it runs on: the time, chance, the disk and the network.

Everything that is not the bot itself comes in here, so that all of it can be taken away: the simulation in the tests
runs this same bot with a clock, a network and deaths of its own making. Slack's libraries are loaded by the first that
talks to Slack: a process of the terminal never does.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bot.config.settings import SLACK_PACE, Tuning
from engine.language import timestamps
from engine.nodes.runtime.runner import Runner
from engine.nodes.runtime.table import runners
from engine.run.active import random_text
from engine.run.wakeups import POLL_SECONDS
from engine.storage.group_commit import Writer
from engine.storage.open import open_store
from engine.storage.port import Store

if TYPE_CHECKING:
    import aiohttp


def _keep_what_is_loaded() -> None:
    """What was loaded so far stays: full collections of it would only hold up acknowledgements."""
    gc.collect()
    gc.freeze()


@dataclass(frozen=True)
class Machine:
    """The real one, unless told otherwise."""

    seconds: Callable[[], float] = time.time
    """Seconds since 1970, as the machine's clock has them: it may be set back or forward."""
    steady: Callable[[], float] = time.monotonic
    """Seconds of a clock that only goes forward."""
    entropy: Callable[[], str] = random_text
    session: aiohttp.ClientSession | None = None
    """Through which Slack is reached; None makes one for each request."""
    open_store: Callable[[str, bytes | None], Store] = open_store
    writer: Callable[[Store], Writer] = Writer
    runners: Callable[[], Mapping[str, Runner]] = runners
    slack_app: Callable[..., Any] | None = None
    """What takes everything from Slack; None for the one with Bolt."""
    tuning: Tuning = SLACK_PACE
    poll_seconds: float = POLL_SECONDS
    """How often the commits of other processes are looked for."""
    started: Callable[[], Any] = _keep_what_is_loaded
    """Done once everything is loaded."""

    def now(self) -> str:
        """The time as it is stored."""
        return timestamps.to_text(datetime.fromtimestamp(self.seconds(), UTC))


THIS_MACHINE = Machine()
