"""The contract that every backend passes: what each method does, and every error."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict, astuple, replace

from deploy.verify_audit import check
from engine.journal.events import decode_event
from engine.journal.records import (
    DEAD,
    DROPPED,
    Conflict,
    Consumed,
    InboxItem,
    KeptRow,
    LeafRow,
    Lost,
    NewSession,
    Pin,
    PutLock,
    PutOutbox,
    PutSpend,
    Stored,
    TakeLock,
    Timer,
)
from engine.language.errors import (
    Corrupt,
    DayBudgetSpent,
    Fenced,
    KeptMoved,
    KeyMissing,
    LockHeld,
    Overtaken,
    Owned,
    RowRefused,
    SessionQuarantined,
    StorageError,
    UnknownSession,
    WrongWorkspace,
)
from engine.run import evidence
from engine.storage.errors import NoSuchRow, StoreFailure
from engine.storage.sealing import Sealer
from engine.storage.store import Store
from tests.storage.storagekit import (
    FLOW,
    FLOW_DIGEST,
    NOW,
    SqliteBackend,
    at,
    claim,
    done,
    event,
    head_of,
    new_session,
    reaped,
    rich_session,
    row_of,
    step,
    tried,
)

HISTORY = Path(__file__).parents[1] / "histories/v1/complete.jsonl"
MESSAGE = InboxItem("m1", "message", b"{}", "session-1", "T1:C1:1.0")


# --- binding, ingest -------------------------------------------------------------------------------------


def test_bind_takes_the_first_team_and_refuses_another(store: Store) -> None:
    """A database belongs to the team and app that bound it first."""
    store.bind("T1", "A1")
    store.bind("T1", "A1")
    with pytest.raises(WrongWorkspace, match="T1"):
        store.bind("T2", "A1")
    with pytest.raises(WrongWorkspace):
        store.bind("T1", "A2")


def test_ingest_gives_new_ids_and_none_for_known_keys(store: Store) -> None:
    """A key is taken once, whether it comes again in the same call or later."""
    again = MESSAGE.but(payload=b'{"other":1}')
    assert store.inbox.ingest([MESSAGE, again, InboxItem("m2", "click", b"{}")], NOW) == [1, None, 2]
    assert store.inbox.ingest([again], at(1)) == [None]
    row = row_of(store, "m1")
    assert astuple(row) == (1, "m1", "message", b"{}", "session-1", "T1:C1:1.0", NOW, None, None)


def test_ingest_of_nothing_is_nothing(store: Store) -> None:
    """An empty ingest stores nothing and gives nothing."""
    assert store.inbox.ingest([], NOW) == []
    assert store.inbox.rows() == []


def test_inbox_lists_what_nobody_consumed_oldest_first(store: Store) -> None:
    """The inbox can be read in pages, and consumed rows are not in it."""
    store.inbox.ingest([InboxItem(f"m{n}", "message", b"{}") for n in range(5)], NOW)
    store.consume([Consumed(2, "ignored")], NOW)
    assert [row.id for row in store.inbox.rows()] == [1, 3, 4, 5]
    assert [row.id for row in store.inbox.rows(after=1, limit=2)] == [3, 4]


def test_a_dead_letter_is_listed_and_opened_under_a_new_id(store: Store) -> None:
    """Readers past its old id find a retried dead letter again; its key, payload and time are unchanged."""
    store.inbox.ingest([MESSAGE, InboxItem("m2", "message", b"{}")], NOW)
    store.consume([Consumed(1, DEAD, b'{"error":"ValueError"}')], NOW)
    (letter,) = store.inbox.dead_letters()
    assert (letter.key, letter.result) == ("m1", b'{"error":"ValueError"}')
    assert store.inbox.decide_letter("m1", again=True)
    assert store.inbox.dead_letters() == []
    assert store.inbox.rows(after=2) == [letter.but(id=3, outcome=None, result=None)]
    assert store.inbox.ingest([MESSAGE, InboxItem("m3", "message", b"{}")], NOW) == [None, 4]


def test_a_dropped_letter_is_done(store: Store) -> None:
    """It is listed nowhere, its key stays taken, and only dead letters can be dropped."""
    store.inbox.ingest([MESSAGE], NOW)
    assert not store.inbox.decide_letter("m1", again=False)
    store.consume([Consumed(1, DEAD)], NOW)
    assert store.inbox.decide_letter("m1", again=False)
    row = row_of(store, "m1")
    assert (row.outcome, store.inbox.dead_letters(), store.inbox.rows()) == (DROPPED, [], [])
    assert not store.inbox.decide_letter("m1", again=True)
    assert not store.inbox.decide_letter("never", again=True)
    assert store.inbox.ingest([MESSAGE], NOW) == [None]


def test_an_unknown_key_has_no_inbox_row(store: Store) -> None:
    """Asking for a key that never came gives None."""
    assert store.inbox.row("never") is None


def test_consume_keeps_outcome_and_result(store: Store) -> None:
    """What became of a row can be read by whoever asked."""
    store.inbox.ingest([MESSAGE], NOW)
    store.consume([Consumed(1, "refused", b'{"why":"no"}')], NOW, [PutOutbox("k", "lane", "post", b"{}")])
    row = row_of(store, "m1")
    assert (row.outcome, row.result) == ("refused", b'{"why":"no"}')
    assert store.outbox.row("k") is not None


def test_a_row_is_consumed_once(store: Store) -> None:
    """Whoever consumes second is fenced, and nothing that came with it is stored."""
    store.inbox.ingest([MESSAGE, InboxItem("m2", "message", b"{}")], NOW)
    store.consume([Consumed(1, "applied")], NOW)
    with pytest.raises(Fenced):
        store.consume(
            [Consumed(2, "applied"), Consumed(1, "late")], NOW, [PutOutbox("k", "l", "post", b"{}")]
        )
    assert [row.id for row in store.inbox.rows()] == [2]
    assert store.outbox.row("k") is None


def test_consuming_an_absent_row_is_an_error(store: Store) -> None:
    """An id that is not there is named."""
    with pytest.raises(StorageError, match="7"):
        store.consume([Consumed(7, "applied")], NOW)


# --- ownership -------------------------------------------------------------------------------------------


def test_owners_live_until_they_close(backend: SqliteBackend, store: Store) -> None:
    """An owner is alive for every connection until its own closes."""
    other = backend.open()
    bot, cli = store.register("bot"), other.register("cli")
    assert store.alive(cli)
    assert other.alive(bot)
    assert sorted(store.serving()) == ["bot", "cli"]
    other.close()
    assert not store.alive(cli)
    assert store.serving() == ["bot"]
    assert not store.alive("bot-1-nonsense")


def test_two_owners_on_one_connection_are_two(store: Store) -> None:
    """A process may be several owners, and each keeps what it holds; on a server it is one, which gives signs of life."""
    one, two = store.register("bot"), store.register("bot")
    if store.shared:
        assert one == two
        return
    assert one != two
    done(store, new_session("session-1", one))
    with pytest.raises(Owned):
        claim(store, "session-1", two, NOW)
    assert store.serving() == ["bot", "bot"]


@pytest.mark.parametrize("label", ["", "Bot", "../x", "a-b", "x" * 33])
def test_a_label_is_a_small_word(store: Store, label: str) -> None:
    """A label that could be a path is refused."""
    with pytest.raises(StorageError):
        store.register(label)


def test_claim_raises_the_epoch(store: Store) -> None:
    """The owner may claim again, and each claim has an epoch of its own."""
    owner = store.register("bot")
    done(store, new_session("session-1", owner, event("a")))
    assert claim(store, "session-1", owner, at(1)) == 2
    assert claim(store, "session-1", owner, at(2)) == 3
    head = head_of(store, "session-1")
    assert (head.epoch, head.owner, head.seq, head.updated_at) == (3, owner, 1, at(2))


def test_claim_of_a_living_owners_session_is_refused(backend: SqliteBackend, store: Store) -> None:
    """Nobody takes a session from a process that lives; once it is gone, anybody may."""
    other = backend.open()
    theirs, ours = other.register("bot"), store.register("cli")
    done(other, new_session("session-1", theirs))
    with pytest.raises(Owned, match=theirs):
        claim(store, "session-1", ours, NOW)
    other.close()
    assert claim(store, "session-1", ours, NOW) == 2


def test_release_frees_the_session(backend: SqliteBackend, store: Store) -> None:
    """A commit with release leaves the session to whoever claims it first."""
    other = backend.open()
    ours, theirs = store.register("bot"), other.register("bot")
    done(store, new_session("session-1", ours, event("a"), release=True))
    head = head_of(store, "session-1")
    assert head.owner is None
    assert claim(other, "session-1", theirs, NOW) == 2
    with pytest.raises(Owned):
        claim(store, "session-1", ours, NOW)


def test_claims_are_taken_together_and_refused_alone(store: Store) -> None:
    """Of several claims in one transaction those that may be taken are, and each other one says why not."""
    owner = store.register("bot")
    for name in ("session-a", "session-b"):
        assert tried(store, [new_session(name, owner)]) == [None]
    store.quarantine("session-b", "test", NOW)
    names = ("session-a", "session-none", "session-b")
    found = tried(store, [step(name, 2, 0, owner=owner) for name in names])
    assert found[0] is None
    assert [type(outcome) for outcome in found[1:]] == [UnknownSession, SessionQuarantined]
    head = head_of(store, "session-a")
    assert (head.owner, head.epoch) == (owner, 2)
    assert [type(outcome) for outcome in tried(store, [step("session-none", 2, 0, owner=owner)])] == [
        UnknownSession
    ]


@pytest.mark.parametrize(("epoch", "seq"), [(1, 1), (3, 1), (2, 0), (2, 2)])
def test_a_claim_builds_on_the_session_as_it_was_found(store: Store, epoch: int, seq: int) -> None:
    """Whoever claims a session that has moved since it was loaded is told, and nothing is stored."""
    owner = store.register("bot")
    done(store, new_session("session-1", owner, event("a"), release=True))
    [error] = tried(store, [step("session-1", epoch, seq, event("b"), owner=owner)])
    assert isinstance(error, Overtaken)
    assert list(store.sessions.journal("session-1")) == [event("a")]
    done(store, step("session-1", 2, 1, event("b"), owner=owner, release=True))
    head = head_of(store, "session-1")
    assert (head.epoch, head.seq, head.owner) == (2, 2, None)


def test_claim_of_an_unknown_session(store: Store) -> None:
    """There is nothing to claim where there is no session."""
    with pytest.raises(UnknownSession):
        claim(store, "session-none", store.register("bot"), NOW)


# --- commit ----------------------------------------------------------------------------------------------


def test_a_new_session_is_all_there(store: Store) -> None:
    """The first commit stores head, flow, journal and rows together."""
    owner = store.register("bot")
    done(store, new_session("session-1", owner, event("a"), event("b"), thread_key="T1:C1:1.0"))
    head = head_of(store, "session-1")
    assert asdict(head) == {
        "session_id": "session-1",
        "flow_name": "deploy",
        "flow_digest": FLOW_DIGEST,
        "parent_session_id": None,
        "thread_key": "T1:C1:1.0",
        "status": "running",
        "phase": "running",
        "epoch": 1,
        "seq": 2,
        "owner": owner,
        "created_at": NOW,
        "updated_at": NOW,
        "ended_at": None,
        "quarantined": None,
    }
    assert list(store.sessions.journal("session-1")) == [event("a"), event("b")]
    assert store.flows.text(FLOW_DIGEST) == FLOW


def test_a_commit_moves_the_head(store: Store) -> None:
    """Status, phase, seq and times are those after the commit; the end is noted once."""
    done(store, new_session("session-1", store.register("bot"), event("a")))
    done(store, step("session-1", 1, 1, event("b"), status="paused", phase="waiting", now=at(1)))
    done(store, step("session-1", 1, 2, event("c"), status="complete", phase="ended", now=at(2)))
    done(store, step("session-1", 1, 3, status="complete", phase="ended", now=at(3)))
    head = head_of(store, "session-1")
    assert (head.status, head.phase, head.seq) == ("complete", "ended", 3)
    assert (head.updated_at, head.ended_at) == (at(3), at(2))


@pytest.mark.parametrize(("epoch", "seq"), [(1, 0), (1, 2), (2, 1), (0, 1)])
def test_a_commit_on_another_epoch_or_seq_is_fenced(store: Store, epoch: int, seq: int) -> None:
    """Whoever believes in another epoch or seq writes nothing."""
    done(store, new_session("session-1", store.register("bot"), event("a")))
    rows = (Timer("t", "session-1", NOW),)
    [error] = tried(store, [step("session-1", epoch, seq, event("x"), rows=rows, snapshot=b"{}")])
    assert isinstance(error, Fenced)
    assert list(store.sessions.journal("session-1")) == [event("a")]
    assert store.timers.rows() == []
    assert store.sessions.load("session-1").snapshot is None


def test_a_zombie_cannot_write_after_a_claim(backend: SqliteBackend, store: Store) -> None:
    """After another connection claimed, a commit of the old epoch changes nothing, even from a warm store."""
    zombie = backend.open()
    done(zombie, new_session("session-1", zombie.register("bot"), event("a")))
    done(zombie, step("session-1", 1, 1, event("b"), release=True))
    epoch = claim(store, "session-1", store.register("bot"), NOW)
    [error] = tried(zombie, [step("session-1", 1, 2, event("zombie"))])
    assert isinstance(error, Fenced)
    done(store, step("session-1", epoch, 2, event("c")))
    assert list(zombie.sessions.journal("session-1")) == [event("a"), event("b"), event("c")]


def test_one_fenced_commit_does_not_take_the_others_of_its_group(store: Store) -> None:
    """In a group each commit stands or falls alone."""
    owner = store.register("bot")
    done(store, *(new_session(f"session-{n}", owner, event("a")) for n in (1, 2, 3)))
    store.inbox.ingest([MESSAGE], NOW)
    outcomes = tried(
        store,
        [
            step("session-1", 1, 1, event("b")),
            step("session-2", 7, 1, event("b"), consumed=(Consumed(1, "applied"),)),
            step("session-none", 1, 0),
            step("session-3", 1, 1, event("b"), rows=(Timer("t", "session-3", NOW),)),
        ],
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), Fenced, UnknownSession, type(None)]
    assert [len(list(store.sessions.journal(f"session-{n}"))) for n in (1, 2, 3)] == [2, 1, 2]
    assert [row.id for row in store.inbox.rows()] == [1]
    assert len(store.timers.rows()) == 1


def test_what_becomes_of_a_commit_is_a_value(store: Store) -> None:
    """Stored; a conflict, after which it is looked and decided again; or lost, after which nothing is done."""
    owner = store.register("bot")
    first = new_session("session-1", owner, event("a"), rows=(PutLock("prod", "session-1"),))
    taken = step("session-1", 1, 1, event("b"), rows=(TakeLock("prod", "session-1"),))
    assert store.commit([first, taken]) == [Stored(), Stored()]
    done(store, new_session("session-2", None, event("a"), rows=(PutLock("prod", "session-2"),)))
    dear = PutSpend("session-2", "agent", 1, "deploy", "2026-11-21", 2, cap=1)
    moved = KeptRow("note-1", "note", "C1", 2, "9999", b"{}")
    for conflict, reason in (
        (step("session-2", 1, 1, event("b"), rows=(TakeLock("prod", "session-2"),)), LockHeld),
        (step("session-2", 1, 1, event("b"), rows=(dear,)), DayBudgetSpent),
        (step("session-2", 1, 1, event("b"), rows=(moved,)), KeptMoved),
        (step("session-2", 9, 1, owner=owner), Overtaken),
    ):
        [result] = store.commit([conflict])
        assert (type(result), type(getattr(result, "reason", None))) == (Conflict, reason)
    done(store, new_session("session-3", None, event("a")))
    store.quarantine("session-3", "bad", NOW)
    for lost, reason in (
        (step("session-1", 7, 2, event("c")), Fenced),
        (step("session-1", 2, 2, owner="cli-1-0"), Owned),
        (step("session-3", 2, 1, owner=owner), SessionQuarantined),
    ):
        [result] = store.commit([lost])
        assert (type(result), type(getattr(result, "reason", None))) == (Lost, reason)
    assert [len(list(store.sessions.journal(f"session-{n}"))) for n in (1, 2, 3)] == [2, 1, 1]


def test_commits_of_one_session_may_share_a_group(store: Store) -> None:
    """A later commit of a group builds on an earlier one."""
    done(
        store,
        new_session("session-1", store.register("bot"), event("a")),
        step("session-1", 1, 1, event("b")),
        step("session-1", 1, 2, event("c")),
    )
    assert list(store.sessions.journal("session-1")) == [event("a"), event("b"), event("c")]


def test_after_a_failed_first_commit_the_second_of_the_group_is_refused(store: Store) -> None:
    """What builds on a commit that was undone is undone too."""
    done(store, new_session("session-1", store.register("bot"), event("a")))
    outcomes = tried(
        store,
        [
            step("session-1", 1, 1, event("b"), consumed=(Consumed(9, "x"),)),
            step("session-1", 1, 2, event("c")),
        ],
    )
    assert [type(outcome) for outcome in outcomes] == [NoSuchRow, Fenced]
    done(store, step("session-1", 1, 1, event("d")))
    assert list(store.sessions.journal("session-1")) == [event("a"), event("d")]


def test_consumption_is_atomic_with_the_commit(store: Store) -> None:
    """A commit that consumes what somebody else consumed stores none of its events."""
    done(store, new_session("session-1", store.register("bot"), event("a")))
    store.inbox.ingest([MESSAGE], NOW)
    done(store, step("session-1", 1, 1, event("b"), consumed=(Consumed(1, "applied", b"1"),)))
    [error] = tried(store, [step("session-1", 1, 2, event("c"), consumed=(Consumed(1, "applied"),))])
    assert isinstance(error, Fenced)
    assert len(list(store.sessions.journal("session-1"))) == 2
    row = row_of(store, "m1")
    assert row.result == b"1"


def test_creating_an_existing_session_is_fenced(store: Store) -> None:
    """Two that create the same session: the second is told to stop."""
    owner = store.register("bot")
    done(store, new_session("session-1", owner, event("a")))
    [error] = tried(store, [new_session("session-1", owner, event("b"))])
    assert isinstance(error, Fenced)
    assert list(store.sessions.journal("session-1")) == [event("a")]


def test_a_creation_that_makes_no_sense_is_refused(store: Store) -> None:
    """A wrong digest, a wrong epoch or a fork of nothing would not be readable later."""
    good = new_session("session-1", None)
    wrong_digest = NewSession("deploy", "0" * 64, FLOW)
    for bad in (
        good.but(epoch=2),
        good.but(seq=1),
        good.but(new=wrong_digest),
        new_session("session-1", None, parent=("session-none", 3)),
        new_session("session-1", None, parent=(None, 3)),
    ):
        [error] = tried(store, [bad])
        assert isinstance(error, StoreFailure)
    assert store.sessions.head("session-1") is None
    with pytest.raises(StorageError, match="No flow"):
        store.flows.text(FLOW_DIGEST)


def test_text_that_is_not_unicode_is_refused(store: Store) -> None:
    """A lone surrogate is a clear error of its commit alone."""
    owner = store.register("bot")
    outcomes = tried(
        store,
        [
            new_session("session-\ud800", owner),
            new_session("session-2", owner, rows=(Timer("\ud800", "session-2", NOW),)),
            new_session("session-3", owner),
        ],
    )
    assert [type(outcome) for outcome in outcomes] == [RowRefused, RowRefused, type(None)]
    with pytest.raises(StorageError):
        store.inbox.ingest([InboxItem("\udfff", "message", b"{}")], NOW)
    assert [head.session_id for head in store.sessions.heads()] == ["session-3"]


def test_a_fork_begins_at_its_parent(store: Store) -> None:
    """A fork has a chain of its own that outlives its parent."""
    owner = store.register("bot")
    done(store, new_session("session-1", owner, event("a"), event("b")))
    done(store, step("session-1", 1, 2, event("c"), status="complete", phase="ended"))
    done(store, new_session("session-2", owner, event("x"), parent=("session-1", 2)))
    assert reaped(store, at(1), at(1)) == 1
    head = head_of(store, "session-2")
    assert head.parent_session_id == "session-1"
    assert list(store.sessions.journal("session-2")) == [event("x")]


def test_a_session_can_be_pinned_to_another_flow(store: Store) -> None:
    """The head names the new flow, which is stored; the old one goes when no session has it any more."""
    owner = store.register("bot")
    done(store, new_session("session-1", owner, event("a")))
    first = store.sessions.head("session-1")
    body = b'{"another": 1}'
    digest = hashlib.sha256(body).hexdigest()
    done(store, step("session-1", 1, 1, event("b")).but(pin=Pin(digest, body)))
    head = store.sessions.head("session-1")
    assert first is not None
    assert head is not None
    assert head.flow_digest == digest
    assert (store.flows.text(digest), len(list(store.sessions.journal("session-1")))) == (body, 2)
    done(store, step("session-1", 1, 2, event("c")))
    assert store.sessions.load("session-1").head.flow_digest == digest


def test_a_flow_with_another_digest_is_not_pinned(store: Store) -> None:
    """A pin whose digest is not that of its body is refused, and nothing of its step is stored."""
    owner = store.register("bot")
    done(store, new_session("session-1", owner, event("a")))
    before = store.sessions.head("session-1")
    (error,) = tried(store, [step("session-1", 1, 1, event("b")).but(pin=Pin("00" * 32, b"{}"))])
    assert isinstance(error, StorageError)
    assert store.sessions.head("session-1") == before
    assert list(store.sessions.journal("session-1")) == [event("a")]


# --- reading sessions ------------------------------------------------------------------------------------


def test_unknown_sessions_are_none_or_an_error(store: Store) -> None:
    """A head may be absent; a journal or state may not."""
    assert store.sessions.head("session-none") is None
    for read in (store.sessions.load, store.sessions.journal):
        with pytest.raises(UnknownSession):
            read("session-none")


def test_heads_are_listed_newest_first_and_filtered(store: Store) -> None:
    """Sessions can be asked for by status, by thread, by both."""
    owner = store.register("bot")
    for n, (status, thread) in enumerate(
        [("paused", "T"), ("running", "T"), ("paused", "U"), ("complete", None)]
    ):
        done(store, new_session(f"session-{n}", owner, status=status, thread_key=thread))

    def ids(**filters: object) -> list[str]:
        return [head.session_id[-1] for head in store.sessions.heads(**filters)]  # type: ignore[arg-type]  # spread filters

    assert ids() == ["3", "2", "1", "0"]
    assert ids(limit=2) == ["3", "2"]
    assert ids(statuses=["paused"]) == ["2", "0"]
    assert ids(statuses=["paused", "complete"], limit=2) == ["3", "2"]
    assert ids(thread_key="T") == ["1", "0"]
    assert ids(thread_key="T", statuses=["paused"]) == ["0"]
    assert ids(thread_key="none") == []


def test_orphans_are_running_sessions_without_a_living_owner(backend: SqliteBackend, store: Store) -> None:
    """After a crash exactly the work that nobody alive holds is found."""
    other = backend.open()
    theirs, ours = other.register("bot"), store.register("bot")
    done(store, new_session("session-ours", ours), new_session("session-free", None))
    done(store, new_session("session-paused", None, status="paused"))
    done(other, new_session("session-theirs", theirs), new_session("session-set-aside", theirs))
    store.quarantine("session-set-aside", "bad", NOW)
    assert store.sessions.orphans() == ["session-free"]
    other.close()
    assert sorted(store.sessions.orphans()) == ["session-free", "session-theirs"]
    assert store.sessions.orphans(limit=1) == ["session-free"]


def test_load_gives_the_snapshot_and_the_tail(store: Store) -> None:
    """With a snapshot only what follows it is read."""
    done(store, new_session("session-1", store.register("bot"), event("a"), event("b")))
    loaded = store.sessions.load("session-1")
    assert (loaded.snapshot, loaded.snapshot_seq, loaded.events) == (None, 0, (event("a"), event("b")))
    done(store, step("session-1", 1, 2, event("c"), snapshot=b'{"at":3}'))
    loaded = store.sessions.load("session-1")
    assert (loaded.snapshot, loaded.snapshot_seq, loaded.events) == (b'{"at":3}', 3, ())
    done(store, step("session-1", 1, 3, event("d")))
    loaded = store.sessions.load("session-1")
    assert (loaded.snapshot_seq, loaded.events) == (3, (event("d"),))
    assert loaded.head == store.sessions.head("session-1")


def test_a_later_snapshot_takes_the_place_of_the_earlier(store: Store) -> None:
    """There is one snapshot, the latest."""
    done(store, new_session("session-1", store.register("bot"), event("a"), snapshot=b"1"))
    done(store, step("session-1", 1, 1, event("b"), snapshot=b"2"))
    assert astuple(store.sessions.load("session-1"))[1:] == (b"2", 2, ())


def test_the_journal_can_be_read_from_a_seq(store: Store) -> None:
    """All of it is verified, and what follows `after` is given."""
    done(store, new_session("session-1", store.register("bot"), event("a"), event("b"), event("c")))
    assert list(store.sessions.journal("session-1", after=2)) == [event("c")]
    assert list(store.sessions.journal("session-1", after=9)) == []


def test_quarantine_sets_a_session_aside(store: Store) -> None:
    """Nobody claims it, nobody commits to it, and the thread's intent is stored with it."""
    owner = rich_session(store)
    store.quarantine("session-1", "does not verify", at(9), [PutOutbox("q", "T1:C1", "post", b"{}")])
    store.quarantine("session-1", "a second reason", at(10))
    with pytest.raises(SessionQuarantined, match="does not verify"):
        claim(store, "session-1", owner, NOW)
    [error] = tried(store, [step("session-1", 1, 4, event("e"))])
    assert isinstance(error, Fenced)
    head = head_of(store, "session-1")
    assert (head.quarantined, head.owner, head.seq) == ("does not verify", None, 4)
    assert store.sessions.heads() == [head]
    assert store.outbox.row("q") is not None
    assert len(list(store.sessions.journal("session-1"))) == 4


