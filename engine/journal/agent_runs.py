"""Conversations with models in a state: the beginning of a call, and the accounting of its cost. Pure."""

from decimal import Decimal

from immutables import Map
from msgspec.structs import replace

from engine.journal.grammar import agent_around
from engine.journal.queries import TURN, agent_at, holds
from engine.journal.state import AgentRun, Frame, NodeRun, Spent, State
from engine.language.codec import Json
from engine.language.errors import MalformedJournal


def with_agent(state: State, path: str, agent: AgentRun) -> State:
    container = replace(state.containers[path], agent=agent)
    return replace(state, containers=state.containers.set(path, container))


def set_aside(run: NodeRun) -> tuple[str, int]:
    """The most that a model call may cost, and the most tokens that it may use."""
    told = run.input or {}
    return str(told.get("reserved") or 0), int(told.get("tokens") or 0)


def spend(state: State, path: str, **added: str | int) -> State:
    """Add these amounts to the spending of the session and of the agent around a model call."""

    def sums(spent: Spent) -> Spent:
        known = {name: getattr(spent, name) for name in added}
        return replace(spent, **{name: _sum(known[name], amount) for name, amount in added.items()})

    owner = agent_around(state, path)
    agent = agent_at(state, owner)
    moved = with_agent(state, owner, replace(agent, spent=sums(agent.spent)))
    return replace(moved, spent=sums(state.spent))


def _sum(known: str | int, amount: str | int) -> str | int:
    """Tokens are whole numbers, and dollars exact decimals in text."""
    if isinstance(known, int):
        return known + int(amount)
    return format((Decimal(known) + Decimal(amount)).normalize(), "f")


def agent_begins(state: State, path: str, told: dict[str, Json]) -> State:
    """A container that is an agent: an empty conversation, and the place of its model calls."""
    agent = AgentRun(
        model=told["model"],
        lists=(told["turnList"], told["toolList"]),
        keeps=bool(told.get("keeps")),
        structured=bool(told.get("structured")),
        caps={name: told.get(name) for name in ("maxCost", "maxTokensTotal", "maxTurns")},
    )
    run = state.nodes[path]
    attempt = run.attempt
    if told.get("goesOn"):
        if run.kept is None:
            raise MalformedJournal(f"{path} has no conversation to continue")
        fresh = {name: getattr(agent, name) for name in ("lists", *OF_OUTCOMES)}
        agent = replace(run.kept, final=False, corrections=0, **fresh)
        state = replace(state, nodes=state.nodes.set(path, replace(run, kept=None)))
    scope = path if attempt == 1 else f"{path}#{attempt}"
    state = with_agent(state, path, agent)
    return replace(state, frames=state.frames.set(scope, Frame(agent.lists[0], path)))


def turn_begins(state: State, path: str, run: NodeRun) -> State:
    """Begin a model call: everything new since the last one becomes the user's next message."""
    owner = agent_around(state, path)
    agent = agent_at(state, owner)
    missing = [tool for tool in agent.order if tool not in agent.results]
    if missing:
        raise MalformedJournal(f"{path} began, and the tool calls {', '.join(missing)} have no result")
    told = run.input or {}
    # Before model calls said so, only results of tools kept words back.
    held = holds(agent) and bool(agent.order or told.get("held"))
    said = [*(agent.results[tool] for tool in agent.order), *(() if held else agent.pending)]
    if said:
        agent = replace(agent, messages=said_in(agent.messages, "user", said))
    if not held:
        state = replace(state, pending=tuple(said for said in state.pending if said[0] not in agent.heard))
        agent = replace(agent, pending=(), heard=())
    if told.get("anew"):
        agent = replace(agent, alone={}, corrections=0)
    agent = replace(agent, order=(), results=Map(), final=False, resends=False)
    amount, tokens = set_aside(run)
    return spend(with_agent(state, owner, agent), path, reserved=amount, reserved_tokens=tokens)


def said_in(messages: Map[int, dict[str, Json]], role: str, blocks: list[Json]) -> Map[int, dict[str, Json]]:
    """Append blocks to the conversation: to the last message if it has the same role, else as a new one."""
    last = len(messages) - 1
    if last >= 0 and messages[last]["role"] == role:
        return messages.set(last, {"role": role, "content": [*messages[last]["content"], *blocks]})
    return messages.set(last + 1, {"role": role, "content": blocks})


OF_OUTCOMES = ("stuck", "alone", "compacts", "resends", "cut")
"""Fields of a conversation that are reset by a usable answer."""


def unanswered_call(state: State, path: str, run: NodeRun, free: bool) -> State:
    """Return the state after a model call that gave no answer (other nodes change nothing). Its cost is unknown, so the
    whole reservation counts, unless it was `free`: not sent, or not charged."""
    if run.type != TURN or run.status != "started":
        return state
    amount, tokens = set_aside(run)
    given_back: dict[str, str | int] = {"reserved": f"-{amount}", "reserved_tokens": -tokens}
    if free:
        return spend(state, path, **given_back)
    return spend(state, path, unsure=amount, unsure_tokens=tokens, **given_back)
