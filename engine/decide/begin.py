"""What is due begins: conditions, configurations, limits, and what each kind of node does first. Pure."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from engine.decide import containers, covered_nodes, question
from engine.decide.behaviours import conversations
from engine.decide.commands import Begin
from engine.decide.due import due_in, next_node
from engine.decide.fixpoint import end_flow, run_to_fixpoint
from engine.decide.step import Turn, Work, evaluate_config, evaluate_test
from engine.flow import Node
from engine.journal import events as ev
from engine.journal.grammar import wait_id
from engine.journal.queries import TURN, alive, completed, given_up
from engine.journal.state import Frame, scope_of, visit_path
from engine.language import timestamps
from engine.language.codec import Json
from engine.language.errors import SaysoError
from engine.nodes.types.registry import MISSING, mode_of

_MOST_STARTS_A_TURN = 200
"""Pure nodes run inside a turn; this bounds how long one turn can hold the event loop."""


def begin(turn: Turn, command: Begin) -> None:
    """Begin all that is due, and what is due by that, to the most that one turn begins."""
    begun = 0
    while begun < _MOST_STARTS_A_TURN:
        work = due_in(turn)
        if not work:
            # What runs at the end begins in the turn in which the flow is over.
            run_to_fixpoint(turn)
            work = due_in(turn)
        if not work:
            return
        for item in work:
            begun += 1
            if not _still_due(turn, item):
                continue
            if item.again:
                _start_again(turn, item.path)
            else:
                _start_next(turn, item)
        containers.progress(turn)


def _still_due(turn: Turn, item: Work) -> bool:
    """Whether what began just before in this turn left a place for it: a container around it can have failed by that, or
    the flow."""
    scope = scope_of(item.path) if item.again else item.path
    return alive(turn.state, item.path) and not given_up(turn.state, scope)


def _start_again(turn: Turn, path: str) -> None:
    """Run an interrupted node once more: same path, same key, and the input that was evaluated the first time."""
    run, node = turn.state.nodes[path], turn.node(path)
    if run.type == TURN:
        conversations().begin_turn(turn, scope_of(path), run.node_id)
        return
    try:
        config = _checked_config(turn, path, node, run.input)
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
    nodes = turn.flow.lists[frame.list_id]
    node = next_node(nodes, frame, item.node)
    path = visit_path(frame, scope, node.id)
    ended = next((name for name in nodes.ends if completed(turn.state, frame, name)), None)
    if ended is not None:
        _skip(turn, path, node, item, f"ended at `{ended}`")
        return
    if turn.state.node_runs >= _most_runs(turn):
        _over_limit(turn, path, node)
        return
    try:
        if node.condition is not None and not _if_holds(turn, node, scope):
            _skip(turn, path, node, item, "its `if` is false")
            return
        declined = covered_nodes.declined(turn.flow, turn.state, node, path)
        if declined is not None:
            _skip(turn, path, node, item, declined)
            return
        config = _checked_config(turn, path, node)
    except SaysoError as error:
        turn.start(path, node.id, node.type, node.index, None)
        turn.fail(path, {"type": error.code, "message": str(error)})
        return
    _launch(turn, path, node, config)


def _if_holds(turn: Turn, node: Node, scope: str) -> bool:
    assert node.condition is not None
    return evaluate_test(node.condition, turn.flow, turn.state, scope, turn.facts.now, f"node {node.id}: if")


def _checked_config(turn: Turn, path: str, node: Node, config: Json = None) -> Json:
    """The configuration that a node begins with, which whoever has to approve it has approved: the one that it had, or
    where it has none yet, one that is evaluated now. That of a type that cannot be used here stays unknown."""
    if node.type in turn.flow.absent:
        return config
    if config is None:
        config = evaluate_config(turn.flow, node, turn.state, scope_of(path), turn.facts.now)
    covered_nodes.enforce(turn.flow, turn.state, node, path, config, turn.facts.now)
    return config


def _start_of_agent(turn: Turn, scope: str, key: str) -> None:
    """Begin a model call or a tool call of an agent."""
    path = f"{scope}/{key}"
    if turn.state.node_runs >= _most_runs(turn):
        owner = turn.state.frames[scope].owner or ""
        _over_limit(turn, owner, turn.node(owner))
    elif key.startswith(TURN):
        conversations().begin_turn(turn, scope, key)
    elif (begun := conversations().begin_call(turn, path)) is not None:
        _launch(turn, path, *begun, node_id=key)


def _launch(
    turn: Turn, path: str, node: Node, config: Json, attempt: int = 1, node_id: str | None = None
) -> None:
    """Begin a node with its evaluated configuration; not without its type."""
    held = MISSING if turn.flow.why_missing(node) is not None else None
    turn.start(path, node_id or node.id, node.type, node.index, config, attempt)
    if held is not None:
        turn.emit(ev.NodeInterrupted, path=path, node_id=node_id or node.id, reason=held)
    else:
        _PERFORM[mode_of(node.type)](turn, path, node, config)


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
        over = {"type": "limit", "message": message}
        turn.emit(ev.NodeFailed, path=path, node_id=node.id, error=over, attempt=1)
        return
    error: dict[str, Json] = {
        "type": "limit",
        "message": f"more than {most} nodes have run (limits.max_node_runs)",
    }
    end_flow(turn, "failed", path, error)


def _perform_pure(turn: Turn, path: str, node: Node, config: Json) -> None:
    if node.spec.fails:
        turn.fail(path, {"type": "fail", "message": config["message"]})
        return
    try:
        turn.complete(path, node.spec.compute(config))
    except ValueError as error:
        turn.fail(path, {"type": "config", "message": f"node {node.id}: {error}"})


def _perform_prompt(turn: Turn, path: str, node: Node, config: Json) -> None:
    if turn.state.phase == "finalizing":
        turn.fail(path, {"type": "config", "message": f"node {node.id}: `finally` asks nobody"})
        return
    asked = question.answerable(question.node_prompt(node, config), turn.state.actor, turn.facts.manager_of)
    if isinstance(asked, str):
        turn.fail(path, {"type": "config", "message": f"node {node.id}: {asked}"})
        return
    try:
        covers = covered_nodes.foreseen(turn.flow, turn.state, path, asked.values)
    except SaysoError as error:
        message = f"{error} (while it was put together what would run once this is approved)"
        turn.fail(path, {"type": error.code, "message": message})
        return
    turn.ask(path, replace(asked, covers=covers))


def _perform_timer(turn: Turn, path: str, node: Node, config: Json) -> None:
    due_at = config["until"] if config.get("until") else timestamps.after(turn.facts.now, config["for"])
    try:
        due_at = timestamps.to_text(timestamps.from_text(due_at))
    except ValueError as error:
        turn.fail(path, {"type": "config", "message": f"node {node.id}: until: {error}"})
        return
    timer_id = wait_id(turn.state, path)
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
