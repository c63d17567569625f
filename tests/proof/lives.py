"""Runs of flows through any number of lives of the engine: where a life ends, and how the run is compared.

A life ends in one of three ways: the session ends; the process *drops* right after its n-th commit, with nothing
launched of what that commit began (all memory is gone, the next life claims what the store has); or a person
*holds* the session before the driver's n-th act, and the next life resumes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from engine.decide.commands import Answer, Due, Message, NodeDone, Shown
from engine.decide.limits import pending
from engine.flow import Flow
from engine.flow.load import load_flow
from engine.journal.events import Event, decode_event
from engine.journal.fold import derive_state
from engine.journal.queries import doomed
from engine.journal.records import Commit
from engine.journal.snapshot import to_bytes
from engine.journal.state import Asked, State
from engine.language.codec import Json
from engine.language.errors import Fenced, SessionEnded
from engine.nodes.types.registry import node_types
from engine.run.engine import Engine
from engine.storage.store import Store
from engine.testing import CrashingStore
from tests.proof.canonical import Canon, canonical
from tests.proof.world import Bench, Effects
from tests.support.engine import ANA, SESSION, START, Backing, Clock, check_starts, everybody

PATIENCE = 30.0
"""Seconds that a life may take."""

RESUME = "proof:resume"
"""Keys of the messages that resume a held session begin so."""

RIVAL = "session-0bad1dea"
"""The session that has the lock before ours, where the flow's lock is called `TAKEN`. It ends when nothing of ours can
happen any more."""

TAKEN = "taken"


@dataclass(frozen=True)
class Life:
    """One life of the engine: after how many commits that say something new it drops, before which act it holds."""

    drop_after: int | None = None
    hold_before: int | None = None
    hold_always: bool = False
    """Before every act a person holds the session and resumes it, and the engine stays the same."""


class Stuck(AssertionError):
    """Nothing can happen any more, and the session has not ended."""


class Mortal(CrashingStore):
    """A store that serves one life: after the commit that ends it, it writes nothing."""

    def __init__(self, inner: Store, canon: Canon, left: int | None, *, kill: bool) -> None:
        super().__init__(inner, after=self._ends)
        self._canon = canon
        self._left = left
        self._kill = kill
        self.steps = 0

    def _ends(self, batch: Sequence[Commit]) -> bool:
        ours = [commit for commit in batch if commit.session_id == SESSION]
        news = [self._canon.take(decode_event(row)) for commit in ours for row in commit.events]
        if not any(entry is not None for entry in news):
            return False
        self.steps += 1
        if self.steps == self._left and self._kill:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.steps == self._left


class Driver:
    """What people, time and the world do in one life, decided from the state alone."""

    def __init__(self, engine: Engine, bench: Bench, clock: Clock, store: Mortal) -> None:
        self.engine = engine
        self.bench = bench
        self.clock = clock
        self.store = store
        self.acts = 0
        self.held_at = -1

    async def begin(self, flow: Flow) -> None:
        """Start the session, or take it up where it is; a held one is resumed."""
        if await self.engine.writer.call(self.engine.store.sessions.head, SESSION) is None:
            if flow.lock is not None and flow.lock.raw == TAKEN:
                await self._take_the_lock()
            await self.engine.start(flow, {}, actor=ANA, session_id=SESSION)
            return
        self.clock.now = (await self.engine.state(SESSION)).updated_at
        head = await self.engine.head(SESSION)
        if head.phase == "held":
            key = f"{RESUME}:{head.seq}"
            await self.engine.resume(SESSION, "go on", actor=ANA, key=key)
        elif head.phase != "ended":
            await self.engine.apply(SESSION, None)

    async def _take_the_lock(self) -> None:
        """Somebody was here first, and waits for an answer."""
        text = f"flow: rival\nlock: {TAKEN}\nnodes: [{{id: q, type: ask, with: {{message: How?}}}}]"
        await self.engine.start(load_flow(text, "rival.yml"), {}, actor=ANA, session_id=RIVAL)
        await self.engine.parked(RIVAL)

    async def run(self, life: Life) -> bool:
        """Act until the session or this life ends; whether the session did."""
        for _ in range(2000):
            if self.store.dead:
                return False
            state = await self.engine.state(SESSION)
            if state.ended:
                return True
            if question := self._question(state):
                key = f"again:{question.prompt_id}"
                await self.engine.apply(SESSION, Answer(question.prompt_id, ANA, key, value="again"))
                continue
            if self.acts == life.hold_before and await self._hold():
                return (await self.engine.state(SESSION)).ended
            if life.hold_always and self.held_at != self.acts:
                self.held_at = self.acts
                await self._hold_and_resume(state)
                continue
            self.acts += 1
            await self._act(state)
        raise Stuck("2000 acts and no end")

    async def _hold(self) -> bool:
        """A person pauses the session; False when it is ending, which nobody can pause. So is one that has failed and
        only waits for what it told to leave: the pause waits for the same, and what follows is the end."""
        before = await self.engine.state(SESSION)
        try:
            await self.engine.pause(SESSION, actor=ANA, reason="proof")
        except SessionEnded:
            leaves = [doomed(before, path) for path in before.launched]
            assert before.phase == "finalizing" or (leaves and all(leaves)), "a pause ended the session"
            return False
        return True

    async def _hold_and_resume(self, state: State) -> None:
        if await self._hold():
            await self.engine.resume(SESSION, "go on", actor=ANA, key=f"{RESUME}:{state.seq}")

    @staticmethod
    def _question(state: State) -> Asked | None:
        found = [state.prompts[key] for key in state.open_prompts if state.prompts[key].kind == "interrupted"]
        return min(found, key=lambda prompt: prompt.path) if found else None

    async def _act(self, state: State) -> None:
        """The one next thing: work, then showing, then delivering, then answering, then waiting."""
        prompts = sorted((state.prompts[key] for key in state.open_prompts), key=_number)
        unshown = [prompt for prompt in prompts if prompt.shown is None]
        deliveries = [path for path in sorted(state.active) if _delivers(state, path)]
        if work := sorted(state.launched):
            await self._work(state, work[0])
        elif unshown:
            await self.engine.apply(SESSION, Shown(unshown[0].prompt_id, {"channel": "C1", "ts": "1.2"}))
        elif deliveries:
            output = {"channel": "C1", "ts": deliveries[0]}
            attempt = state.nodes[deliveries[0]].attempt
            await self.engine.apply(SESSION, NodeDone(deliveries[0], attempt, output))
        elif prompts:
            await self._answer(state, prompts[0])
        elif state.timers:
            timer = min(state.timers.values(), key=lambda timer: (timer.due_at, timer.path or ""))
            await self._fire(timer.timer_id, timer.due_at)
        elif pending(state):
            await self._free_the_lock()
        else:
            raise Stuck(f"nothing can happen: {state.phase}, active {sorted(state.active)}")

    async def _free_the_lock(self) -> None:
        """Whoever has it ends, and we are told that it is free."""
        if (await self.engine.head(RIVAL)).status == "paused":
            await self.engine.abort(RIVAL, actor=ANA)
        await self.engine.apply(SESSION, None)

    async def _work(self, state: State, path: str) -> None:
        run = state.nodes[path]
        if state.lock is not None:
            queue = await self.engine.writer.call(self.engine.store.locks.rows, state.lock.name)
            assert [row.session_id for row in queue] == [SESSION], f"{path} runs without its lock"
        live = self.engine.sessions.active.get(SESSION)
        task = live.tasks.get(f"{path}#{run.attempt}") if live else None
        if task is None:
            # It may have been told to leave and be gone since the state was read.
            if self.store.dead or path not in (await self.engine.state(SESSION)).launched:
                return
            raise Stuck(f"{path} should run and does not")
        if live is not None and live.stops[f"{path}#{run.attempt}"].is_set():
            # It was told to leave, because what is around it failed: it does nothing more.
            await asyncio.wait([task])
            return
        words = run.input.get("run", []) if isinstance(run.input, dict) else []
        if words[:1] == ["tell"]:
            await self.engine.apply(SESSION, Message(words[1], ANA, f"told:{path}"))
            if self.store.dead:
                return
        await self.bench.let(path)
        await asyncio.wait([task])

    async def _answer(self, state: State, prompt: Asked) -> None:
        said = _said(prompt)
        if said == "expire":
            (timer,) = [timer for timer in state.timers.values() if timer.prompt_id == prompt.prompt_id]
            await self._fire(timer.timer_id, timer.due_at)
            return
        value, text = None, said or f"answer to {prompt.path}"
        if prompt.options:
            value, text = said or prompt.options[0]["value"], None
        key = f"person:{prompt.prompt_id}"
        await self.engine.apply(SESSION, Answer(prompt.prompt_id, ANA, key, value=value, text=text))

    async def _fire(self, timer_id: str, due_at: str) -> None:
        self.clock.now = max(self.clock.now, due_at)
        await self.engine.apply(SESSION, Due(timer_id))


def _number(prompt: Asked) -> int:
    return cast(int, prompt.number)


def _said(prompt: Asked) -> str | None:
    """What the person says, where the flow tells: behind an arrow in the question; about a failure, in the node's id."""
    if prompt.kind == "failed":
        word = (prompt.path or "").rpartition("/")[2].partition("_")[0]
        return word if word in ("skip", "abort", "expire") else None
    return cast(str, prompt.message).rpartition("-> ")[2] if "-> " in prompt.message else None


