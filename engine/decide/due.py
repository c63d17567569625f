"""`due`: the work that may start now, and what holds back the rest. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from engine.decide import limits
from engine.decide.step import Kinds, Step, Work, kind_around, node_at
from engine.flow import Flow, Node
from engine.flow.model import NodeList
from engine.journal.queries import (
    ASKED_OR_RUN,
    TURN,
    agent_at,
    agent_of,
    alive,
    doomed,
    held_up,
    interrupted,
    open_prompt_at,
    resting,
)
from engine.journal.state import AGAIN, ASKS, FINALLY, LEFT, RETRY, ROOT, Frame, State, in_finally, scope_of
from engine.nodes.types.registry import mode_of

CRASHES_BEFORE_ASKING = 3
"""A node that was interrupted by this many crashes is never started again without a person's word."""


def due(flow: Flow, state: State, kinds: Kinds) -> list[Work]:
    """Return the work that may start now, from the state alone. The cost grows with open work, not with finished work."""
    if not _goes_on(state):
        return []
    again = [path for path in interrupted(state) if alive(state, path) and may_run_again(flow, state, path)]
    passes = [
        scope for scope, frame in state.frames.items() if _has_room(state, frame) and alive(state, scope)
    ]
    if not (again or passes):
        return []
    if len(passes) > 1:
        passes.sort(key=lambda scope: _place(state, scope))
    room = flow.limits.concurrency - len(state.launched)
    questions = flow.limits.max_open_prompts - len(state.open_prompts)
    work = []
    for item, mode in _startable(flow, state, kinds, again, passes):
        runs, asks = mode in ("run", ASKED_OR_RUN), mode in ("prompt", ASKED_OR_RUN)
        room -= runs
        questions -= asks
        if not ((runs and room < 0) or (asks and questions < 0)):
            work.append(item)
    return work


def due_in(step: Step) -> list[Work]:
    """`due` of where a step stands."""
    if step.due is None or step.due[0] is not step.state:
        step.due = step.state, due(step.flow, step.state, step.kinds)
    return step.due[1]


def _goes_on(state: State) -> bool:
    """True if the session's phase lets anything start."""
    if state.phase == "running":
        return state.inputs is not None and not limits.pending(state) and state.frames[ROOT].error is None
    # Flow nodes that still run end first.
    ending = state.phase == "finalizing" and FINALLY in state.frames and not state.finally_skipped
    return ending and all(map(in_finally, state.launched))


def _startable(
    flow: Flow, state: State, kinds: Kinds, again: list[str], passes: list[str]
) -> Iterator[tuple[Work, str]]:
    """Yield the work that its own place allows, each with the mode of its type: interrupted nodes, and the next nodes
    of these passes."""
    for path in again:
        yield Work(path, True), mode_of(state.nodes[path].type)
    for scope in passes:
        yield from kind_around(kinds, state, scope).startable(flow, state, scope)


def _has_room(state: State, frame: Frame) -> bool:
    """True if the pass lets another node begin beside those running: a list runs one at a time."""
    if frame.error is not None:
        return False
    if not frame.running or frame.graph is not None:
        return True
    return frame.owner is not None and state.containers[frame.owner].agent is not None


def _place(state: State, scope: str) -> tuple[str | int, ...]:
    """Return the sort key of a pass: passes begin, and ask, in the order of their list, and branches in that of the
    flow's file. Sorted by path, the tenth would come before the second."""
    frame = state.frames[scope]
    if frame.owner is None:
        return (scope,)
    outer = scope_of(frame.owner)
    around = _place(state, outer) if outer in state.frames else (outer,)
    return (*around, frame.owner, frame.order)


def next_node(nodes: NodeList, frame: Frame, node_id: str | None) -> Node:
    """Return the node that begins next in a pass; in a graph, the one with this id."""
    return nodes.nodes[frame.position] if node_id is None else nodes.by_id[node_id]


# --- what a state allows -----------------------------------------------------------------------------------


def may_run_again(flow: Flow, state: State, path: str) -> bool:
    """True if an interrupted node begins again without asking people."""
    run = state.nodes[path]
    if run.status != "interrupted" or open_prompt_at(state, path) or doomed(state, path):
        return False
    if _held_up(state, path):
        return False
    return run.reason in (AGAIN, LEFT, RETRY) or not must_ask(flow, state, path)


def _held_up(state: State, path: str) -> bool:
    """True if a model call must not begin again because people are asked about a cap or how to continue."""
    owner = agent_of(state, path) if state.nodes[path].type == TURN else None
    return owner is not None and (held_up(state, owner) or agent_at(state, owner).stuck is not None)


def must_ask(flow: Flow, state: State, path: str) -> bool:
    """True if people decide what happens to an interrupted node, judged by the node alone."""
    run = state.nodes[path]
    if run.reason == ASKS:
        return True
    node = node_at(flow, state, path)
    policy = node.crash_policy(run.input)
    return policy == "ask" or run.crashes >= CRASHES_BEFORE_ASKING


def only_waits(state: State) -> bool:
    """True if every unfinished node waits for a person or a timer, and at least one does. The most expensive check,
    `due` (what may start beside them), comes last."""
    if state.launched:
        return False
    waits = bool(state.open_prompts)
    for path in state.active:
        run = state.nodes[path]
        timed = run.status == "started" and mode_of(run.type) == "timer"
        if _held_up(state, path):
            continue
        if timed or run.status == "retrying" or resting(state, path):
            waits = True
        elif open_prompt_at(state, path) is None and path not in state.containers:
            return False
    return waits
