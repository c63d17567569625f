"""The service: what other processes ask for, rows that wait, orphans and timers, and one session's trouble."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine.decide.commands import Abort, Answer, Edit, HandOver, Message, NodeBroke, NodeDone, Revoke, Shown
from engine.journal.records import Head, InboxItem, InboxRow, Timer
from engine.language.actors import Actor
from engine.language.codec import decode, encode
from engine.language.errors import SchemaTooNew, StorageError
from engine.run import remote_commands
from engine.run.dispatcher import Dispatcher, LocalWakeups
from engine.run.remote_commands import BadRequest
from engine.storage.store import Store
from tests.support.engine import (
    ANA,
    BEN,
    Backing,
    Clock,
    EngineRig,
    FaultyStore,
    nobody_but,
    running,
    served,
    until,
)

ASK = "nodes: [{id: q, type: ask, with: {message: How?, timeout: 10m}}, {id: b, type: shell, with: {run: [now]}}]"
WORK = "nodes: [{id: a, type: shell, with: {run: [wait]}}]"
TELL = "nodes: [{id: tell, type: message, with: {text: Hi}}, {id: b, type: shell, with: {run: [now]}}]"


def put(store: Store, item: InboxItem) -> None:
    """What another process does."""
    assert store.inbox.ingest([item], "2026-11-21T09:00:00.000Z") != [None]


def outcome(store: Store, key: str) -> str | None:
    """What became of a row."""
    row = store.inbox.row(key)
    assert row is not None
    return row.outcome


# --- requests -----------------------------------------------------------------------------------------------


async def test_an_answer_of_another_process_is_applied(backing: Backing, tmp_path: Path) -> None:
    """A row that another connection wrote is noticed, carried out and consumed in the step's own commit."""
    async with running(backing.open(), tmp_path) as rig, served(rig.engine):
        session_id, prompt_id = await rig.asked(ASK)
        cli = backing.open()
        put(
            cli,
            remote_commands.item("cli:1", session_id, "answer", actor=ANA, promptId=prompt_id, text="fine"),
        )
        await rig.committed.until("session:end", session_id)
        assert outcome(cli, "cli:1") == "applied"
        assert rig.shop.ran == ["b"]
        cli.close()


async def test_a_refused_request_is_consumed_with_the_reason(backing: Backing, tmp_path: Path) -> None:
    """Whoever asked finds the error's code and sentence in the row's result."""
    async with (
        running(backing.open(), tmp_path, policy=nobody_but(ANA)) as rig,
        served(rig.engine) as service,
    ):
        session_id = (await rig.settled(ASK)).session_id
        put(rig.store, remote_commands.item("cli:1", session_id, "abort", actor=BEN))
        put(rig.store, remote_commands.item("cli:2", "session-none", "abort", actor=BEN))
        service.notify()
        await until(lambda: None not in (outcome(rig.store, "cli:1"), outcome(rig.store, "cli:2")))
        row = rig.store.inbox.row("cli:1")
        assert row is not None
        assert row.result is not None
        assert decode(row.result) == {"error": "not_allowed", "message": "ben may not cancel"}
        assert (outcome(rig.store, "cli:1"), outcome(rig.store, "cli:2")) == ("refused", "refused")
        assert (await rig.engine.state(session_id)).phase == "waiting"


@pytest.mark.parametrize(
    "payload",
    [
        b"{}",
        b"[]",
        b"null",
        b"{",
        b'{"do":"answer"}',
        b'{"do":"abort","actor":{"name":1}}',
    ],
)
async def test_a_request_that_nobody_understands_is_refused_and_holds_nothing_up(
    payload: bytes, tmp_path: Path
) -> None:
    """It does not block the requests behind it."""
    async with running(Backing("memory", tmp_path).open(), tmp_path) as rig, served(rig.engine) as service:
        session_id = (await rig.settled(ASK)).session_id
        put(rig.store, InboxItem("cli:1", "request", payload, session_id))
        put(rig.store, remote_commands.item("cli:2", session_id, "message", actor=ANA, text="fine"))
        service.notify()
        await rig.committed.until("session:end", session_id)
        assert outcome(rig.store, "cli:1") == "refused"


