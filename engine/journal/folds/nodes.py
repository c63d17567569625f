"""The fold of what happens to nodes (starts, outcomes, interruptions, tries), and of graphs, jumps and
containers.
"""

from __future__ import annotations

from typing import Any

from immutables import Map
from msgspec.structs import replace

from engine.journal import events as ev
from engine.journal.grammar.common import container_at, frame_at, path_of, timeout_id
from engine.journal.queries import noted_start
from engine.journal.state import (
    COLLECT,
    LEFT,
    ON_FAILURE,
    AgentRun,
    ContainerRun,
    Frame,
    Graph,
    NodeRun,
    State,
    TimerRun,
    below,
    scope_of,
    visit_of,
)
from engine.language.codec import Json
from engine.language.errors import MalformedJournal
from engine.messages import messages


def node_started(state: State, event: ev.NodeStarted) -> State:
    return noted_start(begin_node(state, event, event.node_id, event.node_index), event)


def child_started(state: State, event: ev.ChildStarted) -> State:
    return noted_start(begin_node(state, event, event.child_id, event.child_index), event)


def begin_node(state: State, event: ev.NodeStarted | ev.ChildStarted, node_id: str, index: int) -> State:
    path = path_of(event)
    scope = scope_of(path)
    frame = frame_at(state, scope)
    before = state.nodes.get(path)
    nodes = state.nodes
    if before is None:
        nodes, frame = enter(state, frame, path, node_id)
        frame = replace(frame, running=frame.running + 1)
    at = before.started_at if before else event.timestamp
    tried = (event.epoch, event.attempt) + ((before.crashes, before.failures) if before else (0, 0))
    run = NodeRun(node_id, event.node_type, index, "started", at, None, *tried, event.input)
    if before is not None:
        run = replace(run, saved=before.saved, handled=before.handled, kept=before.kept)
    return replace(
        state,
        nodes=nodes.set(path, run),
        active=state.active.set(path, None),
        frames=state.frames.set(scope, frame),
        pending=_undelivered(state),
        # What a pause or a crash starts again has been counted: neither takes a session nearer to its limit.
        node_runs=state.node_runs + (before is None),
    )


def _undelivered(state: State) -> tuple[tuple[str, str], ...]:
    """Which messages are still pending once a node began, whose expressions have them all: those that an agent heard
    wait for its next model call."""
    if not state.pending:
        return ()
    heard = {key for run in state.containers.values() if run.agent is not None for key in run.agent.heard}
    return tuple(message for message in state.pending if message[0] in heard)


def enter(state: State, frame: Frame, path: str, node_id: str) -> tuple[Map[str, NodeRun], Frame]:
    """A visit of a node begins: the one before it is forgotten, and no edge that led here counts any more."""
    earlier, nodes = frame.nodes.get(node_id), state.nodes
    if earlier is not None:
        if not frame.loops or earlier in state.active or visit_of(path) != visit_of(earlier) + 1:
            raise MalformedJournal(f"{earlier} stands in this pass already")
        nodes = nodes.delete(earlier)
    return nodes, replace(
        frame, nodes=frame.nodes.set(node_id, path), graph=frame.graph and begun(frame.graph, node_id)
    )


def without(found: Map[Any, Any], key: Any) -> Map[Any, Any]:
    """A map without a key that may be in it."""
    return found.delete(key) if key in found else found


def begun(graph: Graph, node_id: str) -> Graph:
    return replace(
        graph,
        ready=without(graph.ready, node_id),
        gates=without(graph.gates, node_id),
        again=without(graph.again, node_id),
    )


def finish(state: State, path: str, run: NodeRun, error: dict[str, Json] | None = None) -> State:
    """A node got its final outcome: it leaves the active ones and its list moves on."""
    scope = scope_of(path)
    frame = frame_at(state, scope)
    frame = replace(
        frame,
        position=max(frame.position, run.position + 1),
        running=frame.running - (path in state.active),
        nodes=frame.nodes.set(run.node_id, path),
        error=frame.error or error,
        graph=frame.graph and replace(frame.graph, ended=frame.graph.ended.set(run.node_id, None)),
    )
    return replace(
        state,
        nodes=state.nodes.set(path, run if run.kept is None else replace(run, kept=None)),
        active=state.active.delete(path) if path in state.active else state.active,
        frames=state.frames.set(scope, frame),
    )


def node_completed(state: State, event: ev.NodeCompleted | ev.ChildCompleted) -> State:
    path = path_of(event)
    run = state.nodes[path]
    done = replace(
        run, status="completed", output=event.output, input=None, saved=None, ended_at=event.timestamp
    )
    return finish(state, path, done)


child_completed = node_completed


