"""The state of a session and its fold.

`evolve` is the only way in which a state comes to be. States are values: an event gives a new one that shares
what did not change (persistent maps), so a step that fails to commit is undone by forgetting it.
The cost of an event does not depend on how much has completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from immutables import Map

from engine import events as ev
from engine.codec import Json
from engine.errors import MalformedJournal
from engine.events import Event
from engine.machine import STATUS, Phase, Status, step
from engine.pinned import noted_flow, noted_start

ROOT = ""
"""Path of the flow's own list of nodes."""

FINALLY = "finally"
"""Path of the list of nodes that runs at the end, and its id."""

ON_FAILURE = "on_failure"
"""The kind of what is under way while the `on_failure` of a node runs."""

AGAIN = "again"
"""The answer that lets an interrupted node run once more; then also why that node is due."""


RETRY = "retry"
"""Why a node is due whose attempt failed and whose delay is over."""


LEFT = "left"
"""Why a node is due that left at a checkpoint of its own."""


class NodeRun(NamedTuple):
    """One execution of a node. `input` is kept while it may have to run again, `output` once it completed."""

    node_id: str
    type: str
    position: int
    status: str
    """`started`, `interrupted`, `retrying`, `failing`, `completed`, `failed` or `skipped`."""
    started_at: str | None = None
    ended_at: str | None = None
    epoch: int = 0
    attempt: int = 0
    crashes: int = 0
    failures: int = 0
    """How many attempts have failed; what was interrupted has not."""
    input: Json = None
    output: Json = None
    error: dict[str, Json] | None = None
    reason: str | None = None
    saved: Json = None
    """What the node saved when it left at a checkpoint; its next attempts get it."""
    prompt_id: str | None = None
    """The question that was asked last about it."""
    handled: int | None = None
    """How often its `on_failure` ran, where it did."""


class PromptRun(NamedTuple):
    """A prompt of this session. `spec` is what `prompt:requested` said, with what people changed since; `shown` where
    people see it."""

    prompt_id: str
    path: str
    kind: str
    status: str
    """`requested`, `shown`, `answered`, `expired` or `cancelled`."""
    spec: dict[str, Json]
    requested_at: str
    shown: dict[str, Json] | None = None
    answer: dict[str, Json] | None = None
    actor: dict[str, Json] | None = None
    at: str | None = None
    deadline: str | None = None
    votes: tuple[dict[str, Json], ...] = ()
    """`{actor, vote, reason, at}` of everybody who voted, the latest vote last."""
    undo_until: str | None = None
    """Until when the answer may be taken back; None where it is final."""
    reminders: int = 0
    """How often those who are asked were told again."""
    escalated: tuple[int, ...] = ()
    """The steps of its `escalate` that were taken."""
    reposts: int = 0
    """How often it was shown again because its message was gone."""

    @property
    def open(self) -> bool:
        """Whether an answer would still count."""
        return self.status in ("requested", "shown")


class TimerRun(NamedTuple):
    """A timer that is set."""

    timer_id: str
    path: str | None
    due_at: str
    purpose: str
    prompt_id: str | None


class Graph(NamedTuple):
    """Where a pass stands whose list is a graph. Everything in it is open: what is over leaves it."""

    ready: Map[str, None] = Map()
    """Nodes that may start."""
    ended: Map[str, None] = Map()
    """Nodes that have their outcome and whose edges are not resolved yet."""
    gates: Map[str, tuple[int, int]] = Map()
    """For nodes that did not begin: how many edges that lead there are resolved, and how many of them were taken."""
    edges: Map[str, bool] = Map()
    """Whether an edge (`from>to`) was taken when it was last resolved."""
    again: Map[str, None] = Map()
    """Nodes that a jump gave another visit that has not begun."""


class Frame(NamedTuple):
    """One pass through a list of nodes that is under way; it is gone once all its nodes have their outcome.

    `owner` is the container's path (None for the flow's own list), `nodes` the path of each node that began.
    Of a node that was visited several times it is the path of the latest visit, and the earlier ones are forgotten.
    `position` is the index of the first node without an outcome. A frame with an `error` is being given up.
    """

    list_id: str = ""
    owner: str | None = None
    order: int = 0
    """Which pass of its container this is, from 0."""
    position: int = 0
    running: int = 0
    """How many nodes began and have no final outcome."""
    nodes: Map[str, str] = Map()
    error: dict[str, Json] | None = None
    jumps: tuple[tuple[str, str], ...] = ()
    """Jumps that are decided and wait until all that comes after their target has ended: from, to."""
    loops: Map[str, int] = Map()
    """How often each jump (`from>to`) was taken."""
    graph: Graph | None = None


class ContainerRun(NamedTuple):
    """A container that is under way. `results` has what each finished pass gave, by its number."""

    node_id: str
    kind: str
    total: int | None = None
    items: list[Json] | None = None
    keys: list[str] | None = None
    inputs: dict[str, Json] | None = None
    begun: int = 0
    running: int = 0
    results: Map[int, dict[str, Json]] = Map()
    last: dict[str, Json] | None = None
    """The outputs of the pass that finished last; `last` in a loop."""
    error: dict[str, Json] | None = None
    """Set when a pass failed and the container has to fail with it: it only waits for what still runs."""


