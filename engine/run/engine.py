"""The engine of one store in one process: sessions, stepper and executor put together, and the commands for them.

Most methods hand in one command, which ends in `Stepper.step`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from engine.decide import limits
from engine.decide.agents.kinds import KINDS
from engine.decide.commands import (
    Abort,
    Action,
    Answer,
    Begin,
    Command,
    Hold,
    LockQueued,
    Message,
    Policy,
    Resume,
    Start,
    Steer,
)
from engine.decide.decide import carry_out, starters
from engine.decide.step import Step
from engine.flow import Flow
from engine.journal.events import Event
from engine.journal.fold import derive_state
from engine.journal.history import inspection
from engine.journal.phases import ENDED
from engine.journal.queries import next_try
from engine.journal.records import Consumed, NewSession, Pin, check_stored
from engine.journal.state import Asked, State
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.language.errors import (
    DayBudgetSpent,
    EmptyMessage,
    Fenced,
    LockHeld,
    NotAllowed,
    Owned,
    SaysoError,
    SessionEnded,
    SessionError,
    SessionRunning,
    SnapshotRefused,
)
from engine.messages.model_limits import AgentFacts
from engine.nodes.runtime.runner import Runner
from engine.run import remote_commands
from engine.run.clock_watch import watch_of
from engine.run.executor import ActiveSession, Executor, Extension, checked_id, random_text
from engine.run.sessions import Sessions
from engine.run.snapshot_files import Copies, SnapshotFiles
from engine.run.stepper import Stepper
from engine.run.stored import utc_now
from engine.storage.group_commit import Writer
from engine.storage.store import Store

if TYPE_CHECKING:
    from engine.decide.past import Past, Plan
    from engine.run.shared_files import SharedFiles

log = logging.getLogger("sayso.engine")

PAUSING_SECONDS = 1.0
"""Seconds that running nodes may take to leave before the session is shown as pausing."""

LEAVE_SECONDS = 15.0
"""Seconds that a node may take to leave: a program has 10 s between SIGTERM and SIGKILL."""

DRAIN_SECONDS = 10.0
"""Seconds that running nodes may continue after a shutdown was requested."""


class Engine:
    """Runs sessions of one store in this process.

    `sessions` reads and claims them, `stepper` takes their steps, `executor` runs their nodes. `engine.run.dispatcher`
    provides the wake-ups.
    """

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
        shown: Callable[[], dict[str, Json] | None] | None = None,
        files: Callable[[Writer], SharedFiles] | None = None,
    ) -> None:
        """`steady` are the seconds of a monotonic clock, used to detect jumps of `now`; without it a custom `now` is
        trusted. `shown` returns the place of a question as soon as it is asked, or None if it is yet to be shown.
        `files` gives the folders of sessions if machines share them."""
        self.store = store
        self.writer = writer or Writer(store)
        self.now = now
        self.sessions = Sessions(store, self.writer, now, home)
        self.executor = Executor(runners, home, secret, self.sessions.forget)
        self.files = files and files(self.writer)
        self.executor.files = self.sessions.files = self.files
        self._copies: Copies | None = None
        if snapshot_dir is not None:
            files_of = SnapshotFiles(snapshot_dir)
            self._copies = Copies(
                files_of, self.writer, self.sessions.export_plain, self.sessions.shown_files
            )
        self.stepper = Stepper(
            self.sessions,
            self.executor,
            policy=policy,
            extensions=extensions,
            watch=watch_of(now, steady),
            entropy=entropy,
            agents=agents,
            copies=self._copies,
            shown=shown,
            files=self.files,
        )
        self.closing: list[Callable[[], Awaitable[None]]] = []
        """Cleanup functions for `close`: connections of runners."""
        self.dropped_spans: Callable[[], int] | None = None
        """Returns the number of trace spans that could not be sent so far; None without tracing."""
        self._policy, self._entropy, self._label = policy, entropy, label
        self._one_try = asyncio.Lock()
        # Documented in the parts.
        self.apply = self.stepper.apply
        self.subscribe = self.stepper.subscribe
        self.observe = self.stepper.observe
        self.verified_state = self.stepper.verified_state
        self.clock_jumped = self.stepper.clock_jumped
        self.state = self.sessions.state
        self.head = self.sessions.head
        self.journal = self.sessions.journal
        self.flow_of = self.sessions.flow_of
        self.export = self.sessions.export
        self.parked = self.sessions.parked

    # --- life ---------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Start the writer thread and take a lease."""
        self.writer.start()
        self.sessions.owner = await self.writer.call(self.store.register, self._label)
        await self.tidy_files()

    async def drain(self, seconds: float = DRAIN_SECONDS) -> None:
        """Start nothing new; running nodes finish, or are cut after so many seconds; all of it is durable."""
        self.stepper.draining = True
        await self._between_steps()
        tasks = self._tasks()
        if tasks and seconds > 0:
            await asyncio.wait(tasks, timeout=seconds)
        self.stepper.patient = False
        await self._between_steps(lambda live: live.stop_all())
        # Wait for nodes that were told to leave. A node that ignores it (a user's function) is left behind: its
        # start is durable, so the next claim finds it interrupted.
        tasks = self._tasks()
        if not tasks:
            return
        _, stubborn = await asyncio.wait(tasks, timeout=LEAVE_SECONDS)
        for task in stubborn:
            log.error("%s did not stop within %g s and is abandoned", task.get_name(), LEAVE_SECONDS)
            task.cancel()

    async def _between_steps(self, do: Callable[[ActiveSession], None] = lambda live: None) -> None:
        """Apply a function to every session after its current step, which may still launch nodes."""
        for live in list(self.sessions.active.values()):
            async with live.lock:
                do(live)

    async def close(self) -> None:
        """Drain at once, carry out queued writes, and end the writer thread."""
        await self.drain(0)
        for close in self.closing:
            await close()
        await asyncio.to_thread(self.writer.close)

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for live in self.sessions.active.values() for task in live.tasks.values()]

    async def tidy_files(self, orphan_seconds: float | None = None) -> None:
        """Remove obsolete snapshot files, if there is a directory for them: see `Copies.tidy`."""
        if self._copies is not None:
            await self._copies.tidy(orphan_seconds)

    def new_id(self) -> str:
        """Random text for an id."""
        return self._entropy()

    # --- requests of people --------------------------------------------------------------------------------

    async def start(
        self,
        flow: Flow,
        inputs: Mapping[str, Json],
        *,
        actor: Actor,
        thread: dict[str, Json] | None = None,
        session_id: str | None = None,
        consumed: Sequence[Consumed] = (),
        revision: str | None = None,
    ) -> str:
        """Start a session and return its id once its start is durable. `revision` is the version of the flows. Raises
        `InvalidInputs`, `NotAllowed`, and `SessionError` for an invalid `session_id` (`session-` and letters, digits,
        `-` or `_`)."""
        session_id = checked_id(session_id or f"session-{self._entropy()[:10]}")
        if self.sessions.at_work(session_id):
            raise SessionRunning(f"Session {session_id} is already running; nothing was changed.")
        form = self.sessions.add_flow(flow)
        command = Start(session_id, dict(inputs), actor, thread, flow_revision=revision)
        thread_key = (thread or {}).get("key")
        new = NewSession(flow.name, flow.digest, flow.body(), thread_key=thread_key, form=form)
        async with self.sessions.created(session_id, flow) as live:
            await self.stepper.step(live, command, consumed, new=new)
        return session_id

    async def hear(self, session_id: str, command: Command, *, consumed: Sequence[Consumed] = ()) -> State:
        """Carry out a person's message, click or upload; `consumed` are inbox rows that are done with it. Raises the
        refusals."""
        if isinstance(command, Answer):
            return await self.resume(session_id, command, consumed=consumed)
        if isinstance(command, Hold):
            return await self.pause(session_id, actor=command.actor, reason=command.reason, consumed=consumed)
        return await self.apply(session_id, command, consumed=consumed)

    async def resume(
        self,
        session_id: str,
        message: str | Answer,
        *,
        actor: Actor | None = None,
        key: str | None = None,
        consumed: Sequence[Consumed] = (),
    ) -> State:
        """Continue a paused session from its snapshot with a message: a text and its author, or the answer to one of
        its questions (a choice, words, the fields of a form, files). `consumed` are inbox rows that are done with it.

        A text answers the only open text prompt that this actor may answer; without one it is kept as
        `session:message`. Raises `EmptyMessage`, `UnknownSession`, `SessionEnded`, `SessionRunning`, `SeveralPrompts`
        and the refusals; nothing is changed then.
        """
        if isinstance(message, Answer):
            return await self.apply(session_id, message, consumed=consumed)
        if actor is None:
            raise NotAllowed("Pass the person who resumes it (actor). Nothing was changed.")
        head = await self.head(session_id)
        if head.status in ENDED:
            stands = (await self.state(session_id)).stands
            raise SessionEnded(f"Session {session_id} is {stands}; it cannot be resumed.")
        if not message.strip():
            raise EmptyMessage("The message is empty. Give a message to resume with.")
        if head.status == "running":
            raise SessionRunning(f"Session {session_id} is already running; nothing was changed.")
        said = Resume if head.phase == "held" else Message
        command = said(message, actor, key or f"resume:{self._entropy()}")
        return await self.apply(session_id, command, consumed=consumed)

    async def send(self, session_id: str, message: str, *, actor: Actor, key: str | None = None) -> None:
        """Steer a session on its way: durable when this returns, and never an answer.

        It is `session:message` in the journal and `messages` in expressions. Messages are kept in the
        order in which they were sent. Where another process works for the session, that one takes them from the inbox. Raises `UnknownSession`, `SessionEnded`, `EmptyMessage`, `NotAllowed`.
        """
        key = key or f"send:{self._entropy()}"
        try:
            await self.apply(session_id, Steer(message, actor, key))
        except Owned:
            request = remote_commands.item(key, session_id, "steer", actor=actor, text=message)
            await self.writer.ingest([request], self.now())

    async def pause(
        self,
        session_id: str,
        *,
        actor: Actor,
        reason: str | None = None,
        consumed: Sequence[Consumed] = (),
    ) -> State:
        """Hold a session: running nodes are told to leave, their outcome or interruption is recorded, and then nothing
        starts until `resume`. A session that completes meanwhile has completed.

        Raises `UnknownSession`, `SessionEnded`, `NotAllowed`; nothing was told to leave then.
        """
        with self.sessions.kept(session_id) as live:
            try:
                async with live.lock:
                    await self.sessions.claim(live)
                    over = live.state.phase in ("finalizing", "ended")
                    if over or self._policy(actor, "pause", live.state, None) is not None:
                        return await self.stepper.step(
                            live, Hold(actor, reason), consumed
                        )  # which refuses it
                    live.pausing = True
                    live.stop_all()
                if live.tasks:
                    await asyncio.wait(list(live.tasks.values()), timeout=PAUSING_SECONDS)
                if live.tasks:
                    # Some take longer to leave: the pausing is visible meanwhile, and survives a crash.
                    async with live.lock:
                        await self.stepper.step(live, Hold(actor, reason, waits=True), ())
                while live.tasks:
                    await asyncio.wait(list(live.tasks.values()))
                async with live.lock:
                    await self.sessions.claim(live)
                    # A flow that has ended meanwhile is not held: its `finally` begins in this step.
                    live.pausing = False
                    return await self.stepper.step(live, Hold(actor, reason), consumed)
            finally:
                live.pausing = False

    async def refusal(self, session_id: str, action: Action, actor: Actor) -> str | None:
        """Why this actor may not do this to the session, or None. Raises `UnknownSession`."""
        return self._policy(actor, action, await self.state(session_id), None)

    async def abort(self, session_id: str, *, actor: Actor, reason: str | None = None) -> State:
        """End a session for good. Raises `UnknownSession`, `SessionEnded`, `NotAllowed`."""
        return await self.apply(session_id, Abort(actor, reason))

    async def inspect(self, session_id: str) -> dict[str, Json]:
        """The session's state as one JSON document, without claiming it. Raises `UnknownSession`, `Corrupt`."""
        return inspection(await self.state(session_id), await self.head(session_id))

    # --- portable snapshots --------------------------------------------------------------------------------

    async def resume_from_snapshot(
        self, data: bytes, message: str | Answer | None = None, *, actor: Actor | None = None
    ) -> State:
        """Continue from an exported file: in this store if the session is here as the file has it, else the
        session is brought here first, with its whole journal. With a message it is resumed, as `resume` says.

        Raises `SnapshotRefused` when the file does not verify, the journal here is not the file's, a session that
        this store does not have was not paused, or another one holds its lock here.
        """
        from engine.run import export  # as forks and migration below: most processes need none of them

        if isinstance(message, str) and actor is None:
            raise NotAllowed("Pass the person who resumes it (actor). Nothing was changed.")
        session_id = await self._bring(await export.verified_file(self.writer, data))
        if message is None:
            return await self.state(session_id)
        return await self.resume(session_id, message, actor=actor)

    async def _bring(self, file: dict[str, Json]) -> str:
        """The session of a verified file, in this store at the file's seq."""
        from engine.run import export

        events, state = export.contents(file)
        if await self.writer.call(self.store.sessions.head, state.session_id) is not None:
            export.refuse_other_history(state.session_id, await self.journal(state.session_id), events)
            return state.session_id
        export.refuse_unpaused(state)
        flow = export.flow_in(file)
        checked_id(state.session_id)
        key = (state.thread or {}).get("key")
        new = NewSession(flow.name, flow.digest, flow.body(), thread_key=key)
        try:
            with export.files_brought(file, self.executor.jobs.folder(state.session_id)):
                await self._create(flow, events, state, new)
        except LockHeld as error:
            raise SnapshotRefused(f"{error} Import the session when that one has ended.") from error
        return state.session_id

    async def _create(self, flow: Flow, events: list[Event], state: State, new: NewSession) -> None:
        """Store a session that begins with a whole journal, and launch its begun nodes."""
        async with self.sessions.created(state.session_id, flow) as live:
            check_stored(await self.stepper.commit(live, events, state, (), new, files=True))
            await self.stepper.begin_the_rest(live)

    # --- time travel ---------------------------------------------------------------------------------------

    async def fork(
        self,
        session_id: str,
        at: int,
        *,
        actor: Actor,
        text: Flow | None = None,
        answers: Mapping[str, Json] | None = None,
        fork_id: str | None = None,
        copied: Callable[[int], None] = lambda events: None,
    ) -> str:
        """Start a new session from event `at` of another one, and return its id once it is durable. `copied` is called
        before that with the number of copied events.

        Completed work does not run again (`engine.decide.past` describes the rest). With `text` it continues under that
        text of its flow, within the limits of `migrate`. `answers` are for questions that were open, by path, node id
        or prompt id: an option's value, a text, or the fields of a form by name. The original session is not changed.
        Raises `UnknownSession`, `SessionError`, `SessionEnded` if nothing is left to run or its lock is held and its
        flow does not wait, `NotAllowed`, `InvalidAnswer`, `MigrationRefused`, `FileRefused` if its folder cannot be
        copied; nothing is stored then.
        """
        new_id = checked_id(fork_id or f"session-{self._entropy()[:10]}")
        return await self._fork(await self.journal(session_id), at, new_id, actor, text, answers, copied)

    async def retry(
        self, session_id: str, *, actor: Actor, copied: Callable[[int], None] = lambda events: None
    ) -> str:
        """Try a failed session again from the node that failed it, in the same thread, and return the id of the new
        session once it is durable. Completed work does not run again. `copied` as for `fork`.

        There is one next try of a session: its id follows from the session's. Raises `TriedAgain` if it was begun
        before, `SessionError` if nothing can be tried again (`engine.decide.past.failed_at`), and the errors of `fork`.
        """
        from engine.decide import past

        journal = await self.journal(session_id)
        failed = past.failed_at(journal)
        new_id = next_try(session_id)
        begun = past.TriedAgain(f"It is already being retried, as {new_id}.")
        async with self._one_try:
            if await self.writer.call(self.store.sessions.head, new_id) is not None:
                raise begun
            try:
                return await self._fork(journal, failed.seq, new_id, actor, copied=copied, again=failed.path)
            except Fenced as error:
                raise begun from error  # by another process

    async def _fork(
        self,
        journal: Sequence[Event],
        at: int,
        new_id: str,
        actor: Actor,
        text: Flow | None = None,
        answers: Mapping[str, Json] | None = None,
        copied: Callable[[int], None] = lambda events: None,
        *,
        again: str | None = None,
    ) -> str:
        from engine.decide import past
        from engine.run.export import copied_files

        session_id = derive_state(journal[:1]).session_id
        folders = self.executor.jobs.folder(session_id), self.executor.jobs.folder(new_id)
        paths = str(folders[0]), str(folders[1])
        begun = past.fork(journal, at, new_id, actor, self.now(), self._entropy(), paths, again)
        flow = await self.sessions.flow(begun.state.flow_digest)
        refusal = self._policy(actor, "start", begun.state, starters(flow))
        if refusal is not None:
            raise NotAllowed(refusal)
        if text is not None:
            begun.under(flow, text, actor)
            flow = text
        if flow.absent:
            why = "; ".join(flow.absent.values())
            raise SessionError(f"{why}: session {session_id} starts again once this is fixed.")
        found = past.answered(begun.state, derive_state(journal[: begun.seq]), answers) if answers else {}
        commands = [
            self._fork_answer(begun.state.prompts[prompt_id], answer, actor)
            for prompt_id, answer in found.items()
        ]
        await self._refuse_locked(begun.state)
        copied(begun.copied)
        new = NewSession(
            flow.name,
            flow.digest,
            flow.body(),
            thread_key=(begun.state.thread or {}).get("key"),
            parent_session_id=session_id,
            parent_seq=begun.seq,
        )
        async with copied_files(self.files, self.executor.jobs.home, session_id, new_id):
            try:
                state = await self._begin_fork(flow, begun, commands, new)
            except DayBudgetSpent as error:
                state = await self._begin_fork(flow, begun, commands, new, error.left)
        if limits.pending(state):
            await self.apply(new_id, None)
        return new_id

    async def _refuse_locked(self, state: State) -> None:
        """Refuse a session that would have to wait for its lock although its flow does not wait. Raises `SessionError`."""
        if state.lock is None or state.lock.on_conflict != "refuse" or not limits.pending(state):
            return
        stands = limits.verdict(await self.writer.call(self.store.locks.rows, state.lock.name), state)
        if isinstance(stands, LockQueued):
            raise SessionError(str(limits.refusal(stands)["message"]))

    async def _begin_fork(
        self,
        flow: Flow,
        begun: Past,
        commands: Sequence[Command],
        new: NewSession,
        day_left: Decimal | None = None,
    ) -> State:
        """Store a fork after carrying out the commands in it; returns its state."""
        facts = self.stepper.facts(
            ActiveSession(begun.state.session_id, epoch=1, flow=flow, day_left=day_left)
        )
        step = Step(flow, begun.state, facts, KINDS)
        for command in (*commands, Begin()):
            carry_out(step, command)
        await self._create(flow, [*begun.events, *step.events], step.state, new)
        return step.state

    async def migrate(
        self, session_id: str, flow: Flow, *, actor: Actor, consumed: Sequence[Consumed] = ()
    ) -> Plan:
        """Move a paused session to another text of its flow, durably; returns the effects.

        Raises `UnknownSession`, `SessionEnded`, `SessionRunning` if it is not paused, `NotAllowed`, and
        `MigrationRefused` if it cannot continue with this text; nothing is changed then.
        """
        from engine.decide.past import Past

        async with self.sessions.using(session_id) as live:
            await self.sessions.claim(live)
            old, state = live.flow, live.state
            assert old is not None
            try:
                past = Past(state, self.now())
                made = past.under(old, flow, actor)
                refusal = self._policy(actor, "resume", state, None)
                if refusal is not None:
                    raise NotAllowed(refusal)
            except SaysoError:
                given_back = await self.stepper.left_as_found(live)
                if given_back is None:
                    await self.stepper.step(live, None, ())
                else:
                    check_stored(given_back)
                raise
            if flow.digest == old.digest:
                await self.stepper.step(live, None, consumed)
                return made
            live.flow = flow
            self.sessions.add_flow(flow)
            pin = Pin(flow.digest, flow.body())
            check_stored(await self.stepper.commit(live, past.events, past.state, consumed, None, pin))
            await self.stepper.begin_the_rest(live)
            return made

    def _fork_answer(self, prompt: Asked, answer: Json, actor: Actor) -> Answer:
        key = f"fork:{self._entropy()}"
        if prompt.options:
            return Answer(prompt.prompt_id, actor, key, value=answer)
        if isinstance(answer, dict):
            return Answer(prompt.prompt_id, actor, key, values=answer)
        return Answer(prompt.prompt_id, actor, key, text=str(answer))
