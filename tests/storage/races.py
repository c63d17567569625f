"""Races: what several processes do at the same time to one database, what must come of it, and faults that a race finds.

Run as a program it is one of the processes: it is told which race, which round and which fault, and answers with what
came of its part.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from engine.journal.records import (
    Commit,
    Consumed,
    InboxItem,
    NewSession,
    PutLock,
    PutOutbox,
    PutSpend,
    Sweep,
    TakeLock,
)
from engine.storage import rows, sessions
from engine.storage import store as stores
from engine.storage.open import open_store
from engine.storage.sealing import digest_of
from engine.storage.store import Store
from tests.storage.storagekit import KEY, NOW, at, done, event, new_session, outcome, step

Part = Callable[[Store, str, int, int], object]
"""What process `me` does in a round; its `owner` is the second argument."""
_ITEMS = 12
_BATCHES = 5
_OF_FLOWS = next(stage for stage, table in enumerate(stores._SWEPT) if table.held)


def claims(store: Store, owner: str, number: int, me: int) -> object:
    """Claim one session, which is at epoch 1."""
    commit = Commit(f"claimed-{number}", 2, 1, NOW, "running", "running", owner=owner)
    return outcome(lambda: done(store, commit))


def creations(store: Store, owner: str, number: int, me: int) -> object:
    """Create one session."""
    return outcome(lambda: done(store, new_session(f"made-{number}", owner, event(str(me)))))


def consumptions(store: Store, owner: str, number: int, me: int) -> object:
    """Consume one inbox row."""
    row = store.inbox.row(f"taken-{number}")
    assert row is not None
    return outcome(lambda: store.consume([Consumed(row.id, "applied", b"%d" % me)], NOW))


def keys(store: Store, owner: str, number: int, me: int) -> object:
    """Store items under fresh keys, and one under a key that all have."""
    fresh = [InboxItem(f"fresh-{number}-{me}-{one}", "message", b"{}") for one in range(_ITEMS)]
    return outcome(lambda: store.inbox.ingest([InboxItem(f"all-{number}", "message", b"{}"), *fresh], NOW))


def intents(store: Store, owner: str, number: int, me: int) -> object:
    """Store intents under fresh keys, and replace one that all have."""
    fresh = [PutOutbox(f"intent-{number}-{me}-{one}", "T1:C1", "post", b"{}") for one in range(_ITEMS)]
    card = PutOutbox(f"card-{number}", "T1:C1", "post", b"%d" % me, replace=True)
    return outcome(lambda: store.consume([], NOW, [*fresh, card]))


def caps(store: Store, owner: str, number: int, me: int) -> object:
    """Set 10 aside on a day on which 30 may be."""
    put = PutSpend(f"spender-{number}-{me}", "root/agent", 1, "deploy", f"day-{number}", 10, 30)
    return outcome(lambda: store.consume([], NOW, [put]))


def places(store: Store, owner: str, number: int, me: int) -> object:
    """Take a place in the queue for one lock, and take the lock."""
    name, session = f"lock-{number}", f"waiting-{me}"
    return outcome(lambda: store.consume([], NOW, [PutLock(name, session), TakeLock(name, session)]))


def marks(store: Store, owner: str, number: int, me: int) -> object:
    """Move one mark to somewhere."""
    return outcome(lambda: store.marks.move(f"mark-{number}", f"{1000 + me}.000100"))


def cursor(store: Store, owner: str, number: int, me: int) -> object:
    """Read the inbox from where reading ended, until everything was seen that the others store; or store it."""
    if me:
        for batch in range(_BATCHES):
            store.inbox.ingest(
                [InboxItem(f"read-{number}-{me}-{batch}-{one}", "message", b"{}") for one in range(_ITEMS)],
                NOW,
            )
        return None
    first = store.inbox.row(f"before-{number}")
    assert first is not None
    after, seen = first.id, 0
    for _ in range(100):
        for row in store.inbox.rows(after=after, limit=None):
            after = row.id
            seen += row.key.startswith(f"read-{number}-")
    return [seen, after]


def pins(store: Store, owner: str, number: int, me: int) -> object:
    """Delete texts of flows that nobody pins; or pin one of them."""
    if me == 0:
        for _ in range(20):
            found: Sweep | None = Sweep(at(0), at(0), stage=_OF_FLOWS, after="")
            while found is not None:
                found = store.sweep(found)
        return None
    body = b'{"flow":"deploy-%d"}' % number
    new = NewSession("deploy", digest_of(body), body, None)
    commit = Commit(f"pins-{number}-{me}", 1, 0, NOW, "running", "running", new=new, owner=owner)
    return outcome(lambda: done(store, commit))


RACES: dict[str, Part] = {
    part.__name__: part
    for part in (claims, creations, consumptions, keys, intents, caps, places, marks, cursor, pins)
}


def prepare(race: str, store: Store, number: int) -> None:
    """What has to be there before a round."""
    if race == "claims":
        done(store, new_session(f"claimed-{number}", None, event("a")))
    elif race == "consumptions":
        store.inbox.ingest([InboxItem(f"taken-{number}", "message", b"{}")], NOW)
    elif race == "cursor":
        store.inbox.ingest([InboxItem(f"before-{number}", "message", b"{}")], NOW)
    elif race == "pins":
        body = b'{"flow":"deploy-%d"}' % number
        new = NewSession("deploy", digest_of(body), body, None)
        name = f"pinned-{number}"
        done(store, Commit(name, 1, 0, NOW, "running", "running", events=(event("a"),), new=new))
        done(store, step(name, 1, 1, event("b"), status="complete", phase="ended", release=True))
        while store.sessions.delete([name]):
            pass


def verdict(race: str, store: Store, number: int, found: list[Any]) -> object:
    """What came of a round, in a form in which it is always the same."""
    count = len(found)
    match race:
        case "claims":
            lost = {"Owned", "Overtaken"}
            return found.count(None) == 1 and set(map(str, found)) <= {*lost, "None"}, _owned(store, number)
        case "creations":
            return sorted(map(str, found)) == sorted(["None", *["Fenced"] * (count - 1)])
        case "consumptions":
            return sorted(map(str, found)) == sorted(["None", *["Fenced"] * (count - 1)])
        case "keys":
            return (
                sum(answer[0] is not None for answer in found) == 1,
                len({row_id for answer in found for row_id in answer if row_id}) == count * _ITEMS + 1,
            )
        case "intents":
            card = store.outbox.row(f"card-{number}")
            return found == [None] * count, card is not None and card.rev == count
        case "caps":
            return found.count(None) == 3, found.count("DayBudgetSpent") == count - 3
        case "places":
            queue = store.locks.rows(f"lock-{number}")
            return found.count(None) == 1, found.count("LockHeld") == count - 1, queue[0].taken_at == NOW
        case "marks":
            return found == [None] * count, store.marks.ts(f"mark-{number}") == f"{1000 + count - 1}.000100"
        case "cursor":
            seen, after = found[0]
            late = [
                row.key.startswith(f"read-{number}-") for row in store.inbox.rows(after=after, limit=None)
            ]
            return seen + sum(late) == (count - 1) * _ITEMS * _BATCHES
        case _:
            body = b'{"flow":"deploy-%d"}' % number
            return found == [None] * count, outcome(lambda: store.flows.text(digest_of(body))) == body


def _owned(store: Store, number: int) -> bool:
    head = store.sessions.head(f"claimed-{number}")
    return head is not None and head.epoch == 2 and head.owner is not None


# --- faults --------------------------------------------------------------------------------------------------


def _nobody_holds(patch: pytest.MonkeyPatch) -> None:
    from engine.storage.postgres_connection import PostgresConnection

    patch.setattr(PostgresConnection, "hold", lambda self, *names, shared=False: None)


def _reads_are_not_for_update(patch: pytest.MonkeyPatch) -> None:
    from engine.storage.postgres_connection import PostgresConnection

    patch.setattr(PostgresConnection, "for_update", "")


def _claims_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    blind = sessions._ADVANCE.replace(
        "epoch = ? AND seq = ? AND mac = ?", "(epoch = ? OR seq = ? OR mac = ? OR true)"
    )
    assert blind != sessions._ADVANCE
    patch.setattr(sessions, "_ADVANCE", blind)


def _heads_are_inserted_blindly(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sessions, "_INSERT_HEAD", sessions.HEADS.insert)


def _keys_are_inserted_blindly(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rows, "_PUT_INBOX", rows.INBOX.insert)


def _numbers_are_looked_up(patch: pytest.MonkeyPatch) -> None:
    from engine.storage.postgres_connection import PostgresConnection

    def number(self: Any, table: str, column: str, look: str) -> int:
        return int(self.one(f"SELECT coalesce(max({column}), 0) + 1 FROM {table}")[0])  # noqa: S608

    patch.setattr(PostgresConnection, "next_number", number)


def _texts_are_not_held(patch: pytest.MonkeyPatch) -> None:
    """Between the look and the deletion others have time to pin a text."""
    from engine.storage.postgres_connection import PostgresConnection

    many = PostgresConnection.many

    def later(self: Any, sql: str, rows: Any) -> None:
        self.raw.execute("SELECT pg_sleep(0.02)")
        many(self, sql, rows)

    _nobody_holds(patch)
    patch.setattr(PostgresConnection, "for_update", "")
    patch.setattr(PostgresConnection, "many", later)


FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "a claim is not compared with what it found": (_claims_are_not_compared, "claims"),
    "a session is created blindly": (_heads_are_inserted_blindly, "creations"),
    "a row is consumed that was read without a lock": (_reads_are_not_for_update, "consumptions"),
    "a key is stored blindly": (_keys_are_inserted_blindly, "keys"),
    "a number is the greatest and one": (_numbers_are_looked_up, "intents"),
    "an intent is replaced that was read without a lock": (_reads_are_not_for_update, "intents"),
    "a day's spending is not held": (_nobody_holds, "caps"),
    "a queue is not held": (_nobody_holds, "places"),
    "a mark is not held": (_nobody_holds, "marks"),
    "the inbox is not held": (_nobody_holds, "cursor"),
    "texts of flows are not held": (_texts_are_not_held, "pins"),
}
"""Each fault, and the race that finds it."""


# --- a process -----------------------------------------------------------------------------------------------


def main(url: str, me: int) -> None:
    """Take part in races."""
    store = open_store(url, KEY)
    owner = store.register("bot")
    print("ready", flush=True)
    for line in sys.stdin:
        race, number, fault = line.rstrip("\n").split("|")
        with pytest.MonkeyPatch.context() as patch:
            if fault:
                FAULTS[fault][0](patch)
            found = outcome(lambda: RACES[race](store, owner, int(number), me))  # noqa: B023
        print(json.dumps(found.__name__ if isinstance(found, type) else found), flush=True)
    with suppress(Exception):
        store.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