def test_a_commit_that_is_fenced_says_so_whatever_else_it_cannot_have(
    store: Store, backend: SqliteBackend
) -> None:
    """Whoever has lost a session must not take the reason for one that it can wait out."""
    done(store, new_session("session-1", store.register("bot"), event("a")))
    other = backend.open()
    other.quarantine("session-1", "bad", NOW)
    other.close()
    [error] = tried(store, [step("session-1", 1, 1, event("b"), rows=(TakeLock("prod", "session-1"),))])
    assert type(error) is Fenced


@pytest.mark.parametrize("text", ["\\ud800", "a\\0b", "k" * 1201], ids=["surrogate", "NUL", "long"])
def test_text_that_no_row_can_hold_is_refused_in_one_way(store: Store, text: str) -> None:
    """By every store alike, where it is looked up as where it is stored."""
    text, owner = text.encode().decode("unicode_escape"), store.register("bot")
    writes: list[Callable[[], object]] = [
        lambda: store.inbox.ingest([InboxItem(text, "message", b"{}")], NOW),
        lambda: store.consume([], NOW, [PutLock(text, "session-1")]),
        lambda: done(store, new_session(text, owner, event("a"))),
        lambda: done(store, new_session("session-1", owner, event("a"), thread_key=text)),
    ]
    lookups: list[Callable[[], object]] = [
        lambda: store.sessions.heads(statuses=[text]),
        lambda: store.sessions.heads(thread_key=text),
        lambda: store.prompts.rows(statuses=[text]),
        lambda: store.kept.rows("note", [text]),
        lambda: store.inbox.row(text),
    ]
    for write in writes:
        with pytest.raises(RowRefused):
            write()
    for look in lookups:
        with suppress(RowRefused):
            assert not look()
    assert store.sessions.heads() == []


