"""What a model call may cost at most, and what happens at a cap: people are asked, and nothing fails by itself. Pure.

Files, and tools that say themselves what they take, are not in the journal: the core sets aside what a call
can use before it knows them. Who makes the call does, and makes none for which too little is set aside: it
says how much is needed, and begins again once that is. What the API has counted before, and is still the
same, weighs nothing more: each part has a `mark`, and an answer says with which parts it was counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from engine.decide.agents.model_request import says_itself, searched, spoken, system_text, unsent
from engine.decide.agents.tool_results import full_of_pictures
from engine.decide.question import option, step_prompt
from engine.flow import Node
from engine.flow.node import plan_of
from engine.forms.question import Question
from engine.journal.queries import agent_at
from engine.journal.state import AgentRun, NodeRun, Spent
from engine.language.codec import Json, encode
from engine.messages.messages import Message
from engine.messages.money import dollars
from engine.messages.prices import (
    DEFAULTS,
    IMAGE_TOKENS,
    SEARCH,
    TOOLS_OVERHEAD,
    Price,
    UnknownPrice,
    block_bound,
    cost,
    price_of,
    prompt_bound,
    worst_case,
)
from engine.messages.request import FETCHED, looks_for_tools
from engine.messages.turns import Tool, TurnRequest, Usage

if TYPE_CHECKING:
    from engine.decide.step import Step


COMPACT_AT = 150_000
"""Tokens of a conversation from which on it is summed up, where its flow does not say."""

SEARCHED = 25_000
"""Tokens that are set aside for what a search in the web gives. The API sets no bound."""

_RUNS = 10
"""How often tools of the provider run in one call; then it pauses."""

UNKNOWN_SCHEMA = 4_000
"""Tokens that are set aside at first for a tool of which only its server, or its function, knows what it takes."""

UNKNOWN_CONTEXT = 1_000_000
"""Tokens of the context of a model that has no price."""

_FULL = Decimal("0.8")
"""The part of a model's context from which on a conversation is compacted."""


class Estimate(NamedTuple):
    """The most that a model call can use: tokens with its answer, and dollars where the model has a price."""

    tokens: int
    cost: Decimal | None
    full: bool
    """The conversation comes near what the model can keep in mind, or shows as many pictures as the API takes."""
    room: int | None
    """Tokens that are for what only the runner of the call knows (`Part`); None: as many as there are."""


def estimate(step: Step, path: str, agent: AgentRun, before: NodeRun | None) -> Estimate:
    """What the next model call of the agent at `path` can use at most; `before` is that call where it began before."""
    answer = agent.max_tokens or int(step.state.nodes[path].input["max_tokens"])
    price = price_for(step, agent.model)
    counted = None if before is None else (before.saved or {}).get(COUNTED)
    if counted is not None:
        prompt = counted
    elif agent.context:
        # What was answered before was counted; what came since has no more tokens than bytes.
        prompt = agent.context + TOOLS_OVERHEAD + _since(agent, agent.counted, price)
    else:
        prompt = _since(agent, 0, price) + _around(step, path)
    room = _room(step, path, agent, before)
    context = UNKNOWN_CONTEXT if price is None else price.context
    # Where another model goes on, what the first one took is paid as well; each is bound by what it can keep in mind.
    prices = [price_for(step, model) or price for model in (agent.model, *fallbacks(step, path))]
    prompt += max([context, *(each.context for each in prices if each)]) if room is None else room
    full = full_of_pictures([*spoken(agent), {"content": unsent(agent)}])
    if price is not None:
        at = (step.state.nodes[path].input.get("compact") or {}).get("at", COMPACT_AT)
        full = full or (
            bool(agent.context) and (agent.context > at or min(prompt, context) + answer > context * _FULL)
        )
    config = step.state.nodes[path].input
    plan = plan_of(step.node(path))
    looks = bool(searched(config, plan)) if agent.body is None else looks_for_tools(agent.body)
    searches, rounds, given = _served(config.get("server_tools") or {}, looks)
    bounds = [prompt + given if each is None else min(prompt + given, each.context) for each in prices]
    tokens = sum(bound + answer for bound in bounds) * rounds
    if price is None:
        return Estimate(tokens, None, full, room)
    asked = TurnRequest(agent.model, (), answer)
    most = sum(
        (
            worst_case(asked, each or price, prompt_tokens=bound)
            for each, bound in zip(prices, bounds, strict=True)
        ),
        Decimal(0),
    )
    return Estimate(tokens, most * rounds + searches * SEARCH, full, room)


def _served(asked: Mapping[str, Json], looks: bool) -> tuple[int, int, int]:
    """Of tools that run at the provider: the most searches, how often the conversation is read, and by how many tokens it
    grows; `looks`: it looks for tools there."""
    if not asked:
        return 0, _RUNS + 1 if looks else 1, 0
    uses = {name: (asked.get(name) or {}).get("max_uses", 0) for name in ("web_search", "web_fetch")}
    given = uses["web_search"] * SEARCHED + uses["web_fetch"] * FETCHED
    runs = sum(uses.values()) + (_RUNS if looks or asked.get("code_execution") is not None else 0)
    return uses["web_search"], min(runs, _RUNS) + 1, given


