"""Conversations through any number of lives of the engine: real runners, a real database, a model that answers by
how far the conversation is.

A life ends right before or right after one of its commits: of what that commit began nothing is launched. A person may
also hold the session after any commit and resume it with a message.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain, repeat
from pathlib import Path
from typing import Any, cast

from engine.decide.agents.spend_projection import SpendRows, nanos
from engine.decide.commands import Answer, Due
from engine.flow import Flow
from engine.flow.load import load_flow
from engine.journal.events import Event, decode_event
from engine.journal.fold import derive_state
from engine.journal.records import Commit
from engine.journal.state import Asked, State
from engine.language.errors import Fenced, SessionEnded
from engine.models.provider import Provider
from engine.models.turn_runner import TurnRunner
from engine.nodes.runtime.table import with_runner
from engine.run.engine import Engine
from engine.storage.sqlite import open_sqlite
from engine.storage.store import Store
from engine.testing.crashes import CrashingStore, never, nth
from tests.support.claude_binding import grows
from tests.support.claude_mind import Direct, Mind
from tests.support.claude_server import call
from tests.support.engine import ANA, SESSION, START, Clock, check_starts, counted, everybody, shell_runners

PATIENCE = 60.0
"""Seconds that a life may take."""
MOST_LIVES = 200
RESUMED = "go on, and be quick"
"""What a person says who resumes a session that was held."""

FLOW = """
flow: incident
tools:
  logs:
    description: The last lines of a service's log
    input: {{service: {{type: string}}}}
    type: shell
    with: {{run: [sh, "{script}", "{{{{ input.service }}}}"]}}
    on_crash: again
nodes:
  - id: diagnose
    type: agent
    with:
      prompt: Why is the shop down?
      system: Be short.
      max_cost: 5
      tools: [logs, ask_human, {{shell: {{commands: ["sh *"]}}}}]
      approvals: {{shell: [approve, edit, reject]}}
"""
MARK = """
echo "$SAYSO_IDEMPOTENCY_KEY" >> "$0.runs"
grep -Fqx "$SAYSO_IDEMPOTENCY_KEY $1" "$0.marks" 2>/dev/null || echo "$SAYSO_IDEMPOTENCY_KEY $1" >> "$0.marks"
echo "did $1"
"""
"""A tool that leaves its mark once for each key, as tools outside do, and a line for each time that it ran."""


def said(text: str, *calls: dict[str, Any]) -> list[dict[str, Any]]:
    """The blocks of an answer, which the model has thought about: that is bound to all that was said before."""
    thought = {"type": "thinking", "thinking": f"So: {text}", "signature": ""}
    return [thought, {"type": "text", "text": text}, *calls]


def answers(script: Path) -> list[list[dict[str, Any]]]:
    """The conversation of the proof: two tools at once, a question, a command that is approved while a tool runs."""
    restart = call("shell", {"command": f"sh {script} restart"}, "toolu_restart")
    return [
        said(
            "Let me look.",
            call("logs", {"service": "db"}, "toolu_db"),
            call("logs", {"service": "web"}, "toolu_web"),
        ),
        said("I am not sure.", call("ask_human", {"question": "Which one may I restart?"}, "toolu_ask")),
        said("I restart it.", restart, call("logs", {"service": "cache"}, "toolu_cache")),
        said("The disk was full. It is well again."),
    ]


# --- one life ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Death:
    """A life ends right before, or right after, its n-th commit."""

    commit: int
    before: bool = False


def mortal(inner: Store, death: Death | None = None, *, kill: bool = False) -> CrashingStore:
    """A store that serves one life. The commit that ends it is not heard of: nothing of it is launched. With `kill`
    the whole process dies there."""
    at = nth(death.commit) if death is not None else never

    def dies(batch: Sequence[Commit]) -> bool:
        if not at(batch):
            return False
        if kill:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    if death is not None and death.before:
        return CrashingStore(inner, before=dies, heard=False)
    return CrashingStore(inner, after=dies, heard=False)


class Person:
    """Answers what is asked once nothing works any more, lets time pass where only time is waited for, and may hold
    the session after some commits."""

    def __init__(
        self, engine: Engine, clock: Clock, hold_after: Iterable[int] = (), session_id: str = SESSION
    ) -> None:
        self.engine = engine
        self.session_id = session_id
        self.clock = clock
        self._holds = set(hold_after)
        self._heard = 0
        self._tasks: list[asyncio.Task[None]] = []
        engine.subscribe(self._note)

    def _note(self, state: State, events: Sequence[Event]) -> None:
        self._heard += 1
        if self._heard in self._holds:
            self._tasks.append(asyncio.get_running_loop().create_task(self._hold()))

    async def _hold(self) -> None:
        with contextlib.suppress(SessionEnded):
            await self.engine.pause(self.session_id, actor=ANA, reason="proof")

    async def leave(self) -> None:
        """Wait for a hold that is in progress when a life ends."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def act(self, answer: Callable[[Asked], str]) -> State:
        """Wait until nothing works, then do the one thing that there is to do; the state after it."""
        for task in self._tasks:
            await task
        self._tasks.clear()
        state = await self.engine.parked(self.session_id)
        if self._tasks:
            return state
        if state.phase == "held":
            return await self.engine.resume(self.session_id, RESUMED, actor=ANA, key=f"resume:{state.seq}")
        if state.open_prompts:
            prompt = min((state.prompts[key] for key in state.open_prompts), key=lambda each: each.path)
            value = answer(prompt)
            told: dict[str, Any] = {"value": value} if prompt.options else {"text": value}
            return await self.engine.apply(
                self.session_id, Answer(prompt.prompt_id, ANA, f"person:{prompt.prompt_id}", **told)
            )
        if state.timers:
            timer = min(state.timers.values(), key=lambda each: (each.due_at, each.timer_id))
            self.clock.now = max(self.clock.now, timer.due_at)
            return await self.engine.apply(self.session_id, Due(timer.timer_id))
        return state


