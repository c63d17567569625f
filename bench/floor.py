"""The floor: what one durable commit costs with plain SQLite, and nothing of ours.

One table, one row of so many bytes, one transaction, WAL with `synchronous=FULL`: the least that a program can do
that wants its bytes to be there after a power loss. It uses the same SQLite library, in the same folder.
"""

from __future__ import annotations

import time
from pathlib import Path

import apsw

MILLISECONDS = 1000.0


class Floor:
    """A plain database beside the one that is measured."""

    def __init__(self, folder: Path, size: int) -> None:
        """`size` is how many bytes a commit holds."""
        self.size = size
        self.samples: list[float] = []
        self._body = b"\xa5" * size
        self._db = apsw.Connection(str(folder / f"floor-{size}.db"))
        for name, value in (("journal_mode", "WAL"), ("synchronous", "FULL"), ("fullfsync", 1)):
            self._db.pragma(name, value)
        self._db.execute("CREATE TABLE IF NOT EXISTS floor (id INTEGER PRIMARY KEY, body BLOB)")

    def sample(self, count: int = 1) -> list[float]:
        """Commit so often; what each took, in milliseconds. Blocks, so that nothing else runs meanwhile."""
        taken = []
        for _ in range(count):
            begin = time.perf_counter()
            self._db.execute("INSERT INTO floor (body) VALUES (?)", (self._body,))
            taken.append((time.perf_counter() - begin) * MILLISECONDS)
        self.samples += taken
        return taken

    def rows(self) -> list[int]:
        """How many bytes each commit stored, in their order."""
        return [
            int(str(row[0]))
            for row in self._db.execute("SELECT length(body) FROM floor ORDER BY id").fetchall()
        ]

    def close(self) -> None:
        """Close the database."""
        self._db.close()
