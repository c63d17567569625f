"""`decide` and `due`: what a command makes true, and what may start now. Pure.

A command that was taken before yields no events; a command that is refused raises and yields none either.
`settle` ends every turn: it writes what follows without any further command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from engine import agents, answers, clock, clocks, containers, covers, decisions, locks, people
from engine import events as ev
from engine.codec import Json
from engine.commands import (
    Abort,
    Answer,
    Begin,
    Claimed,
    Command,
    Due,
    Edit,
    Facts,
    Gone,
    HandOver,
    Hold,
    LockGranted,
    LockQueued,
    Message,
    NodeBroke,
    NodeCut,
    NodeDone,
    Reachable,
    Resume,
    Shown,
    Start,
    StartRule,
    Steer,
    Undo,
    Unreachable,
)
from engine.errors import NotAllowed, SaysoError
from engine.evaluation import evaluate_condition, evaluate_config, node_at
from engine.events import Event
from engine.flow import Flow, Node, coerce_inputs
from engine.flow.model import NodeList
from engine.folds.agents import ASKED_OR_RUN, TURN, agent_of
from engine.machine import Status
from engine.nodes.specs import node_types
from engine.pinned import CHANGED, changed
from engine.queries import asked_in_order, doomed, launched, open_prompt_at, undo_pending
from engine.session_state import current_path
from engine.state import (
    AGAIN,
    FINALLY,
    LEFT,
    RETRY,
    ROOT,
    Frame,
    NodeRun,
    State,
    in_finally,
    scope_of,
    visit_path,
)
from engine.turn import Turn

CRASHES_BEFORE_ASKING = 3
"""A node that was interrupted by this many crashes is never started again without a person's word."""

_MOST_STARTS_A_TURN = 200
"""Pure nodes run inside a turn; this bounds how long one turn can hold the event loop."""


class Work(NamedTuple):
    """One thing that may start: the next node of a pass (`path` is the pass; `node` names it where the pass is a
    graph), or a node again (`path` is its own)."""

    path: str
    again: bool = False
    node: str | None = None


def due(flow: Flow, state: State) -> list[Work]:
    """What may start now, from the state alone. Costs what is open, not what is done."""
    running = launched(state)
    if not _goes_on(state, running):
        return []
    room = flow.limits.concurrency - len(running)
    questions = flow.limits.max_open_prompts - len(state.open_prompts)
    work = []
    for item, mode in _startable(flow, state):
        runs, asks = mode in ("run", ASKED_OR_RUN), mode in ("prompt", ASKED_OR_RUN)
        room -= runs
        questions -= asks
        if not ((runs and room < 0) or (asks and questions < 0)):
            work.append(item)
    return work


def _goes_on(state: State, running: list[str]) -> bool:
    """Whether the session is at a point where anything may start."""
    if state.phase == "finalizing":
        # What still runs of the flow ends first.
        return FINALLY in state.frames and not state.finally_skipped and all(map(in_finally, running))
    may = state.phase == "running" and state.inputs is not None and not locks.pending(state)
    return may and state.frames[ROOT].error is None


def _startable(flow: Flow, state: State) -> Iterator[tuple[Work, str]]:
    """What may start as far as its own place is concerned, each with the mode of its type."""
    for path in sorted(state.active):
        if containers.alive(state, path) and _may_run_again(flow, state, path):
            yield Work(path, True), node_types()[state.nodes[path].type].mode
    for scope in sorted(state.frames, key=lambda scope: _place(state, scope)):
        frame = state.frames[scope]
        if frame.error is not None or not containers.alive(state, scope):
            continue
        if frame.owner is not None and state.containers[frame.owner].agent is not None:
            for key, mode in agents.talk.startable(flow, state, scope):
                yield Work(scope, node=key), mode
            continue
        nodes = flow.lists[frame.list_id]
        if nodes.is_graph:
            ready = sorted(frame.graph.ready, key=nodes.rank.__getitem__) if frame.graph else []
            items = [Work(scope, node=node_id) for node_id in ready]
        else:
            over = frame.running or frame.jumps or frame.position >= len(nodes.nodes)
            items = [] if over else [Work(scope)]
        if items and not doomed(state, f"{scope}/x" if scope else "x"):
            for item in items:
                yield item, _next_node(nodes, frame, item.node).spec.mode


