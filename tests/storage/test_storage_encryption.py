"""Encryption at rest: stored data reveals nothing without its key, cannot be moved to another row, and can be erased."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.journal.records import Consumed, FlowForm, InboxItem, KeptRow, PromptRow, PutOutbox
from engine.language.errors import (
    Corrupt,
    Erased,
    KeyMissing,
    SessionError,
    SnapshotRefused,
    StorePlain,
)
from engine.storage import tables, vault
from engine.storage.copying import copy_store
from engine.storage.envelopes import check
from engine.storage.erasing import (
    erase_elsewhere,
    erase_session,
    is_erased,
    plain,
    sessions_naming,
)
from engine.storage.errors import CopyRefused
from engine.storage.open import MemoryStore
from engine.storage.packing import unpacked
from engine.storage.postgres import open_postgres
from engine.storage.sealing import Sealer
from engine.storage.sqlite import open_sqlite
from engine.storage.store import Store
from engine.storage.vault import AESGCM, Vault, id_of
from tests.storage.storagekit import (
    FLOW_DIGEST,
    KEY,
    NOW,
    OUTER,
    OUTER_BEFORE,
    MemoryBackend,
    PostgresBackend,
    SqliteBackend,
    at,
    done,
    event,
    new_session,
    outcome,
    step,
    tried,
)

WORD = "kingfisher"


def said(what: str) -> bytes:
    """A body with the word that must be found nowhere."""
    return f'{{"text":"{WORD} {what}"}}'.encode()


def filled(store: Store, session_id: str = "session-1", *, status: str = "complete") -> None:
    """A session with the word in all that it has, and in all that belongs to no session."""
    thread = f"T1:C1:{session_id}"
    items = [
        InboxItem(f"in-{session_id}", "message", said("in"), thread_key=thread),
        InboxItem(f"slash-{session_id}", "slash", said("start")),
    ]
    ids = [row_id for row_id in store.inbox.ingest(items, NOW) if row_id is not None]
    prompts = [
        PromptRow(f"{session_id}-{n}", session_id, "T1:C1:1.0", "open", None, said(f"p{n}")) for n in (1, 2)
    ]
    outbox = [
        PutOutbox(f"out-{session_id}", "lane", "post", said("out"), session_id),
        PutOutbox(f"no-{session_id}", "lane", "post", said("no session")),
    ]
    note = KeptRow(f"note-{session_id}", "note", "flow:deploy", 1, at(90), said("note"))
    start = b'{"type":"session:start","key":"slash-%b","text":"%b"}' % (session_id.encode(), WORD.encode())
    done(
        store, new_session(session_id, None, start, event("b"), snapshot=said("snapshot"), thread_key=thread)
    )
    done(store, step(session_id, 1, 2, event(f"{WORD} c"), rows=(*prompts, *outbox, note)))
    taken = [Consumed(row_id, "applied", said("result")) for row_id in ids]
    ended = {"status": status, "phase": "ended" if status == "complete" else "waiting"}
    done(store, step(session_id, 1, 3, event("d"), consumed=taken, **ended))
    store.flows.keep_form(FlowForm(FLOW_DIGEST, "r", said("form")))
    sent = store.outbox.row(f"out-{session_id}")
    assert sent is not None
    store.outbox.attempt(sent.id, 0, NOW)
    store.outbox.finish(sent.id, sent.rev, now=NOW, state="sent", result=said("sent"))


def all_of(store: Store, session_id: str = "session-1") -> list[Any]:
    """Everything that a store says of a session and beside it."""
    return [
        outcome(lambda: store.sessions.load(session_id)),
        outcome(lambda: list(store.sessions.journal(session_id))),
        [row.body for row in store.prompts.rows(session_id=session_id)],
        store.outbox.row(f"out-{session_id}"),
        store.outbox.row(f"no-{session_id}"),
        store.inbox.row(f"in-{session_id}"),
        store.kept.row(f"note-{session_id}"),
        store.flows.form(FLOW_DIGEST, "r"),
    ]


def told(backend: SqliteBackend) -> list[str]:
    """Where in the database the word stands, packed or not, or anything of the flow's text."""
    names = [table.name for table in vars(tables).values() if isinstance(table, tables.Table)]
    return [
        f"{name}.{column}"
        for name in sorted({*names, "journal", "flows"})
        for row in backend.rows(name)
        for column, value in row.items()
        if isinstance(value, bytes)
        for text in [unpacked(value) if column == "body" and value[:1] == b"\x01" else value]
        if WORD.encode() in text or b'{"flow"' in text
    ]


