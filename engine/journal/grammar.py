"""What the rules of events share: comparisons with the state, and ids that follow from it. Pure.

`decide` folds each event that it writes, and the fold asks the same rules about each event that it reads: what is written
and what is believed is one and the same. So a journal in which an event is missing, stands twice, at another place, or
under another name, number or path is refused at the first event that cannot follow, with the reason.

Three things make a history, and all of them stand in the class of the event (`engine.journal.events`):

* **Its phases**: the phases of the session in which it can happen, and the phase after it.
* **Its rules**, at the head of its `fold`: what an event says of its place has to be what the state says of it. Ids,
  indexes, attempts, scopes and counts follow from what came before, and are compared.
* **What it owes**: some events are followed by others in the same step. An answer is followed by the outcome of its node, a
  question that is shown by its deadline. Until all of that is there, nothing else can follow.

Each rule costs the same however long the history is, but for those of a pause and of the end, which look at all that is
open. What only the flow's text knows (that a list has no further node, what a node's type is) is not asked here, since
sessions outlive texts; `sayso verify` asks it too. A session that was forked begins with a part of another one's
history: what a fork leaves out is allowed to be missing there.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from engine.journal.state import (
    ROOT,
    Asked,
    ContainerRun,
    Frame,
    Graph,
    NodeRun,
    State,
    scope_of,
)
from engine.language.errors import MalformedJournal


def same(said: Any, known: Any, what: str) -> None:
    """What an event says of its place is what the state says."""
    if said != known:
        raise MalformedJournal(f"its {what} is {known!r}, not {said!r}")


def frame_at(state: State, scope: str) -> Frame:
    """The pass at an address."""
    frame = state.frames.get(scope)
    if frame is None:
        raise MalformedJournal(f"nothing goes on in {scope or 'the flow'}")
    return frame


def run_at(state: State, path: str, *statuses: str) -> NodeRun:
    """The node at a path, which has to be in one of these statuses."""
    run = state.nodes.get(path)
    if run is None:
        raise MalformedJournal(f"{path} was never started")
    if run.status not in statuses:
        raise MalformedJournal(f"{path} is {run.status}, not {' or '.join(statuses)}")
    return run


def container_at(state: State, path: str) -> ContainerRun:
    """The container at a path that is under way."""
    container = state.containers.get(path)
    if container is None:
        raise MalformedJournal(f"{path} is no container that is under way")
    return container


def owner_of(state: State, path: str) -> str | None:
    """The path of the container whose pass a node stands in; None for the flow's own nodes."""
    return frame_at(state, scope_of(path)).owner


def agent_around(state: State, path: str) -> str:
    """The path of the agent whose model call or tool call this is."""
    frame = state.frames.get(scope_of(path))
    owner = None if frame is None else frame.owner
    if owner is None or state.containers[owner].agent is None:
        raise MalformedJournal(f"{path} is no model call and no tool call of an agent")
    return owner


def closed_prompt(state: State, run: NodeRun) -> Asked | None:
    """The question that was asked last about a node, which is not open, and whose answer is final."""
    prompt = None if run.prompt_id is None else state.prompts.get(run.prompt_id)
    if prompt is not None and (prompt.open):
        raise MalformedJournal(f"the question {prompt.prompt_id} about it is not decided")
    return prompt


def through(frame: Frame, where: str) -> None:
    """Every node of a pass has its outcome, as far as its list is not needed to know that."""
    if frame.running or frame.jumps:
        raise MalformedJournal(f"{where} is not over: a node of it runs, or a jump is to come")
    graph = frame.graph
    if graph is not None and (graph.ready or graph.ended or graph.again or _waiting(frame, graph)):
        raise MalformedJournal(f"{where} is not over: nodes of its graph have not run")


def _waiting(frame: Frame, graph: Graph) -> bool:
    return any(node_id not in frame.nodes for node_id in graph.gates)


def nothing_open(state: State) -> None:
    """Nothing of the flow is under way."""
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
    """The address of a pass of a container. Whatever is tried again as a whole runs anew: its nodes have paths, and so
    keys, of their own in each attempt."""
    base = path if run.attempt == 1 else f"{path}#{run.attempt}"
    if container.kind == "flow":
        return base
    return f"{base}[{quote(container.keys[order], safe='') if container.keys else order}]"


def failure_scope(path: str, run: NodeRun) -> str:
    """The address of the pass through what a node has under `on_failure`."""
    return f"{path}!{(run.handled or 0) + 1 if run.handled else ''}"