def node_failed(state: State, event: ev.NodeFailed) -> State:
    path = path_of(event)
    run = state.nodes[path]
    failed = replace(
        run, status="failed", error=event.error, input=None, saved=None, ended_at=event.timestamp
    )
    if path in state.containers:
        state = drop_passes(state, path)
    state = finish(state, path, failed, None if event.contained else event.error)
    scope = scope_of(path)
    if event.goto is not None:
        frame = frame_at(state, scope)
        frame = replace(frame, jumps=(*frame.jumps, (run.node_id, event.goto)))
        state = replace(state, frames=state.frames.set(scope, frame))
    return state if event.contained else pass_failed(state, scope, path, event.error)


def pass_failed(state: State, scope: str, path: str, error: dict[str, Json]) -> State:
    """A pass is being given up: its container fails with it."""
    owner = frame_at(state, scope).owner
    if owner is None:
        return state
    container = state.containers[owner]
    # In `collect` a branch that fails is one result among others: its pass ends, its siblings go on.
    if container.kind == "parallel" and container.total == COLLECT:
        return state
    container = replace(container, error=container.error or {"path": path, **error})
    return replace(state, containers=state.containers.set(owner, container))


def node_failing(state: State, event: ev.NodeFailing) -> State:
    path = path_of(event)
    run = state.nodes[path]
    container = state.containers.get(path)
    if container is not None:
        state = drop_passes(state, path)
        if event.keeps:
            run = replace(run, kept=container.agent)
    handled = run.handled if event.list_id is None else (run.handled or 0) + 1
    run = replace(run, status="failing", error=event.error, reason=None, handled=handled)
    state = replace(state, nodes=state.nodes.set(path, run))
    if event.list_id is None:
        return state
    frames = state.frames.set(event.scope or "", Frame(event.list_id, path))
    container = ContainerRun(event.node_id, ON_FAILURE, 1, begun=1, running=1)
    return replace(state, frames=frames, containers=state.containers.set(path, container))


def drop_passes(state: State, path: str) -> State:
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
    return replace(
        state,
        frames=frames,
        nodes=nodes,
        active=active,
        timers=timers,
        containers=containers.delete(path) if path in containers else containers,
    )


def node_skipped(state: State, event: ev.NodeSkipped) -> State:
    path = path_of(event)
    before, scope = state.nodes.get(path), scope_of(path)
    if before is not None:
        skipped = replace(
            before, status="skipped", input=None, error=None, reason=event.reason, ended_at=event.timestamp
        )
        return finish(state, path, skipped)
    frame = frame_at(state, scope)
    index = frame.position if event.node_index is None else event.node_index
    run = NodeRun(
        event.node_id, event.node_type, index, "skipped", reason=event.reason, ended_at=event.timestamp
    )
    nodes, frame = enter(state, frame, path, event.node_id)
    return finish(replace(state, nodes=nodes, frames=state.frames.set(scope, frame)), path, run)


def node_interrupted(state: State, event: ev.NodeInterrupted) -> State:
    path = path_of(event)
    run = state.nodes[path]
    crashes = run.crashes + (event.reason == "crash")
    run = replace(run, status="interrupted", crashes=crashes, reason=event.reason)
    if event.reason == LEFT:
        run = replace(run, saved=event.saved)
    return replace(state, nodes=state.nodes.set(path, run))


def node_retried(state: State, event: ev.NodeRetried) -> State:
    path = path_of(event)
    run = state.nodes[path]
    if path in state.containers:
        state = drop_passes(state, path)
    run = replace(run, status="retrying", error=event.error, failures=run.failures + 1)
    timer = TimerRun(event.timer_id, path, event.due_at, "retry", None)
    return replace(state, nodes=state.nodes.set(path, run), timers=state.timers.set(event.timer_id, timer))


# --- graphs, jumps, containers -----------------------------------------------------------------------------


def edge_resolved(state: State, event: ev.EdgeResolved) -> State:
    frame = frame_at(state, event.scope)
    graph = frame.graph or Graph()
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
    graph = replace(graph, gates=gates, edges=edges, ready=ready, ended=ended)
    frame = replace(frame, graph=graph, jumps=jumps, error=frame.error or event.error)
    state = replace(state, frames=state.frames.set(event.scope, frame))
    if event.limit is not None:
        times = frame.loops.get(f"{event.node_id}>{event.limit}", 0)
        state = at_limit(state, path_of(event), event.limit, times)
    if event.error is None:
        return state
    return pass_failed(state, event.scope, event.path or "", event.error)


def at_limit(state: State, path: str, to: str | None, times: int) -> State:
    """The state with a limit that the session goes on at."""
    return replace(state, limits=(*state.limits, {"path": path, "to": to, "times": times}))