def test_quarantine_of_an_unknown_session(store: Store) -> None:
    """Nothing is set aside where there is nothing."""
    with pytest.raises(UnknownSession):
        store.quarantine("session-none", "why", NOW, [PutOutbox("q", "l", "post", b"{}")])
    assert store.outbox.row("q") is None


# --- housekeeping ----------------------------------------------------------------------------------------


def put(store: Store, *rows: PutOutbox, now: str = NOW) -> None:
    store.consume([], now, rows)


def test_changed_tells_of_others_only(backend: SqliteBackend, store: Store) -> None:
    """A commit of another connection is seen once; one's own is not."""
    other = backend.open()
    assert not store.changed()
    store.inbox.ingest([MESSAGE], NOW)
    assert not store.changed()
    other.inbox.ingest([InboxItem("m2", "message", b"{}")], NOW)
    assert store.changed()
    assert not store.changed()
    other.inbox.ingest([InboxItem("m2", "message", b"{}")], NOW)
    assert other.changed()
    other.close()


def test_reap_deletes_old_sessions_with_all_their_rows(store: Store) -> None:
    """What ended long ago goes with everything that belongs to it; the rest stays."""
    rich_session(store, "session-1")
    rich_session(store, "session-2")
    done(store, step("session-1", 1, 4, event("z"), status="failed", phase="ended", now=at(5)))
    assert reaped(store, at(5), NOW) == 0
    assert reaped(store, at(6), NOW) == 1
    assert store.sessions.head("session-1") is None
    with pytest.raises(UnknownSession):
        store.sessions.load("session-1")
    assert [row.session_id for row in store.timers.rows()] == ["session-2"]
    assert [row.session_id for row in store.prompts.rows()] == ["session-2"]
    assert [row.session_id for row in store.outbox.due(now=NOW)] == ["session-2"]
    assert store.inbox.row("message-session-1") is not None
    assert store.flows.text(FLOW_DIGEST) == FLOW
    assert len(store.sessions.load("session-2").events) == 2


