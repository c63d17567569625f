"""Puts an engine together with what every process of sayso needs. Imports nothing of Slack's libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bot.machine import THIS_MACHINE, Machine
from bot.models import TURN, Models, scripted
from bot.settings import Settings
from engine.agents.facts import DEFAULT_MODEL, AgentFacts
from engine.agents.spend import SpendRows
from engine.engine import Engine
from engine.live import Extension
from engine.nodes.mcp import McpServers
from engine.nodes.port import with_runner
from engine.nodes.secrets import SecretSource
from engine.storage.port import Store
from prompt_state.extension import projection
from prompt_state.policy import Gate

if TYPE_CHECKING:
    from engine.providers.prices import Price


def make_engine(
    settings: Settings, store: Store, gate: Gate, *, label: str, slack: bool, machine: Machine = THIS_MACHINE
) -> Engine:
    """An engine over a store, with what every process needs."""
    extensions: list[Extension] = [projection]
    if slack:
        from bot.intents import slack_intents

        extensions.append(slack_intents)
        if scripted(settings):
            from bot.scripted import scripted_rows

            extensions.append(scripted_rows)
    extensions.append(SpendRows(settings.agents.day_cap))
    source = SecretSource(settings.env, settings.secrets_dir)
    servers = McpServers(settings.mcp_file, source.get)
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


def _prices(settings: Settings) -> Mapping[str, Price] | None:
    """The prices that hold where some are configured."""
    if not settings.agents.prices:
        return None
    from engine.providers.prices import prices_from  # most configure none

    return prices_from(dict(settings.agents.prices))