def fallbacks(step: Step, path: str) -> list[str]:
    """The models that go on where the agent's declines."""
    return list(step.state.nodes[path].input.get("fallbacks") or ())


def unpriced(step: Step, path: str, agent: AgentRun) -> str | None:
    """A model of the agent at `path` that has no price."""
    models = [agent.model, *fallbacks(step, path)]
    return next((model for model in models if price_for(step, model) is None), None)


def to_count(step: Step, cap: Cap, before: NodeRun | None) -> bool:
    """Whether the API is asked how many tokens a call has before people are asked: by its bytes it would pass this cap."""
    asked = before is not None and COUNTED in (before.saved or {})
    return step.facts.agents.counts and cap.name != "maxTurns" and not asked


def counted_with(before: NodeRun | None) -> dict[str, Json]:
    """The files and tools with which a call was counted."""
    found = [] if before is None else (before.saved or {}).get("marks")
    return {"weighed": found} if found else {}


def price_for(step: Step, model: str) -> Price | None:
    """The price of this model; None where it has none."""
    prices = step.facts.agents.prices
    try:
        return price_of(model, DEFAULTS if prices is None else prices)
    except UnknownPrice:
        return None


def caps_cost(step: Step, agent: AgentRun) -> bool:
    """Whether anything caps what an agent may cost."""
    caps = (agent.caps.get("maxCost"), step.flow.limits.max_cost, step.state.caps.get("maxCost"))
    return step.facts.agents.day_capped or any(cap is not None for cap in caps)


def _around(step: Step, path: str) -> int:
    """Bytes of what is sent beside the conversation."""
    body = agent_at(step.state, path).body
    if body is not None:
        return TOOLS_OVERHEAD * 2 + len(encode(body))
    plan = plan_of(step.node(path))
    told = [(tool.name, tool.description, tool.input_schema) for tool in plan.tools]
    system = system_text(step.state.nodes[path].input, plan)
    return TOOLS_OVERHEAD * 2 + len(encode(told)) + len(encode(system))


def _room(step: Step, path: str, agent: AgentRun, before: NodeRun | None) -> int | None:
    """Tokens for what only the runner knows: what it said that it needs, else enough for pictures and usual schemas."""
    if before is not None and before.saved:
        needed: int | None = before.saved[ROOM]
        return needed
    pictures = sum(map(_pictures, _later(agent, agent.counted if agent.context else 0)))
    unknown = (
        0
        if agent.context or agent.body is not None
        else sum(map(says_itself, plan_of(step.node(path)).tools))
    )
    return pictures * IMAGE_TOKENS + unknown * UNKNOWN_SCHEMA


def _pictures(block: Json) -> int:
    """How many files a block names that say that they are pictures; one that is none is not sent."""
    if block["type"] == "tool_result" and isinstance(block["content"], list):
        return sum(map(_pictures, block["content"]))
    return int(block["type"] == "sayso_file" and str(block.get("mediaType")).startswith("image/"))


def _later(agent: AgentRun, first: int) -> list[Json]:
    """The blocks of the messages from the one with this number on, with what the next call adds."""
    later = range(first, len(agent.messages))
    return [*(block for number in later for block in agent.messages[number]["content"]), *unsent(agent)]


def _since(agent: AgentRun, first: int, price: Price | None) -> int:
    """More tokens than there are in these blocks, but for those of files."""
    return sum(_bound(block, price) for block in _later(agent, first))


def _bound(block: Json, price: Price | None) -> int:
    if price is None:
        return len(encode(block))
    bare = TurnRequest("", (Message("user", (block,)),), 0)
    return prompt_bound(bare, price) - TOOLS_OVERHEAD


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
    """The caps as they would hold if a person lets the agent go on."""


def passed(step: Step, path: str, agent: AgentRun, least: Estimate) -> Cap | None:
    """The cap that the next model call would pass; None where there is room."""
    limits, state = step.flow.limits, step.state
    own: dict[str, Json] = {name: getattr(limits, _FIELDS[name], None) for name in _FIELDS}
    configured = state.nodes[path].input
    for scope, spent, caps, steps in (
        ("flow", state.spent, {**own, **state.caps}, own),
        ("node", agent.spent, agent.caps, {name: configured.get(_FIELDS[name]) for name in _FIELDS}),
    ):
        found = _passed(scope, spent, caps, steps, least)
        if found is not None:
            return found
    left = step.facts.agents.day_left
    if left is not None and not agent.caps.get("day") and least.cost is not None and least.cost > left:
        return Cap("day", "maxCost", "", _dollars(left), _dollars(least.cost), {"day": True})
    return None