class LockRun(NamedTuple):
    """The lock that the session holds until it ends, or waits for while `acquired_at` is None."""

    name: str
    on_conflict: str
    requested_at: str
    acquired_at: str | None = None


class State(NamedTuple):
    """All that is known of a session. Never changed in place."""

    session_id: str = ""
    flow_name: str = ""
    flow_digest: str = ""
    parent_session_id: str | None = None
    phase: Phase = "idle"
    outcome: Status | None = None
    seq: int = 0
    created_at: str = ""
    updated_at: str = ""
    actor: dict[str, Json] = {}
    thread: dict[str, Json] | None = None
    given: dict[str, Json] = {}
    inputs: dict[str, Json] | None = None
    nodes: Map[str, NodeRun] = Map()
    active: Map[str, None] = Map()
    """Paths of nodes that were started and have no final outcome."""
    frames: Map[str, Frame] = Map()
    containers: Map[str, ContainerRun] = Map()
    node_runs: int = 0
    """How many nodes have begun, over the whole session."""
    prompts_asked: int = 0
    prompts: Map[str, PromptRun] = Map()
    open_prompts: Map[str, None] = Map()
    timers: Map[str, TimerRun] = Map()
    messages: tuple[dict[str, Json], ...] = ()
    seen: Map[str, None] = Map()
    """Inbox keys of messages and answers that were taken."""
    paused_at: str | None = None
    pause_reason: str | None = None
    pausing: dict[str, Json] | None = None
    """Who pauses the session and why, while something that was told to leave still runs: `{reason, actor}`."""
    error: dict[str, Json] | None = None
    lock: LockRun | None = None
    code: Map[str, str] = Map()
    """What the session knows of the code that it runs beside its flow: digests, by what the flow calls it."""
    code_changed: tuple[str, ...] = ()
    """Code that was another when it ran than before."""
    finally_skipped: bool = False
    """A person ended the session while it was ending: what is left of `finally` does not run."""

    @property
    def status(self) -> Status:
        """`idle`, `running`, `paused`, `complete`, `failed` or `aborted`."""
        if self.phase == "ended":
            return self.outcome or "failed"
        return STATUS[self.phase]

    @property
    def ended(self) -> bool:
        """Whether the last event of the session has been written."""
        return self.phase == "ended"


# --- the fold --------------------------------------------------------------------------------------------


def evolve(state: State, event: Event) -> State:
    """The state after an event. Raises `MalformedJournal`, naming the event, for what cannot follow."""
    if event.seq != state.seq + 1:
        raise MalformedJournal(f"event {event.seq} ({event.type}) does not follow event {state.seq}")
    try:
        phase = step(state.phase, event.transition)
        moved = _FOLDS[event.type](state, event)
    except MalformedJournal as error:
        raise MalformedJournal(f"event {event.seq} ({event.type}): {error}") from None
    return moved._replace(phase=phase, seq=event.seq, updated_at=event.timestamp)


def derive_state(events: Iterable[Event], start: State | None = None) -> State:
    """The fold over a whole journal, or over the events after a snapshot."""
    state = start if start is not None else State()
    for event in events:
        state = evolve(state, event)
    return state


def _session_started(state: State, event: ev.SessionStarted) -> State:
    return state._replace(
        session_id=event.session_id,
        flow_name=event.flow_name,
        flow_digest=event.flow_digest,
        parent_session_id=event.parent_session_id,
        given=event.given,
        actor=event.actor,
        thread=event.thread,
        created_at=event.timestamp,
    )


def _flow_started(state: State, event: ev.FlowStarted) -> State:
    if state.inputs is not None:
        raise MalformedJournal("the flow was started before")
    return noted_flow(state, event)._replace(inputs=event.input, frames=state.frames.set(ROOT, Frame()))


def _flow_paused(state: State, event: ev.FlowPaused) -> State:
    return state._replace(paused_at=event.timestamp, pause_reason=event.reason, pausing=None)


def _flow_pausing(state: State, event: ev.FlowPausing) -> State:
    return state._replace(pausing={"reason": event.reason, "actor": event.actor})


def _flow_resumed(state: State, event: ev.FlowResumed) -> State:
    return state._replace(paused_at=None, pause_reason=None)


def _flow_completed(state: State, event: ev.FlowCompleted) -> State:
    return state._replace(outcome="complete")


def _flow_failed(state: State, event: ev.FlowFailed) -> State:
    return state._replace(outcome="failed", error=event.error)


def _flow_migrated(state: State, event: ev.FlowMigrated) -> State:
    frames, nodes = state.frames, state.nodes
    for scope, position in event.frames.items():
        frames = frames.set(scope, _frame(state, scope)._replace(position=position))
    for path, position in event.nodes.items():
        if path not in nodes:
            raise MalformedJournal(f"{path} is not known")
        nodes = nodes.set(path, nodes[path]._replace(position=position))
    inputs = state.inputs if event.input is None else event.input
    return state._replace(flow_digest=event.flow_digest, inputs=inputs, frames=frames, nodes=nodes)


