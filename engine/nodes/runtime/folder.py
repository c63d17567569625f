"""Reading inside a session's own folder, and never outside.

A path is followed one part at a time, and no part may be a link: files in the folder may come from a program that the
flow ran on untrusted data.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path, PurePosixPath

from engine.language.errors import SaysoError

SESSIONS = "sessions"
"""The folder, below the home, that has a folder for each session."""

NO_LINK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags to open a file without waiting for a pipe or following a link."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
)


@lru_cache(1_000)
def session_folder(home: Path, session_id: str) -> Path:
    """Return the folder in which a session's nodes work, below the home of the engine."""
    return home / SESSIONS / session_id


def fingerprint(data: bytes) -> str:
    """Return a short digest that identifies a file's content."""
    return blake2b(data, digest_size=16).hexdigest()


class FileRefused(SaysoError):
    """A file cannot be used; says which and why."""

    code = "file"


@contextmanager
def folder_inside(root: Path, names: Sequence[str], *, make: bool = False) -> Iterator[int]:
    """The folder below this one that the names lead to, open, reached without a link. Raises `OSError`."""
    current = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=current)
            following = os.open(name, _FOLDER, dir_fd=current)
            os.close(current)
            current = following
        yield current
    finally:
        os.close(current)


def content(descriptor: int, most: int) -> bytes | None:
    """Return an open file's content, one byte more than `most` if it is longer; None if it is not a regular file.
    Closes it."""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(most + 1)
    finally:
        os.close(descriptor)


def read_inside(folder: Path, path: str, most: int) -> bytes:
    """The content of a file in this folder, of at most so many bytes. Raises `FileRefused`."""
    *folders, name = parts_inside(folder, path)
    try:
        with folder_inside(folder, folders) as holder:
            descriptor = os.open(name, NO_LINK, dir_fd=holder)
            size = os.fstat(descriptor).st_size
            found = content(descriptor, most)
    except OSError as error:
        raise FileRefused(f"{path} cannot be read in the session's folder: {error.strerror}") from error
    if found is None:
        raise FileRefused(f"{path} is not a file")
    if len(found) > most:
        raise FileRefused(f"{path} has {max(size, len(found)):,} bytes; the limit is {most:,}")
    return found


def private_folder(folder: Path) -> Path:
    """Return the folder of a session, created if missing. Only its owner may enter it, and the folder of all sessions,
    regardless of the umask. Raises `OSError`."""
    for part in reversed([folder, *folder.parents]):
        if not part.exists():
            part.mkdir(mode=0o700, exist_ok=True)
    for part in (folder, *([folder.parent] if folder.parent.name == SESSIONS else [])):
        if part.stat().st_mode & 0o777 != 0o700:
            os.chmod(part, 0o700)
    return folder


@contextmanager
def copied_folder(source: Path, target: Path) -> Iterator[None]:
    """Copy a session's folder; the copy is removed again if the body fails. Links stay links; anything that is not a
    file, folder or link is left out. Does nothing without a folder to copy, or if the target exists. Raises
    `FileRefused`."""
    if not source.is_dir() or target.exists():
        yield
        return
    import shutil  # few sessions are forked with files

    try:
        try:
            shutil.copytree(source, target, symlinks=True, ignore=_no_files)
        except (OSError, shutil.Error) as error:
            raise FileRefused(f"the session's folder {source} cannot be copied: {error}") from error
        yield
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def _no_files(folder: str, names: list[str]) -> list[str]:
    kinds = {name: os.lstat(os.path.join(folder, name)).st_mode for name in names}
    copied = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
    return [name for name, mode in kinds.items() if not any(is_one(mode) for is_one in copied)]


def parts_inside(folder: Path, path: str) -> list[str]:
    """The parts of a path below a folder. Raises `FileRefused` for one that leads elsewhere."""
    given = PurePosixPath(path)
    for base in (folder, folder.resolve()):
        if given.is_absolute() and given.is_relative_to(base):
            given = given.relative_to(base)
    parts = [part for part in given.parts if part != "."]
    if not parts or given.is_absolute() or ".." in parts or "\0" in path:
        raise FileRefused(f"{path!r} is not in the session's own folder; write a path inside it")
    return parts


def sniffed(head: bytes) -> str:
    """Return the type of a file by its first bytes; its name proves nothing."""
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    try:
        # The last character may be cut in two.
        text = head.decode("utf-8") if len(head) < 4 else head[: len(head) - 3].decode("utf-8", "strict")
    except UnicodeDecodeError as error:
        text = head.decode("utf-8", "ignore") if error.start >= len(head) - 6 else "\0"
    return "application/octet-stream" if "\0" in text else "text/plain"
