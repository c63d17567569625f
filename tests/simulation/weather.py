"""What goes wrong in a run, and how often: drawn from the seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass
class Weather:
    """Chances are between 0 and 1; times are seconds."""

    drop: float = 0.0
    """An event is never delivered: only a catch-up read can find it."""
    twice: float = 0.0
    """A delivery comes once more, some time later, although it was acknowledged."""
    late: float = 0.0
    """The longest time that a delivery is in progress; those behind it may overtake it."""
    ack_lost: float = 0.0
    limited: float = 0.0
    """A call is refused with 429."""
    broken: float = 0.0
    """A call is refused with a status of 5xx, without any effect."""
    unreachable: float = 0.0
    """No connection can be made for a call."""
    answer_lost: float = 0.0
    """A call has its effect, and its answer is lost."""
    appears_late: float = 0.0
    """A call whose answer was lost has its effect only seconds later."""
    kills: int = 0
    """How many lives end in a kill."""
    kill_within: int = 100
    """The kill comes before or after one of so many inputs and outputs of that life."""
    freezes: float = 0.0
    """How likely a process freezes instead of dying, and wakes up when another one runs."""
    outages: int = 0
    """How often no socket is open for a while."""
    jumps: int = 0
    """How often the machine's clock is set forward or back."""
    slow: float = 0.0
    """The longest time that a call, or a commit, takes."""
    rude: float = 0.0
    """How often people do something else than what they are asked: chatter, control words, edits, second presses."""

    def clear(self) -> None:
        """From now on nothing goes wrong."""
        self.drop = self.twice = self.late = self.ack_lost = self.limited = self.broken = 0.0
        self.unreachable = self.answer_lost = self.appears_late = self.slow = self.rude = 0.0
        self.kills = self.outages = self.jumps = 0


def _sometimes(rng: Random, most: float) -> float:
    """A chance of at most so much; none at all in two of three runs."""
    return rng.uniform(most / 4, most) if rng.random() < 0.4 else 0.0


def draw(rng: Random) -> Weather:
    """The weather of one run."""
    return Weather(
        drop=_sometimes(rng, 0.4),
        twice=_sometimes(rng, 0.5),
        late=rng.choice((0.0, 1.0, 15.0)),
        ack_lost=_sometimes(rng, 0.4),
        limited=_sometimes(rng, 0.2),
        broken=_sometimes(rng, 0.2),
        unreachable=_sometimes(rng, 0.2),
        answer_lost=_sometimes(rng, 0.25),
        appears_late=_sometimes(rng, 0.15),
        kills=rng.choice((0, 0, 1, 1, 2, 3)),
        kill_within=rng.choice((30, 80, 150)),
        outages=rng.choice((0, 0, 1, 2)),
        jumps=rng.choice((0, 0, 0, 1, 2)),
        slow=rng.choice((0.0, 0.05, 1.0)),
        rude=_sometimes(rng, 0.5),
        freezes=rng.choice((0.0, 0.5)),
    )
