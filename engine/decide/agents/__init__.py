"""Agents: conversations with a model as part of a flow. What is pure of them belongs to the core.

A flow without an agent needs none of it, and most processes meet only such flows: the core asks for
`agents.conversation` and the other modules named here, and each is loaded by the first who does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.decide.agents import conversation, model_request, outages, tool_calls

__all__ = ["conversation", "model_request", "outages", "tool_calls"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
