"""Seeded faults of a fleet: with each of them one worker alone does well, and the simulation finds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bot.serve.roles import Replica
from engine.journal.records import Commit, InboxRow
from engine.run import shared_lanes
from engine.run.sessions import Sessions
from engine.run.shared_lanes import SharedLanes
from engine.storage import lanes
from engine.storage.fence import WorkPermit
from engine.storage.lanes import LaneTable
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


def lets_go_what_others_have(patch: pytest.MonkeyPatch) -> None:
    """Whoever lost a lane lets it go all the same, although another process has it by now."""
    patch.setattr(
        lanes, "_LET_GO", lanes._LET_GO.replace(" AND owner = ?2 AND epoch = ?3", " AND ?2 != '' AND ?3 > 0")
    )
    patch.setattr(SharedLanes, "rows", _believes_that_it_is_its_own)


async def _believes_that_it_is_its_own(self: SharedLanes, lane: str) -> list[InboxRow]:
    rows = await self._call(self._store.inbox.lane, lane)
    held = self._held[lane]
    done = held.done | self._left.get(lane, set())
    return [row for row in rows if row.kind in self._kinds and row.id not in done]


def misses_what_comes_meanwhile(patch: pytest.MonkeyPatch) -> None:
    """What arrives in a lane that somebody has is not noted, and nobody looks for what was forgotten."""
    arrive = LaneTable.arrive

    def unless_owned(self: LaneTable, key: str) -> None:
        if self._db.one("SELECT 1 FROM lanes WHERE key = ? AND owner IS NOT NULL", (key,)) is None:
            arrive(self, key)

    patch.setattr(LaneTable, "arrive", unless_owned)
    patch.setattr(LaneTable, "wake_forgotten", lambda self, now, within: None)


def works_on_lanes_of_others(patch: pytest.MonkeyPatch) -> None:
    """A lane is taken whoever has it."""
    for name in ("_LOOK", "_LOOK_SOON", "_TAKE"):
        patch.setattr(lanes, name, getattr(lanes, name).replace("owner IS NULL AND wake_at <=", "wake_at <="))


def takes_from_the_living(patch: pytest.MonkeyPatch) -> None:
    """Whoever gave no sign of life for an instant is dead."""
    patch.setattr(lanes, "_dead_since", lambda: -1)


def takes_up_again_what_it_left(patch: pytest.MonkeyPatch) -> None:
    """What is for a newer release is read again and again."""
    leave = SharedLanes.leave

    async def forgets(self: SharedLanes, lane: str, *, elsewhere: bool = False) -> None:
        await leave(self, lane, elsewhere=elsewhere)
        self._left.clear()

    patch.setattr(shared_lanes, "BACKOFF_SECONDS", (0.4,))
    patch.setattr(SharedLanes, "leave", forgets)


def looks_again_at_once(patch: pytest.MonkeyPatch) -> None:
    """A lane with rows that are for others is due at once when it is let go."""
    patch.setattr(shared_lanes, "BACKOFF_SECONDS", (0.0,))


def posts_beside_others(patch: pytest.MonkeyPatch) -> None:
    """The lane of whoever sends is taken from its owner."""
    patch.setattr(lanes, "_FREE", "SELECT 1 WHERE ?1 != '' AND ?2 < 0 AND ?3 != ''")
    for name in ("_LOOK", "_LOOK_SOON"):
        patch.setattr(lanes, name, getattr(lanes, name).replace("key IN ('send', 'chores')", "key = ''"))
    patch.setattr(lanes, "_CLAIM", lanes._CLAIM.replace("lanes.owner IS NULL", "lanes.owner IS NOT NULL"))


def keeps_posting(patch: pytest.MonkeyPatch) -> None:
    """After a gap nobody asks whose the lane is."""

    async def always(self: Replica, key: str) -> bool:
        return True

    patch.setattr(Replica, "still", always)


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


SEEN_AT: dict[Mutant, int] = {
    claims_what_it_read: 13,
    takes_living_owners_for_dead: 8,
    lets_go_what_others_have: 3,
    misses_what_comes_meanwhile: 1,
    works_on_lanes_of_others: 24,
    takes_from_the_living: 1,
    takes_up_again_what_it_left: 84,
    looks_again_at_once: 21,
    posts_beside_others: 0,
    keeps_posting: 3,
    posts_without_asking_the_fence: 579,
    blames_what_is_newer: 2,
}
"""The faults, each with a seed that shows it."""
