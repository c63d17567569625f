"""The writer thread: order, group commit, errors, cancellation, and its own death."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from engine.journal.records import Commit, InboxItem, Lost, Stored
from engine.language.errors import (
    RowRefused,
    StorageBroken,
    StorageError,
    StorageFull,
    UnknownSession,
)
from engine.storage import group_commit
from engine.storage.group_commit import Writer
from engine.storage.open import MemoryStore
from engine.storage.sqlite import open_sqlite
from engine.storage.store import PartResult
from tests.storage.storagekit import KEY, NOW, done, event, new_session, step


class Recorder(MemoryStore):
    """A store that remembers its batches and can be told to fail or to wait."""

    def __init__(self) -> None:
        super().__init__(KEY)
        self.batches: list[list[str]] = []
        self.threads: set[str] = set()
        self.failure: BaseException | None = None

    def commit(self, batch: Sequence[Commit]) -> list[PartResult]:
        self.batches.append([commit.session_id for commit in batch])
        self.threads.add(threading.current_thread().name)
        if self.failure is not None:
            raise self.failure
        return super().commit(batch)


@pytest.fixture
def store() -> Recorder:
    """A recording store with sessions 0 to 9."""
    store = Recorder()
    done(store, *(new_session(f"session-{n}", None, event("a")) for n in range(10)))
    store.batches.clear()
    store.threads.clear()
    return store


@pytest.fixture
async def writer(store: Recorder) -> AsyncIterator[Writer]:
    """Its writer, started."""
    writer = Writer(store)
    writer.start()
    yield writer
    writer.close()


class Gate:
    """Holds the writer thread until it is opened."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.entered = asyncio.Event()
        self._open = threading.Event()
        self._loop = asyncio.get_running_loop()

    def _wait(self) -> None:
        self._loop.call_soon_threadsafe(self.entered.set)
        self._open.wait(30)

    async def __aenter__(self) -> Gate:
        self._task = asyncio.ensure_future(self.writer.call(self._wait))
        await self.entered.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open.set()
        await self._task


async def queued(*tasks: asyncio.Task[Any]) -> None:
    """Let tasks run up to where they wait for the writer (each submits before its first suspension)."""
    await asyncio.gather(*(asyncio.wait([task], timeout=0) for task in tasks))


async def together(writer: Writer, *works: Coroutine[Any, Any, Any]) -> list[Any]:
    """What comes of work that waits when the thread comes around, each result or error in its place."""
    async with Gate(writer):
        tasks = [asyncio.ensure_future(work) for work in works]
        await queued(*tasks)
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_commit_is_done_on_return(store: Recorder, writer: Writer) -> None:
    """What was committed can be read, and was written by the writer's thread."""
    await writer.commit(step("session-0", 1, 1, event("b")))
    assert list(store.sessions.journal("session-0")) == [event("a"), event("b")]
    assert store.threads == {"sayso-writer"}


async def test_queued_commits_share_one_transaction(store: Recorder, writer: Writer) -> None:
    """All that wait when the thread comes around go together."""
    await together(writer, *(writer.commit(step(f"session-{n}", 1, 1, event("b"))) for n in range(10)))
    assert store.batches == [[f"session-{n}" for n in range(10)]]


async def test_each_waiter_hears_of_its_own_commit(store: Recorder, writer: Writer) -> None:
    """In a group one is fenced, one unknown, and the others succeed."""
    found = await together(
        writer,
        writer.commit(step("session-0", 1, 1, event("b"))),
        writer.commit(step("session-1", 9, 1, event("b"))),
        writer.commit(step("session-none", 1, 1, event("b"))),
    )
    assert [type(error) for error in found] == [Stored, Lost, UnknownSession]
    assert len(store.batches) == 1


async def test_calls_and_commits_keep_their_order(store: Recorder, writer: Writer) -> None:
    """A read between two commits sees the first and not the second."""

    def read() -> int:
        return len(list(store.sessions.journal("session-0")))

    found = await together(
        writer,
        writer.commit(step("session-0", 1, 1, event("b"))),
        writer.call(read),
        writer.commit(step("session-0", 1, 2, event("c"))),
        writer.call(read),
    )
    assert found == [Stored(), 2, Stored(), 3]
    assert store.batches == [["session-0"], ["session-0"]]


def ingested(writer: Writer, *keys: str) -> Coroutine[Any, Any, list[int | None]]:
    """The ids of items with these keys, once they are stored."""
    return writer.ingest([InboxItem(key, "message", b"{}") for key in keys], NOW)


async def test_replies_that_are_queued_are_ingested_together(store: Recorder, writer: Writer) -> None:
    """Each waiter gets the ids of its own items, and a key that is known gives None."""
    found = await together(writer, *(ingested(writer, *keys) for keys in (["m1", "m2"], ["m1"], ["m3"])))
    assert found == [[1, 2], [None], [3]]


