"""Helpers for tests of the engine: `given(flow).when(command).then(events)` for the pure core, and a rig around a
real `Engine` over any store, whose nodes wait for signals and count in files how often they ran.

Nothing here sleeps: time is a value that the test moves, and whoever waits, waits for a signal.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import apsw
import pytest

from engine.decide import past
from engine.decide.agents.kinds import KINDS
from engine.decide.commands import (
    Abort,
    Action,
    Answer,
    Begin,
    Claimed,
    Command,
    Due,
    Facts,
    Message,
    Shown,
    Start,
)
from engine.decide.decide import decide
from engine.decide.due import due
from engine.decide.fixpoint import run_to_fixpoint
from engine.decide.limits import pending
from engine.decide.step import Step
from engine.flow import Flow
from engine.flow.load import load_flow
from engine.journal.events import Event, decode_event
from engine.journal.fold import derive_state
from engine.journal.records import Commit
from engine.journal.snapshot import from_bytes, to_bytes
from engine.journal.state import UNFINISHED, Asked, NodeRun, State
from engine.language import timestamps as clock
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.language.errors import SaysoError
from engine.nodes.runtime.runner import Completed, NodeContext, Outcome, Runner
from engine.nodes.runtime.table import runners as real_runners
from engine.nodes.types.registry import mode_of
from engine.run.dispatcher import Dispatcher, LocalWakeups
from engine.run.engine import Engine
from engine.storage.open import MemoryStore
from engine.storage.sqlite import open_sqlite
from engine.storage.store import PartResult, Store
from engine.storage.tables import Tables
from engine.testing import ManualClock as Clock

START = "2026-11-21T09:00:00.000Z"
SESSION = "session-0badcafe"
ANA = Actor(id="U0ANA", name="ana", facts_known=True)
BEN = Actor(id="U0BEN", name="ben", facts_known=True)


def everybody(actor: Actor, action: Action, state: State, prompt: Asked | None) -> str | None:
    """A policy that lets everybody do everything."""
    return None


def nobody_but(*allowed: Actor) -> Callable[[Actor, Action, State, Asked | None], str | None]:
    """A policy that lets only these people do anything."""

    def policy(actor: Actor, action: Action, state: State, prompt: Asked | None) -> str | None:
        return None if actor in allowed else f"{actor.name} may not {action}"

    return policy


def flow_of(text: str, file: str = "flow.yml") -> Flow:
    """The flow of a text; nodes may be written without the head of a file."""
    head = "" if text.startswith(("flow:", "{")) or "\nflow:" in text else "flow: demo\n"
    return load_flow(head + text, file)


# --- the pure core ---------------------------------------------------------------------------------------


class Scenario:
    """A session in the pure core. Every turn is checked: it changes no value that it got, says the same twice, and
    its events survive their encoding and fold to the state that the turn ended with."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.state = State()
        self.events: list[Event] = []
        self.last: list[Event] = []
        self.now = START
        self.epoch = 1
        self.policy: Any = everybody
        self.entropy = ""
        self._turns = 0

    # -- given

    def started(self, actor: Actor = ANA, **inputs: Json) -> Self:
        """The session was started with these inputs."""
        return self.when(Start(SESSION, dict(inputs), actor, {"key": "T1:C1:1.2", "channel": "C1"}))

    def allowing(self, *people: Actor) -> Self:
        """Only these people may do anything."""
        self.policy = nobody_but(*people)
        return self

    def later(self, seconds: float) -> Self:
        """So much time has passed."""
        self.now = clock.after(self.now, seconds)
        return self

    def forked(self, at: int | None = None) -> Self:
        """A copy of the session that Ben made, from this event on (default: the last one), before anybody claims it."""
        begun = past.fork(self.events, at or self.state.seq, "session-0f0f0f0f", BEN, self.now, "entropy")
        copy = type(self)(self.flow)
        copy.state, copy.events, copy.now = begun.state, list(begun.events), self.now
        copy._turns = self._turns + 100
        return copy

    # -- when

    def when(self, *commands: Command) -> Self:
        """Carry commands out as the engine does: the command, then what is due begins."""
        self.last = []
        for command in commands:
            self._take(command)
            self._take(Begin())
        return self

    def only(self, command: Command) -> Self:
        """Carry a command out without beginning what is due, as while a process is leaving."""
        self.last = []
        self._take(command)
        return self

    def claimed(self) -> Self:
        """Another process claims the session."""
        self.epoch += 1
        return self.when(Claimed())

    def refused(self, command: Command, error: type[SaysoError]) -> str:
        """The command is refused with this error and changes nothing; the text that the person reads."""
        before = to_bytes(self.state)
        with pytest.raises(error) as refusal:
            decide(self.flow, self.state, command, self._facts(), KINDS)
        assert refusal.type is error
        assert to_bytes(self.state) == before, "a refused command changed the state"
        return str(refusal.value)

    # -- then

    def then(self, *types: str) -> Self:
        """Exactly these events were written."""
        assert [event.type for event in self.last] == list(types)
        return self

    def event(self, kind: str) -> Any:
        """The one event of that type among the last ones."""
        found = [event for event in self.last if event.type == kind]
        assert len(found) == 1, f"{len(found)} events {kind} in {[event.type for event in self.last]}"
        return found[0]

    def node(self, path: str) -> NodeRun:
        """A node as the state has it."""
        return self.state.nodes[path]

    @property
    def prompt(self) -> Asked:
        """The one open prompt."""
        (prompt_id,) = self.state.open_prompts
        return self.state.prompts[prompt_id]

    @property
    def timer(self) -> str:
        """The id of the one timer that is set."""
        (timer_id,) = self.state.timers
        return timer_id

    # -- commands that name the open prompt

    def answer(self, value: Json = None, *, text: str | None = None, **more: Any) -> Answer:
        """An answer to the open prompt."""
        self._turns += 1
        fields = {"actor": ANA, "key": f"key-{self._turns}", **more}
        return Answer(self.prompt.prompt_id, value=value, text=text, **fields)

    def message(self, text: str, actor: Actor = ANA, key: str | None = None) -> Message:
        """A message that names no prompt."""
        self._turns += 1
        return Message(text, actor, key or f"key-{self._turns}")

    def shown(self, **place: Json) -> Shown:
        """The open prompt is in front of people."""
        return Shown(self.prompt.prompt_id, place or {"channel": "C1", "ts": "1.3"})

    def timer_due(self) -> Due:
        """The time of the one timer has come, as far as whoever says so knows."""
        return Due(self.timer)

    def abort(self, actor: Actor = ANA, reason: str | None = None) -> Abort:
        """End the session."""
        return Abort(actor, reason)

    # -- one turn, checked

    def _facts(self) -> Facts:
        return Facts(
            now=self.now,
            epoch=self.epoch,
            entropy=self.entropy or f"turn-{self.state.seq}",
            policy=self.policy,
        )

    def _take(self, command: Command) -> None:
        before, facts = to_bytes(self.state), self._facts()
        made = decide(self.flow, self.state, command, facts, KINDS)
        assert to_bytes(self.state) == before, "a turn changed the state that it was given"
        again = decide(self.flow, from_bytes(before), command, facts, KINDS)
        assert [event.to_wire() for event in made] == [event.to_wire() for event in again], (
            "not deterministic"
        )
        stored = [decode_event(event.to_bytes()) for event in made]
        assert stored == made, "an event is not what its bytes say"
        self.state = derive_state(stored, self.state)
        rest = Step(self.flow, self.state, facts, KINDS)
        run_to_fixpoint(rest)
        assert not rest.events, "something follows where nobody looked"
        self.events += made
        self.last += made


