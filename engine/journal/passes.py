"""Passes through lists of nodes: how they continue, and how they end. Pure."""

from typing import Any

from immutables import Map
from msgspec.structs import replace

from engine.journal.grammar import frame_at
from engine.journal.state import (
    COLLECT,
    ContainerRun,
    Frame,
    Graph,
    NodeRun,
    State,
    below,
    scope_of,
    visit_of,
)
from engine.language.codec import Json, encode
from engine.language.errors import MalformedJournal


def enter(
    state: State, frame: Frame, path: str, node_id: str, running: int = 0
) -> tuple[Map[str, NodeRun], Frame]:
    """Begin a visit of a node: the previous one is dropped, and edges that led here no longer count. `running` is 1 if
    the node runs."""
    earlier, nodes = frame.nodes.get(node_id), state.nodes
    if earlier is not None:
        if not frame.loops or earlier in state.active or visit_of(path) != visit_of(earlier) + 1:
            raise MalformedJournal(f"{earlier} is already in this iteration")
        nodes = nodes.delete(earlier)
    return nodes, replace(
        frame,
        nodes=frame.nodes.set(node_id, path),
        running=frame.running + running,
        graph=frame.graph and begun(frame.graph, node_id),
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
        error=frame.error or error,
        graph=frame.graph and replace(frame.graph, ended=frame.graph.ended.set(run.node_id, None)),
    )
    return replace(
        state,
        nodes=state.nodes.set(path, run if run.kept is None else replace(run, kept=None)),
        active=state.active.delete(path) if path in state.active else state.active,
        launched=state.launched.delete(path) if path in state.launched else state.launched,
        frames=state.frames.set(scope, frame),
    )


def left(state: State, path: str, run: NodeRun) -> State:
    """Record that a node is no longer running and has no final outcome yet."""
    return replace(state, nodes=state.nodes.set(path, run), launched=without(state.launched, path))


def drop_passes(state: State, path: str) -> State:
    """Forget everything inside a container that has ended, and its own time limit."""
    frames, nodes, containers, timers = state.frames, state.nodes, state.containers, state.timers
    active, launched = state.active, state.launched
    for scope, frame in state.frames.items():
        if scope and below(path, scope):
            frames = frames.delete(scope)
            for inner in frame.nodes.values():
                nodes = nodes.delete(inner)
                active, launched = without(active, inner), without(launched, inner)
                containers = without(containers, inner)
    for timer_id, timer in state.timers.items():
        inside = timer.path is not None and timer.path != path and below(path, timer.path)
        if inside or (timer.path == path and timer.purpose == "timeout"):
            timers = timers.delete(timer_id)
    return replace(
        state,
        frames=frames,
        nodes=nodes,
        active=active,
        launched=launched,
        timers=timers,
        containers=without(containers, path),
    )


_MOST_DONE, _MOST_BYTES = 20, 200
"""Limits for a failed loop: finished items that are kept, and bytes of an item."""


def passes_at_failure(state: State, path: str, container: ContainerRun) -> dict[str, Json] | None:
    """Return the record of a failed container's passes (`NodeRun.passes`); None if nothing in it had an item."""
    items: dict[str, Json] = {}
    for at, run in state.nodes.items():
        if run.passes is not None and below(path, at):
            items |= run.passes["items"]
    if container.kind != "foreach" or container.items is None:
        return {"items": items} if items else None
    kept = [item if len(encode(item)) <= _MOST_BYTES else None for item in container.items]
    failed = str((container.error or {}).get("path")).removeprefix(f"{path}[").partition("]")[0]
    if failed.isdecimal() and int(failed) < len(kept):
        items[f"{path}[{failed}]"] = kept[int(failed)]
    done = sorted(container.results)
    first = [kept[number] for number in done[:_MOST_DONE]]
    return {"items": items, "done": first, "count": len(done), "total": container.total}


def pass_failed(state: State, scope: str, path: str, error: dict[str, Json]) -> State:
    """Fail the container of a pass that has failed."""
    owner = frame_at(state, scope).owner
    if owner is None:
        return state
    container = state.containers[owner]
    # With `collect` a failed branch is one result among others: its pass ends, its siblings continue.
    if container.kind == "parallel" and container.total == COLLECT:
        return state
    container = replace(container, error=container.error or {"path": path, **error})
    return replace(state, containers=state.containers.set(owner, container))


def at_limit(state: State, path: str, to: str | None, times: int) -> State:
    """The state with a limit that the session continues at."""
    return replace(state, limits=(*state.limits, {"path": path, "to": to, "times": times}))