def loop_iterate(state: State, event: ev.LoopIterate) -> State:
    scope = scope_of(path_of(event))
    frame = frame_at(state, scope)
    frame = replace(
        frame,
        jumps=tuple(jump for jump in frame.jumps if event.reset and jump[0] not in event.reset),
        loops=frame.loops.set(f"{event.edge_from}>{event.edge_to}", event.iteration),
        position=event.position,
    )
    if frame.graph is not None:
        jumps = tuple(jump for jump in frame.jumps if jump != (event.edge_from, event.edge_to))
        frame = replace(frame, graph=reset(frame.graph, event), jumps=jumps)
    return replace(state, frames=state.frames.set(scope, frame))


def reset(graph: Graph, event: ev.LoopIterate) -> Graph:
    gates, again = graph.gates, graph.again
    for node_id in event.reset or ():
        gates, again = without(gates, node_id), again.set(node_id, None)
    for node_id, (known, yes) in (event.carried or {}).items():
        gates = gates.set(node_id, (known, yes))
    return replace(graph, gates=gates, again=again, ready=graph.ready.set(event.edge_to, None))


def container_started(state: State, event: ev.ContainerStarted) -> State:
    path = path_of(event)
    container = ContainerRun(event.node_id, event.kind, event.total, event.items, event.keys, event.inputs)
    return replace(state, containers=state.containers.set(path, container))


def iteration_started(state: State, event: ev.IterationStarted) -> State:
    path = path_of(event)
    container = container_at(state, path)
    moved = replace(container, begun=container.begun + 1, running=container.running + 1)
    return replace(
        state,
        containers=state.containers.set(path, moved),
        frames=state.frames.set(event.scope, Frame(event.list_id, path, event.index)),
    )


def iteration_completed(state: State, event: ev.IterationCompleted) -> State:
    path = path_of(event)
    container, frame = container_at(state, path), frame_at(state, event.scope)
    nodes, outputs = state.nodes, {}
    # In the order of the file: a map has none, and an output must look the same in every process.
    for node_id, inner in sorted(frame.nodes.items(), key=lambda item: state.nodes[item[1]].position):
        outputs[node_id] = nodes[inner].output
        nodes = nodes.delete(inner)
    outputs |= dict.fromkeys(event.unreached or ())
    result: dict[str, Json] = {"index": frame.order, "outputs": outputs}
    if event.error is not None:
        result["error"] = event.error
    if event.collected is not None:
        result["collected"] = event.collected
    # A pass of a `foreach` that has come to its end fails only with what it was to contribute.
    failed = event.error if container.kind == "foreach" else None
    moved = replace(
        container,
        running=container.running - 1,
        results=container.results.set(frame.order, result),
        last=outputs,
        error=container.error or failed,
    )
    return replace(
        state,
        nodes=nodes,
        containers=state.containers.set(path, moved),
        frames=state.frames.delete(event.scope),
    )


def container_completed(state: State, event: ev.ContainerCompleted) -> State:
    path = path_of(event)
    container, run = container_at(state, path), state.nodes[path]
    if container.kind == ON_FAILURE:
        return drop_passes(state, path)
    if event.limit is not None:
        state = at_limit(state, path, None, event.limit)
    done = replace(
        run,
        status="completed",
        output=container_output(container, run.input),
        input=None,
        ended_at=event.timestamp,
    )
    timer_id = timeout_id(state, path)
    if timer_id in state.timers:
        state = replace(state, timers=state.timers.delete(timer_id))
    return finish(replace(state, containers=state.containers.delete(path)), path, done)


def container_output(container: ContainerRun, config: Json) -> dict[str, Json]:
    """The output of a container, from what its passes gave. It shares their values and copies none."""
    results = [container.results[number] for number in sorted(container.results)]
    match container.kind:
        case "foreach":
            return _gone_through(container, results, (config or {}).get("collect") is not None)
        case "loop":
            return {"iterations": [{**result, "item": None} for result in results]}
        case "parallel":
            keys = container.keys or []
            return {"branches": {keys[result["index"]]: result["outputs"] for result in results}}
        case "switch":
            # `default` has the empty key.
            case = (container.keys[0] or None) if container.keys else None
            return {"case": case, "outputs": results[0]["outputs"] if results else {}}
        case "agent":
            return agent_output(container.agent or AgentRun())
        case _:
            return {"outputs": results[0]["outputs"] if results else {}}


def _gone_through(container: ContainerRun, results: list[dict[str, Json]], collects: bool) -> dict[str, Json]:
    items = container.items or []
    collected = [result.get("collected") for result in results]
    shown = [{name: value for name, value in result.items() if name != "collected"} for result in results]
    output: dict[str, Json] = {"iterations": [{**result, "item": items[result["index"]]} for result in shown]}
    return {**output, "collected": collected} if collects else output


def agent_output(agent: AgentRun) -> dict[str, Json]:
    """The output of an agent: its last answer, and what all of it has used. `cost` is in dollars."""
    return {
        "text": agent.text,
        "data": messages.data_in(agent.text)[0] if agent.structured else None,
        "turns": agent.spent.turns,
        "usage": dict(agent.usage),
        "cost": float(agent.spent.cost),
    }
