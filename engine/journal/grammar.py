"""Shared rules of events: comparisons with the state, and ids derived from it. Pure.

`decide` folds each event that it writes, and the fold applies the same rules to each event that it reads: events are
written and read by the same rules. So a journal in which an event is missing, duplicated, misplaced, or has another
name, number or path is refused at the first event that cannot follow, with the reason.

The class of an event (`engine.journal.events`) defines three things:

* **Its phases**: the phases of the session in which it can happen, and the phase after it.
* **Its rules**, at the head of its `fold`: the event's place must agree with the state. Ids,
  indexes, attempts, scopes and counts follow from earlier events, and are compared.
* **What it owes**: some events require others in the same step. An answer is followed by the outcome of its node, a
  question that is shown by its deadline. Until all of them are there, nothing else can follow.

Each rule has a constant cost for any length of history, except those of a pause and of the end, which look at all open
work. Facts that only the flow's text has (that a list has no further node, a node's type) are not checked here, since
sessions outlive texts; `sayso verify` checks them too. A forked session begins with a part of another one's history:
events that a fork leaves out may be missing there.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from engine.journal.state import ROOT, Asked, ContainerRun, Frame, Graph, NodeRun, State, scope_of
from engine.language.errors import MalformedJournal


def same(said: Any, known: Any, what: str) -> None:
    """Raise MalformedJournal unless the event's field equals the value derived from the state."""
    if said != known:
        raise MalformedJournal(f"its {what} is {known!r}, not {said!r}")


def frame_at(state: State, scope: str) -> Frame:
    """The pass at an address."""
    frame = state.frames.get(scope)
    if frame is None:
        raise MalformedJournal(f"nothing is running in {scope or 'the flow'}")
    return frame


def run_at(state: State, path: str, *statuses: str) -> NodeRun:
    """Return the node at a path, which must be in one of these statuses."""
    run = state.nodes.get(path)
    if run is None:
        raise MalformedJournal(f"{path} was never started")
    if run.status not in statuses:
        raise MalformedJournal(f"{path} is {run.status}, not {' or '.join(statuses)}")
    return run


def container_at(state: State, path: str) -> ContainerRun:
    """The container at a path that is in progress."""
    container = state.containers.get(path)
    if container is None:
        raise MalformedJournal(f"{path} is not a running container")
    return container


def owner_of(state: State, path: str) -> str | None:
    """Return the path of the container whose pass contains a node; None for the flow's own nodes."""
    return frame_at(state, scope_of(path)).owner


def agent_around(state: State, path: str) -> str:
    """Return the path of the agent that this model call or tool call belongs to."""
    frame = state.frames.get(scope_of(path))
    owner = None if frame is None else frame.owner
    if owner is None or state.containers[owner].agent is None:
        raise MalformedJournal(f"{path} is neither a model call nor a tool call of an agent")
    return owner


def closed_prompt(state: State, run: NodeRun) -> Asked | None:
    """Return the latest question about a node, which must be closed, or None."""
    prompt = None if run.prompt_id is None else state.prompts.get(run.prompt_id)
    if prompt is not None and (prompt.open):
        raise MalformedJournal(f"the question {prompt.prompt_id} about it is not decided")
    return prompt


def through(frame: Frame, where: str) -> None:
    """Check that every node of a pass has its outcome, as far as that shows without its list."""
    if frame.running or frame.jumps:
        raise MalformedJournal(f"{where} has not finished: a node is running or a jump is pending")
    graph = frame.graph
    if graph is not None and (graph.ready or graph.ended or graph.again or _waiting(frame, graph)):
        raise MalformedJournal(f"{where} has not finished: nodes of its graph have not run")


def _waiting(frame: Frame, graph: Graph) -> bool:
    return any(node_id not in frame.nodes for node_id in graph.gates)


def nothing_open(state: State) -> None:
    """Check that nothing of the flow is in progress."""
    root = frame_at(state, ROOT)
    if state.active or state.open_prompts:
        paths = [*state.active, *(state.prompts[key].path for key in state.open_prompts)]
        raise MalformedJournal(f"{min(paths)} is open")
    if root.error is not None:
        raise MalformedJournal("a node has failed the flow")
    through(root, "the flow")


# --- ids ---------------------------------------------------------------------------------------------------


def clock_id(state: State, prompt: Asked, word: str) -> str:
    """The id of a timer of a question."""
    return f"{state.session_id}:{prompt.prompt_id}:{word}"


def wait_id(state: State, path: str) -> str:
    """The id of the timer of a `wait`."""
    return f"{state.session_id}:{path}"


def retry_id(state: State, path: str, run: NodeRun) -> str:
    """The id of the timer after which a failed attempt is followed by the next one."""
    return f"{state.session_id}:{path}:retry{run.attempt}"


def timeout_id(state: State, path: str) -> str:
    """The id of the timer that bounds this attempt of a container."""
    return f"{state.session_id}:{path}:timeout{state.nodes[path].attempt}"


def pass_scope(path: str, run: NodeRun, container: ContainerRun, order: int) -> str:
    """The address of a pass of a container. Whatever is tried again as a whole runs again: its nodes have paths, and so
    keys, of their own in each attempt."""
    base = path if run.attempt == 1 else f"{path}#{run.attempt}"
    if container.kind == "flow":
        return base
    return f"{base}[{quote(container.keys[order], safe='') if container.keys else order}]"


def failure_scope(path: str, run: NodeRun) -> str:
    """Return the address of the pass through a node's `on_failure`."""
    return f"{path}!{(run.handled or 0) + 1 if run.handled else ''}"
