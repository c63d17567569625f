"""Who answers the agents of a process: Claude, or a script. Nothing of it is loaded before the first model call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bot.config.settings import Settings
from engine.flow import Flow
from engine.models.keys import KEY_VARIABLES
from engine.nodes.runtime.runner import NodeContext

if TYPE_CHECKING:
    from engine.models.provider import Provider

TURN = "turn"
"""The type of the nodes that are model calls."""


def key_variable(settings: Settings) -> str | None:
    """The variable that has the key for Claude; None where there is none."""
    return next((name for name in KEY_VARIABLES if settings.env.get(name, "").strip()), None)


def scripted(settings: Settings) -> bool:
    """Whether scripts answer in place of Claude."""
    agents = settings.agents
    if agents.scripted == "never":
        return False
    without_key = agents.scripted == "without_key" and key_variable(settings) is None
    return agents.script is not None or without_key


def needs_model(flow: Flow) -> bool:
    """Whether a flow has an agent, itself or in a flow that it calls."""
    return any(node.agent is not None for nodes in flow.lists.values() for node in nodes.nodes)


def scripts(settings: Settings) -> Callable[[NodeContext], Provider | None]:
    """Who answers a model call in place of Claude."""

    def answers(ctx: NodeContext) -> Provider | None:
        if not scripted(settings):
            return None
        from engine.models.scripts import scripted_provider

        return scripted_provider(ctx, settings.agents.script)

    return answers
