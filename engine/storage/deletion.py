"""Deletes sessions that have ended, in transactions of milliseconds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice

from engine.language.errors import SessionError
from engine.storage.sealing import genuine
from engine.storage.sessions import DROP_QUARANTINE, DROP_SNAPSHOT, SessionTables
from engine.storage.tables import reads, session_number, writes

_SLICE_SECONDS = 0.004
"""How long a transaction deletes: commits of others are not held up for longer."""
_BEING_DELETED = "it is being deleted"
"""Why a session is set aside while its long journal is deleted in pieces."""

_ENDED = "SELECT n FROM sessions WHERE ended_at < ? ORDER BY ended_at, n"
_EVENTS_AT_ONCE = 500
_DELETE_EVENTS = """DELETE FROM journal WHERE n IN
 (SELECT n FROM journal WHERE session = ? ORDER BY seq DESC LIMIT ?)"""
_DELETE = (
    DROP_SNAPSHOT,
    DROP_QUARANTINE,
    "DELETE FROM prompts WHERE session_id = ?",
    "DELETE FROM timers WHERE session_id = ?",
    "DELETE FROM outbox WHERE session_id = ?",
    "DELETE FROM locks WHERE session_id = ?",
    "DELETE FROM kept WHERE kind = 'files' AND scope = ?",
    "DELETE FROM data_keys WHERE scope = ?",
    "DELETE FROM sessions WHERE session_id = ?",
)


class SessionDeletion(SessionTables):
    """What of `Store` deletes sessions."""

    @reads
    def ended(self, before: str, *, limit: int | None = 100) -> list[str]:
        """Sessions that ended before that time, in the order of their starts. One whose head does not verify is left out:
        a date that was changed must not delete a living session."""
        heads = self._by_n(self._db.each(_ENDED, (before,)))
        genuine_ones = (head for head in heads if genuine(self._sealer, head))
        return [head.session_id for head in islice(genuine_ones, limit)]

    @writes
    def delete(self, session_ids: Sequence[str]) -> list[str]:
        """Delete sessions with all their rows, for a few milliseconds; those that are still to be deleted. What was spent
        stays, and consumed inbox rows, whose keys are needed longer. A session that has not ended raises `SessionError`
        unless it is quarantined; one that does not exist is no error."""
        left = list(session_ids)
        until = time.monotonic() + _SLICE_SECONDS
        while left and time.monotonic() < until:
            if self._delete(left[0]):
                del left[0]
        return left

    def _delete(self, session_id: str) -> bool:
        """Delete a session, or, where its journal is long, the end of that; whether it is gone. In between it is set
        aside, so that nobody takes what is left of its journal for damage."""
        if self._reason(session_id) is None:
            head = self._find(session_id)
            if head is not None and head.ended_at is None:
                raise SessionError(
                    f"Session {session_id} is {head.status}: only what has ended can be deleted."
                )
            if head is not None and head.seq > _EVENTS_AT_ONCE:
                self._quarantine(session_id, _BEING_DELETED, head.updated_at)
        number = session_number(session_id)
        if self._db.run(_DELETE_EVENTS, (number, _EVENTS_AT_ONCE)) == _EVENTS_AT_ONCE:
            return False
        for statement in _DELETE:
            self._db.run(statement, (session_id,))
        self._forget(session_id)
        return True
