"""`locks` and `locks release`: who holds which lock, who waits, and taking one from a session that was set aside."""

from __future__ import annotations

import sys

from bot.cli.lookup import matches, need_database
from bot.rendering.locks import ordinal
from bot.terminal.cli_context import Place, database_exists, opened, writing
from bot.terminal.exit_codes import Exit, UsageError
from bot.terminal.narration import ago, standing
from bot.terminal.output import Paint, clean, print_json, table
from engine.journal.records import DropLock, Head, LockRow
from engine.journal.transitions import ENDED
from engine.language.codec import Json
from engine.run.active import utc_now
from engine.storage.port import Store


def list_locks(place: Place, *, as_json: bool) -> int:
    """Print the queues of all locks, each in its order."""
    settings = place.settings()
    found: list[tuple[LockRow, Head | None]] = []
    if database_exists(settings):
        with opened(settings) as store:
            found = [(row, store.head(row.session_id)) for row in store.locks()]
    if as_json:
        print_json({"locks": [_as_json(row, head) for row, head in found]})
        return Exit.OK
    if not found:
        print("No lock is held.")
        return Exit.OK
    now, place_in_queue = utc_now(), 0
    rows, before = [], None
    for row, head in found:
        place_in_queue = place_in_queue + 1 if row.name == before else 0
        before = row.name
        rows.append(_row(row, head, place_in_queue, now))
    for line in table(("LOCK", "SESSION", "FLOW", "STATUS", "STANDS", "SINCE"), rows, Paint(sys.stdout)):
        print(line)
    return Exit.OK


def _row(row: LockRow, head: Head | None, place: int, now: str) -> tuple[str, ...]:
    stands = "holds it" if row.taken_at else f"waits, {ordinal(place)}" if place else "is next"
    if not row.verified:
        stands += ", record damaged"
    status = standing(head) if head is not None else "unknown"
    since = ago(row.taken_at or row.requested_at, now) if row.verified else ""
    return (
        clean(row.name),
        clean(row.session_id),
        clean(head.flow_name) if head else "",
        status,
        stands,
        since,
    )


def _as_json(row: LockRow, head: Head | None) -> dict[str, Json]:
    return {
        "name": row.name,
        "sessionId": row.session_id,
        "flow": head.flow_name if head else None,
        "status": standing(head) if head else None,
        "threadKey": head.thread_key if head else None,
        "requestedAt": row.requested_at,
        "takenAt": row.taken_at,
        "verified": row.verified,
    }


def release_lock(place: Place, name: str, session: str) -> int:
    """Take a lock from a session of which nothing runs any more. Raises `UsageError` for one that can be ended."""
    settings = place.settings()
    need_database(settings, f"no lock {name!r}")
    with writing(settings) as store:
        row = _find(store, name, session)
        head = store.head(row.session_id)
        if head is not None and head.quarantined is None and head.status not in ENDED:
            end = place.command("sessions", "abort", row.session_id)
            raise UsageError(
                f"Session {row.session_id} is {head.status} and not set aside, so it gives the lock back by itself "
                f"when it ends. To end it: {end}"
            )
        store.consume((), utc_now(), [DropLock(row.name, row.session_id)])
        left = store.locks(name)
    following = f" Next: {clean(left[0].session_id)}." if left else ""
    print(f"{clean(row.session_id)} does not have lock {clean(name)} any more.{following}")
    return Exit.OK


def _find(store: Store, name: str, session: str) -> LockRow:
    found = [row for row in store.locks(name) if matches(row.session_id, session, "session-")]
    if len(found) == 1:
        return found[0]
    rows = store.locks()
    if found or any(row.name == name for row in rows):
        raise UsageError(
            f"{len(found) or 'No'} session of the queue for lock {name!r} begins with {session!r}."
        )
    names = ", ".join(sorted({clean(row.name) for row in rows})) or "none"
    raise UsageError(f"Nobody holds or waits for a lock {name!r}; there are: {names}.")
