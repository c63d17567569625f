"""From a URL (`SAYSO_DATABASE_URL`) to a store."""

from __future__ import annotations

from engine.language.errors import StorageError
from engine.storage.port import Store

_SQLITE = "sqlite:///"


def open_store(url: str, key: bytes | None = None, *, patience: float | None = None) -> Store:
    """Open `sqlite:///relative/path`, `sqlite:////absolute/path` or `memory:`.

    `key` is the secret under which rows are signed (`SAYSO_SECRET_KEY`); without it the key file beside the
    database is used. `patience` is how many seconds another program that holds the database is waited for.
    Raises `StorageError` for any other URL, and what opening raises.
    """
    if url == "memory:":
        from engine.storage.memory import MemoryStore

        return MemoryStore(key)
    if url.startswith(_SQLITE) and len(url) > len(_SQLITE):
        from engine.storage.sqlite import open_sqlite

        return open_sqlite(url[len(_SQLITE) :], key=key, patience=patience)
    raise StorageError(
        f"{url!r} is no database URL; use sqlite:///path/to/sayso.db (four slashes for an absolute path)."
    )
