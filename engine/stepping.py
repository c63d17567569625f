"""The shell around the pure core: it performs what is due, and decides nothing.

Every command for a session goes through one place (`Engine.apply`): claim and load where needed → `decide` →
`decide(Begin)` → one commit → launch. What follows from events (prompts, timers, intents to show something) is
computed by pure extensions and written in that same commit. A session that nothing in this process works for is
given up and forgotten: a paused session costs no memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine import agents, locks
from engine.agents.facts import AgentFacts
from engine.codec import encode
from engine.commands import (
    Begin,
    Claimed,
    Command,
    Facts,
    LockQueued,
    Policy,
)
from engine.core import due, take_turn
from engine.errors import (
    Corrupt,
    DayBudgetSpent,
    Fenced,
    FlowError,
    LockHeld,
    MalformedJournal,
    Owned,
    SaysoError,
    SessionError,
    SessionQuarantined,
    StorageBroken,
    StorageError,
    UnknownSession,
)
from engine.evaluation import node_at
from engine.events import Event, event_from_bytes
from engine.flow import Flow
from engine.fold import derive_state
from engine.folds.agents import TURN
from engine.intents import deliveries, lock_rows, timer_rows
from engine.live import Extension, Live, Subscriber, Warm, random_text, utc_now
from engine.nodes.digests import CodeDigests
from engine.nodes.port import Meter, Runner
from engine.queries import doomed, launched
from engine.snapshot import document, load_state
from engine.snapshot_files import SnapshotFiles
from engine.state import NodeRun, State, in_finally, scope_of
from engine.storage.port import Commit, Consumed, Head, Loaded, NewSession, Pin, Row, Store
from engine.storage.writer import Writer
from engine.work import Job, Workplace, no_secrets

if TYPE_CHECKING:
    from engine.providers.turns import TurnEvent

log = logging.getLogger("sayso.engine")

SMALL_SNAPSHOT = 64 * 1024
"""Bytes of a snapshot that is written at every pause."""

WARM_SESSIONS = 256
"""How many paused sessions are remembered, so that answers one after the other need no loading."""

LEAVE_SECONDS = 15.0
"""How long a node that was told to leave may take: a program has 10 s between SIGTERM and SIGKILL."""

DRAIN_SECONDS = 10.0
"""How long running nodes may go on after a shutdown was asked for."""


class Stepper:
    """Takes the steps of one store's sessions in this process. `engine.engine.Engine` is what others ask."""

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
        writer: Writer | None = None,
        agents: AgentFacts | None = None,
    ) -> None:
        self.store = store
        self.writer = writer or Writer(store)
        self.now = now
        self._entropy = entropy
        self._policy = policy
        self._agents = agents or AgentFacts()
        self._code = CodeDigests()
        self._workplace = Workplace(runners, home, secret or no_secrets, self._metered, self._streamed)
        self.meters: dict[str, dict[str, Meter]] = {}
        """How far running nodes say that they are, by session and path; nothing of it is stored."""
        self.on_meter: Callable[[str], None] = lambda session_id: None
        """Called with a session whose node said so."""
        self.on_stream: Callable[[str, str, TurnEvent], None] = lambda session_id, path, event: None
        """Told what a model says in a turn, by session and path, while it says it; nothing of it is stored."""
        self.closing: list[Callable[[], Awaitable[None]]] = []
        """What is to be let go of at the end: connections of runners."""
        # What a flow says with its next node stands below what follows from the last one.
        self._extensions: list[Extension] = [timer_rows, lock_rows, *extensions, deliveries]
        self._label = label
        self._live: dict[str, Live] = {}
        self._warm: OrderedDict[str, Warm] = OrderedDict()
        self._flows: dict[str, Flow] = {}
        self._subscribers: list[Subscriber] = []
        self._parked = asyncio.Event()
        self._draining = False
        self._owner = ""
        self._files = SnapshotFiles(snapshot_dir) if snapshot_dir else None
        self.on_quarantine: Callable[[Head, str], Sequence[Row]] = lambda head, reason: ()
        """What to show when a session is set aside."""
        self.on_broken: Callable[[BaseException], None] = lambda error: None
        """Told when an outcome could not be recorded: memory can no longer be trusted, the process must end."""
        self._broken: BaseException | None = None
        self._unsettled: set[str] = set()
        self._patient = True

    # --- life ---------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Start the writer thread and make this process known as an owner."""
        self.writer.start()
        self._owner = await self.writer.call("register", self._label)
        await self.tidy_files()

    async def drain(self, seconds: float = DRAIN_SECONDS) -> None:
        """Start nothing new; running nodes finish, or are cut after so many seconds; all of it is durable."""
        self._draining = True
        await self._between_steps()
        tasks = self._tasks()
        if tasks and seconds > 0:
            await asyncio.wait(tasks, timeout=seconds)
        self._patient = False
        await self._between_steps(lambda live: live.stop_all())
        await self._leave_behind(LEAVE_SECONDS)

    async def _leave_behind(self, seconds: float) -> None:
        """Wait for what was told to leave. What does not (a function of a user that looks at nothing) is left behind:
        its start is durable, so the next claim finds it interrupted."""
        tasks = self._tasks()
        if not tasks:
            return
        _, stubborn = await asyncio.wait(tasks, timeout=seconds)
        for task in stubborn:
            log.error("%s did not leave within %g s and is left behind", task.get_name(), seconds)
            task.cancel()

    async def _between_steps(self, do: Callable[[Live], None] = lambda live: None) -> None:
        """Do something with every session once the step that it is in is over: until then it may launch nodes."""
        for live in list(self._live.values()):
            async with live.lock:
                do(live)

    async def close(self) -> None:
        """Drain without patience, carry out what is queued, and end the writer thread."""
        await self.drain(0)
        for close in self.closing:
            await close()
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

    # --- reading ------------------------------------------------------------------------------------------------

    async def state(self, session_id: str) -> State:
        """The state as it is stored, without claiming the session."""
        live = self._live.get(session_id)
        if live is not None and live.claimed and live.state.seq:
            return live.state
        return await self._folded(await self.writer.call("load", session_id))

    async def _folded(self, loaded: Loaded) -> State:
        """The state of a session as loaded. A snapshot is a cache: one that cannot be read is not needed."""
        try:
            return load_state(loaded)
        except MalformedJournal as error:
            if loaded.snapshot is None:
                raise
            log.warning("the snapshot of %s is not used: %s", loaded.head.session_id, error)
            return derive_state(await self.journal(loaded.head.session_id))

    async def verified_state(self, session_id: str) -> State:
        """The state as it is stored; a session whose records do not verify is set aside, and its thread is told.
        Raises `SessionQuarantined` then, and `UnknownSession`."""
        try:
            return await self.state(session_id)
        except (Corrupt, MalformedJournal):
            # The claim looks again, under the lease, and sets it aside.
            await self.apply(session_id, None)
            return await self.state(session_id)

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

    async def export(self, session_id: str) -> bytes:
        """The session as one portable file: snapshot, journal, pinned flow, signed with this store's key."""
        from engine.portable import signed_file  # few processes write files

        journal = await self.journal(session_id)
        head = await self.head(session_id)
        return await signed_file(self.writer, journal, await self.writer.call("flow", head.flow_digest))

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
        except (OSError, SaysoError) as error:
            log.error("the snapshot file of %s could not be written: %s", state.session_id, error)

    async def tidy_files(self, orphan_seconds: float | None = None) -> None:
        """Remove the files of sessions that have ended: a crash came between their end and their file's. With
        `orphan_seconds` also those of sessions that this store does not have, once nobody wrote them for so long."""
        if self._files is None:
            return
        try:
            for session_id in await asyncio.to_thread(self._files.sessions):
                head = await self.writer.call("head", session_id)
                if head is None:
                    old = orphan_seconds is not None and self._files.age(session_id) > orphan_seconds
                else:
                    old = head.status in ("complete", "failed", "aborted")
                if old:
                    await asyncio.to_thread(self._files.remove, session_id)
        except (OSError, SaysoError) as error:
            log.warning("the snapshot directory could not be tidied: %s", error)

    async def parked(self, session_id: str) -> State:
        """Return as soon as nothing in this process works for the session (it waits, has ended, or was given up)."""
        while session_id in self._live and self._broken is None:
            await self._parked.wait()
        if self._broken is not None:
            raise self._broken
        return await self.state(session_id)

    # --- one step -----------------------------------------------------------------------------------------------

    async def apply(
        self, session_id: str, command: Command | None, *, consumed: Sequence[Consumed] = ()
    ) -> State:
        """Carry out one command: durable when this returns. `None` just takes the session up where it stands.

        Raises `UnknownSession`, `Owned` (another process has it), `SessionQuarantined`, and what `decide` raises.
        """
        async with self._using(session_id) as live:
            await self._take_up(live)
            return await self._step(live, command, consumed)

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
        """A model says something. Whoever shows it must not disturb it."""
        try:
            self.on_stream(session_id, path, event)
        except Exception:
            log.exception("what %s of %s says could not be shown", path, session_id)

    def remembers(self, session_id: str) -> bool:
        """Whether this process works for a session, or did a moment ago: then its work is ours to do."""
        return session_id in self._live or session_id in self._warm

    def unsettled(self) -> frozenset[str]:
        """Sessions of this process of which a step failed: take them up again (`apply(id, None)`)."""
        return frozenset(self._unsettled)

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
        if live.users or live.tasks or (live.claimed and not live.doubtful):
            return
        if self._live.get(live.session_id) is live:
            del self._live[live.session_id]
            self._tell_parked()

    def _tell_parked(self) -> None:
        """Let those look again who wait for a session to be parked."""
        self._parked.set()
        self._parked = asyncio.Event()

    async def _take_up(self, live: Live) -> None:
        """Make the state in memory the one that is stored, under a claim of ours."""
        try:
            if not live.claimed or (live.doubtful and not live.tasks):
                await self._claim(live)
            elif live.doubtful:
                await self._fold_again(live)
        except (Owned, Fenced, UnknownSession, SessionQuarantined):
            self._unsettled.discard(live.session_id)
            raise
        except (Corrupt, MalformedJournal) as error:
            self._lose(live)
            await self._set_aside(live.session_id, f"its records do not verify ({error})", error)
        except FlowError as error:
            raise SessionError(
                f"Session {live.session_id} cannot go on in this release, which cannot read its flow: {error}"
            ) from error
        except StorageError:
            self._unsettled.add(live.session_id)
            raise

    async def _claim(self, live: Live) -> None:
        live.epoch = await self.writer.claim(live.session_id, self._owner, self.now())
        warm = self._warm.pop(live.session_id, None)
        if warm is not None and warm.epoch == live.epoch - 1:
            live.flow, live.state = warm.flow, warm.state
            live.snapshot_seq, live.snapshot_bytes = warm.snapshot_seq, warm.snapshot_bytes
            live.claimed, live.fresh, live.doubtful = True, True, False
            return
        loaded = await self.writer.call("load", live.session_id)
        live.flow = await self._flow(loaded.head.flow_digest)
        live.state = await self._folded(loaded)
        live.claimed, live.fresh, live.doubtful = True, True, False
        live.snapshot_seq, live.snapshot_bytes = loaded.snapshot_seq, len(loaded.snapshot or b"")

    def _keep_warm(self, live: Live) -> None:
        """Remember the last few sessions that were given up. Nobody writes without claiming, and a claim raises the
        epoch: when the next claim of ours is the very next one, what is remembered is what is stored."""
        assert live.flow is not None
        self._warm[live.session_id] = Warm(
            live.epoch, live.state, live.flow, live.snapshot_seq, live.snapshot_bytes
        )
        self._warm.move_to_end(live.session_id)
        while len(self._warm) > WARM_SESSIONS:
            self._warm.popitem(last=False)

    async def _fold_again(self, live: Live) -> None:
        """After a commit that failed, or of which nobody heard: what counts is what is stored. Raises `Fenced`."""
        loaded = await self.writer.call("load", live.session_id)
        if (loaded.head.epoch, loaded.head.owner) != (live.epoch, self._owner):
            self._lose(live)
            raise Fenced(f"Another owner has session {live.session_id}.")
        live.flow = await self._flow(loaded.head.flow_digest)
        live.state = await self._folded(loaded)
        live.doubtful = False

    async def _set_aside(self, session_id: str, reason: str, cause: Exception) -> None:
        """Quarantine a session and tell its thread. Raises `SessionQuarantined`."""
        try:
            head: Head | None = await self.writer.call("head", session_id)
        except Corrupt:
            # A head that does not verify is shown only once it is set aside.
            await self.writer.call("quarantine", session_id, reason, self.now())
            head = await self.writer.call("head", session_id)
        rows = self.on_quarantine(head, reason) if head is not None else ()
        await self.writer.call("quarantine", session_id, reason, self.now(), rows)
        self._unsettled.discard(session_id)
        raise SessionQuarantined(f"Session {session_id} was set aside: {reason}.") from cause

    async def _flow(self, digest: str) -> Flow:
        if digest not in self._flows:
            from engine.flow.load import flow_from_body  # reading flows is loaded by the first that is read

            self._flows[digest] = flow_from_body(await self.writer.call("flow", digest))
        return self._flows[digest]

    async def _step(
        self, live: Live, command: Command | None, consumed: Sequence[Consumed], new: NewSession | None = None
    ) -> State:
        while True:
            try:
                events, after, refusal = self._decide(live, command)
                if locks.pending(after):
                    events, after = await self._with_lock(live, events, after)
            except BaseException:
                self._doubt(live)
                raise
            if refusal is not None and not events and new is not None:
                raise refusal
            try:
                await self._commit(live, events, after, () if refusal else consumed, new)
                break
            except (LockHeld, DayBudgetSpent) as error:
                # Another session came first since we looked: nothing was stored, so decide again.
                log.debug("%s: %s", live.session_id, error)
        await self._begin_the_rest(live)
        if refusal is not None:
            raise refusal
        return live.state

    async def _begin_the_rest(self, live: Live) -> None:
        """A turn begins only so many nodes; the others begin here, in a commit for each turn."""
        assert live.flow is not None
        try:
            while live.claimed and not self._draining and not live.pausing and due(live.flow, live.state):
                events, after, _ = self._decide(live, None)
                with contextlib.suppress(DayBudgetSpent):  # nothing was stored; what is left is known now
                    await self._commit(live, events, after, (), None)
        except StorageError as error:
            log.error("%s goes on later: %s", live.session_id, error)

    def _facts(self, live: Live) -> Facts:
        assert live.flow is not None
        code, agents = self._code.of(live.flow), self._agents
        if live.day_left is not None:
            agents = replace(agents, day_left=live.day_left)
        return Facts(self.now(), live.epoch, self._entropy(), self._policy, code, agents, live.pausing)

    def _decide(self, live: Live, command: Command | None) -> tuple[list[Event], State, SaysoError | None]:
        """The events of a step: what the claim, the command and the work that is due make true, in this order."""
        assert live.flow is not None
        facts = self._facts(live)
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
        if state.seq and not self._draining and not live.pausing:
            turn = take_turn(live.flow, state, Begin(), facts)
            events += turn.events
            state = turn.state
        return events, state, refusal

    async def _with_lock(self, live: Live, events: list[Event], after: State) -> tuple[list[Event], State]:
        """The step of a session that waits for its lock, with what the store says about the queue. The commit checks
        it: what is read here may have changed by then."""
        assert live.flow is not None
        assert after.lock is not None
        if self._draining:
            return events, after
        commands: list[Command] = [locks.verdict(await self.writer.call("locks", after.lock.name), after)]
        if isinstance(commands[0], LockQueued):
            holder = await self.writer.call("head", commands[0].holder)
            commands[0] = commands[0].but(thread_key=holder and holder.thread_key)
        elif not live.pausing:
            commands.append(Begin())
        facts = self._facts(live)
        for command in commands:
            turn = take_turn(live.flow, after, command, facts)
            events, after = [*events, *turn.events], turn.state
        return events, after

    async def _commit(
        self,
        live: Live,
        events: list[Event],
        after: State,
        consumed: Sequence[Consumed],
        new: NewSession | None,
        pin: Pin | None = None,
    ) -> None:
        """Store a step, or nothing of it; then tell, and launch what was begun."""
        assert live.flow is not None
        idle = not launched(after) and (self._draining or live.pausing or not due(live.flow, after))
        try:
            commit = self._whole(live, events, after, consumed, new, idle)
            if commit is not None:
                await self.writer.commit(commit if pin is None else commit.but(pin=pin))
        except Fenced:
            await self._fenced(live)
            raise
        except DayBudgetSpent as error:
            live.day_left = error.left
            raise
        except LockHeld:
            raise
        except BaseException:
            self._doubt(live)
            raise
        live.state, live.fresh, live.day_left = after, False, None
        live.claimed = not idle
        self._unsettled.discard(live.session_id)
        if commit is None:
            self._launch(live)
            return
        if commit.snapshot is not None:
            live.snapshot_seq, live.snapshot_bytes = after.seq, len(commit.snapshot)
        if idle and not after.ended:
            self._keep_warm(live)
        self._after_commit(live, after, events)
        if self._files is not None and (_paused(after, events) or after.ended):
            await self._write_file(after)

    def _whole(
        self,
        live: Live,
        events: list[Event],
        after: State,
        consumed: Sequence[Consumed],
        new: NewSession | None,
        idle: bool,
    ) -> Commit | None:
        """A step with all that follows from it, or None when there is nothing to store."""
        before = live.state
        rows = [row for extension in self._extensions for row in extension(before, after, events)]
        if not (events or consumed or rows or idle):
            return None
        paused = _paused(after, events)
        return Commit(
            session_id=live.session_id,
            epoch=live.epoch,
            seq=before.seq,
            now=self.now(),
            status=after.status,
            phase=after.phase,
            events=tuple(event.to_bytes() for event in events),
            consumed=tuple(consumed),
            rows=tuple(rows),
            snapshot=encode(document(after)) if paused and _worth_a_snapshot(live, after) else None,
            release=idle,
            new=new,
            owner=self._owner if new else None,
        )

    def _doubt(self, live: Live) -> None:
        """Whether the step was stored is not known: memory counts for nothing until it is folded again."""
        live.doubtful = True
        self._unsettled.add(live.session_id)

    async def _fenced(self, live: Live) -> None:
        """Another owner has the session, or only a row was consumed before: then the session is still ours."""
        try:
            head = await self.writer.call("head", live.session_id)
        except StorageError:
            head = None
        ours = (live.epoch, live.state.seq, self._owner)
        if head is not None and (head.epoch, head.seq, head.owner) == ours and head.quarantined is None:
            self._doubt(live)
        else:
            self._lose(live)

    def _lose(self, live: Live) -> None:
        """Another owner has the session: stop its work here at once, write nothing."""
        live.claimed = False
        live.stop_all()

    def _after_commit(self, live: Live, after: State, events: Sequence[Event]) -> None:
        for subscriber in list(self._subscribers):
            try:
                subscriber(after, events)
            except Exception:
                log.exception("a subscriber failed")
        if after.ended or after.finally_skipped:
            live.stop_all()
        elif after.phase == "finalizing":
            self._stop_the_flow(live)
            self._launch(live)
        elif live.claimed:
            self._launch(live)
            self._stop_doomed(live)

    def _stop_the_flow(self, live: Live) -> None:
        """Tell all that is not part of `finally` to leave."""
        for name, stop in live.stops.items():
            if not in_finally(name):
                stop.set()

    def _stop_doomed(self, live: Live) -> None:
        """Tell what still runs inside a container that is being given up to leave."""
        for path in launched(live.state):
            if doomed(live.state, path):
                live.stops[f"{path}#{live.state.nodes[path].attempt}"].set()

    # --- nodes --------------------------------------------------------------------------------------------------

    def _launch(self, live: Live) -> None:
        """Start the work of every node that is begun and not being worked on."""
        assert live.flow is not None
        for path in launched(live.state):
            if live.state.phase == "finalizing" and not in_finally(path):
                continue
            run = live.state.nodes[path]
            name = f"{path}#{run.attempt}"
            if name not in live.tasks:
                live.stops[name] = asyncio.Event()
                live.tasks[name] = asyncio.create_task(self._work(live, path, run, name), name=name)

    async def _work(self, live: Live, path: str, run: NodeRun, name: str) -> None:
        """Run → classify → record, and whatever happens, be gone afterwards."""
        try:
            command = await self._workplace.perform(self._job(live, path, run, name))
            await self._record(live, command)
        except asyncio.CancelledError:
            # Left behind at a shutdown: its start is durable, so the next claim finds it interrupted.
            raise
        except BaseException as error:
            log.critical("%s: the outcome of %s could not be recorded: %s", live.session_id, path, error)
            self._broken = error
            self.on_broken(error)
            self._tell_parked()
            raise
        finally:
            live.tasks.pop(name, None)
            live.stops.pop(name, None)
            self._forget(live)

    def _job(self, live: Live, path: str, run: NodeRun, name: str) -> Job:
        assert live.flow is not None
        node = node_at(live.flow, live.state, path)
        if run.type == TURN:
            # What is said is in the journal already, and is not written once more with each call.
            run = run._replace(input=agents.conversation.request(live.flow, live.state, path))
        called = live.flow.lists[live.state.frames[scope_of(path)].list_id].flow
        file = live.flow.file if called == live.flow.name else live.flow.flows[called].file
        # A tool may find a secret where another one left it: in a file, in what a server remembers.
        secrets = live.flow.secrets if "/tool[" in path and run.type != TURN else frozenset()
        return Job(live.session_id, path, run, node, file, live.stops[name], secrets)

    async def _record(self, live: Live, command: Command) -> None:
        """Make an outcome durable. It is kept and tried again while the store refuses, but not for a shutdown."""
        delay = 0.05
        while True:
            try:
                async with self._using(live.session_id) as current:
                    if current.claimed:
                        await self._take_up(current)
                        await self._step(current, command, ())
                return
            except (Fenced, SessionQuarantined) as error:
                log.warning("%s: an outcome was dropped: %s", live.session_id, error)
                return
            except StorageError as error:
                if isinstance(error, StorageBroken) or not self._patient:
                    raise
                log.error("%s: an outcome is kept until it can be stored: %s", live.session_id, error)
                await asyncio.sleep(delay)
                delay = min(delay * 2, 5.0)


def _paused(after: State, events: Sequence[Event]) -> bool:
    """Whether the session stands still after these events."""
    return any(event.type == "flow:paused" for event in events) and after.phase in ("waiting", "held")


def _worth_a_snapshot(live: Live, after: State) -> bool:
    """A snapshot is a cache. A small one is written at every pause; a large one when the journal has grown by a
    part of itself since, so that a thousand pauses cost no more than a few times the last one."""
    return live.snapshot_bytes <= SMALL_SNAPSHOT or after.seq - live.snapshot_seq >= live.snapshot_seq // 8
