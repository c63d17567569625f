"""A workspace for tests that run the real bot as a process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bot.workspace import Workspace
from tests.support.workspace import running_workspace


@pytest.fixture
async def workspace() -> AsyncIterator[Workspace]:
    """A new workspace with the default people and channels."""
    async with running_workspace() as started:
        yield started