async def test_requests_mean_what_they_say() -> None:
    """Every request becomes its command, with the actor and all its facts."""
    actor = Actor(id="U1", name="x", groups=frozenset({"sre", "ops"}), facts_known=True, in_channel=True)

    def read(do: str, **fields: Any) -> Any:
        item = remote_commands.item("key", "session-1", do, actor=actor, **fields)
        return remote_commands.command(
            InboxRow(1, item.key, item.kind, item.payload, "session-1", None, "", None, None)
        )

    assert read("shown", promptId="p", shown={"ts": "1"}) == Shown("p", {"ts": "1"})
    assert read("delivered", path="a", attempt=2, output={}) == NodeDone("a", 2, {})
    assert read("undelivered", path="a", attempt=2, error={"type": "x"}) == NodeBroke("a", 2, {"type": "x"})
    assert read("answer", promptId="p", value="eu") == Answer("p", actor, "key", value="eu")
    assert read("answer", promptId="p", text="eu") == Answer("p", actor, "key", text="eu")
    given: dict[str, Any] = {"values": {"a": 1}, "reason": "r", "files": [{"name": "f"}], "nonce": "n"}
    assert read("answer", promptId="p", **given) == Answer("p", actor, "key", **given)
    assert read("edit", promptId="p", values={"a": 1}, nonce="n") == Edit("p", actor, "key", {"a": 1}, "n")
    assert read("handOver", promptId="p", to="U2") == HandOver("p", actor, "key", "U2")
    assert read("revoke", promptId="p") == Revoke("p", actor, "key")
    assert read("message", text="hello") == Message("hello", actor, "key")
    assert read("abort", reason="enough") == Abort(actor, "enough")
    with pytest.raises(BadRequest):
        read("message")


def test_a_request_of_a_newer_release_is_no_bad_one() -> None:
    """A word, a field or a fact about a person that this release does not know is for one that does."""
    ana = remote_commands.actor_json(ANA)
    for payload in (
        {"do": "dance", "actor": ana},
        {"do": "message", "text": "hello", "mood": "good", "actor": ana},
        {"do": "message", "text": "hello", "actor": {**ana, "mood": "good"}},
    ):
        with pytest.raises(SchemaTooNew, match="newer"):
            remote_commands.command(InboxItem("key", "request", encode(payload)))


async def test_rows_survive_a_restart(backing: Backing, tmp_path: Path) -> None:
    """What was stored and not consumed is handled by the next process, once and in order."""
    async with running(backing.open(), tmp_path) as rig:
        session_id = (await rig.settled(ASK)).session_id
        put(rig.store, remote_commands.item("m1", session_id, "message", actor=ANA, text="first"))
        put(rig.store, remote_commands.item("m2", session_id, "message", actor=ANA, text="second"))
    async with running(backing.open(), tmp_path) as rig, served(rig.engine):
        await rig.committed.until("session:end", session_id)
        await until(lambda: outcome(rig.store, "m2") is not None)
        assert (await rig.engine.state(session_id)).nodes["q"].output["text"] == "first"
        assert outcome(rig.store, "m1") == "applied"
        # The session was on its way to its end when the second one came: it was kept for it, or came too late.
        assert outcome(rig.store, "m2") in ("applied", "refused")


# --- handlers -----------------------------------------------------------------------------------------------


async def test_a_held_row_keeps_its_lane_waiting_and_no_other(backing: Backing, tmp_path: Path) -> None:
    """Rows of one thread are handled in order, lanes side by side; a held row is tried again when something happens."""
    done: list[str] = []
    ready: list[str] = ["b1"]

    async def handler(row: InboxRow) -> bool:
        if row.key not in ready:
            return False
        done.append(row.key)
        await service.consume(row, "done")
        return True

    async with (
        running(backing.open(), tmp_path) as rig,
        served(rig.engine, handlers={"word": handler}) as service,
    ):
        for key, lane in (("a1", "A"), ("a2", "A"), ("b1", "B")):
            put(rig.store, InboxItem(key, "word", b"{}", thread_key=lane))
        service.notify()
        await until(lambda: done == ["b1"])
        ready += ["a2", "a1"]
        service.notify()
        await until(lambda: len(done) == 3)
        assert done == ["b1", "a1", "a2"]


