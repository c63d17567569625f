"""Agents: conversations with a model as part of a flow. What is pure of them belongs to the core.

A flow without an agent needs none of it, and most processes meet only such flows: the core asks for `agents.talk`
and the other modules named here, and each is loaded by the first who does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.agents import answer as answer
    from engine.agents import conversation as conversation
    from engine.agents import outages as outages
    from engine.agents import talk as talk
    from engine.agents import tooling as tooling


def __getattr__(name: str) -> Any:
    if name not in ("answer", "conversation", "outages", "talk", "tooling"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
