"""The one thread that runs the store, and group commit.

The store is synchronous and a commit waits for the disk; the event loop must not. `Writer` runs the store on a
thread of its own. All commits that are queued when the thread comes around go into one transaction, so sessions that
are ready in the same turn share one wait for the disk; the same with what is ingested. Commits of one session
keep their order, and a call sees all that was queued before it; it may see more than that.

A commit to a file that finds the thread idle is carried out on the loop's own thread, at most one in each turn of the loop:
the way to the writer's thread and back takes as long as a short commit. Not where commits take longer, where another
program holds the database, or while somebody waits for an acknowledgement.

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
from queue import Empty, SimpleQueue
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar

from msgspec import Struct

from engine.journal.records import Commit, CommitResult, InboxItem
from engine.language.errors import RowRefused, StorageBroken, StorageBusy, StorageError
from engine.storage.backoff import is_away, passes
from engine.storage.errors import WriterClosed, WriterNotStarted
from engine.storage.store import Store

log = logging.getLogger("sayso.storage")
P = ParamSpec("P")
T = TypeVar("T")
MOST_AT_ONCE = 256
"""Commits that share a transaction at most."""

SHORT_SECONDS = 0.001
"""Calls after which so much time has passed are told to those who wait; shorter ones are told together."""

QUIET_SECONDS = 15.0
"""After so long without a refusal the store is said to work again."""

TOLD_SECONDS = 60.0
"""Seconds between log lines about a store that still refuses."""


HERE_SECONDS = 0.002
"""A commit on the loop's own thread takes as long as this at most, by the one before it."""

ACKNOWLEDGED_SECONDS = 1.0
"""Seconds after something was ingested in which commits are left to the thread."""


class _Job(Struct):
    """A call that is queued, and who waits for its outcome on an event loop of its own.

    Those of one `kind` share a transaction; `given` is what the store takes of each. Any other is a function without
    arguments.
    """

    kind: Literal["commit", "ingest", "call"]
    given: Any
    session_id: str | None
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


_Queued: TypeAlias = _Job | None
"""None ends the thread after what was queued before it."""
_Outcome = tuple[_Job, Any, BaseException | None]


