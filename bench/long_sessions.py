"""Answers to sessions with short and long histories: `python -m bench.long_sessions`.

Both stop at the same question with the same state, once after some 50 events and once after some 50,000. Each round opens
a copy of the database as a restarted process does, and answers. A round without the snapshot shows what reading the whole
journal would take.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from bench.rig import ANA, NOTHING, engine_in
from engine.decide.commands import Answer
from engine.flow.load import load_flow
from engine.language.codec import Json
from engine.nodes.runtime.runner import NodeContext, Outcome
from engine.storage.sqlite import open_sqlite

FLOW = """
flow: rounds
limits: {{max_node_runs: 100000}}
nodes:
  - {{id: a, type: set, with: {{n: 1}}}}
  - {{id: b, type: set, with: {{n: 1}}}}
edges:
  - {{from: a, to: b}}
  - {{from: b, to: a, type: loop, when: "{{{{ true }}}}", max_iterations: {rounds}, on_limit: ask}}
"""
"""A flow that goes round and asks at its limit whether to continue."""


async def nothing(config: dict[str, Json], ctx: NodeContext) -> Outcome:
    """The runner of programs, of which this flow has none."""
    return NOTHING


async def asked(folder: Path, rounds: int) -> str:
    """Run the flow to its question."""
    async with engine_in(folder, nothing) as rig:
        session_id = await rig.engine.start(
            load_flow(FLOW.format(rounds=rounds), "rounds.yml"), {}, actor=ANA
        )
        await rig.engine.parked(session_id)
    return session_id


async def answered(home: Path, session_id: str, *, snapshot: bool) -> float:
    """Milliseconds from an answer to its commit, in a process that has just opened a copy of this home."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(home, folder, dirs_exist_ok=True)
        async with engine_in(Path(folder), nothing) as rig:
            if not snapshot:
                rig.store.inner._db.run("DELETE FROM snapshots")
            row = next(
                row for row in rig.store.prompts.rows(session_id=session_id) if row.status == "requested"
            )
            begun = time.perf_counter()
            await rig.engine.resume(session_id, Answer(row.prompt_id, ANA, "answer", value="continue"))
            return (time.perf_counter() - begun) * 1000


async def compared(rounds: int) -> None:
    """Answers after a short and after a long history in turn, so that what else the machine does concerns both."""
    taken: dict[str, list[float]] = {"short": [], "long": [], "long, without its snapshot": []}
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        homes = {"short": Path(one), "long": Path(other)}
        ids = {name: await asked(home, 6 if name == "short" else LONG) for name, home in homes.items()}
        for name, home in homes.items():
            store = open_sqlite(home / "sayso.db")
            loaded = store.sessions.load(ids[name])
            size = len(loaded.snapshot or b"")
            print(
                f"{name}: {loaded.head.seq:,} events, snapshot of {size:,} bytes, {len(loaded.events)} after it"
            )
            store.close()
        for _ in range(rounds):
            for kind, times in taken.items():
                name = kind.partition(",")[0]
                times.append(await answered(homes[name], ids[name], snapshot=kind == name))
    for kind, times in taken.items():
        print(f"{kind}: median {statistics.median(times):.2f} ms, least {min(times):.2f} ms")
    ratio = statistics.median(long / short for short, long in zip(taken["short"], taken["long"], strict=True))
    print(f"an answer after the long history takes {ratio:.2f} times as long (median of {rounds} pairs)")


LONG = 7_142
"""Rounds of seven events each."""

if __name__ == "__main__":
    logging.disable()  # that a snapshot is missing is meant
    asyncio.run(compared(25))