def _place(state: State, scope: str) -> tuple[str | int, ...]:
    """Where a pass stands among the others: passes begin, and ask, in the order of their list, and branches in that of the
    flow's file. By their paths the tenth would come before the second."""
    frame = state.frames[scope]
    if frame.owner is None:
        return (scope,)
    outer = scope_of(frame.owner)
    around = _place(state, outer) if outer in state.frames else (outer,)
    return (*around, frame.owner, frame.order)


def _next_node(nodes: NodeList, frame: Frame, node_id: str | None) -> Node:
    return nodes.nodes[frame.position] if node_id is None else nodes.by_id[node_id]


def decide(flow: Flow, state: State, command: Command, facts: Facts) -> list[Event]:
    """The events that a command makes true, run to a fixpoint. Raises a `SaysoError` where it is refused."""
    return take_turn(flow, state, command, facts).events


def take_turn(flow: Flow, state: State, command: Command, facts: Facts) -> Turn:
    """The same, with the state after the events, for whoever would fold them again otherwise."""
    turn = Turn(flow, state, facts)
    _HANDLERS[type(command)](turn, command)
    settle(turn)
    return turn


def settle(turn: Turn) -> None:
    """Write what follows: passes and containers, questions about interruptions, the pause, the end."""
    if turn.state.phase == "running" and turn.state.inputs is None and not turn.state.open_prompts:
        people.go_on_with_inputs(turn)
    if turn.state.phase in ("running", "pausing"):
        containers.progress(turn)
        for path in sorted(turn.state.active):
            _ask_if_interrupted(turn, path)
        _finish_or_pause(turn)
    if turn.state.phase == "unreachable":
        _give_up_unreached(turn)
    if turn.state.phase == "finalizing":
        _finalize(turn)


def _give_up_unreached(turn: Turn) -> None:
    """A session that reaches nobody ends where a deadline has failed it; everything else waits until it does."""
    root = turn.state.frames.get(ROOT)
    if root is not None and root.error is not None:
        _end_flow(turn, "failed", _failed_at(turn.state, root), root.error)
    elif clocks.out_of_reach_for_good(turn.state):
        reason = turn.state.pause_reason or ""
        message = f"the thread could not be posted in until the deadline was over ({reason})"
        _end_flow(turn, "failed", None, {"type": "unreachable", "message": message})


def _finish_or_pause(turn: Turn) -> None:
    state = turn.state
    root = state.frames.get(ROOT)
    if root is not None and root.error is not None:
        _end_flow(turn, "failed", _failed_at(state, root), root.error)
    elif state.phase == "pausing":
        _hold_or_complete(turn)
    elif locks.pending(state):
        # Whether it goes on or waits follows from who else wants the lock: the next command says so.
        return
    elif state.active or due(turn.flow, state):
        if _only_waits(turn.flow, state):
            _pause(turn)
    elif state.inputs is not None:
        _end_flow(turn, "complete")
    else:
        _pause(turn)


def _hold_or_complete(turn: Turn) -> None:
    """What was told to leave has left: the session is held, or completes, where that was all there was to do."""
    state = turn.state
    if launched(state):
        return
    if state.inputs is not None and not state.active and not due(turn.flow, state._replace(phase="running")):
        _end_flow(turn, "complete")
        return
    path, asked = current_path(state), state.pausing or {}
    turn.emit(ev.FlowPaused, path=path, node_id=path, held=True, **asked)


def _failed_at(state: State, frame: Frame) -> str | None:
    """The node whose failure a pass failed with."""
    return next((path for path in frame.nodes.values() if state.nodes[path].error == frame.error), None)


