"""Roles of the processes that serve one database: this one's role, the other living ones, and its lanes beside those of
sessions.

A file or memory is served by one process, which has every role and every lane.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from engine.language.errors import StorageError
from engine.storage.backoff import waited_out
from engine.storage.group_commit import Writer
from engine.storage.lanes import Lane

log = logging.getLogger("sayso")

ROLES = ("all", "socket", "worker")
LOOK_SECONDS = 0.25
"""Seconds between checks whether a lane has become free, and whether this process still has its own."""
TURN_SECONDS = 0.003
"""Seconds between the looks of two workers for what woke both."""


class Replica:
    """This process. Construct it on the running event loop."""

    def __init__(self, writer: Writer, role: str, listen_url: str | None = None) -> None:
        self._writer = writer
        self._store = writer.store
        self.shared = writer.store.shared
        self.takes = _takes(role)
        """True if it has connections to Slack."""
        self.works = _works(role)
        self.has: dict[str, Lane] = {}
        """The lanes that it has now, by key."""
        self.on_look: Callable[[], None] = lambda: None
        """Called when another process may have committed."""
        self._role, self._listen_url = role, listen_url
        self._leaving = False
        self._peers: dict[str, str] = {}
        self.on_silence: Callable[[], None] = lambda: None
        """Called when a process with connections to Slack was gone without a word."""

    async def join(self) -> None:
        """Serve beside others from now on. Raises `Served`."""
        await self._writer.call(self._store.serve_beside, self._role)
        self._peers = self._store.peers()
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: this process ends
                loop.call_soon_threadsafe(self._look)

        self._store.listen(wake, self._listen_url)
        self._store.watch(loop.call_soon_threadsafe)

    async def leave(self) -> None:
        """Give up all lanes, and record that this process is stopping."""
        self._leaving = True
        await asyncio.to_thread(self._store.leave)  # the writer may be waiting for the server

    def _look(self) -> None:
        before, self._peers = self._peers, self._store.peers()
        if any(_takes(role) for owner, role in before.items() if owner not in self._peers):
            self.on_silence()
        self.on_look()

    def turn(self, lanes: int) -> float:
        """Seconds for which this worker leaves what woke all of them to others, with so many lanes in hand. If all looked at
        once, they would keep the processors from the one that finds something. A busy worker leaves it to an idle one."""
        me = self._store.lanes.owner
        workers = sorted([me, *(owner for owner, role in self._store.peers().items() if _works(role))])
        return (workers.index(me) + lanes) % len(workers) * TURN_SECONDS

    def alone(self) -> bool:
        """True if no other process has connections to Slack."""
        return not any(map(_takes, self._store.peers().values()))

    def first(self) -> bool:
        """True if no other process serves at all."""
        return not self._store.peers()

    def relieved(self) -> bool:
        """True if another process posts once this one lets go."""
        return any(map(_works, self._store.peers().values()))

    async def hold(self, key: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work of this lane each time that this process gets it; until `leave`, or until it is done."""
        while not self._leaving:
            lane = None
            if key not in self._store.lanes.others:
                lane = await waited_out(
                    partial(self._writer.call, self._store.lanes.claim, key), f"the lane {key}"
                )
            if lane is None:
                await asyncio.sleep(LOOK_SECONDS)
                continue
            generation = self._store.generation()
            self.has[key] = lane
            task = asyncio.ensure_future(work())
            try:
                while not task.done():
                    await asyncio.wait([task], timeout=LOOK_SECONDS)
                    if generation != self._store.generation():
                        # There was a gap between our signs of life: another process may have taken it.
                        generation = self._store.generation()
                        if not await waited_out(partial(self.still, key), f"the lane {key}"):
                            log.warning("another process has claimed the lane %s", key)
                            break
                else:
                    task.result()
                    return
            finally:
                del self.has[key]
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                with contextlib.suppress(StorageError):
                    await self._writer.call(self._store.lanes.let_go, lane)

    async def still(self, key: str) -> bool:
        """True if this process has a lane, as the store says now."""
        lane = self.has.get(key)
        return lane is not None and await self._writer.call(self._store.lanes.mine, lane)


def _takes(role: str) -> bool:
    return role in ("all", "socket")


def _works(role: str) -> bool:
    return role in ("all", "worker")
