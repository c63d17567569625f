"""How a scenario names places in a flow: by path, by the id of a node, or by the agent that something comes from. Pure."""

from __future__ import annotations

from engine.journal.state import Asked


def is_at(path: str, name: str) -> bool:
    """Whether a path is what a scenario names: the path itself, or the id of its node."""
    return name in (path, path.rpartition("/")[2].partition("~")[0])


def is_place(path: str, name: str) -> bool:
    """The same, or the agent whose model call or tool call this is."""
    agent, found, _ = path.rpartition("/turn[")
    return is_at(path, name) or (bool(found) and is_at(agent.partition("#")[0], name))


def is_asked(prompt: Asked, name: str) -> bool:
    """Whether a question is the one that a scenario names."""
    return is_place(prompt.path, name) or name == prompt.node_id