def _lock_requested(state: State, event: ev.LockRequested) -> State:
    if state.lock is not None:
        raise MalformedJournal(f"the session asked for lock {state.lock.name} before")
    return state._replace(lock=LockRun(event.name, event.on_conflict, event.timestamp))


def _lock_acquired(state: State, event: ev.LockAcquired) -> State:
    if state.lock is None or state.lock.name != event.name or state.lock.acquired_at is not None:
        raise MalformedJournal(f"the session does not wait for lock {event.name}")
    return state._replace(lock=state.lock._replace(acquired_at=event.timestamp))


def _session_message(state: State, event: ev.SessionMessage) -> State:
    entry = {"text": event.message, "by": event.actor, "at": event.timestamp}
    return state._replace(messages=(*state.messages, entry), seen=state.seen.set(event.key, None))


def _flow_finalizing(state: State, event: ev.FlowFinalizing) -> State:
    if FINALLY in state.frames:
        raise MalformedJournal("what runs at the end began before")
    return state._replace(
        outcome=event.outcome,
        error=event.error,
        timers=Map(),
        messages=(),
        frames=state.frames.set(FINALLY, Frame(event.list_id)),
    )


def _session_aborted(state: State, event: ev.SessionAborted) -> State:
    if state.phase == "finalizing":
        outcome = "aborted" if state.outcome == "complete" else state.outcome
        return state._replace(outcome=outcome, timers=Map(), finally_skipped=True)
    return state._replace(outcome="aborted", timers=Map(), error=None)


def _session_unreachable(state: State, event: ev.SessionUnreachable) -> State:
    return state._replace(paused_at=event.timestamp, pause_reason=event.reason)


def _session_reachable(state: State, event: ev.SessionReachable) -> State:
    timers = state.timers
    for timer_id, timer in timers.items():
        if timer.purpose == "unreachable":
            timers = timers.delete(timer_id)
    return state._replace(paused_at=None, pause_reason=None, timers=timers)


def _session_end(state: State, event: ev.SessionEnd) -> State:
    if event.status != state.outcome:
        raise MalformedJournal(f"the session ended as {state.outcome}, not as {event.status}")
    return state._replace(timers=Map())


def _path(event: Event) -> str:
    if event.path is None:
        raise MalformedJournal("has no path")
    return event.path


def scope_of(path: str) -> str:
    """The address of the pass that a node stands in."""
    return path.rpartition("/")[0]


def below(path: str, address: str) -> bool:
    """Whether an address (of a node or a pass) lies inside the container at `path`."""
    return address.startswith(path) and (len(address) == len(path) or address[len(path)] in "[/!#")


def in_finally(address: str) -> bool:
    """Whether a node or a pass belongs to what runs at the end."""
    return address == FINALLY or address.startswith(FINALLY + "/")


def visit_of(path: str) -> int:
    """Which visit of its node a path is, from 1."""
    _, mark, number = path.rpartition("/")[2].partition("~")
    return int(number) if mark and number.isdecimal() else 1


def visit_path(frame: Frame, scope: str, node_id: str) -> str:
    """The path under which a node of a pass begins next."""
    path = f"{scope}/{node_id}" if scope else node_id
    earlier = frame.nodes.get(node_id)
    return path if earlier is None else f"{path}~{visit_of(earlier) + 1}"


def _frame(state: State, scope: str) -> Frame:
    frame = state.frames.get(scope)
    if frame is None:
        raise MalformedJournal(f"nothing goes on in {scope or 'the flow'}")
    return frame


def _node_started(state: State, event: ev.NodeStarted) -> State:
    return noted_start(_started(state, event, event.node_id, event.node_index), event)


def _child_started(state: State, event: ev.ChildStarted) -> State:
    return noted_start(_started(state, event, event.child_id, event.child_index), event)


def _started(state: State, event: ev.NodeStarted | ev.ChildStarted, node_id: str, index: int) -> State:
    path = _path(event)
    scope = scope_of(path)
    frame = _frame(state, scope)
    before = state.nodes.get(path)
    nodes = state.nodes
    if before is None:
        nodes, frame = _enter(state, frame, path, node_id)
        frame = frame._replace(running=frame.running + 1)
    elif before.status not in ("interrupted", "retrying"):
        raise MalformedJournal(f"{path} was started before and is {before.status}")
    run = NodeRun(
        node_id=node_id,
        type=event.node_type,
        position=index,
        status="started",
        started_at=before.started_at if before else event.timestamp,
        epoch=event.epoch,
        attempt=event.attempt,
        crashes=before.crashes if before else 0,
        failures=before.failures if before else 0,
        input=event.input,
        saved=before.saved if before else None,
        handled=before.handled if before else None,
    )
    return state._replace(
        nodes=nodes.set(path, run),
        active=state.active.set(path, None),
        frames=state.frames.set(scope, frame),
        # What a pause or a crash starts again has been counted: neither takes a session nearer to its limit.
        node_runs=state.node_runs + (before is None),
    )


