"""Runs the begun nodes of a process: starts them, tells them to leave, and passes their outcomes on.

An `ActiveSession` is a session that the process works for, `Cached` its remains after the release. A `Job` is the work
of one node: the input of its runner, and the meaning of its outcome for the core.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from decimal import Decimal
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct, field, structs

from engine.decide.commands import Command, NodeBroke, NodeCut, NodeDone
from engine.decide.step import Step, node_at
from engine.flow import Flow, Node
from engine.journal.events import Event
from engine.journal.queries import TURN, alive, doomed
from engine.journal.records import KeptRow, Row
from engine.journal.state import NodeRun, State, scope_of
from engine.language.errors import BlobLost, FenceLost, SaysoError, SessionError, StorageError
from engine.nodes.runtime.effects import FREE, Permit, before_effect, under
from engine.nodes.runtime.folder import session_folder
from engine.nodes.runtime.runner import Completed, Failed, Interrupted, NodeContext, Runner, StopSignal
from engine.nodes.runtime.secrets import references, without_secrets
from engine.nodes.types.spec import Meter
from engine.storage.backoff import waited_out

if TYPE_CHECKING:
    from engine.messages.turns import TurnEvent
    from engine.run.shared_files import SharedFiles

log = logging.getLogger("sayso.engine")


class Executor:
    """The running nodes of a process's sessions.

    `left` is called each time that a node of a session has ended.
    """

    def __init__(
        self,
        runners: Mapping[str, Runner],
        home: Path,
        secret: Callable[[str], str] | None,
        left: Callable[[ActiveSession], None],
    ) -> None:
        self.jobs = JobRunner(runners, home, secret or _no_secrets, self._metered, self._streamed)
        self.on_outcome: Callable[[ActiveSession, Command], Awaitable[None]]
        """Makes an outcome durable."""
        self.on_lost: Callable[[BaseException], None]
        """Told why an outcome could not be recorded."""
        self.permit: Callable[[ActiveSession], Permit] = lambda live: FREE
        """Returns the permit that a node launched now asks before its effects."""
        self.on_fenced: Callable[[ActiveSession], Awaitable[None]]
        """Told that a node was refused its effects."""
        self.meters: dict[str, dict[str, Meter]] = {}
        """Progress of running nodes, by session and path; not stored."""
        self.on_meter: Callable[[str], None] = lambda session_id: None
        """Called with the session of a node that reported progress."""
        self.on_stream: Callable[[str, str, TurnEvent], None] = lambda session_id, path, event: None
        """Called with a model's output while it streams, by session and path; not stored."""
        self.files: SharedFiles | None = None
        """The folders of sessions, where several machines share them."""
        self._left = left

    def launch(self, live: ActiveSession) -> None:
        """Start the work of every node that is begun and not being worked on."""
        assert live.flow is not None
        for path in live.state.launched:
            run = live.state.nodes[path]
            name = f"{path}#{run.attempt}"
            if name not in live.tasks:
                live.stops[name] = StopSignal()
                work = self._work(live, path, run, name, self.permit(live))
                live.tasks[name] = asyncio.create_task(work, name=name)

    async def _work(self, live: ActiveSession, path: str, run: NodeRun, name: str, permit: Permit) -> None:
        """Run → classify → record, and whatever happens, be gone afterwards."""
        try:
            with contextlib.nullcontext() if self.files is None else self.files.working(live.session_id):
                with under(permit):
                    await before_effect()
                    command = (
                        NodeCut(path, run.attempt, "left", "it was told to stop before it began", run.saved)
                        if live.stops[name].is_set()
                        else await self._without_files(live, path, run, live.stops[name])
                    )
                    if command is None:
                        command = await self.jobs.perform(self._job(live, path, run, name))
                await self.on_outcome(live, command)
        except FenceLost:
            # Its start is durable: the session's new owner finds it interrupted.
            log.info("%s: %s is skipped: another process may have the session", live.session_id, path)
            await self.on_fenced(live)
        except asyncio.CancelledError:
            # Left behind at a shutdown: its start is durable, so the next claim finds it interrupted.
            raise
        except BaseException as error:
            log.critical("%s: the outcome of %s could not be recorded: %s", live.session_id, path, error)
            self.on_lost(error)
            if not isinstance(error, Exception):
                raise
        finally:
            live.tasks.pop(name, None)
            live.stops.pop(name, None)
            self._left(live)

    async def _without_files(
        self, live: ActiveSession, path: str, run: NodeRun, stop: StopSignal
    ) -> Command | None:
        """Have the session's folder here as it was left; how the node ends where that cannot be."""
        if self.files is None:
            return None
        ready = partial(self.files.ready, live.session_id, live.epoch)
        try:
            await waited_out(ready, f"{live.session_id}: {path}", lambda: not stop.is_set())
        except BlobLost as error:
            return NodeBroke(path, run.attempt, {"type": error.code, "message": str(error)})
        except StorageError as error:
            return NodeCut(path, run.attempt, "left", str(error), run.saved)
        return None

    def _job(self, live: ActiveSession, path: str, run: NodeRun, name: str) -> Job:
        assert live.flow is not None
        node = node_at(live.flow, live.state, path)
        if run.type == TURN:
            from engine.decide.agents.model_request import request  # by the first agent

            # The conversation is in the journal already, and is not written again with each call.
            run = structs.replace(run, input=request(live.flow, live.state, path))
        called = live.flow.lists[live.state.frames[scope_of(path)].list_id].flow
        file = live.flow.file if called == live.flow.name else live.flow.flows[called].file
        # A tool may find a secret that another one left: in a file, or in the memory of a server.
        secrets = live.flow.secrets if "/tool[" in path and run.type != TURN else frozenset()
        pinned = "/tool[" in path or node.id in live.flow.lists[node.list_id].guards
        return Job(live.session_id, path, run, node, file, live.stops[name], secrets, pinned)

    def stop_what_is_over(self, live: ActiveSession) -> None:
        """Tell running nodes to leave that are inside of a failed container, or of a flow or a `finally` that ends. A node that
        was begun in the very step that ended them leaves before it does anything."""
        for path in live.state.launched:
            if doomed(live.state, path) or not alive(live.state, path):
                live.stops[f"{path}#{live.state.nodes[path].attempt}"].set()

    def _metered(self, session_id: str, path: str, meter: Meter | None) -> None:
        """A node says how far it is, or has ended."""
        known = self.meters.setdefault(session_id, {})
        if meter is not None:
            known[path] = meter
            self.on_meter(session_id)
            return
        known.pop(path, None)
        if not known:
            self.meters.pop(session_id, None)

    def _streamed(self, session_id: str, path: str, event: TurnEvent) -> None:
        """Pass on a model's output. Errors of the listener must not disturb the call."""
        try:
            self.on_stream(session_id, path, event)
        except Exception:
            log.exception("the text of %s of %s could not be shown", path, session_id)