def given(flow_text: str) -> Scenario:
    """A session of this flow that does not exist yet."""
    return Scenario(flow_of(flow_text))


def check_invariants(flow: Flow, events: Sequence[Event], state: State, epoch: int) -> None:
    """What holds after every turn, whatever happened before."""
    types = [event.type for event in events]
    assert types.count("session:end") <= 1
    assert "session:end" not in types[:-1], "something happened after the end"
    assert set(state.active) == {path for path, run in state.nodes.items() if run.status in UNFINISHED}
    executed = {
        path for path, run in state.nodes.items() if run.status == "started" and mode_of(run.type) == "run"
    }
    assert set(state.launched) == executed
    assert set(state.open_prompts) == {key for key, prompt in state.prompts.items() if prompt.open}
    work = due(flow, state, KINDS)
    for item in work:
        # The pass in which something begins may be called as its owner is (model calls of an agent).
        path = item.path if item.again or item.node is None else f"{item.path}/{item.node}".lstrip("/")
        run = state.nodes.get(path)
        assert item.again == (run is not None), "a node is due that has run, or one again that has not"
        assert run is None or run.status == "interrupted"
    if state.phase not in ("running", "finalizing"):
        assert not work
    if state.phase in ("waiting", "held"):
        assert not state.launched
    if state.phase == "waiting":
        assert state.open_prompts or state.timers or pending(state), "it is not waiting for anything"
    if state.phase == "ended":
        assert not state.open_prompts
        assert not state.timers
    check_starts(events)