def helpful(prompt: Asked) -> str:
    """What the person of the proof says."""
    return {"interrupted": "again", "approval": "approve", "budget": "raise"}.get(prompt.kind, "the database")


@contextlib.asynccontextmanager
async def opened(
    store: CrashingStore,
    home: Path,
    provider: Provider,
    *,
    clock: Clock | None = None,
    day_cap: Decimal | None = None,
) -> AsyncIterator[Engine]:
    """An engine of one life, whose agents ask this provider; closed at the end with its store."""
    engine = Engine(
        cast(Store, store),
        policy=everybody,
        runners=with_runner(shell_runners(), "turn", TurnRunner(lambda ctx: provider)),
        home=home,
        now=clock or Clock(),
        extensions=[SpendRows(day_cap)],
    )
    await engine.open()
    try:
        async with asyncio.timeout(PATIENCE):
            yield engine
    except Fenced:
        if not store.dead:
            raise
    finally:
        await engine.close()
        store.close()


async def live(
    flow: Flow,
    store: CrashingStore,
    home: Path,
    provider: Provider,
    *,
    hold_after: Iterable[int] = (),
    answer: Callable[[Asked], str] = helpful,
) -> bool:
    """One life; whether the session has ended in it."""
    clock = Clock()
    async with opened(store, home, provider, clock=clock) as engine:
        person = Person(engine, clock, hold_after)
        try:
            await begin(engine, flow, SESSION)
            while not store.dead:
                if (await person.act(answer)).ended:
                    return True
        finally:
            await person.leave()
    return False


async def begin(engine: Engine, flow: Flow, session_id: str) -> None:
    """Start a session, or take it up where it is."""
    if await engine.writer.call(engine.store.sessions.head, session_id) is None:
        await engine.start(flow, {}, actor=ANA, session_id=session_id)
    else:
        await engine.apply(session_id, None)


# --- runs --------------------------------------------------------------------------------------------------------


@dataclass
class Run:
    """A run that has ended."""

    state: State
    events: list[Event]
    mind: Mind
    marks: list[str]
    runs: Counter[str]
    commits: int = 0
    lives: int = 0
    last: bytes = b""
    """The conversation as it was sent with the last call."""
    output: Any = None
    interrupted: Counter[str] = field(default_factory=Counter)
    """How often each path was interrupted."""
    spent_today: int = 0
    """What counts for the day's cap, in billionths of a dollar."""


