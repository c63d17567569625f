"""The runner of model calls. Nothing of a vendor is loaded before the first call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from engine.language.codec import Json
from engine.nodes.runtime.runner import NodeContext, Outcome

if TYPE_CHECKING:
    from engine.models.provider import Provider
    from engine.models.turn_runner import Approved, McpTools, SaidIn, TurnRunner


class ModelTurns:
    """Runs the nodes that are model calls: with the provider that `answers` gives for a call, else with Claude."""

    def __init__(
        self,
        env: Mapping[str, str],
        mcp_tools: McpTools | None = None,
        answers: Callable[[NodeContext], Provider | None] = lambda ctx: None,
        said_in: SaidIn | None = None,
        approved: Approved | None = None,
    ) -> None:
        """`env` has the key for Claude; see `ClaudeProvider`."""
        self._env = env
        self._mcp_tools = mcp_tools
        self._answers = answers
        self._said_in = said_in
        self._approved = approved
        self._runner: TurnRunner | None = None
        self._claude: Provider | None = None

    async def __call__(self, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        """Run a model call; see `Runner`."""
        if self._runner is None:
            from engine.models.turn_runner import TurnRunner, no_mcp, nothing_approved, nothing_said

            tools, said = self._mcp_tools or no_mcp, self._said_in or nothing_said
            self._runner = TurnRunner(self._provider, tools, said, self._approved or nothing_approved)
        return await self._runner(config, ctx)

    async def close(self) -> None:
        """Close the connections to Claude."""
        if self._claude is not None:
            await self._claude.close()

    def _provider(self, ctx: NodeContext) -> Provider:
        provider = self._answers(ctx)
        if provider is not None:
            return provider
        if self._claude is None:
            from engine.models.claude import ClaudeProvider

            self._claude = ClaudeProvider(self._env)
        return self._claude