def _delivers(state: State, path: str) -> bool:
    run = state.nodes[path]
    return run.status == "started" and node_types()[run.type].mode == "delivery"


# --- lives and runs ---------------------------------------------------------------------------------------


@dataclass
class Counts:
    """What a life, or a run, took."""

    ended: bool = False
    commits: int = 0
    acts: int = 0


@contextlib.asynccontextmanager
async def _engine(
    store: Mortal, effects: Effects, home: Path, clock: Clock
) -> AsyncIterator[tuple[Engine, Bench]]:
    bench, count = Bench(effects), itertools.count()
    engine = Engine(
        cast(Store, store),
        policy=everybody,
        runners=dict.fromkeys(("shell", "http", "python"), bench),
        home=home,
        now=clock,
        entropy=lambda: f"{next(count):010d}-proof",
    )
    await engine.open()
    try:
        yield engine, bench
    finally:
        bench.gone.set()
        await engine.close()
        store.close()


async def live(
    flow: Flow, life: Life, store: Store, effects: Effects, home: Path, *, kill: bool = False
) -> Counts:
    """One life over a store. With `kill` a drop is SIGKILL."""
    canon = Canon()
    clock = Clock(START)
    if store.sessions.head(SESSION) is not None:
        for row in store.sessions.journal(SESSION):
            canon.take(decode_event(row))
    mortal = Mortal(store, canon, life.drop_after, kill=kill)
    ended, driver = False, None
    async with _engine(mortal, effects, home, clock) as (engine, bench):
        driver = Driver(engine, bench, clock, mortal)
        try:
            async with asyncio.timeout(PATIENCE):
                await driver.begin(flow)
                ended = await driver.run(life)
        except Fenced:
            if not mortal.dead:
                raise
    return Counts(ended, mortal.steps, driver.acts)


