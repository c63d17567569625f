"""A database in memory, an encrypted one, one in a file and one on a Postgres server, there also behind a pooler, for every test
of the contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.storage.store import Store
from tests.storage.storagekit import OUTER, MemoryBackend, PooledBackend, PostgresBackend, SqliteBackend

_KEYS: dict[str, tuple[bytes, ...]] = {"memory": (), "encrypted": (OUTER,)}
_POOLED = "tests.storage.test_storage_contract"
"""The tests that go through a pooler also in `make test`."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test that takes the backend of this module runs on all of them."""
    if "backend" in metafunc.fixturenames and not hasattr(metafunc.module, "backend"):
        long = [] if metafunc.module.__name__ == _POOLED else [pytest.mark.long]
        backends = ["memory", "encrypted", "file", "postgres", pytest.param("pooled", marks=long)]
        metafunc.parametrize("backend", backends, indirect=True)


@pytest.fixture
def url() -> str:
    """An empty database on a server."""
    from tests.support import postgres

    return postgres.empty_database()


@pytest.fixture
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteBackend]:
    """One backend, empty."""
    if request.param not in ("postgres", "pooled"):
        yield SqliteBackend(tmp_path) if request.param == "file" else MemoryBackend(_KEYS[request.param])
        return
    postgres = PostgresBackend() if request.param == "postgres" else PooledBackend()
    yield postgres
    postgres.close()


@pytest.fixture
def store(backend: SqliteBackend) -> Iterator[Store]:
    """A connection to it."""
    store = backend.open()
    yield store
    store.close()
