"""The processes that have a database on a server open: a row each, and signs of life by the server's clock.

A thread gives a sign every `BEAT_SECONDS`, on a connection of its own, so that a process whose event loop is busy lives. One
whose loop does not move at all for `HUNG_SECONDS` gives none. A process without one for `LIMIT_SECONDS` counts as dead,
and others take its lanes and its sessions. Should it wake, it continues with what nobody has taken: whatever it stores carries
an epoch, and whatever it does outside asks the fence. An outage of the server ends nothing.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import psycopg

from engine.language.errors import StorageError
from engine.storage import lanes
from engine.storage.fence import Signs
from engine.storage.leases import Member, new_owner_id
from engine.storage.postgres_connect import connect
from engine.storage.postgres_connection import PostgresConnection

_log = logging.getLogger("sayso.storage")

BEAT_SECONDS = 1.0
LISTEN_SECONDS = 1.0
"""Seconds between the listening thread's checks whether it should end, and before it reconnects."""
BURST_SECONDS = 0.02
"""Notifications that come within this time are one look."""
HEARD_SECONDS = 5.0
"""Seconds for a test notification to arrive."""
STILL_SECONDS, HUNG_SECONDS = 2.0, 30.0
"""After how long an event loop that does not move is told of, and gives no sign of life any more."""
_BEAT = """WITH me AS (INSERT INTO workers AS own VALUES ($1, $2, statement_timestamp(), statement_timestamp(),
  statement_timestamp(), $3, $4, $5, $6, $7) ON CONFLICT (id) DO UPDATE SET beat = excluded.beat,
  since = CASE WHEN own.beat > statement_timestamp() - $8 * interval '1 s' THEN own.since ELSE excluded.since END,
  generation = excluded.generation, roles = excluded.roles, command = excluded.command, stopping = excluded.stopping
  RETURNING xmax = 0 AS made)
 SELECT made, ARRAY(SELECT id || ' ' || roles FROM workers WHERE beat > statement_timestamp() - $8 * interval '1 s'
  AND id != $1 AND roles != '' AND NOT stopping) FROM me"""
_END = """WITH gone AS (DELETE FROM workers WHERE id = $1)
 UPDATE lanes SET owner = NULL, wake_at = least(wake_at, statement_timestamp()) WHERE owner = $1"""
_LISTEN = "DO $$ BEGIN EXECUTE format('LISTEN %I', 'sayso ' || hashtext(current_schema())); END $$"
_ALIVE = "SELECT beat > statement_timestamp() - $2 * interval '1 s' FROM workers WHERE id = $1"
_ALIVE_HELD = "SELECT beat > statement_timestamp() - $2 * interval '1 s' FROM workers WHERE id = $1 FOR SHARE"
_LIVING = "SELECT id FROM workers WHERE beat > statement_timestamp() - $1 * interval '1 s' ORDER BY 1"
_MEMBERS = """SELECT id, roles, command, host, to_char(started AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
 ARRAY(SELECT key FROM lanes WHERE owner = workers.id ORDER BY key) FROM workers
 WHERE beat > statement_timestamp() - $1 * interval '1 s' ORDER BY started"""


