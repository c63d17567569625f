"""The contract of prompts, timers, intents and marks, for every backend."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from engine.journal.records import DropTimer, InboxItem, OutboxRow, PromptRow, PutOutbox, Timer
from engine.language.errors import StorageError
from engine.storage.store import Store
from tests.storage.storagekit import NOW, at, done, event, new_session

MESSAGE = InboxItem("m1", "message", b"{}", "session-1", "T1:C1:1.0")


# --- prompts, timers -------------------------------------------------------------------------------------


def prompt(
    prompt_id: str, session_id: str = "session-1", status: str = "open", thread: str = "T"
) -> PromptRow:
    return PromptRow(prompt_id, session_id, thread, status, at(60), b"{}")


def test_prompts_are_replaced_and_found(store: Store) -> None:
    """A prompt keeps its place when it is replaced, and is found by thread, session and status."""
    store.inbox.ingest([MESSAGE], NOW)
    store.consume([], NOW, [prompt("p1"), prompt("p2", "session-2"), prompt("p3", thread="U")])
    store.consume([], NOW, [prompt("p1", status="answered")])
    assert store.prompts.row("p1") == prompt("p1", status="answered")
    assert store.prompts.row("none") is None

    def ids(**filters: object) -> list[str]:
        return [row.prompt_id for row in store.prompts.rows(**filters)]  # type: ignore[arg-type]  # spread filters

    assert ids() == ["p1", "p2", "p3"]
    assert ids(limit=2) == ["p1", "p2"]
    assert ids(thread_key="T") == ["p1", "p2"]
    assert ids(session_id="session-1") == ["p1", "p3"]
    assert ids(session_id="session-1", thread_key="U") == ["p3"]
    assert ids(statuses=["open"]) == ["p2", "p3"]
    assert ids(statuses=["open"], thread_key="T") == ["p2"]
    assert ids(statuses=["open"], limit=1) == ["p2"]


def test_a_prompt_id_belongs_to_one_session(store: Store) -> None:
    """Another session cannot take a prompt over."""
    store.consume([], NOW, [prompt("p1")])
    with pytest.raises(StorageError, match="p1"):
        store.consume([], NOW, [prompt("p1", "session-2")])


def test_timers_of_what_is_set_aside_are_due_once_it_is_released(store: Store) -> None:
    """Nothing of such a session runs, so nobody looks at its timers, however many there are."""
    owner = store.register("bot")
    names = ["session-1", "session-2"]
    done(store, *(new_session(name, owner, event("a"), rows=(Timer("t", name, NOW),)) for name in names))
    store.quarantine("session-1", "bad", NOW)
    assert [row.session_id for row in store.timers.rows()] == ["session-2"]
    assert [row.session_id for row in store.timers.rows(due=NOW)] == ["session-2"]
    store.sessions.release("session-1")
    assert [row.session_id for row in store.timers.rows(due=NOW)] == names


def test_timers_are_set_moved_dropped_and_due(store: Store) -> None:
    """A timer id is the session's own; due are those at or before the moment."""
    store.consume(
        [],
        NOW,
        [
            Timer("t", "session-1", at(30)),
            Timer("t", "session-2", at(10)),
            Timer("u", "session-1", at(20)),
        ],
    )
    assert [row.due_at for row in store.timers.rows()] == [at(10), at(20), at(30)]
    assert store.timers.rows(due=at(20)) == [Timer("t", "session-2", at(10)), Timer("u", "session-1", at(20))]
    assert len(store.timers.rows(limit=1)) == 1
    store.consume(
        [],
        NOW,
        [
            Timer("t", "session-1", at(5)),
            DropTimer("u", "session-1"),
            DropTimer("t", "session-none"),
        ],
    )
    assert store.timers.rows() == [Timer("t", "session-1", at(5)), Timer("t", "session-2", at(10))]


# --- outbox, marks ---------------------------------------------------------------------------------------


def put(store: Store, *rows: PutOutbox, now: str = NOW) -> None:
    store.consume([], now, rows)


