"""Reading in a session's own folder, and never outside of it.

A path that somebody names is followed one part at a time, and no part may be a link: what lies in the folder may have
been put there by a program that the flow ran on somebody else's data.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path, PurePosixPath

from engine.language.errors import SaysoError

SESSIONS = "sessions"
"""The folder, below the home, that has a folder for each session."""

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
)


def fingerprint(data: bytes) -> str:
    """A short text by which a file's content is known again."""
    return blake2b(data, digest_size=16).hexdigest()


class FileRefused(SaysoError):
    """A file cannot be used; says which and why."""

    code = "file"


def read_inside(folder: Path, path: str, most: int) -> bytes:
    """The content of a file in this folder, of at most so many bytes. Raises `FileRefused`."""
    with _opened(folder, path) as descriptor:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise FileRefused(f"{path} is no file")
        if found.st_size > most:
            raise FileRefused(f"{path} has {found.st_size:,} bytes and the most is {most:,}")
        with os.fdopen(os.dup(descriptor), "rb") as file:
            content = file.read(most + 1)
    if len(content) > most:
        raise FileRefused(f"{path} grew to more than {most:,} bytes while it was read")
    return content


def private_folder(folder: Path) -> Path:
    """The folder of a session, made where it is missing. Nobody else may enter it, nor the folder of all sessions, whatever
    the umask. Raises `OSError`."""
    for part in reversed([folder, *folder.parents]):
        if not part.exists():
            part.mkdir(mode=0o700, exist_ok=True)
    for part in (folder, *([folder.parent] if folder.parent.name == SESSIONS else [])):
        if part.stat().st_mode & 0o777 != 0o700:
            os.chmod(part, 0o700)
    return folder


@contextmanager
def copied_folder(source: Path, target: Path) -> Iterator[None]:
    """A copy of a session's folder as it is now, which is taken away again where what is done with it fails. Links stay
    links; what is no file, no folder and no link is left out. Nothing is done where there is no folder to copy, or one
    is there already. Raises `FileRefused` where it cannot be copied."""
    if not source.is_dir() or target.exists():
        yield
        return
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
        raise FileRefused(f"{path!r} is not in the session's own folder; write a path inside of it")
    return parts


@contextmanager
def _opened(folder: Path, path: str) -> Iterator[int]:
    parts = parts_inside(folder, path)
    at = -1
    try:
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        for index, part in enumerate(parts):
            kind = os.O_DIRECTORY if index < len(parts) - 1 else os.O_NONBLOCK
            inner = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | kind, dir_fd=at)
            os.close(at)
            at = inner
        yield at
    except OSError as error:
        raise FileRefused(f"{path} cannot be read in the session's folder: {error.strerror}") from error
    finally:
        if at >= 0:
            os.close(at)


def sniffed(head: bytes) -> str:
    """The type of a file by its first bytes; what its name says proves nothing."""
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