def test_reap_deletes_flows_that_nobody_pins(store: Store) -> None:
    """With its last session a pinned flow goes."""
    done(store, new_session("session-1", None, status="complete"))
    assert reaped(store, at(1), NOW) == 1
    with pytest.raises(StorageError):
        store.flows.text(FLOW_DIGEST)


def test_reap_keeps_inbox_keys_longer_than_their_session(store: Store) -> None:
    """A consumed key stays while its session or its thread's session is there; an open row stays anyway."""
    done(store, new_session("session-1", None, status="complete", thread_key="T"))
    items = [
        InboxItem("session", "message", b"{}", "session-1"),
        InboxItem("thread", "message", b"{}", None, "T"),
        InboxItem("loose", "message", b"{}"),
        InboxItem("open", "message", b"{}"),
    ]
    store.inbox.ingest(items, NOW)
    store.consume([Consumed(n, "applied") for n in (1, 2, 3)], NOW)

    def keys() -> list[str]:
        return [item.key for item in items if store.inbox.row(item.key)]

    reaped(store, NOW, at(1))
    assert keys() == ["session", "thread", "open"]
    reaped(store, at(1), at(1))
    assert keys() == ["open"]
    assert store.inbox.ingest([InboxItem("new", "message", b"{}")], NOW) == [5]


