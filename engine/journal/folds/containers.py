"""The fold of graphs, jumps and containers."""

from __future__ import annotations

from msgspec.structs import replace

from engine.journal import events as ev
from engine.journal.folds.nodes import drop_passes, finish, pass_failed, without
from engine.journal.grammar.common import container_at, frame_at, path_of
from engine.journal.grammar.ids import timeout_id
from engine.journal.state import ON_FAILURE, AgentRun, ContainerRun, Frame, Graph, State, scope_of
from engine.language.codec import Json
from engine.messages import final_answer


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
        "data": final_answer.data_in(agent.text)[0] if agent.structured else None,
        "turns": agent.spent.turns,
        "usage": dict(agent.usage),
        "cost": float(agent.spent.cost),
    }
