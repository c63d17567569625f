"""The shell around the pure core: it performs what is due, and decides nothing.

Every command for a session goes through one place (`Engine.apply`): claim and load where needed → `decide` →
`decide(Begin)` → one commit → launch. What follows from events (prompts, timers, intents to show something) is
computed by pure extensions and written in that same commit. A session that nothing in this process works for is
given up and forgotten: a paused session costs no memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from engine import clock
from engine.actors import Actor
from engine.codec import Json, canonical, encode
from engine.commands import (
    Abort,
    Answer,
    Begin,
    Claimed,
    Command,
    Facts,
    Message,
    NodeBroke,
    NodeCut,
    NodeDone,
    Policy,
    Start,
)
from engine.core import due, take_turn
from engine.errors import (
    Corrupt,
    EmptyMessage,
    Fenced,
    MalformedJournal,
    SaysoError,
    SessionEnded,
    SessionQuarantined,
    SessionRunning,
    SnapshotRefused,
    StorageFull,
    UnknownSession,
)
from engine.events import Event, event_from_bytes
from engine.flow import Flow, flow_from_body
from engine.inspection import inspection
from engine.intents import deliveries, timer_rows
from engine.nodes.port import Completed, Failed, Interrupted, NodeContext, Runner
from engine.snapshot import document, export, load_state, read_export, signed_part
from engine.snapshot_files import SnapshotFiles
from engine.state import NodeRun, State, derive_state
from engine.storage.port import Commit, Consumed, Head, NewSession, Row, Store
from engine.storage.writer import Writer
from engine.turn import launched

log = logging.getLogger("sayso.engine")

DRAIN_SECONDS = 10.0
"""How long running nodes may go on after a shutdown was asked for."""


class Extension(Protocol):
    """A pure function: what rows follow from a step. Written in the step's own commit."""

    def __call__(self, before: State, after: State, events: Sequence[Event]) -> Sequence[Row]: ...


class Subscriber(Protocol):
    """Told about committed events, after the commit."""

    def __call__(self, state: State, events: Sequence[Event]) -> None: ...


@dataclass
class Live:
    """A session that this process works for."""

    session_id: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    claimed: bool = False
    fresh: bool = False
    epoch: int = 0
    state: State = field(default_factory=State)
    flow: Flow | None = None
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    aborted: asyncio.Event = field(default_factory=asyncio.Event)


def utc_now() -> str:
    """Now, as it is stored."""
    return clock.to_text(datetime.now(UTC))


def random_text() -> str:
    """Randomness for ids."""
    return os.urandom(16).hex()


