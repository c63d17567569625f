"""What a state says about places in it: what runs, what waits, what is being given up. Pure."""

from __future__ import annotations

from engine.nodes.absent import spec_of
from engine.state import ROOT, NodeRun, PromptRun, State, below, scope_of

REJECTED = "rejected"
"""The type of the error of an approval that was rejected, and of what fails with it."""


def doomed(state: State, path: str) -> bool:
    """Whether a container around this place is being given up, so that nothing new may start here."""
    scope = scope_of(path)
    while scope != ROOT:
        frame = state.frames.get(scope)
        if frame is None or frame.owner is None:
            return frame is None
        if state.containers[frame.owner].error is not None:
            return True
        scope = scope_of(frame.owner)
    return False


def launched(state: State) -> list[str]:
    """Paths of nodes that a process is executing right now (or was, when it died)."""
    return [path for path in state.active if _is_launched(state.nodes[path])]


def _is_launched(run: NodeRun) -> bool:
    return run.status == "started" and spec_of(run.type).mode == "run"


def launched_below(state: State, path: str) -> bool:
    """Whether a process is executing something inside this container."""
    return any(inner != path and below(path, inner) for inner in launched(state))


def undo_pending(state: State, path: str) -> bool:
    """Whether the question of the node at this path has an answer that can still be taken back."""
    prompt_id = state.nodes[path].prompt_id
    prompt = None if prompt_id is None else state.prompts.get(prompt_id)
    return prompt is not None and prompt.undo_until is not None


def asked_in_order(state: State) -> list[str]:
    """The ids of the open prompts in the order in which they were asked; ids are random."""
    return sorted(
        state.open_prompts, key=lambda prompt_id: int(state.prompts[prompt_id].spec.get("number") or 0)
    )


def open_prompt_at(state: State, path: str) -> PromptRun | None:
    """The open prompt of the node at this path."""
    for prompt_id in state.open_prompts:
        if state.prompts[prompt_id].path == path:
            return state.prompts[prompt_id]
    return None


def is_rejected(run: NodeRun) -> bool:
    """Whether a node is an approval that people, or its timeout, said no to, whatever followed from it."""
    if run.type != "approval":
        return False
    if run.status == "completed":
        return isinstance(run.output, dict) and run.output.get("decision") == "reject"
    return (run.error or {}).get("type") == REJECTED
