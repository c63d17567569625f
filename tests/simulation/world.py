"""The world around the bot for one seed: time, Slack, people, what lies on the disk, and what was seen."""

from __future__ import annotations

import logging
import random
import shutil
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from bot.config.library import Library
from bot.workspace.methods.call import APP_TOKEN_SCOPES, DEFAULT_SCOPES
from engine.storage.freshness import anchor_of
from tests.simulation import weather as weathers
from tests.simulation.file_flows import FILE_SAMPLES
from tests.simulation.form_flows import FORM_SAMPLES
from tests.simulation.further_flows import FURTHER_SAMPLES
from tests.simulation.life import Life
from tests.simulation.people import Crowd
from tests.simulation.slack import Delivery, Slack
from tests.simulation.timeline import Stuck, Timeline
from tests.simulation.way_flows import WAY_SAMPLES
from tests.simulation.weather import Weather

EPOCH = 1_790_000_000.0
MOST_SECONDS = 600.0
"""After so many seconds without faults everything must be settled."""
MOST_LIVES = 40
FORMS = 1_000_000
"""From this seed on people fill in forms, change what is to be approved and hand questions over. The seeds before it
are without, and mean what they meant before there was any of that."""
FURTHER = 2_000_000
"""From this seed on people also do what `further_flows.py` asks of them; the seeds before it mean what they meant."""

WAYS = 3_000_000
"""From this seed on people also start flows in the ways of `way_flows.py`."""

FILES = 4_000_000
"""From this seed on people also answer with files."""


@dataclass(frozen=True)
class Ground:
    """What all seeds share: a folder with the flows, and an empty database to begin with."""

    folder: Path
    library: Library
    template: Path


@dataclass
class Outcome:
    """What a seed gave."""

    seed: int
    problems: list[str]
    trace: list[str]
    deliveries: int
    kills: int
    points: int
    lives: int
    frozen: int


