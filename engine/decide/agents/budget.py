"""Cost bounds of model calls, and the question to people when a cap is reached; no run fails by itself. Pure.

A call reserves `max_tokens` at the output price, and its context at the highest prompt price. The context is what the
API counted with the last answer plus the bytes added since, as no token is shorter than a byte. The bound cannot
include what is not in the journal: files, tools described by a server, what the provider's tools read, and fallback
models. One call may therefore pass a cap; the next one starts from its actual cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple

from engine.decide.agents.model_request import spoken, system_text, unsent
from engine.decide.agents.tool_results import full_of_pictures
from engine.decide.question import option, step_prompt
from engine.decide.step import Step
from engine.flow import Node
from engine.flow.node import plan_of
from engine.forms.question import Question
from engine.journal.queries import agent_at
from engine.journal.state import AgentRun
from engine.language.codec import Json, encode
from engine.messages.money import dollars
from engine.messages.prices import DEFAULTS, SEARCH, Price, UnknownPrice, cost, price_of, worst_case
from engine.messages.turns import Usage

COMPACT_AT = 150_000
"""Tokens at which a conversation is compacted, unless its flow says otherwise."""

TOOLS_OVERHEAD = 2_000
"""Tokens that the API adds to a request with tools, and for the frame of messages: more than any model's."""

_FULL = Decimal("0.8")
"""The part of a model's context from which on a conversation is compacted."""


class Estimate(NamedTuple):
    """Reservation for a model call: tokens including its answer, and dollars if the model has a price."""

    tokens: int
    cost: Decimal | None
    full: bool
    """True if the conversation nears the model's context window or holds as many pictures as the API takes."""


def estimate(step: Step, path: str, agent: AgentRun) -> Estimate:
    """Return the reservation for the next model call of the agent at `path`."""
    config = step.state.nodes[path].input
    answer = agent.max_tokens or int(config["max_tokens"])
    price = price_for(step, agent.model)
    later = range(agent.counted if agent.context else 0, len(agent.messages))
    blocks = [*(block for number in later for block in agent.messages[number]["content"]), *unsent(agent)]
    if agent.context:
        around = agent.context + TOOLS_OVERHEAD
    elif (body := agent_at(step.state, path).body) is not None:
        around = TOOLS_OVERHEAD * 2 + len(encode(body))
    else:
        # An upper bound, in bytes, of the request without the conversation.
        plan = plan_of(step.node(path))
        told = [(tool.name, tool.description, tool.input_schema) for tool in plan.tools]
        around = TOOLS_OVERHEAD * 2 + len(encode(told)) + len(encode(system_text(config, plan)))
    prompt = around + sum(len(encode(block)) for block in blocks)
    full = full_of_pictures([*spoken(agent), {"content": unsent(agent)}])
    if price is None:
        return Estimate(prompt + answer, None, full)
    prompt = min(prompt, price.context)
    at = (config.get("compact") or {}).get("at", COMPACT_AT)
    full = full or (bool(agent.context) and (agent.context > at or prompt + answer > price.context * _FULL))
    return Estimate(prompt + answer, worst_case(price, prompt, answer), full)


def fallbacks(step: Step, path: str) -> list[str]:
    """The models that continue where the agent's declines."""
    return list(step.state.nodes[path].input.get("fallbacks") or ())


def unpriced(step: Step, path: str, agent: AgentRun) -> str | None:
    """Return the first model without a price that the agent at `path` may use, or None."""
    models = [agent.model, *fallbacks(step, path)]
    return next((model for model in models if price_for(step, model) is None), None)


def price_for(step: Step, model: str) -> Price | None:
    """Return the price of this model, or None if it has none."""
    prices = step.facts.agents.prices
    try:
        return price_of(model, DEFAULTS if prices is None else prices)
    except UnknownPrice:
        return None


def caps_cost(step: Step, agent: AgentRun) -> bool:
    """True if any cap (agent, flow, run or day) limits the agent's cost."""
    caps = (agent.caps.get("maxCost"), step.flow.limits.max_cost, step.state.caps.get("maxCost"))
    return step.facts.agents.day_capped or any(cap is not None for cap in caps)


# --- caps ------------------------------------------------------------------------------------------------------


class Cap(NamedTuple):
    """A cap that the next model call would pass."""

    scope: str
    """`node`, `flow` or `day`."""
    name: str
    """`maxCost`, `maxTokensTotal` or `maxTurns`."""
    used: str
    cap: str
    next_: str
    raised: dict[str, Json]
    """The caps as they would hold if a person lets the agent continue."""


