"""The inbox of a store that several processes serve: a lane is worked on by whoever has its lease.

Ids of rows say nothing here: a process may die with rows in hand, and others look again. So what is open is read by lane, and
only under the lane's lease. A lane whose session another process runs is given back at once, for that one to take. Nothing
rests on a wake-up: a lane that could not be taken is tried again after a backoff, whoever has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from engine.journal.records import InboxRow
from engine.run.engine import Engine

BACKOFF_SECONDS = (0.02, 0.1, 0.5, 2.0, 5.0)
"""After how long a lane is tried again that another process works on."""
MOST_LANES = 100
"""How many lanes one process works on at once; the others are there for it too."""


class SharedLanes:
    """See `engine.run.dispatcher.Lanes`."""

    def __init__(
        self, engine: Engine, kinds: Collection[str], begin: Callable[[str], None], look: Callable[[], None]
    ) -> None:
        """`begin` starts the work on a lane; `look` is called when it is time to look again."""
        self._store, self._call = engine.store, engine.writer.call
        self._kinds, self._begin, self._look_soon = kinds, begin, look
        self._held: dict[str, set[int]] = {}
        """The lanes whose leases are ours, and the rows of each that we are done with."""
        self._left: dict[str, set[int]] = {}
        """The rows that we are done with and that stay open, by lane: they are for others."""
        self._open: dict[str, set[int]] = {}
        self._behind: set[str] = set()
        """Lanes in hand that were found to have rows since they were read."""
        self._elsewhere: dict[str, tuple[float, int, bool]] = {}
        """Lanes of others: until when they are left alone, how often they were, and whether their session is run there."""
        self._given = 0
        """How often others have given leases back."""
        self._full = False
        self.waiting = 0

    def next_look(self) -> float:
        """Seconds until a lane of others is worth a look. Those in hand, and what there is no place for, look by themselves."""
        if self._full:
            return float("inf")
        theirs = [until for lane, (until, _, _) in self._elsewhere.items() if lane not in self._held]
        return min(theirs, default=float("inf")) - asyncio.get_running_loop().time()

    def given_back(self) -> None:
        """Others have given leases back."""
        self._given += 1
        self._elsewhere = {lane: held for lane, held in self._elsewhere.items() if held[2]}

    async def look(self) -> None:
        """Begin to work on the lanes that nobody has."""
        listed = await self._call(self._store.inbox.lanes, self._kinds)
        lanes = {lane for lane, _, _ in listed}
        self._left = {lane: rows for lane, rows in self._left.items() if lane in lanes}
        self._elsewhere = {lane: held for lane, held in self._elsewhere.items() if lane in lanes}
        now, self._full = asyncio.get_running_loop().time(), False
        for lane, newest, rows in listed:
            left = self._left.get(lane, ())
            if lane in self._held:
                self._behind.add(lane)
            elif newest in left and rows == len(left):
                self._elsewhere.pop(lane, None)
            elif len(self._held) - self.waiting >= MOST_LANES:
                self._full = True
                break
            elif self._elsewhere.get(lane, (now,))[0] <= now:
                await self._take(lane)

    async def _take(self, lane: str) -> None:
        given = self._given
        if not await self.alone(f"lane {lane}"):
            if given == self._given:  # else it may be free by now, and nobody would say so again
                self._leave_alone(lane, run_there=False)
            return
        self._held[lane] = set()
        self._begin(lane)

    def _leave_alone(self, lane: str, *, run_there: bool) -> None:
        times = self._elsewhere.get(lane, (0.0, 0))[1]
        seconds = BACKOFF_SECONDS[min(times, len(BACKOFF_SECONDS) - 1)]
        self._elsewhere[lane] = (asyncio.get_running_loop().time() + seconds, times + 1, run_there)

    async def rows(self, lane: str) -> list[InboxRow]:
        """The rows of a lane that are to be handled, as they are now."""
        self._behind.discard(lane)
        rows = [row for row in await self._call(self._store.inbox.lane, lane) if row.kind in self._kinds]
        self._open[lane] = {row.id for row in rows}
        left = self._held[lane] | self._left.get(lane, set())
        return [row for row in rows if row.id not in left]

    def done(self, lane: str, row: InboxRow) -> None:
        """A row was handled. One that stays open nevertheless is for others."""
        self._held[lane].add(row.id)
        self._elsewhere.pop(lane, None)

    async def leave(self, lane: str, *, elsewhere: bool = False) -> None:
        """Work on a lane is over; `elsewhere`: its session is run by another process."""
        done = self._held.pop(lane) | self._left.pop(lane, set())
        still_open = self._open.pop(lane, set())
        if left := done & still_open:
            self._left[lane] = left
        if elsewhere:
            self._leave_alone(lane, run_there=True)
        await self.give_back(f"lane {lane}", tell=bool(still_open))
        if self._full or lane in self._behind:
            self._behind.discard(lane)
            self._look_soon()

    async def alone(self, name: str) -> bool:
        """Whether nobody else does this now."""
        return await self._call(self._store.lease, name)

    async def give_back(self, name: str, *, tell: bool = False) -> None:
        """Let others do this."""
        await self._call(lambda: self._store.unlease(name, tell=tell))