def found(store: Store, key: str) -> OutboxRow:
    row = store.outbox.row(key)
    assert row is not None
    return row


def test_an_intent_is_stored_once(store: Store) -> None:
    """A second one with its key is a no-op."""
    put(store, PutOutbox("k", "lane", "post", b"1", "session-1"))
    put(store, PutOutbox("k", "other", "edit", b"2"))
    columns = (1, "k", "lane", "post", b"1", "session-1", "pending", 1, 0, None, NOW, None, None)
    expected = OutboxRow(*columns)  # type: ignore[arg-type]  # in the order of the table
    assert found(store, "k") == expected
    assert store.outbox.due(now=NOW) == [expected]
    assert store.outbox.row("none") is None


def test_an_attempt_is_counted_before_the_request(store: Store) -> None:
    """Attempts without a result tell that something may have been sent."""
    put(store, PutOutbox("k", "lane", "post", b"1"))
    store.outbox.attempt(1, 0, at(1))
    store.outbox.attempt(1, 1, at(2))
    row = found(store, "k")
    assert (row.attempts, row.attempted_at, row.state, row.result) == (2, at(2), "pending", None)


def test_a_finished_intent_is_done_and_what_follows_is_ingested(store: Store) -> None:
    """The result and the inbox item that tells of it are stored together."""
    put(store, PutOutbox("k", "lane", "post", b"1"))
    store.outbox.attempt(1, 0, at(1))
    assert store.outbox.finish(1, 1, now=at(2), state="sent", result=b'{"ts":"1.0"}', items=[MESSAGE])
    assert store.outbox.due(now=at(9)) == []
    assert found(store, "k").result == b'{"ts":"1.0"}'
    assert [row.key for row in store.inbox.rows()] == ["m1"]


def test_a_replaced_intent_is_pending_again_with_its_result(store: Store) -> None:
    """A card that is edited keeps the message it edits, and continues counting."""
    put(store, PutOutbox("k", "lane", "card", b"1"))
    store.outbox.attempt(1, 0, at(1))
    store.outbox.finish(1, 1, now=at(1), state="sent", result=b"ts")
    put(store, PutOutbox("k", "lane", "card", b"2", not_before=at(5), replace=True))
    row = found(store, "k")
    assert (row.id, row.payload, row.rev, row.state) == (1, b"2", 2, "pending")
    assert (row.attempts, row.result, row.not_before) == (1, b"ts", at(5))
    assert store.outbox.finish(1, 2, now=at(6), state="sent")
    assert found(store, "k").result == b"ts"


def test_a_replacement_forgets_no_attempt_that_is_out(store: Store) -> None:
    """An attempt that follows a refused one still counts after a replacement: what became of it is not known."""
    put(store, PutOutbox("k", "lane", "card", b"1"))
    store.outbox.attempt(1, 0, at(1))
    store.outbox.finish(1, 1, now=at(1), state="pending", result=b'{"refused":"limited","attempt":1}')
    store.outbox.attempt(1, 1, at(2))
    put(store, PutOutbox("k", "lane", "card", b"2", replace=True))
    assert found(store, "k").attempts == 2


def test_a_replacement_during_an_attempt_keeps_the_result_and_stays_pending(store: Store) -> None:
    """What was sent meanwhile was the older revision: its result counts, the newer is still to be sent."""
    put(store, PutOutbox("k", "lane", "card", b"1"))
    store.outbox.attempt(1, 0, at(1))
    put(store, PutOutbox("k", "lane", "card", b"2", replace=True))
    assert found(store, "k").attempts == 1
    assert not store.outbox.finish(1, 1, now=at(2), state="sent", result=b"ts", items=[MESSAGE])
    row = found(store, "k")
    assert (row.state, row.rev, row.payload, row.result) == ("pending", 2, b"2", b"ts")
    assert len(store.inbox.rows()) == 1


