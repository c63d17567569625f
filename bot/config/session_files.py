"""The files of sessions: each session has one folder of its own, and no file outside of it is read or written.

A path in a flow is followed one part at a time, and no part may be a link: files in the folder may come from a program
that the flow ran on untrusted data.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from engine.forms.question import Question
from engine.language.codec import Json, clean_text
from engine.language.errors import BlobLost, InvalidAnswer
from engine.nodes.runtime.folder import SESSIONS, FileRefused, private_folder, read_inside, sniffed

if TYPE_CHECKING:
    from bot.config.settings import Settings
    from engine.run.shared_files import SharedFiles
    from engine.storage.blobs import Blobs

MOST_BYTES = 50 * 2**20
"""Largest upload in bytes."""


class SessionFiles:
    """The folders of sessions below `home`, the same that nodes work in; `shared` where other machines have them too."""

    def __init__(self, home: Path, shared: SharedFiles | None = None) -> None:
        self._home = home
        self.shared = shared

    def folder(self, session_id: str) -> Path:
        """The folder of a session; it may not be there."""
        return self._home / SESSIONS / session_id

    def read(self, session_id: str, path: str, most: int = MOST_BYTES) -> bytes:
        """Return the content of a file of this session. Raises `FileRefused`."""
        return read_inside(self.folder(session_id), path, most)

    async def content(self, session_id: str, path: str) -> bytes:
        """Return the content of a file of this session, which may run on another machine. Raises `FileRefused`, and
        `StorageError` while it is unavailable."""
        try:
            if (
                self.shared is not None
                and (found := await self.shared.read(session_id, path, MOST_BYTES)) is not None
            ):
                return found
        except BlobLost as error:
            raise FileRefused(str(error)) from error
        return await asyncio.to_thread(self.read, session_id, path)

    @contextmanager
    def inbox(self, session_id: str, prompt_id: str) -> Iterator[Inbox]:
        """Open the folder for the files of an answer to a prompt, created if missing. Raises `FileRefused`."""
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
                f"The file cannot be stored ({error.strerror}), so your answer was not used."
            ) from error
        finally:
            os.close(at)


def blobs_of(settings: Settings) -> Blobs | None:
    """Return the shared storage of session files, or None if the home is used alone. Raises `SaysoError`."""
    if settings.blobs is None:
        return None
    from engine.storage.blobs import Blobs  # most installations are one machine

    return Blobs(settings.blobs, settings.env)


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
        """Remove an unfinished file."""
        self._file.close()
        with suppress(FileNotFoundError):
            os.unlink(self._temporary, dir_fd=self._folder)


class Inbox:
    """The folder of one prompt, `files/<prompt>` in that of its session."""

    def __init__(self, path: Path, folder: int) -> None:
        self.path = path
        self._folder = folder

    def head(self, name: str) -> tuple[int, bytes] | None:
        """Return the size and the first bytes of a file, or None if it does not exist."""
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


_CHUNK = 256 * 1024
SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,8}")


def too_many(most: int, given: int) -> str:
    """Return why so many files are no answer."""
    return f"This question takes at most {most} {'file' if most == 1 else 'files'}, not {given}."


def keep(
    files: SessionFiles, session_id: str, prompt_id: str, prompt: Question, paths: Sequence[Path]
) -> list[Json]:
    """The files as an answer has them, `{name, path, size, type}` each. Raises `InvalidAnswer` and `FileRefused`."""
    if not prompt.accepts_files:
        raise InvalidAnswer("This question takes no files.")
    most = prompt.max_files or 1
    if len(paths) > most:
        raise InvalidAnswer(too_many(most, len(paths)))
    with files.inbox(session_id, prompt_id) as inbox:
        return [_copied(inbox, path, int(prompt.max_size or 0)) for path in paths]


def _copied(inbox: Inbox, path: Path, largest: int) -> Json:
    suffix = path.suffix.lower() if SUFFIX.fullmatch(path.suffix) else ""
    name = f"local-{os.urandom(6).hex()}{suffix}"
    try:
        with path.open("rb") as source, inbox.writing(name) as part:
            head = chunk = source.read(_CHUNK)
            while chunk:
                part.write(chunk)
                if part.size > largest:
                    raise InvalidAnswer(
                        f"{path.name} is larger than {largest:,} bytes, the limit for a file."
                    )
                chunk = source.read(_CHUNK)
            part.done()
            size = part.size
    except OSError as error:
        raise FileRefused(f"{path} cannot be read: {error.strerror}.") from error
    return {
        "name": clean_text(path.name)[0],
        "path": str(inbox.path / name),
        "size": size,
        "type": sniffed(head[:4_096]),
    }


def typed_paths(line: str) -> list[Path] | None:
    """Return the files that a typed line names, parsed like a shell; None if one of its words is not a file."""
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    paths = [Path(word).expanduser() for word in words]
    try:
        return paths if paths and all(path.is_file() for path in paths) else None
    except (OSError, ValueError):
        return None
