"""Sessions as lists have them: in pages, those that changed lately, how each began. Nothing here is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.journal.records import Head
from engine.language.errors import Corrupt
from engine.storage.sealing import JournalRecord, genuine, row_events
from engine.storage.sessions import SessionTables
from engine.storage.tables import at_most, listed, reads, session_number

_UNVERIFIED = "its head does not verify: it was changed outside this program"
"""What lists say of a session that nobody has set aside yet, but should."""

_LIST = {
    (False, False): "SELECT n FROM sessions WHERE n < ?4 ORDER BY n DESC LIMIT ?3",
    (True, False): """SELECT n FROM sessions WHERE status IN (SELECT value FROM json_each(?1))
 AND n < ?4 ORDER BY n DESC LIMIT ?3""",
    (False, True): "SELECT n FROM sessions WHERE thread_key = ?2 AND n < ?4 ORDER BY n DESC LIMIT ?3",
    (True, True): """SELECT n FROM sessions WHERE thread_key = ?2
 AND +status IN (SELECT value FROM json_each(?1)) AND n < ?4 ORDER BY n DESC LIMIT ?3""",
}
_NUMBER = "SELECT n FROM sessions WHERE session_id = ?"
# What is over is found by when it ended, the rest among what is open: nobody reads all sessions to see what is new.
_STIRRED = """SELECT n FROM sessions WHERE ended_at >= ?1
 UNION ALL SELECT n FROM sessions WHERE status IN ('idle', 'running', 'paused') AND updated_at >= ?1"""
_FIRST = "SELECT seq, version, body, mac FROM journal WHERE session = ? ORDER BY seq LIMIT 1"


class SessionLists(SessionTables):
    """The lists of `Store` that people look at."""

    @reads
    def heads(
        self,
        *,
        statuses: Sequence[str] = (),
        thread_key: str | None = None,
        limit: int | None = 100,
        before: str | None = None,
    ) -> list[Head]:
        """See `Store.heads`."""
        row = None if before is None else self._db.one(_NUMBER, (before,))
        until = at_most(None) if before is None else row[0] if row else 0
        wanted = (listed(statuses), thread_key, at_most(limit), until)
        return self._listed(self._db.all(_LIST[bool(statuses), thread_key is not None], wanted))

    @reads
    def stirred(self, since: str) -> list[Head]:
        """See `Store.stirred`."""
        return self._listed(self._db.all(_STIRRED, (since,)))

    @reads
    def opening(self, session_id: str) -> bytes:
        """See `Store.opening`."""
        head = self._stored(session_id)
        row = self._db.one(_FIRST, (session_number(session_id),))
        if row is None:
            raise Corrupt(f"Session {session_id} has no journal.")
        return row_events(self._sealer, head, JournalRecord(*row), seq=0, chain=head.origin)[0]

    def _listed(self, numbers: Iterable[tuple[int]]) -> list[Head]:
        records = list(self._by_n(numbers))
        reasons = self._reasons(record.session_id for record in records)
        return [
            record.head(reason or (None if genuine(self._sealer, record) else _UNVERIFIED))
            for record, reason in zip(records, reasons, strict=True)
        ]