def _enter(state: State, frame: Frame, path: str, node_id: str) -> tuple[Map[str, NodeRun], Frame]:
    """A visit of a node begins: the one before it is forgotten, and no edge that led here counts any more."""
    earlier, nodes = frame.nodes.get(node_id), state.nodes
    if earlier is not None:
        if not frame.loops or earlier in state.active or visit_of(path) != visit_of(earlier) + 1:
            raise MalformedJournal(f"{earlier} stands in this pass already")
        nodes = nodes.delete(earlier)
    return nodes, frame._replace(
        nodes=frame.nodes.set(node_id, path), graph=frame.graph and _begun(frame.graph, node_id)
    )


def _begun(graph: Graph, node_id: str) -> Graph:
    return graph._replace(
        ready=without(graph.ready, node_id),
        gates=without(graph.gates, node_id),
        again=without(graph.again, node_id),
    )


def without(found: Map[Any, Any], key: Any) -> Map[Any, Any]:
    """A map without a key that may be in it."""
    return found.delete(key) if key in found else found


UNFINISHED = ("started", "interrupted", "retrying", "failing")
"""The statuses of nodes that have no final outcome."""


def _unfinished(state: State, path: str) -> NodeRun:
    run = state.nodes.get(path)
    if run is None or run.status not in UNFINISHED:
        raise MalformedJournal(f"{path} is not running")
    return run


def _finish(state: State, path: str, run: NodeRun, error: dict[str, Json] | None = None) -> State:
    """A node got its final outcome: it leaves the active ones and its list moves on."""
    scope = scope_of(path)
    frame = _frame(state, scope)
    frame = frame._replace(
        position=max(frame.position, run.position + 1),
        running=frame.running - (path in state.active),
        nodes=frame.nodes.set(run.node_id, path),
        error=frame.error or error,
        graph=frame.graph and frame.graph._replace(ended=frame.graph.ended.set(run.node_id, None)),
    )
    return state._replace(
        nodes=state.nodes.set(path, run),
        active=state.active.delete(path) if path in state.active else state.active,
        frames=state.frames.set(scope, frame),
    )


def _node_completed(state: State, event: ev.NodeCompleted | ev.ChildCompleted) -> State:
    path = _path(event)
    run = _unfinished(state, path)
    done = run._replace(
        status="completed", output=event.output, input=None, saved=None, ended_at=event.timestamp
    )
    return _finish(state, path, done)


def _node_failed(state: State, event: ev.NodeFailed) -> State:
    path = _path(event)
    run = _unfinished(state, path)
    failed = run._replace(
        status="failed", error=event.error, input=None, saved=None, ended_at=event.timestamp
    )
    if path in state.containers:
        state = _drop_passes(state, path)
    state = _finish(state, path, failed, None if event.contained else event.error)
    scope = scope_of(path)
    if event.goto is not None:
        frame = _frame(state, scope)
        frame = frame._replace(jumps=(*frame.jumps, (run.node_id, event.goto)))
        state = state._replace(frames=state.frames.set(scope, frame))
    return state if event.contained else _pass_failed(state, scope, path, event.error)


def _pass_failed(state: State, scope: str, path: str, error: dict[str, Json]) -> State:
    """A pass is being given up: its container fails with it."""
    owner = _frame(state, scope).owner
    if owner is None:
        return state
    container = state.containers[owner]
    # In `collect` a branch that fails is one result among others: its pass ends, its siblings go on.
    if container.kind == "parallel" and container.total == COLLECT:
        return state
    container = container._replace(error=container.error or {"path": path, **error})
    return state._replace(containers=state.containers.set(owner, container))


def _node_failing(state: State, event: ev.NodeFailing) -> State:
    path = _path(event)
    run = _unfinished(state, path)
    if path in state.containers:
        state = _drop_passes(state, path)
    handled = run.handled if event.list_id is None else (run.handled or 0) + 1
    run = run._replace(status="failing", error=event.error, reason=None, handled=handled)
    state = state._replace(nodes=state.nodes.set(path, run))
    if event.list_id is None:
        return state
    frames = state.frames.set(event.scope or "", Frame(event.list_id, path))
    container = ContainerRun(event.node_id, ON_FAILURE, 1, begun=1, running=1)
    return state._replace(frames=frames, containers=state.containers.set(path, container))


COLLECT = -1
"""The `total` of a parallel container whose branches do not fail each other."""


def _drop_passes(state: State, path: str) -> State:
    """Forget everything inside a container that has ended, and its own time limit."""
    frames, nodes, containers, active, timers = (
        state.frames,
        state.nodes,
        state.containers,
        state.active,
        state.timers,
    )
    for scope, frame in state.frames.items():
        if scope and below(path, scope):
            frames = frames.delete(scope)
            for inner in frame.nodes.values():
                nodes = nodes.delete(inner)
                active = active.delete(inner) if inner in active else active
                containers = containers.delete(inner) if inner in containers else containers
    for timer_id, timer in state.timers.items():
        inside = timer.path is not None and timer.path != path and below(path, timer.path)
        if inside or (timer.path == path and timer.purpose == "timeout"):
            timers = timers.delete(timer_id)
    return state._replace(
        frames=frames,
        nodes=nodes,
        active=active,
        timers=timers,
        containers=containers.delete(path) if path in containers else containers,
    )


