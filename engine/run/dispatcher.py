"""Serves the sessions of a store: claims sessions that a crash left, fires timers, and hands inbox rows to their
handlers.

A wake-up only says that it is time to look, so one may be lost, late or doubled; the work always comes from the store.
Rows with one ordering key (a thread, else a session) are handled one after the other, lanes side by side. A handler
that cannot finish its row yet leaves it in the inbox: its lane waits, and it is retried after a backoff. If several
processes serve one store, each takes lanes, and looks only in these (`engine.run.shared_lanes`).

A failure is an exception that no handler foresaw (`engine.run.failures`). A row that fails repeatedly in the same way
is kept with the outcome `dead`, and the rows behind it continue. Two conditions are not failures, and are waited out for
any time: another owner of the session, and a store that takes no writes at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from engine.decide.commands import Command, Due
from engine.journal.events import Event, NodeRetried, TimerSet
from engine.journal.records import Consumed, Head, InboxRow
from engine.journal.state import State
from engine.language import timestamps
from engine.language.codec import encode
from engine.language.errors import (
    ClockJumped,
    Corrupt,
    Fenced,
    KeyMissing,
    Owned,
    SaysoError,
    SchemaTooNew,
    StorageBroken,
    StorageError,
    UnknownSession,
)
from engine.run.engine import Engine
from engine.run.executor import about
from engine.run.remote_commands import BadRequest, Migration, command, session_request
from engine.run.supervision import is_lost, wait_at_most

if TYPE_CHECKING:
    from engine.run.failures import Failures, Tell
    from engine.run.shared_lanes import SharedLanes

log = logging.getLogger("sayso.service")


SWEEP_SECONDS = 5.0
"""Seconds between searches for orphans without a wake-up."""

BACKOFF_SECONDS = 0.5
"""First backoff of a row that cannot be finished yet, doubling up to `SWEEP_SECONDS`."""

_AT_ONCE = 100
"""Most sessions claimed, timers fired, or rows read at once."""

_NEVER = "9999-12-31T23:59:59.999Z"

RowOutcome: TypeAlias = Literal["done", "later", "elsewhere"]
"""Outcome of handling a row: `elsewhere` if another process has its session."""

RowHandler: TypeAlias = Callable[[InboxRow], Awaitable[bool]]
"""Handles one row: True when it is consumed, False to try it again later."""


class Dispatcher:
    """The loop that keeps a process's sessions going."""

    def __init__(
        self,
        engine: Engine,
        *,
        handlers: Mapping[str, RowHandler] | None = None,
        wants: Callable[[Head], bool] = lambda head: True,
        only: str | None = None,
        wakeups: LocalWakeups | None = None,
        order: Callable[[InboxRow], float] = lambda row: float(row.id),
        tell: Tell | None = None,
        handled: Callable[[InboxRow], None] = lambda row: None,
    ) -> None:
        """Keep the sessions going that `wants` selects, or `only` this one. `handled` gets each finished row."""
        self.engine = engine
        self._wants = wants if only is None else lambda head: head.session_id == only
        self._handlers: dict[str, RowHandler] = {"request": self._request, **(handlers or {})}
        poll = float("inf") if engine.store.shared else POLL_SECONDS
        self._wakeups = wakeups or LocalWakeups(lambda: engine.writer.call(engine.store.changed), poll)
        self._order = order
        self._handled = handled
        self._tell = tell
        self._failures: Failures | None = None
        self._lanes: dict[str, asyncio.Task[None]] = {}
        self._inbox, self._shared = self._lanes_of(engine, only)
        self._swept = float("-inf")
        self._stopping = asyncio.Event()
        self._released, self._told = True, False
        self._next_timer = ""
        """Due time of the next timer as far as known: not before this."""
        self._unwanted: set[str] = set()
        self._idle: dict[str, int] = {}
        self._delays: dict[str, float] = {}
        """Backoff of each lane whose first row waits."""
        self._woken = asyncio.Event()
        self._reading = asyncio.Lock()
        self.failure: BaseException | None = None
        engine.subscribe(self._heard)
        engine.stepper.on_poisoned = self._fail

    def _lanes_of(self, engine: Engine, only: str | None) -> tuple[Lanes, SharedLanes | None]:
        if not engine.store.shared:
            return OwnLanes(engine, self._handlers, self._begin), None
        from engine.run.shared_lanes import SharedLanes  # most stores are one process's

        shared = SharedLanes(engine, self._handlers, self._begin, self._wakeups.notify, only)
        return shared, shared

    def _heard(self, state: State, events: Sequence[Event]) -> None:
        """React to a commit of this process. Only some are a reason to look at the store; a row may wait for any of
        them."""
        if state.ended and state.lock is not None:
            self._released = True
            self.notify()
        if self._lanes:
            self._wake_lanes()
        for event in events:
            if isinstance(event, TimerSet | NodeRetried) and event.due_at < self._next_timer:
                self._next_timer = event.due_at
                self.notify()

    def notify(self) -> None:
        """Something may be ready: rows that wait for their backoff are tried again too."""
        self._told = True
        self._wake_lanes()
        self._wakeups.notify()

    @property
    def in_hand(self) -> int:
        """Number of lanes in hand."""
        return len(self._lanes)

    def look(self) -> None:
        """Another process may have committed."""
        self._wakeups.notify()

    def _wake_lanes(self) -> None:
        self._woken.set()
        self._woken = asyncio.Event()

    def _fail(self, error: BaseException) -> None:
        """Going on is impossible: `run()` raises this."""
        self.failure = error
        self._stopping.set()
        self.notify()

    def is_over(self, error: BaseException) -> bool:
        """True if `run()` cannot continue after this error."""
        return error is self.failure or is_lost(error)

    def stop(self) -> None:
        """Take up no new work; `run()` returns once the rows in hand are done."""
        self._stopping.set()
        if self._shared is not None:
            self._shared.wake_all()
        self.notify()

    async def run(self) -> None:
        """Serve until `stop()`. Raises fatal errors (a broken disk)."""
        while not self._stopping.is_set():
            try:
                pause = await (
                    self._look_at_all() if self._shared is None else self._look_at_lanes(self._shared)
                )
            except StorageBroken:
                raise
            except StorageError as error:
                log.error("%s; trying again", error)
                pause = SWEEP_SECONDS if self._shared is None else BACKOFF_SECONDS
            await self._wait(pause)
        if self.failure is not None:
            raise self.failure
        if self._lanes:
            await asyncio.wait(self._lanes.values(), timeout=5)
        for worker in self._lanes.values():
            worker.cancel()

    async def _look_at_lanes(self, shared: SharedLanes) -> float:
        """Take lanes; seconds until the next look."""
        from engine.run.shared_lanes import LOOK_SECONDS

        await shared.look_for_forgotten(self.engine.now())
        for session_id in self.engine.sessions.stale():
            await self._guarded(self._forget_unstored, session_id)
        await self._read_inbox()
        return LOOK_SECONDS

    async def _look_at_all(self) -> float:
        """Do all pending work if this is the only process; returns the seconds until the next look."""
        await self._sweep()
        await self._grant()
        pause = await self._fire()
        await self._read_inbox()
        return pause

    async def _forget_unstored(self, session_id: str) -> None:
        """A session whose start was not stored is in no lane: the engine sees that it does not exist."""
        if await self.engine.writer.call(self.engine.store.sessions.head, session_id) is None:
            await self.engine.apply(session_id, None)

    async def _wait(self, pause: float) -> None:
        try:
            await self._wakeups.wait(pause)
            if not self._told:
                # Another process has committed: it may have given a lock back, or set a timer.
                self._released, self._next_timer = True, ""
            self._told = False
        except StorageBroken:
            raise
        except StorageError as error:
            log.error("%s; looking again", error)
            await wait_at_most(BACKOFF_SECONDS, self._stopping)

    # --- orphans and timers --------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        """Take up sessions that should run and have no living owner."""
        now = asyncio.get_running_loop().time()
        if now - self._swept < SWEEP_SECONDS:
            return
        self._swept, self._released = now, True
        orphans = await self.engine.writer.call(
            self.engine.store.sessions.orphans, limit=_AT_ONCE + len(self._unwanted) + len(self._idle)
        )
        self._idle = {session_id: seq for session_id, seq in self._idle.items() if session_id in orphans}
        for session_id in dict.fromkeys([*self.engine.sessions.stale(), *orphans]):
            await self._guarded(self._claim_orphan, session_id)

    async def _claim_orphan(self, session_id: str) -> None:
        """Continue a session. One that only waits for a delivery is running without an owner: once is enough."""
        head = await self._mine(session_id)
        if head is None or (
            self._idle.get(session_id) == head.seq and session_id not in self.engine.sessions.stale()
        ):
            return
        after = await self.engine.apply(session_id, None)
        self._idle.pop(session_id, None)
        if after.phase in ("running", "finalizing"):
            self._idle[session_id] = after.seq

    async def _grant(self) -> None:
        """Continue sessions whose lock was released. The next sweep makes up for a lost wake-up."""
        if not self._released:
            return
        self._released = False
        limit = _AT_ONCE + len(self._unwanted)
        for session_id in await self.engine.writer.call(self.engine.store.locks.grants, limit=limit):
            await self._guarded(self._go_on, session_id)

    async def _go_on(self, session_id: str, command: Command | None = None) -> None:
        if await self._mine(session_id) is not None:
            await self.engine.apply(session_id, command)

    async def _fire(self) -> float:
        """Fire the timers that are due; seconds until the next one of ours, at most until the next sweep."""
        jumped = self.engine.clock_jumped()
        if self._next_timer <= self.engine.now():
            await self._look_for_timers()
            if self._next_timer <= self.engine.now() and not jumped:
                due = await self.engine.writer.call(
                    self.engine.store.timers.rows, due=self.engine.now(), limit=_AT_ONCE + len(self._unwanted)
                )
                for timer in due:
                    await self._guarded(partial(self._go_on, command=Due(timer.timer_id)), timer.session_id)
                await self._look_for_timers()
        left = timestamps.seconds_between(self.engine.now(), self._next_timer)
        # A timer that is still due could not be fired just now: retry, but not at once.
        return min(left, SWEEP_SECONDS) if left > 0 else BACKOFF_SECONDS

    async def _look_for_timers(self) -> None:
        """Find out when the next timer of ours is due. What is set meanwhile is heard of (`_heard`)."""
        self._next_timer = _NEVER
        # Nearly always the first one is ours.
        limit = _AT_ONCE + len(self._unwanted) if self._unwanted else 1
        timers = await self.engine.writer.call(self.engine.store.timers.rows, limit=limit)
        ours = (timer.due_at for timer in timers if timer.session_id not in self._unwanted)
        self._next_timer = min(self._next_timer, next(ours, _NEVER))

    async def _mine(self, session_id: str) -> Head | None:
        """The session's head if its work is ours to do, else None."""
        if session_id in self._unwanted:
            return None
        try:
            head = await self.engine.head(session_id)
        except (Corrupt, UnknownSession):
            # The engine handles such a session, and raises.
            await self.engine.apply(session_id, None)
            return None
        if head.quarantined is None and self._wants(head):
            return head
        if head.quarantined is None:
            # A quarantined session may be released again.
            self._unwanted.add(session_id)
        return None

    async def _guarded(self, work: Callable[[str], Awaitable[object]], session_id: str) -> None:
        """Do this for a session unless another process does. What goes wrong with one concerns no other, as long as the
        disk can be trusted."""
        with about(session=session_id):
            try:
                await work(session_id)
            except StorageBroken:
                raise
            except Owned:
                log.debug("%s belongs to another process", session_id)
            except SchemaTooNew:
                self._unwanted.add(session_id)  # the engine has said so
            except SaysoError as error:
                log.warning("%s: %s", session_id, error)
            except Exception:
                log.exception("%s cannot continue", session_id)

    async def _go_on_in(self, lane: str, shared: SharedLanes) -> None:
        """Continue the sessions of a lane that have no owner, get a lock, or have due timers."""
        shared.heard(lane)
        orphans, granted, timers = await self.engine.writer.call(self.engine.store.agenda, lane)
        stale = await shared.those_of(lane, self.engine.sessions.stale())
        for session_id in dict.fromkeys([*stale, *orphans]):
            await self._guarded(self._claim_orphan, session_id)
        for session_id in granted:
            await self._guarded(self._go_on, session_id)
        now, jumped = self.engine.now(), self.engine.clock_jumped()
        for timer in timers:
            left = timestamps.seconds_between(now, timer.due_at)
            shared.again_in(lane, max(left, BACKOFF_SECONDS))
            if left <= 0 and not jumped:
                await self._guarded(partial(self._go_on, command=Due(timer.timer_id)), timer.session_id)
        if await shared.those_of(lane, self.engine.sessions.stale()):
            shared.again_in(lane, BACKOFF_SECONDS)
        if self._unwanted.intersection([*orphans, *granted, *(timer.session_id for timer in timers)]):
            shared.for_others(lane)

    # --- inbox ---------------------------------------------------------------------------------------------

    async def caught_up(self, seconds: float) -> None:
        """Return once the current rows of the inbox were handled, or after so many seconds."""
        with contextlib.suppress(StorageError):  # `run()` says so, and tries again
            await self._read_inbox()
        end = asyncio.get_running_loop().time() + seconds
        while busy := [task for lane, task in self._lanes.items() if lane not in self._inbox.resting]:
            left = end - asyncio.get_running_loop().time()
            if left <= 0:
                return
            await asyncio.wait(busy, timeout=min(left, BACKOFF_SECONDS))

    async def _read_inbox(self) -> None:
        """Find lanes that have rows, and begin to work on them."""
        async with self._reading:
            await self._inbox.look()

    def _begin(self, lane: str) -> None:
        self._lanes[lane] = asyncio.create_task(self._work(lane), name=f"lane:{lane}")

    async def _work(self, lane: str) -> None:
        """Handle a lane's rows in order until none is left, or another process has to."""
        elsewhere = over = False
        try:
            while not elsewhere and not over and not self._stopping.is_set():
                if rows := await self._rows(lane):
                    elsewhere = await self._row(lane, min(rows, key=self._order)) == "elsewhere"
                else:
                    over = self._shared is None or not await self._shared.stays(lane)
        finally:
            del self._lanes[lane]
            if self._shared is not None and not over:
                self._shared.again_in(lane, 0.0)
            with contextlib.suppress(StorageError):
                await self._inbox.leave(lane, elsewhere=elsewhere)

    async def _rows(self, lane: str) -> list[InboxRow]:
        while not self._stopping.is_set():
            try:
                if self._shared is not None:
                    await self._go_on_in(lane, self._shared)
                return await self._inbox.rows(lane)
            except StorageBroken as error:
                self._fail(error)
            except StorageError as error:
                log.error("%s; trying again", error)
                await wait_at_most(BACKOFF_SECONDS, self._stopping)
        return []

    async def _row(self, lane: str, row: InboxRow) -> RowOutcome:
        """Handle a row. One that is tried again keeps the others waiting."""
        delay = self._delays.pop(lane, BACKOFF_SECONDS)
        woken = self._woken
        with about(session=row.session_id, thread=row.thread_key):
            outcome = await self._handle(row)
        if outcome == "done":
            self._inbox.done(lane, row)
            self._handled(row)
        elif outcome == "later" or not self.engine.store.shared:
            self._delays[lane] = min(delay * 2, SWEEP_SECONDS)
            self._inbox.waiting += 1
            # Other events do not speed up the retry of a failed row.
            failed = self._failures is not None and self._failures.failed(row)
            await wait_at_most(delay, self._stopping if failed else woken)
            self._inbox.waiting -= 1
            # The row may wait for another, older row: it must be in the lane before the choice.
            try:
                await self._read_inbox()
            except StorageError as error:
                log.error("%s; trying again", error)
            return "later"
        return outcome

    async def _handle(self, row: InboxRow) -> RowOutcome:
        """Handle a row; an internal error is never taken for its result."""
        elsewhere = False
        try:
            try:
                done = await self._handlers[row.kind](row)
                if self._failures is not None:
                    self._failures.forget(row)
                return "done" if done else "later"
            except StorageBroken:
                raise
            except SchemaTooNew as error:
                log.warning("inbox row %s is left for a newer release: %s", row.key, error)
                return "done"
            except Exception as error:
                elsewhere = isinstance(error, Owned | Fenced | KeyMissing)
                if self._failures is None:
                    from engine.run.failures import Failures  # few processes see one

                    self._failures = Failures(self.engine, self._tell)
                await self._failures.add(row, error)
        except StorageBroken as error:
            self._fail(error)
        except StorageError as error:
            log.info("inbox row %s waits: %s", row.key, error)
        if await self._consumed(row):
            return "done"
        return "elsewhere" if elsewhere else "later"

    async def _consumed(self, row: InboxRow) -> bool:
        """True if the row has been consumed by now, so that no retry is needed."""
        try:
            stored = await self.engine.writer.call(self.engine.store.inbox.row, row.key)
        except StorageError:
            return False
        return stored is None or stored.outcome is not None

    async def at_once(self, session_id: str, wanted: Command) -> State | None:
        """Carry out a single-step request of this program without a row in the inbox. Returns the resulting state, or
        None (with nothing stored) if it must go through the inbox: others come first, or another process has the
        session. Raises the refusals, and storage errors."""
        busy = session_id in self._lanes and session_id not in self._inbox.resting
        if busy or self._stopping.is_set():
            return None
        try:
            return await self.engine.hear(session_id, wanted)
        except (Owned, Fenced, SchemaTooNew, ClockJumped):
            return None

    async def _request(self, row: InboxRow) -> bool:
        """Handle a request of another process, or of this one's outbox: see `engine.run.remote_commands`."""
        if row.session_id is not None and not self.engine.sessions.known(row.session_id):
            try:
                head = await self.engine.writer.call(self.engine.store.sessions.head, row.session_id)
            except Corrupt:
                head = None  # carrying the request out sets the session aside, and says so
            if head is not None and not self._wants(head):
                return True
        await perform(self.engine, row)
        return True

    async def consume(self, row: InboxRow, outcome: str, result: bytes | None = None) -> None:
        """Mark a row as done outside of any session."""
        await self.engine.writer.call(
            self.engine.store.consume, [Consumed(row.id, outcome, result)], self.engine.now()
        )


