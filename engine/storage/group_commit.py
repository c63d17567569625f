"""The one thread that writes, and group commit.

The store is synchronous and a commit waits for the disk; the event loop must not. `Writer` runs the store on a
thread of its own. All commits that are queued when the thread comes around go into one transaction, so sessions that
are ready in the same turn share one wait for the disk; the same with claims, and with what is ingested. Commits and
claims of one session keep their order, and a call sees all that was queued before it; it may see more than that.

Invariants: a waiter hears of a commit only after COMMIT returned. A waiter that is cancelled takes nothing back:
what was queued is carried out, and only its outcome goes unheard (whoever needs it folds the session again).
When the thread ends, every waiter gets an error, and so does every later call.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from engine.journal.records import Claim, Commit, InboxItem
from engine.language.errors import StorageBroken, StorageError
from engine.storage.backoff import passes
from engine.storage.port import Store

log = logging.getLogger("sayso.storage")
P = ParamSpec("P")
T = TypeVar("T")
J = TypeVar("J", "_Write", "_Claim", "_Ingest")
MOST_AT_ONCE = 256
"""Commits that share a transaction at most."""

SHORT_SECONDS = 0.001
"""Calls after which so much time has passed are told to those who wait; shorter ones are told together."""

QUIET_SECONDS = 15.0
"""After so long without a refusal the store is said to work again."""

TOLD_SECONDS = 60.0
"""How often it is logged that the store still refuses."""


@dataclass(slots=True)
class _Waiter:
    """Whoever waits for an outcome, on its own event loop."""

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


@dataclass(slots=True)
class _Write:
    """A commit that is queued."""

    waiter: _Waiter
    commit: Commit


@dataclass(slots=True)
class _Call:
    """Any other call that is queued."""

    waiter: _Waiter
    work: Callable[[], Any]


@dataclass(slots=True)
class _Claim:
    """A claim that is queued."""

    waiter: _Waiter
    claim: Claim


@dataclass(slots=True)
class _Ingest:
    """Inbox rows that are queued."""

    waiter: _Waiter
    items: list[InboxItem]
    now: str


class _Close:
    """Ends the thread after what was queued before it."""


_Job = _Write | _Claim | _Ingest | _Call | _Close
_Outcome = tuple[_Waiter, Any, BaseException | None]


class _Trouble:
    """Since when a store refuses what will pass: told in the log, and to `sayso doctor` through the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._since: str | None = None
        self._last = self._told = 0.0

    def note(self, errors: list[BaseException]) -> None:
        """What came of a call."""
        error, now = next(filter(passes, errors), None), time.monotonic()
        if error is not None:
            self._refused(error, now)
        elif self._since is not None and now - self._last > QUIET_SECONDS:
            log.warning("the store works again; it had refused since %s", self._since)
            self._since = None
            self._store.note_trouble(None)

    def _refused(self, error: BaseException, now: float) -> None:
        self._last = now
        if self._since is None:
            self._since, self._told = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), 0.0
            self._store.note_trouble(f"the store refuses since {self._since}: {error}")
        if now - self._told > TOLD_SECONDS:
            self._told = now
            log.error("the store refuses since %s: %s", self._since, error)


