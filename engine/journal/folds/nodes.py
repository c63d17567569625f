"""What happens to nodes: starts, outcomes, interruptions, tries."""

from __future__ import annotations

from typing import Any, TypeAlias

from immutables import Map
from msgspec.structs import replace

from engine.journal import events as ev
from engine.journal.grammar import (
    closed_prompt,
    failure_scope,
    frame_at,
    owner_of,
    path_of,
    retry_id,
    run_at,
    same,
)
from engine.journal.queries import TURN, holds, unanswered
from engine.journal.state import (
    AGAIN,
    ASKS,
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
    in_finally,
    scope_of,
    visit_of,
    visit_path,
)
from engine.language.codec import Json
from engine.language.errors import MalformedJournal
from engine.nodes.types.registry import MISSING, mode_of

DEAD = "no edge that leads to it was taken"
"""Why a node was skipped that nothing led to; its own edges are dead then."""


def node_started(state: State, event: ev.NodeStarted) -> State:
    path = path_of(event)
    scope = scope_of(path)
    frame = frame_at(state, scope)
    if frame.owner is not None:
        raise MalformedJournal(f"{path} stands in {frame.owner}, so it begins as a child of that")
    return _started(state, event, (path, scope, event.node_id, event.node_index), frame)


def child_started(state: State, event: ev.ChildStarted) -> State:
    path = path_of(event)
    scope = scope_of(path)
    frame = frame_at(state, scope)
    if frame.owner is None:
        raise MalformedJournal(f"{path} stands in no container, so it is nobody's child")
    if event.node_id != state.nodes[frame.owner].node_id:
        same(event.node_id, state.nodes[frame.owner].node_id, "container")
    return _started(state, event, (path, scope, event.child_id, event.child_index), frame)


Place: TypeAlias = tuple[str, str, str, int]
"""Path, address of the pass, id and index of a node."""


def _started(state: State, event: ev.NodeStarted | ev.ChildStarted, place: Place, frame: Frame) -> State:
    path, scope, node_id, index = place
    if state.phase != "running":
        _may_begin(state, path, event.timestamp)
    before, nodes, at, counted = state.nodes.get(path), state.nodes, event.timestamp, (0, 0)
    if before is None:
        if event.attempt != 1:
            same(event.attempt, 1, "attempt")
        _begins(state, event, frame, place)
        nodes, frame = enter(state, frame, path, node_id, running=1)
    else:
        _begins_again(state, event, before, (node_id, index))
        at, counted = before.started_at or at, (before.crashes, before.failures)
    tried = (event.epoch, event.attempt, *counted)
    run = NodeRun(node_id, event.node_type, index, "started", at, None, *tried, event.input)
    if before is not None:
        run = replace(run, saved=before.saved, handled=before.handled, kept=before.kept)
    moved = replace(
        state,
        nodes=nodes.set(path, run),
        active=state.active.set(path, None),
        launched=state.launched.set(path, None) if mode_of(run.type) == "run" else state.launched,
        frames=state.frames.set(scope, frame),
        pending=_undelivered(state),
        # What a pause or a crash starts again has been counted: neither takes a session nearer to its limit.
        node_runs=state.node_runs + (before is None),
    )
    return moved


def _may_begin(state: State, path: str, now: str) -> None:
    """Whether anything begins there. Earlier releases began what was due before in a step that ended the flow."""
    if state.phase == "running" or (state.phase == "finalizing" and now == state.updated_at):
        return
    if state.phase != "finalizing" or state.finally_skipped or not in_finally(path):
        raise MalformedJournal(f"{path} cannot begin while the session is {state.phase}")


def _begins(state: State, event: ev.NodeStarted | ev.ChildStarted, frame: Frame, place: Place) -> None:
    """A node that has not run begins at the next place of its list, or where edges or a model's calls lead."""
    path, scope, node_id, index = place
    if frame.error is not None:
        raise MalformedJournal(f"{scope or 'the flow'} has failed, so that nothing begins there")
    owner = None if frame.owner is None else state.containers[frame.owner]
    # Earlier releases began what was due before in the step in which a node beside it failed.
    if owner is not None and owner.error is not None and event.timestamp != state.updated_at:
        raise MalformedJournal(f"{frame.owner} has failed, so that nothing begins there")
    if owner is not None and owner.agent is not None:
        _begins_in_agent(state, event.node_type, path, frame, owner.agent, (node_id, index))
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


