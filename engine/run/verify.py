"""Checks of a history that need the flow's text: its nodes, lists, edges, types and time limits. Pure.

The fold omits these, since a session outlives texts: they are for readers of a whole journal with its flow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from engine.decide.agents.kinds import KINDS
from engine.decide.due import due, only_waits
from engine.decide.edges import is_through
from engine.decide.step import node_at
from engine.flow import Flow, Node
from engine.flow.model import NodeList
from engine.flow.node import plan_of
from engine.journal import events as ev
from engine.journal.events import Event
from engine.journal.fold import evolve
from engine.journal.grammar import frame_at, same, timeout_id
from engine.journal.queries import agent_of
from engine.journal.state import FINALLY, ROOT, Frame, State, scope_of
from engine.language.errors import MalformedJournal


def verify(events: Iterable[Event], flow: Flow | None = None) -> State:
    """Return the state of a whole journal. Raises `MalformedJournal`, naming the first event that cannot follow and
    why.

    With the flow that its session pinned, its nodes are compared with the text too: all of them, or in a migrated
    session those after the last migration.
    """
    events = list(events)
    since = max((event.seq for event in events if event.type == "flow:migrated"), default=0)
    state = State()
    for event in events:
        after = evolve(state, event)
        if flow is not None and event.seq > since:
            _compare(flow, state, event)
        state = after
    if state.owed:
        types = " or ".join(state.owed[0].types)
        raise MalformedJournal(
            f"the journal ends in the middle of a step: {types} is missing after event {state.seq}"
        )
    if flow is not None and events and state.flow_digest != flow.digest:
        raise MalformedJournal(f"the session pinned the flow {state.flow_digest}, but this is {flow.digest}")
    return state


def _compare(flow: Flow, state: State, event: Event) -> None:
    rule = _TEXT.get(event.type)
    if rule is None:
        return
    try:
        rule(flow, state, event)
    except MalformedJournal as error:
        raise MalformedJournal(f"event {event.seq} ({event.type}): {error}") from None


def _list_at(flow: Flow, frame: Frame) -> NodeList:
    nodes = flow.lists.get(frame.list_id)
    if nodes is None:
        raise MalformedJournal(f"the flow has no list {frame.list_id}")
    return nodes


def _defined(flow: Flow, state: State, path: str, node_id: str) -> Node | None:
    """Return the text's definition of a node; None for a part of a conversation."""
    frame = frame_at(state, scope_of(path))
    if frame.owner is not None and state.containers[frame.owner].agent is not None:
        return None
    node = _list_at(flow, frame).by_id.get(node_id)
    if node is None:
        raise MalformedJournal(f"the flow has no node {node_id} there")
    return node


# --- nodes -------------------------------------------------------------------------------------------------------


def _started(flow: Flow, state: State, event: ev.Start) -> None:
    path = event.at
    node = _defined(flow, state, path, event.own_id)
    if node is None:
        owner = frame_at(state, scope_of(path)).owner or ""
        agent = state.containers[owner].agent
        call = None if agent is None else agent.calls.get(path)
        if call is None:
            _has_its_time_limit(flow, state, owner)
            return
        plan = plan_of(node_at(flow, state, owner))
        if call.tool is not None and call.tool < len(plan.tools):
            same(event.node_type, plan.tools[call.tool].node.type, "type")
        asks = any(rule.tool == call.name and rule.when is None for rule in plan.rules)
        if asks and call.prompt_id is None and not any(path in grant.uses for grant in state.grants.values()):
            raise MalformedJournal(
                f"nobody was asked about {path}, a call of {call.name}, and no grant was used"
            )
    else:
        same((event.node_type, event.index), (node.type, node.index), "type and index")


def _skipped(flow: Flow, state: State, event: ev.NodeSkipped) -> None:
    node = _defined(flow, state, event.at, event.node_id)
    if node is None:
        return
    same(event.node_type, node.type, "type")
    if event.node_index is not None:
        same(event.node_index, node.index, "index")


def _failing(flow: Flow, state: State, event: ev.NodeFailing) -> None:
    node = _defined(flow, state, event.at, event.node_id)
    if node is not None:
        same(event.list_id, node.on_failure, "list")


def _failed(flow: Flow, state: State, event: ev.NodeFailed) -> None:
    if event.goto is not None:
        _defined(flow, state, event.at, event.goto)


# --- passes ------------------------------------------------------------------------------------------------------


def _iteration_started(flow: Flow, state: State, event: ev.IterationStarted) -> None:
    node = node_at(flow, state, event.at) if agent_of(state, event.at) is None else None
    if node is None:
        return
    key = "body" if event.key is None else event.key
    same(event.list_id, f"@{node.calls}/" if node.calls is not None else node.lists.get(key), "list")
    if event.index == 0:
        _has_its_time_limit(flow, state, event.at)


