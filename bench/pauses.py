"""How long a session takes to stop for a person, and to continue once the person has answered, warm.

Each round is a session of its own: a node, a question, a node.
*Pause* is from the end of the first node until the question, the snapshot and the intent to show it are committed
and the engine has heard so. *Resume* is from handing the reply to the store (as Slack's event would be) until the
runner of the last node is called: ingest, wake up, decide, commit. The floor is one plain commit with as many bytes as
the commit of the pause; a resume holds two such commits, one after the other, because the reply is acknowledged before
anything is done about it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.floor import MILLISECONDS, Floor
from bench.nodes import folder_in
from bench.report import Row, median, quantile
from bench.rig import ANA, NOTHING, Rig, engine_in, thread_of
from engine.decide.commands import Shown
from engine.flow.load import load_flow
from engine.journal.events import Event
from engine.journal.state import State
from engine.language.codec import Json
from engine.nodes.runtime.runner import NodeContext, Outcome
from engine.run import remote_commands
from engine.run.dispatcher import Dispatcher

FLOW = """
flow: pause
nodes:
  - {id: before, type: shell, with: {run: ["true"]}, on_crash: again}
  - {id: question, type: ask, with: {message: "How does it look?"}}
  - {id: after, type: shell, with: {run: ["true"]}, on_crash: again}
"""
WARM_UP = 20
FLOOR_EVERY = 5
MOST_MILLISECONDS = 10.0


@dataclass
class Watch:
    """Notes when the nodes of the current round end and begin, and when its pause is committed."""

    ended: float = 0.0
    paused: asyncio.Event = field(default_factory=asyncio.Event)
    paused_at: float = 0.0
    resumed: asyncio.Event = field(default_factory=asyncio.Event)
    resumed_at: float = 0.0

    async def run(self, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        """The runner."""
        if ctx.path == "after":
            self.resumed_at = time.perf_counter()
            self.resumed.set()
        self.ended = time.perf_counter()
        return NOTHING

    def hear(self, state: State, events: Sequence[Event]) -> None:
        """The subscriber: it is told after the commit."""
        if any(event.type == "flow:paused" for event in events):
            self.paused_at = time.perf_counter()
            self.paused.set()

    def begin(self) -> None:
        """A new round."""
        self.paused.clear()
        self.resumed.clear()


@dataclass
class Taken:
    """Milliseconds of all rounds."""

    pauses: list[float] = field(default_factory=list)
    resumes: list[float] = field(default_factory=list)

    def both(self) -> list[float]:
        """Pause and resume of each round together."""
        return [pause + resume for pause, resume in zip(self.pauses, self.resumes, strict=True)]


def measure(base: Path, *, quick: bool) -> list[Row]:
    """The rows about pausing and resuming."""
    return asyncio.run(_measure(base, 50 if quick else 500))


async def _measure(base: Path, rounds: int) -> list[Row]:
    watch, taken = Watch(), Taken()
    with folder_in(base) as folder, folder_in(base) as beside:
        async with engine_in(folder, watch.run) as rig:
            rig.engine.subscribe(watch.hear)
            service = Dispatcher(rig.engine)
            serving = asyncio.create_task(service.run())
            for number in range(WARM_UP):
                await _round(rig, service, watch, number, Taken())
            floor = Floor(beside, await rig.bytes_per_commit())
            for number in range(WARM_UP, WARM_UP + rounds):
                if number % FLOOR_EVERY == 0:
                    floor.sample(FLOOR_EVERY)
                await _round(rig, service, watch, number, taken)
            service.stop()
            await serving
            floor.close()
    return _rows(taken, floor, rounds)


async def _round(rig: Rig, service: Dispatcher, watch: Watch, number: int, taken: Taken) -> None:
    engine = rig.engine
    watch.begin()
    thread = thread_of("T0BENCH", "C0BENCH", f"1790000000.{number:06d}")
    session_id = await engine.start(load_flow(FLOW, "pause.yml"), {}, actor=ANA, thread=thread)
    await watch.paused.wait()
    taken.pauses.append((watch.paused_at - watch.ended) * MILLISECONDS)
    state = await engine.parked(session_id)
    prompt_id = next(iter(state.open_prompts))
    await engine.apply(session_id, Shown(prompt_id, {"channel": "C0BENCH", "ts": "1790000000.9"}))
    reply = remote_commands.item(
        f"reply:{number}", session_id, "answer", actor=ANA, promptId=prompt_id, text="Fine"
    )
    begin = time.perf_counter()
    await engine.writer.ingest([reply], engine.now())
    service.notify()
    await watch.resumed.wait()
    taken.resumes.append((watch.resumed_at - begin) * MILLISECONDS)
    await engine.parked(session_id)


def _rows(taken: Taken, floor: Floor, rounds: int) -> list[Row]:
    least = median(floor.samples)
    note = f"{rounds} sessions, each paused and resumed once; {floor.size} bytes a commit"
    both = taken.both()
    rows = [
        Row("pause: node reached to durable, p50", median(taken.pauses), "ms", floor=least, note=note),
        Row("pause, p99", quantile(taken.pauses, 0.99), "ms", floor=quantile(floor.samples, 0.99)),
        Row("resume: reply ingested to next node, p50", median(taken.resumes), "ms", floor=least),
        Row("resume, p99", quantile(taken.resumes, 0.99), "ms", floor=quantile(floor.samples, 0.99)),
        Row("pause + resume, p99", quantile(both, 0.99), "ms", limit=MOST_MILLISECONDS),
    ]
    return rows
