"""Puts an engine together with what every process of sayso needs. Imports nothing of Slack's libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bot.compose.environment import THIS_MACHINE, Machine
from bot.compose.model_choice import TURN, scripted, scripts
from bot.config.settings import Settings
from engine.decide.agents.spend_projection import SpendRows
from engine.decide.policy import Gate
from engine.messages.limits import DEFAULT_MODEL, AgentFacts
from engine.models.model_turns import ModelTurns
from engine.nodes.runtime.secrets import SecretSource
from engine.nodes.runtime.table import with_runner
from engine.run.active import Extension
from engine.run.engine import Engine
from engine.run.tool_servers import ToolServers
from engine.storage.port import Store
from prompt_state.projection import projection

if TYPE_CHECKING:
    from engine.messages.prices import Price


def make_engine(
    settings: Settings, store: Store, gate: Gate, *, label: str, slack: bool, machine: Machine = THIS_MACHINE
) -> Engine:
    """An engine over a store, with what every process needs."""
    extensions: list[Extension] = [projection]
    if slack:
        from bot.intents.session_rows import slack_intents

        extensions.append(slack_intents)
        if scripted(settings):
            from bot.intents.session_rows import scripted_rows

            extensions.append(scripted_rows)
    extensions.append(SpendRows(settings.agents.day_cap))
    source = SecretSource(settings.env, settings.secrets_dir)
    servers = ToolServers(settings.mcp_file, source.get)
    models = ModelTurns(settings.env, servers.mcp_tools, scripts(settings))
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


def _prices(settings: Settings) -> Mapping[str, Price] | None:
    """The prices that hold where some are configured."""
    if not settings.agents.prices:
        return None
    from engine.messages.prices import prices_from  # most configure none

    return prices_from(dict(settings.agents.prices))