@pytest.fixture(params=["memory", "postgres"])
def backend(request: pytest.FixtureRequest) -> Iterator[SqliteBackend]:
    """A database in memory or on a server, empty."""
    if request.param == "memory":
        yield MemoryBackend()
        return
    postgres = PostgresBackend()
    yield postgres
    postgres.close()


def opened(backend: SqliteBackend, *keys: bytes, verify: bool = False) -> Any:
    """A connection with these keys."""
    given = None if verify else keys
    if isinstance(backend, PostgresBackend):
        return open_postgres(backend.url, backend.key, given)
    if isinstance(backend, MemoryBackend):
        return MemoryStore(database=backend._first.database, encryption_keys=given)
    return open_sqlite(backend.path, key=KEY, encryption_keys=given)


@pytest.fixture
def store(backend: SqliteBackend) -> Iterator[Any]:
    """A connection with a key."""
    store = opened(backend, OUTER)
    yield store
    store.close()


@pytest.fixture
def other(backend: SqliteBackend, store: Any) -> Iterator[Any]:
    """Another one, as another process has it."""
    other = opened(backend, OUTER)
    yield other
    other.close()


def test_nothing_that_was_said_stands_in_the_database(backend: SqliteBackend, store: Any) -> None:
    """Every body of every table is a ciphertext, and is read back as it was."""
    filled(store)
    assert told(backend) == []
    assert plain(store) == 0
    in_plain = MemoryStore(KEY)
    filled(in_plain)
    assert all_of(store) == all_of(in_plain)


