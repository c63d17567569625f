"""Rows changed from outside are rebuilt, refused or left out, but never used."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import astuple

from engine.journal.records import Consumed, InboxItem, Loaded, PutOutbox
from engine.language.errors import Corrupt, Fenced, KeyMissing, SaysoError, StoreSuspended
from engine.storage import tables
from engine.storage.sealing import Sealer
from engine.storage.sqlite import open_sqlite
from engine.storage.store import Store
from tests.storage.storagekit import (
    KEY,
    NOW,
    Refused,
    SqliteBackend,
    at,
    claim,
    done,
    event,
    head_of,
    new_session,
    outcome,
    reaped,
    rich_session,
    step,
    tried,
)
from tests.support.proving import PROVE

EVENTS = (event("a"), event("b"), event("c"), event("d"))


def flips(value: Any) -> list[Any]:
    """The value with each byte changed in turn (numbers: some neighbours; nothing: something)."""
    if value is None:
        return [b"x"]
    if isinstance(value, int):
        return [value + 1, value - 1, -value, value + 2**40]
    return [
        value[:place] + bytes([value[place] ^ bit]) + value[place + 1 :]
        for place in range(len(value))
        for bit in (0x01, 0x80)
    ]


def all_flips(backend: SqliteBackend, table: str) -> list[tuple[int, str, Any, Any]]:
    """Row, column, old and new value of every single change in a table."""
    return [
        (row, column, old, new)
        for row, values in enumerate(backend.rows(table))
        for column, old in values.items()
        if column != "n"
        for new in flips(old)
    ]


def place_of(backend: SqliteBackend, table: str, column: str, value: Any, rest: dict[str, Any]) -> int:
    """Where a row stands now (a changed key may have moved it)."""
    for place, values in enumerate(backend.rows(table)):
        if values == {**rest, column: value}:
            return place
    raise AssertionError("the changed row is not there")


@pytest.mark.parametrize("table", ["sessions", "journal", "snapshots"])
def test_no_change_of_a_sessions_rows_is_believed(backend: SqliteBackend, store: Store, table: str) -> None:
    """Every byte of head, journal and snapshot changed (on a server each tenth, and all with PROVE=1): the session is refused, or
    rebuilt to the same state."""
    rich_session(store)
    good = store.sessions.load("session-1")
    whole = Loaded(good.head, None, 0, EVENTS)
    assert good == Loaded(good.head, b'{"at":2}', 2, EVENTS[2:])
    seen, ending = set(), store.sessions.ending("session-1", 1)
    changes = all_flips(backend, table)
    assert len(changes) > 100
    if store.shared and not PROVE:
        changes = changes[::10]
    for row, column, old, new in changes:
        rest = backend.rows(table)[row]
        try:
            backend.change(table, row, column, new)
        except (apsw.ConstraintError, Refused):
            continue  # the database itself refuses a value of this kind there
        last = outcome(lambda: store.sessions.ending("session-1", 1))
        assert last in (ending, Corrupt), f"{table}.{column}: {old!r} became {new!r}"
        found = outcome(lambda: store.sessions.load("session-1"))
        assert found in (good, whole, Corrupt), f"{table}.{column}: {old!r} became {new!r}"
        read = outcome(lambda: tuple(store.sessions.journal("session-1")))
        assert read in (EVENTS, Corrupt), f"{table}.{column}: {old!r} became {new!r}"
        seen.add(found)
        backend.change(table, place_of(backend, table, column, new, rest), column, old)
    assert seen >= ({Corrupt} if table != "snapshots" else {whole})
    assert store.sessions.load("session-1") == good


def swap(backend: SqliteBackend, table: str, columns: tuple[str, ...]) -> None:
    """Put two genuine rows into each other's place."""
    first, second = backend.rows(table)[:2]
    for column in columns:
        backend.change(table, 0, column, second[column])
    for column in columns:
        backend.change(table, 1, column, first[column])