_FIELDS = {"maxCost": "max_cost", "maxTokensTotal": "max_tokens_total", "maxTurns": "max_turns"}


def _passed(
    scope: str, spent: Spent, caps: dict[str, Json], steps: dict[str, Json], least: Estimate
) -> Cap | None:
    paid = Decimal(spent.cost) + Decimal(spent.unsure) + Decimal(spent.reserved)
    cap = caps.get("maxCost")
    if cap is not None and least.cost is not None and paid + least.cost > Decimal(str(cap)):
        more = format(paid + max(least.cost, Decimal(str(steps.get("maxCost") or cap))), "f")
        return Cap(scope, "maxCost", _dollars(paid), _dollars(cap), _dollars(least.cost), {"maxCost": more})
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
    return None


def _dollars(amount: Json) -> str:
    """A cap is often less than a dollar, and what is left of it less than cents can tell."""
    return dollars(str(amount), exact_below="1")


_OF = {"node": " is at its cap", "flow": " is at the cap of this flow", "day": " is at the cap of today"}


def cap_prompt(node: Node, cap: Cap) -> Question:
    """The question at a cap: go on, or stop here."""
    used = f"it has used {cap.used} of {cap.cap}" if cap.used else f"{cap.cap} are left"
    next_ = f", and the next call may use up to {cap.next_}" if cap.next_ else ""
    text = f"{_OF[cap.scope]}: {used}{next_}. Nothing more is sent to the model until somebody decides."
    go_on, stop = option("raise", _allowing(cap), "primary"), option("stop", "Stop the agent", "danger")
    # The cap of the day is everybody's: who started this run does not lift it.
    apart = {"scope": cap.scope, "exclude_requester": cap.scope == "day", "caps": cap.raised}
    return step_prompt(node, "budget", text, go_on, stop, **apart)


def _allowing(cap: Cap) -> str:
    """What the button says that lets the agent go on."""
    if cap.scope == "day":
        return "Go on all the same"
    raised = cap.raised[cap.name]
    if cap.name == "maxCost":
        return f"Allow up to {_dollars(raised)}"
    return f"Allow {raised:,} {'tokens' if cap.name == 'maxTokensTotal' else 'turns'}"


def paid(step: Step, model: str, output: Mapping[str, Json]) -> dict[str, Json]:
    """What an answer of this model cost in dollars, exactly, and by which price; nothing for a model without a price. Of
    several rounds each counts at the price of its own model."""
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


# --- files and tools ---------------------------------------------------------------------------------------


COUNTED = "counted"
"""In what a call leaves with: the tokens of its request, as the API counts them."""

ROOM = "room"
"""In the config of a model call, and in what it leaves with: tokens for such parts. None: the model's whole context."""

_MOST_TIMES = 2
"""How often a call is weighed. What grows all the time then gets a whole context."""


class Part(NamedTuple):
    """One file or tool. `tokens` is a bound; None where there is none but the model's context."""

    mark: str
    tokens: int | None


def file_part(block: Json) -> Part:
    """A file, as the block that is sent."""
    return Part(_mark(block), block_bound(block))


def tool_part(tool: Tool) -> Part:
    """A tool, as it is sent."""
    told = tool.to_json()
    return Part(_mark(told), len(encode(told)))


def _mark(sent: Json) -> str:
    return blake2b(encode(sent), digest_size=8).hexdigest()


def marks(parts: Iterable[Part]) -> list[str]:
    """What an answer says of the parts with which it was counted."""
    return [part.mark for part in parts]


def weighed(parts: Sequence[Part], counted: int | None) -> dict[str, Json]:
    """What a call leaves with that was only to be counted: the API's estimate, with some more since it is one; None, and the
    bound of what only its runner knows, where nobody counted."""
    if counted is None:
        return {COUNTED: None, ROOM: _sum(part.tokens for part in parts), "times": 1}
    return {COUNTED: counted + counted // 20 + 1_000, ROOM: 0, "times": 1, "marks": marks(parts)}


def too_little(parts: Sequence[Part], config: Mapping[str, Json], before: Json) -> dict[str, Json] | None:
    """What a call leaves with for which too little is set aside: `{room, times}`; None where it can be made. `before` is
    what it left with when it was weighed last."""
    room = config.get(ROOM)
    if room is None:
        return None
    counted = Counter(config.get("weighed") or ())
    new = list((Counter(marks(parts)) - counted).elements())
    bounds = {part.mark: part.tokens for part in parts}
    needed = _sum(bounds[mark] for mark in new)
    if needed is not None and needed <= room:
        return None
    times = 1 + int((before or {}).get("times", 0))
    # What has grown since it was weighed may go on growing.
    return {ROOM: None if needed is None or times > _MOST_TIMES else needed * times, "times": times}


def _sum(bounds: Iterable[int | None]) -> int | None:
    total = 0
    for bound in bounds:
        if bound is None:
            return None
        total += bound
    return total
