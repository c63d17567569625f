"""Rows that outlive their session and are read by others, such as notes of agents: statements and their meaning."""

from __future__ import annotations

from collections.abc import Sequence

from engine.journal.records import KeptRow
from engine.language.errors import KeptMoved
from engine.storage.tables import KEPT, Tables, listed, reads

_KEPT = KEPT.where("n = ?")
_N_OF = "SELECT n FROM kept WHERE kept_id = ?"
_OF_KIND = "SELECT n FROM kept WHERE kind = ? ORDER BY n"
_IN = "SELECT n FROM kept WHERE kind = ? AND scope IN (SELECT value FROM json_each(?)) ORDER BY n"


class KeptTable(Tables):
    """Rows kept for others."""

    def put(self, row: KeptRow) -> None:
        """Store it, inside a transaction. Raises `KeptMoved`."""
        self._db.hold(f"kept {row.kept_id}")
        found = self._db.one(_N_OF, (row.kept_id,))
        if row.rev == 1:
            if found is None:
                self._put(KEPT, KEPT.insert, row, self._next("kept", "n"))
            return
        stored = self._held(KEPT, _KEPT, found[0]) if found else None
        if found is None or stored is None or stored.rev != row.rev - 1:
            raise KeptMoved(f"{row.kept_id} was changed meanwhile.")
        self._update(KEPT, row, found[0])

    @reads
    def rows(self, kind: str, scopes: Sequence[str] | None = None) -> list[KeptRow]:
        """Return the kept rows of a kind in these scopes, or in all, oldest first. Rows that do not verify are left
        out."""
        if scopes is None:
            return list(self._each(KEPT, _KEPT, self._db.all(_OF_KIND, (kind,))))
        ids = self._db.all(_IN, (kind, listed(scopes)))
        return list(self._each(KEPT, _KEPT, ids))

    @reads
    def row(self, kept_id: str) -> KeptRow | None:
        """One of them, verified: `Corrupt` where it was changed outside."""
        found = self._db.one(_N_OF, (kept_id,))
        return self._get(KEPT, _KEPT, found[0]) if found else None
