"""A page of the database that is damaged: the session is set aside, and where not even that can be stored, it ends in words."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine.language.errors import Corrupt, StorageBroken
from tests.support.engine import Backing, FaultyStore, running

WAITS = "flow: waits\nnodes: [{id: a, type: shell, with: {run: [wait]}}]\n"
DAMAGED = Corrupt("database disk image is malformed")


async def test_an_outcome_that_cannot_be_written_sets_its_session_aside(
    backing: Backing, tmp_path: Path
) -> None:
    """It is not tried forever: the other sessions continue."""
    faulty = FaultyStore(backing.open())
    async with running(faulty, tmp_path) as rig:
        session_id = await rig.start(WAITS)
        await rig.shop.running("a")
        faulty.failures = [DAMAGED]
        await rig.shop.finish("a")
        async with asyncio.timeout(10):
            await rig.engine.parked(session_id)
        head = rig.store.sessions.head(session_id)
        assert head is not None
        assert "cannot be written" in (head.quarantined or "")


async def test_where_nothing_can_be_written_whoever_waits_is_told(backing: Backing, tmp_path: Path) -> None:
    """A command that follows the session ends with the error (exit code 6), instead of trying forever."""
    faulty = FaultyStore(backing.open())
    async with running(faulty, tmp_path) as rig:
        session_id = await rig.start(WAITS)
        await rig.shop.running("a")
        faulty.failures, faulty.answers = [DAMAGED] * 3, {"quarantine": DAMAGED}
        await rig.shop.finish("a")
        with pytest.raises(StorageBroken, match="malformed"):
            async with asyncio.timeout(10):
                await rig.engine.parked(session_id)
        faulty.failures, faulty.answers = [], {}
