"""Events of a session as a whole: its start, pauses, lock, messages and end."""

from collections.abc import Collection
from typing import Any, Literal

from immutables import Map
from msgspec.structs import replace

from engine.journal.events.base import ANY_OPEN, ENDS, Event, moves, within
from engine.journal.grammar import frame_at, nothing_open, same, through
from engine.journal.queries import pending
from engine.journal.state import FINALLY, ROOT, Frame, LockRun, Owed, State, in_finally, scope_of
from engine.language.codec import Json
from engine.language.errors import MalformedJournal


class Boundary(Event):
    """The session begins, or comes to its end."""

    @property
    def status(self) -> str | None:
        """Return the session's final status; None if it is not over yet."""
        return None


class Closure(Boundary):
    """A person ended the session, or it has ended."""


class SessionStarted(Boundary, tag="session:start", phases=moves("running", "idle"), audit="given"):
    """A session was created: its flow, its requester, its thread, and the inputs given so far. `flow_revision` is the
    version of the folder of flows: a commit, or the content of its `REVISION`."""

    session_id: str
    flow_name: str
    flow_digest: str
    given: dict[str, Json]
    actor: dict[str, Json]
    thread: dict[str, Json] | None = None
    parent_session_id: str | None = None
    flow_revision: str | None = None

    def fold(self, state: State) -> State:
        self.no_path()
        if not self.session_id or self.session_id == self.parent_session_id:
            raise MalformedJournal("a session needs its own id")
        return replace(
            state,
            session_id=self.session_id,
            flow_name=self.flow_name,
            flow_digest=self.flow_digest,
            parent_session_id=self.parent_session_id,
            flow_revision=self.flow_revision,
            given=self.given,
            actor=self.actor,
            thread=self.thread,
            created_at=self.timestamp,
        )

    def remembered(self) -> dict[str, Any]:
        return {
            "session_id": self.session_id,
            "flow": self.flow_name,
            "flow_digest": self.flow_digest,
            "flow_revision": self.flow_revision,
            "thread_key": (self.thread or {}).get("key"),
        }


class FlowStarted(Event, tag="flow:started", phases=within("running")):
    """All inputs are known; the first node may start. `input` becomes `inputs` in expressions."""

    flow_name: str
    input: dict[str, Json]

    def fold(self, state: State) -> State:
        self.no_path()
        same(self.flow_name, state.flow_name, "flow")
        _has_inputs(state)
        # A fork asks again for the lock that its parent had when its flow started.
        if pending(state) and state.parent_session_id is None:
            raise MalformedJournal("the session waits for its lock")
        prompts = [prompt for prompt in state.prompts.values() if prompt.input]
        known = {
            **state.given,
            **{prompt.input_name: (prompt.answer or {}).get("value") for prompt in prompts},
        }
        for name, value in self.input.items():
            if name not in known:
                raise MalformedJournal(f"the input {name} was not given")
            same(value, known[name], f"input {name}")
        return replace(state, inputs=self.input, frames=state.frames.set(ROOT, Frame()))


class FlowPaused(Event, tag="flow:paused", phases=moves("waiting", "running"), audit=""):
    """Nothing can run until a person or a timer acts, or, with `held`, until a person resumes the session."""

    node_id: str | None = None
    reason: str
    held: bool | None = None
    actor: dict[str, Json] | None = None

    @property
    def transition(self) -> str:
        """The name under which the table knows it."""
        return "flow:paused(held)" if self.held else self.type

    def fold(self, state: State) -> State:
        """Pause the session: nothing runs, and it waits for something."""
        _stands(state, self)
        if (self.held, self.actor is None) not in ((None, True), (True, False)):
            raise MalformedJournal("only a person can pause a session")
        # Releases before `flow:pausing` held a session at once, and recorded afterwards how the running work had left.
        if not self.held:
            _nothing_runs(state.launched)
            if not (state.open_prompts or state.timers or pending(state)):
                raise MalformedJournal("it is not waiting for anything")
        return replace(state, paused_at=self.timestamp, pause_reason=self.reason, pausing=None)

    @property
    def audited(self) -> bool:
        """True if a person paused it."""
        return bool(self.held)


