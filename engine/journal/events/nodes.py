"""Events of nodes: starts, outcomes, interruptions, tries."""

from typing import TYPE_CHECKING, ClassVar, Literal

from msgspec.structs import replace

from engine.journal.agent_runs import unanswered_call
from engine.journal.events.base import COMPLETED, FAILED, OUTCOMES, WORK, NodeEvent
from engine.journal.grammar import closed_prompt, failure_scope, frame_at, owner_of, retry_id, run_at, same
from engine.journal.passes import drop_passes, enter, finish, left, pass_failed, passes_at_failure
from engine.journal.queries import DEAD, TURN, holds, unanswered
from engine.journal.state import (
    ASKS,
    LEFT,
    ON_FAILURE,
    ContainerRun,
    Frame,
    NodeRun,
    Owed,
    State,
    TimerRun,
    in_finally,
    scope_of,
    visit_path,
)
from engine.language.codec import Json
from engine.language.errors import MalformedJournal
from engine.nodes.types.registry import mode_of


class Start(NodeEvent):
    """A node began."""

    if TYPE_CHECKING:
        node_type: str
        input: Json = None
        epoch: int
        attempt: int

    @property
    def own_id(self) -> str:
        """The id of the node in its list."""
        return self.node_id

    @property
    def index(self) -> int:
        """The place of the node in its list."""
        raise NotImplementedError

    def owes(self, before: State) -> tuple[Owed, ...]:
        types = _FIRST.get(mode_of(self.node_type))
        return () if types is None else (Owed(types, self.path),)

    @property
    def brought(self) -> Json:
        """Return the content in the form of an approval's digest."""
        return {"type": self.node_type, "with": self.input}


class AttemptOver(NodeEvent):
    """An attempt of a node came to something, or was cut."""

    result: ClassVar[str] = ""
    """Result in a word; empty if other events tell it."""

    @property
    def failed(self) -> bool:
        """True if it gave no usable result."""
        return False


class Completion(AttemptOver):
    """A node finished."""

    result = "completed"

    if TYPE_CHECKING:
        output: Json = None

    @property
    def done(self) -> bool:
        """See `Event.done`."""
        return True

    @property
    def own_id(self) -> str:
        """The id of the node in its list."""
        return self.node_id


class Setback(AttemptOver):
    """An attempt of a node gave no result."""

    @property
    def failed(self) -> bool:
        """True if it gave no usable result."""
        return True


class Failure(Setback):
    """An attempt of a node failed."""

    if TYPE_CHECKING:
        error: dict[str, Json]
        attempt: int
        unpaid: bool | None = None

    @property
    def spreads(self) -> bool:
        """True if the node's container or flow fails with it."""
        return False


class NodeStarted(Start, tag="node:started", phases=WORK, audit="input"):
    """A node began: `input` is its configuration with every expression evaluated, secrets left as references.

    `epoch` says under which claim; a start of an earlier epoch without an outcome was interrupted.
    """

    node_type: str
    node_index: int
    input: Json = None
    epoch: int
    attempt: int

    def fold(self, state: State) -> State:
        path = self.at
        frame = frame_at(state, scope_of(path))
        if frame.owner is not None:
            raise MalformedJournal(f"{path} is in {frame.owner}, so it must begin as its child")
        return begin(state, self, frame)

    @property
    def index(self) -> int:
        """The place of the node in its list."""
        return self.node_index


class NodeCompleted(Completion, tag="node:completed", phases=OUTCOMES, audit="output"):
    """A node finished; `output` is `nodes.<id>` from now on. It never runs again."""

    output: Json = None

    def fold(self, state: State) -> State:
        path = self.at
        run = run_at(state, path, "started", "interrupted")
        if self.node_id != run.node_id:
            same(self.node_id, run.node_id, "node")
        if owner_of(state, path) is not None:
            raise MalformedJournal(f"{path} is in a container, so it must complete as its child")
        return complete(state, path, run, self)


class NodeFailing(Failure, tag="node:failing", phases=OUTCOMES):
    """No retry is left. Before the failure counts, its `on_failure` runs (`list_id`, in the pass `scope`), or people
    are asked (`on_error: ask`). `node:error`, `node:skipped` or another start follows. `keeps`: the conversation of an
    agent stays, and another start continues it. `unpaid` as in `node:retried`."""

    error: dict[str, Json]
    attempt: int
    list_id: str | None = None
    scope: str | None = None
    keeps: bool | None = None
    unpaid: bool | None = None

    def fold(self, state: State) -> State:
        path = self.at
        run = run_at(state, path, "started", "interrupted")
        _breaks(state, path, run, self)
        scope = None if self.list_id is None else failure_scope(path, run)
        same(self.scope, scope, "scope")
        container = state.containers.get(path)
        state = unanswered_call(state, path, run, bool(self.unpaid))
        if container is not None:
            state = drop_passes(state, path)
            if self.keeps:
                run = replace(run, kept=container.agent)
        handled = run.handled if self.list_id is None else (run.handled or 0) + 1
        run = replace(run, status="failing", error=self.error, reason=None, handled=handled)
        state = left(state, path, run)
        if self.list_id is None:
            return state
        frames = state.frames.set(self.scope or "", Frame(self.list_id, path))
        container = ContainerRun(self.node_id, ON_FAILURE, 1, begun=1, running=1)
        return replace(state, frames=frames, containers=state.containers.set(path, container))