def check_starts(events: Sequence[Event]) -> None:
    """No node starts twice without an interruption, a retry or word of how it continues after its failure between,
    and none starts after it completed."""
    standing: dict[str | None, str] = {}
    for event in events:
        if event.type in ("node:started", "container:childStarted"):
            before = standing.get(event.path)
            again = (None, "node:interrupted", "node:retried", "prompt:answered", "agent:outcome")
            assert before in again, f"{event.path} started twice after {before}"
        if event.type == "prompt:answered" and standing.get(event.path) == "node:failing":
            standing[event.path] = event.type
        if event.type == "agent:outcome" and event.how != "ask":
            # A model call that failed is made again, as it says.
            turns = [path for path, last in standing.items() if last == "node:failing" and path]
            standing |= {path: event.type for path in turns if path.startswith(f"{event.path}/turn[")}
        if event.type.startswith("node:") or event.type.startswith("container:child"):
            standing[event.path] = event.type


# --- the shell -------------------------------------------------------------------------------------------


class Backing:
    """A database that several stores open: what survives a process."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.file = folder / "sayso.db"
        self._first: MemoryStore | None = None
        self._url: str | None = None

    def open(self, key: bytes | None = None) -> Store:
        """Another connection, as another process would have."""
        if self.kind == "sqlite":
            return open_sqlite(self.file, key=key)
        if self.kind == "postgres":
            return self._on_server(key)
        if self._first is None:
            self._first = MemoryStore(key)
            return self._first
        return self._first.another()

    def _on_server(self, key: bytes | None) -> Store:
        from engine.storage.postgres import open_postgres
        from tests.support import postgres

        if self._url is None:
            self._url = postgres.new_database()
        return open_postgres(self._url, key or postgres.KEY)

    def connect(self) -> apsw.Connection:
        """A plain connection, as another program would have: for changing rows behind a store's back."""
        if self.kind == "sqlite":
            return apsw.Connection(str(self.file))
        if self.kind == "postgres":
            pytest.skip("rows are changed in SQLite's words")
        assert self._first is not None
        return self._first.database.connect()


class FaultyStore:
    """A store whose next commits fail as told in `failures`, and whose other methods answer as told in `answers` (an
    exception is raised), by their names (`quarantine`, `sessions.head`); everything else goes through."""

    def __init__(self, store: Store) -> None:
        self.inner = store
        self.failures: list[Exception] = []
        self.failed = asyncio.Event()
        self.batches: list[int] = []
        self.answers: dict[str, Any] = {}
        self.near = store.near
        self._loop = asyncio.get_running_loop()

    def commit(self, batch: Sequence[Commit]) -> list[PartResult]:
        """Fail with the next failure, if there is one left."""
        self.batches.append(len(batch))
        if self.failures:
            error = self.failures.pop(0)
            self._loop.call_soon_threadsafe(self.failed.set)
            raise error
        return self.inner.commit(batch)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        return _FaultyPart(self, name, found) if isinstance(found, Tables) else self.answered(name, found)

    def answered(self, name: str, found: Any) -> Any:
        """What was found under a name, or a method that answers as told."""
        if name not in self.answers:
            return found
        answer = self.answers[name]

        def method(*args: Any, **kwargs: Any) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        return method


