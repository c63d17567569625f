"""One process over the world of a scenario: an engine that runs until nothing more happens by itself; and the runner of
every node, which returns the scenario's result for it, or really runs it if told to.

Prompts are shown and messages are posted at once. What is to be tried again after a failure is tried again: the clock
moves on to it. Everything else that needs time or people waits for the scenario's steps.

A run is identified by its idempotency key and the number of earlier outcomes of its place. An effect under both is
done: if a killed process had not recorded it yet, the same run returns it again and repeats nothing, like a service
that honours idempotency keys. Any other second run is a second effect, and is noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from bot.rendering.notes import as_plain
from bot.scenarios.document import is_place
from bot.scenarios.world import (
    CHANNEL,
    HARMLESS,
    OPERATOR,
    SESSION,
    Done,
    World,
    gate_for,
    manager_of,
    outcome_of,
    unmentioned,
)
from engine.decide.agents import memory
from engine.decide.agents.memory import NoteRows
from engine.decide.agents.wide_grants import GrantRows
from engine.decide.commands import Answer, Command, Due, NodeDone, Shown
from engine.decide.step import node_at
from engine.journal.events import AttemptOver, CallOutcome, Event
from engine.journal.queries import TURN, asked_in_order, is_outage
from engine.journal.records import Commit
from engine.journal.state import Asked, State, TimerRun
from engine.language.codec import Json
from engine.language.diagnostics import Path
from engine.language.errors import Fenced, SaysoError
from engine.messages.errors import ScriptError
from engine.nodes.runtime.runner import Completed, Failed, Interrupted, NodeContext, Outcome, Runner
from engine.nodes.runtime.table import runners
from engine.nodes.types.registry import mode_of
from engine.run.engine import Engine
from engine.run.frontend import Message
from engine.storage.open import MemoryStore
from engine.testing import CrashingStore
from prompt_state.question_row import projection

if TYPE_CHECKING:
    from engine.messages.turns import Tool

MOST_ROUNDS = 10_000
"""So many things may happen one after the other without a person or time in between."""


class Died(Exception):
    """The process is gone; the next one continues over the same world."""


class GaveUp(Exception):
    """The scenario cannot continue; `lines` say why, and what to do, and `path` which part of the file it is about."""

    def __init__(self, lines: Sequence[str], path: Path = ()) -> None:
        self.lines = list(lines)
        self.path = path
        super().__init__("\n".join(self.lines))


_STARTS = ("node:started", "container:childStarted")


@dataclass(frozen=True)
class Kill:
    """The process dies right before or right after the commit that has this event."""

    seq: int
    when: Literal["before", "after"]

    def store(self, inner: MemoryStore) -> CrashingStore:
        """A store that dies there."""
        if self.when == "before":
            return CrashingStore(inner, before=self._hits)
        return CrashingStore(inner, after=self._hits)

    def _hits(self, batch: Sequence[Commit]) -> bool:
        return any(commit.seq < self.seq <= commit.seq + len(commit.events) for commit in batch)


class Thread:
    """The frontend of a scenario: a thread whose messages the world keeps. The same thing has the same time stamp in each
    run."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def ask(self, state: State, asked: Asked, key: str) -> dict[str, Json]:
        """Return the place of the question."""
        return {"channel": CHANNEL, "ts": f"1767603600.{asked.number or 0:06}"}

    async def close(self, state: State, asked: Asked) -> None:
        """Its message stays."""

    async def deliver(self, message: Message, key: str) -> dict[str, Json]:
        """Post a message; what was posted by a killed process is there already."""
        self._world.posts.setdefault(message.path, as_plain(message.config))
        number = int(sha256(message.path.encode()).hexdigest()[:8], 16) % 1_000_000
        return {"channel": CHANNEL, "ts": f"1767603601.{number:06}", "permalink": None}

    def observe(self, state: State, events: Sequence[Event]) -> None:
        """The world reads the journal."""


