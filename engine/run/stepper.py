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
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from engine.decide import locks
from engine.decide.commands import Begin, Claimed, Command, Facts, Installed, LockQueued, Policy
from engine.decide.decide import take_turn
from engine.decide.due import due
from engine.decide.projections import deliveries, lock_rows, timer_rows
from engine.journal.events import Event
from engine.journal.queries import launched
from engine.journal.records import Commit, Consumed, NewSession, Pin
from engine.journal.snapshot import document
from engine.journal.state import State
from engine.language.codec import encode
from engine.language.errors import (
    Corrupt,
    DayBudgetSpent,
    Fenced,
    LockHeld,
    MalformedJournal,
    SaysoError,
    SchemaTooNew,
    SessionQuarantined,
    StorageError,
)
from engine.messages.limits import AgentFacts
from engine.nodes.runtime.digests import CodeDigests
from engine.nodes.runtime.runner import Runner
from engine.run.active import Extension, Live, Subscriber, random_text, utc_now
from engine.run.clock_watch import ClockWatch
from engine.run.executor import Running
from engine.run.sessions import Claimant
from engine.run.snapshot_files import Copies, SnapshotFiles
from engine.storage.backoff import waited_out
from engine.storage.group_commit import Writer
from engine.storage.port import Store

log = logging.getLogger("sayso.engine")

SMALL_SNAPSHOT = 64 * 1024
"""Bytes of a snapshot that is written at every pause."""

LEAVE_SECONDS = 15.0
"""How long a node that was told to leave may take: a program has 10 s between SIGTERM and SIGKILL."""

DRAIN_SECONDS = 10.0
"""How long running nodes may go on after a shutdown was asked for."""


