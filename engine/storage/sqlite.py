"""The embedded backend: one SQLite file, no server; whole copies of it, and the key with which its rows are
signed.

Every method is one transaction. What a crash does: a transaction whose COMMIT returned is there after a power
loss (WAL, `synchronous=FULL`), any other is gone as a whole. Files beside the database: its key
(`<name>.key`), its owners (`owners/<name>/`), the lock under which it is opened (`<name>.lock`).

A copy can be made while the database is served. It is one SQLite file without its key: without the key it
opens nowhere, and it is as readable as the database. What is put back is older than what was acknowledged
since. So the anchor is set beyond it first, and the store opens suspended (`engine.storage.freshness`),
whatever a crash leaves half done.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import apsw

from engine.language.errors import Corrupt, KeyMissing, StorageError
from engine.storage import errors
from engine.storage.connection import SqliteConnection, translated
from engine.storage.freshness import Anchor, Freshness, Points, anchor_of, remove_anchor
from engine.storage.leases import Owners, label_of
from engine.storage.private_files import (
    check_private,
    make_key,
    make_private,
    only_opener,
    private_directory,
    read_key,
    sync_directory,
)
from engine.storage.schema import copy_to, migrate, refuse_foreign
from engine.storage.sealing import Sealer
from engine.storage.store import Store, check_key, has_rows, vault_of


def open_sqlite(
    path: str | os.PathLike[str],
    *,
    key: bytes | None = None,
    vfs: str | None = None,
    patience: float | None = None,
    encryption_keys: Sequence[bytes] | None = (),
) -> SqliteStore:
    """Open a database, or make it with its directory and key.

    `key` is the secret under which rows are signed; without it the one in `<path>.key` is used. `encryption_keys` are those
    that bodies are encrypted with, the first for what is written; with None an encrypted database can only be verified. `vfs` names an
    SQLite VFS, for fault injection. `patience` is how many seconds another program is waited for. Raises
    `KeyMissing`, `SchemaTooNew`, and `StorageError` when the files are not ours alone.
    """
    given = Path(path)
    if not given.name:
        raise errors.NoDatabaseFile(path=str(path))
    file = private_directory(given.parent) / given.name
    with only_opener(file.with_name(f"{file.name}.lock")):
        for suffix in ("", "-wal", "-shm", "-journal"):
            check_private(file.with_name(file.name + suffix))
        make_private(file)
        db = SqliteConnection(file, vfs, patience)
        try:
            with db.translated():
                refuse_foreign(db.raw, file)
            db.use_wal()
            owners = Owners(file.parent / "owners" / file.name)
            with db.translated():
                migrate(db.raw, file, owners.living())
            sealer = Sealer(_key_for(db, file, key))
            if check_key(db, str(file), sealer):
                remove_anchor(file)
            db.watch = Freshness(db, sealer, file)
            store = SqliteStore(db, sealer, owners, vault_of(db, str(file), sealer, encryption_keys))
            store.file = file
            return store
        except BaseException:
            with suppress(StorageError):
                db.close()
            raise


class SqliteStore(Store):
    """`Store` on one SQLite database. Threads may share it; their calls run one after the other."""


# --- backups -----------------------------------------------------------------------------------------------


_FILES = ("-wal", "-shm", "-journal", "")
_META_KEY = "SELECT value, mac FROM meta WHERE name = 'key'"
_COUNTER = "SELECT counter FROM freshness"


def back_up(database: Path, target: Path) -> None:
    """Copy a database, which may be in use, to a new file of mode 0600. Raises `StorageError`, `Corrupt`."""
    if os.path.lexists(target):
        raise errors.BackupExists(path=target)
    part = target.with_name(f"{target.name}.part")
    with translated(database), closing(_opened(database)) as source:
        copy_to(source, part)
    with translated(part), closing(_opened(part)) as copy:
        copy.pragma("journal_mode", "DELETE")
        _check_pages(copy, part)
    part.rename(target)
    sync_directory(target.absolute().parent)


def restore(database: Path, backup: Path, key: bytes | None, stamp: str) -> Path | None:
    """Put a copy in the place of a database, which then opens suspended.

    The files that were there are kept beside it, under names with `stamp`: where, or None where there were none. Raises `StorageError`
    while a process serves the database, `KeyMissing`, `Corrupt`, `SchemaTooNew`; nothing was changed then.
    """
    folder = private_directory(database.parent)
    file = folder / database.name
    with only_opener(file.with_name(f"{file.name}.lock")):
        living = Owners(folder / "owners" / file.name).living()
        if living:
            raise errors.InUse(place=file, who=", ".join(map(label_of, living)))
        key_file = file.with_name(f"{file.name}.key")
        key = key or read_key(key_file)
        if key is None:
            raise KeyMissing(
                f"The key file ({key_file.name}) is missing, and a backup does not contain it. Put the key file beside the database, or set SAYSO_SECRET_KEY."
            )
        sealer = Sealer(key)
        part = file.with_name(f"{file.name}.restored")
        with translated(backup), closing(_opened(backup, apsw.SQLITE_OPEN_READONLY)) as source:
            counter = _checked(source, backup, sealer)
            copy_to(source, part)
        # Set the anchor beyond what is put back, and beyond what was there.
        points = Points(sealer)
        with closing(Anchor(anchor_of(file), points)) as anchor:
            anchor.open()
            newest = anchor.newest()
            anchor.make(points.sealed(max(counter, newest.counter if newest else 0) + 1))
        kept = _set_apart(file, stamp)
        part.rename(file)
        sync_directory(folder)
    return kept


def _opened(path: Path, mode: int = apsw.SQLITE_OPEN_READWRITE) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=mode | apsw.SQLITE_OPEN_NOFOLLOW)
    connection.set_busy_timeout(5_000)
    return connection


def _check_pages(connection: apsw.Connection, path: Path) -> None:
    found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(3)")]
    if found != ["ok"]:
        raise Corrupt(f"{path} is damaged: {'; '.join(found)}")


def _checked(source: apsw.Connection, backup: Path, sealer: Sealer) -> int:
    """The counter of a backup that this release can read with this key."""
    refuse_foreign(source, backup)
    _check_pages(source, backup)
    try:
        row = source.execute(_META_KEY).fetchone()
        counter = source.execute(_COUNTER).fetchone()
    except apsw.SQLError as error:
        raise errors.NoDatabase(path=backup, error=error) from error
    if row != ("sayso", sealer.mac(b"meta", "key", "sayso")):
        raise KeyMissing(f"{backup} was not written with this key; restore the key that belongs to it first.")
    return int(counter[0]) if counter else 0


def _set_apart(file: Path, stamp: str) -> Path | None:
    """Rename the files of the database that is there, its log first: where the database is then."""
    kept = file.with_name(f"{file.name}.{stamp}.replaced")
    there = [suffix for suffix in _FILES if check_private(file.with_name(file.name + suffix))]
    for suffix in there:
        file.with_name(file.name + suffix).rename(kept.with_name(kept.name + suffix))
    return kept if "" in there else None


# --- the key -----------------------------------------------------------------------------------------------


def _key_for(db: SqliteConnection, file: Path, given: bytes | None) -> bytes:
    """The key of a database: the one that is given, else that in its file, which is made where nothing was written yet.
    Raises `KeyMissing`."""
    if given is not None:
        return given
    path = file.with_name(f"{file.name}.key")
    key = read_key(path)
    if key is not None:
        return key
    if has_rows(db):
        raise KeyMissing(
            f"{file} has rows, but its key file {path.name} is missing. Restore the key file from a copy, or set SAYSO_SECRET_KEY; without the key, nothing in the database can be trusted."
        )
    return make_key(path)