def _end_flow(
    turn: Turn, outcome: Status, path: str | None = None, error: dict[str, Json] | None = None
) -> None:
    """The flow is over; what its file has under `finally` comes before that is said, once it has begun."""
    list_id = turn.flow.finally_list
    if (
        list_id is not None
        and turn.state.inputs is not None
        and turn.state.phase in ("running", "pausing", "unreachable")
        and not locks.pending(turn.state)
    ):
        turn.emit(ev.FlowFinalizing, path=path, outcome=outcome, list_id=list_id, error=error)
    elif outcome == "failed":
        turn.emit(ev.FlowFailed, path=path, error=error or {})
    elif outcome == "complete":
        turn.emit(ev.FlowCompleted)


def _pause(turn: Turn) -> None:
    path = current_path(turn.state)
    turn.emit(ev.FlowPaused, path=path, node_id=path, reason="waiting")


def _finalize(turn: Turn) -> None:
    """End the session: what still runs of the flow ends, questions are withdrawn, `finally` runs, and that was it."""
    if not all(map(in_finally, launched(turn.state))):
        return
    _withdraw_prompts(turn)
    list_id = turn.flow.finally_list
    # What runs at the end runs under the lock: without it there is nothing to clean up that this session did.
    skipped = turn.state.finally_skipped or turn.state.inputs is None or locks.pending(turn.state)
    if list_id is not None and not skipped:
        if turn.state.outcome == "aborted" and FINALLY not in turn.state.frames:
            turn.emit(ev.FlowFinalizing, outcome="aborted", list_id=list_id)
        if not _finally_is_over(turn):
            return
    if launched(turn.state):
        return
    if FINALLY in turn.state.frames:
        _say_outcome(turn, turn.state.frames[FINALLY])
    turn.emit(ev.SessionEnd, status=turn.state.outcome)


def _finally_is_over(turn: Turn) -> bool:
    """Carry on with `finally`. A session that completed or failed without one, or whose limit is reached, has none."""
    if FINALLY not in turn.state.frames:
        return True
    for path in sorted(turn.state.active):
        run = turn.state.nodes[path]
        if (
            in_finally(path)
            and run.status == "interrupted"
            and not _may_run_again(turn.flow, turn.state, path)
        ):
            message = f"node {run.node_id}: it was interrupted; whether it had its effect is not known"
            if run.reason == CHANGED:
                message = f"node {run.node_id}: its code changed (pin: strict), and `finally` asks nobody"
            if not doomed(turn.state, path):
                turn.fail(path, {"type": "interrupted", "message": message})
    containers.progress(turn)
    return containers.is_over(turn, turn.state.frames[FINALLY])


def _say_outcome(turn: Turn, frame: Frame) -> None:
    """A flow that completed has failed when its `finally` failed; any other outcome stays what it was."""
    state = turn.state
    if state.outcome == "failed":
        turn.emit(ev.FlowFailed, path=_failed_at(state, state.frames[ROOT]), error=state.error or {})
    elif state.outcome == "complete" and frame.error is not None:
        turn.emit(ev.FlowFailed, path=_failed_at(state, frame), error=frame.error)
    elif state.outcome == "complete":
        turn.emit(ev.FlowCompleted)


def _withdraw_prompts(turn: Turn) -> None:
    for prompt_id in asked_in_order(turn.state):
        reason = f"the session is {turn.state.outcome}"
        prompt = turn.state.prompts[prompt_id]
        turn.emit(ev.PromptCancelled, path=prompt.path, prompt_id=prompt_id, reason=reason)


# --- what a state allows -----------------------------------------------------------------------------------


def _may_run_again(flow: Flow, state: State, path: str) -> bool:
    run = state.nodes[path]
    if run.status != "interrupted" or open_prompt_at(state, path) or doomed(state, path):
        return False
    if _held_up(state, path):
        return False
    return run.reason in (AGAIN, LEFT, RETRY) or not _must_ask(flow, state, path)


def _held_up(state: State, path: str) -> bool:
    """Whether a model call does not begin again because people are asked about a cap."""
    owner = agent_of(state, path) if state.nodes[path].type == TURN else None
    return owner is not None and open_prompt_at(state, owner) is not None