@dataclass
class World:
    """One run."""

    ground: Ground
    seed: int
    folder: Path
    weather: Weather | None = None  # type: ignore[assignment]  # drawn from the seed unless given
    wants: str | None = None
    """The flow that runs; drawn from the seed unless given."""
    chance: Random = field(init=False)
    timeline: Timeline = field(init=False, default_factory=Timeline)
    trace: list[str] = field(init=False, default_factory=list)
    problems: list[str] = field(init=False, default_factory=list)
    ran: list[tuple[str, str]] = field(init=False, default_factory=list)
    given: list[tuple[str, str, Any]] = field(init=False, default_factory=list)
    """The commands that ran, with their arguments."""
    kills: int = 0
    frozen: int = 0
    sleepers: list[Life] = field(init=False, default_factory=list)
    """Processes that are frozen, or were and are awake again beside the one that took over."""
    points: int = 0
    generation: int = 0
    gaps: list[float] = field(init=False, default_factory=list)
    """When a gap was over, after which the bot reads what it missed."""
    open: bool = True
    """Whether Slack's sockets can be connected to."""
    skew: float = 0.0
    jumped: bool = False
    life: Life | None = None
    lives: int = 0
    over: bool = False

    def __post_init__(self) -> None:
        self.chance = Random(f"sayso {self.seed}")
        if self.weather is None:
            self.weather = weathers.draw(self.chance)
        self.files = self.seed >= FILES or self.wants in FILE_SAMPLES
        self.ways = self.files or self.seed >= WAYS or self.wants in WAY_SAMPLES
        self.further = self.ways or self.seed >= FURTHER or self.wants in FURTHER_SAMPLES
        self.forms = self.further or self.seed >= FORMS or self.wants in FORM_SAMPLES
        self.home = self.folder
        self.library = self.ground.library
        self.database = self.folder / "sayso.db"
        self.encryption_keys = (b"k" * 32,) if self.seed % 3 == 1 else ()
        for made in (self.ground.template, anchor_of(self.ground.template)):
            shutil.copyfile(made, self.folder / made.name)
            (self.folder / made.name).chmod(0o600)
        self.slack = Slack(self)
        self.people = Crowd(self)

    # --- time ----------------------------------------------------------------------------------------------

    def slack_seconds(self) -> float:
        """Slack's clock, in seconds since 1970."""
        return EPOCH + self.timeline.now

    def seconds(self) -> float:
        """The clock of the bot's machine, which may be wrong."""
        return EPOCH + self.timeline.now + self.skew

    def note(self, line: str) -> None:
        """Something happened: a line of the trace."""
        self.trace.append(f"{self.timeline.now:.6f} {line}")

    def trouble(self, line: str) -> None:
        """Something happened that must not happen."""
        self.note(f"TROUBLE {line}")
        self.problems.append(line)

    def headers(self, method: str) -> dict[str, str]:
        """What Slack adds to its answers."""
        granted = APP_TOKEN_SCOPES if method.startswith("apps.") else DEFAULT_SCOPES
        return {"X-OAuth-Scopes": ",".join(granted)}

    # --- the network ---------------------------------------------------------------------------------------

    def send(self, delivery: Delivery) -> bool:
        """Send something to the bot, if it is connected."""
        if self.life is None or not self.life.connected or not self.open:
            self.note(f"nobody takes {delivery.name}")
            return False
        self.note(f"deliver {delivery.name}")
        self.life.deliver(delivery)
        return True

    def _outage(self) -> None:
        self.note("sockets down")
        self.open = False
        self.timeline.after(self.chance.uniform(1.0, 30.0), self._back)

    def _back(self) -> None:
        self.note("sockets up")
        self.open = True
        self.generation += 1
        self.gaps.append(self.timeline.now)

    def ready(self, number: int) -> None:
        """A life begins to listen."""
        self.note(f"ready {number}")
        self.gaps.append(self.timeline.now)

    def _jump(self) -> None:
        self.jumped = True
        self.skew += self.chance.choice((-120.0, -30.0, -1.0, 2.0, 20.0))
        self.note(f"clock {self.skew:+.0f}")

    # --- the run -------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Let everything happen."""
        state, handler = random.getstate(), _Ear(self)
        random.seed(self.seed)
        handler.listen()
        try:
            self._plan()
            self._lives()
        except Stuck as stuck:
            self.trouble(str(stuck))
        finally:
            for sleeper in list(self.sleepers):
                sleeper.end()
            handler.leave()
            random.setstate(state)
        return Outcome(
            self.seed,
            self.problems,
            self.trace,
            self.slack.attempts,
            self.kills,
            self.points,
            self.lives,
            self.frozen,
        )

    def _plan(self) -> None:
        weather, chance = self.weather, self.chance
        self.people.begin(self.wants)
        storm = chance.uniform(25.0, 90.0)
        for _ in range(weather.outages):
            self.timeline.after(chance.uniform(0.0, storm), self._outage)
        for _ in range(weather.jumps):
            self.timeline.after(chance.uniform(0.0, storm), self._jump)
        self.timeline.after(storm, self._calm)

    def _calm(self) -> None:
        """All faults end; one last gap, so that what was never delivered is read."""
        self.note("calm")
        self.weather.clear()
        if self.life is not None:
            self.life.spare()
        self.timeline.after(1.0, self._back)
        self.people.calm()
        self._calm_at = self.timeline.now
        self.timeline.after(35.0, self._settled)  # by then nothing that was sent is still under way

    def _settled(self) -> None:
        """Whether everything has ended; else look again later."""
        if self.people.done() and self._quiet():
            self.over = True
            self.note("over")
            if self.life is not None:
                self.life.die()
            return
        if self.timeline.now - self._calm_at > MOST_SECONDS:
            self.trouble("nothing settles")
            self.over = True
            if self.life is not None:
                self.life.die()
            return
        self.timeline.after(5.0, self._settled)

    def _quiet(self) -> bool:
        """Whether the store has nothing left to do."""
        if self.life is None or self.life.store is None or not self.life.connected:
            return False
        store = self.life.store
        late = "9999-01-01T00:00:00.000Z"
        if store.outbox.due(now=late) or store.inbox.rows():
            return False
        return not store.sessions.heads(statuses=("running", "paused"), limit=100)

    def _lives(self) -> None:
        while not self.over:
            self.lives += 1
            if self.lives > MOST_LIVES:
                raise Stuck(f"{MOST_LIVES} lives and no end")
            self.life = Life(self, self.lives)
            self.note(f"start {self.lives}")
            self.life.run()
            self.life = None
            if not self.over:
                self._pass(self.chance.uniform(0.5, 15.0))

    def _pass(self, seconds: float) -> None:
        """Time passes while no bot runs."""
        until = self.timeline.now + seconds
        while self.timeline.now < until:
            self.timeline.advance(until - self.timeline.now)


class _Ear(logging.Handler):
    """Hears what the bot logs: an error with a traceback, or one that Bolt caught, is something unhandled."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world
        self._before: list[tuple[logging.Logger, int, bool, Callable[..., Any] | None]] = []

    def listen(self) -> None:
        """Hear everything."""
        for name in ("sayso", "slack_bolt", "slack_sdk", "asyncio"):
            logger = logging.getLogger(name)
            self._before.append((logger, logger.level, logger.propagate, None))
            logger.addHandler(self)
            logger.propagate = False

    def leave(self) -> None:
        """Hear nothing any more."""
        for logger, level, propagate, _ in self._before:
            logger.removeHandler(self)
            logger.setLevel(level)
            logger.propagate = propagate

    def emit(self, record: logging.LogRecord) -> None:
        """Note it; what is unhandled is trouble."""
        life = self._world.life
        if life is None or life.dead:
            return
        text = record.getMessage()
        self._world.note(f"log {record.levelname} {text[:200]}")
        if record.exc_info and record.exc_info[0] is not None:
            where = "".join(traceback.format_exception(*record.exc_info)[-4:])
            self._world.trouble(f"unhandled: {text}\n{where}")
        elif record.levelno >= self._alarming(record.name):
            self._world.trouble(f"{record.name}: {text[:300]}")

    @staticmethod
    def _alarming(name: str) -> int:
        return logging.ERROR if name.startswith(("slack_bolt", "asyncio")) else logging.CRITICAL
