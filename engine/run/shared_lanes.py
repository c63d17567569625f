"""The inbox of a store that several processes serve: a lane is handled by its owner (`engine.storage.lanes`).

A lane is kept while this process works for a session of it. New arrivals wake it; at the end it is released, until the
next timer. Ids of rows have no meaning here: a process may die with rows in hand, and others look again. Correctness
does not depend on wake-ups: each process looks twice a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from msgspec import Struct, field

from engine.journal.records import InboxRow
from engine.language.errors import StorageBroken, StorageError
from engine.run.engine import Engine
from engine.run.executor import ActiveSession
from engine.storage.lanes import Lane

LOOK_SECONDS = 0.5
"""Seconds between searches for lanes without a wake-up."""
FORGOTTEN_SECONDS = 15.0
"""Seconds between searches for lanes that should have been woken."""
BACKOFF_SECONDS = (0.5, 1.0, 2.0, 5.0)
"""Seconds for which a lane with work for others is left to them: longer each time."""
MOST_LANES = 100
"""Most lanes that one process handles at once; the rest is left to the others."""
AT_ONCE = 8
"""Most lanes taken at once."""


class Held(Struct):
    """A lane in hand."""

    lane: Lane
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    done: set[int] = field(default_factory=set)
    """The rows that we have handled."""
    left: set[int] = field(default_factory=set)
    """The rows that were open at the last look and are for others."""
    after: float | None = None
    """Seconds after which to look at it again."""
    theirs: bool = False
    """True if its work is for other processes."""
    lost: bool = False


class SharedLanes:
    """See `engine.run.dispatcher.Lanes`."""

    def __init__(
        self,
        engine: Engine,
        kinds: Collection[str],
        begin: Callable[[str], None],
        look: Callable[[], None],
        only: str | None,
    ) -> None:
        """`begin` starts the work on a lane; `look` is called when it is time to look again. With `only`, just the lane
        of that session is handled."""
        self._store, self._call, self._active = engine.store, engine.writer.call, engine.sessions.active
        self._kinds, self._begin, self._look_soon, self._only = kinds, begin, look, only
        self._held: dict[str, Held] = {}
        self._left: dict[str, set[int]] = {}
        """The rows that we are done with and that stay open, by lane: they are for others."""
        self._avoided: dict[str, tuple[float, int]] = {}
        """Lanes that are for others: until when they are left alone, and how often they were."""
        self._leaving: list[tuple[Lane, float | None]] = []
        """Lanes that could not be let go yet, since the store was away."""
        self._forgotten = self._looked = float("-inf")
        self.waiting = 0
        self.resting: set[str] = set()

    async def look(self) -> None:
        """Take lanes in which there is something to do, and wake those in hand in which something arrived."""
        while self._leaving:
            await self._call(self._store.lanes.let_go, *self._leaving[0])
            del self._leaving[0]
        room = max(0, min(AT_ONCE, MOST_LANES - len(self._held) + self.waiting))
        now = asyncio.get_running_loop().time()
        avoided = [lane for lane, (until, _) in self._avoided.items() if until > now]
        soon = now - self._looked < LOOK_SECONDS
        if not soon:
            self._looked = now
        only = self._only and await self._call(self._store.lanes.of, self._only)
        taken = await self._call(self._store.lanes.take, room, avoided, only, soon=soon)
        for lane in taken:
            held = self._held.get(lane.key)
            if held is None:
                self._held[lane.key] = Held(lane)
                self._begin(lane.key)
            else:
                held.lane = lane
                held.woken.set()
        if 0 < room == len(taken):
            self._look_soon()

    async def look_for_forgotten(self, now: str) -> None:
        """Occasionally wake lanes whose wake-up was lost."""
        if asyncio.get_running_loop().time() - self._forgotten > FORGOTTEN_SECONDS:
            await self._call(self._store.lanes.wake_forgotten, now, FORGOTTEN_SECONDS)
            self._forgotten = asyncio.get_running_loop().time()

    async def rows(self, lane: str) -> list[InboxRow]:
        """Return the current rows of a lane; empty if another process has taken it."""
        held = self._held[lane]
        held.lost = not await self._call(self._store.lanes.mine, held.lane)
        if held.lost:
            return []
        rows = await self._call(self._store.inbox.lane, lane)
        done = held.done | self._left.get(lane, set())
        ours = [row for row in rows if row.kind in self._kinds and row.id not in done]
        held.left = {row.id for row in rows} - {row.id for row in ours}
        return ours

    def done(self, lane: str, row: InboxRow) -> None:
        """Mark a row handled; if it was not consumed, another process will take it."""
        self._held[lane].done.add(row.id)

    def again_in(self, lane: str, seconds: float) -> None:
        """Look at a lane after so many seconds, at the latest."""
        held = self._held[lane]
        held.after = seconds if held.after is None else min(seconds, held.after)

    def heard(self, lane: str) -> None:
        """Reset the wake-ups of a lane, all of which is about to be looked at."""
        held = self._held[lane]
        held.woken.clear()
        held.after = None

    async def those_of(self, lane: str, session_ids: Collection[str]) -> list[str]:
        """Those of these sessions that belong to a lane."""
        return [one for one in session_ids if await self._call(self._store.lanes.of, one) == lane]

    def for_others(self, lane: str) -> None:
        """Mark a lane's work as meant for other processes."""
        self._held[lane].theirs = True

    async def stays(self, lane: str) -> bool:
        """Wait while this process works for a session of the lane, until something arrives or it rests. True if the
        lane is to be looked at again."""
        held = self._held[lane]
        if held.lost:
            return False
        if not held.woken.is_set() and (live := self._at_work(lane)) is not None:
            self.waiting += 1
            self.resting.add(lane)
            waits = [asyncio.create_task(event.wait()) for event in (held.woken, live.parked)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waits:
                    task.cancel()
                self.waiting -= 1
                self.resting.discard(lane)
            return True
        return held.woken.is_set()

    def _at_work(self, lane: str) -> ActiveSession | None:
        for live in self._active.values():
            if live.claimed and lane == ((live.state.thread or {}).get("key") or live.session_id):
                return live
        return None

    def wake_all(self) -> None:
        """Have all lanes in hand looked at."""
        for held in self._held.values():
            held.woken.set()

    async def leave(self, lane: str, *, elsewhere: bool = False) -> None:
        """End the work on a lane; `elsewhere`: its session is run by another process."""
        held = self._held.pop(lane)
        times = self._avoided.pop(lane, (0.0, 0))[1]
        seconds = FORGOTTEN_SECONDS if held.theirs else BACKOFF_SECONDS[min(times, len(BACKOFF_SECONDS) - 1)]
        self._left.pop(lane, None)
        if held.left:
            self._left[lane] = held.left
            held.after = min(seconds, held.after or seconds)
            seconds *= 2  # others come first
        if elsewhere or held.theirs:
            held.after = 0.0
        if elsewhere or held.theirs or held.left:
            self._avoided[lane] = asyncio.get_running_loop().time() + seconds, times + 1
        if held.lost:
            return
        try:
            await self._call(self._store.lanes.let_go, held.lane, held.after)
        except StorageBroken:
            raise
        except StorageError:
            self._leaving.append((held.lane, held.after))
        if len(self._held) - self.waiting == MOST_LANES - 1:
            self._look_soon()