HELD = moves("held", "running", "waiting", "pausing", "unreachable")
"""The phases of `flow:paused` where a person paused the session."""


class FlowPausing(Event, tag="flow:pausing", phases=moves("pausing", "running"), audit=""):
    """A person pauses the session; running work was told to stop and has not stopped yet. Nothing starts any more.
    `flow:paused` follows once all work has stopped, unless the flow ends with it."""

    node_id: str | None = None
    reason: str
    actor: dict[str, Json]

    def fold(self, state: State) -> State:
        _stands(state, self)
        return replace(state, pausing={"reason": self.reason, "actor": self.actor})


class FlowResumed(Event, tag="flow:resumed", phases=moves("running", "waiting", "held")):
    """The session continues: `message` is the reply that caused it, `injected_messages` the number of messages with
    it."""

    node_id: str | None = None
    message: str | None = None
    injected_messages: int

    def fold(self, state: State) -> State:
        _stands(state, self)
        return replace(state, paused_at=None, pause_reason=None)

    def owes(self, before: State) -> tuple[Owed, ...]:
        return (Owed(("session:message",)),) if before.phase == "held" and self.message is not None else ()


class FlowFinalizing(Event, tag="flow:finalizing", phases=ENDS | moves("finalizing", "unreachable")):
    """The flow has ended with `outcome`, and its `finally` runs now. `path` and `error` name the failure. Without
    `finally` there is no such event."""

    outcome: Literal["complete", "failed", "aborted"]
    list_id: str
    error: dict[str, Json] | None = None

    def fold(self, state: State) -> State:
        if FINALLY in state.frames:
            raise MalformedJournal("the nodes of `finally` began before")
        if state.phase == "finalizing":
            same((self.outcome, state.outcome), ("aborted", "aborted"), "outcome")
            _nothing_runs([path for path in state.launched if not in_finally(path)])
        elif self.outcome == "complete":
            nothing_open(state)
        elif self.outcome == "failed" and self.error is not None:
            _has_failed(state, self.path, self.error)
        else:
            raise MalformedJournal("a flow that no person ended is complete, or failed with an error")
        if (self.error is None) != (self.outcome != "failed") or (self.path and not self.error):
            raise MalformedJournal("a flow has an error and its path exactly if it failed")
        return replace(
            state,
            outcome=self.outcome,
            error=self.error,
            timers=Map(),
            messages=(),
            pending=(),
            frames=state.frames.set(FINALLY, Frame(self.list_id)),
        )


class FlowCompleted(Event, tag="flow:completed", phases=ENDS):
    """Every node has its outcome and none failed the flow."""

    def fold(self, state: State) -> State:
        self.no_path()
        if state.phase == "finalizing":
            same(state.outcome, "complete", "outcome")
            _finally_over(state)
            if state.frames[FINALLY].error is not None:
                raise MalformedJournal("`finally` has failed, and so has the flow")
        else:
            nothing_open(state)
        return replace(state, outcome="complete")

    def owes(self, before: State) -> tuple[Owed, ...]:
        return (Owed(("session:end",)),)


class FlowFailed(Event, tag="flow:failed", phases=ENDS | moves("finalizing", "unreachable")):
    """A node failed the flow; `path` says which."""

    error: dict[str, Json]

    def fold(self, state: State) -> State:
        if state.phase == "finalizing":
            _finally_over(state)
            scope = ROOT if state.outcome == "failed" else FINALLY
            error = state.error if state.outcome == "failed" else state.frames[FINALLY].error
            if state.outcome not in ("failed", "complete") or error is None:
                raise MalformedJournal(f"the flow is {state.outcome}")
            same(self.error, error, "error")
            _failed_at(state, scope, self.path, error)
        else:
            _has_failed(state, self.path, self.error)
        return replace(state, outcome="failed", error=self.error)

    def owes(self, before: State) -> tuple[Owed, ...]:
        return (Owed(("session:end",)),) if FINALLY in before.frames else ()


