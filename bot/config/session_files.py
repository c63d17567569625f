"""The files of sessions: each session has one folder of its own, and nothing is read or written outside of it.

A path that a flow names is followed one part at a time, and no part may be a link: what lies in the folder may have
been put there by a program that the flow ran on somebody else's data.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from engine.nodes.runtime.folder import SESSIONS, FileRefused, private_folder, read_inside

MOST_BYTES = 50 * 2**20
"""Of a file that is uploaded."""


class SessionFiles:
    """The folders of sessions below `home`, the same that nodes work in."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def folder(self, session_id: str) -> Path:
        """The folder of a session; it may not be there."""
        return self._home / SESSIONS / session_id

    def read(self, session_id: str, path: str, most: int = MOST_BYTES) -> bytes:
        """The content of a file of this session. Raises `FileRefused`."""
        return read_inside(self.folder(session_id), path, most)

    @contextmanager
    def inbox(self, session_id: str, prompt_id: str) -> Iterator[Inbox]:
        """The folder for what comes as an answer to a prompt, made where it is missing. Raises `FileRefused`."""
        folder = private_folder(self.folder(session_id))
        parts = ("files", quote(prompt_id, safe=""))
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for part in parts:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=at)
                inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                os.close(at)
                at = inner
            yield Inbox(folder.resolve().joinpath(*parts), at)
        except OSError as error:
            raise FileRefused(
                f"The file cannot be kept ({error.strerror}). Nothing of your answer was used."
            ) from error
        finally:
            os.close(at)


class Part:
    """A file that is being written."""

    def __init__(self, folder: int, name: str) -> None:
        self._folder, self._name = folder, name
        self._temporary = f".{name}.part"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        self._file = os.fdopen(os.open(self._temporary, flags, 0o600, dir_fd=folder), "wb")
        self.size = 0

    def write(self, data: bytes) -> None:
        """The next bytes."""
        self._file.write(data)
        self.size += len(data)

    def done(self) -> None:
        """The file is whole: it gets its name."""
        self._file.flush()
        os.fsync(self._file.fileno())
        os.rename(self._temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def close(self) -> None:
        """Leave nothing half behind."""
        self._file.close()
        with suppress(FileNotFoundError):
            os.unlink(self._temporary, dir_fd=self._folder)


class Inbox:
    """The folder of one prompt, `files/<prompt>` in that of its session."""

    def __init__(self, path: Path, folder: int) -> None:
        self.path = path
        self._folder = folder

    def head(self, name: str) -> tuple[int, bytes] | None:
        """The size and the first bytes of a file; None where there is none."""
        try:
            found = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._folder)
        except FileNotFoundError:
            return None
        with os.fdopen(found, "rb") as file:
            return os.fstat(file.fileno()).st_size, file.read(4_096)

    @contextmanager
    def writing(self, name: str) -> Iterator[Part]:
        """A new file, which is there once it is `done` and not before."""
        part = Part(self._folder, name)
        try:
            yield part
        finally:
            part.close()
