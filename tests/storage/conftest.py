"""A database in memory, an encrypted one, one in a file and one on a Postgres server, for every test of the contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.storage.store import Store
from tests.storage.storagekit import OUTER, MemoryBackend, PostgresBackend, SqliteBackend

_KEYS: dict[str, tuple[bytes, ...]] = {"memory": (), "encrypted": (OUTER,)}


@pytest.fixture(params=["memory", "encrypted", "file", "postgres"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteBackend]:
    """One backend, empty."""
    if request.param != "postgres":
        yield SqliteBackend(tmp_path) if request.param == "file" else MemoryBackend(_KEYS[request.param])
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