def _must_ask(flow: Flow, state: State, path: str) -> bool:
    run = state.nodes[path]
    if run.reason == CHANGED:
        return True
    policy = node_at(flow, state, path).crash_policy(run.input)
    return policy == "ask" or run.crashes >= CRASHES_BEFORE_ASKING


def _only_waits(flow: Flow, state: State) -> bool:
    """Whether every unfinished node waits for a person or a timer, there is at least one such wait, and nothing else
    may start. What may start is asked last: it costs most, and usually something runs."""
    waits = bool(state.open_prompts)
    for path in state.active:
        run = state.nodes[path]
        timed = run.status == "started" and node_types()[run.type].mode == "timer"
        if _held_up(state, path):
            continue
        if timed or run.status == "retrying" or undo_pending(state, path):
            waits = True
        elif open_prompt_at(state, path) is None and path not in state.containers:
            return False
    return waits and not due(flow, state)


# --- the session -------------------------------------------------------------------------------------------


def _start(turn: Turn, command: Start) -> None:
    values, _ = coerce_inputs(turn.flow, command.given)
    if turn.state.seq:
        return
    asked = turn.state._replace(
        session_id=command.session_id,
        flow_name=turn.flow.name,
        actor=command.actor.record(),
        thread=command.thread,
    )
    starters = turn.flow.allowed_to_start
    rule = None if starters is None else StartRule({"kind": "start", "who": list(starters)})
    reason = turn.facts.policy(command.actor, "start", asked, rule)
    if reason is not None:
        raise NotAllowed(reason)
    turn.emit(
        ev.SessionStarted,
        session_id=command.session_id,
        flow_name=turn.flow.name,
        flow_digest=turn.flow.digest,
        given=values,
        actor=command.actor.record(),
        thread=command.thread,
        parent_session_id=command.parent_session_id,
    )


def _claimed(turn: Turn, command: Claimed) -> None:
    for path in sorted(launched(turn.state)):
        run = turn.state.nodes[path]
        if run.epoch < turn.facts.epoch:
            turn.emit(ev.NodeInterrupted, path=path, node_id=run.node_id, reason="crash")


# --- nodes -------------------------------------------------------------------------------------------------


def _begin(turn: Turn, command: Begin) -> None:
    begun = 0
    while begun < _MOST_STARTS_A_TURN:
        work, before = due(turn.flow, turn.state), turn.state
        if not work:
            # What runs at the end begins in the turn in which the flow is over.
            settle(turn)
            work = due(turn.flow, turn.state) if turn.state is not before else []
        if not work:
            return
        for item in work:
            begun += 1
            if item.again:
                _start_again(turn, item.path)
            else:
                _start_next(turn, item)
        containers.progress(turn)


def _start_again(turn: Turn, path: str) -> None:
    """Run an interrupted node once more: same path, same key, and the input that was evaluated the first time."""
    run, node, config = turn.state.nodes[path], turn.node(path), turn.state.nodes[path].input
    if run.type == TURN:
        agents.talk.begin_turn(turn, scope_of(path), run.node_id)
        return
    try:
        # Without an input it failed before it had one.
        if config is None:
            config = evaluate_config(turn.flow, node, turn.state, scope_of(path))
        covers.enforce(turn.flow, turn.state, node, path, config, turn.facts.now)
    except SaysoError as error:
        turn.start(path, run.node_id, run.type, run.position, None, run.attempt + 1)
        turn.fail(path, {"type": error.code, "message": str(error)})
        return
    _launch(turn, path, node, config, run.attempt + 1, run.node_id)


