"""Seeded faults of a fleet: with each of them one worker alone does well, and the simulation finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from engine.journal.records import Commit, Consumed
from engine.run.sessions import Sessions
from engine.storage.postgres_connection import PostgresConnection
from engine.storage.rows import _CONSUME, _INBOX, RowTables
from engine.storage.sessions import SessionTables
from engine.storage.tables import INBOX
from tests.simulation.fleet.server import FleetOwners

Mutant = Callable[[pytest.MonkeyPatch], None]


def claims_what_it_read(patch: pytest.MonkeyPatch) -> None:
    """A claim is not compared with what is stored by then."""

    part = SessionTables._part

    def unchecked(self: SessionTables, commit: Commit, body: bytes) -> Exception | None:
        if commit.owner is not None and commit.new is None:
            head = self._stored(commit.session_id)
            commit = commit.but(epoch=head.epoch + 1, seq=head.seq)
        return part(self, commit, body)

    patch.setattr(SessionTables, "_part", unchecked)


def takes_living_owners_for_dead(patch: pytest.MonkeyPatch) -> None:
    """The lease of an owner is ignored."""
    patch.setattr(FleetOwners, "alive", lambda self, owner: False)


def lets_a_zombie_write(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether the lease was confirmed before something is written."""
    patch.setattr(PostgresConnection, "_may_write", lambda self: None)


def consumes_what_is_consumed(patch: pytest.MonkeyPatch) -> None:
    """A row that another worker has consumed is consumed again."""

    def again(self: RowTables, consumed: Iterable[Consumed]) -> None:
        for done in consumed:
            row = self._held(INBOX, _INBOX, done.inbox_id)
            assert row is not None
            after = row.but(outcome=done.outcome, result=done.result)
            *_, mac = INBOX.sealed(self._sealer, after)
            self._db.run(_CONSUME, (after.outcome, after.result, mac, after.id))

    patch.setattr(RowTables, "_consume", again)


def blames_what_is_newer(patch: pytest.MonkeyPatch) -> None:
    """What a newer release wrote is taken for damage."""

    async def blames(self: Sessions, live: Any, error: Exception) -> None:
        await self.quarantine(live.session_id, "it does not verify", error)

    patch.setattr(Sessions, "_release_to_newer", blames)


FLEET_MUTANTS: dict[str, Mutant] = {
    mutant.__name__: mutant
    for mutant in (
        claims_what_it_read,
        takes_living_owners_for_dead,
        lets_a_zombie_write,
        consumes_what_is_consumed,
        blames_what_is_newer,
    )
}
FLEET_SEEN_AT: dict[str, int] = {
    "claims_what_it_read": 0,
    "takes_living_owners_for_dead": 0,
    "lets_a_zombie_write": 1,
    "consumes_what_is_consumed": 5,
    "blames_what_is_newer": 1,
}
"""A seed that shows each fault."""