class Life:
    """An engine over the world, until it ends or is killed."""

    def __init__(self, world: World, kill: Kill | None = None) -> None:
        world.lives += 1
        self.world = world
        inner = world.store.another()
        self.store = CrashingStore(inner) if kill is None else kill.store(inner)
        self.gate = gate_for(world.scenario)
        self.events = world.events
        self.frontend = Thread(world)
        self._gates: dict[str, asyncio.Event] = {}
        self._why: GaveUp | None = None
        self._fired: set[tuple[str, str]] = set()
        self.engine = Engine(
            self.store.store,
            policy=self.gate,
            runners=Fakes(self),
            home=world.home,
            secret=self._secret,
            extensions=[projection, NoteRows(), GrantRows()],
            label="scenario",
            now=lambda: world.now,
            entropy=lambda: "scenario-0000000000000000",
        )
        self.engine.stepper.manager_of = lambda entry: manager_of(world.scenario, entry)
        self.engine.subscribe(lambda state, events: self.events.extend(events))

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Life]:
        """The process runs; at the end everything that it had in memory is gone."""
        with _quiet():
            await self.engine.open()
            try:
                yield self
            finally:
                # What is cut by leaving is not part of the story.
                self.store.dead = True
                await self.engine.close()
                self.store.close()

    @property
    def over(self) -> bool:
        """True if nothing may have an effect any more."""
        return self.store.dead or self._why is not None

    def give_up(self, lines: Sequence[str], path: Path = ()) -> None:
        """The scenario cannot continue: nothing further is stored."""
        self._why = self._why or GaveUp(lines, path)
        self.store.dead = True

    def check(self) -> None:
        """Raise `GaveUp` or `Died` where it has ended."""
        if self._why is not None:
            raise self._why
        if self.store.dead:
            raise Died

    def node_id(self, path: str) -> str:
        """The id of the node at a path that is in progress."""
        live = self.engine.sessions.active.get(SESSION)
        if live is None or live.flow is None or path not in live.state.nodes:
            return path.rpartition("/")[2]
        return node_at(live.flow, live.state, path).id

    def _secret(self, name: str) -> str:
        if name not in self.world.scenario.doc.secrets:
            raise SaysoError(f"The scenario has no secret {name}: add it under `secrets`.")
        return self.world.scenario.doc.secrets[name]

    # --- one thing ---------------------------------------------------------------------------------------

    async def apply(self, command: Command | None) -> State:
        """Carry out a command. Raises what the engine raises, `Died`, `GaveUp`."""
        try:
            state = await (
                self.engine.hear(SESSION, command)
                if command is not None
                else self.engine.apply(SESSION, None)
            )
        except Fenced:
            self.check()
            raise
        self.check()
        return state

    async def state(self) -> State:
        """The state as it is stored."""
        self.check()
        return await self.engine.state(SESSION)

    # --- until nothing happens by itself -----------------------------------------------------------------

    async def run_until_idle(self, during: str | None = None) -> State:
        """Return once the session can only continue through people or time, or as soon as the node `during` is running. Raises
        `Died`, `GaveUp`."""
        for _ in range(MOST_ROUNDS):
            self.check()
            state = await self.engine.state(SESSION)
            if self.at_work(state, during):
                return state
            if not state.ended and await self._something(state):
                continue
            rested = await self.engine.parked(SESSION)
            self.check()
            if rested.seq == state.seq:
                return rested
        raise GaveUp([f"The flow does not settle: {MOST_ROUNDS:,} things happened without any person."])

    async def _something(self, state: State) -> bool:
        """Let the one next thing happen; whether there was one."""
        for happens in (self._resolve, self._work, self._show, self._post, self._fire, self._try_again):
            if await happens(state):
                return True
        return False

    def at_work(self, state: State, name: str | None) -> bool:
        """True if a node is running, named by its id, its place, or its agent."""
        return name is not None and any(
            name == self.node_id(path) or is_place(path, name) for path in state.launched
        )

    async def at_gate(self, ctx: NodeContext) -> bool:
        """A node waits here until it is its turn; False when it has to leave."""
        gate = self._gates.setdefault(ctx.path, asyncio.Event())
        waits = [asyncio.ensure_future(event.wait()) for event in (gate, ctx.aborted)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return gate.is_set() and not ctx.aborted.is_set() and not self.over

    async def _work(self, state: State) -> bool:
        """Let concurrent nodes work one by one, in the order in which they first began. True if one did."""
        working, live = state.launched, self.engine.sessions.active.get(SESSION)
        if not working or live is None:
            return False
        path = min(working, key=self._began)
        task = live.tasks.get(f"{path}#{state.nodes[path].attempt}")
        if task is None:
            return False
        gate = self._gates.setdefault(path, asyncio.Event())
        gate.set()
        await asyncio.wait([task])
        del self._gates[path]
        return True

    def _began(self, path: str) -> int:
        starts = (event.seq for event in self.events if event.path == path and event.type in _STARTS)
        return next(starts, 0)

    async def _resolve(self, state: State) -> bool:
        """After a kill: what was cut runs again. Somebody has looked, and says so."""
        for prompt_id in asked_in_order(state):
            prompt = state.prompts[prompt_id]
            run = state.nodes.get(prompt.path)
            if prompt.kind == "interrupted" and run is not None and run.reason == "crash":
                await self.apply(Answer(prompt_id, OPERATOR, f"again:{prompt_id}", value="again"))
                return True
        return False

    async def _show(self, state: State) -> bool:
        for prompt_id in asked_in_order(state):
            asked = state.prompts[prompt_id]
            if asked.shown is None:
                shown = await self.frontend.ask(state, asked, prompt_id)
                await self.apply(Shown(prompt_id, shown))
                return True
        return False

    async def _post(self, state: State) -> bool:
        for path in sorted(state.active, key=self._began):
            run = state.nodes[path]
            if run.status == "started" and mode_of(run.type) == "delivery":
                message = Message.of(SESSION, path, run.input)
                output = await self.frontend.deliver(message, path)
                await self.apply(NodeDone(path, run.attempt, output))
                return True
        return False

    async def _fire(self, state: State) -> bool:
        """Fire the first timer that is due."""
        due = [timer for timer in state.timers.values() if timer.due_at <= self.world.now]
        fresh = [timer for timer in due if (timer.timer_id, timer.due_at) not in self._fired]
        if not fresh:
            return False
        timer = min(fresh, key=_when)
        await self.apply(Due(timer.timer_id))
        self._fired.add((timer.timer_id, timer.due_at))
        return True

    async def _try_again(self, state: State) -> bool:
        """Nothing else happens: the clock moves on to what is to be tried again, unless people are asked about an outage."""
        again = [timer for timer in state.timers.values() if timer.purpose == "retry"]
        asked = any(is_outage(state.prompts[prompt_id]) for prompt_id in state.open_prompts)
        if not again or asked or state.phase == "held":
            return False
        first = min(again, key=_when)
        between = [timer for timer in state.timers.values() if _when(timer) <= _when(first)]
        self.world.advance(min(between, key=_when).due_at)
        return await self._fire(state)

    async def wait_until(self, moment: str, during: str | None = None) -> State:
        """Time goes by up to a moment, and every timer on the way fires at its time; no further than to where the node
        `during` is at work."""
        while True:
            state = await self.run_until_idle(during)
            if self.at_work(state, during):
                return state
            due = [timer for timer in state.timers.values() if timer.due_at <= moment]
            fresh = [timer for timer in due if (timer.timer_id, timer.due_at) not in self._fired]
            if not fresh or state.ended:
                self.world.advance(moment)
                return state
            self.world.advance(min(fresh, key=_when).due_at)


# --- the runner of nodes -----------------------------------------------------------------------------------


_UNKNOWN = ("timeout", "lost", "asks")
_CLAUDE = "Add a list of turns under `claude`:   - text: the answer"


class Fakes(Mapping[str, Runner]):
    """Runners by type, for one life."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._real = runners()

    def __getitem__(self, kind: str) -> Runner:
        async def run(config: dict[str, Json], ctx: NodeContext) -> Outcome:
            try:
                return await self._run(kind, config, ctx)
            except Exception as error:
                self._life.give_up([f"{ctx.path}: {type(error).__name__}: {error}"])
                return Interrupted("cut")

        return run

    def __iter__(self) -> Iterator[str]:
        return iter(self._real)

    def __len__(self) -> int:
        return len(self._real)

    async def _run(self, kind: str, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        life, world = self._life, self._life.world
        if not await life.at_gate(ctx):
            return Interrupted("cut")
        node_id = life.node_id(ctx.path)
        # A kill leaves no outcome; a time limit or a lost connection leaves one.
        number = sum(1 for event in life.events if _is_outcome(event, ctx.path))
        run = (ctx.idempotency_key, number)
        before = [done for done in world.done if (done.path, done.number) == (ctx.path, number)]
        if any(done.life == world.lives for done in before):
            world.twice.append(ctx.path)
        if run not in world.outcomes:
            outcome = await self._outcome(kind, node_id, config, ctx, number)
            if outcome is None or (isinstance(outcome, Interrupted) and outcome.reason in ("cut", "left")):
                return outcome or Interrupted("cut")
            world.outcomes[run] = outcome
        found = world.outcomes[run]
        if not before and not (isinstance(found, Interrupted) and found.reason == "asks"):
            world.done.append(Done(ctx.path, node_id, kind, number, config, world.lives))
        return found

    async def _outcome(
        self, kind: str, node_id: str, config: dict[str, Json], ctx: NodeContext, number: int
    ) -> Outcome | None:
        """Return the outcome of this run; None if the scenario does not define it, which ends it."""
        scenario = self._life.world.scenario
        if kind == TURN:
            return await self._turn(config, ctx, number)
        name = next((name for name in (ctx.path, node_id) if name in scenario.fakes), None)
        if name is None:
            if kind in HARMLESS:
                return await self._real[kind](config, ctx)
            self._life.give_up(unmentioned(kind, node_id, ctx.path, config))
            return None
        entries = scenario.fakes[name]
        entry = self._life.world.entry(name, ctx.idempotency_key, number)
        fake = entries[min(entry, len(entries) - 1)]
        if fake.real:
            # What really ran takes another time in every run, and no time passes in a scenario.
            outcome = await self._real[kind](config, ctx)
            if (
                isinstance(outcome, Completed)
                and isinstance(outcome.output, dict)
                and "seconds" in outcome.output
            ):
                return Completed({**outcome.output, "seconds": 0.0})
            return outcome
        return outcome_of(fake, kind, config)

    async def _turn(self, config: dict[str, Json], ctx: NodeContext, number: int) -> Outcome | None:
        """Return Claude's answer by the script: the place of the call in its session determines the turn."""
        from engine.models.scripted import Script, ScriptedProvider, place_of, position_of
        from engine.models.turn_runner import TurnRunner

        scenario, said = self._life.world.scenario, self._life.world.said
        if scenario.script is None:
            self._life.give_up(
                [f"{ctx.path}: Claude is called, but the scenario has no answer for it.", _CLAUDE]
            )
            return None
        agent, call = place_of(ctx.path)
        turns = scenario.script.turns_of(agent)
        position = position_of(turns, call, number + 1)
        provider = ScriptedProvider(Script(turns=turns), position)
        outcome = await TurnRunner(lambda ctx: provider, _tools_of_servers, self._read)(config, ctx)
        said[agent] = max(said.get(agent, 0), position + 1, provider.position)
        if isinstance(outcome, Failed) and outcome.type == ScriptError.code:
            self._life.give_up([f"{ctx.path}: {outcome.message}"], scenario.turn_path(agent, position))
            return None
        return outcome

    async def _read(self, place: Mapping[str, Json]) -> Sequence[str]:
        """Return earlier messages or notes."""
        world, start = self._life.world, self._life.world.scenario.doc.start
        if "memory" in place:
            rows = [row for row in world.notes if row.scope == place["memory"]]
            return [*(f"[noted before] {text}" for text in start.notes), *memory.lines(rows)]
        return start.said[-int(place.get("most") or 0) :]


async def _tools_of_servers(server: str, names: Sequence[str]) -> Sequence[Tool]:
    """No server is asked what its tools take: the script says with what it calls them."""
    from engine.messages.turns import Tool

    return [Tool(f"{server}__{name}", "", {"type": "object"}) for name in names]


def _is_outcome(event: Event, path: str) -> bool:
    if isinstance(event, CallOutcome):
        return event.turn == path
    if event.path != path or not isinstance(event, AttemptOver):
        return False
    return event.result != "interrupted" or getattr(event, "reason", None) in _UNKNOWN


def _when(timer: TimerRun) -> tuple[str, str]:
    return timer.due_at, timer.timer_id


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """A kill is not news here: the engine's warnings about it are for those who ask for more than warnings."""
    logger = logging.getLogger("sayso.engine")
    level = logger.level
    if logger.isEnabledFor(logging.INFO):
        yield
        return
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
