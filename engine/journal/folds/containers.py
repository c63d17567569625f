"""What happens to graphs, jumps and containers."""

from __future__ import annotations

from msgspec.structs import replace

from engine.journal import events as ev
from engine.journal.folds.nodes import drop_passes, finish, pass_failed, without
from engine.journal.grammar import (
    container_at,
    frame_at,
    pass_scope,
    path_of,
    run_at,
    same,
    through,
    timeout_id,
)
from engine.journal.queries import agent_of, rest_id
from engine.journal.state import COLLECT, ON_FAILURE, AgentRun, ContainerRun, Frame, Graph, State, scope_of
from engine.language.codec import Json
from engine.language.errors import MalformedJournal
from engine.messages import messages


def edge_resolved(state: State, event: ev.EdgeResolved) -> State:
    frame = frame_at(state, event.scope)
    graph = _graph_begins(frame, event) if event.path is None else _node_ended(state, frame, event)
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


def _node_ended(state: State, frame: Frame, event: ev.EdgeResolved) -> Graph:
    graph = frame.graph
    if graph is None or event.node_id is None or event.node_id not in graph.ended:
        raise MalformedJournal(f"the edges of {event.node_id} are resolved already, or it has no outcome yet")
    same(event.path, frame.nodes[event.node_id], "path")
    if (event.jump, event.limit, event.error).count(None) < 2:
        raise MalformedJournal("a pass jumps, goes on at a limit, or fails")
    if event.limit is not None and event.limit not in frame.nodes:
        raise MalformedJournal(f"a loop leads back, and {event.limit} did not run")
    if any(state.prompts[key].path == event.path for key in state.open_prompts):
        raise MalformedJournal(f"people are asked about the loop edge that leaves {event.node_id}")
    _ready(frame, graph, event)
    return graph


def _graph_begins(frame: Frame, event: ev.EdgeResolved) -> Graph:
    told = (event.node_id, event.taken, event.jump or event.limit, event.error)
    if frame.graph is not None or frame.nodes:
        raise MalformedJournal(f"{event.scope or 'the flow'} has begun before")
    if told != (None, None, None, None) or not event.ready:
        raise MalformedJournal("a pass begins with the nodes that may start, and nothing else")
    return Graph()


def _ready(frame: Frame, graph: Graph, event: ev.EdgeResolved) -> None:
    """Each node that may start now has an edge that leads there and is taken, and is not on its way yet."""
    taken = event.taken or {}
    for node_id in event.ready:
        led = taken.get(node_id) or graph.gates.get(node_id, (0, 0))[1]
        if node_id not in taken or not led:
            raise MalformedJournal(f"no edge that is taken leads to {node_id}")
        if node_id in graph.ready or (node_id in frame.nodes and node_id not in graph.again):
            raise MalformedJournal(f"{node_id} is on its way already")


def at_limit(state: State, path: str, to: str | None, times: int) -> State:
    """The state with a limit that the session goes on at."""
    return replace(state, limits=(*state.limits, {"path": path, "to": to, "times": times}))


def loop_iterate(state: State, event: ev.LoopIterate) -> State:
    path = path_of(event)
    scope = scope_of(path)
    frame = frame_at(state, scope)
    same(path, frame.nodes.get(event.edge_from), "path")
    if (event.edge_from, event.edge_to) not in frame.jumps:
        raise MalformedJournal(f"no jump from {event.edge_from} to {event.edge_to} is decided")
    same(event.iteration, frame.loops.get(f"{event.edge_from}>{event.edge_to}", 0) + 1, "iteration")
    target = frame.nodes.get(event.edge_to)
    if target is not None:
        same(event.position, state.nodes[target].position, "position")
    if frame.graph is None:
        _no_reset(frame, event)
    else:
        _resets(state, frame, frame.graph, event)
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


def _no_reset(frame: Frame, event: ev.LoopIterate) -> None:
    if event.reset is not None or event.carried is not None or frame.running:
        raise MalformedJournal("a jump in a list waits for what runs, and resets nothing")


def _resets(state: State, frame: Frame, graph: Graph, event: ev.LoopIterate) -> None:
    """All that gets another visit has ended, the target with it."""
    again = event.reset or []
    if event.edge_to not in again or len(set(again)) < len(again):
        raise MalformedJournal(f"{event.edge_to} gets another visit, and what comes after it, each once")
    for node_id in again:
        path = frame.nodes.get(node_id)
        if path is None or node_id in graph.again or node_id in graph.ended or path in state.active:
            raise MalformedJournal(f"{node_id} has not ended, so it gets no other visit")
    for node_id in event.carried or {}:
        if node_id not in again or node_id == event.edge_to:
            raise MalformedJournal(f"{node_id} gets no other visit, so nothing counts on for it")


def reset(graph: Graph, event: ev.LoopIterate) -> Graph:
    gates, again = graph.gates, graph.again
    for node_id in event.reset or ():
        gates, again = without(gates, node_id), again.set(node_id, None)
    for node_id, (known, yes) in (event.carried or {}).items():
        gates = gates.set(node_id, (known, yes))
    return replace(graph, gates=gates, again=again, ready=graph.ready.set(event.edge_to, None))