async def test_a_handler_that_raises_after_it_consumed_is_not_called_again(
    backing: Backing, tmp_path: Path
) -> None:
    """A consumed row has ended, whatever happened after."""
    calls: list[str] = []

    async def handler(row: InboxRow) -> bool:
        calls.append(row.key)
        if row.key == "a1":
            await service.consume(row, "done")
            raise ZeroDivisionError("after the commit")
        await service.consume(row, "done")
        return True

    async with (
        running(backing.open(), tmp_path) as rig,
        served(rig.engine, handlers={"word": handler}) as service,
    ):
        put(rig.store, InboxItem("a1", "word", b"{}", thread_key="A"))
        put(rig.store, InboxItem("a2", "word", b"{}", thread_key="A"))
        service.notify()
        await until(lambda: calls == ["a1", "a2"])


async def test_a_handler_that_raises_is_tried_again(backing: Backing, tmp_path: Path) -> None:
    """An error of ours is never taken for an answer: the row stays until it could be handled."""
    calls: list[str] = []

    async def handler(row: InboxRow) -> bool:
        calls.append(row.key)
        if len(calls) < 3:
            raise ZeroDivisionError("not yet")
        await service.consume(row, "done")
        return True

    async with (
        running(backing.open(), tmp_path) as rig,
        served(rig.engine, handlers={"word": handler}) as service,
    ):
        put(rig.store, InboxItem("a1", "word", b"{}", thread_key="A"))
        for count in (1, 2, 3):
            service.notify()
            await until(lambda count=count: len(calls) >= count)  # type: ignore[misc]  # bound on purpose
        await until(lambda: outcome(rig.store, "a1") == "done")


async def test_rows_of_kinds_that_nobody_handles_here_are_left(rig: EngineRig) -> None:
    """A row for another part of the program stays unconsumed."""
    put(rig.store, InboxItem("x1", "other", b"{}"))
    async with served(rig.engine):
        pass
    assert outcome(rig.store, "x1") is None


# --- whose sessions -----------------------------------------------------------------------------------------


def never(head: Head) -> bool:
    """A process that wants no session."""
    return False


async def test_sessions_that_are_not_wanted_are_left_alone(backing: Backing, tmp_path: Path) -> None:
    """Orphans, timers and requests of sessions that another kind of process serves stay as they are."""
    now = Clock()
    async with running(backing.open(), tmp_path, now=now) as rig:
        waiting = (await rig.settled("nodes: [{id: w, type: wait, with: {for: 1m}}]")).session_id
        await rig.engine.drain(0)
        orphan = await rig.start(WORK)
        put(rig.store, remote_commands.item("cli:1", waiting, "abort", actor=ANA))
    now.advance(3600)
    async with running(backing.open(), tmp_path, now=now) as rig, served(rig.engine, wants=never):
        assert rig.shop.ran == []
        assert outcome(rig.store, "cli:1") is None
        assert [(head.session_id, head.owner) for head in rig.store.sessions.heads()] == [
            (orphan, None),
            (waiting, None),
        ]
        assert [timer.session_id for timer in rig.store.timers.rows()] == [waiting]


async def test_many_timers_that_are_not_wanted_hold_back_none_that_is(
    backing: Backing, tmp_path: Path
) -> None:
    """More overdue timers of other processes' sessions than one look takes do not hide ours."""
    now = Clock()
    async with running(backing.open(), tmp_path, now=now) as rig:
        theirs = [
            (await rig.settled("nodes: [{id: w, type: wait, with: {for: 1m}}]")).session_id
            for _ in range(120)
        ]
        ours = (await rig.settled("nodes: [{id: w, type: wait, with: {for: 2m}}]")).session_id
        now.advance(3600)
        async with served(rig.engine, wants=lambda head: head.session_id == ours) as service:
            for _ in range(3):
                service.notify()
            await rig.committed.until("session:end", ours)
            assert len(rig.store.timers.rows(limit=500)) == len(theirs)