REBUILT, SHORT = (None, 0, EVENTS), (b'{"at":2}', 2, EVENTS[2:])
"""What is loaded without the snapshot, and with it."""
DAMAGES: dict[str, tuple[Callable[[SqliteBackend], None], object, object]] = {
    "the last row is gone": (lambda backend: backend.delete("journal", 2), Corrupt, Corrupt),
    "a row in the middle is gone": (lambda backend: backend.delete("journal", 1), Corrupt, Corrupt),
    "a row before the snapshot is gone": (lambda backend: backend.delete("journal", 0), SHORT, Corrupt),
    "two rows are swapped": (lambda backend: swap(backend, "journal", ("body", "mac")), Corrupt, Corrupt),
    "the snapshot is gone": (lambda backend: backend.delete("snapshots", 0), REBUILT, EVENTS),
}
"""What is damaged, what is loaded then, and what reading the whole journal gives: the snapshot is a cache, and what it covers
is not read again."""


@pytest.mark.parametrize("name", DAMAGES)
def test_rows_that_are_gone_or_in_another_place_are_noticed(
    backend: SqliteBackend, store: Store, name: str
) -> None:
    """The head's MAC covers the last row, and each row the one before it: nothing shorter or in another order is believed."""
    rich_session(store)
    damage, loaded, journal = DAMAGES[name]
    damage(backend)
    found = outcome(lambda: astuple(store.sessions.load("session-1"))[1:])
    assert found == loaded
    assert outcome(lambda: tuple(store.sessions.journal("session-1"))) == journal


def test_a_snapshot_of_another_session_is_ignored(backend: SqliteBackend, store: Store) -> None:
    """A genuine snapshot in the wrong place is worth nothing."""
    rich_session(store, "session-1")
    rich_session(store, "session-2")
    swap(backend, "snapshots", ("seq", "chain", "body", "mac"))
    for session_id in ("session-1", "session-2"):
        assert astuple(store.sessions.load(session_id))[1:] == REBUILT


def test_a_rolled_back_head_is_noticed(backend: SqliteBackend, store: Store) -> None:
    """An older head that was genuine once does not fit the journal, and takes no commit."""
    rich_session(store)
    older = backend.rows("sessions")[0]
    done(store, step("session-1", 1, 4, event("e")))
    for column, value in older.items():
        backend.change("sessions", 0, column, value)
    with pytest.raises(Corrupt, match="rolled back"):
        store.sessions.load("session-1")
    fresh = backend.open()
    refused = outcome(lambda: tried(fresh, [step("session-1", 1, 4, event("x"))])[0])
    assert refused is StoreSuspended or isinstance(refused, Corrupt)
    [error] = tried(store, [step("session-1", 1, 5, event("x"))])
    assert isinstance(error, Fenced)
    fresh.close()


def test_a_head_that_was_removed_is_noticed(backend: SqliteBackend, store: Store) -> None:
    """A journal without its head is not an unknown session."""
    rich_session(store)
    backend.delete("sessions", 0)
    with pytest.raises(Corrupt, match="head was removed"):
        store.sessions.load("session-1")
    store.quarantine("session-1", "its head is gone", NOW)


def test_a_bad_head_is_refused_everywhere_until_it_is_set_aside(backend: SqliteBackend, store: Store) -> None:
    """Nothing runs on it; lists name it; quarantine works and leaves the row as evidence."""
    owner = rich_session(store)
    backend.change("sessions", 0, "phase", b"rigged")
    before = backend.rows("sessions")
    for work in (
        lambda: store.sessions.head("session-1"),
        lambda: store.sessions.load("session-1"),
        lambda: store.sessions.journal("session-1"),
        lambda: claim(store, "session-1", owner, NOW),
    ):
        with pytest.raises(Corrupt):
            work()
    fresh = backend.open()
    [error] = tried(fresh, [step("session-1", 1, 4, event("e"))])
    assert isinstance(error, Corrupt)
    [listed] = fresh.sessions.heads()
    assert listed.quarantined is not None
    assert "does not verify" in listed.quarantined
    fresh.quarantine("session-1", "bad head", NOW)
    head = head_of(fresh, "session-1")
    assert (head.quarantined, head.phase) == ("bad head", "rigged")
    assert backend.rows("sessions") == before
    fresh.close()


