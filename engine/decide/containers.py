"""Containers as state: `foreach`, `loop`, `parallel`, `switch`, `flow`. Pure.

Nothing here waits or calls back. `progress` looks at the passes and containers that are under way and writes what
follows from where they stand: a pass whose nodes all have their outcome ends, a container with room begins its next
pass, one with nothing left completes, one whose pass failed gives up once nothing of it runs any more. It is run
to a fixpoint in every step, so resuming after a crash needs nothing of its own.
"""

from __future__ import annotations

from engine.decide import edges, limits, question
from engine.decide.behaviours import conversations
from engine.decide.step import Step, context
from engine.flow import Node, coerce_inputs
from engine.journal import events as ev
from engine.journal.grammar import pass_scope, timeout_id
from engine.journal.queries import (
    LISTING,
    OUTCOME,
    TURN,
    alive,
    asked_in_order,
    doomed,
    launched_below,
    open_prompt_at,
)
from engine.journal.state import (
    COLLECT,
    ON_FAILURE,
    ContainerRun,
    Frame,
    below,
    in_finally,
    scope_of,
)
from engine.language import timestamps
from engine.language.codec import Json, copy, place_of
from engine.language.errors import ExpressionError, InvalidInputs
from engine.language.expressions import evaluate_condition


def begin(step: Step, path: str, node: Node, config: dict[str, Json]) -> None:
    """A container node began: freeze what it goes through."""
    depth = path.count("/") + 1
    if depth > step.flow.limits.max_depth:
        message = f"node {node.id}: nested {depth} deep; limits.max_depth is {step.flow.limits.max_depth}"
        step.fail(path, {"type": "limit", "message": message})
        return
    try:
        frozen = _frozen(step, path, node, config)
    except InvalidInputs as error:
        step.fail(path, {"type": error.code, "message": f"node {node.id}: {error}"})
        return
    node_id = step.state.nodes[path].node_id
    step.emit(ev.ContainerStarted, path=path, node_id=node_id, kind=node.type, **frozen)
    if node.agent is not None:
        conversations().open_conversation(step, path, node, config)
    if node.timeout is not None:
        due_at = timestamps.after(step.facts.now, node.timeout)
        timer_id = timeout_id(step.state, path)
        step.emit(ev.TimerSet, path=path, timer_id=timer_id, due_at=due_at, purpose="timeout")


def _frozen(step: Step, path: str, node: Node, config: dict[str, Json]) -> dict[str, Json]:
    """What `container:started` says of what it goes through."""
    match node.type:
        case "foreach":
            items = copy(config["items"])
            return {"items": items, "total": len(items)}
        case "loop":
            return {}
        case "parallel":
            keys = list(node.lists)
            return {"keys": keys, "total": COLLECT if config["mode"] == "collect" else len(keys)}
        case "switch":
            cases = [case for case in node.lists if case]
            place = place_of(config["on"], cases)
            taken = cases[place] if place is not None else "" if "" in node.lists else None
            return {"keys": [] if taken is None else [taken], "total": 0 if taken is None else 1}
        case "flow":
            called = step.flow.flows[node.calls or ""]
            values, missing = coerce_inputs(called, config.get("inputs") or {})
            if missing:
                raise InvalidInputs(f"flow {called.name} needs {', '.join(missing)}")
            return {"inputs": copy(values), "total": 1}
        case _:
            return conversations().frozen(step, path, node, config)


# --- progress ----------------------------------------------------------------------------------------------


def progress(step: Step) -> None:
    """Write what follows for passes and containers in which something happened, until nothing more follows."""
    while moved := step.moved():
        in_order = sorted(moved)
        # The innermost first: what ends inside may end what is around it.
        inwards = [
            address for address in sorted(in_order, key=len, reverse=True) if alive(step.state, address)
        ]
        for scope in inwards:
            if scope in step.state.frames:
                edges.progress(step, scope)
                _end_pass(step, scope)
        for path in inwards:
            container = step.state.containers.get(path)
            if container is not None:
                _move(step, path, container)
        for path in in_order:
            if path in step.state.active and step.state.nodes[path].status == "failing":
                _go_on_failing(step, path)


def is_over(step: Step, frame: Frame) -> bool:
    """Whether every node of a pass has its outcome, or the pass has failed and nothing of it runs any more."""
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
    # A pass that failed ends early only where its container goes on without it.
    if container.error is not None or not is_over(step, frame):
        return
    listed = step.flow.lists[frame.list_id].nodes
    unreached = [node.id for node in listed if node.id not in frame.nodes] if frame.error is not None else []
    collected, error = _collected(step, scope, frame)
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


def _collected(step: Step, scope: str, frame: Frame) -> tuple[Json, dict[str, Json] | None]:
    """What a pass contributes to its `foreach`, and why the pass failed where it did."""
    owner = frame.owner or ""
    node = step.node(owner)
    # The `on_failure` of a `foreach` is a list of its own, which contributes nothing.
    if frame.error is not None or node.collect is None or step.state.containers[owner].kind != "foreach":
        return None, frame.error
    try:
        names = context(node.collect, step.flow, step.state, scope, step.facts.now)
        return node.collect.evaluate(names), None
    except ExpressionError as error:
        return None, {"type": error.code, "message": f"node {node.id}: collect: {error}"}