def passed(step: Step, path: str, agent: AgentRun, least: Estimate) -> Cap | None:
    """Return the cap that the next model call would pass, or None if there is room."""
    limits, state = step.flow.limits, step.state
    own: dict[str, Json] = {name: getattr(limits, _FIELDS[name], None) for name in _FIELDS}
    configured = state.nodes[path].input
    for scope, spent, caps, steps in (
        ("flow", state.spent, {**own, **state.caps}, own),
        ("node", agent.spent, agent.caps, {name: configured.get(_FIELDS[name]) for name in _FIELDS}),
    ):
        paid = Decimal(spent.cost) + Decimal(spent.unsure) + Decimal(spent.reserved)
        cap = caps.get("maxCost")
        if cap is not None and least.cost is not None and paid + least.cost > Decimal(str(cap)):
            more = format(paid + max(least.cost, Decimal(str(steps.get("maxCost") or cap))), "f")
            told = (_dollars(paid), _dollars(cap), _dollars(least.cost))
            return Cap(scope, "maxCost", *told, {"maxCost": more})
        cap = caps.get("maxTokensTotal")
        tokens = spent.most_tokens
        if cap is not None and tokens + least.tokens > cap:
            more_tokens = max(tokens + least.tokens, tokens + int(steps.get("maxTokensTotal") or cap))
            told = (f"{tokens:,} tokens", f"{cap:,} tokens", f"{least.tokens:,} tokens")
            return Cap(scope, "maxTokensTotal", *told, {"maxTokensTotal": more_tokens})
        cap = caps.get("maxTurns")
        if cap is not None and spent.turns + 1 > cap:
            more_turns = spent.turns + int(steps.get("maxTurns") or cap)
            return Cap(scope, "maxTurns", str(spent.turns), f"{cap} turns", "", {"maxTurns": more_turns})
    left = step.facts.agents.day_left
    if left is not None and not agent.caps.get("day") and least.cost is not None and least.cost > left:
        return Cap("day", "maxCost", "", _dollars(left), _dollars(least.cost), {"day": True})
    return None


_FIELDS = {"maxCost": "max_cost", "maxTokensTotal": "max_tokens_total", "maxTurns": "max_turns"}


def _dollars(amount: Json) -> str:
    """Format an amount; below one dollar exactly, since caps and remainders are often fractions of a cent."""
    return dollars(str(amount), exact_below="1")


_OF = {"node": " is at its cap", "flow": " is at the cap of this flow", "day": " is at the cap of today"}


def cap_prompt(node: Node, cap: Cap) -> Question:
    """The question at a cap: continue, or stop here."""
    used = f"it has used {cap.used} of {cap.cap}" if cap.used else f"{cap.cap} are left"
    next_ = f", and the next call may use up to {cap.next_}" if cap.next_ else ""
    text = f"{_OF[cap.scope]}: {used}{next_}. No more calls are sent to the model until somebody decides."
    go_on, stop = option("raise", _allowing(cap), "primary"), option("stop", "Stop the agent", "danger")
    # The daily cap is shared: the person who started this run does not lift it.
    apart = {"scope": cap.scope, "exclude_requester": cap.scope == "day", "caps": cap.raised}
    return step_prompt(node, "budget", text, go_on, stop, **apart)


def _allowing(cap: Cap) -> str:
    """Return the label of the button that lets the agent continue."""
    if cap.scope == "day":
        return "Continue anyway"
    raised = cap.raised[cap.name]
    if cap.name == "maxCost":
        return f"Allow up to {_dollars(raised)}"
    return f"Allow {raised:,} {'tokens' if cap.name == 'maxTokensTotal' else 'turns'}"


def paid(step: Step, model: str, output: Mapping[str, Json]) -> dict[str, Json]:
    """Return the exact cost of an answer in dollars and the prices applied; `cost` is None for a model without a price.
    Each round counts at the price of its own model."""
    price = price_for(step, model)
    if price is None:
        return {"cost": None}
    parts = output.get("parts") or [{"model": model, "usage": output.get("usage") or {}}]
    dollars_ = sum(
        cost(Usage.from_json(part["usage"]), price_for(step, part["model"]) or price) for part in parts
    )
    searches = int(output.get("searches") or 0)
    by: dict[str, Json] = price.to_json()
    if searches:
        by["searches"] = searches
    if len(parts) > 1 or parts[0]["model"] != model:
        by["parts"] = parts
    return {"cost": format(dollars_ + searches * SEARCH, "f"), "price": by}
