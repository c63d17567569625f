"""The lease to serve a database: one process at a time holds it.

It is an exclusive `flock` on a file beside the database (`<database>.serving`). The kernel drops the lock when the
process ends in whatever way, `kill -9` included, so a crash never blocks the next start, and of two that start at
the same instant exactly one gets it. The file is never removed, and a process id in it proves nothing: it only says
who holds the lease, for whoever is refused. Commands beside a server do not take the lease.

A server is whoever shows the sessions of the database to people: the bot, or the `Runtime` of a program.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from engine.language.codec import decode, encode
from engine.language.errors import NotJson, SaysoError
from engine.storage.private_files import check_private, locked, make_private, open_private, private_directory

STOPPING_SECONDS = 30.0
"""How long a start waits for a holder that is stopping: under systemd a restart may overlap with it."""

_SETTLE_SECONDS = 0.05
"""A holder writes who it is right after it took the lease; it is given that long before it is named."""

_NOTE_BYTES = 2048


@dataclass(frozen=True)
class Holder:
    """The process that serves: `command` is what it was started as, `since` a UTC time, `address` where people reach it."""

    command: str
    pid: int
    host: str
    since: str
    address: str | None = None
    stopping: bool = False


class Served(SaysoError):
    """Another process serves this database. `holder` is None where it cannot be read who."""

    code = "served"

    def __init__(self, database: Path, holder: Holder | None) -> None:
        self.holder = holder
        super().__init__(f"{database} is served by {_named(holder)}. Stop that first, or use another --home.")


def _named(holder: Holder | None) -> str:
    if holder is None:
        return "another process"
    where = f" at {holder.address}" if holder.address else ""
    state = ", and is stopping" if holder.stopping else ""
    return f"`{holder.command}`, process {holder.pid} on {holder.host}, since {holder.since}{where}{state}"


class Lease:
    """A lease that this process holds."""

    def __init__(self, descriptor: int, holder: Holder) -> None:
        self._descriptor = descriptor
        self._holder = holder
        self._write()

    def reached_at(self, address: str) -> None:
        """Say where people reach this server."""
        self._holder = replace(self._holder, address=address)
        self._write()

    def stopping(self) -> None:
        """Say that this server drains: whoever starts meanwhile waits for its end."""
        self._holder = replace(self._holder, stopping=True)
        self._write()

    def close(self) -> None:
        """Give it back."""
        os.close(self._descriptor)

    def _write(self) -> None:
        # One write of one size: whoever reads meanwhile finds the note before or the note after.
        os.pwrite(self._descriptor, encode(asdict(self._holder)).ljust(_NOTE_BYTES), 0)


@contextmanager
def lease(database: Path, command: str, now: str) -> Iterator[Lease]:
    """Hold the lease to serve a database. Raises `Served`, and `StorageError` for files that are not ours alone."""
    held = _awaited(database, holder_of(command, now))
    try:
        yield held
    finally:
        held.close()


def holder_of(command: str, now: str) -> Holder:
    """This process as a holder."""
    return Holder(command, os.getpid(), socket.gethostname(), now)


def try_lease(database: Path, holder: Holder) -> Lease | None:
    """The lease to serve a database, or None while another process has it. Raises `StorageError` as `lease`."""
    path = note_of(database)
    make_private(path)
    check_private(path)
    descriptor = open_private(path)
    if locked(descriptor):
        return Lease(descriptor, holder)
    os.close(descriptor)
    return None


def _awaited(database: Path, holder: Holder) -> Lease:
    deadline = time.monotonic() + STOPPING_SECONDS
    while (held := try_lease(database, holder)) is None:
        time.sleep(_SETTLE_SECONDS)
        other = read_holder(note_of(database))
        if (held := try_lease(database, holder)) is not None:
            return held
        if other is None or not other.stopping or time.monotonic() > deadline:
            raise Served(database, other)
    return held


def note_of(database: Path) -> Path:
    """The file of the lease."""
    return private_directory(database.parent) / f"{database.name}.serving"


def read_holder(path: Path) -> Holder | None:
    """Who wrote the file of a lease last; only the lock says whether they hold it."""
    try:
        return Holder(**decode(path.read_bytes()))
    except (OSError, NotJson, TypeError):
        return None