def _node_skipped(state: State, event: ev.NodeSkipped) -> State:
    path = _path(event)
    before, scope = state.nodes.get(path), scope_of(path)
    if before is not None:
        if before.status != "failing":
            raise MalformedJournal(f"{path} was started, so it cannot be skipped")
        skipped = before._replace(
            status="skipped", input=None, error=None, reason=event.reason, ended_at=event.timestamp
        )
        return _finish(state, path, skipped)
    frame = _frame(state, scope)
    index = frame.position if event.node_index is None else event.node_index
    run = NodeRun(
        event.node_id, event.node_type, index, "skipped", reason=event.reason, ended_at=event.timestamp
    )
    nodes, frame = _enter(state, frame, path, event.node_id)
    return _finish(state._replace(nodes=nodes, frames=state.frames.set(scope, frame)), path, run)


def _node_interrupted(state: State, event: ev.NodeInterrupted) -> State:
    path = _path(event)
    run = state.nodes.get(path)
    if run is None or run.status != "started":
        raise MalformedJournal(f"{path} is not running")
    crashes = run.crashes + (event.reason == "crash")
    run = run._replace(status="interrupted", crashes=crashes, reason=event.reason)
    if event.reason == LEFT:
        run = run._replace(saved=event.saved)
    return state._replace(nodes=state.nodes.set(path, run))


def _node_retried(state: State, event: ev.NodeRetried) -> State:
    path = _path(event)
    run = _unfinished(state, path)
    if path in state.containers:
        state = _drop_passes(state, path)
    run = run._replace(status="retrying", error=event.error, failures=run.failures + 1)
    timer = TimerRun(event.timer_id, path, event.due_at, "retry", None)
    return state._replace(nodes=state.nodes.set(path, run), timers=state.timers.set(event.timer_id, timer))


# --- graphs and jumps ------------------------------------------------------------------------------------


def _edge_resolved(state: State, event: ev.EdgeResolved) -> State:
    frame = _frame(state, event.scope)
    graph = frame.graph
    if event.path is None:
        if graph is not None:
            raise MalformedJournal(f"the graph in {event.scope or 'the flow'} was begun before")
        graph = Graph()
    elif graph is None or event.node_id not in graph.ended:
        raise MalformedJournal(f"the edges of {event.path} are resolved already")
    gates, edges = graph.gates, graph.edges
    for target, taken in (event.taken or {}).items():
        known, yes = gates.get(target, (0, 0))
        gates = gates.set(target, (known + 1, yes + taken))
        edges = edges.set(f"{event.node_id}>{target}", taken)
    ready = graph.ready
    for node_id in event.ready:
        ready = ready.set(node_id, None)
    ended = without(graph.ended, event.node_id)
    jumps = frame.jumps
    if event.jump is not None:
        jumps = (*jumps, (event.node_id or "", event.jump))
    graph = graph._replace(gates=gates, edges=edges, ready=ready, ended=ended)
    frame = frame._replace(graph=graph, jumps=jumps, error=frame.error or event.error)
    state = state._replace(frames=state.frames.set(event.scope, frame))
    if event.error is None:
        return state
    return _pass_failed(state, event.scope, event.path or "", event.error)


def _loop_iterated(state: State, event: ev.LoopIterate) -> State:
    scope = scope_of(_path(event))
    frame = _frame(state, scope)
    if (event.edge_from, event.edge_to) not in frame.jumps:
        raise MalformedJournal(f"no jump from {event.edge_from} to {event.edge_to} is decided")
    frame = frame._replace(
        jumps=tuple(jump for jump in frame.jumps if event.reset and jump[0] not in event.reset),
        loops=frame.loops.set(f"{event.edge_from}>{event.edge_to}", event.iteration),
        position=event.position,
    )
    if frame.graph is not None:
        jumps = tuple(jump for jump in frame.jumps if jump != (event.edge_from, event.edge_to))
        frame = frame._replace(graph=_reset(frame.graph, event), jumps=jumps)
    return state._replace(frames=state.frames.set(scope, frame))


def _reset(graph: Graph, event: ev.LoopIterate) -> Graph:
    gates, again = graph.gates, graph.again
    for node_id in event.reset or ():
        gates, again = without(gates, node_id), again.set(node_id, None)
    for node_id, (known, yes) in (event.carried or {}).items():
        gates = gates.set(node_id, (known, yes))
    return graph._replace(gates=gates, again=again, ready=graph.ready.set(event.edge_to, None))


# --- containers ------------------------------------------------------------------------------------------


def _container_started(state: State, event: ev.ContainerStarted) -> State:
    path = _path(event)
    _unfinished(state, path)
    if path in state.containers:
        raise MalformedJournal(f"container {path} was started before")
    container = ContainerRun(event.node_id, event.kind, event.total, event.items, event.keys, event.inputs)
    return state._replace(containers=state.containers.set(path, container))


def _container(state: State, path: str) -> ContainerRun:
    container = state.containers.get(path)
    if container is None:
        raise MalformedJournal(f"{path} is no container that is under way")
    return container