class Stepper(Claimant):
    """Takes the steps of one store's sessions in this process. `engine.run.engine.Engine` is what others ask."""

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
        steady: Callable[[], float] | None = None,
        entropy: Callable[[], str] = random_text,
        snapshot_dir: Path | None = None,
        writer: Writer | None = None,
        agents: AgentFacts | None = None,
    ) -> None:
        """`steady` are the seconds of a clock that only goes forward, by which jumps of `now` are seen; a `now` of one's
        own decides as it is where it is left out."""
        super().__init__(store, writer or Writer(store), now)
        steady = time.monotonic if steady is None and now is utc_now else steady
        self._watch = None if steady is None else ClockWatch(steady)
        self.running = Running(
            runners, home, secret, record=self._record, lost=self._lose_trust, left=self._forget
        )
        self.closing: list[Callable[[], Awaitable[None]]] = []
        """What is to be let go of at the end: connections of runners."""
        self.on_broken: Callable[[BaseException], None] = lambda error: None
        """Told when an outcome could not be recorded: memory can no longer be trusted, the process must end."""
        self._entropy = entropy
        self._policy = policy
        self._agents = agents or AgentFacts()
        self._code = CodeDigests()
        # What a flow says with its next node stands below what follows from the last one.
        self._extensions: list[Extension] = [timer_rows, lock_rows, *extensions, deliveries]
        self._label = label
        self._subscribers: list[Subscriber] = []
        self._copies = Copies(SnapshotFiles(snapshot_dir), self.writer, self.export) if snapshot_dir else None
        self._draining = False
        self._patient = True

    # --- life ---------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Start the writer thread and make this process known as an owner."""
        self.writer.start()
        self._owner = await self.writer.call(self.store.register, self._label)
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

    def clock_jumped(self) -> bool:
        """Look at the clock: whether it was put forward and nothing is over by it yet."""
        return self._watch is not None and self._watch.jumped(self.now())

    @property
    def draining(self) -> bool:
        """Whether a shutdown was asked for."""
        return self._draining

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Be told about committed events; returns how to stop it."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    async def tidy_files(self, orphan_seconds: float | None = None) -> None:
        """Remove snapshot files that nobody needs any more, where there is a directory of them: see `Copies.tidy`."""
        if self._copies is not None:
            await self._copies.tidy(orphan_seconds)

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

    async def verified_state(self, session_id: str) -> State:
        """The state as it is stored; a session whose records do not verify is set aside, one of a newer release is left
        to it, and its thread is told. Raises `SessionQuarantined` or `SchemaTooNew` then, and `UnknownSession`."""
        try:
            return await self.state(session_id)
        except (Corrupt, MalformedJournal, SchemaTooNew):
            # The claim looks again, under the lease, and sets it aside or leaves it.
            await self.apply(session_id, None)
            return await self.state(session_id)

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
            if refusal is not None and await self._left_as_found(live):
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

    async def _left_as_found(self, live: Live) -> bool:
        """Give a session back that was claimed only to refuse something; False where this process works for it already.
        Who was refused may be a process that ends then: what a crash left behind is not begun by it, to be cut at once,
        but by whoever takes the session up to go on with it."""
        if not (live.fresh and live.found) or live.session_id in self._unsettled:
            return False
        try:
            commit = self._whole(live, [], live.state, (), None, idle=True)
            assert commit is not None, "what is given back is stored"
            await self.writer.commit(commit)
        except Fenced:
            await self._fenced(live)
            raise
        except BaseException:
            self._doubt(live)
            raise
        live.fresh, live.claimed = False, False
        return True

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
        now = self.now()
        jumped = self._watch is not None and self._watch.jumped(now)
        return Facts(now, live.epoch, self._entropy(), self._policy, code, agents, live.pausing, jumped)

    def _decide(self, live: Live, command: Command | None) -> tuple[list[Event], State, SaysoError | None]:
        """The events of a step: what the claim, the command and the work that is due make true, in this order."""
        assert live.flow is not None
        facts = self._facts(live)
        state, events, refusal = live.state, [], None
        commands: list[Command] = [Claimed()] if live.fresh else []
        if command is not None:
            commands.append(command)
        elif live.fresh:
            commands.append(Installed())
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
        commands: list[Command] = [
            locks.verdict(await self.writer.call(self.store.locks, after.lock.name), after)
        ]
        if isinstance(commands[0], LockQueued):
            holder = await self.writer.call(self.store.head, commands[0].holder)
            commands[0] = structs.replace(commands[0], thread_key=holder and holder.thread_key)
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
            self.running.launch(live)
            return
        if commit.snapshot is not None:
            live.snapshot_seq, live.snapshot_bytes = after.seq, len(commit.snapshot)
        if idle and not after.ended:
            self._keep_warm(live)
        self._after_commit(live, after, events)
        if self._copies is not None and (_paused(after, events) or after.ended):
            await self._copies.follow(after)

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

    def _after_commit(self, live: Live, after: State, events: Sequence[Event]) -> None:
        for subscriber in list(self._subscribers):
            try:
                subscriber(after, events)
            except Exception:
                log.exception("a subscriber failed")
        if after.ended or after.finally_skipped:
            live.stop_all()
        elif after.phase == "finalizing":
            self.running.stop_the_flow(live)
            self.running.launch(live)
        elif live.claimed:
            self.running.launch(live)
            self.running.stop_doomed(live)

    # --- outcomes -----------------------------------------------------------------------------------------------

    async def _record(self, live: Live, command: Command) -> None:
        """Make an outcome durable. It is kept and tried again while the store refuses, but not for a shutdown."""

        async def store() -> None:
            async with self._using(live.session_id) as current:
                if not current.claimed:
                    return
                await self._take_up(current)
                try:
                    await self._step(current, command, ())
                except Corrupt as error:
                    self._lose(current)
                    await self._set_aside(current.session_id, f"it cannot be written ({error})", error)

        try:
            await waited_out(store, f"{live.session_id}: an outcome", lambda: self._patient)
        except (Fenced, SessionQuarantined) as error:
            log.warning("%s: an outcome was dropped: %s", live.session_id, error)

    def _lose_trust(self, error: BaseException) -> None:
        """An outcome could not be recorded: whoever waits gets the error, and the process has to end."""
        self._broken = error
        self.on_broken(error)
        self._tell_parked()


def _paused(after: State, events: Sequence[Event]) -> bool:
    """Whether the session stands still after these events."""
    return any(event.type == "flow:paused" for event in events) and after.phase in ("waiting", "held")


def _worth_a_snapshot(live: Live, after: State) -> bool:
    """A snapshot is a cache. A small one is written at every pause; a large one when the journal has grown by a
    part of itself since, so that a thousand pauses cost no more than a few times the last one."""
    return live.snapshot_bytes <= SMALL_SNAPSHOT or after.seq - live.snapshot_seq >= live.snapshot_seq // 8
