"""From a URL (`SAYSO_DATABASE_URL`) to a store; the SQLite backend without files, for tests, dry runs and
trying things.

SQLite's `memdb` keeps a database as long as a connection to it is open, and shares it between the connections of this
process. Nothing outlives the process, so there is no older copy to tell from the current one (`engine.storage.freshness`),
and the only owners are those of this process.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import apsw

from engine.storage.connection import SqliteConnection
from engine.storage.errors import NoDatabaseUrl, NoDriver
from engine.storage.leases import MemoryOwners
from engine.storage.schema import STEPS, take_steps
from engine.storage.sealing import Sealer
from engine.storage.sqlite import SqliteStore
from engine.storage.store import Store, vault_of

_SQLITE = "sqlite:///"
POSTGRES = ("postgresql://", "postgres://")


def open_store(
    url: str,
    key: bytes | None = None,
    encryption_keys: Sequence[bytes] | None = (),
    *,
    patience: float | None = None,
) -> Store:
    """Open `sqlite:///relative/path`, `sqlite:////absolute/path`, `postgresql://user@host/name` or `memory:`.

    `key` is the secret under which rows are signed (`SAYSO_SECRET_KEY`); without it the key file beside the
    database is used. `encryption_keys` are those that bodies are encrypted with (`SAYSO_ENCRYPTION_KEYS`), the first for
    what is written; with None an encrypted database can only be verified. `patience` is how many seconds another program that holds the database is waited for.
    Raises `StorageError` for any other URL, and what opening raises.
    """
    if url == "memory:":
        return MemoryStore(key, encryption_keys=encryption_keys)
    if url.startswith(_SQLITE) and len(url) > len(_SQLITE):
        from engine.storage.sqlite import open_sqlite

        return open_sqlite(url[len(_SQLITE) :], key=key, patience=patience, encryption_keys=encryption_keys)
    if url.startswith(POSTGRES):
        try:
            from engine.storage.postgres import open_postgres
        except ImportError as error:
            raise NoDriver(error=error) from error
        return open_postgres(url, key, encryption_keys)
    raise NoDatabaseUrl(url=url)


def place_of(url: str) -> str:
    """Return the database of a URL for people, without secrets."""
    if not url.startswith(POSTGRES):
        return url
    parts = urlsplit(url)
    if "@" in parts.path:
        return "the Postgres database"  # part of a password that was not escaped stands there
    return f"Postgres database {parts.path.strip('/') or '(default)'} at {parts.hostname or 'localhost'}"


# --- in memory ---------------------------------------------------------------------------------------------


_VFS = "memdb"


class MemoryStore(SqliteStore):
    """`Store` in memory."""

    def __init__(
        self,
        key: bytes | None = None,
        database: MemoryDatabase | None = None,
        encryption_keys: Sequence[bytes] | None = (),
    ) -> None:
        """An empty store whose rows are signed under `key`, or another connection to a database."""
        self.database = database or MemoryDatabase(key or os.urandom(32))
        self._encryption_keys = encryption_keys
        connection, sealer = SqliteConnection(self.database.path, _VFS), Sealer(self.database.key)
        vault = vault_of(connection, "memory:", sealer, encryption_keys)
        super().__init__(connection, sealer, MemoryOwners(self.database.owners), vault)

    def another(self) -> MemoryStore:
        """A second connection to the same rows, as another process would have."""
        return MemoryStore(database=self.database, encryption_keys=self._encryption_keys)


class MemoryDatabase:
    """Shared part of the stores of one database: it exists while one of them is referenced."""

    def __init__(self, key: bytes) -> None:
        self.path = Path(f"/{os.urandom(8).hex()}")
        self.key = key
        self.owners: dict[str, str] = {}
        """The owners that live, each with what it has noted."""
        self._kept = self.connect()
        template = apsw.Connection(":memory:")
        template.deserialize("main", _empty())
        with self._kept.backup("main", template, "main") as backup:
            backup.step(-1)

    def connect(self) -> apsw.Connection:
        """A plain connection, as another program would have."""
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        return apsw.Connection(str(self.path), flags=flags, vfs=_VFS)


@cache
def _empty() -> bytes:
    """A database without rows: copying it costs a tenth of making the tables."""
    made = apsw.Connection(":memory:")
    made.pragma("auto_vacuum", "INCREMENTAL")
    take_steps(made, STEPS)
    return made.serialize("main")
