"""Graphs and jumps: which edges of a pass are taken, what may start because of them, and where a jump leads. Pure.

Once a node of a graph has an outcome, the edges that leave it are resolved for good, each condition evaluated once, and
`edge:resolved` records the results. An edge is dead when its condition is false or its source never ran; a source
skipped by its own `if` (or a person) passes on. A node with gate `all` may start once all its incoming edges are
resolved and one was taken, a node with gate `any` at the first that is taken. A node that can no longer be reached is
skipped, and its own edges are dead: so nothing waits forever.

A jump (a loop edge, or `on_error: goto:<id>`) waits until its target and all nodes after it have ended. Then these
nodes get another visit, whose paths end in `~2`, `~3`, ...
"""

from __future__ import annotations

from engine.decide import limits
from engine.decide.step import Step, evaluate_test
from engine.flow.model import Edge, NodeList
from engine.journal import events as ev
from engine.journal.queries import DEAD, given_up, open_prompt_at
from engine.journal.state import AGAIN, Asked, Frame, Graph, scope_of, visit_path
from engine.language.codec import Json
from engine.language.errors import ExpressionError


def is_through(nodes: NodeList, frame: Frame) -> bool:
    """True if every node of a pass has an outcome and no jump is left."""
    if frame.jumps:
        return False
    if not nodes.is_graph:
        return frame.position >= len(nodes.nodes)
    graph = frame.graph
    if graph is None or graph.ready or graph.ended or graph.again:
        return False
    return len(frame.nodes) == len(nodes.nodes)


def progress(step: Step, scope: str) -> None:
    """Write what follows in a pass: edges, skips and jumps."""
    frame = step.state.frames[scope]
    nodes = step.flow.lists[frame.list_id]
    if frame.error is not None or not (nodes.is_graph or frame.jumps):
        return
    if given_up(step.state, scope):
        return
    if nodes.is_graph:
        if frame.graph is None:
            step.emit(ev.EdgeResolved, scope=scope, ready=sorted(nodes.starts, key=nodes.rank.__getitem__))
        while ended := _ended(step, scope, nodes):
            _resolve(step, scope, nodes, ended[0])
    frame = step.state.frames[scope]
    if frame.error is not None:
        return
    # Carry out the first jump whose target, and all nodes after it, have ended.
    for source, target in frame.jumps:
        again = {target, *nodes.downstream(target)} if nodes.is_graph else None
        if again is None:
            if frame.running:
                continue
        elif not all(_has_ended(step, frame, node_id) for node_id in again):
            continue
        step.emit(
            ev.LoopIterate,
            path=frame.nodes[source],
            edge_from=source,
            edge_to=target,
            iteration=frame.loops.get(f"{source}>{target}", 0) + 1,
            position=nodes.by_id[target].index,
            reset=None if again is None else sorted(again, key=nodes.rank.__getitem__),
            carried=None if again is None else _carried(nodes, frame, again, target) or None,
        )
        return


def _ended(step: Step, scope: str, nodes: NodeList) -> list[str]:
    frame = step.state.frames[scope]
    if frame.error is not None or frame.graph is None:
        return []
    # A node whose loop edge people are asked about waits for them.
    open_ = [name for name in frame.graph.ended if open_prompt_at(step.state, frame.nodes[name]) is None]
    return sorted(open_, key=nodes.rank.__getitem__)


def _resolve(step: Step, scope: str, nodes: NodeList, node_id: str, decided: str | None = None) -> None:
    """Resolve the edges that leave a node, and skip nodes that can no longer be reached. `decided` is people's decision
    on its used-up loop edge; until then nothing is resolved."""
    frame = step.state.frames[scope]
    fields = {"path": frame.nodes[node_id], "scope": scope, "node_id": node_id}
    try:
        taken = {edge.to: _taken(step, scope, edge) for edge in nodes.outgoing[node_id]}
        loop, used_up = _loop_taken(step, scope, nodes, node_id)
    except ExpressionError as error:
        told: dict[str, Json] = {"type": error.code, "message": str(error)}
        step.emit(ev.EdgeResolved, **fields, ready=[], error=told)
        return
    decision = (decided or loop.on_limit) if loop is not None and used_up else AGAIN
    if loop is not None and decision == "ask":
        step.ask(frame.nodes[node_id], limits.edge_prompt(nodes.by_id[node_id], loop, _times(frame, loop)))
        return
    ready, dead = _opened(nodes, frame, taken)
    to = None if loop is None else loop.to
    ways = {"jump": to if decision == AGAIN else None, "limit": to if decision == "continue" else None}
    failed = None
    if loop is not None and decision == "fail":
        failed = limits.edge_error(step.state, frame.nodes[node_id], loop, _times(frame, loop))
    graph = frame.graph or Graph()
    goes_on = (
        ready or dead or any(ways.values()) or graph.ready or graph.again or frame.jumps or frame.running
    )
    over = not goes_on and list(graph.ended) == [node_id] and len(frame.nodes) == len(nodes.nodes)
    if over and failed is None:
        failed = _unreached(step, scope, nodes)
    step.emit(ev.EdgeResolved, **fields, taken=taken or None, ready=ready, **ways, error=failed)
    if failed is not None:
        return
    for target in dead:
        node = nodes.by_id[target]
        path = visit_path(step.state.frames[scope], scope, target)
        step.skip(path, target, node.type, DEAD, node.index)


