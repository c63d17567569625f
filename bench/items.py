"""Long lists: a `foreach` of many items, paused at 90 % and resumed by an engine that remembers nothing; and a thousand
approvals one after the other inside one `foreach`.

The list has two children an item, whose work takes no time. *Resume* is from opening the database until the child that
was cut is called again. What is done is counted outside: a child that was called twice after it had completed is a step
that was carried out again. The floor is two plain commits an item, as large as those of the list;
it is looked at in the pause and at the end.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from bench.floor import MILLISECONDS, Floor
from bench.nodes import folder_in
from bench.report import Row, median
from bench.rig import ANA, NOTHING, engine_in
from engine.decide.commands import Answer
from engine.flow.load import load_flow
from engine.language.codec import Json
from engine.nodes.runtime.runner import Interrupted, NodeContext, Outcome

SIZES = (100, 1000, 5000)
FLOW = """
flow: items
limits: {{max_node_runs: 100000}}
nodes:
  - id: each
    type: foreach
    with: {{items: "{{{{ range({0}) | list }}}}"}}
    body:
      - {{id: a, type: shell, on_crash: again, with: {{run: ["true", "{{{{ item }}}}"]}}}}
      - {{id: b, type: shell, on_crash: again, with: {{run: ["true", "{{{{ nodes.a.exit_code }}}}"]}}}}
"""
APPROVALS = 1000
APPROVAL_FLOW = """
flow: approvals
nodes:
  - id: each
    type: foreach
    with: {{items: "{{{{ range({0}) | list }}}}"}}
    body: [{{id: gate, type: approval, with: {{message: "Item {{{{ item }}}}?", approvers: [channel]}}}}]
"""
SOME = 20
"""Pauses whose median stands for the first ones and for the last ones."""
MOST_RESUME_MILLISECONDS = 1000.0
FLOOR_SAMPLE = 200


@dataclass
class Children:
    """The runner: counts what is done outside, and waits to be told to leave at one place."""

    stop_at: str = ""
    done: Counter[str] = field(default_factory=Counter)
    there: asyncio.Event = field(default_factory=asyncio.Event)
    called: float = 0.0

    async def run(self, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        """A child, which is done at once."""
        if ctx.path == self.stop_at:
            self.called = time.perf_counter()
            self.there.set()
            if not self.done[ctx.path]:
                await ctx.aborted.wait()
                self.done[ctx.path] += 1
                return Interrupted("cut")
        self.done[ctx.path] += 1
        return NOTHING


@dataclass(frozen=True)
class Listed:
    """A list that was paused at 90 % and resumed."""

    items: int
    seconds: float
    resume: float
    size: int
    again: int
    floor: float


def measure(base: Path, *, quick: bool) -> list[Row]:
    """The rows about long lists."""
    sizes = SIZES[:2] if quick else SIZES
    lists = [asyncio.run(_list(base, size)) for size in sizes]
    first, last = asyncio.run(_approvals(base, 100 if quick else APPROVALS))
    return [row for listed in lists for row in _rows(listed, lists[0])] + [
        Row("pause at the first approvals", first, "ms"),
        Row(
            f"pause at the last of {100 if quick else APPROVALS} approvals",
            last,
            "ms",
            floor=first,
            limit=3.0,
            limit_of="ratio",
            note=f"medians of {SOME}; from the answer until the next question is durable; beside the first ones",
        ),
    ]


async def _list(base: Path, items: int) -> Listed:
    children = Children(f"each[{items * 9 // 10}]/a")
    with folder_in(base) as folder, folder_in(base) as beside:
        begin = time.perf_counter()
        async with engine_in(folder, children.run) as rig:
            session_id = await rig.engine.start(load_flow(FLOW.format(items), "items.yml"), {}, actor=ANA)
            await children.there.wait()
            await rig.engine.pause(session_id, actor=ANA)
            floor = Floor(beside, await rig.bytes_per_commit())
        paused = time.perf_counter()
        floor.sample(FLOOR_SAMPLE)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        children.there.clear()
        opened = time.perf_counter()
        begin += opened - paused
        async with engine_in(folder, children.run) as rig:
            await rig.engine.resume(session_id, "go on", actor=ANA)
            await children.there.wait()
            resume = (children.called - opened) * MILLISECONDS
            assert (await rig.engine.parked(session_id)).status == "complete"
        seconds = time.perf_counter() - begin
        floor.sample(FLOOR_SAMPLE)
        least = sum(floor.samples) / len(floor.samples) * 2 * items / MILLISECONDS
        floor.close()
    # The child that was cut was called twice, and had not completed before.
    return Listed(items, seconds, resume, size, children.done.total() - 2 * items - 1, least)


def _rows(listed: Listed, smallest: Listed) -> list[Row]:
    name = f"foreach of {listed.items:,} × 2"
    largest = listed.items == SIZES[-1]
    grown = f"; × {listed.size / listed.items / (smallest.size / smallest.items):.2f} an item beside {smallest.items}"
    return [
        Row(
            f"{name}: total",
            listed.seconds,
            "s",
            floor=listed.floor,
            limit=3.0,
            limit_of="ratio",
            note=f"{listed.again} completed steps ran again",
        ),
        Row(
            f"{name}: resume, cold",
            listed.resume,
            "ms",
            limit=MOST_RESUME_MILLISECONDS if largest else None,
        ),
        Row(
            f"{name}: on disk", listed.size / listed.items, "bytes/item", note=f"{listed.size:,} bytes{grown}"
        ),
    ]


async def _approvals(base: Path, count: int) -> tuple[float, float]:
    """Milliseconds of the first pauses and of the last ones."""
    taken = []
    with folder_in(base) as folder:
        async with engine_in(folder, Children().run) as rig:
            flow = load_flow(APPROVAL_FLOW.format(count), "approvals.yml")
            session_id = await rig.engine.start(flow, {}, actor=ANA)
            for number in range(count):
                state = await rig.engine.parked(session_id)
                (prompt_id,) = state.open_prompts
                answer = Answer(prompt_id, ANA, f"answer:{number}", value="approve")
                begin = time.perf_counter()
                await rig.engine.apply(session_id, answer)
                taken.append((time.perf_counter() - begin) * MILLISECONDS)
            assert (await rig.engine.parked(session_id)).status == "complete"
    paused = taken[:-1]
    return median(paused[:SOME]), median(paused[-SOME:])