# --- active sessions ---------------------------------------------------------------------------------------


class Extension(Protocol):
    """A pure function that returns the rows following from a step, written in the step's own commit. If it has the
    attribute `about`, kinds of events, it is called only for steps with one of these."""

    def __call__(self, before: State, after: State, events: Sequence[Event]) -> Sequence[Row]: ...


class Subscriber(Protocol):
    """Told about committed events, after the commit."""

    def __call__(self, state: State, events: Sequence[Event]) -> None: ...


class ActiveSession(Struct):
    """A session that this process works for."""

    session_id: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    claimed: bool = False
    fresh: bool = False
    """The claim is not stored yet: the commit of the first step does that."""
    found: bool = False
    """The last claim loaded it from the store: another process may have left work behind in it."""
    epoch: int = 0
    generation: int = 0
    """Fence generation before its last commit, under which its work began."""
    state: State = field(default_factory=State)
    flow: Flow | None = None
    step: Step | None = None
    """The step that was taken last, whether it was stored or not."""
    pausing: bool = False
    """True while a person pauses the session: nothing new begins, running nodes are told to leave."""
    stale: bool = False
    """The last step failed: whether it was stored is not known, so it is loaded again before the next."""
    snapshot_bytes: int = 0
    tail_bytes: int = 0
    """Bytes of the events after the stored snapshot."""
    day_left: Decimal | None = None
    """Dollars that may still be spent today, where the last commit was refused for that (`DayBudgetSpent`)."""
    grants: Sequence[KeptRow] = ()
    """Grants that apply at its place, as read for the last step."""
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    stops: dict[str, StopSignal] = field(default_factory=dict)
    """Tells each task that it is to leave."""
    parked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once this process has no work for it."""

    def stop_all(self) -> None:
        """Tell every task to leave."""
        for stop in self.stops.values():
            stop.set()


class Cached(NamedTuple):
    """A session that this process released under `epoch`, or that was `found` so in the store."""

    epoch: int
    state: State
    snapshot_bytes: int
    tail_bytes: int
    found: bool = False


_SESSION_ID = re.compile(r"session-[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


def checked_id(session_id: str) -> str:
    """A session id that a caller gave, or a file: it names a folder and files. Raises `SessionError`."""
    if _SESSION_ID.fullmatch(session_id) is None:
        raise SessionError(
            f"{session_id!r} is not a session ID: use `session-` and 1 to 100 letters, digits, `-` or `_`."
        )
    return session_id


_DRAWN: list[str] = []
os.register_at_fork(after_in_child=_DRAWN.clear)  # two processes never give the same id


def random_text() -> str:
    """Randomness for ids. It is drawn for many at once: asking the system for it lets other threads run, and while the
    writer is busy it takes milliseconds until it is our turn again."""
    while not _DRAWN:
        drawn = os.urandom(16 * 256).hex()
        _DRAWN.extend(drawn[at : at + 32] for at in range(0, len(drawn), 32))
    return _DRAWN.pop()


# --- one node ----------------------------------------------------------------------------------------------


_NO_RUNNER = (
    "There is no runner for nodes of type `{}`: give the engine one. `engine.Runtime` has all of them."
)


def _no_secrets(name: str) -> str:
    """Refuse every secret, as none are configured."""
    raise SaysoError(f"No secrets are configured here, so secret {name} cannot be used.")


class Job(Struct, frozen=True):
    """One execution of one node: its place, its work, its flow file, and its signal to leave."""

    session_id: str
    path: str
    run: NodeRun
    node: Node
    file: str
    stop: StopSignal
    secrets: frozenset[str] = frozenset()
    """Names of secrets whose values must not appear in its output, since a model reads it."""
    pinned: bool = False
    """See `NodeContext`."""


@lru_cache(1_000)
def _file_and_folder(file: str) -> tuple[Path | None, Path | None]:
    """Return a flow's file and its folder; both None without a file."""
    path = Path(file) if file else None
    return path, path and path.parent


