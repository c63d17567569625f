"""One budget for all calls of the Web API: who may call which method now, and who waits for that.

Slack counts calls by method in a workspace, for all tokens together, and posts by channel too
(`bot/wire/slack_limits.json`). Whoever calls takes a *turn*. Turns of a method are given to the more urgent first,
then to those who have waited longest. What nobody waits for (closings, progress) goes at an even pace, so that it
never uses up a minute at once; reads of this kind leave some calls to others instead.

When Slack refuses all the same, the method freezes for as long as Slack says, then one call tries; see
`bot.wire.limits`. The log says so once when it begins and once when it has ended. Nothing here is durable: after a start
the counts are empty.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from bisect import insort
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple

from bot.wire.limits import NEVER, WINDOW, ChannelGate, Gate, MethodGate
from engine.nodes.runtime.effects import before_effect

log = logging.getLogger("sayso.slack")

AT_ONCE = 8
"""Calls of one method that are in progress at the same time."""
LATE_SECONDS = 10.0
"""A method for which calls have waited so long is called used up."""
FULL = "full:"
"""Prefix of the marks with the time until which a method is used up, in seconds since 1970."""
NOTED_SECONDS = 10.0
"""Greatest age in seconds of such a mark: it is renewed more often."""
_AWAY = 3
"""After so many calls in a row without an answer Slack is taken for away."""
_MOST_CHANNELS = 10_000


class Urgency(IntEnum):
    """Priority of a call."""

    QUESTION = 0
    """Questions, refusals, calls for a trigger id."""
    WAITED_FOR = 1
    """Buttons that must go, and reads that somebody waits for."""
    RESULT = 2
    """Messages of flows, reminders."""
    CLOSING = 3
    """The final card, and closed questions without buttons."""
    PROGRESS = 4
    """Cards that change, reactions on messages, Home, catch-up."""
    MARK = 5
    """Reactions that show how runs stand."""


class Limit(NamedTuple):
    """A method's limit; `a_minute` 0 is none. `spare` calls are left to those who wait for an answer."""

    a_minute: float = 0
    spare: int = 0
    channel_a_minute: float = 0
    channel_ahead: int = 1


class Full(NamedTuple):
    """A method that is used up, or that Slack refuses: how many calls wait, and for how long the last of them."""

    method: str
    waiting: int
    seconds: float
    refused: int


def limits_of(given: Mapping[str, Mapping[str, float]] | None) -> Mapping[str, Limit]:
    """The limits as published, with those that are given in their places. With None there are none of our own; what
    Slack refuses is known by channel all the same."""
    if given is None:
        return {name: Limit(channel_a_minute=NEVER) for name in ("chat.postMessage", "response_url")}
    return {name: Limit(**fields) for name, fields in {**_published(), **given}.items()}  # type: ignore[arg-type]


@cache
def _published() -> Mapping[str, Mapping[str, float]]:
    found: Mapping[str, Mapping[str, float]] = json.loads(
        Path(__file__).with_name("slack_limits.json").read_text("utf-8")
    )
    return found


@dataclass(eq=False)
class Turn:
    """The right to make one call. `made` once the call was sent."""

    method: str
    gates: tuple[Gate, ...]
    probes: tuple[bool, ...]
    reserved: bool = False
    made: bool = False
    over: bool = False
    heard: bool = False
    """True if Slack answered, whatever the answer."""
    refused_for: float | None = None
    """The seconds that Slack asked to wait."""


@dataclass(eq=False)
class _Waiter:
    urgency: Urgency
    number: int
    channel: str
    turn: asyncio.Future[Turn]
    within: bool
    """True if it is for work that already has another turn, which would otherwise wait for this one."""
    since: float

    def __lt__(self, other: _Waiter) -> bool:
        return (self.urgency, self.number) < (other.urgency, other.number)


