"""Which runtime hands the rows of a database to its frontend: the one that has the lease to serve it.

A runtime with a frontend keeps the lease while it is open, and waits for another server to end. One without a frontend
has it for single rounds, as a holder that is stopping: a server that starts meanwhile waits for it.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from engine.storage.home_lease import Holder, Lease, Served, note_of, read_holder, try_lease

log = logging.getLogger("sayso.frontend")


class FrontendLock:
    """The lease of a database, or of none (`memory:`): then it is always free."""

    def __init__(self, database: Path | None, holder: Holder, *, keeps: bool) -> None:
        """`keeps`: it is held until `close`, else until `pause`."""
        self._database = database
        self._holder = replace(holder, stopping=not keeps)
        self._keeps = keeps
        self._lease: Lease | None = None
        self._told = False

    def take(self) -> bool:
        """Whether it is ours now. Raises `StorageError` for a file that is not ours alone."""
        if self._database is None or self._lease is not None:
            return True
        self._lease = try_lease(self._database, self._holder)
        if self._lease is None and self._keeps and not self._told:
            self._told = True
            log.warning(
                "%s Until then this runtime shows nothing.",
                Served(self._database, read_holder(note_of(self._database))),
            )
        return self._lease is not None

    def pause(self) -> None:
        """There is nothing to do: let another one have it, unless it is kept."""
        if not self._keeps:
            self.close()

    def close(self) -> None:
        """Give it back."""
        if self._lease is not None:
            self._lease.close()
            self._lease = None
