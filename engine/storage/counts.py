"""How much lies in the store, for those who watch over it: statements that count. Nothing is verified, and nothing decided on it."""

from __future__ import annotations

from engine.journal.records import Counts
from engine.storage.tables import Tables, reads

_SESSIONS = "SELECT status, count(*) FROM sessions WHERE status IN ('running', 'paused') GROUP BY status"
_PROMPTS = (
    "SELECT s.flow_name, count(*) FROM prompts p JOIN sessions s ON s.session_id = p.session_id "
    "WHERE p.status IN ('requested', 'shown') "
    "AND NOT EXISTS (SELECT 1 FROM quarantine q WHERE q.session_id = s.session_id) GROUP BY s.flow_name"
)
_INBOX = "SELECT count(*), min(received_at) FROM inbox WHERE outcome IS NULL"
_DEAD = "SELECT count(*) FROM inbox WHERE outcome = 'dead'"
_OUTBOX = "SELECT count(*), min(created_at) FROM outbox WHERE state = 'pending'"
_QUARANTINE = "SELECT count(*) FROM quarantine"


class CountTables(Tables):
    """How much there is."""

    @reads
    def counts(self) -> Counts:
        """How much there is of what waits, unverified: for metrics, never for a decision."""
        inbox, outbox = self._db.one(_INBOX) or (0, None), self._db.one(_OUTBOX) or (0, None)
        return Counts(
            sessions=dict(self._db.all(_SESSIONS)),
            prompts=dict(self._db.all(_PROMPTS)),
            inbox=inbox[0],
            oldest_inbox=inbox[1],
            dead=(self._db.one(_DEAD) or (0,))[0],
            outbox=outbox[0],
            oldest_outbox=outbox[1],
            quarantined=(self._db.one(_QUARANTINE) or (0,))[0],
        )