class Engine:
    """Runs sessions of one store in this process."""

    def __init__(
        self,
        store: Store,
        *,
        policy: Policy,
        runners: Mapping[str, Runner],
        home: Path,
        secret: Callable[[str], str] | None = None,
        extensions: Sequence[Extension] = (),
        label: str = "engine",
        now: Callable[[], str] = utc_now,
        entropy: Callable[[], str] = random_text,
        snapshot_dir: Path | None = None,
    ) -> None:
        self.store = store
        self.writer = Writer(store)
        self.now = now
        self._entropy = entropy
        self._policy = policy
        self._runners = runners
        self._secret = secret or _no_secrets
        self._home = home
        self._extensions: list[Extension] = [timer_rows, deliveries, *extensions]
        self._label = label
        self._live: dict[str, Live] = {}
        self._flows: dict[str, Flow] = {}
        self._subscribers: list[Subscriber] = []
        self._parked = asyncio.Condition()
        self._draining = False
        self._owner = ""
        self._files = SnapshotFiles(snapshot_dir) if snapshot_dir else None
        self.on_quarantine: Callable[[Head, str], Sequence[Row]] = lambda head, reason: ()
        """What to show when a session is set aside."""
        self.on_broken: Callable[[BaseException], None] = lambda error: None
        """Told when an outcome could not be recorded: memory can no longer be trusted, the process must end."""
        self._broken: BaseException | None = None

    # --- life ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Start the writer thread and make this process known as an owner."""
        self.writer.start()
        self._owner = await self.writer.call("register", self._label)

    async def drain(self, seconds: float = DRAIN_SECONDS) -> None:
        """Start nothing new; running nodes finish, or are cut after so many seconds; all of it is durable."""
        self._draining = True
        tasks = self._tasks()
        if tasks and seconds > 0:
            await asyncio.wait(tasks, timeout=seconds)
        for live in list(self._live.values()):
            live.aborted.set()
        while tasks := self._tasks():
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Drain without patience, carry out what is queued, and end the writer thread."""
        await self.drain(0)
        await asyncio.to_thread(self.writer.close)

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for live in self._live.values() for task in live.tasks.values()]

    @property
    def draining(self) -> bool:
        """Whether a shutdown was asked for."""
        return self._draining

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Be told about committed events; returns how to stop it."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    # --- what people ask for -------------------------------------------------------------------------------

    async def start(
        self,
        flow: Flow,
        inputs: Mapping[str, Json],
        *,
        actor: Actor,
        thread: dict[str, Json] | None = None,
        session_id: str | None = None,
        consumed: Sequence[Consumed] = (),
    ) -> str:
        """Start a session and return its id once its start is durable. Raises `InvalidInputs`, `NotAllowed`."""
        session_id = session_id or f"session-{self._entropy()[:10]}"
        live = Live(session_id, users=1, claimed=True, epoch=1, flow=flow)
        self._flows[flow.digest] = flow
        self._live[session_id] = live
        command = Start(session_id, dict(inputs), actor, thread)
        new = NewSession(flow.name, flow.digest, flow.body(), thread_key=(thread or {}).get("key"))
        try:
            async with live.lock:
                await self._step(live, command, consumed, new=new)
        except BaseException:
            if not live.state.seq:
                self._live.pop(session_id, None)
            raise
        finally:
            live.users -= 1
            self._forget(live)
        return session_id

    async def resume(
        self,
        session_id: str,
        message: str,
        *,
        actor: Actor,
        prompt_id: str | None = None,
        answer: Json = None,
        key: str | None = None,
    ) -> State:
        """Continue a paused session with a message, or with the answer to one of its prompts.

        A message answers the only open text prompt that this actor may answer; with none it is kept as
        `session:message`. Raises `EmptyMessage`, `UnknownSession`, `SessionEnded`, `SessionRunning`,
        `SeveralPrompts` and the refusals; nothing is changed then.
        """
        head = await self.head(session_id)
        if head.status in ("complete", "failed", "aborted"):
            raise SessionEnded(f"Session {session_id} is {head.status}; it cannot be resumed.")
        key = key or f"resume:{self._entropy()}"
        if prompt_id is not None:
            text = message if answer is None else None
            return await self.apply(session_id, Answer(prompt_id, actor, key, value=answer, text=text))
        if not message.strip():
            raise EmptyMessage("A resume needs a message that is not empty.")
        if head.status == "running":
            raise SessionRunning(f"Session {session_id} is running already; nothing was changed.")
        return await self.apply(session_id, Message(message, actor, key))

    async def abort(self, session_id: str, *, actor: Actor, reason: str | None = None) -> State:
        """End a session for good. Raises `UnknownSession`, `SessionEnded`, `NotAllowed`."""
        return await self.apply(session_id, Abort(actor, reason))

    async def inspect(self, session_id: str) -> dict[str, Json]:
        """The session's state as one JSON document, without claiming it. Raises `UnknownSession`, `Corrupt`."""
        return inspection(await self.state(session_id), await self.head(session_id))

    async def state(self, session_id: str) -> State:
        """The state as it is stored, without claiming the session."""
        live = self._live.get(session_id)
        if live is not None and live.claimed and live.state.seq:
            return live.state
        return load_state(await self.writer.call("load", session_id))

    async def head(self, session_id: str) -> Head:
        """Where a session stands. Raises `UnknownSession`."""
        head: Head | None = await self.writer.call("head", session_id)
        if head is None:
            raise UnknownSession(f"There is no session {session_id}.")
        return head

    async def journal(self, session_id: str) -> list[Event]:
        """All events of a session, verified."""
        rows = await self.writer.call(lambda: list(self.store.journal(session_id)))
        return [event_from_bytes(row) for row in rows]

    async def flow_of(self, session_id: str) -> Flow:
        """The flow that the session pinned."""
        return await self._flow((await self.head(session_id)).flow_digest)

    # --- portable snapshots --------------------------------------------------------------------------------

    async def export(self, session_id: str) -> bytes:
        """The session as one portable file: snapshot, journal, pinned flow, signed with this store's key."""
        journal = await self.journal(session_id)
        head = await self.head(session_id)
        body = await self.writer.call("flow", head.flow_digest)
        file = export(derive_state(journal), journal, body)
        mac: bytes = await self.writer.call("sign", "snapshot-file", signed_part(file))
        return encode({**file, "mac": mac.hex()})

    async def resume_from_snapshot(
        self,
        data: bytes,
        *,
        message: str | None = None,
        prompt_id: str | None = None,
        answer: Json = None,
        actor: Actor | None = None,
    ) -> State:
        """Continue from an exported file: in this store if the session stands here as the file has it, else the
        session is brought here first, with its whole journal. With a message or answer it is resumed.

        Raises `SnapshotRefused` when the file does not verify, or the journal here is further than the file.
        """
        file = read_export(data)
        mac: bytes = await self.writer.call("sign", "snapshot-file", signed_part(file))
        if not hmac.compare_digest(mac.hex(), str(file["mac"])):
            raise SnapshotRefused(
                "This snapshot was changed, or was signed with another key (SAYSO_SECRET_KEY)."
            )
        session_id = await self._bring(file)
        if actor is None or (message is None and prompt_id is None):
            return await self.state(session_id)
        return await self.resume(session_id, message or "", actor=actor, prompt_id=prompt_id, answer=answer)

    async def _bring(self, file: dict[str, Json]) -> str:
        """The session of a verified file, in this store at the file's seq."""
        events = [event_from_bytes(encode(event)) for event in file["journal"]]
        state = derive_state(events)
        known: Head | None = await self.writer.call("head", state.session_id)
        if known is not None:
            here = await self.state(state.session_id)
            if here.seq != state.seq:
                raise SnapshotRefused(
                    f"Session {state.session_id} is at event {here.seq} here and the snapshot is at {state.seq}; "
                    "resume the session itself."
                )
            return state.session_id
        flow = flow_from_body(canonical(file["flow"]))
        live = Live(state.session_id, users=1, claimed=True, epoch=1, flow=flow)
        self._live[state.session_id] = live
        try:
            async with live.lock:
                key = (state.thread or {}).get("key")
                new = NewSession(flow.name, flow.digest, flow.body(), thread_key=key)
                await self._commit(live, events, state, (), new)
        finally:
            live.users -= 1
            self._forget(live)
        return state.session_id

    async def _write_file(self, state: State) -> None:
        """Keep the snapshot directory in step; a file is a copy, so failing to write one fails nothing else."""
        assert self._files is not None
        try:
            if state.ended:
                await asyncio.to_thread(self._files.remove, state.session_id)
            else:
                await asyncio.to_thread(
                    self._files.write, state.session_id, await self.export(state.session_id)
                )
        except OSError as error:
            log.error("the snapshot file of %s could not be written: %s", state.session_id, error)

    async def parked(self, session_id: str) -> State:
        """Return as soon as nothing in this process works for the session (it waits, has ended, or was given up)."""
        async with self._parked:
            await self._parked.wait_for(lambda: session_id not in self._live or self._broken is not None)
        if self._broken is not None:
            raise self._broken
        return await self.state(session_id)

    # --- one step ------------------------------------------------------------------------------------------

    async def apply(
        self, session_id: str, command: Command | None, *, consumed: Sequence[Consumed] = ()
    ) -> State:
        """Carry out one command: durable when this returns. `None` just takes the session up where it stands.

        Raises `UnknownSession`, `Owned` (another process has it), `SessionQuarantined`, and what `decide` raises.
        """
        async with self._using(session_id) as live:
            if not live.claimed:
                await self._claim(live)
            return await self._step(live, command, consumed)

    @contextlib.asynccontextmanager
    async def _using(self, session_id: str) -> AsyncIterator[Live]:
        live = self._live.setdefault(session_id, Live(session_id))
        live.users += 1
        try:
            async with live.lock:
                yield live
        finally:
            live.users -= 1
            self._forget(live)

    def _forget(self, live: Live) -> None:
        if live.users or live.tasks or live.claimed:
            return
        if self._live.get(live.session_id) is live:
            del self._live[live.session_id]
            asyncio.get_running_loop().create_task(self._tell_parked())

    async def _tell_parked(self) -> None:
        async with self._parked:
            self._parked.notify_all()

    async def _claim(self, live: Live) -> None:
        live.epoch = await self.writer.call("claim", live.session_id, self._owner, self.now())
        try:
            loaded = await self.writer.call("load", live.session_id)
            live.flow = await self._flow(loaded.head.flow_digest)
            live.state = load_state(loaded)
        except (Corrupt, MalformedJournal) as error:
            reason = f"its records do not verify ({error})"
            rows = self.on_quarantine(await self.head(live.session_id), reason)
            await self.writer.call("quarantine", live.session_id, reason, self.now(), rows)
            raise SessionQuarantined(f"Session {live.session_id} was set aside: {reason}.") from error
        live.claimed = True
        live.fresh = True
        live.aborted = asyncio.Event()

    async def _flow(self, digest: str) -> Flow:
        if digest not in self._flows:
            self._flows[digest] = flow_from_body(await self.writer.call("flow", digest))
        return self._flows[digest]

    async def _step(
        self, live: Live, command: Command | None, consumed: Sequence[Consumed], new: NewSession | None = None
    ) -> State:
        assert live.flow is not None
        events, after, refusal = self._decide(live, command)
        if refusal is not None and not events and new is not None:
            raise refusal
        await self._commit(live, events, after, () if refusal else consumed, new)
        if refusal is not None:
            raise refusal
        return live.state

    def _decide(self, live: Live, command: Command | None) -> tuple[list[Event], State, SaysoError | None]:
        """The events of a step: what the claim, the command and the work that is due make true, in this order."""
        assert live.flow is not None
        facts = Facts(now=self.now(), epoch=live.epoch, entropy=self._entropy(), policy=self._policy)
        state, events, refusal = live.state, [], None
        commands: list[Command] = [Claimed()] if live.fresh else []
        if command is not None:
            commands.append(command)
        for item in commands:
            try:
                turn = take_turn(live.flow, state, item, facts)
            except SaysoError as error:
                refusal = error
                continue
            events += turn.events
            state = turn.state
        if state.seq and not self._draining:
            turn = take_turn(live.flow, state, Begin(), facts)
            events += turn.events
            state = turn.state
        return events, state, refusal

    async def _commit(
        self,
        live: Live,
        events: list[Event],
        after: State,
        consumed: Sequence[Consumed],
        new: NewSession | None,
    ) -> None:
        assert live.flow is not None
        before = live.state
        rows = [row for extension in self._extensions for row in extension(before, after, events)]
        idle = not launched(after) and (self._draining or not due(live.flow, after))
        paused = any(event.type == "flow:paused" for event in events) and after.phase == "waiting"
        snapshot = encode(document(after)) if paused else None
        if not (events or consumed or rows or idle):
            live.fresh = False
            return
        try:
            await self.writer.commit(
                Commit(
                    session_id=live.session_id,
                    epoch=live.epoch,
                    seq=before.seq,
                    now=self.now(),
                    status=after.status,
                    phase=after.phase,
                    events=tuple(event.to_bytes() for event in events),
                    consumed=tuple(consumed),
                    rows=tuple(rows),
                    snapshot=snapshot,
                    release=idle,
                    new=new,
                    owner=self._owner if new else None,
                )
            )
        except Fenced:
            self._lose(live)
            raise
        live.state, live.fresh = after, False
        live.claimed = not idle
        if self._files is not None and (snapshot is not None or after.ended):
            await self._write_file(after)
        self._after_commit(live, after, events)

    def _lose(self, live: Live) -> None:
        """Another owner has the session: stop its work here at once, write nothing."""
        live.claimed = False
        live.aborted.set()

    def _after_commit(self, live: Live, after: State, events: Sequence[Event]) -> None:
        for subscriber in list(self._subscribers):
            try:
                subscriber(after, events)
            except Exception:
                log.exception("a subscriber failed")
        if after.phase == "finalizing" or after.ended:
            live.aborted.set()
        elif live.claimed:
            self._launch(live)

    # --- nodes ---------------------------------------------------------------------------------------------

    def _launch(self, live: Live) -> None:
        """Start the work of every node that is begun and not being worked on."""
        assert live.flow is not None
        for path in launched(live.state):
            run = live.state.nodes[path]
            name = f"{path}#{run.attempt}"
            if name not in live.tasks:
                live.tasks[name] = asyncio.create_task(self._work(live, path, run, name), name=name)

    async def _work(self, live: Live, path: str, run: NodeRun, name: str) -> None:
        """Run → classify → record, and whatever happens, be gone afterwards."""
        try:
            await self._record(live, await self._run_node(live, path, run))
        except BaseException as error:
            log.critical("%s: the outcome of %s could not be recorded: %s", live.session_id, path, error)
            self._broken = error
            self.on_broken(error)
            await self._tell_parked()
            raise
        finally:
            live.tasks.pop(name, None)
            self._forget(live)

    async def _run_node(self, live: Live, path: str, run: NodeRun) -> Command:
        assert live.flow is not None
        node = live.flow.nodes[run.position]
        try:
            outcome = await self._runners[node.type](run.input, self._context(live, path, run, node.timeout))
            return _classify(path, run.attempt, outcome, left=live.aborted.is_set())
        except Exception as error:
            log.exception("node %s of %s raised", path, live.session_id)
            message = f"node {run.node_id}: {type(error).__name__}: {error}"
            return NodeBroke(path, run.attempt, {"type": "internal", "message": message})

    def _context(self, live: Live, path: str, run: NodeRun, timeout: float | None) -> NodeContext:
        assert live.flow is not None
        flow_dir = Path(live.flow.file).parent if live.flow.file else None
        return NodeContext(
            session_id=live.session_id,
            path=path,
            idempotency_key=f"{live.session_id}:{path}",
            attempt=run.attempt,
            workdir=self._home / "sessions" / live.session_id,
            flow_dir=flow_dir,
            secret=self._secret,
            timeout=timeout,
            aborted=live.aborted,
            progress=lambda line: log.debug("%s %s: %s", live.session_id, path, line),
        )

    async def _record(self, live: Live, command: Command) -> None:
        """Make an outcome durable; while the disk is full it is kept and tried again."""
        delay = 0.05
        while True:
            try:
                async with self._using(live.session_id) as current:
                    if current.claimed:
                        await self._step(current, command, ())
                return
            except StorageFull as error:
                log.error("%s: an outcome is kept until there is space: %s", live.session_id, error)
                await asyncio.sleep(delay)
                delay = min(delay * 2, 5.0)
            except Fenced:
                log.warning("%s belongs to another process now; an outcome was dropped", live.session_id)
                return


def _no_secrets(name: str) -> str:
    raise SaysoError(f"No secrets are configured here, so secret {name} cannot be used.")


def _classify(path: str, attempt: int, outcome: Completed | Failed | Interrupted, *, left: bool) -> Command:
    """What an outcome means. A node that was cut although nobody told it to leave was lost by the other side."""
    match outcome:
        case Completed(output):
            return NodeDone(path, attempt, output)
        case Failed(kind, message, details):
            return NodeBroke(path, attempt, {"type": kind, "message": message, "details": details})
        case Interrupted("cut", message) if not left:
            return NodeCut(path, attempt, "lost", message)
        case Interrupted(reason, message):
            return NodeCut(path, attempt, reason, message)