def test_a_bad_head_is_an_orphan(backend: SqliteBackend, store: Store) -> None:
    """The sweep finds a session whose head was changed, so that it can be set aside."""
    done(store, new_session("session-1", None, event("a")))
    with suppress(Refused):
        backend.change("sessions", 0, "owner", b"\xff\xfe")
    assert store.sessions.orphans() in (["session-1"], [])
    backend.change("sessions", 0, "owner", b"ghost")
    assert store.sessions.orphans() == ["session-1"]


def test_a_changed_quarantine_note_still_sets_aside(backend: SqliteBackend, store: Store) -> None:
    """A damaged note frees nobody."""
    owner = rich_session(store)
    store.quarantine("session-1", "bad", NOW)
    for value in (b"fine", b"\xff"):
        with suppress(Refused):
            backend.change("quarantine", 0, "reason", value)
        head = head_of(store, "session-1")
        assert head.quarantined in (
            "its quarantine note does not verify",
            "its quarantine note is unreadable",
        )
        with pytest.raises(SaysoError, match="on hold"):
            claim(store, "session-1", owner, NOW)


@pytest.mark.parametrize(
    "column", ["key", "kind", "payload", "session_id", "thread_key", "received_at", "result", "mac"]
)
@pytest.mark.parametrize("text", [True, False])
def test_a_changed_message_is_marked_and_left_out(
    backend: SqliteBackend, store: Store, column: str, text: bool
) -> None:
    """A message that was changed is never acted upon, and does not hold up the others."""
    store.inbox.ingest([InboxItem(f"m{n}", "message", b"{}", "session-1", "T") for n in (1, 2)], NOW)
    backend.change("inbox", 0, column, b"x" * 32 if text else b"\xff" * 32)
    assert [row.key for row in store.inbox.rows()] == ["m2"]
    assert [row["outcome"] for row in backend.rows("inbox")] == [b"corrupt", None]
    assert [row.key for row in store.inbox.rows()] == ["m2"]
    with pytest.raises(Corrupt):
        store.consume([Consumed(1, "applied"), Consumed(2, "applied")], NOW)
    if column != "key":
        with pytest.raises(Corrupt):
            store.inbox.row("m1")


def test_a_consumed_message_does_not_come_back(backend: SqliteBackend, store: Store) -> None:
    """Erasing the outcome from outside does not make a message new."""
    store.inbox.ingest([InboxItem("m1", "message", b"{}")], NOW)
    store.consume([Consumed(1, "applied")], NOW)
    backend.change("inbox", 0, "outcome", None)
    assert store.inbox.rows() == []


@pytest.mark.parametrize(
    "column", ["prompt_id", "session_id", "thread_key", "status", "deadline", "body", "mac"]
)
@pytest.mark.parametrize("value", [b"open2", b"\xff"])
def test_a_changed_prompt_is_left_out(
    backend: SqliteBackend, store: Store, column: str, value: bytes
) -> None:
    """Nobody answers a prompt that was changed; other prompts are still there."""
    rich_session(store, "session-1")
    rich_session(store, "session-2")
    backend.change("prompts", 0, column, value)
    assert [row.prompt_id for row in store.prompts.rows()] == ["prompt-session-2"]
    # Under a changed id there is no such prompt any more; otherwise it is there and refused.
    found = outcome(lambda: store.prompts.row("prompt-session-1"))
    assert found is Corrupt or (column == "prompt_id" and found is None)


@pytest.mark.parametrize("column", ["timer_id", "session_id", "due_at", "mac"])
@pytest.mark.parametrize("value", [b"0", b"\xff"])
def test_a_changed_timer_is_left_out(backend: SqliteBackend, store: Store, column: str, value: bytes) -> None:
    """A timer that was changed does not fire, and does not hold up the others."""
    rich_session(store, "session-1")
    rich_session(store, "session-2")
    backend.change("timers", 0, column, value)
    assert [row.session_id for row in store.timers.rows()] == ["session-2"]


