"""What goes wrong in a run of a fleet, and how often: drawn from the seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass
class FleetWeather:
    """Chances are between 0 and 1; times are seconds."""

    workers: int = 3
    kills: float = 0.0
    """How likely a life ends in a kill; the same for what follows."""
    freezes: float = 0.0
    partitions: float = 0.0
    fate_within: int = 60
    """That comes at one of so many points of its life."""
    wakeup_lost: float = 0.0
    wakeup_late: float = 0.0
    """The longest time that a wake-up is in progress."""
    wakeup_twice: float = 0.0
    late_rows: float = 0.0
    """A row of the inbox becomes visible after rows with greater ids."""
    slow: float = 0.0
    """The longest time that a transaction waits for its turn."""
    rude: float = 0.0
    """How often people answer a question a second time, together, or send the same again."""
    mixed: bool = False
    """Whether releases change under load: an upgrade, a rollback, and an upgrade again."""

    def clear(self) -> None:
        """From now on nothing goes wrong."""
        self.kills = self.freezes = self.partitions = 0.0
        self.wakeup_lost = self.wakeup_late = self.wakeup_twice = self.late_rows = self.slow = self.rude = 0.0


def draw(rng: Random) -> FleetWeather:
    """The weather of one run."""
    return FleetWeather(
        workers=rng.choice((2, 3, 3, 4)),
        kills=rng.choice((0.0, 0.2, 0.5)),
        freezes=rng.choice((0.0, 0.3, 0.6)),
        partitions=rng.choice((0.0, 0.0, 0.3)),
        fate_within=rng.choice((20, 60, 120)),
        wakeup_lost=rng.choice((0.0, 0.3, 1.0)),
        wakeup_late=rng.choice((0.0, 0.5, 3.0)),
        wakeup_twice=rng.choice((0.0, 0.3)),
        late_rows=rng.choice((0.0, 0.3, 0.6)),
        slow=rng.choice((0.01, 0.05, 0.3)),
        rude=rng.choice((0.0, 0.3, 0.6)),
        mixed=rng.random() < 0.3,
    )
