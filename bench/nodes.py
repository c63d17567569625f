"""A linear flow of many nodes: commits and time per node.

The nodes are `shell` nodes whose work takes no time, so what is measured is all that the engine does between the
end of one node and the launch of the next: decide, fold, encode, commit with fsync, launch. Between blocks of nodes
the floor is measured with as many bytes as a node's commit has; the ratio is the median over the blocks.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from bench.floor import MILLISECONDS, Floor
from bench.report import Row, median, quantile
from bench.rig import ANA, NOTHING, engine_in
from bot.compose.spans import Spans
from bot.compose.telemetry import Sender
from engine.flow import Flow
from engine.flow.load import load_flow
from engine.journal.events import Event
from engine.journal.state import State
from engine.language.codec import Json
from engine.nodes.runtime.runner import NodeContext, Outcome

BLOCK = 25
"""Nodes between two looks at the floor, and commits in such a look."""

SHELL = "  - {{id: n{0}, type: shell, with: {{run: ['true']}}, on_crash: {1}}}\n"
PYTHON = "  - {{id: n{0}, type: python, with: {{call: 'bench.nodes:added', args: {{a: {0}, b: 1}}}}, on_crash: again}}\n"
SET = "  - {{id: n{0}, type: set, with: {{value: {0}}}}}\n"


@dataclass
class Instant:
    """Does nothing, at once, and notes how long the engine took since the node before."""

    floor: Floor | None = None
    times: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    _block: list[float] = field(default_factory=list)
    _left: float | None = None

    async def __call__(self, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        """The runner."""
        if self._left is not None:
            self._block.append((time.perf_counter() - self._left) * MILLISECONDS)
        if len(self._block) == BLOCK:
            self._close_block()
        self._left = time.perf_counter()
        return NOTHING

    def _close_block(self) -> None:
        self.times += self._block
        if self.floor is not None:
            self.ratios.append(median(self._block) / median(self.floor.sample(BLOCK)))
        self._block.clear()


@dataclass(frozen=True)
class Run:
    """One flow, run to its end."""

    commits: int
    milliseconds: float
    bytes_per_commit: int


def measure(base: Path, *, quick: bool) -> list[Row]:
    """The rows about nodes."""
    count = 200 if quick else 1000
    again = asyncio.run(_shell(base, count, "again"))
    ask = asyncio.run(_shell(base, count, "ask"))
    others = [asyncio.run(rows(base, count)) for rows in (_python, _pure, _spans, _encrypted)]
    return [*again, *ask, *itertools.chain(*others)]


def added(a: int, b: int) -> int:
    """What the `python` nodes call."""
    return a + b


async def _shell(base: Path, count: int, on_crash: str) -> list[Row]:
    size = (await _run(base, linear(SHELL, 2 * BLOCK, on_crash), Instant())).bytes_per_commit
    with folder_in(base) as beside:
        floor = Floor(beside, size)
        floor.sample(BLOCK)
        worker = Instant(floor)
        run = await _run(base, linear(SHELL, count, on_crash), worker)
        floor.close()
    label = f"on_crash: {on_crash}"
    limit = 1.0 if on_crash == "again" else 2.0
    note = f"{count} shell nodes; {size} bytes a commit; p99 {quantile(worker.times, 0.99):.2f} ms"
    return [
        Row(f"commits per node, {label}", run.commits / count, "commits", limit=_rounded_up(limit, count)),
        Row(
            f"time per node, {label}",
            median(worker.times),
            "ms",
            floor=median(floor.samples),
            ratio=median(worker.ratios),
            limit=3.0,
            limit_of="ratio",
            note=note,
        ),
    ]


def _rounded_up(limit: float, count: int) -> float:
    """The aim is per node; the start of the session is a commit of its own."""
    return limit + 1 / count


async def _python(base: Path, count: int) -> list[Row]:
    run = await _run(base, linear(PYTHON, count), Instant())
    note = f"{count} python nodes that add two numbers: the runner's own work is in it"
    return [Row("time per node, python", run.milliseconds / count, "ms", note=note)]


async def _pure(base: Path, count: int) -> list[Row]:
    run = await _run(base, linear(SET, count), Instant())
    note = f"{count} set nodes: the engine does them itself, many to a commit"
    return [
        Row("commits per node, pure", run.commits / count, "commits", limit=1.0, note=note),
        Row("time per node, pure", run.milliseconds / count, "ms"),
    ]


async def _spans(base: Path, count: int) -> list[Row]:
    """What the steps of shell nodes cost more with OpenTelemetry: their spans derived, made and queued."""
    steps: list[tuple[State, State, Sequence[Event]]] = []
    with folder_in(base) as folder:
        async with engine_in(folder, Instant()) as rig:
            rig.engine.observe(lambda *step: steps.append(step))
            session_id = await rig.engine.start(linear(SHELL, count, "again"), {}, actor=ANA)
            await rig.engine.parked(session_id)
    exporter = InMemorySpanExporter()
    sender = Sender(exporter, 2 * count, Spans())
    begin = time.perf_counter()
    for step in steps:
        sender.happened(*step)
    taken = (time.perf_counter() - begin) * MILLISECONDS
    await sender.close()
    made = len(exporter.get_finished_spans())
    return [
        Row("spans of a node, OpenTelemetry", taken / made, "ms", note=f"{made} spans of {len(steps)} steps")
    ]


async def _encrypted(base: Path, count: int) -> list[Row]:
    """Processor time of the same flow with and without a key, in turns."""
    keys: tuple[tuple[bytes, ...], ...] = ((), (b"k" * 32,))
    taken: list[list[float]] = [[], []]
    for _ in range(5):
        for which, given in enumerate(keys):
            with folder_in(base) as folder:
                async with engine_in(folder, Instant(), encryption_keys=given) as rig:
                    begin = time.process_time()
                    session_id = await rig.engine.start(linear(SHELL, count, "again"), {}, actor=ANA)
                    await rig.engine.parked(session_id)
                    taken[which].append((time.process_time() - begin) * MILLISECONDS / count)
    plain, encrypted = map(median, taken)
    note = "shell nodes, with SAYSO_ENCRYPTION_KEYS; the floor is the same without"
    return [Row("processor time of a step, encrypted", encrypted, "ms", floor=plain, note=note)]


def linear(node: str, count: int, *more: str) -> Flow:
    """A flow of so many nodes of one kind, one after the other."""
    nodes = "".join(node.format(index, *more) for index in range(count))
    return load_flow(f"flow: linear\nnodes:\n{nodes}", "linear.yml")


async def _run(base: Path, flow: Flow, worker: Instant) -> Run:
    with folder_in(base) as folder:
        async with engine_in(folder, worker) as rig:
            begin = time.perf_counter()
            session_id = await rig.engine.start(flow, {}, actor=ANA)
            state = await rig.engine.parked(session_id)
            taken = (time.perf_counter() - begin) * MILLISECONDS
            assert state.status == "complete", f"the flow ended {state.status}: {state.error}"
            return Run(rig.commits(), taken, await rig.bytes_per_commit())


@contextmanager
def folder_in(base: Path) -> Iterator[Path]:
    """A folder for one database, gone afterwards."""
    with TemporaryDirectory(dir=base) as name:
        yield Path(name)
