"""Puts an engine together with what every process of sayso needs. Imports nothing of Slack's libraries."""

from __future__ import annotations

from bot.machine import THIS_MACHINE, Machine
from bot.models import TURN, Models
from bot.settings import Settings
from engine.agents.spend import SpendRows
from engine.engine import Engine
from engine.nodes.port import with_runner
from engine.nodes.secrets import SecretSource
from engine.stepping import Extension
from engine.storage.port import Store
from prompt_state.extension import projection
from prompt_state.policy import Gate


def make_engine(
    settings: Settings, store: Store, gate: Gate, *, label: str, slack: bool, machine: Machine = THIS_MACHINE
) -> Engine:
    """An engine over a store, with what every process needs."""
    extensions: list[Extension] = [projection]
    if slack:
        from bot.intents import slack_intents

        extensions.append(slack_intents)
    extensions.append(SpendRows(settings.agents.day_cap))
    source, models = SecretSource(settings.env, settings.secrets_dir), Models(settings)
    engine = Engine(
        store,
        policy=gate,
        runners=with_runner(machine.runners(), TURN, models),
        home=settings.home,
        secret=source.get,
        extensions=extensions,
        label=label,
        snapshot_dir=settings.snapshot_dir,
        now=machine.now,
        entropy=machine.entropy,
        writer=machine.writer(store),
    )
    engine.closing.append(models.close)
    return engine
