"""Leases, which are locked files: which processes live, and which one serves a database.

An owner is a process (or one part of it) that holds sessions. It keeps an exclusive `flock` on a file of its own;
the kernel drops the lock when the process ends in whatever way, `kill -9` included, so death is noticed at once
and without a clock. Asking means trying a shared lock: two that ask do not disturb each other. The lock belongs
to the open file, so asking about another owner of the same process works too. Ids are never used twice, hence a
file whose owner is dead may be removed at any time.

The file becomes visible under its name only once it is locked. A file system that does not honour `flock`
between machines (some network ones) cannot carry a database that several machines share; SQLite cannot either.

The lease to serve is an exclusive `flock` on a file beside the database (`<database>.serving`). The kernel drops
the lock when the process ends in whatever way, `kill -9` included, so a crash never blocks the next start, and of two that start at
the same instant exactly one gets it. The file is never removed, and a process id in it proves nothing: it only says
who holds the lease, for whoever is refused. Commands beside a server do not take the lease.

A server is whoever shows the sessions of the database to people: the bot, or the `Runtime` of a program.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import asdict, replace

from engine.language.codec import decode, encode
from engine.language.errors import NotJson, SaysoError, StorageError
from engine.storage.private_files import check_private, locked, make_private, open_private, private_directory

_LABEL = re.compile(r"[a-z][a-z0-9_]{0,31}")
_OWNER = re.compile(r"[a-z][a-z0-9_]{0,31}-[0-9]+-[0-9a-f]{16}")
_SUFFIX = ".lock"
L = TypeVar("L", bound="Serving")


def new_owner_id(label: str) -> str:
    """An id that is used once. Raises `StorageError` for a label that is not a small word."""
    if not _LABEL.fullmatch(label):
        raise StorageError(f"{label!r} cannot name an owner; use a word such as `bot` or `cli`.")
    return f"{label}-{os.getpid()}-{os.urandom(8).hex()}"


def label_of(owner: str) -> str:
    """The label in an owner id."""
    return owner.split("-", 1)[0]


class Owners:
    """The owners of one database."""

    def __init__(self, directory: Path) -> None:
        """`directory` is made when absent."""
        self._directory = private_directory(directory)
        self._held: dict[str, int] = {}

    def register(self, label: str) -> str:
        """Become an owner that lives until this process ends or `close()`."""
        owner = new_owner_id(label)
        try:
            descriptor = self._make(owner)
        except OSError as error:
            raise StorageError(
                f"The owner file of {owner} cannot be made in {self._directory}: {error.strerror}."
            ) from error
        self._held[owner] = descriptor
        self._remove_dead()
        return owner

    def alive(self, owner: str) -> bool:
        """True if somebody holds that owner's lock."""
        if owner in self._held:
            return True
        return bool(_OWNER.fullmatch(owner)) and self._locked(self._path(owner))

    def living(self) -> list[str]:
        """The ids of all owners that live, sorted."""
        names = (name.removesuffix(_SUFFIX) for name in self._names() if name.endswith(_SUFFIX))
        return sorted(owner for owner in names if self.alive(owner))

    def note(self, text: str | None) -> None:
        """Leave a note in the files of this process's owners, for `notes`; None takes it back. It ends with the process."""
        for descriptor in self._held.values():
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, (text or "").encode(), 0)

    def notes(self) -> list[str]:
        """Return the notes of living owners."""
        found = []
        for owner in self.living():
            with contextlib.suppress(OSError):
                text = self._path(owner).read_text("utf-8", "replace")
                found += [f"{label_of(owner)}: {text}"] if text else []
        return found

    def close(self) -> None:
        """Release all leases of this process."""
        for owner, descriptor in self._held.items():
            with contextlib.suppress(OSError):
                self._path(owner).unlink()
            os.close(descriptor)
        self._held.clear()

    def _make(self, owner: str) -> int:
        hidden = self._directory / f".{owner}"
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(hidden, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            hidden.rename(self._path(owner))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _path(self, owner: str) -> Path:
        return self._directory / f"{owner}{_SUFFIX}"

    def _names(self) -> list[str]:
        try:
            return os.listdir(self._directory)
        except OSError as error:
            raise StorageError(f"{self._directory} cannot be read: {error.strerror}.") from error

    def _locked(self, path: Path) -> bool:
        """True if another open file holds the lock. Unknown counts as held: a live session is never taken."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            return error.errno not in (errno.ENOENT, errno.ELOOP)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def _remove_dead(self) -> None:
        for name in self._names():
            owner = name.removesuffix(_SUFFIX)
            if name.endswith(_SUFFIX) and not self.alive(owner):
                with contextlib.suppress(OSError):
                    (self._directory / name).unlink()


class MemoryOwners:
    """The owners of a database in memory, which are parts of this process: like `Owners`, without files."""

    def __init__(self, living: dict[str, str]) -> None:
        """`living` is shared by all who use the database: each owner with what it has noted."""
        self._living = living
        self._held: set[str] = set()

    def register(self, label: str) -> str:
        """Become an owner that lives until `close()`."""
        owner = new_owner_id(label)
        self._held.add(owner)
        self._living[owner] = ""
        return owner

    def alive(self, owner: str) -> bool:
        """True if that owner was not closed."""
        return owner in self._living

    def living(self) -> list[str]:
        """The ids of all owners that live, sorted."""
        return sorted(self._living)

    def note(self, text: str | None) -> None:
        """Leave a note, for `notes`; None takes it back."""
        self._living.update(dict.fromkeys(self._held, text or ""))

    def notes(self) -> list[str]:
        """Return the notes of living owners."""
        return [f"{label_of(owner)}: {text}" for owner, text in sorted(self._living.items()) if text]

    def close(self) -> None:
        """Release all leases of this process."""
        for owner in self._held:
            self._living.pop(owner, None)
        self._held.clear()


# --- the lease to serve ------------------------------------------------------------------------------------


STOPPING_SECONDS = 30.0
"""Seconds for which a start waits for a holder that is stopping: under systemd a restart may overlap with it."""

_SETTLE_SECONDS = 0.05
"""A holder writes who it is right after it took the lease; it is given that long before it is named."""

_NOTE_BYTES = 2048

BEAT_SECONDS = 10.0
"""Seconds between a server's signs of life."""


class Holder(Struct, frozen=True):
    """The process that serves: `command` is what it was started as, `since` a UTC time, `address` where people reach it."""

    command: str
    pid: int
    host: str
    since: str
    address: str | None = None
    stopping: bool = False


class Member(Struct, frozen=True):
    """A process that has a store open. `since` is a UTC time."""

    owner: str
    role: str
    command: str
    host: str
    since: str
    lanes: tuple[str, ...]

    def holder(self) -> Holder:
        """The current holder, as reported to a refused process."""
        return Holder(self.command, int(self.owner.split("-")[1]), self.host, self.since)


class Served(SaysoError):
    """Another process serves this database. `holder` is None where it cannot be read who."""

    code = "served"

    def __init__(self, database: Path | str, holder: Holder | None) -> None:
        self.holder = holder
        other = "--home" if isinstance(database, Path) else "database"
        super().__init__(
            f"{database} is served by {_named(holder)}. Stop that first, or use another {other}."
        )


def _named(holder: Holder | None) -> str:
    if holder is None:
        return "another process"
    where = f" at {holder.address}" if holder.address else ""
    state = ", and is stopping" if holder.stopping else ""
    return f"`{holder.command}`, process {holder.pid} on {holder.host}, since {holder.since}{where}{state}"


class Serving:
    """The lease to serve a database, which this process holds. This one is of a database that no other process can reach:
    it is always ours, and nobody asks about it."""

    def reached_at(self, address: str) -> None:
        """Say where people reach this server."""

    def stopping(self) -> None:
        """Announce that this server drains, so that a new one waits for its end."""

    def beat(self) -> None:
        """Show that this process does its work: to be called every `BEAT_SECONDS`."""

    def release(self) -> None:
        """Give it back for now."""

    def retake(self) -> bool:
        """True if it is ours again after `release`, and no other process has it."""
        return True

    def close(self) -> None:
        """Give it back for good."""


class Lease(Serving):
    """A locked file."""

    def __init__(self, descriptor: int, holder: Holder) -> None:
        self._descriptor = descriptor
        self._holder = holder
        self._write()

    def reached_at(self, address: str) -> None:
        """Say where people reach this server."""
        self._holder = replace(self._holder, address=address)
        self._write()

    def stopping(self) -> None:
        """Announce that this server drains, so that a new one waits for its end."""
        self._holder = replace(self._holder, stopping=True)
        self._write()

    def beat(self) -> None:
        """Show that this process does its work: to be called every `BEAT_SECONDS`, see `serving`."""
        os.utime(self._descriptor)

    def release(self) -> None:
        """Give it back for now."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def retake(self) -> bool:
        """True if it is ours again after `release`, and no other process has it."""
        ours = locked(self._descriptor)
        if ours:
            self._write()
        return ours

    def close(self) -> None:
        """Give it back for good."""
        os.close(self._descriptor)

    def _write(self) -> None:
        # One write of one size: whoever reads meanwhile finds the note before or the note after.
        os.pwrite(self._descriptor, encode(asdict(self._holder)).ljust(_NOTE_BYTES), 0)


@contextmanager
def lease(database: Path, command: str, now: str) -> Iterator[Lease]:
    """Hold the lease to serve a database. Raises `Served`, and `StorageError` for files that are not ours alone."""
    path, holder = note_of(database), holder_of(command, now)
    held = awaited(lambda: try_lease(path, holder), lambda: Served(database, read_holder(path)))
    try:
        yield held
    finally:
        held.close()


def holder_of(command: str, now: str) -> Holder:
    """This process as a holder."""
    return Holder(command, os.getpid(), socket.gethostname(), now)


def try_lease(path: Path, holder: Holder) -> Lease | None:
    """The lease in this file (`note_of` a database), or None while another process has it. Raises `StorageError` as `lease`."""
    make_private(path)
    check_private(path)
    descriptor = open_private(path)
    if locked(descriptor):
        return Lease(descriptor, holder)
    os.close(descriptor)
    return None


def awaited(attempt: Callable[[], L | None], served: Callable[[], Served]) -> L:
    """The lease that `attempt` gives, once a holder that is stopping has ended. Raises what `served` makes, for any other."""
    deadline = time.monotonic() + STOPPING_SECONDS
    while (held := attempt()) is None:
        time.sleep(_SETTLE_SECONDS)
        other = served()
        if (held := attempt()) is not None:
            return held
        if other.holder is None or not other.holder.stopping or time.monotonic() > deadline:
            raise other
    return held


def note_of(database: Path) -> Path:
    """The file of the lease."""
    return private_directory(database.parent) / f"{database.name}.serving"


def serving(database: Path, now: float) -> tuple[Holder, float] | None:
    """Return the process that serves a database, and the seconds since its last sign of life; None if there is none.
    Read-only."""
    path = database.with_name(f"{database.name}.serving")
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        # A shared lock: those who ask at the same time do not disturb each other.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = read_holder(path) or Holder("a server", 0, "this machine", "a moment ago")
        return holder, now - os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)
    return None


def read_holder(path: Path) -> Holder | None:
    """Return the last writer of a lease's file; only the lock tells if they hold it."""
    try:
        return Holder(**decode(path.read_bytes()))
    except (OSError, NotJson, TypeError):
        return None