class _Trouble:
    """Since when a store refuses what will pass: told in the log, and to `sayso doctor` through the store. That a server is away
    the store tells by itself."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._since: str | None = None
        self._last = self._told = 0.0

    def note(self, errors: list[BaseException]) -> None:
        """Note the result of a call."""
        error, now = next((one for one in errors if passes(one) and not is_away(one)), None), time.monotonic()
        if error is not None:
            self._last = now
            if self._since is None:
                self._since, self._told = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), 0.0
                self._store.note_trouble(f"the store refuses since {self._since}: {error}")
            if now - self._told > TOLD_SECONDS:
                self._told = now
                log.error("the store refuses since %s: %s", self._since, error)
        elif self._since is not None and now - self._last > QUIET_SECONDS:
            log.warning("the store works again; it had refused since %s", self._since)
            self._since = None
            self._store.note_trouble(None)


class Writer:
    """Runs a store on one thread. Use it from any event loop; `close()` leaves the store open."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._queue: SimpleQueue[_Queued] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._gate = threading.Lock()
        self._trouble = _Trouble(store)
        self._ended: StorageError | None = WriterNotStarted()
        self._waiting = 0
        """Jobs that are queued or in progress."""
        self._short = False
        """True if the last commit that had a transaction of its own took little time."""
        self._had_its_turn = False
        """True if a commit was carried out on the loop's own thread in this turn of the loop."""
        self._ingested = 0.0

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
                self._ended = WriterClosed()
                self._queue.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    async def commit(self, commit: Commit) -> CommitResult:
        """Commit one step; durable once `Stored` is returned. Raises what is wrong with it or with the store."""
        result: CommitResult | None = self._here(commit)
        if result is None:
            result = await self._outcome("commit", commit, commit.session_id)
        assert result is not None, "the store tells of each commit what became of it"
        return result

    async def ingest(self, items: Sequence[InboxItem], now: str) -> list[int | None]:
        """Store inbox rows, in one transaction with whatever else is ingested; durable on return. See `InboxTable.ingest`."""
        self._ingested = time.monotonic()
        ids: list[int | None] = await self._outcome("ingest", (list(items), now))
        return ids

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a method of the store, or a function over it, in turn: `await writer.call(writer.store.sessions.head, session_id)`."""
        result: T = await self._outcome("call", lambda: function(*args, **kwargs))
        return result

    async def _outcome(
        self, kind: Literal["commit", "ingest", "call"], given: Any, session_id: str | None = None
    ) -> Any:
        loop = asyncio.get_running_loop()
        job = _Job(kind, given, session_id, loop, loop.create_future())
        self._submit(job)
        return await job.future

    def _submit(self, job: _Job) -> None:
        with self._gate:
            if self._ended is not None:
                raise _copy(self._ended)
            self._waiting += 1
            self._queue.put(job)

    def _here(self, commit: Commit) -> CommitResult | None:
        """Carry out a commit on this thread; None where it is left to the writer's."""
        if not self._short or self._had_its_turn or not self.store.near:
            return None
        if time.monotonic() - self._ingested < ACKNOWLEDGED_SECONDS:
            return None
        with self._gate:
            if self._waiting or self._thread is None:
                return None
        self._had_its_turn = True
        asyncio.get_running_loop().call_soon(self._turn_is_over)
        with self.store.impatient():
            [outcome] = self._together("commit", [commit])
        if isinstance(outcome, StorageBusy):
            return None
        failed = isinstance(outcome, Exception)
        self._trouble.note([outcome] if failed else [])
        if failed:
            raise outcome
        result: CommitResult = outcome
        return result

    def _turn_is_over(self) -> None:
        self._had_its_turn = False

    # -- on the thread

    def _run(self) -> None:
        jobs: list[_Queued] = []
        try:
            while True:
                jobs = self._take()
                while jobs:
                    if jobs[0] is None:
                        return
                    self._next(jobs)
        except BaseException as error:
            ended = StorageBroken(
                f"The writer thread ended ({type(error).__name__}: {error}); end this process."
            )
            ended.__cause__ = error
            with self._gate:
                self._ended = ended
            try:
                while True:
                    jobs.append(self._queue.get_nowait())
            except Empty:
                pass
            _tell([(job, None, _copy(ended)) for job in jobs if job is not None])

    def _take(self) -> list[_Queued]:
        """Wait for a job, and take what else is there."""
        jobs = [self._queue.get()]
        try:
            while len(jobs) < MOST_AT_ONCE:
                jobs.append(self._queue.get_nowait())
        except Empty:
            pass
        return jobs

    def _next(self, jobs: list[_Queued]) -> None:
        """Carry out the first job, and with it all that can share its transaction; tell who waits."""
        first = jobs[0]
        assert first is not None, "what ends the thread is no job"
        if first.kind == "call":
            outcomes = _called(jobs)
            del jobs[: len(outcomes)]
        else:
            alike = _alike(jobs, first.kind)
            found = self._together(first.kind, [job.given for job in alike])
            outcomes = [
                (job, None, outcome) if isinstance(outcome, Exception) else (job, outcome, None)
                for job, outcome in zip(alike, found, strict=True)
            ]
            done = set(map(id, alike))
            jobs[:] = [job for job in jobs if id(job) not in done]
        self._trouble.note([error for _, _, error in outcomes if error is not None])
        with self._gate:
            self._waiting -= len(outcomes)
        _tell(outcomes)

    def _together(self, kind: str, given: list[Any]) -> Sequence[Any]:
        """Return the results of one transaction for these, or the error of each."""
        begin = time.monotonic()
        try:
            return self.store.commit(given) if kind == "commit" else self._ids_of(given)
        except Exception as error:
            return [_copy(error) for _ in given]
        finally:
            if kind == "commit" and len(given) == 1:
                self._short = time.monotonic() - begin < HERE_SECONDS

    def _ids_of(self, given: list[tuple[list[InboxItem], str]]) -> Sequence[Any]:
        items = [item for queued, _ in given for item in queued]
        try:
            ids = iter(self.store.inbox.ingest(items, given[-1][1]))
        except Exception as error:
            own = isinstance(error, RowRefused) or not isinstance(error, StorageError)
            if len(given) == 1 or not own:
                raise
            # Something is wrong with one of them: the others are none the worse for it.
            return [outcome for queued in given for outcome in self._together("ingest", [queued])]
        return [[next(ids) for _ in queued] for queued, _ in given]


def _alike(jobs: Sequence[_Queued], kind: str) -> list[_Job]:
    """The jobs of a kind that can be carried out now: not those behind another job of their session."""
    found: list[_Job] = []
    behind: set[str] = set()
    earlier: set[str] = set()
    for job in jobs:
        if job is None:
            break
        if job.kind == kind and job.session_id not in behind:
            found.append(job)
            earlier.update(() if job.session_id is None else [job.session_id])
        else:
            # A call must see what was queued before it, and need not see what these sessions do after it.
            behind.update(earlier if job.session_id is None else [job.session_id])
    return found


def _called(jobs: Sequence[_Queued]) -> list[_Outcome]:
    """Carry out the calls that come first, until some time has passed."""
    outcomes: list[_Outcome] = []
    end = time.monotonic() + SHORT_SECONDS
    for job in jobs:
        if job is None or job.kind != "call" or (outcomes and time.monotonic() > end):
            break
        try:
            outcomes.append((job, job.given(), None))
        except Exception as error:
            outcomes.append((job, None, error))
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
    for job, result, error in outcomes:
        if job.future.done():
            continue
        if error is None:
            job.future.set_result(result)
        else:
            job.future.set_exception(error)