async def test_what_cannot_be_stored_takes_nothing_else_with_it(store: Recorder, writer: Writer) -> None:
    """An item with text that is not Unicode is refused, and those that share its transaction are stored."""
    first, refused, third = await together(
        writer, *(ingested(writer, key) for key in ("m1", "m\ud800", "m3"))
    )
    assert isinstance(refused, RowRefused)
    assert (first, third) == ([1], [2])


async def test_commits_of_other_sessions_go_together_past_a_read(store: Recorder, writer: Writer) -> None:
    """A read between them sees what came before it, and does not keep them from sharing a transaction."""
    found = await together(
        writer,
        writer.commit(step("session-0", 1, 1, event("b"))),
        writer.call(lambda: len(list(store.sessions.journal("session-0")))),
        writer.commit(step("session-1", 1, 1, event("b"))),
    )
    assert found == [Stored(), 2, Stored()]
    assert store.batches == [["session-0", "session-1"]]


async def test_a_method_may_be_named(store: Recorder, writer: Writer) -> None:
    """`call` takes the method or its name, with arguments, and passes its error on."""
    assert await writer.call(writer.store.inbox.ingest, [InboxItem("m", "message", b"{}")], NOW) == [1]
    assert await writer.call(store.inbox.ingest, [InboxItem("m", "message", b"{}")], now=NOW) == [None]
    assert [row.key for row in await writer.call(writer.store.inbox.rows, limit=5)] == ["m"]
    with pytest.raises(UnknownSession):
        await writer.call(writer.store.sessions.load, "session-none")


async def test_a_failed_transaction_is_everybodys_error(store: Recorder, writer: Writer) -> None:
    """When the whole batch fails, each waiter gets an error of its own, and the writer continues."""
    store.failure = StorageFull("no space")
    commits = (writer.commit(step(f"session-{n}", 1, 1, event("b"))) for n in range(3))
    errors = await together(writer, *commits)
    assert [type(error) for error in errors] == [StorageFull] * 3
    assert len({id(error) for error in errors}) == 3
    store.failure = None
    await writer.commit(step("session-0", 1, 1, event("c")))
    assert list(store.sessions.journal("session-0")) == [event("a"), event("c")]