def _begins_in_agent(
    state: State, kind: str, path: str, frame: Frame, agent: AgentRun, place: tuple[str, int]
) -> None:
    if frame.list_id == agent.lists[0]:
        same(kind, TURN, "type")
        same(place, (f"turn[{len(frame.nodes) + 1}]", 0), "place")
        if frame.running or agent.calls or agent.final or agent.stuck:
            raise MalformedJournal(
                f"{frame.owner} has tool calls without a result, its last answer, or is stuck"
            )
        _has_something_to_answer(agent, path)
    else:
        call = agent.calls.get(path)
        if call is None:
            raise MalformedJournal(f"nobody asked for {path}, or it has its result")
        if call.prompt_id in state.open_prompts:
            raise MalformedJournal(f"the question {call.prompt_id} about it is not decided")
        same(place[1], call.tool, "index")
    same(path, f"{scope_of(path)}/{place[0]}", "path")


def _has_something_to_answer(agent: AgentRun, path: str) -> None:
    said = agent.pending or agent.order or agent.resends or holds(agent) or not agent.messages
    if not said and agent.messages[len(agent.messages) - 1]["role"] == "assistant":
        raise MalformedJournal(f"nobody said anything since the last answer, so {path} has nothing to answer")


def _begins_again(
    state: State, event: ev.NodeStarted | ev.ChildStarted, before: NodeRun, place: tuple[str, int]
) -> None:
    if before.status != "interrupted":
        raise MalformedJournal(f"{event.path} was started before and is {before.status}")
    same(place, (before.node_id, before.position), "place")
    same(event.attempt, before.attempt + 1, "attempt")
    closed_prompt(state, before)
    # After a migration what could not run begins as what the new text has there.
    anew = before.reason == AGAIN and before.input is None
    if not anew:
        same(event.node_type, before.type, "type")
    if event.input is not None and before.input is not None and before.type != TURN:
        same(event.input, before.input, "input")


def _undelivered(state: State) -> tuple[tuple[str, str], ...]:
    """Which messages are still pending once a node began, whose expressions have them all: those that an agent heard
    wait for its next model call."""
    if not state.pending:
        return ()
    heard = {key for run in state.containers.values() if run.agent is not None for key in run.agent.heard}
    return tuple(message for message in state.pending if message[0] in heard)


def enter(
    state: State, frame: Frame, path: str, node_id: str, running: int = 0
) -> tuple[Map[str, NodeRun], Frame]:
    """A visit of a node begins: the one before it is forgotten, and no edge that led here counts any more. `running` is 1
    where the node runs."""
    earlier, nodes = frame.nodes.get(node_id), state.nodes
    if earlier is not None:
        if not frame.loops or earlier in state.active or visit_of(path) != visit_of(earlier) + 1:
            raise MalformedJournal(f"{earlier} stands in this pass already")
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
    """Nobody executes a node any more, which has no final outcome yet."""
    return replace(state, nodes=state.nodes.set(path, run), launched=without(state.launched, path))


def node_completed(state: State, event: ev.NodeCompleted | ev.ChildCompleted) -> State:
    path = path_of(event)
    run = run_at(state, path, "started", "interrupted")
    if event.node_id != run.node_id:
        same(event.node_id, run.node_id, "node")
    if owner_of(state, path) is not None:
        raise MalformedJournal(f"{path} stands in a container, so it completes as a child of that")
    return _completed(state, path, run, event)


def child_completed(state: State, event: ev.ChildCompleted) -> State:
    path = path_of(event)
    run = run_at(state, path, "started", "interrupted")
    owner = owner_of(state, path)
    if owner is None or state.containers[owner].agent is not None:
        raise MalformedJournal(f"{path} is no child of a container that goes through a list")
    if event.child_id != run.node_id or event.node_id != state.nodes[owner].node_id:
        same((event.node_id, event.child_id), (state.nodes[owner].node_id, run.node_id), "place")
    return _completed(state, path, run, event)


