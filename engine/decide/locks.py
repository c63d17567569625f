"""Locks: one session at a time goes on under a name. Pure.

A flow's `lock` is one text, evaluated once when all inputs are known and before the flow starts: `lock:requested`
takes a place in the queue of that name. The store keeps the queue, in the order in which places were taken, and whoever
stands first has the lock or is to get it: nobody hands it over. A session takes its place and takes the lock in the
commit that has its events, and that commit is undone where another session is ahead (`LockHeld`).
So the core cannot know how it stands: whoever performs its steps looks (`verdict`) and tells it, `LockGranted` or
`LockQueued`. Until the lock is acquired nothing of the session starts, whatever else happens to it; a fork asks for the
lock of its parent anew. The end of the session gives it back.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.decide.commands import LockGranted, LockQueued
from engine.decide.step import Turn
from engine.journal import events as ev
from engine.journal.queries import pending as pending
from engine.journal.records import LockRow
from engine.journal.state import State
from engine.language.actors import named
from engine.language.codec import Json, clean_text, encode
from engine.language.errors import SaysoError

MAX_NAME = 200
"""Characters of a lock's name at most."""


def queue_up(turn: Turn, values: dict[str, Json]) -> bool:
    """Ask for the flow's lock where it has one; whether the flow may start. A name that cannot be made fails it."""
    if turn.state.lock is not None:
        return not pending(turn.state)
    if turn.flow.lock is None:
        return True
    try:
        name = _name(turn.flow.lock.evaluate(_context(turn.state, values)))
    except SaysoError as error:
        turn.emit(ev.FlowFailed, error={"type": error.code, "message": f"lock: {error}"})
        return False
    turn.emit(ev.LockRequested, name=name, on_conflict=turn.flow.on_conflict)
    return False


def _context(state: State, values: dict[str, Json]) -> dict[str, Json]:
    session = {"id": state.session_id, "requester": named(state.actor), "flow": state.flow_name}
    return {"inputs": values, "session": session}


def _name(value: Json) -> str:
    text = clean_text(value if isinstance(value, str) else encode(value).decode())[0].strip()
    if not text or len(text) > MAX_NAME or not text.isprintable():
        raise LockName(f"its name has to be one line of 1 to {MAX_NAME} characters, not {text[:80]!r}")
    return text


class LockName(SaysoError):
    """What `lock` gave is no name for a lock."""

    code = "config"


def granted(turn: Turn, command: LockGranted) -> None:
    """Nobody is ahead: the session has the lock, in the commit that stores this."""
    if turn.state.lock is None or not pending(turn.state) or turn.state.lock.name != command.name:
        return
    if turn.state.phase not in ("running", "waiting", "held", "unreachable"):
        return
    turn.wake(None)
    turn.emit(ev.LockAcquired, name=command.name)


def queued(turn: Turn, command: LockQueued) -> None:
    """Another session is ahead: wait, or, with `on_conflict: refuse`, end and say who has it."""
    lock = turn.state.lock
    if lock is None or not pending(turn.state) or lock.name != command.name:
        return
    if lock.on_conflict == "refuse" and turn.state.phase in ("running", "waiting"):
        turn.wake(None)
        turn.emit(ev.FlowFailed, error=_refusal(command))
    elif turn.state.phase == "running":
        turn.emit(ev.FlowPaused, reason=f"waiting for lock {lock.name}")


def _refusal(command: LockQueued) -> dict[str, Json]:
    message = (
        f"lock {command.name} is held by {command.holder}; nothing was started. "
        "Start it again when that one has ended."
    )
    held_by: dict[str, Json] = {"sessionId": command.holder, "threadKey": command.thread_key}
    return {"type": "locked", "message": message, "lock": command.name, "heldBy": held_by}


def verdict(queue: Sequence[LockRow], state: State) -> LockGranted | LockQueued:
    """How a session that asked for a lock stands in its queue: the first has it, whoever asks last comes last."""
    assert state.lock is not None
    if not queue or queue[0].session_id == state.session_id:
        return LockGranted(state.lock.name)
    return LockQueued(state.lock.name, queue[0].session_id)


def standing(queue: Sequence[LockRow], session_id: str) -> tuple[str, int] | None:
    """Who is first in a queue, and this session's place behind it, from 1; None for one that is not behind anybody."""
    ids = [row.session_id for row in queue]
    if session_id not in ids[1:]:
        return None
    return ids[0], ids.index(session_id)