class JobRunner(Struct, frozen=True):
    """Runs jobs with the runners and folders of a process."""

    runners: Mapping[str, Runner]
    home: Path
    secret: Callable[[str], str]
    meter: Callable[[str, str, Meter | None], None] = lambda session_id, path, meter: None
    """Told how far a node of a session is; None when it has ended."""
    stream: Callable[[str, str, TurnEvent], None] = lambda session_id, path, event: None
    """Called with a model's output in a turn of a session, while it streams."""

    def folder(self, session_id: str) -> Path:
        """Return the folder in which a session's nodes work; the first node that needs it creates it."""
        return session_folder(self.home, session_id)

    async def perform(self, job: Job) -> Command:
        """Run the node to its end and return its outcome. Raises nothing: a runner that raises has failed."""
        with about(session=job.session_id, path=job.path):
            try:
                return await self._perform(job)
            finally:
                self.meter(job.session_id, job.path, None)

    async def _perform(self, job: Job) -> Command:
        path, run = job.path, job.run
        try:
            runner = self.runners.get(run.type)
            if runner is None:
                return NodeBroke(
                    path, run.attempt, {"type": "internal", "message": _NO_RUNNER.format(run.type)}
                )
            if named := references(run.input):
                await asyncio.to_thread(self._look_up, named)
            outcome = await runner(run.input, self._context(job))
            if job.secrets:
                outcome = await asyncio.to_thread(without_secrets, outcome, job.secrets, self.secret)
            return classify(path, run.attempt, outcome, left=job.stop.is_set())
        except Exception as error:
            log.exception("node %s of %s raised", path, job.session_id)
            message = f"node {run.node_id}: {type(error).__name__}: {error}"
            return NodeBroke(path, run.attempt, {"type": "internal", "message": message})

    def _look_up(self, names: Iterable[str]) -> None:
        """Load secrets away from the event loop, as a program may supply them; the runner reports missing ones."""
        for name in names:
            with contextlib.suppress(SaysoError):
                self.secret(name)

    def _context(self, job: Job) -> NodeContext:
        flow_file, flow_dir = _file_and_folder(job.file)
        return NodeContext(
            session_id=job.session_id,
            path=job.path,
            idempotency_key=f"{job.session_id}:{job.path}",
            attempt=job.run.attempt,
            workdir=self.folder(job.session_id),
            flow_dir=flow_dir,
            secret=self.secret,
            timeout=job.node.timeout,
            saved=job.run.saved,
            pinned=job.pinned,
            aborted=job.stop,
            flow_file=flow_file,
            meter=lambda meter: self.meter(job.session_id, job.path, meter),
            stream=lambda event: self.stream(job.session_id, job.path, event),
            progress=lambda line: log.debug("%s %s: %s", job.session_id, job.path, line),
        )


def classify(path: str, attempt: int, outcome: Completed | Failed | Interrupted, *, left: bool) -> Command:
    """Convert an outcome to a command. A node that was cut without being told to leave was lost by the other side."""
    match outcome:
        case Completed(output):
            return NodeDone(path, attempt, output)
        case Failed(kind, message, details):
            return NodeBroke(path, attempt, {"type": kind, "message": message, "details": details})
        case Interrupted(("left" | "asks") as reason, message, saved):
            return NodeCut(path, attempt, reason, message, saved)
        case Interrupted("cut", message) if not left:
            return NodeCut(path, attempt, "lost", message)
        case Interrupted(reason, message):
            return NodeCut(path, attempt, reason, message)


# --- fields of log lines, for structured logs ----------------------------------------------------------------


_ABOUT: ContextVar[Mapping[str, str]] = ContextVar("about", default={})  # noqa: B039 - never changed


@contextlib.contextmanager
def about(**names: str | None) -> Iterator[None]:
    """Lines that are logged in here, and in tasks that begin in here, are about these: `session`, `path`, `thread`."""
    token = _ABOUT.set(
        {**_ABOUT.get(), **{name: value for name, value in names.items() if value is not None}}
    )
    try:
        yield
    finally:
        _ABOUT.reset(token)


def logged_about() -> Mapping[str, str]:
    """Return the fields for log lines written here."""
    return _ABOUT.get()
