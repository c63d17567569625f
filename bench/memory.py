"""What a paused session costs: bytes in the database, and memory of the bot that serves many of them.

The sessions are made by the real engine and stand as they do after a question was shown: journal, snapshot, prompt,
deadline, and the intents that were sent. Only this preparation does without fsync, through an SQLite VFS of its own;
it is not timed. Each session has a thread in the local workspace, spread over some channels, so the bot's start reads
the channels for threads that moved meanwhile, as it would in Slack. Memory is what the process has in RAM some
seconds after it has read them all, with 10 and with many sessions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import apsw

from bench.floor import MILLISECONDS
from bench.nodes import folder_in
from bench.processes import caught_up, resident_megabytes, running_bot
from bench.report import Row, median
from bench.rig import ANA, NOTHING, Rig, engine_in, thread_of
from engine.decide.commands import Shown
from engine.flow import Flow
from engine.flow.load import load_flow
from engine.language.codec import Json, encode
from engine.nodes.runtime.runner import NodeContext, Outcome
from engine.run.stored import utc_now
from engine.storage.store import Store
from tests.support.acting import Workspace

FEW = 10
CHANNELS = 40
AT_ONCE = 64
SETTLE_SECONDS = 3.0
METRICS, SCRAPES = "127.0.0.1:19464", 9
MOST_RATIO = 1.1

FLOW = """
flow: waiting
description: A runbook that has done two steps and asks whether to go on
inputs:
  service: {type: string, description: Which service}
nodes:
  - {id: plan, type: set, with: {steps: [drain, restart, undrain], service: "{{ inputs.service }}"}}
  - {id: check, type: shell, with: {run: [./check.sh, "{{ inputs.service }}"]}, on_crash: again}
  - {id: confirm, type: ask, with: {message: "{{ inputs.service }} is healthy. Restart it?", choices: [Restart, Leave it]}}
  - {id: restart, type: shell, with: {run: [./restart.sh, "{{ inputs.service }}"]}}
"""


class UnsyncedFile(apsw.VFSFile):
    """A file that never waits for the disk."""

    def xSync(self, flags: int) -> None:
        """Nothing is made durable."""


class UnsyncedVFS(apsw.VFS):
    """Files as ever, but without fsync: for making a database that is only to be read."""

    NAME = "sayso-bench-unsynced"

    def __init__(self) -> None:
        super().__init__(self.NAME, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        """Open a file of this kind."""
        return UnsyncedFile("", name, flags)


@dataclass(frozen=True)
class Cost:
    """What so many paused sessions cost."""

    sessions: int
    database: int
    """Bytes."""
    memory: float
    """MB of the bot."""
    start: float
    """Seconds until the bot was ready."""
    catch_up: float
    """Seconds from then on until it had read every thread and channel."""
    scrape: float
    """Milliseconds of a reading of its metrics."""


def measure(base: Path, *, quick: bool) -> list[Row]:
    """The rows about paused sessions."""
    vfs = UnsyncedVFS()
    few = asyncio.run(_cost(base, FEW, vfs.NAME))
    many = asyncio.run(_cost(base, 500 if quick else 10_000, vfs.NAME))
    vfs.unregister()
    each = (many.database - few.database) / (many.sessions - few.sessions)
    what = f"{many.sessions:,} paused sessions"
    return [
        Row(
            "database, per paused session",
            each,
            "bytes",
            note="journal, snapshot, prompt, timer, intents, indexes",
        ),
        Row(
            f"memory of a bot with {what}",
            many.memory,
            "MB",
            floor=few.memory,
            limit=MOST_RATIO,
            limit_of="ratio",
            note=f"the floor is the same bot with {few.sessions} paused sessions",
        ),
        Row(
            "reading of metrics, p50",
            many.scrape,
            "ms",
            floor=few.scrape,
            note=f"/metrics over {many.sessions:,} open questions, beside {few.sessions}",
        ),
        Row(f"start of a bot with {what}", many.start, "s"),
        Row(
            f"catch-up with {what}",
            many.catch_up,
            "s",
            floor=few.catch_up,
            note=f"looks in {CHANNELS} channels which of the threads moved since they were known; none did",
        ),
    ]


async def _cost(base: Path, count: int, vfs: str) -> Cost:
    with folder_in(base) as home, folder_in(base) as flows:
        (flows / "waiting.yml").write_text(FLOW)
        async with Workspace() as workspace:
            threads = await _threads(workspace, count)
            await _pause_all(home, threads, vfs)
            size = (home / "sayso.db").stat().st_size
            begin = time.perf_counter()
            settings = {"SAYSO_SLACK_LIMITS": "off", "SAYSO_METRICS": METRICS}
            async with running_bot(workspace, home, flows, **settings) as bot:
                ready = time.perf_counter()
                await caught_up(workspace)
                done = time.perf_counter()
                await asyncio.sleep(SETTLE_SECONDS)
                memory = resident_megabytes(bot.process.pid)
                scrape = await _scrape(f"http://{METRICS}/metrics")
                return Cost(count, size, memory, ready - begin, done - ready, scrape)


async def _scrape(url: str) -> float:
    times = []
    async with aiohttp.ClientSession() as session:
        for _ in range(SCRAPES):
            begin = time.perf_counter()
            async with session.get(url) as answer:
                assert "sayso_prompts_open{" in await answer.text(), answer.status
            times.append((time.perf_counter() - begin) * MILLISECONDS)
    return median(times)


async def _threads(workspace: Workspace, count: int) -> list[dict[str, Any]]:
    """The messages under which the sessions live."""
    channels = [workspace.add_channel(f"waiting-{number}").id for number in range(CHANNELS)]
    threads = []
    for number in range(count):
        channel = channels[number % CHANNELS]
        ts = await workspace.post("ana", channel, f"Please look after service {number}")
        threads.append(thread_of(workspace.team_id, channel, ts))
    return threads


async def _pause_all(home: Path, threads: Sequence[dict[str, Any]], vfs: str) -> None:
    """A session in each thread, paused, its question shown and its intents sent."""
    flow = load_flow(FLOW, "waiting.yml")
    async with engine_in(home, _healthy, vfs=vfs) as rig:
        for first in range(0, len(threads), AT_ONCE):
            await asyncio.gather(*(_pause(rig, flow, thread) for thread in threads[first : first + AT_ONCE]))
            await rig.engine.writer.call(_send_all, rig.store.inner)


async def _healthy(config: dict[str, Json], ctx: NodeContext) -> Outcome:
    """The runner."""
    return NOTHING


async def _pause(rig: Rig, flow: Flow, thread: dict[str, Any]) -> None:
    service = f"service-{thread['threadTs'][-4:]}"
    session_id = await rig.engine.start(flow, {"service": service}, actor=ANA, thread=thread)
    state = await rig.engine.parked(session_id)
    prompt_id = next(iter(state.open_prompts))
    place: dict[str, Json] = {
        "channel": thread["channel"],
        "ts": thread["threadTs"],
        "threadTs": thread["threadTs"],
    }
    await rig.engine.apply(session_id, Shown(prompt_id, place))


def _send_all(store: Store) -> None:
    """Every intent was sent: cards and questions are in their threads."""
    while rows := store.outbox.due(now=utc_now()):
        for row in rows:
            result = encode({"channel": row.lane, "ts": "1790000000.000100"})
            store.outbox.finish(row.id, row.rev, now=utc_now(), state="sent", result=result)
