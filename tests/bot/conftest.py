"""What several files of this room use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.bot.outbound_kit import Rig, running_rig


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A bot without its ears, that serves and does not send yet."""
    async with running_rig(tmp_path, "memory:") as running:
        yield running
