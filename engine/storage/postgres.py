"""The backend of several machines: a Postgres database, version 14 or later.

The tables are those of SQLite, made of the same steps (`engine.storage.schema`), and rows have the same MACs: they can be
copied either way. The key is given (`SAYSO_SECRET_KEY`), since no file lies beside a server. How new a database has to be is
not known: one that was put back to an older state opens as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from engine.language.errors import KeyMissing, SchemaTooNew, StorageError, StoreTooOld
from engine.storage.errors import UpgradeInUse
from engine.storage.leases import Holder, Member, Served, Serving, label_of
from engine.storage.postgres_connect import shown
from engine.storage.postgres_connection import PostgresConnection
from engine.storage.postgres_leases import PostgresOwners, ServingLease, interrupted, read_holder
from engine.storage.postgres_words import steps
from engine.storage.schema import STEPS
from engine.storage.sealing import Sealer
from engine.storage.store import Store, check_key, vault_of

_HAS_TABLES = """SELECT count(*) = 2 FROM pg_class
 WHERE relnamespace = quote_ident(current_schema())::regnamespace AND relname IN ('format', 'changes')"""
"""Not `to_regclass`: inside a transaction it answers from a cache, which does not know what was made meanwhile."""
_OWN_TABLES = """
CREATE TABLE format (version BIGINT NOT NULL);
INSERT INTO format VALUES (0);
CREATE TABLE serving (n BIGINT PRIMARY KEY, holder TEXT NOT NULL);
CREATE SEQUENCE changes;
SELECT nextval('changes');
CREATE TABLE transactions (writer TEXT PRIMARY KEY, n BIGINT NOT NULL, at TIMESTAMPTZ NOT NULL);
CREATE UNLOGGED TABLE boots (n BIGINT PRIMARY KEY, boot NUMERIC NOT NULL);
CREATE VIEW starts AS
 SELECT concat_ws(' ', extract(epoch FROM pg_postmaster_start_time()), max(boot)) AS started,
  greatest(pg_postmaster_start_time(), to_timestamp(coalesce(max(boot), extract(epoch FROM clock_timestamp())))) AS at
 FROM boots
"""
_BEFORE = _HAS_TABLES.replace("'format'", "'schema_version'")
"""Whether a build before 1.0 made tables."""
_VERSION = "SELECT version FROM format"
_SET_VERSION = "UPDATE format SET version = ?"


def open_postgres(url: str, key: bytes | None, encryption_keys: Sequence[bytes] | None = ()) -> PostgresStore:
    """Open a database on a server, and make its tables. Raises `KeyMissing`, `SchemaTooNew`, `StoreTooOld`."""
    if key is None:
        raise KeyMissing(
            f"{shown(url)} needs SAYSO_SECRET_KEY: every process that opens it signs rows with the same key. Make one with "
            "`python -c 'import secrets; print(secrets.token_hex(32))'`."
        )
    db = PostgresConnection(url)
    try:
        owners = PostgresOwners(db)
        _migrate(db, owners)
        sealer = Sealer(key)
        check_key(db, shown(url), sealer)
        return PostgresStore(db, sealer, owners, vault_of(db, shown(url), sealer, encryption_keys))
    except BaseException:
        with suppress(StorageError):
            db.close()
        raise


class PostgresStore(Store):
    """`Store` on a Postgres database. Threads may share it; their calls run one after the other."""

    _db: PostgresConnection
    _owners: PostgresOwners
    dated = False
    shared = True

    def generation(self) -> int:
        """See `Fence.generation`."""
        return self._owners.generation()

    def holds(self, generation: int) -> bool:
        """See `Fence.holds`."""
        return super().holds(generation) and self._owners.holds(generation)

    def try_serving(self, holder: Holder) -> Serving | None:
        """See `Store.try_serving`."""
        if interrupted(self._db):
            return None
        lease = ServingLease(self._db, holder)
        return lease if lease.retake() else None

    def served(self) -> Served:
        """See `Store.served`."""
        beside = next((member.holder() for member in self.members() if member.role), None)
        return Served(shown(self._db.url), beside or read_holder(self._db))

    def serve_beside(self, role: str) -> None:
        """See `Store.serve_beside`."""
        if not self._owners.serve_beside(role):
            raise self.served()

    def lease(self, name: str) -> bool:
        """See `Store.lease`."""
        with self._db.translated():
            return self._owners.lease(name)

    def unlease(self, name: str, *, tell: bool = False) -> None:
        """See `Store.unlease`."""
        self._owners.unlease(name, tell=tell)

    def listen(self, wake: Callable[[str], None]) -> None:
        """See `Store.listen`."""
        self._owners.listen(wake)

    def peers(self) -> dict[str, str]:
        """See `Store.peers`."""
        return self._owners.peers()

    def members(self, names: Sequence[str] = ()) -> list[Member]:
        """See `Store.members`."""
        return self._owners.members(names)


def _migrate(db: PostgresConnection, owners: PostgresOwners) -> None:
    """Bring the tables to this release, in one transaction. Raises `SchemaTooNew`, and `StorageError` while owners live."""
    if _version(db) == len(STEPS):
        return
    with db.write():
        db.hold("schema")
        version = _version(db)
        if version == 0 and db.one(_BEFORE) == (True,):
            raise StoreTooOld(shown(db.url))
        if version > len(STEPS):
            raise SchemaTooNew(
                f"{shown(db.url)} was written by a newer release (schema {version}; this one knows {len(STEPS)}). "
                "It was left untouched: install that release."
            )
        living = [label_of(owner) for owner in owners.living()]
        if 0 < version < len(STEPS) and living:
            raise UpgradeInUse(place=shown(db.url), version=version, latest=len(STEPS), who=", ".join(living))
        if version == 0:
            db.raw.execute(_OWN_TABLES)
        for statements in list(steps(STEPS))[version:]:
            for sql in statements:
                db.raw.execute(sql)
        db.run(_SET_VERSION, (len(STEPS),))


def _version(db: PostgresConnection) -> int:
    """How many steps the tables have taken; 0 where there are none."""
    with db.read():
        there = db.one(_HAS_TABLES)
        row = db.one(_VERSION) if there and there[0] else None
    return int(row[0]) if row else 0