def _taken(step: Step, scope: str, edge: Edge) -> bool:
    frame = step.state.frames[scope]
    run = step.state.nodes[frame.nodes[edge.from_]]
    if run.reason == DEAD or _jumped(frame, edge.from_):
        return False
    return _holds(step, scope, edge)


def _jumped(frame: Frame, node_id: str) -> bool:
    """True if a failure of this node jumps elsewhere."""
    return any(source == node_id for source, _ in frame.jumps)


def _holds(step: Step, scope: str, edge: Edge) -> bool:
    if edge.when is None:
        return True
    where = f"edge {edge.from_} -> {edge.to}: when"
    return evaluate_test(edge.when, step.flow, step.state, scope, step.facts.now, where)


def _loop_taken(step: Step, scope: str, nodes: NodeList, node_id: str) -> tuple[Edge | None, bool]:
    """The first loop edge that is taken, else the first that would be and is used up, and whether it is; only a node that
    ran leads back."""
    frame = step.state.frames[scope]
    if step.state.nodes[frame.nodes[node_id]].status == "skipped" or _jumped(frame, node_id):
        return None, False
    wanted = [edge for edge in nodes.loops[node_id] if _holds(step, scope, edge)]
    for edge in wanted:
        if _times(frame, edge) < (edge.max_iterations or 0):
            return edge, False
    return (wanted[0], True) if wanted else (None, False)


def _times(frame: Frame, edge: Edge) -> int:
    """Return how many times a loop edge was taken in this pass."""
    return frame.loops.get(f"{edge.from_}>{edge.to}", 0)


def limit_decided(step: Step, prompt: Asked, decision: str) -> None:
    """People said how to continue where a loop edge is used up."""
    scope = scope_of(prompt.path)
    nodes = step.flow.lists[step.state.frames[scope].list_id]
    _resolve(step, scope, nodes, step.state.nodes[prompt.path].node_id, decision)


def _unreached(step: Step, scope: str, nodes: NodeList) -> dict[str, Json] | None:
    """Return the error of a pass that ends without reaching any final node. A pass that continued at a limit may end
    anywhere."""
    state, frame = step.state, step.state.frames[scope]
    reached = any(state.nodes[frame.nodes[name]].reason != DEAD for name in nodes.finals)
    if reached or any(scope_of(limit["path"]) == scope for limit in state.limits):
        return None
    return limits.unreached_error(nodes.finals)


def _opened(nodes: NodeList, frame: Frame, taken: dict[str, bool]) -> tuple[list[str], list[str]]:
    """Return the targets that may start now, and those that can no longer be reached."""
    graph = frame.graph or Graph()
    ready, dead = [], []
    for target, yes in taken.items():
        if (target in frame.nodes and target not in graph.again) or target in graph.ready:
            continue
        known, some = graph.gates.get(target, (0, 0))
        all_known = known + 1 == len(nodes.incoming[target])
        if (yes and nodes.gate(target) == "any") or (all_known and some + yes):
            ready.append(target)
        elif all_known:
            dead.append(target)
    return sorted(ready, key=nodes.rank.__getitem__), dead


# --- jumps -------------------------------------------------------------------------------------------------


def _has_ended(step: Step, frame: Frame, node_id: str) -> bool:
    graph = frame.graph or Graph()
    if node_id not in frame.nodes or node_id in graph.again or node_id in graph.ended:
        return False
    return frame.nodes[node_id] not in step.state.active


def _carried(nodes: NodeList, frame: Frame, again: set[str], target: str) -> dict[str, list[int]]:
    """Return, for nodes that get another visit, the results of edges from nodes that get none.

    A gate `any` waits for one that is new: the old ones have let it through before.
    """
    edges = (frame.graph or Graph()).edges
    found: dict[str, list[int]] = {}
    for node_id in sorted(again - {target}):
        results = [
            edges.get(f"{edge.from_}>{node_id}")
            for edge in nodes.incoming[node_id]
            if edge.from_ not in again
        ]
        known = [result for result in results if result is not None]
        if known:
            found[node_id] = [len(known), sum(known) if nodes.gate(node_id) == "all" else 0]
    return found
