"""The files of sessions: each session has one folder of its own, and nothing is read or written outside of it.

A path that a flow names is followed one part at a time, and no part may be a link: what lies in the folder may have
been put there by a program that the flow ran on somebody else's data.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from engine.errors import SaysoError

MOST_BYTES = 50 * 2**20
"""Of a file that is uploaded."""


class FileRefused(SaysoError):
    """A file cannot be used; says which and why."""

    code = "file"


class SessionFiles:
    """The folders of sessions below `home`, the same that nodes work in."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def folder(self, session_id: str) -> Path:
        """The folder of a session; it may not be there."""
        return self._home / "sessions" / session_id

    def read(self, session_id: str, path: str, most: int = MOST_BYTES) -> bytes:
        """The content of a file of this session. Raises `FileRefused`."""
        with self._opened(session_id, path) as descriptor:
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

    @contextmanager
    def _opened(self, session_id: str, path: str) -> Iterator[int]:
        folder = self.folder(session_id)
        parts = _inside(folder, path)
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


def _inside(folder: Path, path: str) -> list[str]:
    """The parts of a path below a folder. Raises `FileRefused` for one that leads elsewhere."""
    given = PurePosixPath(path)
    for base in (folder, folder.resolve()):
        if given.is_absolute() and given.is_relative_to(base):
            given = given.relative_to(base)
    parts = [part for part in given.parts if part != "."]
    if not parts or given.is_absolute() or ".." in parts or "\0" in path:
        raise FileRefused(f"{path!r} is not in the session's own folder; write a path inside of it")
    return parts
