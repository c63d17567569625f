"""Freshness: whether a database is as new as what it acknowledged.

Each row has a MAC, but a whole database that went back (a damaged or deleted WAL, a restored copy) has good MACs too. So every
write transaction counts up, in one row of the database, and after its COMMIT returned in an anchor outside of it (`Anchor`).

A database that is behind its anchor is *suspended*: it can be read, and every write raises `StoreSuspended` until a person
released it. A release takes what is there for true, and counts on from beyond the anchor. A single genuine older row that was
written back does not change the count: the chain of its session does not fit it.

The anchor is a small file beside the database. It holds the last two *points*, each a commit counter and a MAC. A point is
written after its commit returned, so the anchor is never ahead of what was acknowledged. It is not synced: after a power loss
it may be behind, which is harmless, and a killed process leaves it as new as its last commit. The points take turns in two
slots, so a write that is torn leaves the other one. Several processes move one anchor: each under the file's lock and only
forward, unless no other one has committed since its own last point. Where two commit in the same instant it may stay one
commit behind until the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import logging
import os
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from engine.language.errors import StoreSuspended
from engine.storage.connection import SqliteConnection
from engine.storage.database import WriteWatch
from engine.storage.errors import AnchorUnwritten, PathUnusable
from engine.storage.private_files import check_private, make_private, open_private, sync_directory
from engine.storage.sealing import Sealer

_log = logging.getLogger("sayso.storage")


_POINT = "SELECT counter, mac FROM freshness WHERE n = 1"
_ADVANCE = "UPDATE freshness SET counter = ?, mac = ? WHERE n = 1 AND counter = ? AND mac = ?"
_PUT_POINT = """INSERT INTO freshness (n, counter, mac) VALUES (1, ?, ?)
 ON CONFLICT (n) DO UPDATE SET counter = excluded.counter, mac = excluded.mac"""


class Freshness(WriteWatch):
    """Keeps the point of one connection's database, and its anchor."""

    def __init__(self, db: SqliteConnection, sealer: Sealer, database: Path) -> None:
        """Checks the database against its anchor; see `suspended`. Only under `files.only_opener`."""
        self._db = db
        self._points = Points(sealer)
        self._database = database
        self._alone = False
        self._last: Point | None = None
        self._next: Point | None = None
        self._anchor = Anchor(anchor_of(database), self._points)
        self._check()

    def close(self) -> None:
        """Close the anchor's file."""
        self._anchor.close()

    # -- while it is served: see `database.WriteWatch`

    def begin(self, *, suspended: bool) -> None:
        """A write transaction begins. Raises `StoreSuspended`, unless it is one for a suspended store."""
        self._next = None
        if self.suspended is not None and not suspended:
            raise StoreSuspended(self.suspended)

    def advance(self) -> None:
        """Count the transaction, directly before its COMMIT. Raises `StoreSuspended` for a database that went back."""
        if self.suspended is not None:
            return
        self._alone = self._last is not None and self._advanced(self._last)
        if not self._alone:  # others have committed since our last point
            point = self._stored()
            went_back = point is not None and self._last is not None and point.counter <= self._last.counter
            if point is None or went_back or not self._points.genuine(point):
                self.suspended = f"{self._database} was replaced by an older state while it was served, or its freshness record was changed."
                raise StoreSuspended(self.suspended)
            self._advanced(point)

    def _advanced(self, last: Point) -> bool:
        """True if the stored point was that one, so that the next one follows it."""
        self._next = self._points.sealed(last.counter + 1)
        return self._db.run(_ADVANCE, (*self._next, *last)) == 1

    def publish(self) -> None:
        """The COMMIT returned: move the anchor. What was committed is durable whatever becomes of that."""
        if self._next is None:
            return
        self._last, self._next = self._next, None
        try:
            self._anchor.move(self._last, alone=self._alone)
        except OSError as error:
            _log.error("%s could not be written: %s", self._anchor.path, error.strerror)

    # -- checks

    def look_again(self) -> str | None:
        """`suspended`, after a look whether another process has released the store."""
        if self.suspended is not None:
            self._check()
        return self.suspended

    def release(self) -> None:
        """Take what is stored for true: it counts on from beyond the anchor."""
        newest = self._anchor.newest()
        with self._db.write(suspended=True):
            known = [
                point.counter
                for point in (newest, self._stored())
                if point is not None and self._points.genuine(point)
            ]
            after = self._points.sealed(max(known, default=0) + 1)
            self._db.run(_PUT_POINT, after)
        self._anchor.make(after)
        self.suspended, self._last = None, after

    def _check(self) -> None:
        there, newest = self._anchor.open(), self._anchor.newest()
        with self._db.read():
            stored = self._stored()
        # No point was ever stored: the database was made just now.
        if stored is None and (not there or (newest is not None and newest.counter == 0)):
            self._anchor.make(self._points.sealed(0))
            first = self._points.sealed(1)
            with self._db.write():
                self._db.run(_PUT_POINT, first)
            self._anchor.move(first, alone=True)
        self.suspended = self.findings()

    def findings(self) -> str | None:
        """Return the fault of the stored data, or None."""
        # The anchor first: what others commit meanwhile makes the database newer, and never older.
        there, newest = self._anchor.open(), self._anchor.newest()
        with self._db.read():
            stored = self._stored()
        if not there:
            return (
                f"{self._anchor.path} is missing: a copy of {self._database.name} that was restored or moved without it "
                "may be older than its last acknowledged commit."
            )
        if newest is None:
            return (
                f"{self._anchor.path} does not verify: the required age of {self._database.name} is unknown."
            )
        if stored is None:
            return self._older(newest.counter)
        if not self._points.genuine(stored):
            return f"The freshness record in {self._database} was changed outside this program."
        if stored.counter < newest.counter:
            return self._older(newest.counter - stored.counter)
        self._last = stored
        self._anchor.move(stored, alone=False)
        return None

    def _older(self, missing: int) -> str:
        last = datetime.fromtimestamp(self._anchor.moved_at(), UTC).isoformat(timespec="seconds")
        return (
            f"{self._database} is older than its last acknowledged commit (damaged, replaced, or restored from a copy): "
            f"{missing} commit{'s are' if missing > 1 else ' is'} missing, the last from {last.replace('+00:00', 'Z')}."
        )

    def _stored(self) -> Point | None:
        row = self._db.one(_POINT)
        return None if row is None else Point(*row)