class Writer:
    """Runs a store on one thread. Use it from any event loop; `close()` leaves the store open."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._queue: SimpleQueue[_Job] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._gate = threading.Lock()
        self._trouble = _Trouble(store)
        self._ended: StorageError | None = StorageError("The writer is not running; call start() first.")

    def start(self) -> None:
        """Start the thread; a second call does nothing."""
        with self._gate:
            if self._thread is None:
                self._ended = None
                self._thread = threading.Thread(target=self._run, name="sayso-writer", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Carry out what is queued, then end the thread. Blocks until it has ended."""
        with self._gate:
            thread, self._thread = self._thread, None
            if self._ended is None:
                self._ended = StorageError("The writer was closed; nothing was stored.")
                self._queue.put(_Close())
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    async def commit(self, commit: Commit) -> None:
        """Commit one step; durable on return. Raises that commit's error (`Fenced`, ...), or the whole batch's."""
        waiter = _waiter()
        self._submit(_Write(waiter, commit))
        await waiter.future

    async def claim(self, session_id: str, owner: str, now: str) -> int:
        """Claim a session, in one transaction with whatever other claims are queued. The epoch, or that claim's error."""
        waiter = _waiter()
        self._submit(_Claim(waiter, Claim(session_id, owner, now)))
        epoch: int = await waiter.future
        return epoch

    async def ingest(self, items: Sequence[InboxItem], now: str) -> list[int | None]:
        """Store inbox rows, in one transaction with whatever else is ingested; durable on return. See `Store.ingest`."""
        waiter = _waiter()
        self._submit(_Ingest(waiter, list(items), now))
        ids: list[int | None] = await waiter.future
        return ids

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a method of the store, or a function over it, in turn: `await writer.call(writer.store.head, session_id)`."""
        waiter = _waiter()
        self._submit(_Call(waiter, lambda: function(*args, **kwargs)))
        result: T = await waiter.future
        return result

    def _submit(self, job: _Job) -> None:
        with self._gate:
            if self._ended is not None:
                raise _copy(self._ended)
            self._queue.put(job)

    # -- on the thread

    def _run(self) -> None:
        jobs: list[_Job] = []
        try:
            while True:
                jobs = self._take()
                while jobs:
                    if isinstance(jobs[0], _Close):
                        return
                    self._next(jobs)
        except BaseException as error:
            self._die(error, jobs)

    def _take(self) -> list[_Job]:
        """Wait for a job, and take what else is there."""
        jobs = [self._queue.get()]
        try:
            while len(jobs) < MOST_AT_ONCE:
                jobs.append(self._queue.get_nowait())
        except Empty:
            pass
        return jobs

    def _next(self, jobs: list[_Job]) -> None:
        """Carry out the first job, and with it all that can share its transaction; tell who waits."""
        first = jobs[0]
        done: Sequence[_Job]
        if isinstance(first, _Claim):
            done = claims = _alike(jobs, _Claim)
            outcomes = self._claimed(claims)
        elif isinstance(first, _Write):
            done = writes = _alike(jobs, _Write)
            outcomes = self._committed(writes)
        elif isinstance(first, _Ingest):
            done = ingests = _alike(jobs, _Ingest)
            outcomes = self._ingested(ingests)
        else:
            outcomes = _called(jobs)
            done = jobs[: len(outcomes)]
        self._trouble.note([error for _, _, error in outcomes if error is not None])
        gone = set(map(id, done))
        jobs[:] = [job for job in jobs if id(job) not in gone]
        _tell(outcomes)

    def _ingested(self, ingests: list[_Ingest]) -> list[_Outcome]:
        items = [item for queued in ingests for item in queued.items]
        try:
            ids = iter(self.store.ingest(items, ingests[-1].now))
        except Exception as error:
            if len(ingests) > 1 and not isinstance(error, StorageError):
                # Something is wrong with one of them: the others are none the worse for it.
                return [outcome for queued in ingests for outcome in self._ingested([queued])]
            return [(queued.waiter, None, _copy(error)) for queued in ingests]
        return [(queued.waiter, [next(ids) for _ in queued.items], None) for queued in ingests]

    def _claimed(self, claims: list[_Claim]) -> list[_Outcome]:
        try:
            found = self.store.claims([queued.claim for queued in claims])
        except Exception as error:
            return [(queued.waiter, None, _copy(error)) for queued in claims]
        return [
            (queued.waiter, None, outcome)
            if isinstance(outcome, Exception)
            else (queued.waiter, outcome, None)
            for queued, outcome in zip(claims, found, strict=True)
        ]

    def _committed(self, writes: list[_Write]) -> list[_Outcome]:
        try:
            errors = self.store.commit([write.commit for write in writes])
        except Exception as error:
            return [(write.waiter, None, _copy(error)) for write in writes]
        return [(write.waiter, None, error) for write, error in zip(writes, errors, strict=True)]

    def _die(self, error: BaseException, jobs: list[_Job]) -> None:
        ended = StorageBroken(f"The writer thread ended ({type(error).__name__}: {error}); end this process.")
        ended.__cause__ = error
        with self._gate:
            self._ended = ended
        try:
            while True:
                jobs.append(self._queue.get_nowait())
        except Empty:
            pass
        _tell([(job.waiter, None, _copy(ended)) for job in jobs if not isinstance(job, _Close)])


def _waiter() -> _Waiter:
    loop = asyncio.get_running_loop()
    return _Waiter(loop, loop.create_future())


def _alike(jobs: list[_Job], kind: type[J]) -> list[J]:
    """The jobs of the first one's kind that can be carried out now: not those behind another job of their session."""
    found: list[J] = []
    behind: set[str] = set()
    earlier: set[str] = set()
    for job in jobs:
        if isinstance(job, _Close):
            break
        session_id = _session_of(job)
        if isinstance(job, kind) and session_id not in behind:
            found.append(job)
            earlier.update(() if session_id is None else [session_id])
        else:
            # A call must see what was queued before it, and need not see what these sessions do after it.
            behind.update(earlier if session_id is None else [session_id])
    return found


def _session_of(job: _Job) -> str | None:
    """The session that a commit or a claim is of."""
    if isinstance(job, _Write):
        return job.commit.session_id
    return job.claim.session_id if isinstance(job, _Claim) else None


def _called(jobs: list[_Job]) -> list[_Outcome]:
    """Carry out the calls that come first, until some time has passed."""
    outcomes: list[_Outcome] = []
    end = time.monotonic() + SHORT_SECONDS
    for job in jobs:
        if not isinstance(job, _Call) or (outcomes and time.monotonic() > end):
            break
        try:
            outcomes.append((job.waiter, job.work(), None))
        except Exception as error:
            outcomes.append((job.waiter, None, error))
    return outcomes


def _copy(error: Exception) -> Exception:
    """An error of its own for each waiter: raising one object in many tasks would mix their tracebacks."""
    try:
        copy = type(error)(*error.args)
    except Exception:
        return error
    copy.__cause__ = error
    return copy


def _tell(outcomes: list[_Outcome]) -> None:
    """Settle the futures, with one wake-up for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Outcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome[0].loop, []).append(outcome)
    for loop, theirs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, theirs)
        except RuntimeError:
            # The loop is closed: nobody waits there any more.
            continue


def _settle(outcomes: list[_Outcome]) -> None:
    for waiter, result, error in outcomes:
        if waiter.future.done():
            continue
        if error is None:
            waiter.future.set_result(result)
        else:
            waiter.future.set_exception(error)