OUTBOX = ["key", "lane", "kind", "payload", "session_id", "created_at", "attempted_at", "result", "mac"]


@pytest.mark.parametrize("column", OUTBOX)
@pytest.mark.parametrize("value", [b"0", b"\xff"])
def test_a_changed_intent_is_never_sent(
    backend: SqliteBackend, store: Store, column: str, value: bytes
) -> None:
    """Text that was changed is not posted in the bot's name; the row is set to failed once."""
    store.consume([], NOW, [PutOutbox(f"k{n}", f"lane{n}", "post", b"{}") for n in (1, 2)])
    backend.change("outbox", 0, column, value)
    assert [row.key for row in store.outbox.due(now=NOW)] == ["k2"]
    assert [row["state"] for row in backend.rows("outbox")] == [b"failed", b"pending"]
    with pytest.raises(Corrupt):
        store.outbox.attempt(1, 0, NOW)


def test_a_changed_intent_can_be_replaced(backend: SqliteBackend, store: Store) -> None:
    """Its new content is sent after looking whether the old one was."""
    store.consume([], NOW, [PutOutbox("k", "lane", "card", b"1")])
    backend.change("outbox", 0, "payload", b"rigged")
    store.consume([], at(1), [PutOutbox("k", "lane", "card", b"2", replace=True)])
    [row] = store.outbox.due(now=at(1))
    assert (row.id, row.payload, row.state, row.attempts, row.result) == (1, b"2", "pending", 1, None)


@pytest.mark.parametrize("value", [b"9999999999.0", b"\xff"])
def test_a_changed_mark_counts_as_none(backend: SqliteBackend, store: Store, value: bytes) -> None:
    """Catch-up reads from further back rather than jump over a reply."""
    store.marks.move("T1:C1", "1700000000.000200")
    backend.change("marks", 0, "ts", value)
    assert store.marks.ts("T1:C1") is None
    store.marks.move("T1:C1", "1700000000.000100")
    assert store.marks.ts("T1:C1") == "1700000000.000100"


def test_a_session_with_a_bad_head_is_not_reaped(backend: SqliteBackend, store: Store) -> None:
    """A date that was changed deletes nothing."""
    done(store, new_session("session-1", None, event("a")))
    backend.change("sessions", 0, "ended_at", b"2020-01-01")
    assert reaped(store, NOW, NOW) == 0
    assert len(backend.rows("journal")) == 1


def test_a_changed_binding_is_refused(tmp_path: Path) -> None:
    """The note of whose database it is cannot be changed from outside."""
    backend = SqliteBackend(tmp_path)
    store = backend.open()
    store.bind("T1", "A1")
    backend.outside.execute("UPDATE meta SET value = 'T2 A1' WHERE name = 'workspace'")
    assert outcome(lambda: store.bind("T2", "A1")) is Corrupt
    assert outcome(lambda: store.bind("T1", "A1")) is Corrupt
    store.close()


def test_no_flipped_byte_of_the_file_is_believed(tmp_path: Path) -> None:
    """Bytes of the database file changed one at a time: the same answers as before, fewer, or an error of ours."""
    original, copy = tmp_path / "one" / "sayso.db", tmp_path / "two" / "sayso.db"
    store = open_sqlite(original, key=KEY)
    rich_session(store)
    store.close()
    data = original.read_bytes()
    copy.parent.mkdir(mode=0o700)
    good = answers(original)
    used = [place for place in range(len(data)) if data[place]]
    refused = 0
    for place in used[::27]:
        copy.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        copy.chmod(0o600)
        for suffix in ("-wal", "-shm"):
            copy.with_name(copy.name + suffix).unlink(missing_ok=True)
        for name, found in answers(copy).items():
            if isinstance(found, SaysoError):
                refused += 1
            elif isinstance(found, list):
                assert all(row in good[name] for row in found), f"{name}, byte {place}"
            else:
                assert found in (good[name], None, rebuilt(good[name])), f"{name}, byte {place}"
    assert len(used[::27]) > 300
    assert refused > 150
    shutil.rmtree(copy.parent)


