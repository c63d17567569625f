"""A workspace for tests that run the real bot as a process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.acting import Workspace
from tests.support.bot import ROOT, BotProcess
from tests.support.workspace import running_workspace


@pytest.fixture
async def workspace() -> AsyncIterator[Workspace]:
    """A new workspace with the default people and channels."""
    async with running_workspace() as started:
        yield started


@pytest.fixture
async def bot(workspace: Workspace, tmp_path: Path) -> AsyncIterator[BotProcess]:
    """The bot with the examples, as a process."""
    home = tmp_path / "home"
    home.mkdir()
    process = BotProcess(workspace, home, ROOT / "examples")
    try:
        await process.start()
        yield process
    finally:
        await process.close()
