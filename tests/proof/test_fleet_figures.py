"""What a fleet on Postgres takes: the figures that are demanded of it, printed beside what was measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.language import timestamps
from engine.run.engine import Engine
from engine.storage.lanes import LIMIT_SECONDS
from engine.storage.postgres import open_postgres
from tests.proof.chaos import CHANNELS, Chaos, Member, chaos
from tests.support.acting import Workspace
from tests.support.bot import start_flow
from tests.support.engine import ANA, everybody, flow_of
from tests.support.fleet import KEY

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.timeout(900)]
ROUNDS = 12


def told(name: str, values: list[float], demanded: float, unit: str = "s") -> None:
    """Print a figure beside what is demanded on an idle machine. Time is never a reason for a test to fail."""
    ordered = sorted(values)
    p50, p99 = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    reached = "reached" if p99 <= demanded else "not reached"
    print(
        f"{name}: p50 {p50:.3f} {unit}, p99 {p99:.3f} {unit} of {len(ordered)} (≤ {demanded:g} {unit}: {reached})"
    )


TAKEOVER = """flow: takeover
nodes:
  - id: work
    type: shell
    on_crash: again
    with:
      script: |
        echo "$SAYSO_SESSION_ID $PPID $(date +%s.%N)" >> {log}
        mkdir {log}.$SAYSO_SESSION_ID 2> /dev/null && sleep 60
        exit 0
"""


class Takeovers:
    """Sessions whose worker is stopped in the middle of a node."""

    def __init__(self, made: Chaos, workspace: Workspace, log: Path) -> None:
        self.made, self.workspace, self.log = made, workspace, log
        self._lines = 0

    async def begun(self) -> list[str]:
        """The next line that a node wrote."""
        self._lines += 1
        number = self._lines
        await self.workspace.wait_for(lambda: len(self._written()) >= number, timeout=60)
        return self._written()[number - 1].split()

    def _written(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    async def takeover(self, stop: Callable[[Member], None]) -> tuple[Member, float]:
        """Start a session, stop the worker that runs its node, and how long it was until another one ran it."""
        await start_flow(self.workspace, "ana", "ops", "takeover")
        session_id, parent, _ = await self.begun()
        member = next(m for m in self.made.members if m.bot.process.pid == int(parent))
        member.expected = True
        stopped = time.time()
        stop(member)
        again, _, at = await self.begun()
        assert again == session_id
        return member, float(at) - stopped

    def _standing(self, role: str) -> int:
        return sum(m.role == role and m.bot.process.returncode is None for m in self.made.members)

    async def whole(self, workers: int) -> None:
        """Return once so many workers are ready."""
        await self.workspace.wait_for(lambda: self._standing("worker") >= workers, timeout=60)
        await asyncio.gather(*(m.bot.said("ready") for m in self.made.members))
        await asyncio.sleep(LIMIT_SECONDS + 1)  # who has just come takes nobody for dead


async def test_takeovers(tmp_path: Path) -> None:
    """After `kill -9`, and after SIGSTOP."""
    log = tmp_path / "took"
    roles = ["socket", "worker", "worker"]
    async with chaos(tmp_path, roles, 2, {"takeover": TAKEOVER.format(log=log)}) as (made, workspace):
        rig = Takeovers(made, workspace, log)
        await rig.whole(2)
        killed, frozen = [], []
        for _ in range(ROUNDS):
            _, seconds = await rig.takeover(lambda member: made.fleet.kill(member.bot))
            killed.append(seconds)
            await rig.whole(2)
        for _ in range(ROUNDS // 4):
            member, seconds = await rig.takeover(lambda member: made.fleet.freeze(member.bot))
            frozen.append(seconds)
            made.fleet.wake(member.bot)
            await rig.whole(2)
    told("takeover after kill -9", killed, 6.0)
    told("takeover from a frozen worker", frozen, 6.0)


REPLIES = """flow: replies
nodes:
  - {{id: q, type: ask, with: {{message: "Word?"}}}}
  - {{id: next, type: shell, with: {{script: 'echo "$SAID $(date +%s.%N)" >> {log}', env: {{SAID: "{{{{ nodes.q.text }}}}"}}}}}}
"""


async def test_replies_and_acknowledgements(tmp_path: Path) -> None:
    """From the row that one process stored to the node that another one runs; and 50 events a second over two sockets."""
    log, count = tmp_path / "log.replies", 60
    roles = ["socket", "socket", "worker", "worker"]
    async with chaos(tmp_path, roles, 3, {"replies": REPLIES.format(log=log)}) as (made, workspace):
        threads = [await start_flow(workspace, "ana", CHANNELS[n % 2], "replies") for n in range(count)]
        await asyncio.gather(*(thread.says("Word?", timeout=240) for thread in threads))
        keys = {}
        for number, thread in enumerate(threads):
            ts = await thread.reply("ana", f"w{number}")
            keys[f"w{number}"] = f"message:{workspace.team_id}:{workspace.channel(thread.channel).id}:{ts}"
            await asyncio.sleep(0.1)
        await workspace.wait_for(
            lambda: log.exists() and len(log.read_text().splitlines()) == count, timeout=60
        )
        store = open_postgres(made.server.get_uri(), KEY.encode())
        waited = []
        for word, at in (line.split() for line in log.read_text().splitlines()):
            row = store.inbox.row(keys[word])
            assert row is not None
            waited.append(float(at) - timestamps.from_text(row.received_at).timestamp())
        store.close()
        before = len(workspace.deliveries)
        for number in range(500):
            thread = threads[number % count]
            await thread.reply("ben", f"talk {number}")
            await asyncio.sleep(0.02)
        await workspace.settled(60)
        acknowledged = [d.ack_latency for d in workspace.deliveries[before:] if d.ack_latency is not None]
    told("reply to next node on another worker (a shell included)", waited, 0.1)
    told("acknowledgement at 50 events a second", acknowledged, 0.05)


async def test_an_idle_fleet_asks_little(tmp_path: Path) -> None:
    """Eight processes, 10,000 sessions that wait: how many statements a second reach the server."""
    roles = ["socket"] * 2 + ["worker"] * 6
    sessions, seconds = 10_000, 30.0
    async with chaos(tmp_path, roles, 4, {"replies": REPLIES.format(log=tmp_path / "none")}) as (made, _):
        # In a loop of its own: what passes to the server passes through this one.
        await asyncio.to_thread(asyncio.run, paused(made, tmp_path, sessions))
        await asyncio.sleep(10)
        before = sum(member.link.statements for member in made.members)
        await asyncio.sleep(seconds)
        each = (sum(member.link.statements for member in made.members) - before) / seconds
    told(f"statements a second of eight processes beside {sessions:,} paused sessions", [each], 40, "/s")


async def paused(made: Chaos, folder: Path, count: int) -> None:
    """So many sessions that wait for somebody."""
    store = open_postgres(made.server.get_uri(), KEY.encode())
    engine = Engine(store, policy=everybody, runners={}, home=folder / "engine")
    await engine.open()
    flow = flow_of("nodes: [{id: q, type: ask, with: {message: Word?}}]")
    try:
        for _ in range(count // 100):
            await asyncio.gather(*(engine.start(flow, {}, actor=ANA) for _ in range(100)))
    finally:
        await engine.close()
        store.close()