def answers(path: Path) -> dict[str, Any]:
    """What a database says to every question that matters, or our error."""
    try:
        store = open_sqlite(path, key=KEY)
    except SaysoError as error:
        return {"open": error}
    questions = {
        "load": lambda: store.sessions.load("session-1"),
        "journal": lambda: list(store.sessions.journal("session-1")),
        "head": lambda: store.sessions.head("session-1"),
        "prompts": store.prompts.rows,
        "prompt": lambda: store.prompts.row("prompt-session-1"),
        "timers": store.timers.rows,
        "outbox": lambda: store.outbox.due(now=NOW),
        "inbox": store.inbox.rows,
        "message": lambda: store.inbox.row("message-session-1"),
    }
    found: dict[str, Any] = {}
    for name, ask in questions.items():
        try:
            found[name] = ask()  # type: ignore[operator]  # a mapping of functions of many types
        except SaysoError as error:
            found[name] = error
    store.close()
    return found


def rebuilt(good: Any) -> Any:
    """The same session without its snapshot."""
    return Loaded(good.head, None, 0, EVENTS) if isinstance(good, Loaded) else good


# --- MACs --------------------------------------------------------------------------------------------------


def test_a_row_is_sealed_as_it_always_was() -> None:
    """What is stored verifies forever: the MAC of a row is part of the format."""
    sealer, columns = Sealer(KEY), ("a", 1, None, b"b")
    assert sealer.seal(b"prompt", *columns).hex() == "a9de4897c0d6a89276a241e578b7427adbf06a33cbe0a45b"
    mac = sealer.seal(b"prompt", *columns)
    assert sealer.genuine(b"prompt", (*columns, mac))
    assert not sealer.genuine(b"timer", (*columns, mac))
    assert not sealer.genuine(b"prompt", ("a", 2, None, b"b", mac))
    assert not Sealer(KEY[::-1]).genuine(b"prompt", (*columns, mac))
    assert not sealer.genuine(b"prompt", (*columns, mac[:-1]))
    assert not sealer.genuine(b"prompt", (*columns, None))


@pytest.mark.parametrize(
    ("one", "other"),
    [(("ab", "c"), ("a", "bc")), ((b"a",), ("a",)), ((1,), ("1",)), ((None,), ("",)), ((), (None,))],
)
def test_no_two_rows_have_one_message(one: tuple[object, ...], other: tuple[object, ...]) -> None:
    """Each field counts with its type and its length."""
    assert Sealer(KEY).seal(b"row", *one) != Sealer(KEY).seal(b"row", *other)


def test_a_damaged_snapshot_is_reported_once(
    backend: SqliteBackend, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """It is found at every load, and said at the first one."""
    rich_session(store)
    backend.change("snapshots", 0, "body", b'{"at":9}')
    for _ in range(3):
        assert store.sessions.load("session-1").snapshot is None
    assert [record.getMessage() for record in caplog.records] == [
        "The snapshot 'session-1' was changed outside this program. The journal is read in its place."
    ]


def test_a_row_that_no_key_opens_is_left_out_alone(
    backend: SqliteBackend, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two rows needs a key that is not here: the other one is given, and nothing is marked as damaged."""
    first, second = store.inbox.ingest([InboxItem(key, "m", key.encode(), None, key) for key in "ab"], NOW)
    opened = tables.Table.opened

    def without_a_key(self: Any, sealer: Sealer, record: Any) -> Any:
        if getattr(record, "id", None) == first:
            raise KeyMissing("no key for this row")
        return opened(self, sealer, record)

    monkeypatch.setattr(tables.Table, "opened", without_a_key)
    sealer: Sealer = store._sealer  # type: ignore[attr-defined]  # as of every backend here
    monkeypatch.setattr(sealer, "cipher", sealer.cipher or object())
    assert [row.id for row in store.inbox.rows()] == [second]
    monkeypatch.undo()
    assert [row.id for row in store.inbox.rows()] == [first, second]
