"""The lock under which one runtime at a time hands the rows of a database to its frontend.

It is an exclusive `flock` on `<database>.frontend`: the kernel drops it when the process ends in whatever way. A runtime
with a frontend keeps it while it is open, another one waits for it; one without a frontend has it for single rounds.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from engine.storage.private_files import check_private, locked, make_private, open_private

log = logging.getLogger("sayso.frontend")


class FrontendLock:
    """The lock of a database, or of none (`memory:`): then it is always free."""

    def __init__(self, database: Path | None, *, keeps: bool) -> None:
        """`keeps`: it is held until `close`, else until `pause`."""
        self._path = None if database is None else database.with_name(f"{database.name}.frontend")
        self._keeps = keeps
        self._descriptor: int | None = None
        self._told = False

    def take(self) -> bool:
        """Whether it is ours now. Raises `StorageError` for a file that is not ours alone."""
        if self._path is None or self._descriptor is not None:
            return True
        make_private(self._path)
        check_private(self._path)
        descriptor = open_private(self._path)
        if locked(descriptor):
            self._descriptor = descriptor
            return True
        os.close(descriptor)
        if self._keeps and not self._told:
            self._told = True
            log.warning(
                "Another runtime shows the sessions of this database; ours begins when that one ends."
            )
        return False

    def pause(self) -> None:
        """There is nothing to do: let another one have it, unless it is kept."""
        if not self._keeps:
            self.close()

    def close(self) -> None:
        """Give it back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