class NodeFailed(Failure, tag="node:error", phases=OUTCOMES, audit="error"):
    """A node failed for good. `contained`: the nodes around it continue nevertheless, at `goto` if that is set.
    `unpaid` as in `node:retried`."""

    result = "failed"
    error: dict[str, Json]
    attempt: int
    contained: bool | None = None
    goto: str | None = None
    unpaid: bool | None = None

    @property
    def spreads(self) -> bool:
        """True if the node's container or flow fails with it."""
        return not self.contained

    def fold(self, state: State) -> State:
        path = self.at
        run = run_at(state, path, "started", "interrupted", "failing")
        if self.goto is not None and not self.contained:
            raise MalformedJournal("the flow continues elsewhere, so its failure is contained")
        if run.status == "failing":
            same((self.node_id, self.attempt), (run.node_id, run.attempt), "place")
            same(self.error, run.error, "error")
            closed_prompt(state, run)
            if path in state.containers:
                raise MalformedJournal(f"the `on_failure` of {path} has not finished")
        else:
            _breaks(state, path, run, self)
        state = unanswered_call(state, path, run, bool(self.unpaid))
        failed = replace(
            run, status="failed", error=self.error, input=None, saved=None, ended_at=self.timestamp
        )
        if (container := state.containers.get(path)) is not None:
            failed = replace(failed, passes=passes_at_failure(state, path, container))
            state = drop_passes(state, path)
        state = finish(state, path, failed, None if self.contained else self.error)
        scope = scope_of(path)
        if self.goto is not None:
            frame = frame_at(state, scope)
            frame = replace(frame, jumps=(*frame.jumps, (run.node_id, self.goto)))
            state = replace(state, frames=state.frames.set(scope, frame))
        return state if self.contained else pass_failed(state, scope, path, self.error)


class NodeRetried(Failure, tag="node:retried", phases=OUTCOMES, audit="error"):
    """An attempt failed and another one follows when the timer fires: same path, same key, same input. `unpaid`: a
    model call was not sent, or was refused before any answer, so its reservation is dropped."""

    result = "retried"
    error: dict[str, Json]
    attempt: int
    timer_id: str
    due_at: str
    unpaid: bool | None = None

    def fold(self, state: State) -> State:
        path = self.at
        run = run_at(state, path, "started")
        _breaks(state, path, run, self)
        same(self.timer_id, retry_id(state, path, run), "timer")
        state = unanswered_call(state, path, run, bool(self.unpaid))
        if path in state.containers:
            state = drop_passes(state, path)
        run = replace(run, status="retrying", error=self.error, failures=run.failures + 1)
        timer = TimerRun(self.timer_id, path, self.due_at, "retry", None)
        return replace(left(state, path, run), timers=state.timers.set(self.timer_id, timer))


class NodeSkipped(NodeEvent, tag="node:skipped", phases=OUTCOMES, audit=""):
    """A node's own `if` was false, no edge that leads to it was taken, or a person skipped it after it failed.

    `node_index` is its place in the list, if the list is a graph.
    """

    node_type: str
    reason: str
    node_index: int | None = None

    def fold(self, state: State) -> State:
        path = self.at
        scope, before = scope_of(path), state.nodes.get(path)
        if before is not None:
            # Check that a person skipped a failed node.
            same((self.node_id, self.node_type), (before.node_id, before.type), "node")
            if before.status != "failing":
                raise MalformedJournal(f"{path} was started and is {before.status}, so it cannot be skipped")
            prompt = closed_prompt(state, before)
            if path in state.containers and state.containers[path].kind == ON_FAILURE:
                raise MalformedJournal(f"the `on_failure` of {path} has not finished")
            if prompt is None or (prompt.answer or {}).get("value") != "skip":
                raise MalformedJournal(f"nobody decided to skip {path}")
            skipped = replace(
                before, status="skipped", input=None, error=None, reason=self.reason, ended_at=self.timestamp
            )
            return finish(state, path, skipped)
        frame = frame_at(state, scope)
        dead = self.reason == DEAD
        if not dead:
            _may_begin(state, path)
        if frame.error is not None and not dead:
            raise MalformedJournal(f"{scope or 'the flow'} has failed, so nothing can begin there")
        same(path, visit_path(frame, scope, self.node_id), "path")
        index = frame.position if self.node_index is None else self.node_index
        if dead:
            known, taken = (0, 0) if frame.graph is None else frame.graph.gates.get(self.node_id, (0, 0))
            if not known or taken or self.node_index is None:
                raise MalformedJournal(f"{self.node_id} can still be reached")
            _index_as_before(state, frame, self.node_id, self.node_index)
        elif (self.node_index is None) != (frame.graph is None):
            raise MalformedJournal("it has its own index exactly if its list is a graph")
        else:
            _next_of_list(state, frame, self.node_id, index)
        run = NodeRun(
            self.node_id, self.node_type, index, "skipped", reason=self.reason, ended_at=self.timestamp
        )
        nodes, frame = enter(state, frame, path, self.node_id)
        return finish(replace(state, nodes=nodes, frames=state.frames.set(scope, frame)), path, run)