async def test_a_cancelled_waiter_takes_nothing_back(store: Recorder, writer: Writer) -> None:
    """What was queued is committed even if nobody waits for it any more."""
    async with Gate(writer):
        task = asyncio.ensure_future(writer.commit(step("session-0", 1, 1, event("b"))))
        await queued(task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await writer.call(lambda: len(list(store.sessions.journal("session-0")))) == 2


async def test_when_the_thread_dies_everybody_is_told(store: Recorder, writer: Writer) -> None:
    """Those in the batch, those queued behind it and those who come later get an error, and nobody waits forever."""
    store.failure = SystemExit("killed")
    errors = await together(
        writer,
        writer.commit(step("session-0", 1, 1, event("b"))),
        writer.call(writer.store.sessions.head, "session-0"),
        writer.commit(step("session-1", 1, 1, event("b"))),
    )
    assert [type(error) for error in errors] == [StorageBroken] * 3
    with pytest.raises(StorageBroken, match="killed"):
        await writer.commit(step("session-0", 1, 1, event("b")))
    writer.close()


async def test_close_carries_out_what_is_queued(store: Recorder) -> None:
    """Closing loses nothing; afterwards the writer refuses."""
    writer = Writer(store)
    with pytest.raises(StorageError, match="start"):
        await writer.commit(step("session-0", 1, 1, event("b")))
    writer.start()
    writer.start()
    tasks = [asyncio.ensure_future(writer.commit(step(f"session-{n}", 1, 1, event("b")))) for n in range(10)]
    await queued(*tasks)
    writer.close()
    writer.close()
    await asyncio.gather(*tasks)
    with pytest.raises(StorageError, match="closed"):
        await writer.call(writer.store.inbox.rows)


async def test_a_closed_writer_may_start_again(store: Recorder) -> None:
    """A writer can be stopped and started."""
    writer = Writer(store)
    for seq in (1, 2):
        writer.start()
        await writer.commit(step("session-0", 1, seq, event("b")))
        writer.close()
    assert len(list(store.sessions.journal("session-0"))) == 3


def test_several_event_loops_may_share_a_writer(store: Recorder) -> None:
    """Each waiter is told on its own loop; a loop that has ended disturbs nobody."""
    writer = Writer(store)
    writer.start()

    async def abandon(n: int) -> None:
        task = asyncio.ensure_future(writer.commit(step(f"session-{n}", 1, 1, event("b"))))
        await queued(task)

    async def use(n: int) -> None:
        await writer.commit(step(f"session-{n}", 1, 1, event("b")))

    asyncio.run(abandon(0))
    threads = [threading.Thread(target=asyncio.run, args=(use(n),)) for n in range(2, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    writer.close()
    assert [len(list(store.sessions.journal(f"session-{n}"))) for n in (0, 2, 3, 4, 5)] == [2] * 5


async def test_the_writer_drives_a_real_database(tmp_path: Path) -> None:
    """Many sessions at once on SQLite: all events of all of them are there."""
    store = open_sqlite(tmp_path / "sayso.db", key=KEY)
    writer = Writer(store)
    writer.start()

    async def session(n: int) -> None:
        await writer.commit(new_session(f"session-{n}", None, event("a")))
        for seq in range(1, 6):
            await writer.commit(step(f"session-{n}", 1, seq, event("b")))

    await asyncio.gather(*(session(n) for n in range(30)))
    counts = [len(list(await writer.call(store.sessions.journal, f"session-{n}"))) for n in range(30)]
    assert counts == [6] * 30
    writer.close()
    store.close()


# --- on the loop's own thread ---------------------------------------------------------------------------------


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit counts as a short one, however slow this machine is."""
    monkeypatch.setattr(group_commit, "HERE_SECONDS", 60.0)


@pytest.fixture
async def lone(short: None, store: Recorder, writer: Writer) -> Writer:
    """A writer that knows that commits are short, and had nothing else to do."""
    await writer.commit(step("session-9", 1, 1, event("b")))
    store.threads.clear()
    store.batches.clear()
    return writer


async def test_a_lone_commit_needs_no_other_thread(store: Recorder, lone: Writer) -> None:
    """Where nothing else waits, a commit is carried out on the loop's own thread."""
    assert isinstance(await lone.commit(step("session-0", 1, 1, event("b"))), Stored)
    assert store.threads == {threading.current_thread().name}
    assert list(store.sessions.journal("session-0")) == [event("a"), event("b")]


async def test_sessions_that_are_ready_in_the_same_turn_share_a_transaction(
    store: Recorder, lone: Writer
) -> None:
    """In one turn of the loop one commit is carried out at once, and the others wait for the disk together."""
    await asyncio.gather(*(lone.commit(step(f"session-{n}", 1, 1, event("b"))) for n in range(9)))
    assert store.batches == [["session-0"], [f"session-{n}" for n in range(1, 9)]]


async def test_a_lone_commit_fails_as_any_other(store: Recorder, lone: Writer) -> None:
    """What the store raises reaches the caller, and a fenced session is told so."""
    store.failure = StorageFull("No space is left.")
    with pytest.raises(StorageFull):
        await lone.commit(step("session-0", 1, 1, event("b")))
    store.failure = None
    await asyncio.sleep(0)
    assert isinstance(await lone.commit(step("session-0", 9, 1, event("b"))), Lost)
    assert store.threads == {threading.current_thread().name}


async def test_lone_commits_end_the_trouble_of_a_store(
    store: Recorder, lone: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the store was said to refuse is taken back once it works again, whichever thread carries its commits out."""
    told: list[str | None] = []
    monkeypatch.setattr(group_commit, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(store, "note_trouble", told.append)
    store.failure = StorageFull("No space is left.")
    with pytest.raises(StorageFull):
        await lone.commit(step("session-0", 1, 1, event("b")))
    store.failure = None
    await asyncio.sleep(0)
    await lone.commit(step("session-0", 1, 1, event("b")))
    assert [text is None for text in told] == [False, True]
    assert store.threads == {threading.current_thread().name}


async def test_a_commit_behind_a_job_waits_for_the_thread(store: Recorder, lone: Writer) -> None:
    """A commit sees what was queued before it."""
    async with Gate(lone):
        task = asyncio.ensure_future(lone.commit(step("session-0", 1, 1, event("b"))))
        await queued(task)
        assert not store.batches
    await task
    assert store.threads == {"sayso-writer"}


async def test_no_acknowledgement_waits_for_a_lone_commit(store: Recorder, lone: Writer) -> None:
    """While messages come in, commits are left to the writer's thread."""
    await lone.ingest([InboxItem("key", "event", b"{}")], NOW)
    await lone.commit(step("session-0", 1, 1, event("b")))
    assert store.threads == {"sayso-writer"}


async def test_slow_commits_are_left_to_the_thread(
    store: Recorder, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the disk is slow the loop does not wait for it."""
    monkeypatch.setattr(group_commit, "HERE_SECONDS", 0.0)
    for seq in (1, 2, 3):
        await writer.commit(step("session-0", 1, seq, event("b")))
    assert store.threads == {"sayso-writer"}


@pytest.mark.usefixtures("short")
async def test_the_loop_waits_for_no_other_program(tmp_path: Path) -> None:
    """While another program writes to the file the loop continues, and the commit follows."""
    store = open_sqlite(tmp_path / "sayso.db", key=KEY)
    writer = Writer(store)
    writer.start()
    await writer.commit(new_session("session-0", None, event("a")))
    other = apsw.Connection(str(tmp_path / "sayso.db"))
    other.execute("BEGIN IMMEDIATE")
    task = asyncio.ensure_future(writer.commit(step("session-0", 1, 1, event("b"))))
    await queued(task)
    assert not task.done()
    other.execute("ROLLBACK")
    assert isinstance(await task, Stored)
    other.close()
    writer.close()
    store.close()
