"""A page of the database that is damaged: the session is set aside, and where not even that can be stored, it ends in words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.language.errors import Corrupt, StorageBroken
from tests.support.engine import ANA, SESSION, Backing, EngineRig, FaultyStore, flow_of, running

WAITS = "flow: waits\nnodes: [{id: a, type: shell, with: {run: [wait]}}]\n"
DAMAGED = Corrupt("database disk image is malformed")


@pytest.fixture
async def faulty(backing: Backing) -> FaultyStore:
    return FaultyStore(backing.open())


@pytest.fixture
async def rig(faulty: FaultyStore, tmp_path: Path) -> AsyncIterator[EngineRig]:
    """An engine with a session whose node works."""
    async with running(faulty, tmp_path) as made:
        await made.engine.start(flow_of(WAITS), {}, actor=ANA, session_id=SESSION)
        await made.shop.running("a")
        yield made


async def test_an_outcome_that_cannot_be_written_sets_its_session_aside(
    faulty: FaultyStore, rig: EngineRig
) -> None:
    """It is not tried forever: the other sessions continue."""
    faulty.failures = [DAMAGED]
    await rig.shop.finish("a")
    async with asyncio.timeout(10):
        await rig.engine.parked(SESSION)
    assert "cannot be written" in ((await rig.engine.head(SESSION)).quarantined or "")


async def test_where_nothing_can_be_written_whoever_waits_is_told(
    faulty: FaultyStore, rig: EngineRig
) -> None:
    """A command that follows the session ends with the error (exit code 6), instead of trying forever."""
    faulty.failures, faulty.answers = [DAMAGED] * 3, {"quarantine": DAMAGED}
    await rig.shop.finish("a")
    with pytest.raises(StorageBroken, match="malformed"):
        async with asyncio.timeout(10):
            await rig.engine.parked(SESSION)
    faulty.failures, faulty.answers = [], {}
