"""Nodes that waited for their type, once it is there again. Pure."""

from __future__ import annotations

from engine.decide.commands import Installed
from engine.decide.step import Step, node_at
from engine.flow import Flow
from engine.journal.queries import open_prompt_at
from engine.journal.state import State
from engine.nodes.types.registry import MISSING


def restored(flow: Flow, state: State) -> list[str]:
    """The paths of nodes that people are asked about for want of a type that can be used now."""
    return [
        path
        for path in sorted(state.active)
        if state.nodes[path].status == "interrupted"
        and state.nodes[path].reason == MISSING
        and open_prompt_at(state, path) is not None
        and flow.why_missing(node_at(flow, state, path)) is None
    ]


def installed(step: Step, command: Installed) -> None:
    """Withdraw those questions: such a node runs again by itself. In a thread out of reach they stay, to be answered."""
    if step.state.phase not in ("running", "waiting", "held"):
        return
    for path in restored(step.flow, step.state):
        prompt = open_prompt_at(step.state, path)
        assert prompt is not None, "that is what was looked for"
        step.wake(path)
        step.withdraw(prompt, "its node type can be used again")
