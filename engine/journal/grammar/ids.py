"""The ids and addresses that follow from where something stands: what is written, and what the grammar expects. Pure."""

from __future__ import annotations

from urllib.parse import quote

from engine.journal.state import Asked, ContainerRun, NodeRun, State


def clock_id(state: State, prompt: Asked, word: str) -> str:
    """The id of a timer of a question."""
    return f"{state.session_id}:{prompt.prompt_id}:{word}"


def undo_id(state: State, prompt: Asked) -> str:
    """The id of the timer until which the answer of a question can be taken back."""
    return clock_id(state, prompt, f"undo{prompt.generation}")


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
