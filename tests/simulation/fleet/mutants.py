"""Seeded faults of a fleet: with each of them one worker alone does well, and the simulation finds it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import pytest

from bot.outbound.shards import SHARDS, Shards
from engine.journal.records import Commit
from engine.run.sessions import Sessions
from engine.run.shared_lanes import SharedLanes
from engine.storage.fence import WorkPermit
from engine.storage.postgres_connection import PostgresConnection
from engine.storage.store import PartResult, Store
from tests.simulation.fleet.server import FleetOwners

Mutant = Callable[[pytest.MonkeyPatch], None]


def claims_what_it_read(patch: pytest.MonkeyPatch) -> None:
    """A claim is not compared with what is stored by then."""

    part = Store._part

    def unchecked(self: Store, commit: Commit, body: bytes, *, settle: bool) -> PartResult:
        if commit.owner is not None and commit.new is None:
            head = self.sessions._stored(commit.session_id)
            commit = commit.but(epoch=head.epoch + 1, seq=head.seq)
        return part(self, commit, body, settle=settle)

    patch.setattr(Store, "_part", unchecked)


def takes_living_owners_for_dead(patch: pytest.MonkeyPatch) -> None:
    """The lease of an owner is ignored."""
    patch.setattr(FleetOwners, "alive", lambda self, owner: False)


def lets_a_zombie_write(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether the lease was confirmed before something is written."""
    patch.setattr(PostgresConnection, "_may_write", lambda self: None)


def reads_on_from_an_id(patch: pytest.MonkeyPatch) -> None:
    """Lanes are found by a cursor over the ids of rows: what becomes visible behind it is never seen."""
    look, after = SharedLanes.look, dict[SharedLanes, int]()

    async def newer(self: SharedLanes) -> None:
        listed, seen = self._store.inbox.lanes, after.get(self, 0)

        def behind(kinds: Collection[str]) -> list[tuple[str, int, int]]:
            found = [lane for lane in listed(kinds) if lane[1] > seen or lane[0] in self._elsewhere]
            after[self] = max([seen, *(newest for _, newest, _ in found)])
            return found

        with pytest.MonkeyPatch.context() as cursor:
            cursor.setattr(self._store.inbox, "lanes", behind)
            await look(self)

    patch.setattr(SharedLanes, "look", newer)


def works_on_lanes_of_others(patch: pytest.MonkeyPatch) -> None:
    """The leases of lanes are ignored."""

    async def always(self: SharedLanes, name: str) -> bool:
        return True

    patch.setattr(SharedLanes, "alone", always)


def takes_up_again_what_it_left(patch: pytest.MonkeyPatch) -> None:
    """What is for a newer release is read again and again."""
    leave = SharedLanes.leave

    async def forgets(self: SharedLanes, lane: str, *, elsewhere: bool = False) -> None:
        await leave(self, lane, elsewhere=elsewhere)
        self._left.clear()

    patch.setattr(SharedLanes, "leave", forgets)


def posts_in_channels_of_others(patch: pytest.MonkeyPatch) -> None:
    """The leases of shards are ignored: a shard is owned twice."""

    async def every(self: Shards, busy: Collection[int]) -> None:
        self.mine = set(range(SHARDS))

    patch.setattr(Shards, "share", every)


def gives_up_what_it_posts_in(patch: pytest.MonkeyPatch) -> None:
    """A shard is given up although something of it is on its way."""
    share = Shards.share

    async def at_once(self: Shards, busy: Collection[int]) -> None:
        await share(self, ())

    patch.setattr(Shards, "share", at_once)


def looks_again_at_once(patch: pytest.MonkeyPatch) -> None:
    """A lane of others that is in hand by now is looked for again at once."""

    def always(self: SharedLanes) -> float:
        now = asyncio.get_running_loop().time()
        return min((until - now for until, _, _ in self._elsewhere.values()), default=float("inf"))

    patch.setattr(SharedLanes, "next_look", always)


def blames_what_is_newer(patch: pytest.MonkeyPatch) -> None:
    """What a newer release wrote is taken for damage."""

    async def blames(self: Sessions, live: Any, error: Exception) -> None:
        await self.quarantine(live.session_id, "it does not verify", error)

    patch.setattr(Sessions, "_release_to_newer", blames)


def posts_without_asking_the_fence(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks right before a post whether the work may have gone to another process."""

    async def always(self: WorkPermit) -> None:
        return

    patch.setattr(WorkPermit, "ask", always)


FLEET_MUTANTS: dict[str, Mutant] = {
    mutant.__name__: mutant
    for mutant in (
        claims_what_it_read,
        takes_living_owners_for_dead,
        lets_a_zombie_write,
        posts_without_asking_the_fence,
        reads_on_from_an_id,
        works_on_lanes_of_others,
        takes_up_again_what_it_left,
        looks_again_at_once,
        posts_in_channels_of_others,
        gives_up_what_it_posts_in,
        blames_what_is_newer,
    )
}
FLEET_SEEN_AT: dict[str, int] = {
    "claims_what_it_read": 0,
    "takes_living_owners_for_dead": 0,
    "lets_a_zombie_write": 2,
    "posts_without_asking_the_fence": 354,
    "reads_on_from_an_id": 23,
    "works_on_lanes_of_others": 0,
    "takes_up_again_what_it_left": 34,
    "looks_again_at_once": 96,
    "posts_in_channels_of_others": 1,
    "gives_up_what_it_posts_in": 114,
    "blames_what_is_newer": 1,
}
"""A seed that shows each fault."""
