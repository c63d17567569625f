"""Takes steps: decide → commit → launch. It performs due work, and decides nothing.

Every command for a session ends in `Stepper.step`: `decide` → `decide(Begin)` → one commit → launch. `Stepper.apply`
claims and loads the session first if needed. Rows that follow from events (prompts, timers, intents) are computed by
pure extensions and written in that same commit. A session without work in this process is released and dropped from
memory: a paused session costs none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import structs
from msgspec.structs import replace

from engine.decide import limits
from engine.decide.agents.kinds import KINDS
from engine.decide.agents.wide_grants import GRANT, scopes
from engine.decide.commands import (
    Begin,
    Claimed,
    Command,
    Facts,
    LockQueued,
    NodeEnded,
    Policy,
    Shown,
    no_manager,
)
from engine.decide.decide import carry_out
from engine.decide.due import due, due_in
from engine.decide.projections import deliveries, lock_rows, timer_rows
from engine.decide.step import Step, Work
from engine.journal.events import EVENTS, Event
from engine.journal.records import (
    Commit,
    CommitResult,
    Conflict,
    Consumed,
    Lost,
    NewSession,
    Pin,
    Row,
    Stored,
)
from engine.journal.snapshot import document
from engine.journal.state import State
from engine.language.codec import Json, encode
from engine.language.errors import (
    Corrupt,
    DayBudgetSpent,
    Fenced,
    MalformedJournal,
    Overtaken,
    Owned,
    SaysoError,
    SchemaTooNew,
    SessionQuarantined,
    StorageError,
)
from engine.messages.model_limits import AgentFacts
from engine.run.clock_watch import ClockWatch
from engine.run.executor import ActiveSession, Executor, Extension, Subscriber
from engine.run.sessions import Sessions
from engine.run.snapshot_files import Copies
from engine.storage.backoff import waited_out

if TYPE_CHECKING:
    from engine.run.shared_files import SharedFiles

log = logging.getLogger("sayso.engine")

SHORT_TAIL = 32 * 1024
"""Bytes of events that are folded again when a session is loaded that was killed while it ran, instead of a snapshot."""


class Stepper:
    """Takes the steps of the sessions of one store in this process."""

    def __init__(
        self,
        sessions: Sessions,
        executor: Executor,
        *,
        policy: Policy,
        extensions: Sequence[Extension],
        watch: ClockWatch | None,
        entropy: Callable[[], str],
        agents: AgentFacts | None,
        copies: Copies | None,
        shown: Callable[[], dict[str, Json] | None] | None,
        files: SharedFiles | None = None,
    ) -> None:
        self.sessions = sessions
        self.writer = sessions.writer
        self.now = sessions.now
        self.policy = policy
        self.entropy = entropy
        self.executor = executor
        executor.on_outcome, executor.on_lost = self._record, self._poisoned
        executor.permit, executor.on_fenced = sessions.permit, sessions.fenced
        self.on_poisoned: Callable[[BaseException], None] = lambda error: None
        """Told when an outcome could not be recorded: memory can no longer be trusted, the process must end."""
        self.draining = False
        """True once a shutdown was requested: nothing new begins."""
        self.patient = True
        """Outcomes that the store refuses are tried again."""
        self._watch = watch
        self.agents = agents or AgentFacts()
        self.manager_of: Callable[[str], str | None] = no_manager
        """Returns the manager of a person."""
        # Messages of the next node come after those that follow from the last one.
        all_extensions: list[Extension] = [timer_rows, lock_rows, *extensions, deliveries]
        self._extensions = [(_included(getattr(one, "about", ())), one) for one in all_extensions]
        self._observers: list[tuple[EventTypes, Observer]] = []
        self._copies = copies
        self._shown = shown
        self.files = files
        """The folders of sessions, where several machines share them."""

    def clock_jumped(self) -> bool:
        """Look at the clock; True if it was put forward and nothing expires by it yet."""
        return self._watch is not None and self._watch.jumped(self.now())

    def subscribe(self, subscriber: Subscriber, *about: type[Event]) -> Callable[[], None]:
        """Be told about committed events, or only of the commits that have one of these kinds; returns how to stop it."""
        return self.observe(lambda before, after, events: subscriber(after, events), *about)

    def observe(self, observer: Observer, *about: type[Event]) -> Callable[[], None]:
        """Subscribe an observer that also gets the state before the step."""
        entry = (_included(about), observer)
        self._observers.append(entry)
        return lambda: self._observers.remove(entry)

    # --- one step -----------------------------------------------------------------------------------------------

    async def apply(
        self, session_id: str, command: Command | None, *, consumed: Sequence[Consumed] = ()
    ) -> State:
        """Carry out one command, durably. `None` only claims the session and continues it.

        Raises `UnknownSession`, `Owned` (another process has it), `SessionQuarantined`, and the errors of `decide`.
        """
        async with self.sessions.using(session_id) as live:
            await self.sessions.claim(live)
            return await self.step(live, command, consumed)

    async def verified_state(self, session_id: str) -> State:
        """Return the stored state; a session whose records do not verify is quarantined, one of a newer release is left
        to it, and its thread is told. Raises `SessionQuarantined` or `SchemaTooNew` then, and `UnknownSession`."""
        try:
            return await self.sessions.state(session_id)
        except (Corrupt, MalformedJournal, SchemaTooNew):
            # The claim looks again, under the lease, and quarantines it or leaves it.
            await self.apply(session_id, None)
            return await self.sessions.state(session_id)

    async def step(
        self,
        live: ActiveSession,
        command: Command | None,
        consumed: Sequence[Consumed],
        new: NewSession | None = None,
    ) -> State:
        while True:
            try:
                await self._look_at_grants(live)
                events, after, refusal = self._decide(live, command)
                if limits.pending(after):
                    events, after = await self._with_lock(live, events, after)
            except BaseException:
                self.sessions.mark_stale(live)
                raise
            if refusal is not None and not events and new is not None:
                raise refusal
            result = None if refusal is None else await self.left_as_found(live)
            if refusal is not None and isinstance(result, Stored):
                raise refusal
            if result is None:
                # The session's folder may have changed: a node ended, or files came with a message.
                ended = isinstance(command, NodeEnded)
                files = not refusal and (ended or bool(getattr(command, "files", None)))
                result = await self.commit(live, events, after, () if refusal else consumed, new, files=files)
            match result:
                case Stored():
                    break
                case Conflict(Overtaken() as reason):
                    log.debug("%s", reason)
                    await self.sessions.claim(live)
                case Conflict(reason):
                    log.debug("%s: %s", live.session_id, reason)
                case Lost(reason):
                    raise reason
        await self.begin_the_rest(live)
        if refusal is not None:
            raise refusal
        return live.state

    async def left_as_found(self, live: ActiveSession) -> CommitResult | None:
        """Give back a session that was claimed only to refuse a request; None if this process works for it already. The
        refused process may be about to end: it must not begin the work that a crash left behind, only to cut it at
        once; the next process that claims the session continues it."""
        if not (live.fresh and live.found) or live.session_id in self.sessions.stale():
            return None
        return await self.sessions.give_back(live)

    async def begin_the_rest(self, live: ActiveSession) -> None:
        """A step begins only so many nodes; the others begin here, each batch in a commit of its own."""
        assert live.flow is not None
        try:
            while live.claimed and not self.draining and not live.pausing and _due(live, live.state):
                await self._look_at_grants(live)
                events, after, _ = self._decide(live, None)
                result = await self.commit(live, events, after, (), None)
                if isinstance(result, Lost):
                    raise result.reason
        except StorageError as error:
            log.error("%s continues later: %s", live.session_id, error)

    def facts(self, live: ActiveSession) -> Facts:
        assert live.flow is not None
        agents = self.agents
        if live.day_left is not None:
            agents = replace(agents, day_left=live.day_left)
        now = self.now()
        jumped = self._watch is not None and self._watch.jumped(now)
        people, kept = self.manager_of, live.grants
        return Facts(now, live.epoch, self.entropy(), self.policy, agents, live.pausing, people, jumped, kept)

    async def _look_at_grants(self, live: ActiveSession) -> None:
        """Read the grants that apply at the session's place, if it may use them or has given some."""
        live.grants = ()
        given = any(grant.wide for grant in live.state.grants.values())
        if live.flow is not None and (live.flow.allows_wide or given) and live.state.thread:
            here = list(scopes(live.state).values())
            live.grants = await self.writer.call(self.sessions.store.kept.rows, GRANT, here)

    def _decide(
        self, live: ActiveSession, command: Command | None
    ) -> tuple[list[Event], State, SaysoError | None]:
        """Return the events of a step, from the claim, the command and the due work, in this order."""
        assert live.flow is not None
        live.step = step = Step(live.flow, live.state, self.facts(live), KINDS, live.step)
        refusal: SaysoError | None = None
        # If nothing ran when the session was left, a claim changes nothing.
        commands: list[Command] = [Claimed()] if live.fresh and live.state.launched else []
        if command is not None:
            commands.append(command)
        for item in commands:
            try:
                carry_out(step, item)
            except SaysoError as error:
                refusal = error
        if step.state.seq and not self.draining and not live.pausing:
            carry_out(step, Begin())
        if self._shown is not None and step.state.prompts is not live.state.prompts:
            prompts = step.state.prompts
            for prompt_id in [name for name in step.state.open_prompts if prompts[name].shown is None]:
                if (place := self._shown()) is not None:
                    carry_out(step, Shown(prompt_id, place))
        return step.events, step.state, refusal

    async def _with_lock(
        self, live: ActiveSession, events: list[Event], after: State
    ) -> tuple[list[Event], State]:
        """Add the state of the lock's queue to the step of a session that waits for it. The commit checks it, as it may
        have changed by then."""
        assert live.flow is not None
        assert after.lock is not None
        if self.draining:
            return events, after
        commands: list[Command] = [
            limits.verdict(await self.sessions.queue(live.session_id, after.lock.name), after)
        ]
        if isinstance(commands[0], LockQueued):
            holder = await self.writer.call(self.sessions.store.sessions.head, commands[0].holder)
            commands[0] = structs.replace(commands[0], thread_key=holder and holder.thread_key)
        elif not live.pausing:
            commands.append(Begin())
        step = Step(live.flow, after, self.facts(live), KINDS)
        for command in commands:
            carry_out(step, command)
        return [*events, *step.events], step.state

    async def commit(
        self,
        live: ActiveSession,
        events: list[Event],
        after: State,
        consumed: Sequence[Consumed],
        new: NewSession | None,
        pin: Pin | None = None,
        *,
        files: bool = False,
    ) -> CommitResult:
        """Store a step, or nothing of it; then notify, and launch its begun nodes. With `files` the session's folder
        may have changed."""
        assert live.flow is not None
        idle = not after.launched and (self.draining or live.pausing or not _due(live, after))
        live.generation = self.sessions.store.generation()
        try:
            manifest = await self.files.rows(live.session_id, live.epoch) if files and self.files else ()
            commit = self._commit_of(live, events, after, consumed, new, idle, manifest)
            if commit is not None:
                result = await self.writer.commit(commit if pin is None else commit.but(pin=pin))
            else:
                result = await self.sessions.give_back(live) if live.fresh else Stored()
        except BaseException as error:
            self.sessions.mark_stale(live)
            if isinstance(error, Corrupt) and new is None:
                self.sessions.lose(live)
                await self.sessions.quarantine(live.session_id, f"it cannot be written ({error})", error)
            raise
        match result:
            case Conflict(Overtaken()) | Lost(Owned() | SessionQuarantined()):
                self.sessions.overtaken(live)
            case Conflict(DayBudgetSpent() as reason):
                live.day_left = reason.left
            case Lost():
                await self.sessions.fenced(live)
        if not isinstance(result, Stored):
            return result
        before, live.state = live.state, after
        live.fresh, live.day_left = False, None
        live.claimed = not idle
        self.sessions.step_stored(live)
        if commit is None:
            self.executor.launch(live)
            return result
        if commit.snapshot is not None:
            live.snapshot_bytes, live.tail_bytes = len(commit.snapshot), 0
        else:
            live.tail_bytes += sum(map(len, commit.events))
        if idle:
            self.sessions.cache(live)
        self._after_commit(live, before, after, events)
        if self._copies is not None:
            await self._copies.follow(after, commit.events, paused=_paused(after, events))
        return result

    def _commit_of(
        self,
        live: ActiveSession,
        events: list[Event],
        after: State,
        consumed: Sequence[Consumed],
        new: NewSession | None,
        idle: bool,
        manifest: Sequence[Row] = (),
    ) -> Commit | None:
        """Return a step with all its rows, or None if there is nothing to store."""
        before, kinds = live.state, frozenset(map(type, events))
        rows = [
            row
            for about, extension in self._extensions
            if about is None or not about.isdisjoint(kinds)
            for row in extension(before, after, events)
        ]
        rows += manifest
        if not (events or consumed or rows) and idle == live.fresh:
            return None
        stored = tuple(event.to_bytes() for event in events)
        return Commit(
            session_id=live.session_id,
            epoch=live.epoch,
            seq=before.seq,
            now=self.now(),
            status=after.status,
            phase=after.phase,
            events=stored,
            consumed=tuple(consumed),
            rows=tuple(rows),
            snapshot=_snapshot(live, after, stored),
            release=idle,
            new=new,
            owner=self.sessions.owner if new or live.fresh else None,
        )

    def _after_commit(
        self, live: ActiveSession, before: State, after: State, events: Sequence[Event]
    ) -> None:
        kinds = frozenset(map(type, events))
        for about, observer in list(self._observers):
            try:
                if about is None or not about.isdisjoint(kinds):
                    observer(before, after, events)
            except Exception:
                log.exception("a subscriber failed")
        if after.ended:
            live.stop_all()
        elif live.claimed:
            self.executor.launch(live)
            self.executor.stop_what_is_over(live)

    # --- outcomes -----------------------------------------------------------------------------------------------

    async def _record(self, live: ActiveSession, command: Command) -> None:
        """Make an outcome durable. It is kept and tried again while the store refuses, but not for a shutdown."""

        async def store() -> None:
            if self.files is not None:
                await self.files.put_early(live.session_id, live.epoch)
            async with self.sessions.using(live.session_id) as current:
                if not current.claimed:
                    return
                await self.sessions.claim(current)
                await self.step(current, command, ())

        try:
            await waited_out(store, f"{live.session_id}: an outcome", lambda: self.patient)
        except (Fenced, Owned, SchemaTooNew, SessionQuarantined) as error:
            log.warning("%s: an outcome was dropped: %s", live.session_id, error)

    def _poisoned(self, error: BaseException) -> None:
        """Stop the process after an outcome could not be recorded; waiting code gets the error."""
        self.sessions.poisoned(error)
        self.on_poisoned(error)