def _start_next(turn: Turn, item: Work) -> None:
    """Begin a node of a pass, or skip it."""
    scope, frame = item.path, turn.state.frames.get(item.path)
    if frame is None or frame.error is not None or not _is_next(frame, item):
        # What began just before in this turn changed the picture; what is due is asked for anew.
        return
    if frame.owner is not None and turn.state.containers[frame.owner].agent is not None:
        _start_of_agent(turn, scope, item.node or "")
        return
    node = _next_node(turn.flow.lists[frame.list_id], frame, item.node)
    path = visit_path(frame, scope, node.id)
    if turn.state.node_runs >= _most_runs(turn):
        _over_limit(turn, path, node)
        return
    try:
        if not evaluate_condition(turn.flow, node, turn.state, scope):
            _skip(turn, path, node, item, "its `if` is false")
            return
        declined = covers.declined(turn.flow, turn.state, node, path)
        if declined is not None:
            _skip(turn, path, node, item, declined)
            return
        config = evaluate_config(turn.flow, node, turn.state, scope)
        covers.enforce(turn.flow, turn.state, node, path, config, turn.facts.now)
    except SaysoError as error:
        turn.start(path, node.id, node.type, node.index, None)
        turn.fail(path, {"type": error.code, "message": str(error)})
        return
    _launch(turn, path, node, config)


def _start_of_agent(turn: Turn, scope: str, key: str) -> None:
    """Begin a model call or a tool call of an agent."""
    path = f"{scope}/{key}"
    if turn.state.node_runs >= _most_runs(turn):
        owner = turn.state.frames[scope].owner or ""
        _over_limit(turn, owner, turn.node(owner))
    elif key.startswith(TURN):
        agents.talk.begin_turn(turn, scope, key)
    elif (begun := agents.tooling.begin_call(turn, path)) is not None:
        _launch(turn, path, *begun, node_id=key)


def _launch(
    turn: Turn, path: str, node: Node, config: Json, attempt: int = 1, node_id: str | None = None
) -> None:
    """Begin a node with its evaluated configuration; with `pin: strict` not with code that nobody agreed to."""
    asks = node.pin == "strict" and changed(turn.state, turn.facts.code, node.type, config)
    turn.start(path, node_id or node.id, node.type, node.index, config, attempt)
    if asks:
        turn.emit(ev.NodeInterrupted, path=path, node_id=node_id or node.id, reason=CHANGED)
    else:
        _PERFORM[node.spec.mode](turn, path, node, config)


def _skip(turn: Turn, path: str, node: Node, item: Work, reason: str) -> None:
    place = None if item.node is None else node.index
    fields = {"node_type": node.type, "reason": reason, "node_index": place}
    turn.emit(ev.NodeSkipped, path=path, node_id=node.id, **fields)


def _is_next(frame: Frame, item: Work) -> bool:
    if item.node is not None and frame.graph is None:
        # An agent's; what else began in this turn changes nothing about it.
        return True
    if item.node is not None:
        return frame.graph is not None and item.node in frame.graph.ready
    return not frame.running


def _most_runs(turn: Turn) -> int:
    """What runs at the end may run although the flow has used up all that it was given, and as much again."""
    return turn.flow.limits.max_node_runs * (2 if turn.state.phase == "finalizing" else 1)


def _over_limit(turn: Turn, path: str, node: Node) -> None:
    most = turn.flow.limits.max_node_runs
    if turn.state.phase == "finalizing":
        message = f"node {path}: more than {2 * most} nodes have run (limits.max_node_runs)"
        turn.start(path, node.id, node.type, node.index, None)
        # Whatever `on_error` says: this is the end of it.
        turn.emit(ev.NodeFailed, path=path, node_id=node.id, error={"type": "limit", "message": message})
        return
    error: dict[str, Json] = {
        "type": "limit",
        "message": f"more than {most} nodes have run (limits.max_node_runs)",
    }
    _end_flow(turn, "failed", path, error)


def _perform_pure(turn: Turn, path: str, node: Node, config: Json) -> None:
    if node.type == "fail":
        turn.fail(path, {"type": "fail", "message": config["message"]})
    else:
        turn.complete(path, config)


def _perform_prompt(turn: Turn, path: str, node: Node, config: Json) -> None:
    if turn.state.phase == "finalizing":
        turn.fail(path, {"type": "config", "message": f"node {node.id}: `finally` asks nobody"})
        return
    spec = answers.node_prompt(node, config)
    try:
        spec["covers"] = covers.foreseen(turn.flow, turn.state, path, spec.get("values") or {})
    except SaysoError as error:
        message = f"{error} (while it was put together what would run once this is approved)"
        turn.fail(path, {"type": error.code, "message": message})
        return
    turn.ask(path, spec)


