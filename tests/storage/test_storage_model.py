"""Random commands on both backends at once: they say the same."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.journal.records import (
    Consumed,
    DropTimer,
    InboxItem,
    PromptRow,
    PutOutbox,
    PutSpend,
    Row,
    SettleSpend,
    Timer,
)
from engine.language.errors import SaysoError
from engine.storage.open import MemoryStore
from engine.storage.sqlite import open_sqlite
from engine.storage.store import Store
from tests.storage.storagekit import KEY, at, claim, new_session, reaped, step, tried
from tests.support.proving import tries

SESSIONS = st.sampled_from(["session-1", "session-2", "session-3"])
THREADS = st.sampled_from([None, "T", "U"])
STATUSES = st.sampled_from(["running", "paused", "complete", "failed"])
SMALL = st.integers(0, 5)
TIMES = st.integers(0, 20).map(at)
BODIES = st.binary(max_size=8)
EVENTS = st.lists(BODIES, max_size=3).map(tuple)
KEYS = st.sampled_from(["m1", "m2", "m3", "m4"])
ITEMS = st.builds(InboxItem, KEYS, st.just("message"), BODIES, st.none() | SESSIONS, THREADS)
DONE = st.builds(Consumed, SMALL, st.sampled_from(["applied", "refused"]), st.none() | BODIES)
PROMPTS, TIMERS, INTENTS = ["p1", "p2", "p3"], ["t1", "t2"], ["k1", "k2", "k3", "k4"]
OPEN = st.sampled_from(["open", "answered"])
LANES = st.sampled_from(["lane1", "lane2"])
CALL = (SESSIONS, st.sampled_from(["a/turn[1]", "a/turn[2]"]), st.integers(1, 2))
"""A call of a model: its session, path and attempt."""
DAYS, CAPS = st.sampled_from(["2026-11-20", "2026-11-21"]), st.none() | st.integers(0, 12)
ROWS: st.SearchStrategy[Row] = st.one_of(
    st.builds(PromptRow, st.sampled_from(PROMPTS), SESSIONS, THREADS, OPEN, st.none() | TIMES, BODIES),
    st.builds(Timer, st.sampled_from(TIMERS), SESSIONS, TIMES),
    st.builds(DropTimer, st.sampled_from(TIMERS), SESSIONS),
    st.builds(
        PutOutbox,
        st.sampled_from(INTENTS),
        LANES,
        st.just("post"),
        BODIES,
        st.none() | SESSIONS,
        st.none() | TIMES,
        st.booleans(),
    ),
    st.builds(PutSpend, *CALL, st.just("deploy"), DAYS, SMALL, CAPS),
    st.builds(SettleSpend, *CALL, SMALL, st.booleans()),
)
SOME_ROWS = st.lists(ROWS, max_size=3).map(tuple)
SOME_DONE = st.lists(DONE, max_size=2).map(tuple)


class Backends(RuleBasedStateMachine):
    """A database in memory and one in a file, given the same commands. The stores of the file keep what they remember of
    sessions and ids; those in memory forget it before each command, and must say the same."""

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "sayso.db"
        memory = MemoryStore(KEY)
        self.pairs: list[tuple[MemoryStore, Store]] = [
            (memory, open_sqlite(path, key=KEY)),
            (memory.another(), open_sqlite(path, key=KEY)),
        ]
        self.owners = [tuple(store.register("bot") for store in pair) for pair in self.pairs]

    def teardown(self) -> None:
        if hasattr(self, "pairs"):
            for pair in self.pairs:
                for store in pair:
                    store.close()
            self.folder.cleanup()

    def both(self, which: bool, work: Callable[[Store, int], object]) -> None:
        """Run a command on one connection of each backend; they must agree."""
        forget(self.pairs[which][0])
        forgetful, file = (
            self.without_owner_ids(said(partial(work, store, side)), side)
            for side, store in enumerate(self.pairs[which])
        )
        assert forgetful == file

    def without_owner_ids(self, value: object, side: int) -> str:
        text = repr(value)
        for number, owners in enumerate(self.owners):
            text = text.replace(owners[side], f"owner-{number}")
        return text

    @rule(
        which=st.booleans(),
        session_id=SESSIONS,
        events=EVENTS,
        rows=SOME_ROWS,
        thread=THREADS,
        status=STATUSES,
    )
    def create(
        self,
        which: bool,
        session_id: str,
        events: tuple[bytes, ...],
        rows: tuple[Row, ...],
        thread: str | None,
        status: str,
    ) -> None:
        """A session begins."""

        def commit(store: Store, side: int) -> object:
            owner = self.owners[which][side]
            given = {"rows": rows, "thread_key": thread, "status": status}
            return tried(store, [new_session(session_id, owner, *events, **given)])

        self.both(which, commit)

    @rule(
        which=st.booleans(),
        sessions=st.lists(SESSIONS, min_size=1, max_size=3),
        wrong=st.sampled_from([0, 0, 0, 0, 1]),
        events=EVENTS,
        given=st.fixed_dictionaries(
            {
                "rows": SOME_ROWS,
                "consumed": SOME_DONE,
                "status": STATUSES,
                "release": st.booleans(),
                "snapshot": st.none() | BODIES,
                "now": TIMES,
            }
        ),
    )
    def advance(
        self, which: bool, sessions: list[str], wrong: int, events: tuple[bytes, ...], given: dict[str, Any]
    ) -> None:
        """A group of commits, mostly with the right epoch and seq."""

        def commit(store: Store, side: int) -> object:
            commits = []
            for session_id in sessions:
                head = store.sessions.head(session_id)
                epoch, seq = (head.epoch, head.seq) if head else (1, 0)
                commits.append(step(session_id, epoch, seq + wrong, *events, **given))
            return tried(store, commits)

        self.both(which, commit)

    @rule(which=st.booleans(), session_id=SESSIONS, now=TIMES)
    def claim(self, which: bool, session_id: str, now: str) -> None:
        """An owner takes a session."""
        self.both(which, lambda store, side: claim(store, session_id, self.owners[which][side], now))

    @rule(which=st.booleans(), session_id=SESSIONS, rows=SOME_ROWS)
    def quarantine(self, which: bool, session_id: str, rows: tuple[Row, ...]) -> None:
        """A session is set aside."""
        self.both(which, lambda store, _: store.quarantine(session_id, "bad", at(0), rows))

    @rule(which=st.booleans(), items=st.lists(ITEMS, max_size=3), now=TIMES)
    def ingest(self, which: bool, items: list[InboxItem], now: str) -> None:
        """Deliveries come, some of them twice."""
        self.both(which, lambda store, _: store.inbox.ingest(items, now))

    @rule(which=st.booleans(), consumed=SOME_DONE, rows=SOME_ROWS, now=TIMES)
    def consume(self, which: bool, consumed: tuple[Consumed, ...], rows: tuple[Row, ...], now: str) -> None:
        """Deliveries are dealt with outside of any session."""
        self.both(which, lambda store, _: store.consume(consumed, now, rows))

    @rule(which=st.booleans(), row_id=SMALL, attempts=SMALL, now=TIMES)
    def attempt(self, which: bool, row_id: int, attempts: int, now: str) -> None:
        """An intent is about to be sent, as it was read at some time."""
        self.both(which, lambda store, _: store.outbox.attempt(row_id, attempts, now))

    @rule(
        which=st.booleans(),
        row_id=SMALL,
        rev=st.integers(1, 3),
        given=st.fixed_dictionaries(
            {
                "state": st.sampled_from(["pending", "sent", "failed"]),
                "result": st.none() | BODIES,
                "not_before": st.none() | TIMES,
                "items": st.lists(ITEMS, max_size=1),
            }
        ),
    )
    def finish(self, which: bool, row_id: int, rev: int, given: dict[str, Any]) -> None:
        """An intent was sent, or not."""
        self.both(which, lambda store, _: store.outbox.finish(row_id, rev, now=at(0), **given))

    @rule(which=st.booleans(), ts=st.sampled_from(["9.1", "10.000001", "10.000002", "100.0"]))
    def mark(self, which: bool, ts: str) -> None:
        """A catch-up read has come this far."""
        self.both(which, lambda store, _: store.marks.move("T", ts))
        self.both(not which, lambda store, _: store.marks.ts("T"))

    @rule(which=st.booleans(), ended=TIMES, inbox=TIMES)
    def reap(self, which: bool, ended: str, inbox: str) -> None:
        """Old things go."""
        self.both(which, lambda store, _: reaped(store, ended, inbox))

    @rule(which=st.booleans())
    def changed(self, which: bool) -> None:
        """What others committed is noticed once."""
        self.both(which, lambda store, _: store.changed())
        self.both(which, lambda store, _: store.changed())

    @rule(
        which=st.booleans(), thread=THREADS, statuses=st.lists(STATUSES, max_size=2), limit=st.integers(1, 3)
    )
    def lists(self, which: bool, thread: str | None, statuses: list[str], limit: int) -> None:
        """Lists can be narrowed."""
        self.both(which, lambda s, _: s.sessions.heads(statuses=statuses, thread_key=thread, limit=limit))
        self.both(which, lambda s, _: s.prompts.rows(thread_key=thread, statuses=["open"], limit=limit))
        self.both(which, lambda s, _: (s.timers.rows(limit=limit), s.inbox.rows(after=1, limit=limit)))

    @invariant()
    def they_say_the_same(self) -> None:
        """Everything that can be read agrees."""
        self.both(False, everything)


def forget(store: MemoryStore) -> None:
    """Let a store read everything again."""
    store.sessions.known.clear()
    store.sessions.free.clear()
    store._db._given.clear()


def everything(store: Store, _side: int) -> object:
    """All that can be read."""
    sessions = ("session-1", "session-2", "session-3")
    return (
        [said(partial(store.sessions.load, session_id)) for session_id in sessions],
        [said(lambda: list(store.sessions.journal(session_id))) for session_id in sessions],  # noqa: B023
        [
            (store.sessions.head(session_id), store.prompts.rows(session_id=session_id))
            for session_id in sessions
        ],
        [(store.outbox.due(now=time), store.timers.rows(due=time)) for time in (at(0), at(10), at(20))],
        (store.sessions.heads(), store.inbox.rows(), store.prompts.rows(), store.sessions.orphans()),
        (store.spend.rows("2026-11-20"), store.spend.rows("2026-11-21"), store.spend.on("2026-11-21")),
        [store.inbox.row(key) for key in ("m1", "m2", "m3", "m4")],
        [store.outbox.row(key) for key in ("k1", "k2", "k3", "k4")],
    )


def said(work: Callable[[], object]) -> object:
    """A result, or an error's type; the errors in a list of outcomes by their types too."""
    try:
        found = work()
    except SaysoError as error:
        return type(error).__name__
    if isinstance(found, list):
        return [type(value).__name__ if isinstance(value, Exception) else value for value in found]
    return found


Backends.TestCase.settings = settings(
    max_examples=tries(30), stateful_step_count=25, suppress_health_check=list(HealthCheck)
)
TestBackendsAgree = Backends.TestCase