class Workers:
    """The processes of one database, and this one among them."""

    def __init__(self, db: PostgresConnection) -> None:
        self._db = db
        self._owner = ""
        self.role = self.command = ""
        self.stopping = False
        self.signs = Signs(lanes.LIMIT_SECONDS / 2)
        self.peers: dict[str, str] = {}
        """The other processes that serve, with their roles, when this one last gave a sign."""
        self._raw: psycopg.Connection[tuple[Any, ...]] | None = None
        self._gate = threading.Lock()
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._wake: Callable[[], None] = lambda: None
        self._call_soon: Callable[[Callable[[], None]], object] = lambda answer: answer()
        self._moved = threading.Event()
        self._moved.set()
        """True once the event loop has moved since it was last asked to."""
        self._asked = 0.0
        self._standing = False

    def register(self, label: str) -> str:
        """Become a worker that lives until this process ends or `close()`; the id of this process, also later. Raises
        `StorageError`."""
        if not self._owner:
            self._owner = new_owner_id(label)
            with self._db.translated():
                self.beat()
            self._begin(self._keep, "sayso-beat")
        return self._owner

    def _begin(self, work: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def beat(self) -> None:
        """Give a sign of life, and look who else does. Raises `StorageError`, `psycopg.Error`."""
        with self._gate:
            given = self.signs.clock()
            about = (socket.gethostname(), version("sayso"), self.role, self.command, self.stopping)
            row = self._given((self._owner, self.signs.generation, *about, lanes.LIMIT_SECONDS))
            if row[0]:
                self.signs.lost()  # the row was not there: others have dropped it
            self.signs.confirmed(given)
        found = dict(name.split(" ", 1) for name in row[1])
        if found != self.peers:
            self.peers = found
            self._wake()

    def take_role(self, role: str, command: str) -> None:
        """Store the role of this process in the write transaction that is open. It waits for a sign of life that is under
        way, which would store the previous role again."""
        with self._gate:
            self.role, self.command = role, command
            self._db.run(
                "UPDATE workers SET roles = ?, command = ? WHERE id = ?", (role, command, self._owner)
            )

    def _given(self, values: tuple[object, ...]) -> tuple[Any, ...]:
        """The answer to a sign, on a new connection where this one was lost meanwhile."""
        if self._raw is None or self._raw.closed:
            self._raw = connect(self._db.url).raw
        try:
            row = self._raw.execute(_BEAT, values).fetchone()
        except psycopg.OperationalError:
            self._raw.close()
            self._raw = connect(self._db.url).raw
            row = self._raw.execute(_BEAT, values).fetchone()
        assert row is not None, "an upsert returns its row"
        return row

    def _keep(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            if self._hung():
                continue
            try:
                self.beat()
            except (StorageError, psycopg.Error) as error:
                self._db.outage.failed("beat", error)
            else:
                if self._db.outage.answered("beat"):
                    self._wake()

    def watch(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """See `Store.watch`."""
        self._call_soon = call_soon

    def _hung(self) -> bool:
        """True if the event loop has froze for so long that others should have its work."""
        now = time.monotonic()
        if self._moved.is_set():
            if self._standing:
                _log.warning("the event loop runs again, after %.0f s", now - self._asked)
                self._standing = False
            self._moved.clear()
            self._asked = now
            try:
                self._call_soon(self._moved.set)
            except RuntimeError:  # it is closed: this process ends
                self._moved.set()
            return False
        if not self._standing and now - self._asked > STILL_SECONDS:
            self._standing = True
            _log.warning(
                "the event loop is blocked: something in this process computes or waits without yielding; after %g s others take its work",
                HUNG_SECONDS,
            )
        return now - self._asked > HUNG_SECONDS

    def listen(self, wake: Callable[[], None], url: str | None) -> None:
        """See `Store.listen`."""
        self._wake = wake
        self._begin(lambda: self._listen(url), "sayso-listen")

    def _listen(self, url: str | None) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(StorageError, psycopg.Error):
                reached = connect(url or self._db.url)
                with contextlib.closing(reached.raw) as raw:
                    if reached.pooled:
                        if url is not None:
                            _log.warning("SAYSO_DATABASE_LISTEN_URL names a pooler, which passes nothing on")
                        return
                    raw.execute(_LISTEN)
                    while not self._ended.is_set():
                        if list(raw.notifies(timeout=LISTEN_SECONDS, stop_after=1)):
                            self._wake()
                            self._ended.wait(BURST_SECONDS)
            self._ended.wait(LISTEN_SECONDS)

    def hears(self, url: str) -> bool:
        """True if at this address it is heard that something was committed. Raises `StorageError`."""
        with self._db.translated(), contextlib.closing(connect(url).raw) as raw:
            raw.execute(_LISTEN)
            with self._db.write():
                self._db.notify()
            return bool(list(raw.notifies(timeout=HEARD_SECONDS, stop_after=1)))

    # -- the fence

    def holds(self, generation: int) -> bool:
        """See `Fence.holds`."""
        return not self._owner or (self.signs.fresh() and self.signs.generation == generation)

    # -- who lives

    def alive(self, owner: str) -> bool:
        """True if that process is alive. Inside a write transaction it cannot give a sign of life until that ends. A
        process that was just cut off from the server takes nobody for dead."""
        if owner == self._owner:
            return True
        with self._db.read():
            row = self._db.raw.execute(
                _ALIVE_HELD if self._db.writing else _ALIVE, (owner, lanes.LIMIT_SECONDS)
            ).fetchone()
        if row is None:
            return False
        return bool(row[0]) or (self._owner != "" and self.signs.unbroken() < lanes.LIMIT_SECONDS)

    def living(self) -> list[str]:
        """The ids of all processes that live, sorted."""
        with self._db.read():
            return [str(row[0]) for row in self._db.raw.execute(_LIVING, (lanes.LIMIT_SECONDS,)).fetchall()]

    def members(self) -> list[Member]:
        """See `Store.members`."""
        with self._db.read():
            rows = self._db.raw.execute(_MEMBERS, (lanes.LIMIT_SECONDS,)).fetchall()
        return [
            Member(owner, role, command, host, since, tuple(held))
            for owner, role, command, host, since, held in rows
        ]

    def note(self, text: str | None) -> None:
        """Do nothing: a process's troubles are in its log, as this database itself cannot take a note."""

    def notes(self) -> list[str]:
        """None: see `note`."""
        return []

    def close(self) -> None:
        """Be no worker any more, and let all lanes go."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        with contextlib.suppress(psycopg.Error):
            if self._raw is not None:
                self._raw.execute(_END, (self._owner,))
        if self._raw is not None:
            self._raw.close()