@dataclass
class Stage:
    """The files of a run: its database, its tools' marks."""

    folder: Path

    @property
    def script(self) -> Path:
        """The program that is all tools."""
        return self.folder / "mark.sh"

    @property
    def database(self) -> Path:
        """The store."""
        return self.folder / "sayso.db"

    def flow(self) -> Flow:
        """The flow of the proof."""
        return load_flow(FLOW.format(script=self.script), "incident.yml")

    def prepare(self) -> Stage:
        """Make what tools need."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.script.write_text(MARK)
        return self

    def finished(self, mind: Mind) -> Run:
        """What the store and the files say about a run that has ended."""
        store = open_sqlite(self.database)
        events = [decode_event(row) for row in store.sessions.journal(SESSION)]
        spent = store.spend.on(START[:10])
        store.close()
        state = derive_state(events)
        assert state.ended, "the journal does not end"
        check_starts(events)
        found = Run(state, events, mind, counted(self.script.with_suffix(".sh.marks")), Counter())
        found.spent_today = spent
        found.runs = Counter(counted(self.script.with_suffix(".sh.runs")))
        found.interrupted = Counter(str(event.path) for event in events if event.type == "node:interrupted")
        found.last = mind.messages().replace(str(self.folder).encode(), b".")
        found.output = state.nodes["diagnose"].output
        return found


async def run(
    folder: Path, deaths: Iterable[Death], *, hold_after: Iterable[int] = (), most: int = MOST_LIVES
) -> Run:
    """The conversation of the proof through lives that end so, followed by one without an end."""
    stage = Stage(folder).prepare()
    flow, mind, commits = stage.flow(), Mind(answers(stage.script)), 0
    held = list(hold_after)
    for count, death in enumerate(chain(deaths, repeat(None)), 1):
        assert count <= most, "so many lives and no end"
        store = mortal(open_sqlite(stage.database), death)
        ended = await live(flow, store, folder, Direct(mind), hold_after=held)
        commits += store.batches
        if ended:
            break
    found = stage.finished(mind)
    grows(mind.requests)
    found.commits, found.lives = commits, count
    return found


def same_length(folder: Path, number: int) -> Path:
    """A folder for a run whose path is as long as that of the others: what is sent names it, and is paid by length."""
    return folder / f"run{number:04d}"


def compare(plain: Run, other: Run) -> None:
    """Raise an AssertionError that says what deaths have changed of a conversation."""
    assert other.mind.refused == [], f"the API would have refused: {other.mind.refused[0]}"
    assert other.state.status == plain.state.status, f"ended {other.state.status}: {other.state.error}"
    assert other.last == plain.last, "the conversation is another one"
    assert other.output == plain.output, "the agent's output is another one"
    assert sorted(other.marks) == sorted(plain.marks), "the tools were called with other keys"
    compare_effects(plain, other)
    spent, known = other.state.spent, plain.state.spent
    assert (spent.cost, spent.tokens, spent.turns) == (known.cost, known.tokens, known.turns)
    cut = [path for path in other.interrupted.elements() if path.endswith("]") and "tool" not in path]
    assert bool(Decimal(spent.unsure)) == bool(cut), f"unsure are {spent.unsure}, and cut were {cut}"
    assert len(other.mind.requests) <= len(plain.mind.requests) + len(cut), (
        "a call that was answered was made again"
    )
    paid(other)


def compare_effects(plain: Run, other: Run) -> None:
    """Every tool left its mark once, and ran again only where it was interrupted."""
    assert done(other.marks) == done(plain.marks), "the tools did other things"
    for key, times in other.runs.items():
        path = key.partition(":")[2]
        assert times <= 1 + other.interrupted[path], f"{path} ran {times} times"


def done(marks: Sequence[str]) -> list[str]:
    """What was done. The keys are others where an answer was cut, which counts as a turn of its own."""
    return sorted(mark.partition(" ")[2] for mark in marks)


def paid(run: Run) -> None:
    """Nothing is set aside at the end, the day counts what the session counts, and what was billed is in it."""
    spent = run.state.spent
    assert Decimal(spent.reserved) == 0
    counted = Decimal(spent.cost) + Decimal(spent.unsure)
    assert run.spent_today == nanos(counted)
    assert run.mind.billed <= counted, f"billed {run.mind.billed}, counted {counted}"
