"""How a node type is performed: the four ways in which the core treats nodes."""

from __future__ import annotations

from typing import Literal, TypeAlias

from engine.nodes.specs import node_types

Mode: TypeAlias = Literal["pure", "run", "prompt", "timer", "delivery"]
"""`pure`: computed by the core itself. `run`: a process does it. `prompt`: people answer. `timer`: time passes.
`delivery`: an outbox row carries it, and whoever delivers it reports the outcome."""

_OTHERS: dict[str, Mode] = {"ask": "prompt", "approval": "prompt", "wait": "timer", "message": "delivery"}


def mode(node_type: str) -> Mode:
    """How nodes of this type are performed."""
    spec = node_types()[node_type]
    if spec.runs:
        return "run"
    return "pure" if spec.pure else _OTHERS[node_type]