def _iteration_started(state: State, event: ev.IterationStarted) -> State:
    path = _path(event)
    container = _container(state, path)
    if event.index != container.begun or event.scope in state.frames:
        raise MalformedJournal(f"pass {event.index} of {path} does not follow pass {container.begun - 1}")
    moved = container._replace(begun=container.begun + 1, running=container.running + 1)
    return state._replace(
        containers=state.containers.set(path, moved),
        frames=state.frames.set(event.scope, Frame(event.list_id, path, event.index)),
    )


def _iteration_completed(state: State, event: ev.IterationCompleted) -> State:
    path = _path(event)
    container, frame = _container(state, path), _frame(state, event.scope)
    if frame.owner != path or frame.running:
        raise MalformedJournal(f"the pass {event.scope} of {path} is not over")
    nodes, outputs = state.nodes, {}
    # In the order of the file: a map has none, and an output must look the same in every process.
    for node_id, inner in sorted(frame.nodes.items(), key=lambda item: state.nodes[item[1]].position):
        outputs[node_id] = nodes[inner].output
        nodes = nodes.delete(inner)
    result: dict[str, Json] = {"index": frame.order, "outputs": outputs}
    if event.error is not None:
        result["error"] = event.error
    moved = container._replace(
        running=container.running - 1,
        results=container.results.set(frame.order, result),
        last=outputs,
    )
    return state._replace(
        nodes=nodes,
        containers=state.containers.set(path, moved),
        frames=state.frames.delete(event.scope),
    )


def _container_completed(state: State, event: ev.ContainerCompleted) -> State:
    path = _path(event)
    container, run = _container(state, path), _unfinished(state, path)
    if container.kind == ON_FAILURE:
        return _drop_passes(state, path)
    if container.running:
        raise MalformedJournal(f"container {path} is not over")
    done = run._replace(
        status="completed", output=container_output(container), input=None, ended_at=event.timestamp
    )
    timer_id = timeout_id(state, path)
    if timer_id in state.timers:
        state = state._replace(timers=state.timers.delete(timer_id))
    return _finish(state._replace(containers=state.containers.delete(path)), path, done)


def timeout_id(state: State, path: str) -> str:
    """The id of the timer that bounds this attempt of a container."""
    return f"{state.session_id}:{path}:timeout{state.nodes[path].attempt}"


def container_output(container: ContainerRun) -> dict[str, Json]:
    """The output of a container, from what its passes gave. It shares their values and copies none."""
    results = [container.results[number] for number in sorted(container.results)]
    match container.kind:
        case "foreach":
            items = container.items or []
            return {"iterations": [{**result, "item": items[result["index"]]} for result in results]}
        case "loop":
            return {"iterations": [{**result, "item": None} for result in results]}
        case "parallel":
            keys = container.keys or []
            return {"branches": {keys[result["index"]]: result["outputs"] for result in results}}
        case "switch":
            case = container.keys[0] if container.keys else None
            return {"case": case, "outputs": results[0]["outputs"] if results else {}}
        case _:
            return {"outputs": results[0]["outputs"] if results else {}}


# --- prompts and timers ----------------------------------------------------------------------------------


def _prompt_requested(state: State, event: ev.PromptRequested) -> State:
    if event.prompt_id in state.prompts:
        raise MalformedJournal(f"prompt {event.prompt_id} was requested before")
    kind = event.prompt.get("kind")
    if not isinstance(kind, str):
        raise MalformedJournal(f"prompt {event.prompt_id} is of no kind")
    prompt = PromptRun(
        prompt_id=event.prompt_id,
        path=_path(event),
        kind=kind,
        status="requested",
        spec=event.prompt,
        requested_at=event.timestamp,
    )
    run = state.nodes.get(prompt.path)
    nodes = (
        state.nodes if run is None else state.nodes.set(prompt.path, run._replace(prompt_id=event.prompt_id))
    )
    return state._replace(
        nodes=nodes,
        prompts=state.prompts.set(event.prompt_id, prompt),
        open_prompts=state.open_prompts.set(event.prompt_id, None),
        prompts_asked=state.prompts_asked + 1,
    )


def _open_prompt(state: State, prompt_id: str) -> PromptRun:
    prompt = state.prompts.get(prompt_id)
    if prompt is None or not prompt.open:
        raise MalformedJournal(f"prompt {prompt_id} is not open")
    return prompt


def _prompt_shown(state: State, event: ev.PromptShown) -> State:
    prompt = _open_prompt(state, event.prompt_id)._replace(status="shown", shown=event.shown)
    return state._replace(prompts=state.prompts.set(event.prompt_id, prompt))


def _change_prompt(state: State, prompt: PromptRun, key: str) -> State:
    return state._replace(prompts=state.prompts.set(prompt.prompt_id, prompt), seen=state.seen.set(key, None))


def _prompt_voted(state: State, event: ev.PromptVoted) -> State:
    prompt = _open_prompt(state, event.prompt_id)
    if prompt.kind != "approval":
        raise MalformedJournal(f"prompt {event.prompt_id} is no approval, so nobody votes on it")
    vote = {"actor": event.actor, "vote": event.vote, "reason": event.reason, "at": event.timestamp}
    votes = (*votes_without(prompt, event.actor.get("id")), vote)
    return _change_prompt(state, prompt._replace(votes=votes), event.key)