Observer: TypeAlias = Callable[[State, State, Sequence[Event]], None]
"""Told about the state before a step, that after it, and the events, after the commit."""
EventTypes: TypeAlias = frozenset[type[Event]] | None
"""Types of events; None means all."""


def _included(about: tuple[type[Event], ...]) -> EventTypes:
    """Return the types of events that these classes include; None for no classes, which means all events."""
    return frozenset(kind for kind in EVENTS.values() if issubclass(kind, about)) if about else None


def _due(live: ActiveSession, state: State) -> list[Work]:
    """Return the work that may start, usually known from the step that ended there."""
    assert live.flow is not None
    step = live.step
    known = step is not None and step.state is state and step.flow is live.flow
    return due_in(step) if step is not None and known else due(live.flow, state, KINDS)


def _paused(after: State, events: Sequence[Event]) -> bool:
    """True if the session is paused after these events."""
    return any(event.type == "flow:paused" for event in events) and after.phase in ("waiting", "held")


def _snapshot(live: ActiveSession, after: State, stored: Sequence[bytes]) -> bytes | None:
    """Return the snapshot for a commit, or None. Every pause has one, so that an answer reads no history; the end
    deletes it. A running session gets one when the events since the last take twice as much: so the cost of a step does
    not grow with the history, and a session killed before it pauses is read from there."""
    if after.ended:
        return b""
    tail = live.tail_bytes + sum(map(len, stored))
    worth = bool(stored) if after.status == "paused" else tail > max(SHORT_TAIL, 2 * live.snapshot_bytes)
    return encode(document(after)) if worth else None
