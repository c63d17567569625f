"""Leases on Postgres, which are advisory locks: which processes live, and which one serves a database.

A lease is a lock on a connection of its own, that is asked for a sign of life twice a second. The server drops the lock when
the process ends (a `kill -9` within milliseconds), and ends the connection after `LEASE_SECONDS` without a sign: then
the process is frozen, or cut off. No clock of ours takes part, and nothing has to be cleaned up.

Whoever has lost a lease while the server went on must end: others may have taken its work. A restart of the server ends all
leases at once. Their holders take them again, and whoever has reached the server for less than `GRACE_SECONDS` counts
everybody as alive, if it started not long ago: before it takes connections it may have been recovering for minutes.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
from msgspec.structs import asdict, replace
from psycopg import errors

from engine.language.codec import decode, encode
from engine.language.errors import NotJson, StorageError
from engine.storage.leases import Holder, new_owner_id
from engine.storage.postgres_connection import PostgresConnection, connect, shown, told
from engine.storage.postgres_words import lock_number

_log = logging.getLogger("sayso.storage")

LEASE_SECONDS = 3.0
PING_SECONDS = 0.5
GRACE_SECONDS = 2 * LEASE_SECONDS
"""How long after a start of the server everybody counts as alive."""
RECOVERY_SECONDS = 600.0
"""How long after its start a server may take its first connection."""
_PREFIX = "sayso "
_SERVING = "serving"
_IDLE = "SELECT set_config('idle_session_timeout', $1, false)"
_STARTED = "SELECT extract(epoch FROM pg_postmaster_start_time())::text"
_TAKE = "SELECT pg_try_advisory_lock($1)"
_DEAD = "SELECT pg_try_advisory_xact_lock_shared($1)"
_OLD = "SELECT clock_timestamp() > pg_postmaster_start_time() + $1::text::interval"
_LIVING = """SELECT DISTINCT application_name FROM pg_stat_activity JOIN pg_locks USING (pid)
 WHERE datname = current_database() AND locktype = 'advisory' AND granted AND starts_with(application_name, $1) ORDER BY 1"""
_NOTE = """INSERT INTO serving (n, holder) VALUES (1, $1), (2, extract(epoch FROM pg_postmaster_start_time())::text)
 ON CONFLICT (n) DO UPDATE SET holder = excluded.holder"""
_NOTED = "SELECT holder FROM serving WHERE n = 1"
_NOTED_BEFORE = (
    "SELECT holder != extract(epoch FROM pg_postmaster_start_time())::text FROM serving WHERE n = 2"
)
"""Whether the server was started again after somebody had the lease."""


class HeldLock:
    """An advisory lock that this process keeps alive, on a connection of its own and from a thread of its own."""

    def __init__(self, url: str, name: str, application: str, lost: Callable[[str], None]) -> None:
        """Takes the lock; `taken` says whether. `lost` is told once why it is gone. Raises `StorageError`."""
        self._url, self._name, self._application, self._lost = url, name, application, lost
        self._ended = threading.Event()
        self._started = ""
        self._seen = time.monotonic()
        self.raw = connect(url, application)
        self.taken = self._take()
        self._thread = threading.Thread(target=self._keep, name=f"sayso-lease-{name}", daemon=True)
        if self.taken:
            self._thread.start()
        else:
            self.raw.close()

    def close(self) -> None:
        """Give it back."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        with contextlib.suppress(psycopg.Error):
            # Others see it at once; the end of a connection they see once the server does.
            self.raw.execute("SELECT pg_advisory_unlock_all()")
        self.raw.close()

    def fresh(self) -> bool:
        """Whether the server cannot have ended it yet."""
        return time.monotonic() - self._seen < LEASE_SECONDS

    def _take(self) -> bool:
        asked = time.monotonic()
        self.raw.execute(_IDLE, (f"{LEASE_SECONDS * 1000:.0f}ms",))
        self._started = _text(self.raw, _STARTED)
        taken = _one(self.raw, _TAKE, lock_number(self._name)) is True
        if taken:
            self._seen = asked
        return taken

    def _keep(self) -> None:
        while not self._ended.wait(PING_SECONDS):
            asked = time.monotonic()
            try:
                self.raw.execute("SELECT 1")
                self._seen = asked
            except psycopg.Error as error:
                why = self._gone(error)
                if why is not None and not self._ended.is_set():
                    _log.error("%s", why)
                    self._lost(why)
                    return

    def _gone(self, error: psycopg.Error) -> str | None:
        """Take the lock again after a restart of the server; why that cannot be."""
        where, last = shown(self._url), time.monotonic()
        if isinstance(error, errors.IdleSessionTimeout):
            return _dead(where, f"the server heard nothing of this process for {LEASE_SECONDS:g} s")
        _log.warning("the lease on %s was interrupted: %s", where, told(error))
        while not self._ended.wait(PING_SECONDS / 2):
            before = self._started
            self.raw.close()
            try:
                self.raw = connect(self._url, self._application)
                if self._take() and self._started != before:
                    return None
                if self._started == before:
                    return _dead(where, "the server had ended the connection that carried it")
                return _dead(where, "another process has it")
            except (StorageError, psycopg.Error) as trouble:
                cut_off = isinstance(trouble.__cause__, errors.ConnectionTimeout)
                if cut_off and time.monotonic() - last > LEASE_SECONDS:
                    return _dead(where, "the server cannot be reached")
        return None


