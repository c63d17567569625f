"""A database in memory and one in a file, for every test of the contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.storage.port import Store
from tests.storage.storagekit import MemoryBackend, SqliteBackend


@pytest.fixture(params=["memory", "file"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> SqliteBackend:
    """One backend, empty."""
    return MemoryBackend() if request.param == "memory" else SqliteBackend(tmp_path)


@pytest.fixture
def store(backend: SqliteBackend) -> Iterator[Store]:
    """A connection to it."""
    store = backend.open()
    yield store
    store.close()
