"""How soon a Slack event is acknowledged while many come: the real bot against the local workspace.

For some seconds people do fifty things a second: one in ten starts a flow by a mention (which Slack delivers twice,
as a message and as a mention), four in ten reply in a thread and most of these answer a question, the rest is talk
among people. What the bot posts meanwhile comes back to it as events too, as in Slack. The time is taken in the
workspace, from sending an event until its acknowledgement is read, so both processes' work is in it; what has to be
kept is committed before it is acknowledged. Afterwards every mention and every reply must be in the inbox.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from bench.floor import MILLISECONDS, Floor
from bench.nodes import folder_in
from bench.processes import caught_up, running_bot
from bench.report import Row, median, quantile
from bot.workspace.socketmode import Delivery
from engine.storage.sqlite import open_sqlite
from tests.support.acting import Workspace

A_SECOND = 50
MOST_MILLISECONDS = 50.0
CHANNELS = 50
QUESTIONS = 30
FLOOR_A_SECOND = 10
STORED_BYTES = 500
"""Bytes of an inbox row with its key and its MAC."""
PEOPLE = ("ana", "ben", "cleo", "dev")
PATTERN = "mrprprprpp"
"""Of ten acts: a (m)ention, (r)eplies, and (p)lain talk."""
UNLIMITED = dict.fromkeys(
    ("SAYSO_RATE_PERSON", "SAYSO_RATE_CHANNEL", "SAYSO_RATE_WORKSPACE", "SAYSO_SLACK_LIMITS"), "off"
)
"""Nobody starts flows as fast as these four people, with the usual limits most of it would be refused; and reading fifty
channels at the usual pace takes a minute."""


@dataclass
class Traffic:
    """What people did. Threads are (channel id, ts of the root); `kept` are messages that must not be lost."""

    workspace: Workspace
    channels: list[str]
    threads: list[tuple[str, str]] = field(default_factory=list)
    kept: list[tuple[str, str]] = field(default_factory=list)

    async def act(self, number: int) -> None:
        """Do the next thing."""
        kind, user = PATTERN[number % len(PATTERN)], PEOPLE[number % len(PEOPLE)]
        channel = self.channels[number // len(PATTERN) % len(self.channels)]
        thread = self._thread(number) if kind == "r" else None
        if thread is not None:
            await self._reply(number, *thread)
        elif kind == "m":
            await self._mention(user, channel)
        else:
            await self.workspace.post(user, channel, f"Just talk {number}")

    def _thread(self, number: int) -> tuple[str, dict[str, Any]] | None:
        """A thread in which the bot has said something already: people reply to something."""
        for channel, ts in islice(cycle(self.threads), number, number + len(self.threads)):
            root = self.workspace.state.message(channel, ts)
            if root is not None and root.get("reply_count"):
                return channel, root
        return None

    async def _mention(self, user: str, channel: str) -> None:
        ts = await self.workspace.post(user, channel, "@sayso busy")
        self.threads.append((channel, ts))
        self.kept.append((channel, ts))

    async def _reply(self, number: int, channel: str, root: dict[str, Any]) -> None:
        ts = await self.workspace.post(root["user"], channel, f"Reply {number}", thread_ts=root["ts"])
        self.kept.append((channel, ts))


def measure(base: Path, *, quick: bool) -> list[Row]:
    """The rows about acknowledgements."""
    return asyncio.run(_measure(base, 5.0 if quick else 20.0))


async def _measure(base: Path, seconds: float) -> list[Row]:
    with folder_in(base) as home, folder_in(base) as flows, folder_in(base) as beside:
        (flows / "busy.yml").write_text(_flow())
        floor = Floor(beside, STORED_BYTES)
        async with Workspace() as workspace:
            channels = [workspace.add_channel(f"busy-{number}").id for number in range(CHANNELS)]
            traffic = Traffic(workspace, channels)
            async with running_bot(workspace, home, flows, **UNLIMITED):
                await workspace.connected(2)
                await caught_up(workspace)
                first = len(workspace.deliveries)
                late, _ = await asyncio.gather(_busy(traffic, seconds), _sample(floor, seconds))
                sent = workspace.deliveries[first:]
                await workspace.wait_for(lambda: all(delivery.done.is_set() for delivery in sent), timeout=60)
            floor.close()
            _check_nothing_lost(home / "sayso.db", workspace.team_id, traffic.kept)
            return _rows(workspace, sent, floor, seconds, late)


async def _busy(traffic: Traffic, seconds: float) -> list[float]:
    """Act at an even pace; by how many milliseconds each act came late, which is how busy this process itself was."""
    begin, late = time.perf_counter(), []
    for number in range(round(seconds * A_SECOND)):
        due = begin + number / A_SECOND
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        late.append((time.perf_counter() - due) * MILLISECONDS)
        await traffic.act(number)
    return late


async def _sample(floor: Floor, seconds: float) -> None:
    """Look at the floor now and then while it is busy: what the disk does to us it does to the floor."""
    for _ in range(round(seconds * FLOOR_A_SECOND)):
        await asyncio.gather(asyncio.to_thread(floor.sample), asyncio.sleep(1 / FLOOR_A_SECOND))


def _check_nothing_lost(file: Path, team: str, kept: Sequence[tuple[str, str]]) -> None:
    """Every mention and reply that was acknowledged is in the inbox. Raises `RuntimeError`."""
    store = open_sqlite(file)
    try:
        lost = [ts for channel, ts in kept if store.inbox.row(f"message:{team}:{channel}:{ts}") is None]
    finally:
        store.close()
    if lost:
        raise RuntimeError(f"{len(lost)} of {len(kept)} messages were acknowledged and are not in the inbox")


def _rows(
    workspace: Workspace, deliveries: Sequence[Delivery], floor: Floor, seconds: float, late: Sequence[float]
) -> list[Row]:
    from_people = [
        delivery for delivery in deliveries if _is_from_people(workspace, delivery.payload["event"])
    ]
    times = [one.ack_latency * MILLISECONDS for one in from_people if one.ack_latency is not None]
    if len(times) < len(from_people):
        raise RuntimeError(
            f"{len(from_people) - len(times)} of {len(from_people)} events were never acknowledged"
        )
    again = sum(len(delivery.attempts) > 1 for delivery in deliveries)
    note = (
        f"{len(from_people) / seconds:.0f} events a second from people and {len(deliveries) / seconds:.0f} in all, for "
        f"{seconds:.0f} s; {again} delivered again, none lost; the workspace itself was {quantile(late, 0.99):.0f} ms "
        f"late at the p99; the floor is a commit of {floor.size} bytes"
    )
    return [
        Row("acknowledgement of an event, p50", median(times), "ms", floor=median(floor.samples), note=note),
        Row(
            "acknowledgement, p99",
            quantile(times, 0.99),
            "ms",
            floor=quantile(floor.samples, 0.99),
            limit=MOST_MILLISECONDS,
        ),
    ]


def _is_from_people(workspace: Workspace, event: dict[str, Any]) -> bool:
    people = {workspace.user(name).id for name in PEOPLE}
    return event["type"] in ("message", "app_mention") and event.get("user") in people


def _flow() -> str:
    """A flow that continues asking, so that replies keep having an effect."""
    asks = "".join(
        f'  - {{id: q{number}, type: ask, with: {{message: "Question {number}: how is it?"}}}}\n'
        for number in range(QUESTIONS)
    )
    return f"flow: busy\nnodes:\n{asks}"
