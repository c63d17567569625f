"""`store copy`: everything that a store holds, moved between an SQLite file and a Postgres database."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from bot.terminal.console import Exit, Place, UsageError, clean, plural, url_of
from engine.storage.copying import copy_store
from engine.storage.open import open_store, place_of
from engine.storage.port import Store
from engine.storage.private_files import read_key
from engine.storage.store import DatabaseStore

_SQLITE = "sqlite:///"


def copy_stores(place: Place, source: str, target: str) -> int:
    """Copy a store to an empty one. Raises `UsageError`, `StorageError`."""
    from_url, to_url = url_of(source), url_of(target)
    file = _file(from_url)
    if from_url == to_url:
        raise UsageError("A store cannot be copied to itself.")
    if file is not None and not file.exists():
        raise UsageError(f"There is no database {file}.")
    settings = place.settings()
    given, keys = settings.secret_key, settings.encryption_keys
    beside = None if file is None or given is not None else read_key(file.with_name(f"{file.name}.key"))
    key = given or beside
    with closing(open_store(from_url, key, keys)) as old, closing(open_store(to_url, key, keys)) as new:
        sessions = copy_store(_database(old), _database(new))
    print(f"{clean(place_of(to_url))} holds {plural(sessions, 'session')}, read back and verified.")
    print("Set SAYSO_DATABASE_URL to it. What was copied from is as it was: let nothing start on it again.")
    if beside is not None:
        print(f"Its rows are signed with the key of the old one: SAYSO_SECRET_KEY=hex:$(cat {file}.key)")
    print("The folders of sessions are no part of a store: they are in SAYSO_HOME.")
    return Exit.OK


def _file(url: str) -> Path | None:
    return Path(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) else None


def _database(store: Store) -> DatabaseStore:
    assert isinstance(store, DatabaseStore), "every URL names a database"
    return store
