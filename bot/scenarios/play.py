"""Plays a scenario: once, or also with a kill before and after every commit of that run."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bot.scenarios.document import Act, ExpectDoc, Scenario, Step, Wait
from bot.scenarios.expect import Mismatch, Story, View, changes, mismatches, says, story
from bot.scenarios.life import Died, GaveUp, Kill, Life
from bot.scenarios.steps import Hand, done_before, open_lines
from bot.scenarios.world import SESSION, THREAD, World, actors, starter
from engine.journal.events import Event
from engine.journal.fold import derive_state
from engine.journal.state import State
from engine.language.errors import SaysoError

log = logging.getLogger("sayso.scenarios")

PATIENCE = 120.0
"""Seconds that one run may take: what hangs is told, and not waited for."""


@dataclass(frozen=True)
class Failure:
    """Why a run did not go as the scenario says: where in its file, at which step, and in which lines."""

    place: str
    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """A run that has ended."""

    failures: tuple[Failure, ...]
    events: tuple[Event, ...]
    commits: tuple[tuple[Event, ...], ...] = ()
    story: Story | None = None


@dataclass(frozen=True)
class Killed:
    """A run with a kill that came out otherwise."""

    kill: Kill
    what: str
    failures: tuple[Failure, ...]


@dataclass(frozen=True)
class Result:
    """Result of a scenario. `kills` is None if nothing was killed, else the number of kills tried."""

    scenario: Scenario
    plain: Run
    kills: int | None = None
    killed: tuple[Killed, ...] = ()

    @property
    def passed(self) -> bool:
        """True if everything went as expected."""
        return not self.plain.failures and not self.killed


@dataclass
class Cursor:
    """Progress of the people, who outlive every process. `since` is the last event before their last action."""

    at: int = 0
    begun: int = -1
    since: int = 0
    until: str | None = None


@dataclass
class _Failed(Exception):
    failures: list[Failure] = field(default_factory=list)


async def play(
    scenario: Scenario, *, kills: bool = False, told: Callable[[int, int], None] = lambda done, of: None
) -> Result:
    """Play a scenario. `told` hears how many of the kills were tried."""
    plain = await run(scenario)
    if not kills or plain.failures:
        return Result(scenario, plain)
    found: list[Killed] = []
    points = list(_points(plain))
    for number, (kill, what) in enumerate(points, 1):
        other = await run(scenario, kill)
        failures = other.failures
        if not failures and (lines := tuple(changes(plain.story or {}, other.story or {}))):
            failures = (Failure(scenario.place(("scenario",)), "the kill changed the result", lines),)
        if failures:
            found.append(Killed(kill, what, failures))
        told(number, len(points))
    return Result(scenario, plain, len(points), tuple(found))


def _points(plain: Run) -> Iterator[tuple[Kill, str]]:
    """Before and after every commit: between two events of one commit nothing can die."""
    for events in plain.commits:
        names = ", ".join(f"{event.type} {event.path}" if event.path else event.type for event in events)
        first, last = events[0].seq, events[-1].seq
        number = f"event {first}" if first == last else f"events {first} to {last}"
        yield Kill(first, "before"), f"killed before {number} ({names})"
        yield Kill(first, "after"), f"killed after {number} ({names})"


async def run(scenario: Scenario, kill: Kill | None = None) -> Run:
    """One run, through one process, or through two with a kill between them."""
    with TemporaryDirectory(prefix="sayso-test-") as home:
        world = World.of(scenario, Path(home))
        try:
            async with asyncio.timeout(PATIENCE):
                return await _lives(world, kill)
        except TimeoutError:
            line = f"After {PATIENCE:.0f} s it had not settled."
            return Run((Failure(scenario.place(("scenario",)), "it hangs", (line,)),), ())
        except Exception as error:
            # Whatever breaks in one run says so with the kill that it comes from, and the others are played.
            log.exception("a run of %s broke", scenario.file)
            line = f"{type(error).__name__}: {error}"
            return Run((Failure(scenario.place(("scenario",)), "sayso itself broke", (line,)),), ())


async def _lives(world: World, kill: Kill | None) -> Run:
    cursor, failures = Cursor(), []
    commits: list[tuple[Event, ...]] = []
    for kills in itertools.chain([kill], itertools.repeat(None)):
        life = Life(world, kills)
        try:
            async with life.open():
                await _Player(life, cursor).play()
        except Died:
            continue
        except _Failed as failed:
            failures = failed.failures
        commits = [tuple(events) for events in life.store.commits]
        break
    events, top = tuple(world.events), world.scenario.place(("scenario",))
    for path in dict.fromkeys(world.twice):
        line = f"{path} ran again although its first run was not interrupted."
        failures.append(Failure(top, "it ran twice", (line,)))
    try:
        told = story(derive_state(events), events, world)
    except SaysoError as error:
        return Run((*failures, Failure(top, "its journal is invalid", (str(error),))), events)
    return Run(tuple(failures), events, tuple(commits), told)


class _Player:
    """Takes the steps in one life, from where the people are."""

    def __init__(self, life: Life, cursor: Cursor) -> None:
        self._life = life
        self._world = life.world
        self._scenario = life.world.scenario
        self._cursor = cursor
        self._people = actors(self._scenario.people)

    async def play(self) -> None:
        """All that is left of it. Raises `_Failed`, `Died`."""
        await self._guarded(self._begin, ("start",), "start")
        steps = self._scenario.steps
        while self._cursor.at < len(steps):
            step = steps[self._cursor.at]
            does = step.does
            head = does.person if isinstance(does, Act) else "wait" if isinstance(does, Wait) else "expect"
            title = f"step {step.number}, {head}"
            await self._guarded(partial(self._take, step), (*step.path, head), title)
            self._cursor.at += 1
        await self._guarded(self._end, ("claude",), "the end")

    async def _end(self) -> None:
        """Check that the whole script was used once the session has ended."""
        script = self._scenario.script
        if (
            script is None
            or self._scenario.borrowed
            or not self._world.said
            or not (await self._life.run_until_idle()).ended
        ):
            return
        for agent, said in self._world.said.items():
            left = len(script.turns_of(agent)) - said
            if left > 0:
                raise GaveUp([f"The session has ended, and `{agent}` did not use {left} of these turns."])

    async def _guarded(
        self, work: Callable[[], Awaitable[None]], path: tuple[str | int, ...], title: str
    ) -> None:
        try:
            await work()
        except GaveUp as reason:
            raise _Failed([self._failure(reason.path or path, title, reason.lines)]) from None
        except SaysoError as error:
            self._life.check()
            raise _Failed([self._failure(path, title, [str(error)])]) from error

    def _failure(self, path: tuple[str | int, ...], title: str, lines: list[str]) -> Failure:
        return Failure(self._scenario.place(path), title, tuple(lines))

    # --- the beginning -----------------------------------------------------------------------------------

    async def _begin(self) -> None:
        engine, scenario, refused = self._life.engine, self._scenario, self._scenario.doc.start.refused
        if await engine.writer.call(engine.store.sessions.head, SESSION) is not None:
            await self._life.apply(None)
        else:
            actor, inputs = starter(scenario), scenario.doc.inputs
            try:
                await engine.start(scenario.flow, inputs, actor=actor, thread=THREAD, session_id=SESSION)
            except SaysoError as error:
                self._life.check()
                self._refused(error, refused)
                return
            self._life.check()
            if refused is not None:
                raise GaveUp([f"It was started, not refused: “{refused}”."])
        await self._life.run_until_idle(await self._goal())

    def _refused(self, error: SaysoError, expected: str | None) -> None:
        if expected is None:
            raise GaveUp([f"It was refused: {error}"])
        if not says(str(error), expected):
            raise GaveUp([f"expected the refusal  {expected}", f"came                  {error}"])

    # --- steps -------------------------------------------------------------------------------------------

    async def _take(self, step: Step) -> None:
        state = await self._life.run_until_idle(await self._goal())
        after = self._during(self._cursor.at + 1)
        match step.does:
            case Act() as act:
                self._open_window(state)
                await self._act(act, step)
                await self._life.run_until_idle(after)
            case Wait(seconds):
                if self._cursor.begun != self._cursor.at:
                    self._cursor.until = self._world.later(seconds)
                self._open_window(state)
                assert self._cursor.until is not None
                await self._life.wait_until(self._cursor.until, after)
            case ExpectDoc() as expect:
                view = View(state, self._life.events, self._cursor.since, self._world)
                found = [
                    Failure(
                        self._scenario.place((*step.path, "expect", *wrong.path)),
                        f"step {step.number}, expect {'.'.join(str(part) for part in wrong.path)}",
                        _difference(wrong),
                    )
                    for wrong in mismatches(expect, view)
                ]
                if found:
                    raise _Failed(found)

    def _during(self, at: int) -> str | None:
        """The node that must be running for the next action from a step on; None if all work ends before it."""
        left = (step.does for step in self._scenario.steps[at:])
        deed = next((does for does in left if not isinstance(does, ExpectDoc)), None)
        return deed.during if isinstance(deed, Act) else None

    async def _goal(self) -> str | None:
        """Up to where it continues by itself now: a process that was killed may have done the current step already."""
        at, steps = self._cursor.at, self._scenario.steps
        does = steps[at].does if at < len(steps) else None
        done = isinstance(does, Wait) and self._cursor.begun == at
        if isinstance(does, Act) and self._cursor.begun == at:
            done = done_before(does, _key(steps[at]), await self._life.state(), self._since)
        return self._during(at + 1 if done else at)

    @property
    def _since(self) -> list[str]:
        """The types of the events since the current step began."""
        return [event.type for event in self._life.events if event.seq > self._cursor.since]

    def _open_window(self, state: State) -> None:
        """A step that does something begins: what happens from here on is what can be expected to have happened."""
        if self._cursor.begun != self._cursor.at:
            self._cursor.begun, self._cursor.since = self._cursor.at, state.seq

    async def _act(self, act: Act, step: Step) -> None:
        key, state = _key(step), await self._life.state()
        if done_before(act, key, state, self._since):
            return
        if act.during is not None and not self._life.at_work(state, act.during):
            raise GaveUp([f"`{act.during}` is not running.", *open_lines(state)])
        hand = Hand(act, self._people[act.person], key, self._life.gate, self._world.home)
        try:
            await self._life.apply(hand.command(state, self._people))
        except SaysoError as error:
            self._life.check()
            self._refused(error, act.refused)
            return
        self._life.check()
        if act.refused is not None:
            raise GaveUp([f"{act.person} could do it and was not refused: “{act.refused}”."])


def _key(step: Step) -> str:
    """Return the key that identifies a step's action when it is repeated after a kill."""
    return f"scenario:{step.number}"


def _difference(wrong: Mismatch) -> tuple[str, ...]:
    expected, came = (" ".join(text.split()) for text in (wrong.expected, wrong.came))
    return f"expected  {expected}", f"came      {came}", *wrong.more