def _has_its_time_limit(flow: Flow, state: State, path: str) -> None:
    """The time limit of a container is set before anything in it begins."""
    container = state.containers[path]
    if agent_of(state, path) is not None or container.error is not None:
        return
    node = node_at(flow, state, path)
    if node.timeout is not None and timeout_id(state, path) not in state.timers:
        raise MalformedJournal(f"before it the timer {timeout_id(state, path)} is missing")


def _iteration_completed(flow: Flow, state: State, event: ev.IterationCompleted) -> None:
    frame = frame_at(state, event.scope)
    nodes = _list_at(flow, frame)
    if frame.error is None:
        _through(nodes, frame, event.scope)
    else:
        left = [node.id for node in nodes.nodes if node.id not in frame.nodes]
        same(event.unreached, left or None, "nodes that it did not come to")


def _through(nodes: NodeList, frame: Frame, where: str) -> None:
    if not is_through(nodes, frame):
        left = ", ".join(node.id for node in nodes.nodes if node.id not in frame.nodes)
        raise MalformedJournal(f"{where or 'the flow'} has not finished: {left or 'a jump'} is pending")


def _edge_resolved(flow: Flow, state: State, event: ev.EdgeResolved) -> None:
    nodes = _list_at(flow, frame_at(state, event.scope))
    if event.path is None:
        same(sorted(event.ready), sorted(nodes.starts), "first nodes")
    elif event.error is None:
        node_id = event.node_id or ""
        same(sorted(event.taken or {}), sorted(edge.to for edge in nodes.outgoing[node_id]), "edges")
        back = event.jump or event.limit
        if back is not None and back not in [edge.to for edge in nodes.loops[node_id]]:
            raise MalformedJournal(f"no loop edge leads from {node_id} to {back}")


def _jumped(flow: Flow, state: State, event: ev.LoopIterate) -> None:
    nodes = _list_at(flow, frame_at(state, scope_of(event.at)))
    if event.edge_to not in nodes.by_id:
        raise MalformedJournal(f"the flow has no node {event.edge_to} there")
    same(event.position, nodes.by_id[event.edge_to].index, "position")
    if nodes.is_graph:
        same(set(event.reset or ()), {event.edge_to, *nodes.downstream(event.edge_to)}, "nodes")


def _tool_requested(flow: Flow, state: State, event: ev.AgentToolRequested) -> None:
    owner = agent_of(state, scope_of(event.at)) or ""
    if agent_of(state, owner) is not None:
        return
    places = {tool.name: tool.node.index for tool in plan_of(node_at(flow, state, owner)).tools}
    same(event.tool, places.get(event.name), "tool")


# --- the session -------------------------------------------------------------------------------------------------


def _flow_started(flow: Flow, state: State, event: ev.FlowStarted) -> None:
    same(sorted(event.input), sorted(flow.inputs), "inputs")


def _paused(flow: Flow, state: State, event: ev.FlowPaused) -> None:
    waits = state.inputs is None or event.held or (state.lock is not None and state.lock.acquired_at is None)
    if not waits and not (only_waits(state) and not due(flow, state, KINDS)):
        raise MalformedJournal("something could continue, or it waits for nothing")


def _over(flow: Flow, state: State, event: ev.FlowCompleted | ev.FlowFinalizing) -> None:
    if isinstance(event, ev.FlowFinalizing):
        same(event.list_id, flow.finally_list, "list")
    if isinstance(event, ev.FlowCompleted) or event.outcome == "complete":
        scope = FINALLY if state.phase == "finalizing" else ROOT
        frame = frame_at(state, scope)
        if not (scope == FINALLY and state.finally_skipped):
            _through(_list_at(flow, frame), frame, scope)


def _aborted(flow: Flow, state: State, event: ev.SessionAborted) -> None:
    if state.phase == "finalizing" and flow.finally_list is None:
        raise MalformedJournal("the session is ending, but its flow has no `finally` to skip")


_TEXT: dict[str, Callable[[Flow, State, Any], None]] = {
    "flow:started": _flow_started,
    "flow:paused": _paused,
    "flow:finalizing": _over,
    "flow:completed": _over,
    "session:abort": _aborted,
    "node:started": _started,
    "container:childStarted": _started,
    "node:skipped": _skipped,
    "node:failing": _failing,
    "node:error": _failed,
    "container:iterationStarted": _iteration_started,
    "container:iterationCompleted": _iteration_completed,
    "edge:resolved": _edge_resolved,
    "loop:iterate": _jumped,
    "agent:toolRequested": _tool_requested,
}
"""Checks by event type, called with the state before the event."""
