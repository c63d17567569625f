"""Limits of loops and loop edges (their errors, and the question at a limit), and locks, which let one session at a
time continue under a name. Pure.

`on_limit: ask` asks people when a loop with no rounds left, or a used-up loop edge, would continue. A loop's question
belongs to the loop, an edge's to the node that it leaves. Each answer allows one more time.

A flow's `lock` is one text, evaluated once when all inputs are known and before the flow starts: `lock:requested` takes
a place in the queue of that name. The store keeps the queue in the order of requests, and the first session has the
lock or gets it next: nobody hands it over. A session takes its place and takes the lock in the commit that has its
events, and that commit is undone if another session is ahead (`LockHeld`). The core cannot see the queue: the code that
performs its steps looks (`verdict`) and tells it, with `LockGranted` or `LockQueued`. Nothing of the session starts
before it has the lock; a fork requests its parent's lock again. The end of the session releases it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.decide.commands import LockGranted, LockQueued
from engine.decide.question import option, step_prompt
from engine.decide.step import Step, session_named
from engine.flow import Node
from engine.flow.model import Edge
from engine.forms.question import Question
from engine.journal import events as ev
from engine.journal.queries import pending as pending
from engine.journal.records import LockRow
from engine.journal.state import AGAIN, ROOT, Asked, State, visit_of
from engine.language.codec import Json, clean_text, encode
from engine.language.errors import SaysoError

KIND = "limit"
"""The kind of these questions."""

STOP = "fail"
"""The answer after which it fails."""


def loop_prompt(node: Node, rounds: int, attempt: int) -> Question:
    """The question about a loop that had all its rounds; `attempt` is that of the loop."""
    return _prompt(node, f" has not finished, and {_used_up(rounds, 'round')}.", attempt)


def edge_prompt(node: Node, edge: Edge, times: int) -> Question:
    """The question about a loop edge that was taken as often as it may be."""
    return _prompt(node, f" leads back to `{edge.to}` again, and {_used_up(times, 'time')}.")


def _used_up(count: int, word: str) -> str:
    return f"the one {word} is used up" if count == 1 else f"the {count} {word}s are used up"


def _prompt(node: Node, text: str, attempt: int | None = None) -> Question:
    again, go_on = option(AGAIN, "Once more", "primary"), option("continue", "Continue")
    stop = option(STOP, "Stop", "danger")
    text += " Run it once more, continue, or stop?"
    return step_prompt(node, KIND, text, again, go_on, stop, attempt=attempt)


def _asked(state: State, path: str) -> list[Asked]:
    """Return the questions about this loop in this attempt, or about the loop edge of this visit of a node."""
    attempt = state.nodes[path].attempt
    return [
        prompt
        for prompt in state.prompts.values()
        if prompt.path == path and prompt.kind == KIND and prompt.attempt in (None, attempt)
    ]


def decision(prompt: Asked) -> str:
    """Return what people decided; no decision in time counts as `stop`."""
    return STOP if prompt.status == "expired" else str((prompt.answer or {})["value"])


def times_more(state: State, path: str) -> int:
    """Return how many more rounds people allowed this loop in this attempt."""
    return sum((prompt.answer or {}).get("value") == AGAIN for prompt in _asked(state, path))


def loop_error(state: State, path: str, rounds: int) -> dict[str, Json]:
    """The error of a loop that would have another round."""
    node_id = state.nodes[path].node_id
    return _error(f"node {node_id}: not finished after {_times(rounds, 'round')}{_why(state, path)}")


def edge_error(state: State, path: str, edge: Edge, times: int) -> dict[str, Json]:
    """Return the error of a pass whose loop edge, which leaves the node at `path`, is used up."""
    taken = f"it was taken {_times(times, 'time')} and would go back again"
    return _error(f"edge {edge.from_} -> {edge.to}: {taken}{_why(state, path)}")


def _why(state: State, path: str) -> str:
    """Describe who stopped it, or the limit in the file."""
    for prompt in _asked(state, path):
        if (prompt.answer or {}).get("value") == STOP:
            return f"; stopped by {(prompt.actor or {}).get('name') or (prompt.actor or {}).get('id')}"
        if prompt.status == "expired":
            return "; nobody decided in time whether to continue"
    return " (max_iterations)"


def _times(count: int, word: str) -> str:
    return f"{count} {word}{'s' if count != 1 else ''}"


def unreached_error(finals: Sequence[str]) -> dict[str, Json]:
    """The error of a graph that ends without any of its final nodes."""
    named = ", ".join(f"`{name}`" for name in finals)
    told = (
        f"the final node {named} was not reached"
        if len(finals) == 1
        else f"no final node was reached ({named})"
    )
    return {"type": "unreached", "message": f"{told}: no edge that leads there was taken"}


def _error(message: str) -> dict[str, Json]:
    return {"type": "limit", "message": message}


def told(limit: Mapping[str, Json]) -> str:
    """An entry of `State.limits` in words."""
    word, path = ("time" if limit["to"] else "round"), str(limit["path"])
    if limit["to"]:
        # The number of times that the edge was taken identifies the visit.
        path = f"{path.removesuffix(f'~{visit_of(path)}')} → {limit['to']}"
    return f"{path} after {_times(int(limit['times']), word)}"


# --- locks -------------------------------------------------------------------------------------------------


MAX_NAME = 200
"""Characters of a lock's name at most."""


