"""A store for every test of the engine's shell."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.run.dispatcher import Dispatcher
from tests.support.engine import Backing, EngineRig, running, served


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.long)])
def backing(request: pytest.FixtureRequest, tmp_path: Path) -> Backing:
    """A database that outlives the engines that open it; on a server in the long version."""
    return Backing(request.param, tmp_path)


@pytest.fixture
async def rig(backing: Backing, tmp_path: Path) -> AsyncIterator[EngineRig]:
    """An engine over it."""
    async with running(backing.open(), tmp_path) as made:
        yield made


@pytest.fixture
async def service(rig: EngineRig) -> AsyncIterator[Dispatcher]:
    """A service over that."""
    async with served(rig.engine) as made:
        yield made
