"""One limit of Slack's: how much of it is used up, whether Slack refuses just now, and when another call fits.

A method is counted by the times at which its calls were answered: at most N in 61 seconds. A token bucket would let
up to twice as many through in its first minute. A call that is in progress counts as if it were made now.

After a refusal the gate is shut for as long as Slack says. Then one call is a probe. Each that is refused doubles the
wait, up to four times what Slack says, since Slack may count what it refuses; once one is taken, less goes through
than before, and one more each minute.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

WINDOW = 61.0
"""Seconds in which Slack's number for a minute is kept: its minute and ours do not begin together."""
_SLOWER = 0.8
"""The part of a limit that is kept after Slack refused at it."""
_SLOWEST = 0.5
_LONGEST = 4
"""Largest multiple of Slack's wait, and never over a minute unless Slack says so."""
AHEAD = 5
"""Number of calls allowed ahead of the even pace: too few to use up a minute."""
SHORTEST = 0.25
"""Seconds to wait at least where Slack refuses."""
NEVER = float("inf")
"""No number of calls, and no number of seconds."""


@dataclass(eq=False)
class Gate:
    """A limit of `a_minute` calls. `under_way` are calls without an answer yet; `probe` one that tries whether Slack takes
    any again. `refused` counts those that it did not take."""

    a_minute: float
    under_way: int = 0
    probe: bool = False
    refused: int = 0
    free: float = 0.0
    """Time at which all calls made so far would be done at an even pace."""
    _shut: float | None = None
    _waited: float = 0.0
    _part: float = 1.0
    _since: float = 0.0

    def now(self, at: float) -> float:
        """Calls a minute that are made by now: less than the limit for a while after a refusal."""
        return self.a_minute * min(1.0, self._part + (at - self._since) / 60.0 / self.a_minute)

    @property
    def shut(self) -> bool:
        """True if Slack has refused, and taken no call since."""
        return self._shut is not None

    def wait(self, at: float, *, even: bool = False, spare: int = 0) -> float:
        """Seconds until another call fits; 0 for now. `even` keeps an even pace, with a few ahead; `spare` leaves so many
        to others."""
        if self._shut is None:
            return self._room(at, even, spare)
        return NEVER if self.probe else max(0.0, self._shut - at)

    def begin(self, at: float) -> bool:
        """A call is made; whether it is a probe."""
        self.under_way += 1
        first = self.shut and not self.probe
        self.probe = self.probe or first
        return first

    def end(self, at: float, *, made: bool, probe: bool, refused_for: float | None, heard: bool) -> None:
        """The call has ended: whether it was `made` at all, whether Slack was `heard` of, and whether it refused."""
        self.under_way -= 1
        if made:
            self._count(at)
        if probe:
            self.probe = False
        if refused_for is not None:
            self.refused += 1
            asked = max(refused_for, SHORTEST)
            doubled = 2 * self._waited if probe else asked
            self._waited = max(asked, min(doubled, _LONGEST * asked, WINDOW))
            self._shut = max(self._shut or 0.0, at + self._waited)
        elif probe and heard:
            self._part = max(_SLOWEST, self.now(at) / self.a_minute * _SLOWER)
            self._since, self._shut = at, None

    def _room(self, at: float, even: bool, spare: int) -> float:
        raise NotImplementedError

    def _paced(self, at: float, ahead: int) -> float:
        """Seconds until another call fits where they go evenly, with so many ahead."""
        each = WINDOW / self.now(at)
        return max(0.0, max(0.0, self.free - at) + (self.under_way - ahead + 1) * each)

    def _count(self, at: float) -> None:
        self.free = max(self.free, at) + WINDOW / self.now(at)


@dataclass(eq=False)
class MethodGate(Gate):
    """The limit of a method: a log of its calls."""

    log: deque[float] = field(default_factory=deque)

    def left(self, at: float) -> float:
        """Return the number of calls that fit now."""
        while self.log and self.log[0] <= at - WINDOW:
            self.log.popleft()
        return NEVER if self.a_minute == NEVER else self._most(at) - len(self.log) - self.under_way

    def _most(self, at: float) -> int:
        return max(1, int(self.now(at)))

    def _room(self, at: float, even: bool, spare: int) -> float:
        if self.left(at) == NEVER:
            return 0.0
        most = self._most(at)
        wait = self._paced(at, AHEAD) if even else 0.0
        over = len(self.log) + self.under_way + min(spare, most - 1) - most
        if over >= 0:
            wait = max(wait, self.log[over] + WINDOW - at if over < len(self.log) else WINDOW)
        return max(0.0, wait)

    def _count(self, at: float) -> None:
        super()._count(at)
        if self.a_minute != NEVER:
            self.log.append(at)


@dataclass(eq=False)
class ChannelGate(Gate):
    """The limit of one channel: evenly, with a few ahead."""

    ahead: int = 1

    def _room(self, at: float, even: bool, spare: int) -> float:
        return self._paced(at, self.ahead)

    def idle(self, at: float) -> bool:
        """True if none of its state has to be kept."""
        return self.free <= at and not self.under_way and not self.shut and self._part == 1.0
