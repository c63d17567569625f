"""The freshness anchor: a small file beside the database that says how new the database must at least be.

It holds the last two *points*, each a commit counter, a hash of what was stored then, and a MAC. A point is written
after its commit returned, so the anchor is never ahead of what was acknowledged. It is not synced: after a power loss
it may be behind, which is harmless, and a killed process leaves it as new as its last commit.
The points take turns in two slots, so a write that is torn leaves the other one. Several processes move one anchor: each
under the file's lock and only forward, unless no other one has committed since its own last point. Where two commit in
the same instant it may stay one commit behind until the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from engine.language.errors import StorageError
from engine.storage.macs import Sealer
from engine.storage.private_files import check_private, make_private, open_private, sync_directory

_SLOT = struct.Struct(">Q32s32s")


class Point(NamedTuple):
    """One state of a database: how many transactions it has seen, the hash of what it held, and a MAC over both."""

    counter: int
    total: bytes
    mac: bytes


class Points:
    """Makes points under one key, and checks them."""

    def __init__(self, sealer: Sealer) -> None:
        self._key = sealer.mac(b"freshness", "point")

    def sealed(self, counter: int, total: bytes) -> Point:
        """The point with its MAC."""
        return Point(counter, total, self._mac(counter, total))

    def genuine(self, point: Point) -> bool:
        """Whether a point carries its MAC."""
        right = type(point.counter) is int and type(point.total) is bytes and type(point.mac) is bytes
        return right and hmac.compare_digest(point.mac, self._mac(point.counter, point.total))

    def _mac(self, counter: int, total: bytes) -> bytes:
        return hashlib.blake2b(b"%d %b" % (counter, total), key=self._key, digest_size=32).digest()


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
        return max(filter(self._points.genuine, self._slots()), default=None)

    def moved_at(self) -> float:
        """When it was written last, in seconds since 1970."""
        assert self._file is not None
        return os.fstat(self._file).st_mtime

    def make(self, point: Point) -> None:
        """The file with this point alone, durable: in place of whatever is there. Raises `StorageError`."""
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
            raise StorageError(f"{self.path} could not be written: {error.strerror}.") from error
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

    def _slots(self) -> list[Point]:
        if self._file is None:
            return []
        data = os.pread(self._file, 2 * _SLOT.size, 0).ljust(2 * _SLOT.size, b"\0")
        return [Point(*slot) for slot in _SLOT.iter_unpack(data)]

    @contextlib.contextmanager
    def _locked(self, file: int) -> Iterator[None]:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def anchor_of(database: Path) -> Path:
    """Where the anchor of a database lies."""
    return database.with_name(f"{database.name}.anchor")


def remove_anchor(database: Path) -> None:
    """Remove the anchor of a database. Raises `StorageError`."""
    try:
        anchor_of(database).unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"{anchor_of(database)} cannot be removed: {error.strerror}.") from error
