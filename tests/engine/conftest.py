"""Both stores, for every test of the engine's shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.engine import Backing


@pytest.fixture(params=["memory", "sqlite"])
def backing(request: pytest.FixtureRequest, tmp_path: Path) -> Backing:
    """A database that outlives the engines that open it."""
    return Backing(request.param, tmp_path)