def queue_up(step: Step, values: dict[str, Json]) -> bool:
    """Request the flow's lock, if it has one; True if the flow may start. An invalid lock name fails it."""
    if step.state.lock is not None:
        return not pending(step.state)
    if step.flow.lock is None:
        return True
    try:
        value = step.flow.lock.evaluate({"inputs": values, "session": session_named(step.state)})
        if value is None:
            raise LockName("its name is null")
        name = clean_text(value if isinstance(value, str) else encode(value).decode())[0].strip()
        if not name or len(name) > MAX_NAME or not name.isprintable():
            raise LockName(f"its name must be one line of 1 to {MAX_NAME} characters, not {name[:80]!r}")
    except SaysoError as error:
        step.emit(ev.FlowFailed, error={"type": error.code, "message": f"lock: {error}"})
        return False
    step.emit(ev.LockRequested, name=name, on_conflict=step.flow.on_conflict)
    return False


class LockName(SaysoError):
    """The value of `lock` is not a valid name."""

    code = "config"


def granted(step: Step, command: LockGranted) -> None:
    """Give the session its lock, in the commit that stores this event."""
    if step.state.lock is None or not pending(step.state) or step.state.lock.name != command.name:
        return
    if step.state.phase not in ("running", "waiting", "held", "unreachable"):
        return
    step.wake(None)
    step.emit(ev.LockAcquired, name=command.name)


def queued(step: Step, command: LockQueued) -> None:
    """Wait behind another session, or with `on_conflict: refuse` end and say who has the lock. A session with earlier
    node runs (a fork) waits in either case."""
    lock = step.state.lock
    if lock is None or not pending(step.state) or lock.name != command.name:
        return
    begun = ROOT in step.state.frames
    if lock.on_conflict == "refuse" and not begun and step.state.phase in ("running", "waiting"):
        step.wake(None)
        step.emit(ev.FlowFailed, error=refusal(command))
    elif step.state.phase == "running":
        step.pause(None, f"waiting for lock {lock.name}")


def refusal(command: LockQueued) -> dict[str, Json]:
    message = (
        f"lock {command.name} is held by {command.holder}; nothing was started. Start it again when that "
        "session has ended."
    )
    held_by: dict[str, Json] = {"sessionId": command.holder, "threadKey": command.thread_key}
    return {"type": "locked", "message": message, "lock": command.name, "heldBy": held_by}


def verdict(queue: Sequence[LockRow], state: State) -> LockGranted | LockQueued:
    """Return the position of a session that requested a lock: the first in the queue has it."""
    assert state.lock is not None
    if not queue or queue[0].session_id == state.session_id:
        return LockGranted(state.lock.name)
    return LockQueued(state.lock.name, queue[0].session_id)


def standing(queue: Sequence[LockRow], session_id: str) -> tuple[str, int] | None:
    """Return the first session of a queue and this session's position behind it, from 1; None if it is behind nobody."""
    ids = [row.session_id for row in queue]
    if session_id not in ids[1:]:
        return None
    return ids[0], ids.index(session_id)