def votes_without(prompt: PromptRun, actor_id: Json) -> tuple[dict[str, Json], ...]:
    """The votes of everybody else."""
    return tuple(vote for vote in prompt.votes if vote["actor"].get("id") != actor_id)


def _renewed(prompt: PromptRun, nonce: str, **changes: Json) -> dict[str, Json]:
    """The spec of a prompt that is shown again: buttons of the copy before do not match any more."""
    return {**prompt.spec, **changes, "nonce": nonce, "generation": (prompt.spec.get("generation") or 1) + 1}


def _prompt_edited(state: State, event: ev.PromptEdited) -> State:
    prompt = _open_prompt(state, event.prompt_id)
    editors = [*(prompt.spec.get("editors") or []), event.actor.get("id")]
    changes = {"values": event.values, "covers": event.covers, "editors": list(dict.fromkeys(editors))}
    spec = _renewed(prompt, event.nonce, **changes)
    return _change_prompt(state, prompt._replace(spec=spec, votes=()), event.key)


def _prompt_handed(state: State, event: ev.PromptHanded) -> State:
    prompt = _open_prompt(state, event.prompt_id)
    giver, spec = event.actor.get("id"), prompt.spec
    listed = "approvers" if prompt.kind == "approval" else "who"
    excluded = [entry for entry in [*(spec.get("excluded") or []), giver] if entry != event.to]
    handed = {"by": event.actor, "to": event.to, "at": event.timestamp}
    changes: dict[str, Json] = {
        listed: list(dict.fromkeys([*asked_people(state, prompt), event.to])),
        "excluded": list(dict.fromkeys(excluded)),
        "handed": [*(spec.get("handed") or []), handed],
    }
    moved = prompt._replace(spec={**spec, **changes}, votes=votes_without(prompt, giver))
    return _change_prompt(state, moved, event.key)


def asked_people(state: State, prompt: PromptRun) -> list[str]:
    """Who may answer a prompt, as entries of `approvers` or `who`; for a question about a step those beside the owner."""
    if prompt.kind == "approval":
        return list(prompt.spec.get("approvers") or [])
    if prompt.spec.get("who") is not None or prompt.kind in ("interrupted", "failed"):
        return list(prompt.spec.get("who") or [])
    return ["channel"] if state.actor.get("id") is None else ["requester"]


def _prompt_undone(state: State, event: ev.PromptUndone) -> State:
    prompt = state.prompts.get(event.prompt_id)
    if prompt is None or prompt.status != "answered" or prompt.undo_until is None:
        raise MalformedJournal(f"prompt {event.prompt_id} has no answer that can be taken back")
    again = prompt._replace(
        status="requested" if prompt.shown is None else "shown",
        spec=_renewed(prompt, event.nonce),
        answer=None,
        actor=None,
        at=None,
        undo_until=None,
    )
    state = _close_prompt(state, again)
    opened = state._replace(open_prompts=state.open_prompts.set(prompt.prompt_id, None))
    return _change_prompt(opened, again, event.key)


def _close_prompt(state: State, prompt: PromptRun) -> State:
    timers = state.timers
    for timer_id, timer in state.timers.items():
        if timer.prompt_id == prompt.prompt_id:
            timers = timers.delete(timer_id)
    return state._replace(
        prompts=state.prompts.set(prompt.prompt_id, prompt),
        open_prompts=without(state.open_prompts, prompt.prompt_id),
        timers=timers,
    )


def _prompt_answered(state: State, event: ev.PromptAnswered) -> State:
    prompt = _open_prompt(state, event.prompt_id)
    seen = state.seen.set(event.key, None) if event.key else state.seen
    answered = prompt._replace(status="answered", answer=event.answer, actor=event.actor, at=event.timestamp)
    closed = _close_prompt(state, answered)._replace(seen=seen)
    if prompt.kind == "failed" and event.answer.get("value") == RETRY:
        run = _unfinished(closed, prompt.path)._replace(status="interrupted", reason=RETRY)
        return closed._replace(nodes=closed.nodes.set(prompt.path, run))
    if prompt.kind != "interrupted" or event.answer.get("value") != AGAIN:
        return closed
    run = _unfinished(closed, prompt.path)._replace(reason=AGAIN)
    return closed._replace(nodes=closed.nodes.set(prompt.path, run))


def _prompt_reminded(state: State, event: ev.PromptReminded) -> State:
    prompt = _open_prompt(state, event.prompt_id)
    if event.count != prompt.reminders + 1:
        raise MalformedJournal(
            f"reminder {event.count} of {event.prompt_id} does not follow {prompt.reminders}"
        )
    prompt = prompt._replace(reminders=event.count)
    return state._replace(prompts=state.prompts.set(prompt.prompt_id, prompt))


def _prompt_escalated(state: State, event: ev.PromptEscalated) -> State:
    prompt = _open_prompt(state, event.prompt_id)
    if event.step in prompt.escalated:
        raise MalformedJournal(f"step {event.step} of {event.prompt_id} was taken before")
    prompt = prompt._replace(escalated=(*prompt.escalated, event.step))
    if event.may_answer:
        listed = "approvers" if prompt.kind == "approval" else "who"
        people = [*asked_people(state, prompt), *people_among(event.to)]
        prompt = prompt._replace(spec={**prompt.spec, listed: list(dict.fromkeys(people))})
    return state._replace(prompts=state.prompts.set(prompt.prompt_id, prompt))


