"""The snapshot directory (`SAYSO_SNAPSHOT_DIR`): one file for each paused session, whole or not there."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from urllib.parse import quote, unquote


class SnapshotFiles:
    """Writes and removes snapshot files. Names come from ids that we made, percent-encoded: no way out of the folder."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, session_id: str) -> Path:
        """Where the file of a session stands."""
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
        self._sync()

    def sessions(self) -> list[str]:
        """The sessions that have a file, or the beginning of one."""
        files = [*self._directory.glob("*.json"), *self._directory.glob("*.tmp")]
        names = {re.sub(r"(\.json|\.\d+\.tmp)$", "", file.name) for file in files}
        return sorted(map(unquote, names))

    def remove(self, session_id: str) -> None:
        """Remove the file of a session that has ended, and what processes that died left of it; no error when there
        is none."""
        target = self.path(session_id)
        target.unlink(missing_ok=True)
        for temporary in self._directory.glob(f"{target.name.removesuffix('.json')}.*.tmp"):
            temporary.unlink(missing_ok=True)

    def age(self, session_id: str) -> float:
        """How many seconds ago the file of a session was written; what has no whole file is of no age."""
        try:
            return time.time() - self.path(session_id).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def _sync(self) -> None:
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
