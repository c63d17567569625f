"""The embedded backend: one SQLite file, no server.

Every method is one transaction. What a crash does: a transaction whose COMMIT returned is there after a power
loss (WAL, `synchronous=FULL`), any other is gone as a whole. Files beside the database: its key
(`<name>.key`), its owners (`owners/<name>/`), the lock under which it is opened (`<name>.lock`).
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from engine.language.errors import Corrupt, StorageError, WrongWorkspace
from engine.storage.connection import Connection
from engine.storage.freshness import Freshness
from engine.storage.macs import Sealer
from engine.storage.private_files import check_private, make_private, only_opener, private_directory
from engine.storage.process_leases import MemoryOwners, Owners, label_of
from engine.storage.schema import migrate, refuse_newer
from engine.storage.sqlite_key import META, PUT_META, check_key, key_for
from engine.storage.sqlite_sessions import SessionTables


def open_sqlite(
    path: str | os.PathLike[str],
    *,
    key: bytes | None = None,
    vfs: str | None = None,
    patience: float | None = None,
) -> SqliteStore:
    """Open a database, or make it with its directory and key.

    `key` is the secret under which rows are signed; without it the one in `<path>.key` is used. `vfs` names an
    SQLite VFS, for fault injection. `patience` is how many seconds another program is waited for. Raises
    `KeyMissing`, `SchemaTooNew`, and `StorageError` when the files are not ours alone.
    """
    given = Path(path)
    if not given.name:
        raise StorageError(f"{str(path)!r} names no database file.")
    file = private_directory(given.parent) / given.name
    with only_opener(file.with_name(f"{file.name}.lock")):
        for suffix in ("", "-wal", "-shm", "-journal"):
            check_private(file.with_name(file.name + suffix))
        make_private(file)
        db = Connection(file, vfs, patience)
        try:
            return _prepared(db, file, key)
        except BaseException:
            with suppress(StorageError):
                db.close()
            raise


def _prepared(db: Connection, file: Path, key: bytes | None) -> SqliteStore:
    with db.translated():
        refuse_newer(db.raw, file)
    db.shrinkable()
    db.use_wal()
    owners = Owners(file.parent / "owners" / file.name)
    with db.translated():
        migrate(db.raw, file, owners.living())
    sealer = Sealer(key_for(db, file, key))
    check_key(db, file, sealer)
    db.watch = Freshness(db, sealer, file)
    store = SqliteStore(db, sealer, owners)
    store.file = file
    return store


class SqliteStore(SessionTables):
    """`Store` on one SQLite database. Threads may share it; their calls run one after the other."""

    file: Path | None = None

    def __init__(self, db: Connection, sealer: Sealer, owners: Owners | MemoryOwners) -> None:
        """Made by `open_sqlite` and `MemoryStore`."""
        super().__init__(db, sealer, owners.alive)
        self._owners = owners
        self._version = db.data_version()

    def close(self) -> None:
        """See `Store.close`."""
        self._owners.close()
        self._db.watch.close()
        self._db.close()

    def bind(self, team_id: str, app_id: str) -> None:
        """See `Store.bind`."""
        value = f"{team_id} {app_id}"
        mac = self._sealer.mac(b"meta", "workspace", value)
        with self._db.read():
            row = self._db.one(META, ("workspace",))
        if row is None:
            with self._db.write():
                row = self._db.one(META, ("workspace",))
                if row is None:
                    self._db.run(PUT_META, ("workspace", value, mac))
        if row is None or row == (value, mac):
            return
        if row[1] != self._sealer.mac(b"meta", "workspace", row[0]):
            raise Corrupt("The note of which Slack team this database belongs to was changed.")
        team, _, app = row[0].partition(" ")
        raise WrongWorkspace(
            f"This database belongs to Slack team {team}, app {app}, not to team {team_id}, app {app_id}; "
            "use another SAYSO_DATABASE_URL."
        )

    # -- ownership

    def register(self, label: str) -> str:
        """See `Store.register`."""
        return self._owners.register(label)

    def alive(self, owner: str) -> bool:
        """See `Store.alive`."""
        return self._owners.alive(owner)

    def serving(self) -> list[str]:
        """See `Store.serving`."""
        return [label_of(owner) for owner in self._owners.living()]

    def note_trouble(self, text: str | None) -> None:
        """See `Store.note_trouble`."""
        self._owners.note(text)

    def troubles(self) -> list[str]:
        """See `Store.troubles`."""
        return self._owners.notes()

    # -- freshness and housekeeping

    def sign(self, purpose: str, body: bytes) -> bytes:
        """See `Store.sign`."""
        return self._sealer.mac(b"sign", purpose, body)

    def suspended(self) -> str | None:
        """See `Store.suspended`."""
        return self._db.watch.look_again()

    def stale(self) -> str | None:
        """See `Store.stale`."""
        return self._db.watch.findings()

    def changed(self) -> bool:
        """See `Store.changed`."""
        before, self._version = self._version, self._db.data_version()
        return self._version != before

    def compact(self) -> None:
        """See `Store.compact`."""
        self._db.compact()
