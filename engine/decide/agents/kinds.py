"""All kinds of nodes that hold children, for code that carries out commands. The agent's part is loaded by the first
flow that has one. Pure."""

from __future__ import annotations

from engine.decide.commands import Facts
from engine.decide.kinds import CONTAINERS
from engine.decide.step import Kind, Kinds, Step
from engine.flow import Flow
from engine.journal.state import State


class _Kinds(dict[str, Kind]):
    def __missing__(self, kind: str) -> Kind:
        from engine.decide.agents.conversation import AGENT

        assert kind == "agent", "the kinds that are not agents are there from the beginning"
        self[kind] = AGENT
        return AGENT


KINDS: Kinds = _Kinds(CONTAINERS)


def reading(flow: Flow, state: State) -> Step:
    """Return a step that writes nothing, to look up what is possible in a session."""
    return Step(flow, state, Facts("", 0, "", lambda *asked: None), KINDS)