def test_reap_deletes_old_intents_without_a_session(store: Store) -> None:
    """Hints that were sent long ago go; pending ones stay."""
    put(store, PutOutbox("sent", "a", "hint", b"{}"), PutOutbox("pending", "a", "hint", b"{}"))
    store.outbox.finish(1, 1, now=NOW, state="sent")
    reaped(store, at(1), NOW)
    assert store.outbox.row("sent") is None
    assert store.outbox.row("pending") is not None


def test_reap_deletes_an_intent_that_came_after_its_session_was_deleted(store: Store) -> None:
    """What is written for a session while it is deleted is kept no longer than other intents; that of a living one is."""
    done(store, new_session("session-1", None, status="paused"))
    put(
        store,
        PutOutbox("late", "a", "hint", b"{}", "session-gone"),
        PutOutbox("its", "a", "hint", b"{}", "session-1"),
    )
    store.outbox.finish(1, 1, now=NOW, state="sent")
    store.outbox.finish(2, 1, now=NOW, state="sent")
    reaped(store, at(1), NOW)
    assert store.outbox.row("late") is None
    assert store.outbox.row("its") is not None


def test_intents_of_a_session_are_found_by_how_their_keys_begin(store: Store) -> None:
    """In any state, in the order in which they came; neither others of the session nor those of other sessions."""
    keys = [("said:b", "session-1"), ("said:a", "session-1"), ("post", "session-1"), ("said:c", "session-2")]
    put(store, *(PutOutbox(key, "a", "hint", b"{}", session_id) for key, session_id in keys))
    store.outbox.finish(1, 1, now=NOW, state="failed")
    assert [row.key for row in store.outbox.of("session-1", "said:")] == ["said:b", "said:a"]


