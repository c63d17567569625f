"""`store copy`: everything that a store holds, moved between an SQLite file and a Postgres database, or to other keys."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from bot.config.settings import load_settings, read_env_file
from bot.terminal.console import Exit, Place, UsageError, clean, plural, url_of
from engine.run import evidence
from engine.run.stored import utc_now
from engine.storage.copying import copy_store
from engine.storage.open import open_store, place_of
from engine.storage.private_files import read_key

_SQLITE = "sqlite:///"


def copy_stores(place: Place, source: str, target: str, to_env: Path | None) -> int:
    """Copy a store to an empty one. Raises `UsageError`, `SettingsError`, `StorageError`."""
    from_url, to_url = url_of(source), url_of(target)
    file = Path(from_url.removeprefix(_SQLITE)) if from_url.startswith(_SQLITE) else None
    if from_url == to_url:
        raise UsageError("A store cannot be copied to itself.")
    if file is not None and not file.exists():
        raise UsageError(f"There is no database {file}.")
    before = after = place.settings()
    if to_env is not None:
        if not to_env.is_file():
            raise UsageError(f"There is no file {to_env}.")
        after = load_settings({**os.environ, **read_env_file(to_env)}, cwd=Path.cwd(), home=place.home)
    beside = None if file is None or before.secret_key else read_key(file.with_name(f"{file.name}.key"))
    key = before.secret_key or beside
    with (
        closing(open_store(from_url, key, before.encryption_keys)) as old,
        closing(open_store(to_url, after.secret_key or key, after.encryption_keys)) as new,
    ):
        sessions = copy_store(old, new)
        if evidence.keys(new) and (after.secret_key or key) != key:
            evidence.rotate(new, utc_now(), signing=old)
    print(f"{clean(place_of(to_url))} holds {plural(sessions, 'session')}, read back and verified.")
    told = "" if to_env is None else f", and its keys to those of {clean(str(to_env))}"
    print(f"Set SAYSO_DATABASE_URL to it{told}. The old store is unchanged: start nothing on it again.")
    if beside is not None and after.secret_key is None:
        print(f"Its rows are signed with the key of the old one: SAYSO_SECRET_KEY=hex:$(cat {file}.key)")
    print("The session folders are not part of a store: they are in SAYSO_HOME.")
    return Exit.OK