async def test_a_session_that_waits_for_a_delivery_is_taken_up_once(rig: EngineRig) -> None:
    """It is running and nobody's: sweeping it again and again would only write epochs."""
    session_id = (await rig.settled(TELL)).session_id
    async with served(rig.engine) as service:
        epoch = (await rig.engine.head(session_id)).epoch
        for _ in range(3):
            service._swept = float("-inf")
            await service._sweep()
        assert (await rig.engine.head(session_id)).epoch == epoch
        put(
            rig.store,
            remote_commands.item("d1", session_id, "delivered", path="tell", attempt=1, output={"ts": "1"}),
        )
        service.notify()
        await rig.committed.until("session:end", session_id)
        assert rig.shop.ran == ["b"]


async def test_one_sessions_trouble_stops_no_other(backing: Backing, tmp_path: Path) -> None:
    """An orphan that cannot continue at all is logged; the next one is taken up."""
    async with running(backing.open(), tmp_path) as rig:
        await rig.engine.drain(0)
        first = await rig.start(WORK)
        second = await rig.start(WORK)
    async with running(backing.open(), tmp_path) as rig:
        broken = _Refusing(rig, first)
        async with served(rig.engine):
            await rig.shop.finish("a")
            assert (await rig.engine.parked(second)).status == "complete"
            assert broken.asked


class _Refusing:
    """Lets an engine fail with a programming error for one session."""

    def __init__(self, rig: EngineRig, session_id: str) -> None:
        self.asked = 0
        inner = rig.engine.apply

        async def apply(wanted: str, *args: Any, **kwargs: Any) -> Any:
            if wanted == session_id:
                self.asked += 1
                raise ZeroDivisionError("a bug")
            return await inner(wanted, *args, **kwargs)

        rig.engine.apply = apply  # type: ignore[method-assign, assignment]  # a bug cannot be had otherwise


async def test_a_store_that_fails_for_a_while_is_asked_again(backing: Backing, tmp_path: Path) -> None:
    """Neither a failing look at the store nor a failing wake-up ends the service."""
    store = FaultyStore(backing.open())
    async with running(store, tmp_path) as rig, served(rig.engine) as service:
        store.answers = {"changed": StorageError("busy"), "timers.rows": StorageError("busy")}
        service.notify()
        session_id = (await rig.settled(ASK)).session_id
        store.answers = {}
        put(rig.store, remote_commands.item("m1", session_id, "message", actor=ANA, text="fine"))
        service.notify()
        await rig.committed.until("session:end", session_id)


async def test_a_timer_that_belongs_to_nothing_is_not_fired_in_a_rush(rig: EngineRig) -> None:
    """An overdue timer that changes nothing is looked at again later, not at once."""
    session_id = (await rig.settled(ASK)).session_id
    with_timer = Timer("stale", session_id, "2020-01-01T00:00:00.000Z")
    rig.store.consume((), rig.clock.now, [with_timer])
    service = Dispatcher(rig.engine)
    assert await service._fire() >= 0.1
    assert (await rig.engine.state(session_id)).phase == "waiting"


# --- wake-ups -----------------------------------------------------------------------------------------------


async def test_a_wake_up_that_came_before_the_wait_is_not_lost() -> None:
    """`notify` before `wait` lets the next `wait` return at once, and only that one."""
    asked: list[int] = []

    async def changed() -> bool:
        asked.append(1)
        return len(asked) >= 2

    dispatcher = LocalWakeups(changed, poll_seconds=0.001)
    dispatcher.notify()
    await asyncio.wait_for(dispatcher.wait(60), 5)
    assert asked == []
    await asyncio.wait_for(dispatcher.wait(60), 5)
    assert len(asked) == 2


async def test_a_wait_ends_when_its_time_is_over() -> None:
    """Without any wake-up `wait` returns after its seconds."""

    async def changed() -> bool:
        return False

    await asyncio.wait_for(LocalWakeups(changed, poll_seconds=0.001).wait(0.01), 5)
    await asyncio.wait_for(LocalWakeups(changed).wait(0), 5)


def test_an_actor_travels_with_all_its_facts() -> None:
    """`actor_from(actor_json(a)) == a`, through real JSON."""
    for actor in (ANA, Actor.local("ana"), Actor.pretend("@sre"), Actor.itself("timer")):
        assert remote_commands.actor_from(decode(encode(remote_commands.actor_json(actor)))) == actor
