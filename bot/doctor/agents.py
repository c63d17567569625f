"""Checks for flows with agents: the key for Claude, what models cost, and scripts. Nothing is asked of the network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bot.compose.model_choice import key_variable, needs_model
from bot.config.settings import Settings
from bot.doctor.findings import Check
from engine.flow import Flow
from engine.messages.limits import DEFAULT_MODEL
from engine.messages.prices import UnknownPrice, price_of, prices_from
from engine.models.keys import KEY_VARIABLES


def check_agents(settings: Settings, flows: Sequence[Flow]) -> Iterator[Check]:
    """What agents need; nothing where no flow has one."""
    with_agents = sorted(flow.name for flow in flows if needs_model(flow))
    if not with_agents:
        return
    yield _key(settings, with_agents)
    yield from _prices(settings, flows)
    yield _cap(settings)
    if settings.agents.script is not None:
        yield _script(settings)


def _key(settings: Settings, flows: Sequence[str]) -> Check:
    variable = key_variable(settings)
    if variable is not None:
        return Check("claude", "ok", f"a key is set ({variable}), for {', '.join(flows)}")
    return Check(
        "claude",
        "fail",
        f"there is no key for Claude, and {', '.join(flows)} cannot run without one",
        f"Set {' or '.join(reversed(KEY_VARIABLES))}. To try flows without a key: sayso dev",
    )


def _prices(settings: Settings, flows: Sequence[Flow]) -> Iterator[Check]:
    """A model of which nobody knows what it costs is held by no cap."""
    prices = prices_from(dict(settings.agents.prices))
    for model in sorted(_models(settings, flows)):
        try:
            price_of(model, prices)
        except UnknownPrice:
            yield Check(
                "prices",
                "warn",
                f"there is no price for {model}: caps in dollars do not hold for it, and its costs are not counted",
                "Set SAYSO_PRICES, or use another model: docs/budgets.md",
            )


def _models(settings: Settings, flows: Sequence[Flow]) -> set[str]:
    """The models that agents name, as far as the files say it, and the one that is set."""
    found = {settings.agents.model or DEFAULT_MODEL}
    for flow in flows:
        for nodes in flow.lists.values():
            named = [node.config.get("model") for node in nodes.nodes if node.agent is not None]
            found |= {model for model in named if isinstance(model, str) and "{{" not in model}
    return found


def _cap(settings: Settings) -> Check:
    cap = settings.agents.day_cap
    if cap is None:
        return Check(
            "budget",
            "warn",
            "there is no cap on what agents may cost in a day",
            "Set SAYSO_MAX_COST_PER_DAY to dollars.",
        )
    return Check("budget", "ok", f"agents may cost ${cap:,.2f} a day (UTC); then people are asked")


def _script(settings: Settings) -> Check:
    from engine.messages.errors import ScriptError
    from engine.models.scripted import load_script

    assert settings.agents.script is not None
    try:
        load_script(settings.agents.script)
    except ScriptError as error:
        return Check("script", "fail", f"SAYSO_SCRIPT: {error}")
    text = (
        f"SAYSO_SCRIPT is set: {settings.agents.script.name} answers in place of Claude in sayso dev and run"
    )
    return Check("script", "warn", text, "The bot in Slack does not use it. Leave it out to ask Claude.")