def _completed(state: State, path: str, run: NodeRun, event: ev.NodeCompleted | ev.ChildCompleted) -> State:
    """The node has come to its end, where it can have by what its type waits for."""
    mode = mode_of(run.type)
    if mode == "container":
        raise MalformedJournal(f"{path} is a container, which completes as one")
    if run.status == "interrupted":
        _done_by_hand(state, path, run)
    elif mode == "prompt":
        _decided(state, path, run, event.output)
    elif mode in ("timer", "pure") and not state.owed:
        raise MalformedJournal(f"{path} has not come to its time, or did not just begin")
    done = replace(
        run, status="completed", output=event.output, input=None, saved=None, ended_at=event.timestamp
    )
    return finish(state, path, done)


def _done_by_hand(state: State, path: str, run: NodeRun) -> None:
    prompt = closed_prompt(state, run)
    if prompt is None or prompt.kind != "interrupted" or (prompt.answer or {}).get("value") != "done":
        raise MalformedJournal(f"{path} was interrupted, and nobody said that it is done")


def _decided(state: State, path: str, run: NodeRun, output: Json) -> None:
    prompt = closed_prompt(state, run)
    if prompt is None or prompt.status not in ("answered", "expired"):
        raise MalformedJournal(f"{path} completed without an answer")
    told = output if isinstance(output, dict) else {}
    if prompt.answer is not None and prompt.kind == "approval":
        same(told.get("decision"), prompt.answer.get("value"), "decision")
    elif prompt.answer is not None:
        same(told.get("text"), prompt.answer.get("text"), "answer")


def node_failing(state: State, event: ev.NodeFailing) -> State:
    path = path_of(event)
    run = run_at(state, path, "started", "interrupted")
    _breaks(state, path, run, event)
    scope = None if event.list_id is None else failure_scope(path, run)
    same(event.scope, scope, "scope")
    container = state.containers.get(path)
    if container is not None:
        state = drop_passes(state, path)
        if event.keeps:
            run = replace(run, kept=container.agent)
    handled = run.handled if event.list_id is None else (run.handled or 0) + 1
    run = replace(run, status="failing", error=event.error, reason=None, handled=handled)
    state = left(state, path, run)
    if event.list_id is None:
        return state
    frames = state.frames.set(event.scope or "", Frame(event.list_id, path))
    container = ContainerRun(event.node_id, ON_FAILURE, 1, begun=1, running=1)
    return replace(state, frames=frames, containers=state.containers.set(path, container))


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


def node_failed(state: State, event: ev.NodeFailed) -> State:
    path = path_of(event)
    run = run_at(state, path, "started", "interrupted", "failing")
    if event.goto is not None and not event.contained:
        raise MalformedJournal("it goes on elsewhere, so that its failure is contained")
    if run.status == "failing":
        _fails_after_all(state, path, run, event)
    else:
        _breaks(state, path, run, event)
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


def _fails_after_all(state: State, path: str, run: NodeRun, event: ev.NodeFailed) -> None:
    same((event.node_id, event.attempt), (run.node_id, run.attempt), "place")
    same(event.error, run.error, "error")
    closed_prompt(state, run)
    if path in state.containers:
        raise MalformedJournal(f"the `on_failure` of {path} is not over")


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


def node_retried(state: State, event: ev.NodeRetried) -> State:
    path = path_of(event)
    run = run_at(state, path, "started")
    _breaks(state, path, run, event)
    same(event.timer_id, retry_id(state, path, run), "timer")
    if path in state.containers:
        state = drop_passes(state, path)
    run = replace(run, status="retrying", error=event.error, failures=run.failures + 1)
    timer = TimerRun(event.timer_id, path, event.due_at, "retry", None)
    return replace(left(state, path, run), timers=state.timers.set(event.timer_id, timer))


_OF_AN_ANSWER = ("refusal", "max_tokens", "output", "model_context_window_exceeded", "pause_turn")
"""Types of errors about the last answer of an agent."""