def test_a_closed_store_says_so(backend: SqliteBackend) -> None:
    """Using a store after its close is a storage error and nothing worse."""
    store = backend.open()
    store.close()
    store.close()
    with pytest.raises(StorageError):
        store.inbox.ingest([MESSAGE], NOW)
    with pytest.raises(StorageError):
        store.sessions.heads()


def test_signatures_depend_on_key_purpose_and_body(store: Store) -> None:
    """What leaves the store can be recognised under the same key only."""
    signed = store.sign("snapshot", b"body")
    assert signed == store.sign("snapshot", b"body")
    other = Sealer(b"another key of 32 bytes ........").mac(b"sign", "snapshot", b"body")
    assert len({signed, other, store.sign("other", b"body"), store.sign("snapshot", b"bodY")}) == 4


def test_a_short_key_is_refused() -> None:
    """A key that can be guessed protects nothing."""
    with pytest.raises(KeyMissing, match="16"):
        Sealer(b"short")


def test_a_stored_flow_is_verified(backend: SqliteBackend, store: Store) -> None:
    """A pinned flow that no longer has its digest is not run."""
    done(store, new_session("session-1", None))
    backend.outside.execute("UPDATE flows SET body = x'7b7d'")
    with pytest.raises(Corrupt):
        store.flows.text(FLOW_DIGEST)