# --- lanes --------------------------------------------------------------------------------------------------


class Lanes(Protocol):
    """The open rows of the inbox by ordering key, as far as they are this process's to handle."""

    waiting: int
    """Number of lanes in hand that wait for a backoff."""
    resting: set[str]
    """Lanes in hand without work at the moment."""

    async def look(self) -> None:
        """Begin to work on lanes that have rows."""

    async def rows(self, lane: str) -> list[InboxRow]:
        """Return the rows of a lane in hand that are to be handled."""

    def done(self, lane: str, row: InboxRow) -> None:
        """Mark a row handled."""

    async def leave(self, lane: str, *, elsewhere: bool = False) -> None:
        """End the work on a lane; `elsewhere`: its session is run by another process."""


class OwnLanes:
    """Lanes of a single process: each row is read once, in the order of arrival."""

    def __init__(self, engine: Engine, kinds: Collection[str], begin: Callable[[str], None]) -> None:
        self._engine, self._kinds, self._begin = engine, kinds, begin
        self._after = 0
        self._lanes: dict[str, list[InboxRow]] = {}
        self.waiting = 0
        self.resting: set[str] = set()

    async def look(self) -> None:
        """See `Lanes.look`."""
        found = _AT_ONCE
        while found == _AT_ONCE:
            rows = await self._engine.writer.call(
                self._engine.store.inbox.rows, after=self._after, limit=_AT_ONCE
            )
            found = len(rows)
            for row in rows:
                self._after = max(self._after, row.id)
                if row.kind in self._kinds:
                    self._give(row)

    def _give(self, row: InboxRow) -> None:
        lane = row.thread_key or row.session_id or row.key
        if lane in self._lanes:
            self._lanes[lane].append(row)
            return
        self._lanes[lane] = [row]
        self._begin(lane)

    async def rows(self, lane: str) -> list[InboxRow]:
        """See `Lanes.rows`."""
        return self._lanes[lane]

    def done(self, lane: str, row: InboxRow) -> None:
        """See `Lanes.done`."""
        self._lanes[lane].remove(row)

    async def leave(self, lane: str, *, elsewhere: bool = False) -> None:
        """See `Lanes.leave`."""
        del self._lanes[lane]