def _breaks(
    state: State, path: str, run: NodeRun, event: ev.NodeFailing | ev.NodeFailed | ev.NodeRetried
) -> None:
    """An attempt failed; a container with what failed in it."""
    if event.node_id != run.node_id or event.attempt != run.attempt:
        same((event.node_id, event.attempt), (run.node_id, run.attempt), "place")
    closed_prompt(state, run)
    container = state.containers.get(path)
    if container is None:
        return
    if container.error is not None:
        # Earlier releases let an agent that ran out of time fail with what was wrong with its last answer.
        if container.agent is None or event.error.get("type") not in _OF_AN_ANSWER:
            same(event.error, container.error, "error")
    elif event.error.get("type") == "timeout":
        raise MalformedJournal(f"{path} did not run out of time")


def node_interrupted(state: State, event: ev.NodeInterrupted) -> State:
    path = path_of(event)
    run = run_at(state, path, "started")
    same(event.node_id, run.node_id, "node")
    if event.saved is not None and event.reason not in (LEFT, ASKS):
        raise MalformedJournal(f"{path} did not leave by itself, so it saved nothing")
    if event.reason != MISSING and mode_of(run.type) not in ("run", "delivery"):
        raise MalformedJournal(f"{path} is run by nobody, so it cannot be interrupted")
    crashes = run.crashes + (event.reason == "crash")
    run = replace(run, status="interrupted", crashes=crashes, reason=event.reason)
    if event.reason == ASKS and (run.type != "mcp" or unanswered(event.saved) is None):
        raise MalformedJournal(f"{path} is no call of a server that asks for anything")
    if event.reason in (LEFT, ASKS):
        run = replace(run, saved=event.saved)
    return left(state, path, run)


def node_skipped(state: State, event: ev.NodeSkipped) -> State:
    path = path_of(event)
    scope, before = scope_of(path), state.nodes.get(path)
    if before is not None:
        _skipped_by_hand(state, path, before, event)
        skipped = replace(
            before, status="skipped", input=None, error=None, reason=event.reason, ended_at=event.timestamp
        )
        return finish(state, path, skipped)
    frame = frame_at(state, scope)
    dead = event.reason == DEAD
    if not dead:
        _may_begin(state, path, event.timestamp)
    if frame.error is not None and not dead:
        raise MalformedJournal(f"{scope or 'the flow'} has failed, so that nothing begins there")
    same(path, visit_path(frame, scope, event.node_id), "path")
    index = frame.position if event.node_index is None else event.node_index
    if dead:
        _is_dead(state, frame, event)
    elif (event.node_index is None) != (frame.graph is None):
        raise MalformedJournal("it has an index of its own exactly where its list is a graph")
    else:
        _next_of_list(state, frame, event.node_id, index)
    run = NodeRun(
        event.node_id, event.node_type, index, "skipped", reason=event.reason, ended_at=event.timestamp
    )
    nodes, frame = enter(state, frame, path, event.node_id)
    return finish(replace(state, nodes=nodes, frames=state.frames.set(scope, frame)), path, run)


def _is_dead(state: State, frame: Frame, event: ev.NodeSkipped) -> None:
    known, taken = (0, 0) if frame.graph is None else frame.graph.gates.get(event.node_id, (0, 0))
    if not known or taken or event.node_index is None:
        raise MalformedJournal(f"{event.node_id} can still be reached")
    _index_as_before(state, frame, event.node_id, event.node_index)


def _skipped_by_hand(state: State, path: str, run: NodeRun, event: ev.NodeSkipped) -> None:
    """A person skipped what failed, or could not run; a migration leaves out what could not run."""
    same((event.node_id, event.node_type), (run.node_id, run.type), "node")
    if run.status not in ("failing", "interrupted"):
        raise MalformedJournal(f"{path} was started and is {run.status}, so it cannot be skipped")
    prompt = closed_prompt(state, run)
    if path in state.containers and state.containers[path].kind == ON_FAILURE:
        raise MalformedJournal(f"the `on_failure` of {path} is not over")
    if run.reason != MISSING and (prompt is None or (prompt.answer or {}).get("value") != "skip"):
        raise MalformedJournal(f"nobody said that {path} is to be skipped")
