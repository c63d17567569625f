"""Rows that the engine itself writes beside a step's events: timers and pending deliveries. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from engine.journal.events import Event, Start
from engine.journal.records import Derived, DropLock, DropTimer, PutLock, PutOutbox, Row, TakeLock, Timer
from engine.journal.state import State
from engine.language.codec import Json, encode
from engine.nodes.types.registry import mode_of


def timer_rows(before: State, after: State, events: Sequence[Event]) -> Sequence[Row]:
    """Timers that came and went in this step."""
    if before.timers is after.timers:
        return ()
    return _timers(after, {timer_id: timer.due_at for timer_id, timer in before.timers.items()})


def lock_rows(before: State, after: State, events: Sequence[Event]) -> Sequence[Row]:
    """The place in the queue for a lock, the lock itself, and giving both back at the end."""
    was, now = before.lock, after.lock
    if (was is now and not after.ended) or now is None or before.ended:
        return ()
    acquired = now.acquired_at is not None and (was is None or was.acquired_at is None)
    rows: list[Row] = []
    if was is None and (acquired or not after.ended):
        rows.append(PutLock(now.name, after.session_id))
    if acquired:
        rows.append(TakeLock(now.name, after.session_id))
    if after.ended and (was is not None or acquired):
        rows.append(DropLock(now.name, after.session_id))
    return rows


def repairs(state: State, stored: Derived) -> list[Row]:
    """Return the rows that bring a session's stored timers and lock in line with its journal."""
    timers = _timers(state, {timer.timer_id: timer.due_at for timer in stored.timers})
    return [*timers, *_locks(state, stored)]


def _timers(state: State, known: Mapping[str, str]) -> list[Row]:
    """Return the rows that make these timers those of the session; each is known by its due time."""
    gone = [timer_id for timer_id in known if timer_id not in state.timers]
    rows: list[Row] = [DropTimer(timer_id, state.session_id) for timer_id in gone]
    for timer_id, timer in state.timers.items():
        if known.get(timer_id) != timer.due_at:
            rows.append(Timer(timer_id, state.session_id, timer.due_at))
    return rows


def _locks(state: State, stored: Derived) -> Iterator[Row]:
    wanted = None if state.ended else state.lock
    for row in stored.locks:
        if row.verified and (wanted is None or row.name != wanted.name):
            yield DropLock(row.name, state.session_id)
    if wanted is None:
        return
    place = next((row for row in stored.locks if row.name == wanted.name), None)
    if place is None:
        yield PutLock(wanted.name, state.session_id, first=wanted.acquired_at is not None)
    if wanted.acquired_at is not None and (place is None or place.taken_at is None):
        yield TakeLock(wanted.name, state.session_id)


def undelivered(state: State) -> list[PutOutbox]:
    """The outbox rows of messages that are in progress."""
    runs = [(path, state.nodes[path]) for path in state.active]
    return [
        delivery(state, path, run.attempt, run.input)
        for path, run in runs
        if run.status == "started" and mode_of(run.type) == "delivery"
    ]


def lane(state: State) -> str:
    """Return the lane that orders a session's posts: its thread, or the session itself without one."""
    return (state.thread or {}).get("key") or state.session_id


def _undelivered(after: State, event: Start) -> bool:
    if mode_of(event.node_type) != "delivery":
        return False
    run = after.nodes.get(event.path or "")
    return run is not None and run.status == "started"


def deliveries(before: State, after: State, events: Sequence[Event]) -> Sequence[Row]:
    """Return an outbox row for each `message` node that began; its deliverer reports the node's outcome.

    A journal that comes from elsewhere as a whole has begun and ended such nodes: what was delivered stays so.
    """
    return [
        delivery(after, event.path or "", event.attempt, event.input)
        for event in events
        if isinstance(event, Start) and _undelivered(after, event)
    ]


def delivery(state: State, path: str, attempt: int, config: Json) -> PutOutbox:
    """The outbox row of a `message` node's attempt."""
    payload: dict[str, Json] = {
        "sessionId": state.session_id,
        "path": path,
        "attempt": attempt,
        "config": config,
    }
    return PutOutbox(
        key=f"message:{state.session_id}:{path}:{attempt}",
        lane=lane(state),
        kind="message",
        payload=encode(payload),
        session_id=state.session_id,
    )