def test_intents_wait_for_their_time(store: Store) -> None:
    """An intent whose time has not come is not given."""
    put(store, PutOutbox("k", "a", "post", b"1", not_before=at(10)), PutOutbox("l", "b", "post", b"1"))
    assert [row.key for row in store.outbox.due(now=at(9))] == ["l"]
    assert [row.key for row in store.outbox.due(now=at(10))] == ["k", "l"]
    assert [row.key for row in store.outbox.due(now=at(10), limit=1)] == ["k"]


def test_an_attempted_intent_that_waits_holds_its_lane(store: Store) -> None:
    """Rows of a lane stay in order through a retry; a row that merely is not due holds nobody."""
    put(store, PutOutbox("later", "a", "post", b"1", not_before=at(90)))
    put(store, PutOutbox("k", "a", "post", b"1"), PutOutbox("l", "a", "post", b"1"))
    put(store, PutOutbox("m", "b", "post", b"1"))
    row = found(store, "k")
    store.outbox.attempt(row.id, 0, NOW)
    store.outbox.finish(row.id, 1, now=NOW, state="pending", not_before=at(10))
    assert [row.key for row in store.outbox.due(now=at(9))] == ["m"]
    assert [row.key for row in store.outbox.due(now=at(10))] == ["k", "l", "m"]


def _due(rows: Sequence[OutboxRow], now: str) -> list[str]:
    """What `Store.outbox` promises, row by row."""
    waiting = [row for row in rows if row.attempts and (row.not_before or "") > now]
    return [
        row.key
        for row in rows
        if (row.not_before or "") <= now
        and not any(ahead.lane == row.lane and ahead.id < row.id for ahead in waiting)
    ]


def test_what_is_due_is_what_is_promised_in_any_mixture(store: Store) -> None:
    """Of lanes with rows that wait, were tried or are free, each row is given or held back as is said."""
    random = Random(7)
    times = [None, at(5), at(20)]
    put(store, *(PutOutbox(f"k{n}", random.choice("abcd"), "post", b"1") for n in range(60)))
    for row in store.outbox.due(now=NOW, limit=None):
        for _ in range(random.choice([0, 0, 1])):
            store.outbox.attempt(row.id, 0, NOW)
        if (not_before := random.choice(times)) is not None or random.random() < 0.2:
            state = "pending" if not_before is not None else "sent"
            store.outbox.finish(row.id, 1, now=NOW, state=state, not_before=not_before)
    rows = [row for n in range(60) if (row := found(store, f"k{n}")).state == "pending"]
    for now in (at(1), at(9), at(30)):
        expected = _due(rows, now)
        assert [row.key for row in store.outbox.due(now=now, limit=None)] == expected
        assert [row.key for row in store.outbox.due(now=now, limit=3)] == expected[:3]


def test_an_absent_intent_is_an_error(store: Store) -> None:
    """Attempts and results belong to a row; what came with them is not stored."""
    with pytest.raises(StorageError, match="5"):
        store.outbox.attempt(5, 0, NOW)
    with pytest.raises(StorageError, match="5"):
        store.outbox.finish(5, 1, now=NOW, state="sent", items=[MESSAGE])
    assert store.inbox.rows() == []


def test_marks_never_go_back(store: Store) -> None:
    """A mark moves forward only, by time and not by spelling."""
    assert store.marks.ts("T1:C1") is None
    store.marks.move("T1:C1", "999999999.000100")
    store.marks.move("T1:C1", "1700000000.000200")
    store.marks.move("T1:C1", "1700000000.000100")
    store.marks.move("T1:C1", "999999999.999999")
    assert store.marks.ts("T1:C1") == "1700000000.000200"
    assert store.marks.ts("T1:C2") is None


def test_marks_are_found_by_how_they_begin(store: Store) -> None:
    """All marks of a kind are read in the order of their scopes, and no others."""
    for scope in ("alias:C2:C3", "alias:C1:C2", "aliases", "T1:C1"):
        store.marks.move(scope, "1700000000.000100")
    found = [("alias:C1:C2", "1700000000.000100"), ("alias:C2:C3", "1700000000.000100")]
    assert store.marks.rows("alias:") == found
    assert store.marks.rows("nothing") == []