async def perform(engine: Engine, row: InboxRow) -> None:
    """Carry a request out and consume its row. Raises `Owned`, `ClockJumped` and storage errors: then
    the row stays."""
    try:
        if row.session_id is None:
            raise BadRequest("a request names the session that it is for")
        consumed = [Consumed(row.id, "applied")]
        wanted = session_request(row)
        if wanted is None:
            await engine.hear(row.session_id, command(row), consumed=consumed)
        elif isinstance(wanted, Migration):
            await engine.migrate(row.session_id, wanted.flow, actor=wanted.actor, consumed=consumed)
        else:
            await engine.retry(row.session_id, actor=wanted.actor)
            await engine.writer.call(engine.store.consume, consumed, engine.now())
    except (StorageError, ClockJumped):
        raise
    except SaysoError as error:
        result = encode({"error": error.code, "message": str(error)})
        await engine.writer.call(engine.store.consume, [Consumed(row.id, "refused", result)], engine.now())


# --- wake-ups ----------------------------------------------------------------------------------------------


POLL_SECONDS = 0.2
"""Seconds between checks for commits of other processes."""


class LocalWakeups:
    """Wakes for `notify()` in this process, and within `POLL_SECONDS` for commits of other processes."""

    def __init__(self, changed: Callable[[], Awaitable[bool]], poll_seconds: float = POLL_SECONDS) -> None:
        self._changed = changed
        self._poll = poll_seconds
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Something became ready in this process."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Return at the next wake-up, or after so many seconds."""
        now = asyncio.get_running_loop().time
        end = now() + seconds
        while not self._event.is_set():
            left = min(self._poll, end - now())
            if left <= 0:
                return
            await wait_at_most(left, self._event)
            if not self._event.is_set() and await self._changed():
                return
        self._event.clear()