class FlowMigrated(Event, tag="flow:migrated", phases=within("running", "waiting", "held"), audit=""):
    """A person moved the session to another text of its flow. `input` becomes `inputs`; `frames` and `nodes` say where
    the work in progress is in the lists of the new text."""

    flow_digest: str
    actor: dict[str, Json]
    input: dict[str, Json] | None = None
    frames: dict[str, int]
    nodes: dict[str, int]

    def fold(self, state: State) -> State:
        self.no_path()
        if self.flow_digest == state.flow_digest:
            raise MalformedJournal("the session already uses that version")
        for path in self.nodes:
            if path not in state.nodes:
                raise MalformedJournal(f"{path} is not known")
        frames, nodes = state.frames, state.nodes
        for scope, position in self.frames.items():
            frames = frames.set(scope, replace(frame_at(state, scope), position=position))
        for path, position in self.nodes.items():
            nodes = nodes.set(path, replace(nodes[path], position=position))
        inputs = state.inputs if self.input is None else self.input
        text = {"flow_digest": self.flow_digest, "flow_revision": None}
        return replace(state, **text, inputs=inputs, frames=frames, nodes=nodes)

    def remembered(self) -> dict[str, Any]:
        return {"flow_digest": self.flow_digest, "flow_revision": None}


class LockRequested(Event, tag="lock:requested", phases=within("running")):
    """The session took its place in the queue for a lock, whose name comes from its inputs. Nothing starts before it
    holds the lock; with `refuse` it fails if another session is ahead."""

    name: str
    on_conflict: Literal["queue", "refuse"]

    def fold(self, state: State) -> State:
        self.no_path()
        _has_inputs(state)
        if state.lock is not None:
            raise MalformedJournal(f"the session already asked for lock {state.lock.name}")
        return replace(state, lock=LockRun(self.name, self.on_conflict, self.timestamp))


class LockAcquired(Event, tag="lock:acquired", phases=within("running", "pausing", "held", "unreachable")):
    """The session is first in the queue and holds the lock until it ends."""

    name: str

    def fold(self, state: State) -> State:
        self.no_path()
        if state.lock is None or state.lock.name != self.name or state.lock.acquired_at is not None:
            raise MalformedJournal(f"the session does not wait for lock {self.name}")
        return replace(state, lock=replace(state.lock, acquired_at=self.timestamp))


class SessionMessage(Event, tag="session:message", phases=ANY_OPEN, audit="message"):
    """A message for the session that answered no prompt; `messages` in expressions."""

    message: str
    actor: dict[str, Json]
    key: str

    def fold(self, state: State) -> State:
        self.no_path()
        if self.key in state.seen:
            raise MalformedJournal(f"the message {self.key} was already used")
        entry = {"text": self.message, "by": self.actor, "at": self.timestamp}
        return replace(
            state,
            messages=(*state.messages, entry),
            pending=(*state.pending, (self.key, self.message)),
            seen=state.seen.set(self.key, None),
        )


class SessionAborted(
    Closure,
    tag="session:abort",
    phases=ENDS | moves("finalizing", "waiting", "held", "unreachable"),
    audit="",
):
    """A person ended the session: open prompts are cancelled, and only `finally` starts. During `finally`, this skips
    the rest."""

    reason: str | None = None
    actor: dict[str, Json] | None = None

    def fold(self, state: State) -> State:
        self.no_path()
        if state.finally_skipped:
            raise MalformedJournal("the nodes of `finally` are already skipped")
        if state.phase == "finalizing":
            outcome = "aborted" if state.outcome == "complete" else state.outcome
            return replace(state, outcome=outcome, timers=Map(), finally_skipped=True)
        return replace(state, outcome="aborted", timers=Map(), pending=(), error=None)

    def owes(self, before: State) -> tuple[Owed, ...]:
        """Require the end at once, unless running work has to leave first."""
        return () if before.launched else (Owed(_END),)


