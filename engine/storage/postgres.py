"""The backend of several machines: a Postgres database, version 14 or later.

The tables are those of SQLite, made of the same steps (`engine.storage.schema`), and rows have the same MACs: they can be
copied either way. The key is given (`SAYSO_SECRET_KEY`), since no file lies beside a server. How new a database has to be is
not known: one that was put back to an older state opens as if nothing had happened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress

from engine.language.errors import KeyMissing, SchemaTooNew, StorageError, StoreTooOld
from engine.storage.errors import UpgradeInUse
from engine.storage.lanes import LANE_TABLES, SERVING, Lane
from engine.storage.leases import Holder, Member, Served, Serving, label_of
from engine.storage.postgres_connect import shown
from engine.storage.postgres_connection import UNSURE_SECONDS, PostgresConnection
from engine.storage.postgres_words import lock_number, steps
from engine.storage.postgres_workers import Workers
from engine.storage.schema import STEPS
from engine.storage.sealing import Sealer
from engine.storage.store import Store, check_key, vault_of

_HAS_TABLES = """SELECT count(*) = 2 FROM pg_class
 WHERE relnamespace = quote_ident(current_schema())::regnamespace AND relname IN ('format', 'changes')"""
_HAS_LANES = _HAS_TABLES.replace("'format', 'changes'", "'workers', 'lanes'")
_HAS_HOLDS = _HAS_TABLES.replace("'format', 'changes'", "'holds', 'holds_pkey'")
"""Not `to_regclass`: inside a transaction it answers from a cache, which does not know what was made meanwhile."""
_OWN_TABLES = """
CREATE TABLE format (version BIGINT NOT NULL);
INSERT INTO format VALUES (0);
CREATE SEQUENCE changes;
SELECT nextval('changes');
CREATE TABLE transactions (writer TEXT PRIMARY KEY, n BIGINT NOT NULL, at TIMESTAMPTZ NOT NULL)
"""
_HOLDS = "CREATE UNLOGGED TABLE IF NOT EXISTS holds (n BIGINT PRIMARY KEY)"
"""The names that transactions hold. After a crash of the server nobody holds one."""
_MAKING = "SELECT pg_advisory_xact_lock($1)"
"""Held while the first process makes the tables, among them that of the names."""
_STAY = "SELECT set_config('search_path', quote_ident(current_schema()), true)"
"""Neither made nor dropped are tables of a schema behind ours."""
_DROP_LEASES = "DROP VIEW IF EXISTS starts; DROP TABLE IF EXISTS boots, serving"
"""Drops the predecessors of lanes."""
_BEFORE = _HAS_TABLES.replace("'format'", "'schema_version'")
"""Check for tables of a build before 1.0."""
ALONE = "alone"
"""The role of a program that serves a database alone."""
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
        owners = Workers(db)
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
    _owners: Workers
    dated = False
    shared = True

    def generation(self) -> int:
        """See `Fence.generation`."""
        return self._owners.signs.generation

    def holds(self, generation: int) -> bool:
        """See `Fence.holds`."""
        return super().holds(generation) and self._owners.holds(generation)

    def try_serving(self, holder: Holder) -> Serving | None:
        """See `Store.try_serving`."""
        lease = ServingLane(self, holder)
        return lease if lease.retake() else None

    def served(self) -> Served:
        """See `Store.served`."""
        found = [one for one in self.members() if one.role and one.owner != self.lanes.owner]
        return Served(shown(self._db.url), found[0].holder() if found else None)

    def serve_beside(self, role: str) -> None:
        """See `Store.serve_beside`."""
        if not self.take_role(role, f"sayso start --role {role}" if role != "all" else "sayso start"):
            raise self.served()

    def take_role(self, role: str, command: str) -> bool:
        """Serve from now on, unless another process serves alone, or, to be `ALONE`, any other one serves."""
        self._db.unsure_seconds = math.inf if role else UNSURE_SECONDS
        with self._db.write():
            self._db.hold("roles")
            others = [one.role for one in self.members() if one.role and one.owner != self.lanes.owner]
            if ALONE in others or (role == ALONE and others):
                return False
            self._owners.take_role(role, command)
        return True

    def leave(self) -> None:
        """See `Store.leave`."""
        self._db.unsure_seconds = 0.0
        self._owners.stopping = True
        with self._db.translated():
            self._owners.beat()

    def listen(self, wake: Callable[[], None], url: str | None = None) -> None:
        """See `Store.listen`. On a connection of a pooler nothing is heard."""
        self._owners.listen(wake, url)

    def watch(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """See `Store.watch`."""
        self._owners.watch(call_soon)

    def hears(self, url: str) -> bool:
        """See `Store.hears`."""
        return self._owners.hears(url)

    def pooled(self) -> bool:
        """See `Store.pooled`."""
        return self._db.pooled

    def peers(self) -> dict[str, str]:
        """See `Store.peers`."""
        return self._owners.peers

    def members(self) -> list[Member]:
        """See `Store.members`."""
        return self._owners.members()


class ServingLane(Serving):
    """The lease to serve a database on Postgres alone: see `leases.Serving`. It is a role and a lane. Processes are
    found by host and number, and give signs of life by themselves."""

    def __init__(self, store: PostgresStore, holder: Holder) -> None:
        """`retake` takes it."""
        self._store, self._holder = store, holder
        self._lane: Lane | None = None

    def stopping(self) -> None:
        """See `Serving.stopping`."""
        self._store.leave()

    def release(self) -> None:
        """See `Serving.release`."""
        if self._lane is not None:
            self._store.lanes.let_go(self._lane)
            self._store.take_role("", "")
            self._lane = None

    close = release

    def retake(self) -> bool:
        """See `Serving.retake`. Raises `StorageError`."""
        if self._store.take_role(ALONE, self._holder.command):
            self._lane = self._store.lanes.claim(SERVING)
        return self._lane is not None


def _migrate(db: PostgresConnection, owners: Workers) -> None:
    """Bring the tables to this release, in one transaction. Raises `SchemaTooNew`, and `StorageError` while owners live."""
    if _version(db) == len(STEPS) and _has(db, _HAS_LANES) and _has(db, _HAS_HOLDS):
        return
    with db.write():
        db.raw.execute(_STAY)
        if _has(db, _HAS_HOLDS):
            db.hold("schema")
        else:
            db.raw.execute(_MAKING, (lock_number("schema", db.schema),))
        version = _version(db)
        if version == 0 and db.one(_BEFORE) == (True,):
            raise StoreTooOld(shown(db.url))
        if version > len(STEPS):
            raise SchemaTooNew(
                f"{shown(db.url)} was written by a newer release (schema {version}; this one knows {len(STEPS)}). "
                "It was left untouched: install that release."
            )
        living = [label_of(owner) for owner in owners.living()] if _has(db, _HAS_LANES) else []
        if 0 < version < len(STEPS) and living:
            raise UpgradeInUse(place=shown(db.url), version=version, latest=len(STEPS), who=", ".join(living))
        if version == 0:
            db.raw.execute(_OWN_TABLES)
        db.raw.execute(_HOLDS)
        if not _has(db, _HAS_LANES):
            db.raw.execute(_DROP_LEASES)
            for sql in next(steps([LANE_TABLES])):
                db.raw.execute(sql)
        for statements in list(steps(STEPS))[version:]:
            for sql in statements:
                db.raw.execute(sql)
        db.run(_SET_VERSION, (len(STEPS),))


def _has(db: PostgresConnection, tables: str) -> bool:
    with db.read():
        return db.one(tables) == (True,)


def _version(db: PostgresConnection) -> int:
    """Return the number of steps the tables have taken; 0 if there are none."""
    with db.read():
        there = db.one(_HAS_TABLES)
        row = db.one(_VERSION) if there and there[0] else None
    return int(row[0]) if row else 0
