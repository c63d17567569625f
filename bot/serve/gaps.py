"""Gaps: messages sent while no connection to Slack was open, or while one was deaf.

A gap is noticed by a process with sockets, and threads are handled by any. So if several serve a store it is a mark
there, which each reads before it handles a row: missed messages of a thread are older than new ones. The process with
the lane of chores reads everything that may have been missed, and records its progress for the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial

from bot.handlers.catchup import AGAIN_SECONDS, CatchUp
from bot.serve.bolt import SlackApp
from bot.serve.roles import Replica
from engine.run.supervision import supervised, wait_at_most
from engine.storage.backoff import waited_out
from engine.storage.group_commit import Writer
from engine.storage.lanes import CHORES
from engine.storage.rows import GAP
from engine.storage.store import Store

log = logging.getLogger("sayso")

READ = "gap read"
"""The mark of the last gap after which everything was read; `GAP` is that of when the last one was noticed."""
DEAD_SECONDS = (0.0, 5.0, 15.0, 30.0, 60.0)
"""Seconds after the death of a process with connections at which everything is read: Slack may keep sending to it for a
while."""
MARKS_SECONDS = 1.0
"""Seconds between checks whether another process has noticed a gap."""
_WHAT = "reading missed messages"


@dataclass(eq=False, repr=False)
class Gaps:
    """Notices gaps, and has the missed messages read."""

    replica: Replica
    writer: Writer
    slack: SlackApp
    catchup: CatchUp
    _: KW_ONLY
    clock: Callable[[], float]
    taken: Callable[[], None]

    def __post_init__(self) -> None:
        self._gap = asyncio.Event()
        self._connected = asyncio.Event()
        self._hearing = asyncio.Lock()
        self._seen = ""
        self._tasks: set[asyncio.Task[None]] = set()
        if self.replica.shared:
            self.slack.reopened = self.reopened
            self.replica.on_silence = self._silence

    async def connect(self) -> None:
        """Open the sockets. What was said while no process had any is read."""
        alone = self.replica.alone()
        if alone:
            await self.note()
        await self.slack.connect()
        self.slack.reconnected()
        if alone and self.replica.shared:
            await self.note()  # somebody may have read before there were any
        self._connected.set()

    async def note(self) -> None:
        """Record a gap: every thread may have undelivered messages."""
        if self.replica.shared:
            await waited_out(partial(self.writer.call, _note, self.writer.store, self.clock()), _WHAT)
        else:
            await waited_out(self.catchup.begin, _WHAT)

    def unread(self) -> None:
        """Note that something must be read (`CatchUp.again`, `regained`)."""
        if self.replica.shared and CHORES not in self.replica.has:
            self._spawn(self._note_and_look)
        self._gap.set()

    def _silence(self) -> None:
        log.info("a process with Slack connections is gone: reading missed messages")
        for seconds in DEAD_SECONDS:
            self._spawn(partial(self._note_leading, seconds))

    async def _note_leading(self, seconds: float) -> None:
        """Note a gap if this process leads by then: the dead one may have led."""
        await asyncio.sleep(seconds)
        if CHORES in self.replica.has:
            await self._note_and_look()

    def _spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.create_task(supervised("noting a gap", work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _note_and_look(self) -> None:
        await self.note()
        self._gap.set()

    async def reopened(self) -> None:
        """A socket was opened again: something may have been missed."""
        log.info("a socket was reopened: reading missed messages")
        self._gap.set()
        await self.note()

    async def hear(self) -> None:
        """Learn about gaps and progress recorded by any process."""
        gap, read = await self.writer.call(_marks, self.writer.store)
        if gap != self._seen:
            async with self._hearing:
                if gap != self._seen:
                    await waited_out(self.catchup.begin, _WHAT)
                    self._seen = gap
        elif gap and read == gap and not self.catchup.complete and CHORES not in self.replica.has:
            self.catchup.all_read()  # what is due there became so since, and nobody else reads it

    # --- for the process with the chores ---------------------------------------------------------------------

    async def lead(self) -> None:
        """Read missed messages now, and again after every gap."""
        if self.replica.takes:
            await self._connected.wait()
        if self.replica.shared:
            await self.note()  # whoever led before may have gone with a gap
        while True:
            self._gap.clear()
            if self.replica.shared:
                await self.hear()
            seen = self._seen
            if not self.catchup.complete or not self.replica.shared:
                await self.catchup.run()
                self.taken()
            if seen and seen == self._seen and self.catchup.complete:
                await waited_out(partial(self.writer.call, self.writer.store.marks.move, READ, seen), _WHAT)
            await self._until_next(seen)

    async def _until_next(self, seen: str) -> None:
        """Wait for a gap after this one, which may have been heard while it was read, or until it is time to retry failed
        reads."""
        now = asyncio.get_running_loop().time
        until = now() + AGAIN_SECONDS
        while not self._gap.is_set() and seen == self._seen and (self.catchup.complete or now() < until):
            await wait_at_most(MARKS_SECONDS if self.replica.shared else AGAIN_SECONDS, self._gap)
            if self.replica.shared:
                await self.hear()


def _marks(store: Store) -> tuple[str, str]:
    found = dict(store.marks.rows(GAP))
    return found.get(GAP, ""), found.get(READ, "")


def _note(store: Store, now: float) -> None:
    """The mark moves on also where this machine's clock is behind another one's."""
    before = float(store.marks.ts(GAP) or 0)
    store.marks.move(GAP, f"{max(now, before + 0.001):.6f}")