# --- the anchor --------------------------------------------------------------------------------------------


_SLOT = struct.Struct(">Q32s")


class Point(NamedTuple):
    """One state of a database: how many transactions it has seen, and a MAC over that."""

    counter: int
    mac: bytes


class Points:
    """Makes points under one key, and checks them."""

    def __init__(self, sealer: Sealer) -> None:
        self._key = sealer.mac(b"freshness", "point")

    def sealed(self, counter: int) -> Point:
        """The point with its MAC."""
        return Point(counter, hashlib.blake2b(b"%d" % counter, key=self._key, digest_size=32).digest())

    def genuine(self, point: Point) -> bool:
        """True if a point carries its MAC."""
        right = type(point.counter) is int and type(point.mac) is bytes
        return right and hmac.compare_digest(point.mac, self.sealed(point.counter).mac)


class Anchor:
    """The anchor's file."""

    def __init__(self, path: Path, points: Points) -> None:
        self.path = path
        self._points = points
        self._file: int | None = None

    def close(self) -> None:
        """Close; a second call does nothing."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def open(self) -> bool:
        """Open the file that is there now; False for none. Raises `StorageError` where it is not ours alone."""
        self.close()
        if check_private(self.path):
            self._file = open_private(self.path)
        return self._file is not None

    def newest(self) -> Point | None:
        """The newest point that verifies; None where there is none."""
        if self._file is None:
            return None
        data = os.pread(self._file, 2 * _SLOT.size, 0).ljust(2 * _SLOT.size, b"\0")
        slots = [Point(*slot) for slot in _SLOT.iter_unpack(data)]
        return max(filter(self._points.genuine, slots), default=None)

    def moved_at(self) -> float:
        """Return the time of the last write, in seconds since 1970."""
        assert self._file is not None
        return os.fstat(self._file).st_mtime

    def make(self, point: Point) -> None:
        """The file with this point alone, durable: instead of whatever is there. Raises `StorageError`."""
        try:
            if not check_private(self.path):
                # It appears whole or not at all: what a full disk or a crash left half written would count as damage.
                whole = self.path.with_name(f"{self.path.name}.new")
                make_private(whole)
                self._fill(whole, point)
                os.replace(whole, self.path)
            else:
                self._fill(self.path, point)
            sync_directory(self.path.parent)
        except OSError as error:
            raise AnchorUnwritten(path=self.path, error=error) from error
        self.open()

    def _fill(self, path: Path, point: Point) -> None:
        file = open_private(path)
        try:
            with self._locked(file):
                os.pwrite(file, _SLOT.pack(*point) * 2, 0)
                os.fsync(file)
        finally:
            os.close(file)

    def move(self, point: Point, *, alone: bool) -> None:
        """Write a point, unless the anchor is as new already; `alone` where nobody else can have moved it since our last
        one. Raises `OSError`."""
        if self._file is None:
            return
        if alone:
            self._put(self._file, point)
            return
        with self._locked(self._file):
            newest = self.newest()
            if newest is None or point.counter > newest.counter:
                self._put(self._file, point)

    @staticmethod
    def _put(file: int, point: Point) -> None:
        os.pwrite(file, _SLOT.pack(*point), point.counter % 2 * _SLOT.size)

    @contextlib.contextmanager
    def _locked(self, file: int) -> Iterator[None]:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def anchor_of(database: Path) -> Path:
    """Return the path of a database's anchor."""
    return database.with_name(f"{database.name}.anchor")


def remove_anchor(database: Path) -> None:
    """Remove the anchor of a database. Raises `StorageError`."""
    try:
        anchor_of(database).unlink(missing_ok=True)
    except OSError as error:
        raise PathUnusable(path=anchor_of(database), done="removed", error=error) from error