class NodeInterrupted(Setback, tag="node:interrupted", phases=OUTCOMES, audit=""):
    """A node was started and its outcome is unknown: a crash, a cut at shutdown, or a timeout of a node with effects.

    `left` is different: the node left at its own checkpoint, with `saved`, and simply runs again. `asks`: its server
    asks people the questions in `saved` (`engine.nodes.runtime.mcp_asks`), and it continues with their answers.
    """

    result = "interrupted"
    reason: Literal["crash", "cut", "timeout", "lost", "left", "asks"]
    saved: Json = None

    def fold(self, state: State) -> State:
        path = self.at
        run = run_at(state, path, "started")
        same(self.node_id, run.node_id, "node")
        if self.saved is not None and self.reason not in (LEFT, ASKS):
            raise MalformedJournal(f"{path} did not leave voluntarily, so it saved nothing")
        if mode_of(run.type) not in ("run", "delivery"):
            raise MalformedJournal(f"{path} is not run by a runner, so it cannot be interrupted")
        state = unanswered_call(state, path, run, free=False)
        crashes = run.crashes + (self.reason == "crash")
        run = replace(run, status="interrupted", crashes=crashes, reason=self.reason)
        if self.reason == ASKS and (run.type != "mcp" or unanswered(self.saved) is None):
            raise MalformedJournal(f"{path} is not a call whose server asks for anything")
        if self.reason in (LEFT, ASKS):
            run = replace(run, saved=self.saved)
        return left(state, path, run)


def begin(state: State, event: Start, frame: Frame) -> State:
    """The state in which a node has begun, in a pass."""
    path = event.at
    if state.phase != "running":
        _may_begin(state, path)
    before, nodes, at, counted = state.nodes.get(path), state.nodes, event.timestamp, (0, 0)
    if before is None:
        if event.attempt != 1:
            same(event.attempt, 1, "attempt")
        _begins(state, event, frame)
        nodes, frame = enter(state, frame, path, event.own_id, running=1)
    else:
        if before.status != "interrupted":
            raise MalformedJournal(f"{event.path} was already started and is {before.status}")
        same((event.own_id, event.index), (before.node_id, before.position), "place")
        same(event.attempt, before.attempt + 1, "attempt")
        closed_prompt(state, before)
        same(event.node_type, before.type, "type")
        if event.input is not None and before.input is not None and before.type != TURN:
            same(event.input, before.input, "input")
        at, counted = before.started_at or at, (before.crashes, before.failures)
    tried = (event.epoch, event.attempt, *counted)
    run = NodeRun(event.own_id, event.node_type, event.index, "started", at, None, *tried, event.input)
    if before is not None:
        run = replace(run, saved=before.saved, handled=before.handled, kept=before.kept)
    pending = state.pending
    if pending:
        # Its expressions have seen them all; those to an agent wait for its next model call.
        heard = {key for run in state.containers.values() if run.agent is not None for key in run.agent.heard}
        pending = tuple(message for message in pending if message[0] in heard)
    return replace(
        state,
        nodes=nodes.set(path, run),
        active=state.active.set(path, None),
        launched=state.launched.set(path, None) if mode_of(run.type) == "run" else state.launched,
        frames=state.frames.set(scope_of(path), frame),
        pending=pending,
        # A restart after a pause or a crash is already counted: neither brings a session nearer to its limit.
        node_runs=state.node_runs + (before is None),
    )


def _may_begin(state: State, path: str) -> None:
    """Check that the phase lets a node begin."""
    at_end = state.phase == "finalizing" and in_finally(path) and not state.finally_skipped
    if state.phase != "running" and not at_end:
        raise MalformedJournal(f"{path} cannot begin while the session is {state.phase}")


