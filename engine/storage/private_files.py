"""The database's files: private from the moment they exist, and refused when somebody else could have made them.

Directories are made 0700 and files 0600 whatever the umask; SQLite gives its `-wal` and `-shm` files the mode of
the database. A symbolic link, another owner or a mode that lets others read is refused, never repaired: by then
somebody may have read or changed what is in there, and a person should know.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from engine.language.errors import KeyMissing
from engine.storage import errors

_OPENING_SECONDS = 30.0
_NOFOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC


def private_directory(path: Path) -> Path:
    """The directory's real path; made with its parents when absent. Raises `StorageError` when others can write."""
    missing = [path, *path.parents]
    try:
        for directory in reversed(missing):
            with contextlib.suppress(FileExistsError):
                directory.mkdir(mode=0o700)
        real = path.resolve(strict=True)
        found = real.stat()
    except OSError as error:
        raise errors.PathUnusable(path=f"The directory {path}", done="used", error=error) from error
    if not stat.S_ISDIR(found.st_mode):
        raise errors.NotADirectory(path=path)
    if found.st_uid != os.geteuid():
        raise errors.DirectoryOfAnother(path=real)
    if found.st_mode & 0o022:
        raise errors.DirectoryWritable(path=real)
    return real


def check_private(path: Path) -> bool:
    """True if the file exists; raises `StorageError` unless it is a regular file that only we can read."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise errors.PathUnusable(path=path, done="used", error=error) from error
    if not stat.S_ISREG(found.st_mode):
        raise errors.NotAFile(path=path)
    if found.st_uid != os.geteuid():
        raise errors.FileOfAnother(path=path)
    if found.st_mode & 0o077:
        raise errors.FileReadable(path=path)
    return True


def make_private(path: Path) -> None:
    """An empty file of mode 0600, unless there is one already."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | _NOFOLLOW, 0o600)
    except FileExistsError:
        return
    except OSError as error:
        raise errors.PathUnusable(path=path, done="made", error=error) from error
    os.fchmod(descriptor, 0o600)
    os.close(descriptor)


def open_private(path: Path) -> int:
    """A descriptor for reading and writing; no child process inherits it. Raises `StorageError`."""
    try:
        return os.open(path, os.O_RDWR | _NOFOLLOW)
    except OSError as error:
        raise errors.PathUnusable(path=path, done="opened", error=error) from error


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def durable_file(path: Path) -> Iterator[BinaryIO]:
    """A file of mode 0600 that is under its name once all of it is on the disk; what has that name until then stays. Raises
    `OSError`."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | _NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


@contextlib.contextmanager
def only_opener(path: Path) -> Iterator[None]:
    """Hold the lock under which one process at a time makes the key, the schema and the WAL."""
    make_private(path)
    check_private(path)
    descriptor = open_private(path)
    try:
        deadline = time.monotonic() + _OPENING_SECONDS
        while not locked(descriptor):
            if time.monotonic() > deadline:
                raise errors.OpeningTakesLong(path=path)
            time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def locked(descriptor: int) -> bool:
    """Take the exclusive lock of an open file unless another process has it; whether it is ours."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# --- the key ---------------------------------------------------------------------------------------------


def read_key(path: Path) -> bytes | None:
    """The key in this file, or None when there is no file. Raises `KeyMissing` when it holds none."""
    if not check_private(path):
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | _NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            text = file.read(1024).strip()
    except OSError as error:
        raise errors.PathUnusable(path=path, done="read", error=error) from error
    try:
        return bytes.fromhex(text.decode("ascii"))
    except ValueError:
        raise KeyMissing(
            f"{path} does not hold a key (64 hexadecimal digits); restore it from a copy."
        ) from None


def make_key(path: Path) -> bytes:
    """A new random key, durable in its file before anything is written with it. Only under `only_opener`."""
    key = os.urandom(32)
    try:
        with durable_file(path) as file:
            file.write(key.hex().encode() + b"\n")
    except OSError as error:
        raise errors.PathUnusable(path=f"The key file {path}", done="written", error=error) from error
    return key