@dataclass(eq=False)
class _Method:
    name: str
    limit: Limit
    gate: MethodGate
    channels: dict[str, ChannelGate] = field(default_factory=dict)
    waiting: list[_Waiter] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None
    since: float | None = None
    """Since when it is called used up, or refused."""
    waited: int = 0
    refused: int = 0
    refusing: set[Gate] = field(default_factory=set)
    """Gates at which Slack has refused."""

    def gates(self, channel: str, at: float) -> tuple[Gate, ...]:
        """Return the gates of a call; the last one is that of a refusal."""
        if not self.limit.channel_a_minute or not channel:
            return (self.gate,)
        if len(self.channels) > _MOST_CHANNELS:
            self.channels = {name: gate for name, gate in self.channels.items() if not gate.idle(at)}
        if channel not in self.channels:
            ahead = self.limit.channel_ahead
            self.channels[channel] = ChannelGate(self.limit.channel_a_minute, ahead=ahead)
        return (self.gate, self.channels[channel])

    def shut(self) -> bool:
        self.refusing = {gate for gate in self.refusing if gate.shut}
        return bool(self.refusing)


_urgency: ContextVar[Urgency] = ContextVar("urgency", default=Urgency.WAITED_FOR)
_reserved: ContextVar[Turn | None] = ContextVar("reserved", default=None)


def current_urgency() -> Urgency:
    """Return the urgency of calls made here."""
    return _urgency.get()


@contextmanager
def urgency(urgency: Urgency) -> Iterator[None]:
    """Give all calls in this context, and of tasks that begin in it, this urgency."""
    token = _urgency.set(urgency)
    try:
        yield
    finally:
        _urgency.reset(token)