# --- lists -----------------------------------------------------------------------------------------------


def test_lists_of_sessions_have_pages(store: Store) -> None:
    """`before` gives those older than that session, of the statuses that are asked for; of an unknown one nothing."""
    owner = store.register("bot")
    for number in range(5):
        status = "paused" if number % 2 else "running"
        done(store, new_session(f"session-{number}", owner, event("a"), status=status, phase="waiting"))

    def ids(**wanted: Any) -> list[str]:
        return [head.session_id for head in store.sessions.heads(**wanted)]

    assert ids(limit=2) == ["session-4", "session-3"]
    assert ids(limit=2, before="session-3") == ["session-2", "session-1"]
    assert ids(before="session-3", statuses=["paused"]) == ["session-1"]
    assert ids(before="session-0") == ids(before="nobody") == []


def test_what_changed_lately_is_found(store: Store) -> None:
    """Sessions that were changed or ended at a time or later are given, and no others."""
    owner = store.register("bot")
    for name in ("still", "moved", "ended"):
        done(store, new_session(f"session-{name}", owner, event("a")))
    done(store, step("session-moved", 1, 1, event("b"), now=at(60)))
    done(store, step("session-ended", 1, 1, event("b"), now=at(70), status="complete", phase="ended"))
    assert {head.session_id for head in store.sessions.stirred(at(60))} == {"session-moved", "session-ended"}
    assert {head.session_id for head in store.sessions.stirred(at(61))} == {"session-ended"}
    assert len(store.sessions.stirred("")) == 3


