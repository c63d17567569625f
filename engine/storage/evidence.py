"""The log of what was attested: its leaves in order, and with the last one of each round the signed checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.journal.records import LeafRow
from engine.language.errors import Corrupt
from engine.storage.tables import LEAVES, Tables, reads, writes

_LEAF = LEAVES.where("n = ?")
_SIZE = "SELECT coalesce(max(n), 0) FROM leaves"
_LAST = "SELECT max(n) FROM leaves WHERE session_id = ?"
_OF = "SELECT n FROM leaves WHERE session_id = ? ORDER BY n"
_AHEAD = """SELECT s.session_id FROM sessions s WHERE s.seq > coalesce(
 (SELECT l.seq FROM leaves l WHERE l.session_id = s.session_id ORDER BY l.n DESC LIMIT 1), 0)"""
_ANY = _AHEAD + " ORDER BY s.n"
_ENDED = _AHEAD + " AND s.ended_at >= ? ORDER BY s.ended_at, s.n"
"""In the order of an index: it is asked every few seconds, among all sessions that there are."""


class EvidenceTable(Tables):
    """Leaves by their number, from 1: that of the last one is the size of the tree."""

    @reads
    def size(self) -> int:
        """Return the number of leaves."""
        return self._number(_SIZE)

    @reads
    def leaf(self, n: int) -> LeafRow:
        """Return a leaf, verified. Raises `Corrupt`, also for one that is missing."""
        found = self._get(LEAVES, _LEAF, n)
        if found is None:
            raise Corrupt(f"Leaf {n} of the audit log is missing.")
        return found

    @reads
    def newest(self, session_id: str) -> LeafRow | None:
        """Return the last leaf of a session; the last key's for an empty id. Raises `Corrupt`."""
        found = self._db.one(_LAST, (session_id,))
        return self.leaf(found[0]) if found and found[0] is not None else None

    @reads
    def of(self, session_id: str) -> list[LeafRow]:
        """Return all leaves of a session, or of the keys for an empty id. Raises `Corrupt`."""
        return [self.leaf(n) for (n,) in self._db.all(_OF, (session_id,))]

    def after(self, size: int) -> Iterator[LeafRow]:
        """Yield the leaves after the first `size` in order. Raises `Corrupt`."""
        return (self.leaf(n) for n in range(size + 1, self.size() + 1))

    @reads
    def ahead(self, ended_since: str | None = None) -> list[str]:
        """Return the sessions with events that no leaf has: all, or those that ended since."""
        rows = self._db.all(_ENDED, (ended_since,)) if ended_since else self._db.all(_ANY)
        return [session_id for (session_id,) in rows]

    @writes
    def append(self, size: int, rows: Sequence[LeafRow]) -> bool:
        """Store leaves behind the first `size`. False, and nothing is stored, where others were faster."""
        self._db.hold("evidence")
        if self._number(_SIZE) != size:
            return False
        for n, row in enumerate(rows, size + 1):
            self._put(LEAVES, LEAVES.insert, row, n)
        return True