class Budget:
    """Gives turns. `at_once` is how many calls of a method may be in progress."""

    def __init__(
        self,
        limits: Mapping[str, Limit] | None = None,
        *,
        at_once: int = AT_ONCE,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._limits = limits_of({}) if limits is None else limits
        self._at_once = at_once
        self._chance = chance
        self._methods: dict[str, _Method] = {}
        self._number = 0
        self._under_way = 0
        self._unanswered = 0
        self.refusals: Counter[str] = Counter()
        """Number of calls that Slack refused for their rate so far, by method."""

    # --- taking turns --------------------------------------------------------------------------------------

    @asynccontextmanager
    async def turn(self, method: str, channel: str = "") -> AsyncIterator[Turn]:
        """A turn to call a method, once it has come; one that was reserved for this call is taken first. Raises `FenceLost`."""
        turn = self._kept(method, channel) or await self._take(method, channel)
        try:
            await before_effect()
            turn.made = True
            yield turn
        finally:
            self._over(turn)

    @asynccontextmanager
    async def reserved(self, method: str, channel: str = "") -> AsyncIterator[Turn]:
        """Wait for a turn before computing the call. If no call is made, the turn goes to the next."""
        kept = self._kept(method, channel)
        if kept is not None:
            yield kept
            return
        turn = await self._take(method, channel)
        turn.reserved = True
        token = _reserved.set(turn)
        try:
            yield turn
        finally:
            _reserved.reset(token)
            if not turn.over:
                self._over(turn)

    def _kept(self, method: str, channel: str) -> Turn | None:
        """The turn that was reserved for such a call, if it was not used yet."""
        kept = _reserved.get()
        gates = self._method(method).gates(channel, _now())
        return kept if kept is not None and not kept.made and kept.gates == gates else None

    def fits(self, method: str) -> bool:
        """True if a call would be made at once."""
        found = self._method(method)
        return not found.waiting and found.gate.wait(_now()) <= 0

    async def _take(self, name: str, channel: str) -> Turn:
        method = self._method(name)
        self._number += 1
        future: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
        within = _reserved.get() is not None
        waiter = _Waiter(current_urgency(), self._number, channel, future, within, _now())
        insort(method.waiting, waiter)
        self._give(method)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._over(future.result())
            with suppress(ValueError):
                method.waiting.remove(waiter)
            self._give(method)
            raise

    def _over(self, turn: Turn) -> None:
        """A turn was used, or given back."""
        now, method, was_away = _now(), self._method(turn.method), self._away()
        turn.over = True
        self._under_way -= 1
        if turn.made:
            self._unanswered = 0 if turn.heard else self._unanswered + 1
        wait = turn.refused_for
        for gate, probe in zip(turn.gates, turn.probes, strict=True):
            refused = None
            if wait is not None and gate is turn.gates[-1]:
                refused = wait * (1 + self._chance() / 10)
                method.refused += 1
                self.refusals[turn.method] += 1
                method.refusing.add(gate)
            gate.end(now, made=turn.made, probe=probe, refused_for=refused, heard=turn.heard)
        self._give(method)
        if was_away:
            # Then turns of all methods wait for each other.
            others = [other for other in self._methods.values() if other.waiting]
            for other in sorted(others, key=lambda other: other.waiting[0]):
                self._give(other)

    # --- giving turns --------------------------------------------------------------------------------------

    def _method(self, name: str) -> _Method:
        found = self._methods.get(name)
        if found is None:
            limit = self._limits.get(name) or self._limits.get("*") or Limit()
            gate = MethodGate(limit.a_minute or NEVER)
            found = self._methods[name] = _Method(name, limit, gate)
        return found

    def _give(self, method: _Method) -> None:
        """Give turns to all whose time has come."""
        now, soonest = _now(), NEVER
        for waiter in list(method.waiting):
            if method.gate.under_way >= self._at_once:
                break
            if self._away() and self._under_way and not waiter.within:
                continue
            gates = method.gates(waiter.channel, now)
            waits = [self._wait(method, gate, waiter.urgency, now) for gate in gates]
            if max(waits) <= 0:
                method.waiting.remove(waiter)
                if not waiter.turn.cancelled():
                    self._under_way += 1
                    probes = tuple(gate.begin(now) for gate in gates)
                    waiter.turn.set_result(Turn(method.name, gates, probes))
                continue
            soonest = min(soonest, max(waits))
            if waits[0] > 0:
                # Nobody behind is more urgent.
                break
        self._note(method, now)
        if method.timer is not None:
            method.timer.cancel()
        method.timer = None
        if soonest < NEVER:
            loop = asyncio.get_running_loop()
            method.timer = loop.call_later(max(soonest, 0.001), self._give, method)

    def _away(self) -> bool:
        return self._unanswered >= _AWAY

    @staticmethod
    def _wait(method: _Method, gate: Gate, urgency: Urgency, now: float) -> float:
        low = urgency >= Urgency.CLOSING
        spare = method.limit.spare
        return gate.wait(now, even=low and not spare, spare=spare if low else 0)

    def seconds_for(self, name: str, calls: int) -> float:
        """About how long so many calls take that leave room for others."""
        method, now = self._method(name), _now()
        return calls * WINDOW / max(1, method.gate.now(now) - method.limit.spare) if calls else 0.0

    # --- what is said of it --------------------------------------------------------------------------------

    def full(self) -> list[Full]:
        """The methods that are used up now, or that Slack refuses."""
        now = _now()
        return [
            Full(method.name, len(method.waiting), self._last(method, now), method.refused)
            for method in self._methods.values()
            if method.since is not None
        ]

    def _last(self, method: _Method, now: float) -> float:
        """The approximate wait of the last caller in the queue, or of a new caller if Slack refuses calls."""
        if not method.waiting:
            waits = [gate.wait(now) for gate in method.refusing]
            return max([wait for wait in waits if wait < NEVER], default=0.0)
        first, last = method.waiting[0], method.waiting[-1]
        wait = max(self._wait(method, gate, first.urgency, now) for gate in method.gates(first.channel, now))
        low = last.urgency >= Urgency.CLOSING and not method.limit.spare
        behind = len(method.waiting) - 1 - (0 if low else method.gate.left(now))
        return (0.0 if wait == NEVER else wait) + max(0, behind) * WINDOW / method.gate.now(now)

    def _note(self, method: _Method, now: float) -> None:
        """One line when a method begins to be used up or refused, and one when that has ended."""
        # Catch-up leaves room for others, and says itself how far it has come. Nobody misses a mark.
        waiting = [
            one
            for one in method.waiting
            if one.urgency < Urgency.CLOSING or (one.urgency < Urgency.MARK and not method.limit.spare)
        ]
        refused = method.shut()
        if method.since is None:
            if not refused and not any(now - one.since > LATE_SECONDS for one in waiting):
                return
            method.since, method.waited = now, len(waiting)
            why = "Slack refuses" if refused else "the calls of a minute are used up for"
            log.warning(
                "%s %s: %d calls wait, up to %.0f s", why, method.name, len(waiting), self._last(method, now)
            )
            return
        method.waited = max(method.waited, len(waiting))
        if not waiting and not refused:
            told = (method.name, now - method.since, method.refused, method.waited)
            log.warning("%s continues after %.0f s: %d calls were refused, up to %d waited", *told)
            method.since, method.refused = None, 0


def _now() -> float:
    return asyncio.get_running_loop().time()
