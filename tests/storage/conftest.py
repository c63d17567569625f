"""Both backends, for every test of the contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.storage.port import Store
from tests.storage.storagekit import Backend, MemoryBackend, SqliteBackend


@pytest.fixture(params=["memory", "sqlite"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """One backend, empty."""
    return MemoryBackend() if request.param == "memory" else SqliteBackend(tmp_path)


@pytest.fixture
def store(backend: Backend) -> Iterator[Store]:
    """A connection to it."""
    store = backend.open()
    yield store
    store.close()
