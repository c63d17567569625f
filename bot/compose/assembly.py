"""Puts an engine together with what every process of sayso needs. Imports nothing of Slack's libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bot.compose.environment import THIS_MACHINE, Machine
from bot.compose.model_choice import TURN, Models, scripted
from bot.config.settings import Settings
from engine.decide.agents.spend_projection import SpendRows
from engine.decide.policy import Gate
from engine.language.codec import Json
from engine.messages.limits import DEFAULT_MODEL, AgentFacts
from engine.nodes.runtime.runner import NodeContext, Outcome
from engine.nodes.runtime.secrets import SecretSource
from engine.nodes.runtime.table import with_runner
from engine.run.active import Extension
from engine.run.engine import Engine
from engine.storage.port import Store
from prompt_state.projection import projection

if TYPE_CHECKING:
    from engine.messages.prices import Price
    from engine.messages.turns import Tool
    from engine.nodes.runtime.mcp import McpServers


def make_engine(
    settings: Settings, store: Store, gate: Gate, *, label: str, slack: bool, machine: Machine = THIS_MACHINE
) -> Engine:
    """An engine over a store, with what every process needs."""
    extensions: list[Extension] = [projection]
    if slack:
        from bot.intents.session_rows import slack_intents

        extensions.append(slack_intents)
        if scripted(settings):
            from bot.intents.scripted import scripted_rows

            extensions.append(scripted_rows)
    extensions.append(SpendRows(settings.agents.day_cap))
    source = SecretSource(settings.env, settings.secrets_dir)
    servers = _Servers(settings, source)
    models = Models(settings, servers.mcp_tools)
    engine = Engine(
        store,
        policy=gate,
        runners=with_runner(with_runner(machine.runners(), TURN, models), "mcp", servers),
        home=settings.home,
        secret=source.get,
        extensions=extensions,
        label=label,
        snapshot_dir=settings.snapshot_dir,
        now=machine.now,
        steady=machine.steady,
        entropy=machine.entropy,
        writer=machine.writer(store),
        agents=AgentFacts(
            prices=_prices(settings),
            default_model=settings.agents.model or DEFAULT_MODEL,
            day_capped=settings.agents.day_cap is not None and not scripted(settings),
        ),
    )
    engine.closing += [models.close, servers.close]
    return engine


class _Servers:
    """The MCP servers of an engine: what talks to them is loaded by the first agent that has one of their tools."""

    def __init__(self, settings: Settings, source: SecretSource) -> None:
        self._settings, self._source = settings, source
        self._made: McpServers | None = None

    @property
    def _servers(self) -> McpServers:
        if self._made is None:
            from engine.nodes.runtime.mcp import McpServers

            self._made = McpServers(self._settings.mcp_file, self._source.get)
        return self._made

    async def __call__(self, config: dict[str, Json], ctx: NodeContext) -> Outcome:
        """Call a tool; see `Runner`."""
        return await self._servers(config, ctx)

    async def mcp_tools(self, server: str, names: Sequence[str]) -> list[Tool]:
        """See `McpServers`."""
        return await self._servers.mcp_tools(server, names)

    async def close(self) -> None:
        """Close all connections."""
        if self._made is not None:
            await self._made.close()


def _prices(settings: Settings) -> Mapping[str, Price] | None:
    """The prices that hold where some are configured."""
    if not settings.agents.prices:
        return None
    from engine.messages.prices import prices_from  # most configure none

    return prices_from(dict(settings.agents.prices))