def _begins(state: State, event: Start, frame: Frame) -> None:
    """A node that has not run begins at the next place of its list, or where edges or a model's calls lead."""
    path, node_id, index = event.at, event.own_id, event.index
    scope = scope_of(path)
    if frame.error is not None:
        raise MalformedJournal(f"{scope or 'the flow'} has failed, so nothing can begin there")
    owner = None if frame.owner is None else state.containers[frame.owner]
    if owner is not None and owner.error is not None:
        raise MalformedJournal(f"{frame.owner} has failed, so nothing can begin there")
    if owner is not None and owner.agent is not None:
        place = (node_id, index)
        if frame.list_id == owner.agent.lists[0]:
            same(event.node_type, TURN, "type")
            same(place, (f"turn[{len(frame.nodes) + 1}]", 0), "place")
            if frame.running or owner.agent.calls or owner.agent.final or owner.agent.stuck:
                raise MalformedJournal(
                    f"agent {frame.owner} cannot call the model: tool calls are unfinished, it has given "
                    "its final answer, or it waits for a decision"
                )
            said = (
                owner.agent.pending
                or owner.agent.order
                or owner.agent.resends
                or holds(owner.agent)
                or not owner.agent.messages
            )
            if not said and owner.agent.messages[len(owner.agent.messages) - 1]["role"] == "assistant":
                raise MalformedJournal(
                    f"there is no new message since the last answer, so {path} has nothing to answer"
                )
        else:
            call = owner.agent.calls.get(path)
            if call is None:
                raise MalformedJournal(f"no answer called {path}, or it already has its result")
            if call.prompt_id in state.open_prompts:
                raise MalformedJournal(f"the question {call.prompt_id} about it is not decided")
            same(place[1], call.tool, "index")
        same(path, f"{scope_of(path)}/{place[0]}", "path")
        return
    # A first visit is by far the commonest, and its path the shortest to tell.
    if node_id in frame.nodes or path != (f"{scope}/{node_id}" if scope else node_id):
        same(path, visit_path(frame, scope, node_id), "path")
    _next_of_list(state, frame, node_id, index)


def _next_of_list(state: State, frame: Frame, node_id: str, index: int) -> None:
    if frame.graph is None:
        if frame.running or frame.jumps:
            raise MalformedJournal("another node of its list has no outcome yet, or leads elsewhere")
        if index != frame.position:
            same(index, frame.position, "index")
    elif node_id not in frame.graph.ready:
        raise MalformedJournal(f"no edge leads to {node_id} yet")
    else:
        _index_as_before(state, frame, node_id, index)


def _index_as_before(state: State, frame: Frame, node_id: str, index: int) -> None:
    earlier = frame.nodes.get(node_id)
    if earlier is not None:
        same(index, state.nodes[earlier].position, "index")


def complete(state: State, path: str, run: NodeRun, event: Completion) -> State:
    """Complete the node, if the mode of its type allows that."""
    mode = mode_of(run.type)
    if mode == "container":
        raise MalformedJournal(f"{path} is a container and must complete as one")
    if run.status == "interrupted":
        prompt = closed_prompt(state, run)
        if prompt is None or prompt.kind != "interrupted" or (prompt.answer or {}).get("value") != "done":
            raise MalformedJournal(f"{path} was interrupted, and nobody confirmed that it was done")
    elif mode == "prompt":
        prompt = closed_prompt(state, run)
        if prompt is None or prompt.status not in ("answered", "expired"):
            raise MalformedJournal(f"{path} completed without an answer")
        told = event.output if isinstance(event.output, dict) else {}
        if prompt.answer is not None and prompt.is_approval:
            same(told.get("decision"), prompt.answer.get("value"), "decision")
        elif prompt.answer is not None:
            same(told.get("text"), prompt.answer.get("text"), "answer")
    elif mode in ("timer", "pure") and not state.owed:
        raise MalformedJournal(f"{path} is not due yet, or did not just begin")
    done = replace(
        run, status="completed", output=event.output, input=None, saved=None, ended_at=event.timestamp
    )
    return finish(state, path, done)


def _breaks(state: State, path: str, run: NodeRun, event: Failure) -> None:
    """Check the failure of an attempt; a container fails with the error of its pass."""
    if event.node_id != run.node_id or event.attempt != run.attempt:
        same((event.node_id, event.attempt), (run.node_id, run.attempt), "place")
    closed_prompt(state, run)
    container = state.containers.get(path)
    if container is None:
        return
    if container.error is not None:
        same(event.error, container.error, "error")
    elif event.error.get("type") == "timeout":
        raise MalformedJournal(f"{path} did not time out")


_FIRST = {
    "pure": (*COMPLETED, *FAILED),
    "prompt": ("prompt:requested", *FAILED),
    "timer": ("timer:set", *FAILED),
    "container": ("container:started", *FAILED),
}
"""Events that must follow the start of a node at once, by the mode of its type; a process runs the others."""
