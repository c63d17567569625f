"""This process among those that serve one database: its role, who else lives, who leads, and what others tell.

The store says all of it (`Store.lease`, `peers`, `listen`). A file or memory is served by one process, which has every role
and leads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from engine.storage.group_commit import Writer
from engine.storage.leases import LEADER

log = logging.getLogger("sayso")

ROLES = ("all", "socket", "worker", "outbox")
STOPPING = "stopping"
SWEEP_SECONDS = 15.0
"""How often a process looks at a shared store although nobody woke it."""


class Replica:
    """This process. Construct it on the running event loop."""

    def __init__(self, writer: Writer, role: str) -> None:
        self._writer = writer
        self._store = writer.store
        self.shared = writer.store.shared
        self.takes = role in ("all", "socket")
        """Whether it has connections to Slack."""
        self.works = role in ("all", "worker")
        self.sends = role in ("all", "outbox")
        self.leads = False
        self.on_word: list[Callable[[str], None]] = []
        """Called with what another process tells: see `Store.listen`."""
        self._role = role
        self._moved = asyncio.Event()
        self._lost = asyncio.Event()
        self._peers: dict[str, str] = {}
        self.on_silence: Callable[[], None] = lambda: None
        """Called when a process with connections to Slack was gone without a word."""

    async def join(self) -> None:
        """Serve beside others from now on. Raises `Served`."""
        await self._writer.call(self._store.serve_beside, self._role)
        self._peers = self._store.peers()
        loop = asyncio.get_running_loop()

        def wake(word: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: this process ends
                loop.call_soon_threadsafe(self._hear, word)

        self._store.listen(wake)

    async def leave(self) -> None:
        """Say that this process is stopping: the others share what it does."""
        if self.shared:
            await self._writer.call(self._store.serve_beside, STOPPING)

    def _hear(self, word: str) -> None:
        if word == "lost":
            self._lost.set()
        if word in ("all", "peers"):
            self._moved.set()
        if word == "peers":
            before, self._peers = self._peers, self._store.peers()
            gone = [role for owner, role in before.items() if owner not in self._peers]
            if any(role in ("all", "socket") for role in gone):
                self.on_silence()
        for hear in self.on_word:
            hear(word)

    def alone(self) -> bool:
        """Whether no other process has connections to Slack."""
        return sum(role in ("all", "socket") for role in self._store.peers().values()) <= 1

    def first(self) -> bool:
        """Whether no other process serves at all."""
        return len(self._store.peers()) <= 1

    def posters(self) -> int:
        """How many processes send."""
        return sum(role in ("all", "outbox") for role in self._store.peers().values())

    async def lead(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do what one process does for all, once no other one does."""
        while not await self._writer.call(self._store.lease, LEADER):
            self._moved.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_SECONDS):
                    await self._moved.wait()
        if self.shared:
            log.info("this process leads: schedules, catch-up and housekeeping are its work")
        self.leads = True
        try:
            await work()
        finally:
            await self._writer.call(lambda: self._store.unlease(LEADER, tell=True))

    @property
    def lost(self) -> bool:
        """Whether the leases of this process are gone."""
        return self._lost.is_set()

    async def watch(self) -> None:
        """End with `StorageBroken` once the leases of this process are gone."""
        await self._lost.wait()
        await self._writer.call(self._store.changed)
