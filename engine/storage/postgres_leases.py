"""Leases on Postgres, which are advisory locks: which processes live, and which one serves a database.

A lease is a lock on a connection of its own, that is asked for a sign of life every second; leases that come and go are further
locks on the same connection. The server drops the lock when
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
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
from msgspec.structs import asdict, replace
from psycopg import errors

from engine.language.codec import decode, encode
from engine.language.errors import NotJson, StorageBusy, StorageError
from engine.storage.fence import Signs
from engine.storage.leases import Holder, Member, new_owner_id
from engine.storage.postgres_connect import connect, schema_of, shown, told
from engine.storage.postgres_connection import PostgresConnection
from engine.storage.postgres_words import lock_number, prefix

_log = logging.getLogger("sayso.storage")

LEASE_SECONDS = 3.0
PING_SECONDS = 1.0
LISTEN_SECONDS = 1.0
"""How often the thread that listens looks whether it should end, and how long it waits before it connects again."""
WATCH_SECONDS = 0.05
"""How long the thread that watches another process waits between two looks."""
GRACE_SECONDS = 2 * LEASE_SECONDS
"""How long after a start of the server everybody counts as alive."""
RECOVERY_SECONDS = 600.0
"""How long after its start a server may take its first connection."""
_SERVING = "serving"
_IDLE = "SELECT set_config('idle_session_timeout', $1, false)"
_BOOT = "INSERT INTO boots VALUES (1, extract(epoch FROM clock_timestamp())) ON CONFLICT DO NOTHING"
"""The table is unlogged: after a crash of the server, and on a standby that took over, it is empty."""
_STARTED = "SELECT started FROM starts"
_TAKE = "SELECT pg_try_advisory_lock($1)"
_TAKE_SHARED = "SELECT pg_try_advisory_lock_shared($1)"
_GIVE_BACK = "SELECT pg_advisory_unlock($1)"
_WAIT_FOR = "SELECT pg_advisory_lock_shared($1), pg_advisory_unlock_shared($1)"
"""Returns as soon as nobody has that lock, or fails at the time limit of the connection."""
_TELL = "SELECT pg_notify('sayso ' || hashtext(current_schema()), 'all')"
_LISTEN = "DO $$ BEGIN EXECUTE format('LISTEN %I', 'sayso ' || hashtext(current_schema())); END $$"
_NAME = "SELECT set_config('application_name', $1, false)"
_PING = """SELECT application_name FROM pg_stat_activity
 WHERE datname = current_database() AND starts_with(application_name, $1) ORDER BY 1"""
_MEMBERS = """SELECT application_name, coalesce(host(client_addr), 'this machine'),
 to_char(backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
 ARRAY(SELECT ((classid::bigint << 32) | objid::bigint)::text FROM pg_locks
  WHERE pg_locks.pid = pg_stat_activity.pid AND locktype = 'advisory' AND granted)
 FROM pg_stat_activity WHERE datname = current_database() AND starts_with(application_name, $1) ORDER BY backend_start"""
_DEAD = "SELECT pg_try_advisory_xact_lock_shared($1)"
_OLD = "SELECT clock_timestamp() > at + $1::text::interval FROM starts"
_LIVING = """SELECT DISTINCT application_name FROM pg_stat_activity JOIN pg_locks USING (pid)
 WHERE datname = current_database() AND locktype = 'advisory' AND granted AND starts_with(application_name, $1) ORDER BY 1"""
_NOTE = """INSERT INTO serving (n, holder) VALUES (1, $1), (2, (SELECT started FROM starts))
 ON CONFLICT (n) DO UPDATE SET holder = excluded.holder"""
_NOTE_START = """INSERT INTO serving (n, holder) SELECT 2, started FROM starts
 ON CONFLICT (n) DO UPDATE SET holder = excluded.holder"""
_NOTED = "SELECT holder FROM serving WHERE n = 1"
_NOTED_BEFORE = "SELECT holder != started FROM serving, starts WHERE n = 2"
"""Whether the server was started again after somebody had the lease."""


class HeldLock:
    """An advisory lock that this process keeps alive, on a connection of its own and from a thread of its own."""

    def __init__(self, url: str, name: str, application: str, lost: Callable[[str], None]) -> None:
        """Takes the lock; `taken` says whether. `lost` is told once why it is gone. Raises `StorageError`."""
        self._url, self._name, self._application, self._lost = url, name, application, lost
        self._ended = threading.Event()
        self._gate = threading.Lock()
        self._further: dict[str, str] = {}
        self.started = ""
        """When the server was started, as it says."""
        self.peers: list[str] = []
        """The names of the connections that carry leases, when it last gave a sign."""
        self.peers_changed: Callable[[], None] = lambda: None
        self.signs = Signs(LEASE_SECONDS)
        self.raw = connect(url, application)
        self._schema = schema_of(self.raw)
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

    def lease(self, name: str, *, shared: bool = False) -> bool:
        """Whether a further lock is ours now; it is kept alive with the first. Raises `StorageError`."""
        with self._gate, _interrupted(self._url):
            if name in self._further:
                return True
            words = _TAKE_SHARED if shared else _TAKE
            taken = _one(self.raw, words, self._number(name)) is True
            if taken:
                self._further[name] = words
            return taken

    def unlease(self, name: str, *, tell: bool) -> None:
        """Give a further lock back."""
        with self._gate, contextlib.suppress(psycopg.Error):
            # Where the connection is lost, so is the lock.
            if self._further.pop(name, None) is not None:
                self.raw.execute(_GIVE_BACK, (self._number(name),))
            if tell:
                self.raw.execute(_TELL)

    def rename(self, application: str) -> None:
        """Be known by another name."""
        with self._gate, _interrupted(self._url):
            self._application = application
            self.raw.execute(_NAME, (application,))
            self.look()

    def look(self) -> None:
        """Give a sign of life, and look who else does."""
        given = self.signs.clock()
        found = [str(name) for (name,) in self.raw.execute(_PING, (prefix(self._schema),))]
        self.signs.confirmed(given)
        if found != self.peers:
            self.peers = found
            self.peers_changed()

    def _number(self, name: str) -> int:
        return lock_number(name, self._schema)

    def _take(self) -> bool:
        given = self.signs.clock()
        self.raw.execute(_IDLE, (f"{LEASE_SECONDS * 1000:.0f}ms",))
        self.raw.execute(_BOOT)
        self.started = str(_one(self.raw, _STARTED))
        locks = {self._name: _TAKE, **self._further}
        taken = all(_one(self.raw, words, self._number(name)) is True for name, words in locks.items())
        if taken:
            self.signs.confirmed(given)
        return taken

    def _keep(self) -> None:
        while not self._ended.wait(PING_SECONDS):
            try:
                self.look()
            except psycopg.Error as error:
                why = self._gone(error)
                if why is not None and not self._ended.is_set():
                    self.signs.lost()
                    self.raw.close()
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
            before = self.started
            self.raw.close()
            try:
                with self._gate:
                    self.raw = connect(self._url, self._application)
                    taken = self._take()
                if taken and self.started != before:
                    return None
                if self.started == before:
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


@contextlib.contextmanager
def _interrupted(url: str) -> Iterator[None]:
    """Say that leases cannot be taken just now. Raises `StorageBusy`."""
    try:
        yield
    except psycopg.Error as error:
        raise StorageBusy(f"The lease on {shown(url)} is interrupted ({told(error)}).") from error


def _one(raw: psycopg.Connection[tuple[Any, ...]], sql: str, *values: object) -> object:
    row = raw.execute(sql, values).fetchone()
    return None if row is None else row[0]


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
        self._clear_of = ""
        self._ended = threading.Event()
        self._wake: Callable[[str], None] = lambda word: None
        db.leased = self._fresh

    def _fresh(self) -> bool:
        return all(held.signs.fresh() for held in list(self._held.values()))

    def generation(self) -> int:
        """See `Fence.generation`."""
        return sum(held.signs.generation for held in list(self._held.values()))

    def holds(self, generation: int) -> bool:
        """See `Fence.holds`."""
        return self._fresh() and self.generation() == generation

    def register(self, label: str) -> str:
        """Become an owner that lives until this process ends or `close()`."""
        owner = new_owner_id(label)
        held = self._held[owner] = HeldLock(
            self._db.url, owner, f"{prefix(self._db.schema)}{owner}", self._end
        )
        held.peers_changed = lambda: self._wake("peers")
        return owner

    def _first(self) -> tuple[str, HeldLock]:
        """The lease that carries the named ones."""
        for owner, held in self._held.items():
            return owner, held
        raise StorageError("A process registers before it takes leases.")

    # -- several processes at once

    def serve_beside(self, role: str) -> bool:
        """See `Store.serve_beside`: whether no other process serves alone."""
        owner, held = self._first()
        beside = held.lease(_SERVING, shared=True)
        if beside:
            held.rename(f"{prefix(self._db.schema)}{owner} {role}")
        return beside

    def lease(self, name: str) -> bool:
        """See `Store.lease`. After a restart of the server nobody takes what others may be about to take again."""
        _, held = self._first()
        return self._clear(held.started) and held.lease(name)

    def unlease(self, name: str, *, tell: bool) -> None:
        """See `Store.unlease`."""
        self._first()[1].unlease(name, tell=tell)

    def _clear(self, started: str) -> bool:
        """Whether all who lived when the server was started have had the time to take their leases again."""
        if self._clear_of == started:
            return True
        if interrupted(self._db):
            return False
        with self._db.write():
            self._db.raw.execute(_NOTE_START)
        self._clear_of = started
        return True

    def listen(self, wake: Callable[[str], None]) -> None:
        """See `Store.listen`."""
        self._wake = wake
        threading.Thread(target=self._listen, name="sayso-listen", daemon=True).start()
        threading.Thread(target=self._watch, name="sayso-watch", daemon=True).start()

    def _listen(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(StorageError, psycopg.Error):
                raw = connect(self._db.url, "sayso")
                with contextlib.closing(raw):
                    raw.execute(_LISTEN)
                    self._wake("all")  # what was told meanwhile went unheard
                    while not self._ended.is_set():
                        for told_of in raw.notifies(timeout=LISTEN_SECONDS):
                            if told_of.pid not in self._own_pids():
                                self._wake(told_of.payload)
            self._ended.wait(LISTEN_SECONDS)

    def _watch(self) -> None:
        """Wait for the lease of whoever comes after us in the order of names: it is free the moment that process is gone.
        Each is watched so by one other; what is missed is seen by the next sign of life."""
        while not self._ended.wait(WATCH_SECONDS):
            with contextlib.suppress(StorageError, psycopg.Error):
                raw = connect(self._db.url, "sayso")
                with contextlib.closing(raw):
                    while (watched := self._after_us()) is not None:
                        with contextlib.suppress(errors.LockNotAvailable):
                            raw.execute(_WAIT_FOR, (self._db.lock_number(watched),))
                            self._first()[1].look()
                        if self._ended.wait(WATCH_SECONDS):
                            return

    def _after_us(self) -> str | None:
        owner = self._first()[0]
        others = [one for one in self.peers() if one != owner]
        return min((one for one in others if one > owner), default=min(others, default=None))

    def _own_pids(self) -> list[int]:
        return [
            raw.info.backend_pid
            for raw in (self._db.raw, *(h.raw for h in self._held.values()))
            if not raw.closed
        ]

    def peers(self) -> dict[str, str]:
        """See `Store.peers`."""
        names = {name for held in self._held.values() for name in held.peers}
        return {owner: role for owner, role in map(_owner_and_role, sorted(names)) if role}

    def members(self, names: Sequence[str]) -> list[Member]:
        """See `Store.members`."""
        known = {self._db.lock_number(name): name for name in names}
        with self._db.read():
            rows = self._db.raw.execute(_MEMBERS, (prefix(self._db.schema),)).fetchall()
        found = []
        for application, host, since, locks in rows:
            owner, role = _owner_and_role(application)
            leases = tuple(name for number, name in known.items() if str(number) in locks)
            mine = len(leases) + 1 + bool(role)
            if "-" in owner:
                found.append(Member(owner, role, host, since, leases, max(0, len(locks) - mine)))
        return found

    def _end(self, why: str) -> None:
        self._db.broken = why
        self._wake("lost")

    def alive(self, owner: str) -> bool:
        """Whether that owner's process lives. Everybody does right after a start of the server."""
        if owner in self._held:
            return True
        with self._db.read():
            return not settled(self._db) or not _one(self._db.raw, _DEAD, self._db.lock_number(owner))

    def living(self) -> list[str]:
        """The ids of all owners that live, sorted."""
        with self._db.read():
            rows = self._db.raw.execute(_LIVING, (prefix(self._db.schema),)).fetchall()
        return sorted(_owner_and_role(name)[0] for (name,) in rows if "-" in name)

    def note(self, text: str | None) -> None:
        """What a process has trouble with stands in its log: it is this database that cannot take a note."""

    def notes(self) -> list[str]:
        """None: see `note`."""
        return []

    def close(self) -> None:
        """Stop being any owner."""
        self._ended.set()
        for held in self._held.values():
            held.close()
        self._held.clear()


def _owner_and_role(application: str) -> tuple[str, str]:
    """What the name of a connection that carries a lease says."""
    _, owner, *role = application.split(" ")
    return owner, "".join(role)


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
        held = HeldLock(self._db.url, _SERVING, f"{prefix(self._db.schema)}{_SERVING}", self._lost)
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