def _perform_timer(turn: Turn, path: str, node: Node, config: Json) -> None:
    due_at = config["until"] if config.get("until") else clock.after(turn.facts.now, config["for"])
    try:
        due_at = clock.to_text(clock.from_text(due_at))
    except ValueError as error:
        turn.fail(path, {"type": "config", "message": f"node {node.id}: until: {error}"})
        return
    timer_id = f"{turn.state.session_id}:{path}"
    turn.emit(ev.TimerSet, path=path, timer_id=timer_id, due_at=due_at, purpose="wait")


def _perform_elsewhere(turn: Turn, path: str, node: Node, config: Json) -> None:
    """A process launches it (`run`), or an outbox row carries it (`delivery`): the outcome comes as a command."""


_PERFORM: dict[str, Callable[[Turn, str, Node, Json], None]] = {
    "pure": _perform_pure,
    "prompt": _perform_prompt,
    "timer": _perform_timer,
    "run": _perform_elsewhere,
    "delivery": _perform_elsewhere,
    "container": containers.begin,
}


def _current_run(turn: Turn, path: str, attempt: int) -> NodeRun | None:
    """The run that an outcome belongs to, or None when the outcome is late and changes nothing."""
    run = turn.state.nodes.get(path)
    if run is None or run.status != "started" or run.attempt != attempt or turn.state.phase == "ended":
        return None
    # What waits for a person or a time has no outcome that somebody else could report.
    return run if node_types()[run.type].mode in ("run", "delivery") else None


def _node_done(turn: Turn, command: NodeDone) -> None:
    if _current_run(turn, command.path, command.attempt) is not None:
        turn.complete(command.path, command.output)


def _node_broke(turn: Turn, command: NodeBroke) -> None:
    if _current_run(turn, command.path, command.attempt) is not None:
        turn.break_(command.path, command.error)


def _node_cut(turn: Turn, command: NodeCut) -> None:
    run = _current_run(turn, command.path, command.attempt)
    if run is None:
        return
    if command.reason in ("cut", LEFT) or _must_ask(turn.flow, turn.state, command.path):
        saved = command.saved if command.reason == LEFT else None
        place: dict[str, Json] = {"path": command.path, "node_id": run.node_id}
        turn.emit(ev.NodeInterrupted, **place, reason=command.reason, saved=saved)
        return
    told = command.message or {"timeout": "it ran out of time"}.get(command.reason, "the connection was lost")
    turn.break_(command.path, {"type": command.reason, "message": f"node {run.node_id}: {told}"})


def _ask_if_interrupted(turn: Turn, path: str) -> None:
    """An interrupted node that must not simply run again becomes a question."""
    run = turn.state.nodes[path]
    if run.status != "interrupted" or open_prompt_at(turn.state, path) or doomed(turn.state, path):
        return
    if run.reason in (AGAIN, LEFT, RETRY) or not _must_ask(turn.flow, turn.state, path):
        return
    turn.ask(path, answers.interrupted_prompt(turn.node(path), run))


_HANDLERS: dict[type, Callable[[Turn, Any], None]] = {
    Start: _start,
    Claimed: _claimed,
    Begin: _begin,
    NodeDone: _node_done,
    NodeBroke: _node_broke,
    NodeCut: _node_cut,
    Answer: people.answer,
    Edit: decisions.edit,
    HandOver: decisions.hand_over,
    Undo: decisions.undo,
    Message: people.message,
    Steer: people.steer,
    Shown: people.shown,
    Due: people.timer_due,
    Gone: clocks.gone,
    Unreachable: clocks.unreachable,
    Reachable: clocks.reachable,
    LockGranted: locks.granted,
    LockQueued: locks.queued,
    Abort: people.abort,
    Hold: people.hold,
    Resume: people.resume,
}
