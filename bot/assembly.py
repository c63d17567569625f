"""Puts an engine together with what every process of sayso needs. Imports nothing of Slack's libraries."""

from __future__ import annotations

from bot.machine import THIS_MACHINE, Machine
from bot.settings import Settings
from engine.engine import Engine
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
    source = SecretSource(settings.env, settings.secrets_dir)
    return Engine(
        store,
        policy=gate,
        runners=machine.runners(),
        home=settings.home,
        secret=source.get,
        extensions=extensions,
        label=label,
        snapshot_dir=settings.snapshot_dir,
        now=machine.now,
        entropy=machine.entropy,
        writer=machine.writer(store),
    )