@dataclass
class Story:
    """All of a run that a pause must not change."""

    status: str
    outputs: dict[str, Json]
    effects: list[dict[str, Json]]
    journal: list[dict[str, Json]]


@dataclass
class Run:
    """A run that has ended: its story, and what it took."""

    story: Story
    events: list[Event]
    commits: int
    acts: int
    lives: int


async def run(flow: Flow, lives: Iterable[Life], home: Path, kind: str = "memory") -> Run:
    """Run a flow through these lives (the last one is followed by lives without an end) in one store."""
    backing, effects, total, count = Backing(kind, home), Effects(), Counts(), 0
    for life in itertools.chain(lives, itertools.repeat(Life())):
        counts = await live(flow, life, backing.open(), effects, home)
        total.commits, total.acts, count = total.commits + counts.commits, total.acts + counts.acts, count + 1
        if counts.ended:
            break
        if count > 1000:
            raise Stuck("a thousand lives and no end")
    return finished(backing.open(), effects, total, count)


def finished(store: Store, effects: Effects, total: Counts, lives: int) -> Run:
    """What a store and the log say about a run that has ended. The journal must fold to the stored state."""
    events = [decode_event(row) for row in store.sessions.journal(SESSION)]
    state = derive_state(events)
    assert state.ended, "the journal does not end"
    assert SESSION not in {row.session_id for row in store.locks.rows()}, "its lock was not given back"
    assert to_bytes(derive_state(events)) == to_bytes(state), "the fold is not deterministic"
    check_starts(events)
    outputs = {path: run.output for path, run in state.nodes.items() if run.status == "completed"}
    story = Story(state.status, outputs, effects.all(), canonical(events))
    store.close()
    return Run(story, events, total.commits, total.acts, lives)


def compare(plain: Story, paused: Story) -> None:
    """Raise an AssertionError that says what a pause has changed."""
    assert paused.status == plain.status, f"ended {paused.status}, not {plain.status}"
    assert paused.effects == plain.effects, "the effects differ"
    assert paused.outputs == plain.outputs, "the outputs differ"
    for mine, other in itertools.zip_longest(paused.journal, plain.journal):
        assert mine == other, f"the journals differ: {mine} instead of {other}"


def drops(commits: int) -> list[list[Life]]:
    """Every point between two commits, as lives."""
    return [[Life(drop_after=point)] for point in range(1, commits)]


def holds(acts: int) -> list[list[Life]]:
    """Every act before which a person can hold the session, as lives."""
    return [[Life(hold_before=point)] for point in range(acts)]


def pairs(commits: int) -> list[list[Life]]:
    """Every two points between commits, the first before the second."""
    return [
        [Life(drop_after=first), Life(drop_after=second - first)]
        for first in range(1, commits)
        for second in range(first + 1, commits)
    ]


def every(make: Callable[[int], Life]) -> Iterable[Life]:
    """Lives without end, by number."""
    return map(make, range(1000))
