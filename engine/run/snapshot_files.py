"""The snapshot directory (`SAYSO_SNAPSHOT_DIR`): one file for each paused session, which is not there or whole
up to a pause."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from engine.journal.phases import ENDED
from engine.journal.state import State
from engine.language.codec import decode
from engine.language.errors import SaysoError
from engine.storage.group_commit import Writer
from engine.storage.private_files import sync_directory

log = logging.getLogger("sayso.engine")

_KNOWN = 256
"""Most files whose last form is remembered; any other is written whole at its session's next pause."""


class SnapshotFiles:
    """Writes and removes snapshot files. Names come from ids that we made, percent-encoded: no way out of the folder."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, session_id: str) -> Path:
        """Return the path of a session's file."""
        return self._directory / f"{quote(session_id, safe='')}.json"

    def write(self, session_id: str, data: bytes) -> None:
        """Put the file in place: temporary, fsync, rename, fsync of the folder. Raises `OSError`."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        target = self.path(session_id)
        temporary = target.with_suffix(f".{os.getpid()}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        sync_directory(self._directory)

    def append(self, session_id: str, line: bytes, size: int) -> int | None:
        """Add a line durably to a file of length `size`; returns the new length, or None if the file is missing or of
        another length. Raises `OSError`."""
        try:
            descriptor = os.open(self.path(session_id), os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "ab") as file:
            if os.fstat(file.fileno()).st_size != size:
                return None
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        return size + len(line)

    def sessions(self) -> list[str]:
        """The sessions that have a file, or the beginning of one."""
        files = [*self._directory.glob("*.json"), *self._directory.glob("*.tmp")]
        names = {re.sub(r"(\.json|\.\d+\.tmp)$", "", file.name) for file in files}
        return sorted(map(unquote, names))

    def remove(self, session_id: str) -> None:
        """Remove the file of an ended session, and temporary files of processes that died; no error without one."""
        target = self.path(session_id)
        target.unlink(missing_ok=True)
        for temporary in self._directory.glob(f"{target.name.removesuffix('.json')}.*.tmp"):
            temporary.unlink(missing_ok=True)

    def age(self, session_id: str) -> float:
        """Return the seconds since a session's file was written; 0 if there is no whole file."""
        try:
            return time.time() - self.path(session_id).stat().st_mtime
        except FileNotFoundError:
            return 0.0


class _Copy(NamedTuple):
    """A file as it was left: up to which event, of which text, with which signature, and of which size."""

    seq: int
    flow_digest: str
    mac: str
    size: int
    shown: frozenset[str]
    """The digests of the files in it."""
    events: list[bytes]
    """Events since then."""


@dataclass(eq=False, repr=False)
class Copies:
    """Keeps the snapshot directory in step with a store's sessions. A file is a copy: failing to write one has no other
    effect. It is written whole at first, and when a conversation has shown a model another file; else it gets a line
    for each pause, whose cost depends only on the new events."""

    _files: SnapshotFiles
    _writer: Writer
    _export: Callable[[str], Awaitable[bytes]]
    _shown: Callable[[str], frozenset[str]]
    _left: OrderedDict[str, _Copy] = field(default_factory=OrderedDict, init=False)

    async def follow(self, state: State, events: Sequence[bytes], *, paused: bool) -> None:
        """A step was stored; with `paused` the session waits for somebody now."""
        left = self._left.pop(state.session_id, None)
        known = left is not None and left.seq + len(left.events) + len(events) == state.seq
        if left is not None and known and not state.ended:
            left.events.extend(events)
            self._left[state.session_id] = left
        try:
            if state.ended:
                await asyncio.to_thread(self._files.remove, state.session_id)
            elif paused:
                self._left[state.session_id] = await self._added(state) or await self._whole(state)
        except (OSError, SaysoError) as error:
            self._left.pop(state.session_id, None)
            log.error("the snapshot file of %s could not be written: %s", state.session_id, error)
        while len(self._left) > _KNOWN:
            self._left.popitem(last=False)

    async def _added(self, state: State) -> _Copy | None:
        """Add a line to the existing file; returns None if it has changed."""
        left = self._left.get(state.session_id)
        if left is None or left.flow_digest != state.flow_digest:
            return None
        if left.shown != await asyncio.to_thread(self._shown, state.session_id):
            return None
        from engine.run.export import signed_line

        line, mac = await signed_line(self._writer, left.mac, left.events)
        line = await self._writer.call(self._writer.store.enclose, line)
        size = await asyncio.to_thread(self._files.append, state.session_id, line + b"\n", left.size)
        return None if size is None else _Copy(state.seq, state.flow_digest, mac, size, left.shown, [])

    async def _whole(self, state: State) -> _Copy:
        whole = await self._export(state.session_id)
        data = await self._writer.call(self._writer.store.enclose, whole) + b"\n"
        await asyncio.to_thread(self._files.write, state.session_id, data)
        file = decode(whole)
        shown = frozenset(file.get("kept", ()))
        return _Copy(state.seq, state.flow_digest, file["mac"], len(data), shown, [])

    async def tidy(self, orphan_seconds: float | None = None) -> None:
        """Remove the files of ended sessions, which a crash may have left. With `orphan_seconds` also those of unknown
        sessions, if they are older than that."""
        try:
            for session_id in await asyncio.to_thread(self._files.sessions):
                head = await self._writer.call(self._writer.store.sessions.head, session_id)
                if head is None:
                    old = orphan_seconds is not None and self._files.age(session_id) > orphan_seconds
                else:
                    old = head.status in ENDED
                if old:
                    await asyncio.to_thread(self._files.remove, session_id)
        except (OSError, SaysoError) as error:
            log.warning("the snapshot directory could not be tidied: %s", error)