def _dead(where: str, why: str) -> str:
    return (
        f"The lease of this process on {where} is gone: {why}. Others may have taken its sessions: end this process, and start "
        "it again."
    )


def _one(raw: psycopg.Connection[tuple[Any, ...]], sql: str, *values: object) -> object:
    row = raw.execute(sql, values).fetchone()
    return None if row is None else row[0]


def _text(raw: psycopg.Connection[tuple[Any, ...]], sql: str) -> str:
    return str(_one(raw, sql))


def settled(db: PostgresConnection) -> bool:
    """Whether those who live have had the time to take their leases again, should the server have been restarted. Inside a
    transaction."""
    young = db.connected_seconds() <= GRACE_SECONDS
    return not young or _one(db.raw, _OLD, f"{RECOVERY_SECONDS:g} seconds") is True


def interrupted(db: PostgresConnection) -> bool:
    """Whether whoever served when the server was restarted may not have taken its lease again yet: others wait."""
    with db.read():
        return _one(db.raw, _NOTED_BEFORE) is True and not settled(db)


class PostgresOwners:
    """The owners of one database."""

    def __init__(self, db: PostgresConnection) -> None:
        self._db = db
        self._held: dict[str, HeldLock] = {}
        db.leased = self._fresh

    def _fresh(self) -> bool:
        return all(held.fresh() for held in list(self._held.values()))

    def register(self, label: str) -> str:
        """Become an owner that lives until this process ends or `close()`."""
        owner = new_owner_id(label)
        self._held[owner] = HeldLock(self._db.url, owner, f"{_PREFIX}{owner}", self._end)
        return owner

    def _end(self, why: str) -> None:
        self._db.broken = why

    def alive(self, owner: str) -> bool:
        """Whether that owner's process lives. Everybody does right after a start of the server."""
        if owner in self._held:
            return True
        with self._db.read():
            return not settled(self._db) or not _one(self._db.raw, _DEAD, lock_number(owner))

    def living(self) -> list[str]:
        """The ids of all owners that live, sorted."""
        with self._db.read():
            rows = self._db.raw.execute(_LIVING, (_PREFIX,)).fetchall()
        return sorted(name.removeprefix(_PREFIX) for (name,) in rows if "-" in name)

    def note(self, text: str | None) -> None:
        """What a process has trouble with stands in its log: it is this database that cannot take a note."""

    def notes(self) -> list[str]:
        """None: see `note`."""
        return []

    def close(self) -> None:
        """Stop being any owner."""
        for held in self._held.values():
            held.close()
        self._held.clear()


# --- the lease to serve ------------------------------------------------------------------------------------


class ServingLease:
    """The lease to serve a database on Postgres: see `leases.Serving`."""

    def __init__(self, db: PostgresConnection, holder: Holder) -> None:
        """`retake` takes it."""
        self._db, self._holder = db, holder
        self._held: HeldLock | None = None
        self._tell: Callable[[], None] = lambda: None

    def reached_at(self, address: str) -> None:
        """See `Serving.reached_at`."""
        self._holder = replace(self._holder, address=address)
        self._write()

    def stopping(self) -> None:
        """See `Serving.stopping`."""
        self._holder = replace(self._holder, stopping=True)
        self._write()

    def beat(self) -> None:
        """See `Serving.beat`. Nothing looks: the lease itself ends where no sign of life is given."""

    def release(self) -> None:
        """See `Serving.release`."""
        if self._held is not None:
            self._held.close()
            self._held = None

    close = release

    def retake(self) -> bool:
        """See `Serving.retake`. Raises `StorageError`."""
        held = HeldLock(self._db.url, _SERVING, f"{_PREFIX}{_SERVING}", self._lost)
        if held.taken:
            self._held = held
            self._write()
        return held.taken

    def when_lost(self, tell: Callable[[], None]) -> None:
        """See `Serving.when_lost`."""
        self._tell = tell
        if self._db.broken is not None:
            tell()

    def _lost(self, why: str) -> None:
        self._db.broken = why
        self._tell()

    def _write(self) -> None:
        with contextlib.suppress(StorageError), self._db.write():
            self._db.raw.execute(_NOTE, (encode(asdict(self._holder)).decode(),))


def read_holder(db: PostgresConnection) -> Holder | None:
    """Who served this database last; only the lock says whether they do."""
    with db.read():
        row = db.raw.execute(_NOTED).fetchone()
        away = interrupted(db)
    try:
        holder = None if row is None else Holder(**decode(row[0].encode()))
        return replace(holder, stopping=True) if holder is not None and away else holder
    except (NotJson, TypeError):
        return None
