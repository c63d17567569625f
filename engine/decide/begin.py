"""Start due work: conditions, configurations, limits, and the first action of each kind of node. Pure."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from engine.decide import containers, covered_nodes, question
from engine.decide.commands import Begin
from engine.decide.due import due_in, next_node
from engine.decide.fixpoint import end_flow, run_to_fixpoint
from engine.decide.step import Step, Work, evaluate_config, evaluate_test, kind_around
from engine.flow import Node
from engine.journal import events as ev
from engine.journal.grammar import wait_id
from engine.journal.queries import alive, completed, given_up
from engine.journal.state import scope_of, visit_path
from engine.language import timestamps
from engine.language.codec import Json
from engine.language.errors import SaysoError
from engine.nodes.types.registry import FAIL, mode_of

_MOST_STARTS_A_STEP = 200
"""Pure nodes run inside a step; this bounds how long one step can hold the event loop."""


def begin(step: Step, command: Begin) -> None:
    """Begin all work that is due, and what becomes due by it, up to the maximum of one step."""
    begun = 0
    while begun < _MOST_STARTS_A_STEP:
        work = due_in(step)
        if not work:
            # `finally` begins in the step in which the flow ends.
            run_to_fixpoint(step)
            work = due_in(step)
        if not work:
            return
        for item in work:
            begun += 1
            if _still_due(step, item):
                scope = scope_of(item.path) if item.again else item.path
                kind_around(step.kinds, step.state, scope).begin(step, item)
        containers.progress(step)


def _still_due(step: Step, item: Work) -> bool:
    """True if the item may still start: an earlier start in this step may have failed its container or the flow."""
    if not alive(step.state, item.path):
        return False
    if item.again:
        return not given_up(step.state, scope_of(item.path))
    frame = step.state.frames.get(item.path)
    if frame is None or frame.error is not None or given_up(step.state, item.path):
        return False
    if item.node is not None:
        # An agent's pass has no graph; other starts in this step do not affect it.
        return frame.graph is None or item.node in frame.graph.ready
    return not frame.running


def start_again(step: Step, item: Work) -> None:
    """Run an interrupted node once more: same path, same key, and the input that was evaluated the first time."""
    path = item.path
    run, node = step.state.nodes[path], step.node(path)
    try:
        config = _checked_config(step, path, node, run.input)
    except SaysoError as error:
        step.start(path, run.node_id, run.type, run.position, None, run.attempt + 1)
        step.fail(path, {"type": error.code, "message": str(error)})
        return
    launch(step, path, node, config, run.attempt + 1, run.node_id)


def start_next(step: Step, item: Work) -> None:
    """Begin a node of a pass, or skip it."""
    scope, frame = item.path, step.state.frames[item.path]
    nodes = step.flow.lists[frame.list_id]
    node = next_node(nodes, frame, item.node)
    path = visit_path(frame, scope, node.id)
    ended = next((name for name in nodes.ends if completed(step.state, frame, name)), None)
    if ended is not None:
        _skip(step, path, node, item, f"ended at `{ended}`")
        return
    if over_limit(step, path, node):
        return
    try:
        if node.condition is not None and not evaluate_test(
            node.condition, step.flow, step.state, scope, step.facts.now, f"node {node.id}: if"
        ):
            _skip(step, path, node, item, "its `if` is false")
            return
        declined = covered_nodes.declined(step.flow, step.state, node, path)
        if declined is not None:
            _skip(step, path, node, item, declined)
            return
        config = _checked_config(step, path, node)
    except SaysoError as error:
        step.start(path, node.id, node.type, node.index, None)
        step.fail(path, {"type": error.code, "message": str(error)})
        return
    launch(step, path, node, config)


def _checked_config(step: Step, path: str, node: Node, config: Json = None) -> Json:
    """Return the node's configuration once its approvals are checked: the given one, or if that is None, one evaluated
    now."""
    if config is None:
        config = evaluate_config(step.flow, node, step.state, scope_of(path), step.facts.now)
    covered_nodes.enforce(step.flow, step.state, node, path, config, step.facts.now)
    return config


def launch(
    step: Step, path: str, node: Node, config: Json, attempt: int = 1, node_id: str | None = None
) -> None:
    """Begin a node with its evaluated configuration."""
    step.start(path, node_id or node.id, node.type, node.index, config, attempt)
    _PERFORM[mode_of(node.type)](step, path, node, config)


def _skip(step: Step, path: str, node: Node, item: Work, reason: str) -> None:
    place = None if item.node is None else node.index
    step.skip(path, node.id, node.type, reason, place)


def over_limit(step: Step, path: str, node: Node) -> bool:
    """True if the limit of node runs is reached. This fails the flow, or within `finally`, which may run as many again,
    only this node."""
    most, finalizing = step.flow.limits.max_node_runs, step.state.phase == "finalizing"
    if step.state.node_runs < most * (2 if finalizing else 1):
        return False
    if finalizing:
        message = f"node {path}: more than {2 * most} nodes have run (limits.max_node_runs)"
        step.start(path, node.id, node.type, node.index, None)
        # Final, regardless of `on_error`.
        over = {"type": "limit", "message": message}
        step.emit(ev.NodeFailed, path=path, node_id=node.id, error=over, attempt=1)
    else:
        message = f"more than {most} nodes have run (limits.max_node_runs)"
        end_flow(step, "failed", path, {"type": "limit", "message": message})
    return True


def _perform_pure(step: Step, path: str, node: Node, config: Json) -> None:
    if node.type == FAIL:
        step.fail(path, {"type": "fail", "message": config["message"]})
    else:
        step.complete(path, config)


def _perform_prompt(step: Step, path: str, node: Node, config: Json) -> None:
    if step.state.phase == "finalizing":
        step.fail(path, {"type": "config", "message": f"node {node.id}: `finally` cannot ask people"})
        return
    asked = question.answerable(question.node_prompt(node, config), step.state.actor, step.facts.manager_of)
    if isinstance(asked, str):
        step.fail(path, {"type": "config", "message": f"node {node.id}: {asked}"})
        return
    try:
        covers = covered_nodes.foreseen(step.flow, step.state, path, asked.values)
    except SaysoError as error:
        message = f"{error} (while preparing the action to approve)"
        step.fail(path, {"type": error.code, "message": message})
        return
    step.ask(path, replace(asked, covers=covers))


def _perform_timer(step: Step, path: str, node: Node, config: Json) -> None:
    due_at = config["until"] if config.get("until") else timestamps.after(step.facts.now, config["for"])
    try:
        due_at = timestamps.to_text(timestamps.from_text(due_at))
    except ValueError as error:
        step.fail(path, {"type": "config", "message": f"node {node.id}: until: {error}"})
        return
    timer_id = wait_id(step.state, path)
    step.set_timer(path, timer_id, due_at, "wait")


def _perform_elsewhere(step: Step, path: str, node: Node, config: Json) -> None:
    """A process launches it (`run`), or an outbox row carries it (`delivery`): the outcome comes as a command."""


_PERFORM: dict[str, Callable[[Step, str, Node, Json], None]] = {
    "pure": _perform_pure,
    "prompt": _perform_prompt,
    "timer": _perform_timer,
    "run": _perform_elsewhere,
    "delivery": _perform_elsewhere,
    "container": containers.begin,
}