def people_among(entries: list[str]) -> list[str]:
    """The people and groups of an escalation: those that are told in a direct message too, and no channels."""
    told = [entry.removeprefix("dm:") for entry in entries]
    return [entry for entry in told if "@" in entry or entry == "requester" or entry[:1] in "UW"]


def _prompt_reposted(state: State, event: ev.PromptReposted) -> State:
    prompt = _open_prompt(state, event.prompt_id)
    spec = _renewed(prompt, event.nonce)
    prompt = prompt._replace(status="requested", shown=None, spec=spec, reposts=prompt.reposts + 1)
    return state._replace(prompts=state.prompts.set(prompt.prompt_id, prompt))


def _prompt_expired(state: State, event: ev.PromptExpired) -> State:
    prompt = _open_prompt(state, event.prompt_id)
    return _close_prompt(state, prompt._replace(status="expired", at=event.timestamp))


def _prompt_cancelled(state: State, event: ev.PromptCancelled) -> State:
    prompt = _open_prompt(state, event.prompt_id)
    return _close_prompt(state, prompt._replace(status="cancelled", at=event.timestamp))


def _timer_set(state: State, event: ev.TimerSet) -> State:
    timer = TimerRun(event.timer_id, event.path, event.due_at, event.purpose, event.prompt_id)
    state = state._replace(timers=state.timers.set(event.timer_id, timer))
    if event.prompt_id is None:
        return state
    if event.purpose == "undo":
        return _set_undo(state, event.prompt_id, event.due_at)
    if event.purpose != "deadline":
        return state
    prompt = _open_prompt(state, event.prompt_id)._replace(deadline=event.due_at)
    return state._replace(prompts=state.prompts.set(event.prompt_id, prompt))


def _set_undo(state: State, prompt_id: str, until: str | None) -> State:
    prompt = state.prompts.get(prompt_id)
    if prompt is None or prompt.status != "answered":
        raise MalformedJournal(f"prompt {prompt_id} was not answered, so nothing can be taken back")
    return state._replace(prompts=state.prompts.set(prompt_id, prompt._replace(undo_until=until)))


def _timer_fired(state: State, event: ev.TimerFired) -> State:
    timer = state.timers.get(event.timer_id)
    if timer is None:
        raise MalformedJournal(f"timer {event.timer_id} is not set")
    state = state._replace(timers=state.timers.delete(event.timer_id))
    if timer.purpose == "undo" and timer.prompt_id is not None:
        return _set_undo(state, timer.prompt_id, None)
    if timer.purpose == "timeout" and timer.path is not None:
        container = _container(state, timer.path)
        message = f"node {container.node_id}: it ran out of time"
        container = container._replace(error=container.error or {"type": "timeout", "message": message})
        return state._replace(containers=state.containers.set(timer.path, container))
    if timer.purpose != "retry" or timer.path is None:
        return state
    run = _unfinished(state, timer.path)._replace(status="interrupted", reason=RETRY)
    return state._replace(nodes=state.nodes.set(timer.path, run))


_FOLDS: dict[str, Callable[[State, Any], State]] = {
    "session:start": _session_started,
    "flow:started": _flow_started,
    "flow:paused": _flow_paused,
    "flow:pausing": _flow_pausing,
    "flow:resumed": _flow_resumed,
    "flow:finalizing": _flow_finalizing,
    "flow:completed": _flow_completed,
    "flow:failed": _flow_failed,
    "flow:migrated": _flow_migrated,
    "lock:requested": _lock_requested,
    "lock:acquired": _lock_acquired,
    "session:message": _session_message,
    "session:abort": _session_aborted,
    "session:unreachable": _session_unreachable,
    "session:reachable": _session_reachable,
    "session:end": _session_end,
    "node:started": _node_started,
    "node:completed": _node_completed,
    "node:failing": _node_failing,
    "node:error": _node_failed,
    "node:retried": _node_retried,
    "node:skipped": _node_skipped,
    "node:interrupted": _node_interrupted,
    "edge:resolved": _edge_resolved,
    "loop:iterate": _loop_iterated,
    "container:childStarted": _child_started,
    "container:childCompleted": _node_completed,
    "container:started": _container_started,
    "container:iterationStarted": _iteration_started,
    "container:iterationCompleted": _iteration_completed,
    "container:completed": _container_completed,
    "prompt:requested": _prompt_requested,
    "prompt:shown": _prompt_shown,
    "prompt:voted": _prompt_voted,
    "prompt:edited": _prompt_edited,
    "prompt:handed": _prompt_handed,
    "prompt:undone": _prompt_undone,
    "prompt:answered": _prompt_answered,
    "prompt:reminded": _prompt_reminded,
    "prompt:escalated": _prompt_escalated,
    "prompt:reposted": _prompt_reposted,
    "prompt:expired": _prompt_expired,
    "prompt:cancelled": _prompt_cancelled,
    "timer:set": _timer_set,
    "timer:fired": _timer_fired,
}