def test_the_end_of_a_journal_is_read_alone(store: Store) -> None:
    """The events of the last rows are given, and of more rows than there are the whole journal."""
    owner = store.register("bot")
    done(store, new_session("session-1", owner, event("a"), event("b")))
    done(store, step("session-1", 1, 2, event("c"), event("d")))
    done(store, step("session-1", 1, 4, event("e")))
    assert store.sessions.ending("session-1", 1) == (event("e"),)
    assert store.sessions.ending("session-1", 2) == (event("c"), event("d"), event("e"))
    assert store.sessions.ending("session-1", 3) == store.sessions.ending("session-1", 9)
    assert store.sessions.ending("session-1", 9) == tuple(store.sessions.journal("session-1"))
    with pytest.raises(UnknownSession):
        store.sessions.ending("session-2", 1)


def test_a_session_is_known_by_its_first_event_alone(store: Store) -> None:
    """The first event is given without what follows it; there is none of a session that does not exist."""
    owner = store.register("bot")
    done(store, new_session("session-1", owner, event("first"), event("second")))
    done(store, step("session-1", 1, 2, event("third")))
    assert store.sessions.opening("session-1") == event("first")
    with pytest.raises(UnknownSession):
        store.sessions.opening("session-2")


def test_leaves_of_the_audit_log_come_back_in_order_and_are_appended_by_one_at_a_time(store: Store) -> None:
    """Who believes in another size stores nothing; a session is ahead until a leaf has all of its events."""
    done(store, new_session("session-1", None, event("a"), event("b"), status="complete", phase="ended"))
    assert store.evidence.ahead() == store.evidence.ahead(NOW) == ["session-1"]
    assert store.evidence.ahead(at(1)) == []
    rows = [LeafRow("", 0, "{}", None, None), LeafRow("session-1", 1, "{}", "note", b"p" * 32)]
    assert store.evidence.append(0, rows)
    assert not store.evidence.append(0, rows)
    assert store.evidence.ahead() == ["session-1"]
    last = LeafRow("session-1", 2, "{}", "more", b"q" * 32)
    assert store.evidence.append(2, [last])
    assert store.evidence.ahead() == []
    assert (store.evidence.size(), list(store.evidence.after(1))) == (3, [rows[1], last])
    assert (store.evidence.newest("session-1"), store.evidence.newest("session-2")) == (last, None)


def test_two_processes_attest_side_by_side_and_an_export_verifies(store: Store) -> None:
    """Whoever is slower attests again behind the other; no session has two leaves, and an auditor can follow all of them."""
    first, *events = [decode_event(line) for line in HISTORY.read_bytes().splitlines()]
    for number in range(8):
        started = replace(first, session_id=f"session-{number}")
        rows = [event.to_bytes() for event in (started, *events)]
        done(store, new_session(f"session-{number}", None, *rows, status="complete", phase="ended"))
    append, other = store.evidence.append, ["session-5", "session-6"]

    def overtaken(size: int, rows: Sequence[LeafRow]) -> bool:
        if other:
            evidence.attest_some(store, [other.pop()], NOW)
        return append(size, rows)

    store.evidence.append = overtaken  # type: ignore[method-assign]
    assert evidence.attest(store, NOW)
    leaves = [row.session_id for row in store.evidence.after(0)]
    assert sorted(leaves) == ["", *(f"session-{number}" for number in range(8))]
    found = evidence.Export(store, 0, content=True)
    assert check(evidence.keys(store), [("export", b"".join(line + b"\n" for line in found.lines()))])
    assert (found.damaged, len(found.sessions)) == ([], 8)
