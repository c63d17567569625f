"""What the rules share. Pure."""

from __future__ import annotations

from typing import Any

from engine.journal.events import Event
from engine.journal.state import ROOT, Asked, ContainerRun, Frame, Graph, NodeRun, State, scope_of
from engine.language.errors import MalformedJournal


def path_of(event: Event) -> str:
    """The event's path. Raises `MalformedJournal` where it has none."""
    if event.path is None:
        raise MalformedJournal("has no path")
    return event.path


def no_path(event: Event) -> None:
    """Events about the whole session have no path."""
    if event.path is not None:
        raise MalformedJournal(f"it is about the session and has no path, but says {event.path}")


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
    if prompt is not None and (prompt.open or prompt.undo_until is not None):
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
