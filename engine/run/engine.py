"""What can be asked of the sessions of one store: start, resume, pause, end, look, fork, go on elsewhere.

Each becomes a command, and every command goes through `Stepper.apply`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from engine.decide import locks
from engine.decide.commands import Abort, Action, Answer, Begin, Command, Hold, Message, Resume, Start, Steer
from engine.decide.decide import take_turn
from engine.flow import Flow
from engine.journal.events import Event
from engine.journal.fold import derive_state
from engine.journal.inspection import inspection
from engine.journal.records import Consumed, NewSession, Pin
from engine.journal.state import PromptRun, State
from engine.journal.transitions import ENDED
from engine.language.actors import Actor
from engine.language.codec import Json
from engine.language.errors import (
    DayBudgetSpent,
    EmptyMessage,
    LockHeld,
    NotAllowed,
    Owned,
    SaysoError,
    SessionEnded,
    SessionRunning,
    SnapshotRefused,
)
from engine.nodes.runtime.folder import copied_folder
from engine.run import remote_commands
from engine.run.active import Live, checked_id
from engine.run.stepper import Stepper

if TYPE_CHECKING:
    from engine.decide.fork import Fork
    from engine.decide.migration import Plan

PAUSING_SECONDS = 1.0
"""How long what was told to leave may take before the session is shown as pausing."""


class Engine(Stepper):
    """Runs sessions of one store in this process."""

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
        """Start a session and return its id once its start is durable. Raises `InvalidInputs`, `NotAllowed`, and
        `SessionError` for a `session_id` that is none (`session-` and letters, digits, `-` or `_`)."""
        session_id = checked_id(session_id or f"session-{self._entropy()[:10]}")
        if session_id in self._live:
            raise SessionRunning(f"Session {session_id} is running already; nothing was changed.")
        live = Live(session_id, users=1, claimed=True, epoch=1, flow=flow)
        self._flows[flow.digest] = flow
        self._live[session_id] = live
        command = Start(session_id, dict(inputs), actor, thread)
        new = NewSession(flow.name, flow.digest, flow.body(), thread_key=(thread or {}).get("key"))
        try:
            async with live.lock:
                await self._step(live, command, consumed, new=new)
        except BaseException:  # a caller who is cancelled leaves nothing claimed either
            if not live.state.seq:
                live.claimed = False
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
        if head.status in ENDED:
            raise SessionEnded(f"Session {session_id} is {head.status}; it cannot be resumed.")
        key = key or f"resume:{self._entropy()}"
        if prompt_id is not None:
            text = message if answer is None else None
            return await self.apply(session_id, Answer(prompt_id, actor, key, value=answer, text=text))
        if not message.strip():
            raise EmptyMessage("A resume needs a message that is not empty.")
        if head.status == "running":
            raise SessionRunning(f"Session {session_id} is running already; nothing was changed.")
        if head.phase == "held":
            return await self.apply(session_id, Resume(message, actor, key))
        return await self.apply(session_id, Message(message, actor, key))

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
        """Hold a session: what runs is told to leave, its outcome or interruption is recorded, and then nothing
        starts until `resume`. A session that completes meanwhile has completed.

        Raises `UnknownSession`, `SessionEnded`, `NotAllowed`; nothing was told to leave then.
        """
        live = self._live.setdefault(session_id, Live(session_id))
        live.users += 1
        try:
            async with live.lock:
                await self._take_up(live)
                over = live.state.phase in ("finalizing", "ended")
                if over or self._policy(actor, "pause", live.state, None) is not None:
                    return await self._step(live, Hold(actor, reason), consumed)  # which refuses it
                live.pausing = True
                live.stop_all()
            if live.tasks:
                await asyncio.wait(list(live.tasks.values()), timeout=PAUSING_SECONDS)
            if live.tasks:
                # Not all leave at once: that it is being paused is seen by everybody, and holds after a crash.
                async with live.lock:
                    await self._step(live, Hold(actor, reason, waits=True), ())
            while live.tasks:
                await asyncio.wait(list(live.tasks.values()))
            async with live.lock:
                await self._take_up(live)
                # A flow that has ended meanwhile is not held: what comes at its end begins in this step.
                live.pausing = False
                return await self._step(live, Hold(actor, reason), consumed)
        finally:
            live.pausing = False
            live.users -= 1
            self._forget(live)

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

        Raises `SnapshotRefused` when the file does not verify, the journal here is not the file's, a session that
        this store does not have was not paused, or another one holds its lock here.
        """
        from engine.run import export  # as forks and migration below: most processes need none of them

        file = await export.verified_file(self.writer, data)
        session_id = await self._bring(file)
        if actor is None or (message is None and prompt_id is None):
            return await self.state(session_id)
        return await self.resume(session_id, message or "", actor=actor, prompt_id=prompt_id, answer=answer)

    async def _bring(self, file: dict[str, Json]) -> str:
        """The session of a verified file, in this store at the file's seq."""
        from engine.run import export

        events, state = export.contents(file)
        if await self.writer.call(self.store.head, state.session_id) is not None:
            export.refuse_other_history(state.session_id, await self.journal(state.session_id), events)
            return state.session_id
        export.refuse_unpaused(state)
        flow = export.flow_in(file)
        live = Live(checked_id(state.session_id), users=1, claimed=True, epoch=1, flow=flow)
        key = (state.thread or {}).get("key")
        new = NewSession(flow.name, flow.digest, flow.body(), thread_key=key)
        try:
            await self._create(live, events, state, new)
        except LockHeld as error:
            raise SnapshotRefused(f"{error} Bring the session here when that one has ended.") from error
        return state.session_id

    async def _create(self, live: Live, events: list[Event], state: State, new: NewSession) -> None:
        """Store a session that begins with a whole journal, and launch what is begun in it."""
        self._live[live.session_id] = live
        try:
            async with live.lock:
                await self._commit(live, events, state, (), new)
                await self._begin_the_rest(live)
        except BaseException:  # a caller who is cancelled leaves nothing claimed either
            live.claimed = False
            raise
        finally:
            live.users -= 1
            self._forget(live)

    # --- time travel ---------------------------------------------------------------------------------------

    async def fork(
        self,
        session_id: str,
        at: int,
        *,
        actor: Actor,
        answers: Mapping[str, Json] | None = None,
        fork_id: str | None = None,
        copied: Callable[[int], None] = lambda events: None,
    ) -> str:
        """Start a new session from event `at` of another one, and return its id once it is durable. `copied` is told before
        that how many of its events are the other one's.

        Nothing that had completed by then runs again (`engine.decide.fork` says what becomes of the rest). `answers` are
        for questions that were open, by path, node id or prompt id: an option's value, a text, or the fields
        of a form by name. The session that it comes from is not changed. Raises `UnknownSession`, `SessionError`, `SessionEnded` where nothing is left to
        run, `NotAllowed`, `InvalidAnswer`, `FileRefused` where its folder cannot be copied; nothing is stored then.
        """
        from engine.decide import fork as forks

        journal = await self.journal(session_id)
        new_id = checked_id(fork_id or f"session-{self._entropy()[:10]}")
        folders = self.running.workplace.folder(session_id), self.running.workplace.folder(new_id)
        paths = str(folders[0]), str(folders[1])
        begun = forks.fork(journal, at, new_id, actor, self.now(), self._entropy(), paths)
        refusal = self._policy(actor, "start", begun.state, None)
        if refusal is not None:
            raise NotAllowed(refusal)
        flow = await self._flow(begun.state.flow_digest)
        found = forks.answered(begun.state, derive_state(journal[: begun.seq]), answers) if answers else {}
        commands = [
            self._fork_answer(begun.state.prompts[prompt_id], answer, actor)
            for prompt_id, answer in found.items()
        ]
        copied(begun.copied)
        live = Live(new_id, users=1, claimed=True, epoch=1, flow=flow)
        new = NewSession(
            flow.name, flow.digest, flow.body(), parent_session_id=session_id, parent_seq=begun.seq
        )
        with copied_folder(*folders):
            try:
                state = await self._begin_fork(live, begun, commands, new)
            except DayBudgetSpent as error:
                live = Live(new_id, users=1, claimed=True, epoch=1, flow=flow, day_left=error.left)
                state = await self._begin_fork(live, begun, commands, new)
        if locks.pending(state):
            await self.apply(new_id, None)
        return new_id

    async def _begin_fork(
        self, live: Live, begun: Fork, commands: Sequence[Command], new: NewSession
    ) -> State:
        """Store a fork with what the commands make true in it; how it stands then."""
        assert live.flow is not None
        facts = self._facts(live)
        events, state = list(begun.events), begun.state
        for command in (*commands, Begin()):
            turn = take_turn(live.flow, state, command, facts)
            events, state = events + turn.events, turn.state
        await self._create(live, events, state, new)
        return state

    async def migrate(
        self, session_id: str, flow: Flow, *, actor: Actor, consumed: Sequence[Consumed] = ()
    ) -> Plan:
        """Let a paused session go on with another text of its flow, durably; what that meant for it.

        Raises `UnknownSession`, `SessionEnded`, `SessionRunning` where it is not paused, `NotAllowed`, and
        `MigrationRefused` where it cannot go on with this text; nothing is changed then.
        """
        from engine.decide import migration

        async with self._using(session_id) as live:
            await self._take_up(live)
            old, state = live.flow, live.state
            assert old is not None
            try:
                made = migration.plan_or_refuse(old, flow, state)
                refusal = self._policy(actor, "resume", state, None)
                if refusal is not None:
                    raise NotAllowed(refusal)
            except SaysoError:
                if not await self._left_as_found(live):
                    await self._step(live, None, ())
                raise
            if flow.digest == old.digest:
                await self._step(live, None, consumed)
                return made
            events, after = migration.events(made, state, flow, actor, self.now())
            live.flow = self._flows[flow.digest] = flow
            await self._commit(live, events, after, consumed, None, Pin(flow.digest, flow.body()))
            if made.anew or made.left_out:
                await self._step(live, None, ())
            await self._begin_the_rest(live)
            return made

    def _fork_answer(self, prompt: PromptRun, answer: Json, actor: Actor) -> Answer:
        key = f"fork:{self._entropy()}"
        if prompt.spec["options"]:
            return Answer(prompt.prompt_id, actor, key, value=answer)
        if isinstance(answer, dict):
            return Answer(prompt.prompt_id, actor, key, values=answer)
        return Answer(prompt.prompt_id, actor, key, text=str(answer))