@pytest.mark.parametrize("table", ["PROMPTS", "INBOX", "OUTBOX", "KEPT", "FORMS", "SNAPSHOTS"])
def test_a_column_that_was_forgotten_is_noticed(monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    """The seeded fault: the bodies of one table are stored as they are."""
    monkeypatch.setattr(getattr(tables, table), "secret", ())
    backend = MemoryBackend()
    filled(opened(backend, OUTER))
    assert told(backend) != []


def _swapped(store: Store, backend: SqliteBackend) -> object:
    """What is read of a question after two bodies were swapped by somebody who has the key that signs."""
    sealer = Sealer(KEY)
    rows = backend.rows("prompts")
    bodies = [row["body"] for row in rows]
    for place, body in enumerate(reversed(bodies)):
        names = ("prompt_id", "session_id", "thread_key", "status", "deadline")
        values = [None if rows[place][name] is None else rows[place][name].decode() for name in names]
        backend.change("prompts", place, "body", body)
        backend.change("prompts", place, "mac", sealer.seal(b"prompt", *values, body))
    return outcome(lambda: store.prompts.row("session-1-1"))


def test_two_ciphertexts_that_were_swapped_are_refused(backend: SqliteBackend, store: Any) -> None:
    """A body belongs to its row, also where the MACs are good."""
    filled(store)
    assert _swapped(store, backend) is Corrupt


def test_a_body_that_is_bound_to_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seeded fault: no associated data."""
    monkeypatch.setattr(vault, "_associated", lambda scope, about: b"")
    backend = MemoryBackend()
    store = opened(backend, OUTER)
    filled(store)
    assert _swapped(store, backend) is not Corrupt


def test_a_lost_key_is_one_error_that_names_it(backend: SqliteBackend) -> None:
    """No key, or another one: the store does not open, and says which is lacking, never what it is."""
    filled(opened(backend, OUTER))
    for keys in ((), (OUTER_BEFORE,)):
        with pytest.raises(KeyMissing, match=f"lacks key {id_of(OUTER)}") as refused:
            opened(backend, *keys)
        assert OUTER.decode() not in str(refused.value)
        assert OUTER.hex() not in str(refused.value)


def test_a_process_without_keys_takes_no_ciphertext_for_damage() -> None:
    """One that was open before the first key was used says what it lacks."""
    backend = MemoryBackend()
    without = backend.open()
    filled(opened(backend, OUTER))
    assert outcome(lambda: without.sessions.load("session-1")) is KeyMissing
    assert outcome(lambda: without.prompts.rows(session_id="session-1")) is KeyMissing


def test_a_journal_verifies_without_its_key(backend: SqliteBackend) -> None:
    """The chain has ended ciphertexts: nobody needs to read them, and what was changed is found."""
    filled(opened(backend, OUTER))
    store = opened(backend, verify=True)
    store.sessions.check_chain("session-1")
    assert outcome(lambda: store.sessions.load("session-1")) is KeyMissing
    body = backend.rows("journal")[1]["body"]
    backend.change("journal", 1, "body", body[:-1] + bytes([body[-1] ^ 1]))
    with pytest.raises(Corrupt, match="Row 3"):
        store.sessions.check_chain("session-1")
    store.close()


def test_a_data_key_whose_transaction_was_undone_is_not_used(backend: SqliteBackend, store: Any) -> None:
    """The first commit of a batch makes the key of the outbox and is undone; the second one stores a row."""
    done(store, new_session("session-1", None, event("a")), new_session("session-2", None, event("a")))
    late = step("session-1", 1, 7, rows=(PutOutbox("one", "lane", "post", said("one")),))
    good = step("session-2", 1, 1, event("b"), rows=(PutOutbox("two", "lane", "post", said("two")),))
    errors = tried(store, [late.but(seq=1, consumed=(Consumed(99, "applied"),)), good])
    assert [type(error).__name__ for error in errors] == ["NoSuchRow", "NoneType"]
    other = opened(backend, OUTER)
    assert other.outbox.row("two").payload == said("two")
    other.close()


# --- what was plain ----------------------------------------------------------------------------------------


def a_plain_home(backend: SqliteBackend) -> list[list[Any]]:
    """Two sessions, and a fork of one, written without keys; what they say."""
    store = opened(backend)
    filled(store)
    filled(store, "session-2", status="paused")
    done(store, new_session("session-3", None, event(f"{WORD} fork"), parent=("session-1", 2)))
    assert told(backend) != []
    found = [all_of(store, f"session-{n}") for n in (1, 2)]
    store.close()
    return found


@pytest.mark.parametrize("to", ["memory", "postgres"])
@pytest.mark.parametrize("key", [KEY, b"another key that signs rows"])
def test_a_plain_home_goes_on_in_an_encrypted_copy(to: str, key: bytes) -> None:
    """All that it says is there in ciphertext alone, under whatever key signs, and a session that waits is answered."""
    home = MemoryBackend()
    before = a_plain_home(home)
    source = opened(home)
    backend = MemoryBackend(key=key) if to == "memory" else PostgresBackend(key)
    store = opened(backend, OUTER)
    assert copy_store(source, store) == 3
    assert (told(backend), plain(store)) == ([], 0)
    assert [all_of(store, f"session-{n}")[:-1] for n in (1, 2)] == [said[:-1] for said in before]
    assert store.sessions.load("session-1").snapshot == said("snapshot")
    store.sessions.check_chain("session-3")
    done(store, step("session-2", 1, 4, event("goes on")))
    assert len(list(store.sessions.journal("session-2"))) == 5
    store.close()
    again = opened(backend, OUTER)
    assert [len(list(again.sessions.journal(head.session_id))) for head in again.sessions.heads()] == [
        1,
        5,
        4,
    ]
    for one in (again, source):
        one.close()
    backend.close()


def test_what_does_not_verify_is_not_signed_anew() -> None:
    """A damaged row comes to a copy with other keys as it is, and its session is refused there as here."""
    home = MemoryBackend()
    a_plain_home(home)
    body = home.rows("journal")[0]["body"]
    home.change("journal", 0, "body", body[:-1] + bytes([body[-1] ^ 1]))
    home.change("prompts", 0, "deadline", "9999")
    source, store = opened(home), MemoryStore(b"another key that signs rows", encryption_keys=(OUTER,))
    assert copy_store(source, store) == 3
    assert outcome(lambda: list(store.sessions.journal("session-1"))) is Corrupt
    assert outcome(lambda: store.prompts.row("session-1-1")) is Corrupt
    assert len(list(store.sessions.journal("session-2"))) == 4
    assert store.sessions.load("session-1").snapshot == said("snapshot"), (
        "what follows on the damaged row is linked to it"
    )
    for one in (source, store):
        one.close()


def test_keys_that_come_after_plain_rows_are_refused(backend: SqliteBackend) -> None:
    """Plain rows would stay readable: one sentence says how to continue, and without keys everything is as it was."""
    opened(backend, OUTER).close()
    store = opened(backend)
    store.bind("T1", "A1")
    store.close()
    opened(backend, OUTER).close()
    store = opened(backend)
    store.inbox.ingest([InboxItem("one", "slash", said("one"))], NOW)
    store.close()
    with pytest.raises(StorePlain, match=r"store copy FROM TO --to-env new\.env"):
        opened(backend, OUTER)
    store = opened(backend)
    row = store.inbox.row("one")
    assert row.payload == said("one")
    store.close()


def test_a_store_that_lost_its_rows_is_still_an_encrypted_one(backend: SqliteBackend) -> None:
    """Data keys stay when sessions are deleted: the store opens with its keys, and with no others."""
    store = opened(backend, OUTER)
    filled(store)
    store.sessions.delete(["session-1"])
    store.close()
    opened(backend, OUTER).close()
    assert outcome(lambda: opened(backend)) is KeyMissing


# --- erasing -----------------------------------------------------------------------------------------------


def test_an_erased_session_cannot_be_read_and_verifies(store: Any, other: Any) -> None:
    """What it held is gone for whoever has the key; the others are as they were."""
    filled(store)
    filled(store, "session-2")
    whole = all_of(store, "session-2")[:5]
    assert other.sessions.load("session-1").snapshot is not None
    erase_session(store, "session-1")
    for one in (store, other):
        one.changed()
        assert outcome(lambda one=one: one.sessions.load("session-1")) is Erased
        one.sessions.check_chain("session-1")
    assert is_erased(store, "session-1")
    assert store.prompts.rows(session_id="session-1") == []
    for key in ("in-session-1", "slash-session-1"):
        row = store.inbox.row(key)
        assert (row.payload, row.result, row.outcome) == (b"{}", None, "applied")
    assert store.inbox.ingest([InboxItem("in-session-1", "message", said("again"))], NOW) == [None]
    assert all_of(store, "session-2")[:5] == whole


def test_what_goes_on_or_is_plain_is_not_erased(backend: SqliteBackend) -> None:
    """A session that waits has to be ended first; of what is plain no key can be taken."""
    a_plain_home(backend)
    store = opened(backend)
    with pytest.raises(SessionError, match="waiting: end it"):
        erase_session(store, "session-2")
    with pytest.raises(SessionError, match="sayso store copy"):
        erase_session(store, "session-1")
    assert store.sessions.load("session-1").events
    store.close()


def _written_after(store: Store, other: Store) -> object:
    """What becomes of a row that another process writes for a session after it was erased."""
    filled(store)
    assert other.sessions.load("session-1").events
    erase_session(store, "session-1")
    return outcome(
        lambda: other.consume([], NOW, [PutOutbox("late", "lane", "post", said("late"), "session-1")])
    )


def test_a_data_key_is_not_used_after_it_was_erased(store: Any, other: Any) -> None:
    """Whoever has it in memory, or would make another one in its place, is refused."""
    assert _written_after(store, other) is Erased
    assert store.outbox.row("late") is None


@pytest.mark.parametrize("fault", ["kept", "made anew"])
def test_a_key_that_lives_on_is_noticed(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """The seeded faults: what is in memory is believed; or an erased key is one that is not there yet."""
    backend = MemoryBackend()
    found = Vault._found

    def kept(self: Vault, scope: str) -> AESGCM | None:
        return self._ciphers.get(scope) or found(self, scope)

    def anew(self: Vault, scope: str) -> AESGCM | None:
        try:
            return found(self, scope)
        except Erased:
            self._db.run("DELETE FROM data_keys WHERE scope = ?", (scope,))
            return None

    monkeypatch.setattr(Vault, "_found", kept if fault == "kept" else anew)
    assert _written_after(opened(backend, OUTER), opened(backend, OUTER)) is not Erased


def test_erasing_leaves_nothing_in_the_files(tmp_path: Path) -> None:
    """The wrapped key, and what the inbox held, stand neither in free parts of pages nor in the log."""
    backend = SqliteBackend(tmp_path)
    store = opened(backend, OUTER)
    filled(store)
    wrapped = [row["wrapped"] for row in backend.rows("data_keys") if row["scope"] == b"session-1"]
    gone = [*wrapped, *(row["payload"] for row in backend.rows("inbox"))]
    assert len(gone) == 3
    backend.outside.close()
    erase_session(store, "session-1")
    files = b"".join(path.read_bytes() for path in tmp_path.glob("sayso.db*"))
    assert [piece for piece in gone if piece in files] == []
    store.close()


def test_a_persons_data_is_found_and_erased(store: Any) -> None:
    """Every session that names them, and what names them beside sessions; somebody whose id begins alike is left alone."""
    for session_id, who in (("session-1", "U0ANA"), ("session-2", "U0ANABEL"), ("session-3", "x<@U0ANA> y")):
        named = step(session_id, 1, 1, event(who), status="complete", phase="ended")
        done(store, new_session(session_id, None, event("a")), named)
    body = b'{"by":{"id":"U0ANA"}}'
    store.consume(
        [], NOW, [KeptRow("note", "note", "flow:x", 1, at(90), body), PutOutbox("dm", "l", "post", body)]
    )
    [row_id] = store.inbox.ingest([InboxItem("slash:1", "slash", body)], NOW)
    store.consume([Consumed(row_id, "applied")], NOW)
    assert sorted(head.session_id for head in sessions_naming(store, "U0ANA")) == ["session-1", "session-3"]
    assert erase_elsewhere(store, "U0ANA") == 2
    assert (store.kept.row("note"), store.inbox.row("slash:1").payload) == (None, b"{}")
    assert store.outbox.row("dm").payload == body, "it is still to be sent"


def test_a_deleted_session_leaves_no_key(backend: SqliteBackend, store: Any) -> None:
    """Its data key goes with its other rows."""
    filled(store)
    assert store.sessions.delete(["session-1"]) == []
    assert b"session-1" not in [row["scope"] for row in backend.rows("data_keys")]


# --- copies and files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("outer", [OUTER, OUTER_BEFORE])
def test_a_copy_is_under_its_own_keys(outer: bytes) -> None:
    """Another key list opens it alone; what was erased stays so, and verifies."""
    home = MemoryBackend()
    source = opened(home, OUTER_BEFORE)
    filled(source)
    filled(source, "session-2")
    erase_session(source, "session-2")
    server = PostgresBackend()
    target = opened(server, outer)
    assert copy_store(source, target) == 2
    assert all_of(target)[:-1] == all_of(source)[:-1]
    assert outcome(lambda: list(target.sessions.journal("session-2"))) is Erased
    target.sessions.check_chain("session-2")
    assert (is_erased(target, "session-2"), set(target.vault.in_use())) == (True, {id_of(outer)})
    assert told(server) == []
    assert outcome(lambda: copy_store(source, MemoryStore(KEY))) is CopyRefused, (
        "nothing becomes plain unawares"
    )
    for store in (source, target):
        store.close()
    server.close()


def changed_line(data: bytes) -> bytes:
    """A file with one character of its ciphertext changed."""
    place = data.index(b'"body":"') + 40
    return data[:place] + (b"A" if data[place : place + 1] != b"A" else b"B") + data[place + 1 :]


@pytest.mark.parametrize(
    "spoil",
    [
        changed_line,
        lambda data: data[:60] + b"}\n",
        lambda data: b'{"encrypted":1}\n',
        lambda data: data.replace(b'"body"', b'"body":"","body"', 1),
    ],
)
def test_a_changed_file_is_refused(spoil: Callable[[bytes], bytes]) -> None:
    """With the key that decrypts, and without."""
    store = MemoryStore(KEY, encryption_keys=(OUTER,))
    data = store.enclose(said("one")) + b"\n" + store.enclose(said("two")) + b"\n"
    assert WORD.encode() not in data
    assert store.disclose(data) == said("one") + b"\n" + said("two") + b"\n"
    assert store.disclose(data + data[:50]) == store.disclose(data), (
        "a line that was cut counts as not written"
    )
    check(Sealer(KEY), data)
    for look in (store.disclose, lambda spoilt: check(Sealer(KEY), spoilt)):
        with pytest.raises(SnapshotRefused):
            look(spoil(data))
