"""A database in memory, one in a file and one on a Postgres server, for every test of the contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.storage.port import Store
from tests.storage.storagekit import MemoryBackend, PostgresBackend, SqliteBackend


@pytest.fixture(params=["memory", "file", "postgres"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteBackend]:
    """One backend, empty."""
    if request.param != "postgres":
        yield MemoryBackend() if request.param == "memory" else SqliteBackend(tmp_path)
        return
    postgres = PostgresBackend()
    yield postgres
    postgres.close()


@pytest.fixture
def store(backend: SqliteBackend) -> Iterator[Store]:
    """A connection to it."""
    store = backend.open()
    yield store
    store.close()