class SessionUnreachable(Event, tag="session:unreachable", phases=moves("unreachable", "running", "waiting")):
    """The bot cannot post in the session's thread: nothing starts until it can. `reason` is Slack's error."""

    reason: str

    def fold(self, state: State) -> State:
        self.no_path()
        return replace(state, paused_at=self.timestamp, pause_reason=self.reason)

    def owes(self, before: State) -> tuple[Owed, ...]:
        return (Owed(("timer:set",)),)


class SessionReachable(Event, tag="session:reachable", phases=moves("running", "unreachable")):
    """The bot can post in the session's thread again."""

    def fold(self, state: State) -> State:
        self.no_path()
        timers = state.timers
        for timer_id, timer in timers.items():
            if timer.purpose == "unreachable":
                timers = timers.delete(timer_id)
        return replace(state, paused_at=None, pause_reason=None, timers=timers)


class SessionEnd(Closure, tag="session:end", phases=moves("ended", "finalizing"), audit=""):
    """The last event of every session."""

    status: Literal["complete", "failed", "aborted"]

    def fold(self, state: State) -> State:
        self.no_path()
        if self.status != state.outcome:
            raise MalformedJournal(f"the session ended as {state.outcome}, not as {self.status}")
        if state.open_prompts:
            raise MalformedJournal(f"the question {min(state.open_prompts)} is open")
        _nothing_runs(state.launched)
        said = FINALLY in state.frames and self.status != "aborted"
        if not state.owed and (said or self.status == "complete"):
            raise MalformedJournal("the outcome of the flow is not recorded")
        if self.status == "aborted" and FINALLY in state.frames:
            _finally_over(state)
        return replace(state, timers=Map(), pending=())


def _has_inputs(state: State) -> None:
    if state.inputs is not None or state.open_prompts:
        raise MalformedJournal("the flow was already started, or is asking for an input")


def _stands(state: State, event: FlowPaused | FlowPausing | FlowResumed) -> None:
    """Check that it names the session's position."""
    path = event.path
    run = state.nodes.get(path or "")
    same(event.node_id, path if run is None else run.node_id, "node")
    # A tool call under decision is not a node yet, but the model call is.
    if path is not None and not (
        path in state.nodes or scope_of(path) in state.nodes or path.startswith("inputs/")
    ):
        raise MalformedJournal(f"the session is not at {path}")


def _nothing_runs(running: Collection[str]) -> None:
    if running:
        raise MalformedJournal(f"{min(running)} runs")


def _has_failed(state: State, path: str | None, error: dict[str, Json]) -> None:
    """A node has failed the flow, or something around all nodes: their number, an input, the lock, the thread."""
    root = state.frames.get(ROOT)
    if root is None:
        return
    if root.error is not None:
        same(error, root.error, "error")
        _failed_at(state, ROOT, path, error)
    elif error.get("type") not in AROUND_NODES:
        raise MalformedJournal("no node has failed the flow")


AROUND_NODES = ("limit", "unreachable")
"""Error types that fail a flow although none of its nodes has failed."""


def _failed_at(state: State, scope: str, path: str | None, error: dict[str, Json]) -> None:
    """The path is that of a node that failed so, if it was a node."""
    failed = [at for at in state.frames[scope].nodes.values() if state.nodes[at].error == error]
    if path not in failed and (path is not None or failed) and error.get("type") not in AROUND_NODES:
        raise MalformedJournal(f"{path} did not fail the flow")


def _finally_over(state: State) -> None:
    """Check that `finally` has ended; a person may have skipped the rest."""
    frame = frame_at(state, FINALLY)
    _nothing_runs(state.launched)
    if frame.error is None and not state.finally_skipped:
        through(frame, FINALLY)


_END = ("prompt:cancelled", "flow:finalizing", "flow:failed", "session:end")
