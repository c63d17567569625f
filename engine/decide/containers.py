"""Containers as state: how passes begin, end and fail, for every kind of container (`kinds`). Pure.

Nothing here waits or calls back. `progress` looks at the passes and containers in progress and writes what follows from
their state: a pass whose nodes all have an outcome ends, a container with room begins its next pass, one with nothing
left completes, one with a failed pass fails once nothing of it is running. It runs to a fixpoint in every step, so a
crash needs no special handling here.
"""

from __future__ import annotations

from engine.decide import edges
from engine.decide.step import Step, context
from engine.flow import Node
from engine.journal import events as ev
from engine.journal.grammar import timeout_id
from engine.journal.queries import alive, asked_in_order, doomed, launched_below, open_prompt_at
from engine.journal.state import ON_FAILURE, Frame, below
from engine.language import timestamps
from engine.language.codec import Json
from engine.language.errors import ExpressionError, InvalidInputs


def begin(step: Step, path: str, node: Node, config: dict[str, Json]) -> None:
    """Begin a container node: freeze what it iterates over."""
    depth = path.count("/") + 1
    if depth > step.flow.limits.max_depth:
        message = f"node {node.id}: nested {depth} deep; limits.max_depth is {step.flow.limits.max_depth}"
        step.fail(path, {"type": "limit", "message": message})
        return
    try:
        kind = step.kinds[node.type]
        frozen = kind.frozen(step, path, node, config)
    except InvalidInputs as error:
        step.fail(path, {"type": error.code, "message": f"node {node.id}: {error}"})
        return
    step.emit_at(path, ev.ContainerStarted, kind=node.type, **frozen)
    kind.opened(step, path, node, config)
    if node.timeout is not None:
        due_at = timestamps.after(step.facts.now, node.timeout)
        timer_id = timeout_id(step.state, path)
        step.set_timer(path, timer_id, due_at, "timeout")


# --- progress ----------------------------------------------------------------------------------------------


def progress(step: Step) -> None:
    """Write what follows for passes and containers in which something happened, to a fixpoint."""
    while moved := step.moved():
        in_order = sorted(moved)
        # Innermost first: an end inside may end what surrounds it.
        inwards = [
            address for address in sorted(in_order, key=len, reverse=True) if alive(step.state, address)
        ]
        for scope in inwards:
            if scope in step.state.frames:
                edges.progress(step, scope)
                _end_pass(step, scope)
        for path in inwards:
            container = step.state.containers.get(path)
            if container is not None and container.error is None:
                step.kinds[container.kind].progress(step, path)
            elif container is not None and not launched_below(step.state, path):
                # Withdraw its questions and fail it; an `on_failure` closes, and its node continues failing.
                for prompt_id in asked_in_order(step.state):
                    prompt = step.state.prompts[prompt_id]
                    if below(path, prompt.path):
                        step.withdraw(prompt, f"{container.node_id} failed")
                if container.kind == ON_FAILURE:
                    step.close(path)
                else:
                    step.break_(path, container.error or {})
        # After its `on_failure`, if any, people are asked about a failure, or it counts.
        for path in in_order:
            state = step.state
            if path not in state.active or state.nodes[path].status != "failing" or path in state.containers:
                continue
            if alive(state, path) and not doomed(state, path) and not open_prompt_at(state, path):
                step.around(path).child_failed(step, path)


def is_over(step: Step, frame: Frame) -> bool:
    """True if every node of a pass has an outcome, or the pass has failed and nothing of it is running."""
    if frame.running:
        return False
    return frame.error is not None or edges.is_through(step.flow.lists[frame.list_id], frame)


def _end_pass(step: Step, scope: str) -> None:
    frame = step.state.frames.get(scope)
    if frame is None or frame.owner is None or frame.running:
        return
    container = step.state.containers[frame.owner]
    if container.agent is not None:
        return
    # A pass that failed ends early only where its container continues without it.
    if container.error is not None or not is_over(step, frame):
        return
    listed = step.flow.lists[frame.list_id].nodes
    unreached = [node.id for node in listed if node.id not in frame.nodes] if frame.error is not None else []
    collected, error, node = None, frame.error, step.node(frame.owner)
    # `on_failure` of a `foreach` is a separate list, which contributes nothing.
    if error is None and node.collect is not None and container.kind == "foreach":
        try:
            names = context(node.collect, step.flow, step.state, scope, step.facts.now)
            collected = node.collect.evaluate(names)
        except ExpressionError as failed:
            error = {"type": failed.code, "message": f"node {node.id}: collect: {failed}"}
    step.emit(
        ev.IterationCompleted,
        path=frame.owner,
        node_id=container.node_id,
        index=frame.order,
        scope=scope,
        error=error,
        unreached=unreached or None,
        collected=collected,
    )