class _FaultyPart:
    """A part of such a store."""

    def __init__(self, store: FaultyStore, name: str, inner: Tables) -> None:
        self._store, self._name, self._inner = store, name, inner

    def __getattr__(self, name: str) -> Any:
        return self._store.answered(f"{self._name}.{name}", getattr(self._inner, name))


@dataclass
class Work:
    """One execution of a node in the workshop."""

    path: str
    attempt: int
    context: NodeContext
    done: asyncio.Future[Outcome]


class Workshop:
    """Runs `shell` nodes as the test says: `run: [now]` is done at once, `run: [wait]` when the test ends it (or
    the session leaves: then it is cut), `run: [stubborn]` only when the test ends it."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.open: dict[str, Work] = {}
        self._changed = asyncio.Condition()

    async def __call__(self, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        """The runner."""
        self.ran.append(ctx.path)
        if config["run"][0] == "now":
            return Completed(self.output(*config["run"][1:]))
        work = Work(ctx.path, ctx.attempt, ctx, asyncio.get_running_loop().create_future())
        await self._note(lambda: self.open.__setitem__(ctx.path, work))
        try:
            return await self._wait(work, leaves=config["run"][0] == "wait")
        finally:
            await self._note(lambda: self.open.pop(ctx.path, None))

    async def _wait(self, work: Work, *, leaves: bool) -> Outcome:
        from engine.nodes.runtime.runner import Interrupted

        cut = asyncio.ensure_future(work.context.aborted.wait())
        waiting: set[asyncio.Future[Any]] = {work.done, cut} if leaves else {work.done}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            cut.cancel()
        return work.done.result() if work.done.done() else Interrupted("cut")

    async def _note(self, change: Callable[[], Any]) -> None:
        async with self._changed:
            change()
            self._changed.notify_all()

    async def running(self, path: str) -> Work:
        """Return as soon as that node is being worked on."""
        async with self._changed:
            await self._changed.wait_for(lambda: path in self.open)
        return self.open[path]

    async def finish(self, path: str, outcome: Outcome | None = None) -> None:
        """End a node, well unless told otherwise."""
        work = await self.running(path)
        work.done.set_result(outcome or Completed(self.output(path)))

    @staticmethod
    def output(*words: Json) -> dict[str, Json]:
        """What a shell node puts out."""
        return {"stdout": " ".join(str(word) for word in words), "stderr": "", "exit_code": 0, "seconds": 0.0}


class Committed:
    """Wait until the committed events of an engine satisfy a condition."""

    def __init__(self, engine: Engine) -> None:
        self.events: list[tuple[str, Event]] = []
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        engine.subscribe(self._note)

    def _note(self, state: State, events: Sequence[Event]) -> None:
        self.events += [(state.session_id, event) for event in events]
        task = asyncio.get_running_loop().create_task(self._tell())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def until(self, kind: str, session_id: str | None = None, times: int = 1) -> None:
        """Return as soon as so many events of that type were committed."""

        def count() -> int:
            return sum(event.type == kind and session_id in (None, owner) for owner, event in self.events)

        async with self._changed:
            await self._changed.wait_for(lambda: count() >= times)


@dataclass
class EngineRig:
    """An engine, what its nodes do, and how to see what happened."""

    engine: Engine
    store: Store
    shop: Workshop
    clock: Clock
    committed: Committed

    async def start(self, flow_text: str, *, actor: Actor = ANA, thread: Any = None, **inputs: Json) -> str:
        """Start a session and return its id."""
        return await self.engine.start(flow_of(flow_text), inputs, actor=actor, thread=thread)

    async def settled(self, flow_text: str, **inputs: Json) -> State:
        """Start a session and wait until nothing works for it."""
        return await self.engine.parked(await self.start(flow_text, **inputs))

    async def open_prompt(self, session_id: str) -> Asked:
        """The one open prompt of a session."""
        state = await self.engine.state(session_id)
        (prompt_id,) = state.open_prompts
        return state.prompts[prompt_id]

    async def asked(self, flow_text: str, **inputs: Json) -> tuple[str, str]:
        """Start a session that asks one question: its id and that of the prompt."""
        state = await self.settled(flow_text, **inputs)
        (prompt_id,) = state.open_prompts
        return state.session_id, prompt_id

    async def answer(self, session_id: str, value: Json = None, *, actor: Actor = ANA, **said: Json) -> State:
        """Answer the one open prompt of a session and wait until nothing works for it."""
        prompt_id = (await self.open_prompt(session_id)).prompt_id
        answer = Answer(prompt_id, actor, f"answer:{prompt_id}", value=value, **said)
        await self.engine.resume(session_id, answer)
        return await self.engine.parked(session_id)

    async def reply(self, session_id: str, text: str, actor: Actor = ANA) -> State:
        """Resume with a message and wait until nothing works for the session."""
        await self.engine.resume(session_id, text, actor=actor)
        return await self.engine.parked(session_id)

    async def types(self, session_id: str) -> list[str]:
        """The journal, as types."""
        return [event.type for event in await self.engine.journal(session_id)]

    @property
    def seen(self) -> list[Event]:
        """All events that subscribers were told of."""
        return [event for _, event in self.committed.events]

    def live(self) -> list[str]:
        """The sessions that this process still has in memory."""
        return list(self.engine.sessions.active)


@asynccontextmanager
async def running(
    store: Store | FaultyStore,
    home: Path,
    *,
    shop: Workshop | None = None,
    runners: Mapping[str, Runner] | None = None,
    now: Clock | None = None,
    **options: Any,
) -> AsyncIterator[EngineRig]:
    """An engine over a store; at the end it drains and the store is closed."""
    shop, now = shop or Workshop(), now or Clock()
    engine = Engine(
        cast(Store, store),
        **{"policy": everybody, "runners": runners or {"shell": shop}, "home": home, "now": now, **options},
    )
    rig = EngineRig(engine, cast(Store, store), shop, now, Committed(engine))
    await engine.open()
    try:
        yield rig
    finally:
        await engine.close()
        store.close()


def shell_runners() -> dict[str, Runner]:
    """The real runners, for nodes that write to files."""
    return dict(real_runners())


class Rounds:
    """The real dispatcher; `first` is set when the service has looked once at everything that there was to do."""

    def __init__(self, engine: Engine) -> None:
        self._inner = LocalWakeups(lambda: engine.writer.call(engine.store.changed))
        self.first = asyncio.Event()

    def notify(self) -> None:
        """See `Wakeups.notify`."""
        self._inner.notify()

    async def wait(self, seconds: float) -> None:
        """See `Wakeups.wait`."""
        self.first.set()
        await self._inner.wait(seconds)


@asynccontextmanager
async def served(engine: Engine, **options: Any) -> AsyncIterator[Dispatcher]:
    """A service over an engine that has looked at everything once; stopped at the end. What it raised is raised."""
    rounds = Rounds(engine)
    service = Dispatcher(engine, **{"wakeups": rounds, **options})
    task = asyncio.create_task(service.run())
    first = asyncio.create_task(rounds.first.wait())
    await asyncio.wait({task, first}, return_when=asyncio.FIRST_COMPLETED)
    first.cancel()
    if engine.store.shared:
        await service.caught_up(10.0)  # lanes are looked into by tasks of their own
    try:
        yield service
    finally:
        service.stop()
        await task


def counted(file: Path) -> list[str]:
    """The lines that nodes wrote."""
    return file.read_text().splitlines() if file.exists() else []


def abandon(store: Store) -> None:
    """Make everybody believe that this store's process has died, although it can still write: a zombie."""
    cast(Any, store)._owners.close()


async def until(condition: Callable[[], bool], within: float = 20.0, pause: float = 0.01) -> None:
    """Wait for something that gives no signal, in another process or on disk; fails after so many seconds."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - there is no signal to wait for
            await asyncio.sleep(pause)
