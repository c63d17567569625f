"""Who answers the agents of a process: Claude, or a script. Nothing of it is loaded before the first model call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.config.settings import Settings
from engine.flow import Flow
from engine.language.codec import Json
from engine.models.keys import KEY_VARIABLES
from engine.nodes.runtime.runner import NodeContext, Outcome

if TYPE_CHECKING:
    from engine.models.provider import Provider
    from engine.models.turn_runner import McpTools, TurnRunner

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


class Models:
    """The runner of model calls, with who answers them. One for each engine."""

    def __init__(self, settings: Settings, mcp_tools: McpTools | None = None) -> None:
        self._settings = settings
        self._mcp_tools = mcp_tools
        self._runner: TurnRunner | None = None
        self._claude: Provider | None = None

    async def __call__(self, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        """Run a model call; see `Runner`."""
        if self._runner is None:
            from engine.models.turn_runner import TurnRunner, no_mcp

            self._runner = TurnRunner(self._provider, self._mcp_tools or no_mcp)
        return await self._runner(config, ctx)

    async def close(self) -> None:
        """Let go of connections."""
        if self._claude is not None:
            await self._claude.close()

    def _provider(self, ctx: NodeContext) -> Provider:
        if scripted(self._settings):
            from engine.models.scripts import scripted_provider

            return scripted_provider(ctx, self._settings.agents.script)
        if self._claude is None:
            from engine.models.claude import ClaudeProvider

            self._claude = ClaudeProvider(self._settings.env)
        return self._claude