def _move(step: Step, path: str, container: ContainerRun) -> None:
    """Give up, begin what there is room for, or complete."""
    if container.error is not None:
        if not launched_below(step.state, path):
            _give_up(step, path, container)
        return
    if container.kind == ON_FAILURE:
        if not container.running:
            step.emit(ev.ContainerCompleted, path=path, node_id=container.node_id)
        return
    if container.agent is not None:
        conversations().progress(step, path)
        if conversations().ended(step, path) and not conversations().rests(step, path):
            step.emit(ev.ContainerCompleted, path=path, node_id=container.node_id)
        return
    node = step.node(path)
    try:
        while _has_next(step, path, node, step.state.containers[path]):
            _begin_pass(step, path, node, step.state.containers[path])
    except ExpressionError as error:
        step.fail(path, {"type": error.code, "message": str(error)})
        return
    container = step.state.containers[path]
    if not container.running:
        if (
            node.spec.condition_fields
            and container.begun >= _rounds(step, path)
            and _goes_on(step, path, node)
        ):
            _at_limit(step, path, node, container.begun)
            return
        step.emit(ev.ContainerCompleted, path=path, node_id=container.node_id)


def _has_next(step: Step, path: str, node: Node, container: ContainerRun) -> bool:
    """Whether another pass begins now."""
    config = step.state.nodes[path].input
    match node.type:
        case "foreach":
            return container.begun < (container.total or 0) and container.running < config["concurrency"]
        case "loop":
            return (
                not container.running and container.begun < _rounds(step, path) and _goes_on(step, path, node)
            )
        case "parallel" | "switch":
            return container.begun < len(container.keys or [])
        case _:
            return container.begun < 1


def _rounds(step: Step, path: str) -> int:
    """How many rounds a loop may have: as its file says, and one for each time that people said so."""
    most = int(step.state.nodes[path].input["max_iterations"])
    if step.state.containers[path].begun < most:
        return most
    return most + limits.times_more(step.state, path)


def _at_limit(step: Step, path: str, node: Node, rounds: int) -> None:
    """A loop that had all its rounds would have another one."""
    decision = step.state.nodes[path].input.get("on_limit")
    if decision != "ask":
        limit_decided(step, path, decision or "fail", rounds)
    elif open_prompt_at(step.state, path) is None:
        step.ask(path, limits.loop_prompt(node, rounds, step.state.nodes[path].attempt))


def limit_decided(step: Step, path: str, decision: str, rounds: int) -> None:
    """How a loop goes on at its limit. One round more begins by itself."""
    if decision == "continue":
        node_id = step.state.nodes[path].node_id
        step.emit(ev.ContainerCompleted, path=path, node_id=node_id, limit=rounds)
    elif decision == "fail":
        step.fail(path, limits.loop_error(step.state, path, rounds))


def _goes_on(step: Step, path: str, node: Node) -> bool:
    """The loop's condition, as it stands before a round. `until` is looked at after each round, `while` before."""
    container = step.state.containers[path]
    if node.until_ is not None:
        return not container.begun or not _test(step, path, node, "until")
    return node.while_ is None or _test(step, path, node, "while")


def _test(step: Step, path: str, node: Node, word: str) -> bool:
    compiled = node.until_ if word == "until" else node.while_
    assert compiled is not None
    container = step.state.containers[path]
    names = context(compiled, step.flow, step.state, scope_of(path), step.facts.now)
    names |= {"last": container.last, "index": container.begun}
    return evaluate_condition(compiled, names, f"node {node.id}: {word}")


def _begin_pass(step: Step, path: str, node: Node, container: ContainerRun) -> None:
    order = container.begun
    key = (container.keys or [])[order] if container.keys else None
    list_id = _list_of(node, key)
    step.emit(
        ev.IterationStarted,
        path=path,
        node_id=node.id,
        index=order,
        key=key,
        scope=pass_scope(path, step.state.nodes[path], container, order),
        list_id=list_id,
    )


def _list_of(node: Node, key: str | None) -> str:
    """The id of the list that a pass goes through: a branch, a case, what a flow begins with, or the body."""
    if node.calls is not None:
        return f"@{node.calls}/"
    return node.lists["body" if key is None else key]


def _give_up(step: Step, path: str, container: ContainerRun) -> None:
    """Nothing of it runs any more: withdraw its questions and let it fail, or what failed go on failing."""
    for prompt_id in asked_in_order(step.state):
        prompt = step.state.prompts[prompt_id]
        inside = prompt.path != path and below(path, prompt.path)
        if inside or (prompt.path == path and prompt.kind in ("budget", OUTCOME, LISTING, limits.KIND)):
            reason = f"{container.node_id} failed"
            step.emit(ev.PromptCancelled, path=prompt.path, prompt_id=prompt_id, reason=reason)
    if container.kind == ON_FAILURE:
        step.emit(ev.ContainerCompleted, path=path, node_id=container.node_id)
    else:
        step.break_(path, container.error or {})


def _go_on_failing(step: Step, path: str) -> None:
    """`on_failure` is over, where there is one: ask people, or let the failure count."""
    state = step.state
    if (
        path in state.containers
        or open_prompt_at(state, path)
        or doomed(state, path)
        or not alive(state, path)
    ):
        return
    node, run = step.node(path), state.nodes[path]
    if run.type == TURN:
        conversations().turn_failed(step, path)
    elif node.on_error == "ask" and not in_finally(path):
        step.ask(path, question.failed_prompt(node, run))
    else:
        step.fail_for_good(path, run.error or {})
