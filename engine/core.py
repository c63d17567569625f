"""`decide` and `due`: what a command makes true, and what may start now. Pure.

A command that was taken before yields no events; a command that is refused raises and yields none either.
`settle` ends every turn: it writes what follows without any further command.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from engine import answers, clock, containers, people
from engine import events as ev
from engine.codec import Json
from engine.commands import (
    Abort,
    Answer,
    Begin,
    Claimed,
    Command,
    Due,
    Facts,
    Hold,
    Message,
    NodeBroke,
    NodeCut,
    NodeDone,
    Resume,
    Shown,
    Start,
)
from engine.errors import NotAllowed, SaysoError
from engine.evaluation import evaluate_condition, evaluate_config, node_at
from engine.events import Event
from engine.flow import Flow, Node, coerce_inputs
from engine.nodes.specs import node_types
from engine.session_state import current_path
from engine.state import AGAIN, LEFT, RETRY, ROOT, NodeRun, State
from engine.turn import Turn, doomed, launched, open_prompt_at

CRASHES_BEFORE_ASKING = 3
"""A node that was interrupted by this many crashes is never started again without a person's word."""

_MOST_STARTS_A_TURN = 200
"""Pure nodes run inside a turn; this bounds how long one turn can hold the event loop."""


class Work(NamedTuple):
    """One thing that may start: the next node of a pass (`path` is the pass), or a node again (`path` is its own)."""

    path: str
    again: bool = False


def due(flow: Flow, state: State) -> list[Work]:
    """What may start now, from the state alone. Costs what is open, not what is done."""
    if state.phase != "running" or state.inputs is None or state.frames[ROOT].error is not None:
        return []
    work = [Work(path, True) for path in sorted(state.active) if _may_run_again(flow, state, path)]
    full = len(state.open_prompts) >= flow.limits.max_open_prompts
    for scope in sorted(state.frames):
        frame = state.frames[scope]
        nodes = flow.lists[frame.list_id].nodes
        if frame.running or frame.error is not None or frame.position >= len(nodes):
            continue
        if (full and nodes[frame.position].spec.mode == "prompt") or doomed(
            state, f"{scope}/x" if scope else "x"
        ):
            continue
        work.append(Work(scope))
    return work


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
    if turn.state.phase == "running":
        containers.progress(turn)
        for path in sorted(turn.state.active):
            _ask_if_interrupted(turn, path)
        _finish_or_pause(turn)
    if turn.state.phase == "finalizing" and not launched(turn.state):
        _close(turn)


def _finish_or_pause(turn: Turn) -> None:
    state = turn.state
    root = state.frames.get(ROOT)
    if root is not None and root.error is not None:
        failed = next(path for path in root.nodes.values() if state.nodes[path].error == root.error)
        turn.emit(ev.FlowFailed, path=failed, error=root.error)
    elif state.active or due(turn.flow, state):
        if _only_waits(turn.flow, state):
            _pause(turn)
    elif state.inputs is not None:
        turn.emit(ev.FlowCompleted)
    else:
        _pause(turn)


def _pause(turn: Turn) -> None:
    path = current_path(turn.state)
    turn.emit(ev.FlowPaused, path=path, node_id=path, reason="waiting")


def _close(turn: Turn) -> None:
    for prompt_id in sorted(turn.state.open_prompts):
        reason = f"the session is {turn.state.outcome}"
        prompt = turn.state.prompts[prompt_id]
        turn.emit(ev.PromptCancelled, path=prompt.path, prompt_id=prompt_id, reason=reason)
    turn.emit(ev.SessionEnd, status=turn.state.outcome)


# --- what a state allows -----------------------------------------------------------------------------------


def _may_run_again(flow: Flow, state: State, path: str) -> bool:
    run = state.nodes[path]
    if run.status != "interrupted" or open_prompt_at(state, path) or doomed(state, path):
        return False
    return run.reason in (AGAIN, LEFT, RETRY) or not _must_ask(flow, state, path)


def _must_ask(flow: Flow, state: State, path: str) -> bool:
    run = state.nodes[path]
    policy = node_at(flow, state, path).crash_policy(run.input)
    return policy == "ask" or run.crashes >= CRASHES_BEFORE_ASKING


def _only_waits(flow: Flow, state: State) -> bool:
    """Whether every unfinished node waits for a person or a timer, and there is at least one such wait."""
    if due(flow, state):
        return False
    waits = bool(state.open_prompts)
    for path in state.active:
        run = state.nodes[path]
        if run.status == "retrying" or (run.status == "started" and node_types()[run.type].mode == "timer"):
            waits = True
        elif open_prompt_at(state, path) is None and path not in state.containers:
            return False
    return waits


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
    reason = turn.facts.policy(command.actor, "start", asked, None)
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
        work = due(turn.flow, turn.state)
        if not work or turn.state.phase != "running":
            return
        for item in work:
            begun += 1
            if item.again:
                _start_again(turn, item.path)
            else:
                _start_next(turn, item.path)
        containers.progress(turn)


def _start_again(turn: Turn, path: str) -> None:
    """Run an interrupted node once more: same path, same key, and the input that was evaluated the first time."""
    run = turn.state.nodes[path]
    turn.start(path, run.node_id, run.type, run.position, run.input, run.attempt + 1)


def _start_next(turn: Turn, scope: str) -> None:
    """Begin the next node of a pass, or skip it."""
    frame = turn.state.frames.get(scope)
    if frame is None or frame.running or frame.error is not None:
        # What began just before in this turn changed the picture; what is due is asked for anew.
        return
    node = turn.flow.lists[frame.list_id].nodes[frame.position]
    path = f"{scope}/{node.id}" if scope else node.id
    if turn.state.node_runs >= turn.flow.limits.max_node_runs:
        _over_limit(turn, path)
        return
    try:
        if not evaluate_condition(turn.flow, node, turn.state, scope):
            reason = "its `if` is false"
            turn.emit(ev.NodeSkipped, path=path, node_id=node.id, node_type=node.type, reason=reason)
            return
        config = evaluate_config(turn.flow, node, turn.state, scope)
    except SaysoError as error:
        turn.start(path, node.id, node.type, node.index, None)
        turn.fail(path, {"type": error.code, "message": str(error)})
        return
    turn.start(path, node.id, node.type, node.index, config)
    _PERFORM[node.spec.mode](turn, path, node, config)


def _over_limit(turn: Turn, path: str) -> None:
    most = turn.flow.limits.max_node_runs
    error: dict[str, Json] = {
        "type": "limit",
        "message": f"more than {most} nodes have run (limits.max_node_runs)",
    }
    turn.emit(ev.FlowFailed, path=path, error=error)


def _perform_pure(turn: Turn, path: str, node: Node, config: Json) -> None:
    if node.type == "fail":
        turn.fail(path, {"type": "fail", "message": config["message"]})
    else:
        turn.complete(path, config)


def _perform_prompt(turn: Turn, path: str, node: Node, config: Json) -> None:
    turn.ask(path, answers.node_prompt(node, config))


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
    Message: people.message,
    Shown: people.shown,
    Due: people.timer_due,
    Abort: people.abort,
    Hold: people.hold,
    Resume: people.resume,
}
