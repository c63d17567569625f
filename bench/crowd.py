"""Many sessions at once: each asks one question, and all questions are answered in the same moment.

Sessions are ready in the same turns, so they share commits: one wait for the disk serves many. *Sessions a second* is
their number by the time from the first reply handed to the store until the last session's next node is called; a
*resume* is from handing over one reply until its session's next node is called, so a late one has waited for the others.
The floor does the same durable work as plain SQLite, in as many transactions as sessions, one after the other.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.floor import MILLISECONDS, Floor
from bench.nodes import folder_in
from bench.pauses import FLOW
from bench.report import Row, median, quantile
from bench.rig import ANA, NOTHING, Rig, engine_in, thread_of
from engine.decide.commands import Shown
from engine.flow.load import load_flow
from engine.language.codec import Json
from engine.nodes.runtime.runner import NodeContext, Outcome
from engine.run import remote_commands
from engine.run.dispatcher import Dispatcher

SESSIONS = 200
LEAST_A_SECOND = 2000.0


@dataclass
class Crowd:
    """Notes when each session's next node is called."""

    resumed: dict[str, float] = field(default_factory=dict)
    awaited: int = 0
    all_there: asyncio.Event = field(default_factory=asyncio.Event)
    runs: int = 0

    async def run(self, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        """The runner."""
        self.runs += 1
        if ctx.path == "after":
            self.resumed[ctx.idempotency_key.partition(":")[0]] = time.perf_counter()
            if len(self.resumed) == self.awaited:
                self.all_there.set()
        return NOTHING


@dataclass
class Answered:
    """What the rounds took: sessions a second, milliseconds of each resume, and the floor's sessions a second."""

    rates: list[float] = field(default_factory=list)
    resumes: list[float] = field(default_factory=list)
    floors: list[float] = field(default_factory=list)
    commits: int = 0
    again: int = 0


def measure(base: Path, *, quick: bool) -> list[Row]:
    """The rows about many sessions at once."""
    return asyncio.run(_measure(base, 2 if quick else 7))


async def _measure(base: Path, rounds: int) -> list[Row]:
    crowd, answered = Crowd(), Answered()
    with folder_in(base) as folder, folder_in(base) as beside:
        async with engine_in(folder, crowd.run) as rig:
            service = Dispatcher(rig.engine)
            serving = asyncio.create_task(service.run())
            await _round(rig, service, crowd, Answered(), 0)
            floor = Floor(beside, await rig.bytes_per_commit())
            for number in range(1, rounds + 1):
                answered.floors.append(1 / (sum(floor.sample(SESSIONS)) / MILLISECONDS / SESSIONS))
                await _round(rig, service, crowd, answered, number)
            service.stop()
            await serving
            floor.close()
    return _rows(answered, rounds)


async def _round(rig: Rig, service: Dispatcher, crowd: Crowd, answered: Answered, number: int) -> None:
    engine = rig.engine
    flow, questions = load_flow(FLOW, "pause.yml"), {}
    crowd.resumed, crowd.awaited, crowd.all_there, crowd.runs = {}, SESSIONS, asyncio.Event(), 0
    for index in range(SESSIONS):
        thread = thread_of("T0BENCH", "C0BENCH", f"179000{number:04d}.{index:06d}")
        session_id = await engine.start(flow, {}, actor=ANA, thread=thread)
        state = await engine.parked(session_id)
        (prompt_id,) = state.open_prompts
        await engine.apply(session_id, Shown(prompt_id, {"channel": "C0BENCH", "ts": "1790000000.9"}))
        questions[session_id] = prompt_id
    before, asked = rig.commits(), {}

    async def reply(session_id: str, prompt_id: str) -> None:
        key = f"reply:{prompt_id}"
        item = remote_commands.item(key, session_id, "answer", actor=ANA, promptId=prompt_id, text="Fine")
        asked[session_id] = time.perf_counter()
        await engine.writer.ingest([item], engine.now())
        service.notify()

    begin = time.perf_counter()
    await asyncio.gather(*(reply(*question) for question in questions.items()))
    await crowd.all_there.wait()
    answered.rates.append(SESSIONS / (max(crowd.resumed.values()) - begin))
    answered.resumes += [(crowd.resumed[name] - asked[name]) * MILLISECONDS for name in questions]
    for session_id in questions:
        assert (await engine.parked(session_id)).status == "complete"
    answered.commits += rig.commits() - before
    answered.again += crowd.runs - 2 * SESSIONS


def _rows(answered: Answered, rounds: int) -> list[Row]:
    shared = answered.commits / (rounds * SESSIONS)
    note = (
        f"median of {rounds} rounds of {SESSIONS} sessions; {shared:.2f} commits a session until its end; "
        f"{answered.again} nodes ran again"
    )
    rate, floor = median(answered.rates), median(answered.floors)
    return [
        Row(
            f"{SESSIONS} sessions answered at once",
            rate,
            "sessions/s",
            floor=floor,
            ratio=floor / rate,
            least=LEAST_A_SECOND,
            note=note,
        ),
        Row("their resumes, p50", median(answered.resumes), "ms"),
        Row("their resumes, p99", quantile(answered.resumes, 0.99), "ms"),
        Row("nodes that ran again", float(answered.again), "nodes", limit=0.0),
    ]