def container_started(state: State, event: ev.ContainerStarted) -> State:
    path = path_of(event)
    run = run_at(state, path, "started")
    same((event.node_id, event.kind), (run.node_id, run.type), "container")
    if not state.owed or path in state.containers:
        raise MalformedJournal(f"container {path} was started before")
    _says(event)
    if event.kind == "foreach":
        same(event.items, (run.input or {}).get("items"), "items")
    container = ContainerRun(event.node_id, event.kind, event.total, event.items, event.keys, event.inputs)
    return replace(state, containers=state.containers.set(path, container))


def _says(event: ev.ContainerStarted) -> None:
    """It says of what it goes through exactly what its kind has to say."""
    names = _SAYS[event.kind]
    for name in ("total", "items", "keys", "inputs", "agent"):
        if (getattr(event, name) is not None) != (name in names):
            raise MalformedJournal(
                f"a {event.kind} says {' and '.join(names) or 'nothing'} of what it goes through"
            )
    keys = len(event.keys or [])
    match event.kind:
        case "foreach":
            same(event.total, len(event.items or []), "total")
        case "parallel" if not keys or event.total not in (COLLECT, keys):
            raise MalformedJournal(f"its total is not the number of its branches, {keys}")
        case "switch":
            same((event.total, keys < 2), (keys, True), "total")
        case "flow":
            same(event.total, 1, "total")
        case "agent":
            told = event.agent or {}
            if not all(isinstance(told.get(name), str) for name in ("model", "turnList", "toolList")):
                raise MalformedJournal("an agent has a model, and lists of its model calls and tools")


_SAYS: dict[str, tuple[str, ...]] = {
    "foreach": ("items", "total"),
    "loop": (),
    "parallel": ("keys", "total"),
    "switch": ("keys", "total"),
    "flow": ("inputs", "total"),
    "agent": ("agent",),
}


def iteration_started(state: State, event: ev.IterationStarted) -> State:
    path = path_of(event)
    container = container_at(state, path)
    if container.kind in ("agent", ON_FAILURE) or container.error is not None:
        raise MalformedJournal(f"{path} goes through no list, or is being given up")
    same(event.index, container.begun, "index")
    # A flow that a model called as a tool has the tool's id in the flow, and the call's in the conversation.
    if agent_of(state, path) is None:
        same(event.node_id, container.node_id, "container")
    if container.begun >= _passes(container):
        raise MalformedJournal(f"{path} has {container.begun} passes, and all of them have begun")
    if container.running >= _at_once(state, path, container):
        raise MalformedJournal(
            f"{path} has {container.running} passes under way, and no room for another one"
        )
    same(event.key, container.keys[event.index] if container.keys else None, "key")
    scope = pass_scope(path, state.nodes[path], container, event.index)
    if event.scope != scope:
        same(event.scope, scope, "scope")
    moved = replace(container, begun=container.begun + 1, running=container.running + 1)
    return replace(
        state,
        containers=state.containers.set(path, moved),
        frames=state.frames.set(event.scope, Frame(event.list_id, path, event.index)),
    )


def _passes(container: ContainerRun) -> float:
    """How many passes a container has; a loop only its condition knows."""
    if container.kind == "loop":
        return float("inf")
    return len(container.keys) if container.keys is not None else container.total or 0


def _at_once(state: State, path: str, container: ContainerRun) -> float:
    """How many passes of a container may be under way."""
    if container.kind == "parallel":
        return float("inf")
    return int((state.nodes[path].input or {}).get("concurrency") or 1) if container.kind == "foreach" else 1


def iteration_completed(state: State, event: ev.IterationCompleted) -> State:
    path = path_of(event)
    container, frame = container_at(state, path), frame_at(state, event.scope)
    if frame.owner != path or container.agent is not None:
        raise MalformedJournal(f"{event.scope} is no pass of {path}")
    same((event.node_id, event.index), (container.node_id, frame.order), "place")
    if container.error is not None:
        raise MalformedJournal(f"{path} is being given up")
    # A pass of a `foreach` that came to its end can fail with what it was to contribute.
    collects = container.kind == "foreach" and frame.error is None
    if not collects:
        same((event.error, event.collected), (frame.error, None), "error")
    if frame.error is None:
        through(frame, event.scope)
        same(event.unreached, None, "nodes that it did not come to")
    elif frame.running or any(node_id in frame.nodes for node_id in event.unreached or ()):
        raise MalformedJournal(f"{event.scope} is not over, or came to what it says that it did not come to")
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
    container = container_at(state, path)
    same(event.node_id, container.node_id, "container")
    if container.kind == ON_FAILURE:
        over = not container.running or container.error is not None
    elif container.agent is not None:
        agent = container.agent
        over = container.error is None and agent.final and not agent.calls
    elif event.limit is not None and (container.kind != "loop" or event.limit != container.begun):
        over = False
    else:
        begun = container.kind == "loop" or container.begun == _passes(container)
        over = container.error is None and begun and not container.running
    if not over:
        raise MalformedJournal(f"container {path} is not over")
    run = state.nodes[path]
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
    timers = without(without(state.timers, timeout_id(state, path)), rest_id(state, path))
    state = replace(state, timers=timers)
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
