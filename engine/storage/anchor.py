"""The freshness anchor: a small file beside the database that says how new the database must at least be.

It holds the last two *points*, each a commit counter, a hash of what was stored then, and a MAC. A point is written
after its commit returned, so the anchor is never ahead of what was acknowledged. It is not synced: after a power loss
it may be behind, which is harmless, and a killed process leaves it as new as its last commit.
Each write replaces the older slot, so that one that is torn leaves the other. Several processes move one anchor: each
under the file's lock, and only forward.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from engine.errors import StorageError
from engine.storage.files import check_private, make_private, sync_directory

_SLOT = struct.Struct(">Q32s32s")


class Point(NamedTuple):
    """One state of a database: how many transactions it has seen, the hash of what it held, and a MAC over both."""

    counter: int
    total: bytes
    mac: bytes


class Anchor:
    """The anchor's file. `genuine` says whether a point carries its MAC."""

    def __init__(self, path: Path, genuine: Callable[[Point], bool]) -> None:
        self.path = path
        self._genuine = genuine
        self._written = b""
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
            self._file = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        return self._file is not None

    def newest(self) -> Point | None:
        """The newest point that verifies; None where there is none."""
        found = [point for point in self._slots() if self._genuine(point)]
        return max(found, default=None)

    def moved_at(self) -> float:
        """When it was written last, in seconds since 1970."""
        assert self._file is not None
        return os.fstat(self._file).st_mtime

    def make(self, point: Point) -> None:
        """The file with this point alone, durable: in place of whatever is there."""
        make_private(self.path)
        self.open()
        assert self._file is not None
        with self._locked(self._file):
            os.pwrite(self._file, _SLOT.pack(*point) * 2, 0)
            os.fsync(self._file)
        sync_directory(self.path.parent)

    def move(self, point: Point) -> None:
        """Write a point in place of the older one, unless the anchor is as new already. Raises `OSError`."""
        if self._file is None:
            return
        with self._locked(self._file):
            slots = self._slots()
            trusted = self._written == b"".join(_SLOT.pack(*slot) for slot in slots)
            known = [slot if trusted or self._genuine(slot) else Point(-1, b"", b"") for slot in slots]
            if len(known) == 2 and point.counter > max(known).counter:
                slots[known.index(min(known))] = point
                self._written = b"".join(_SLOT.pack(*slot) for slot in slots)
                os.pwrite(self._file, self._written, 0)

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
