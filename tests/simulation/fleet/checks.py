"""What must be true at the end of every run of a fleet, read from the store and from what was done outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

from engine.journal.events import Event, decode_event
from engine.journal.fold import derive_state
from engine.language.errors import SaysoError
from tests.simulation.fleet.world import FleetWorld
from tests.support.engine import check_starts

_STARTS = ("node:started", "container:childStarted")


def check(world: FleetWorld) -> Iterator[str]:
    """Everything that is wrong, in words."""
    store, used = world.store, Counter[str]()
    for key in world.sent:
        row = store.inbox.row(key)
        if row is None or row.outcome is None:
            yield f"{key} was not handled"
        elif row.outcome not in ("started", "applied", "refused"):
            yield f"{key} is {row.outcome}: {row.result!r}"
    for session in world.sessions:
        head = store.sessions.head(session)
        if head is None or head.quarantined is not None or head.status != "complete":
            yield f"{session} is {head and (head.status, head.quarantined)}"
            continue
        events = [decode_event(body) for body in store.sessions.journal(session)]
        used.update(event.key for event in events if event.type == "prompt:answered")
        yield from _of_session(world, session, events)
    for key, times in used.items():
        row = store.inbox.row(key)
        if times > 1 or row is None or row.outcome != "applied":
            yield f"{key} was applied {times} times, and its row says {row and row.outcome}"
    if len(used) < sum(key.startswith("answer:") and key.endswith(":0") for key in world.sent):
        yield f"{len(used)} questions were answered"
    yield from _in_order(world)
    if store.outbox.due(now="9999"):
        yield "the outbox is not empty"
    yield from (
        f"{key} was posted {times} times" for key, times in Counter(world.posted).items() if times > 1
    )


def _of_session(world: FleetWorld, session: str, events: list[Event]) -> Iterator[str]:
    try:
        derive_state(events)
        check_starts(events)
    except (SaysoError, AssertionError) as error:
        yield f"the journal of {session} does not fit together: {error}"
    answered = Counter(event.prompt_id for event in events if event.type == "prompt:answered")
    yield from (f"{prompt} was answered {times} times" for prompt, times in answered.items() if times > 1)
    started = {(event.path, event.attempt) for event in events if event.type in _STARTS}
    ended = Counter(event.path for event in events if event.type == "node:completed")
    ran = Counter((path, attempt) for name, path, attempt in world.ran if name == session)
    yield from (f"{session} ran {what} {times} times" for what, times in ran.items() if times > 1)
    yield from (f"{session} ran {what}, which was not started" for what in ran.keys() - started)
    yield from (f"{session} completed {path} {times} times" for path, times in ended.items() if times > 1)


def _in_order(world: FleetWorld) -> Iterator[str]:
    """Rows of a lane that all can read are handled in the order in which they could be seen, where their ids say the same."""
    done = {row_id: place for place, row_id in enumerate(world.done)}
    for lane in world.lanes.values():
        rows = [row for row in lane if row.kind != "newer"]
        for earlier, later in combinations(rows, 2):
            if earlier.id < later.id and done.get(later.id, 0) < done.get(earlier.id, 0):
                yield f"{later.key} was handled before {earlier.key}"
