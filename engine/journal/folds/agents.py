"""The fold of conversations with models: what is said, what tools were asked for and gave, what it used."""

from __future__ import annotations

from decimal import Decimal

from immutables import Map
from msgspec.structs import replace

from engine.journal import events as ev
from engine.journal.folds import nodes, session
from engine.journal.folds.nodes import drop_passes, finish
from engine.journal.grammar.common import agent_around, path_of
from engine.journal.state import LEFT, AgentRun, Call, Frame, NodeRun, Spent, State, scope_of
from engine.language.codec import Json
from engine.language.errors import MalformedJournal

TURN = "turn"
"""The type of the nodes that are model calls."""

ASKED_OR_RUN = "asked or run"
"""The mode of a call of which only its rule says whether people are asked first: there has to be room for either."""


def agent_at(state: State, path: str) -> AgentRun:
    """The conversation of the agent at a path."""
    container = state.containers.get(path)
    if container is None or container.agent is None:
        raise MalformedJournal(f"{path} is no agent that is under way")
    return container.agent


def with_agent(state: State, path: str, agent: AgentRun) -> State:
    container = replace(state.containers[path], agent=agent)
    return replace(state, containers=state.containers.set(path, container))


def agent_of(state: State, path: str) -> str | None:
    """The path of the agent whose model call or tool call this is; None for any other node."""
    frame = state.frames.get(scope_of(path))
    if frame is None or frame.owner is None:
        return None
    container = state.containers.get(frame.owner)
    return frame.owner if container is not None and container.agent is not None else None


# --- what was spent ------------------------------------------------------------------------------------------


def more(first: str, second: Json) -> str:
    """The sum of two amounts."""
    return format((Decimal(first) + Decimal(str(second or 0))).normalize(), "f")


def reserve(state: State, path: str, run: NodeRun) -> State:
    """A model call began: what it may cost at most is set aside."""
    amount, tokens = _set_aside(run)

    def reserved(spent: Spent) -> Spent:
        aside = spent.reserved_tokens + tokens
        return replace(spent, reserved=more(spent.reserved, amount), reserved_tokens=aside)

    return _spend(state, path, reserved)


def _set_aside(run: NodeRun) -> tuple[str, int]:
    """The most that a model call may cost, and the most tokens that it may use."""
    told = run.input or {}
    return str(told.get("reserved") or 0), int(told.get("tokens") or 0)


def unmade(run: NodeRun, event: ev.Event) -> bool:
    """Whether a model call left before anything was sent: more has to be set aside for it."""
    left = isinstance(event, ev.NodeInterrupted) and event.reason == LEFT and event.saved is not None
    return left and run.type == TURN


def _given_back(state: State, path: str, run: NodeRun) -> State:
    amount, tokens = _set_aside(run)
    return _spend(
        state,
        path,
        lambda spent: replace(
            spent, reserved=more(spent.reserved, "-" + amount), reserved_tokens=spent.reserved_tokens - tokens
        ),
    )


def lost(state: State, path: str, run: NodeRun) -> State:
    """A model call has no answer: nobody knows what it cost, so all that was set aside counts."""
    if run.type != TURN or run.status != "started":
        return state
    amount, tokens = _set_aside(run)
    return _spend(
        state,
        path,
        lambda spent: replace(
            spent,
            reserved=more(spent.reserved, "-" + amount),
            unsure=more(spent.unsure, amount),
            reserved_tokens=spent.reserved_tokens - tokens,
            unsure_tokens=spent.unsure_tokens + tokens,
        ),
    )


def _settle(state: State, path: str, run: NodeRun, event: ev.AgentMessage | ev.AgentCompacted) -> State:
    amount, tokens = _set_aside(run)
    used = sum((event.usage or {}).values())
    # Of an interrupted answer the last count never came: the reservation stays, as something that may have been paid.
    cut = isinstance(event, ev.AgentMessage) and bool(event.interrupted)
    cost, unsure = (event.cost or "0", "0")
    if cut:
        cost, unsure = "0", amount

    def settled(spent: Spent) -> Spent:
        return replace(
            spent,
            turns=spent.turns + 1,
            tokens=spent.tokens + used,
            cost=more(spent.cost, cost),
            unsure=more(spent.unsure, unsure),
            reserved=more(spent.reserved, "-" + amount),
            reserved_tokens=spent.reserved_tokens - tokens,
            unsure_tokens=spent.unsure_tokens + (max(0, tokens - used) if cut else 0),
        )

    return _spend(state, path, settled)


def _spend(state: State, path: str, change: object) -> State:
    assert callable(change)
    owner = agent_around(state, path)
    agent = agent_at(state, owner)
    moved = with_agent(state, owner, replace(agent, spent=change(agent.spent)))
    return replace(moved, spent=change(state.spent))


# --- the conversation ----------------------------------------------------------------------------------------


def agent_begins(state: State, path: str, event: ev.ContainerStarted) -> State:
    """A container that is an agent: an empty conversation, and the place of its model calls."""
    told = event.agent or {}
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
            raise MalformedJournal(f"{path} has no conversation to go on with")
        agent = replace(run.kept, lists=agent.lists, final=False, corrections=0)
        state = replace(state, nodes=state.nodes.set(path, replace(run, kept=None)))
    scope = path if attempt == 1 else f"{path}#{attempt}"
    state = with_agent(state, path, agent)
    return replace(state, frames=state.frames.set(scope, Frame(agent.lists[0], path)))


def turn_begins(state: State, path: str, run: NodeRun) -> State:
    """A model call: what has come since the last one is the user's next message."""
    owner = agent_around(state, path)
    agent = agent_at(state, owner)
    missing = [tool for tool in agent.order if tool not in agent.results]
    if missing:
        raise MalformedJournal(f"{path} began, and the tool calls {', '.join(missing)} have no result")
    said = [*(agent.results[tool] for tool in agent.order), *agent.pending]
    if said:
        agent = replace(agent, messages=_said(agent.messages, "user", said))
    state = replace(state, pending=tuple(said for said in state.pending if said[0] not in agent.heard))
    agent = replace(agent, pending=(), heard=(), order=(), results=Map(), final=False)
    return reserve(with_agent(state, owner, agent), path, run)


def _said(messages: Map[int, dict[str, Json]], role: str, blocks: list[Json]) -> Map[int, dict[str, Json]]:
    """The conversation with more said in it: by the one who spoke last, in the same message."""
    last = len(messages) - 1
    if last >= 0 and messages[last]["role"] == role:
        return messages.set(last, {"role": role, "content": [*messages[last]["content"], *blocks]})
    return messages.set(last + 1, {"role": role, "content": blocks})


def agent_message(state: State, event: ev.AgentMessage) -> State:
    path = path_of(event)
    agent = agent_at(state, path)
    if event.source != "model":
        heard = (*agent.heard, event.key) if event.key else agent.heard
        wrong = event.source == "engine"
        return with_agent(
            state,
            path,
            replace(
                agent,
                pending=(*agent.pending, *event.content),
                heard=heard,
                final=False,
                corrections=agent.corrections + wrong,
            ),
        )
    turn = event.turn or ""
    run = state.nodes[turn]
    state = _settle(state, turn, run, event)
    agent = agent_at(state, path)
    usage = event.usage or {}
    messages = agent.messages
    if event.content:
        messages = _said(messages, "assistant", list(event.content))
    counted = (agent.context, agent.counted, agent.weighed)
    if not event.interrupted:
        counted = (sum(usage.values()), len(messages), tuple(event.weighed or ()))
    agent = replace(
        agent,
        messages=messages,
        usage={name: agent.usage.get(name, 0) + number for name, number in usage.items()},
        context=counted[0],
        counted=counted[1],
        weighed=counted[2],
        text="".join(block["text"] for block in event.content if block["type"] == "text"),
        final=bool(event.final),
    )
    return _turn_ends(with_agent(state, path, agent), turn, run, event.timestamp)


def agent_compacted(state: State, event: ev.AgentCompacted) -> State:
    path = path_of(event)
    run = state.nodes[event.turn]
    state = _settle(state, event.turn, run, event)
    agent = agent_at(state, path)
    usage = event.usage or {}
    agent = replace(
        agent,
        messages=Map({0: {"role": "user", "content": event.content}}),
        usage={name: agent.usage.get(name, 0) + number for name, number in usage.items()},
        context=0,
        counted=0,
        weighed=(),
    )
    return _turn_ends(with_agent(state, path, agent), event.turn, run, event.timestamp)


def _turn_ends(state: State, path: str, run: NodeRun, at: str) -> State:
    return finish(state, path, replace(run, status="completed", input=None, saved=None, ended_at=at))


# --- tools -----------------------------------------------------------------------------------------------------


def agent_tool_requested(state: State, event: ev.AgentToolRequested) -> State:
    path = path_of(event)
    scope = scope_of(path)
    owner = agent_around(state, scope)
    agent = agent_at(state, owner)
    if event.tool_use_id in agent.order:
        raise MalformedJournal(f"the tool call {event.tool_use_id} was requested before")
    call = Call(event.tool_use_id, event.name, event.input, event.tool)
    agent = replace(agent, calls=agent.calls.set(path, call), order=(*agent.order, event.tool_use_id))
    state = with_agent(state, owner, agent)
    if scope in state.frames:
        return state
    frame = Frame(agent.lists[1], owner, agent.spent.turns)
    return replace(state, frames=state.frames.set(scope, frame))


def agent_tool_result(state: State, event: ev.AgentToolResult) -> State:
    path = path_of(event)
    owner = agent_around(state, path)
    agent = agent_at(state, owner)
    block: dict[str, Json] = {
        "type": "tool_result",
        "tool_use_id": event.tool_use_id,
        "content": event.content,
        **({"is_error": True} if event.is_error else {}),
    }
    agent = replace(
        agent, calls=agent.calls.delete(path), results=agent.results.set(event.tool_use_id, block)
    )
    state = with_agent(state, owner, agent)
    run = state.nodes.get(path)
    if run is None or path not in state.active:
        return state
    if path in state.containers:
        state = drop_passes(state, path)
    run = replace(run, input=None, saved=None, error=event.error, ended_at=event.timestamp)
    return finish(state, path, replace(run, status="failed" if event.error else "completed"))


def call_asked(state: State, path: str, prompt_id: str) -> State:
    """A question whether a tool call may run."""
    owner = agent_of(state, path)
    if owner is None:
        return state
    agent = agent_at(state, owner)
    call = agent.calls.get(path)
    if call is None or path in state.nodes:
        return state
    calls = agent.calls.set(path, replace(call, prompt_id=prompt_id))
    return with_agent(state, owner, replace(agent, calls=calls))


def agent_budget(state: State, event: ev.AgentBudget) -> State:
    if event.scope == "flow":
        return replace(state, caps={**state.caps, **event.caps})
    path = path_of(event)
    agent = agent_at(state, path)
    return with_agent(state, path, replace(agent, caps={**agent.caps, **event.caps}))


# --- what happens to all nodes, and means more for these --------------------------------------------------------


def container_started(state: State, event: ev.ContainerStarted) -> State:
    state = nodes.container_started(state, event)
    return state if event.agent is None else agent_begins(state, path_of(event), event)


def container_completed(state: State, event: ev.ContainerCompleted) -> State:
    path = path_of(event)
    container = state.containers.get(path)
    agent = None if container is None else container.agent
    state = nodes.container_completed(state, event)
    if agent is None:
        return state
    if agent.keeps:
        said = tuple(agent.messages[number] for number in range(len(agent.messages)))
        state = replace(state, conversations=state.conversations.set(path, said))
    return drop_passes(state, path)


def child_started(state: State, event: ev.ChildStarted) -> State:
    path = path_of(event)
    state = nodes.child_started(state, event)
    return turn_begins(state, path, state.nodes[path]) if event.node_type == TURN else state


def node_failed(state: State, event: ev.NodeFailed) -> State:
    return nodes.node_failed(_lost(state, event), event)


def node_retried(state: State, event: ev.NodeRetried) -> State:
    return nodes.node_retried(_lost(state, event), event)


def node_interrupted(state: State, event: ev.NodeInterrupted) -> State:
    return nodes.node_interrupted(_lost(state, event), event)


def _lost(state: State, event: ev.NodeFailed | ev.NodeRetried | ev.NodeInterrupted) -> State:
    path = path_of(event)
    run = state.nodes.get(path)
    if run is None:
        return state
    unpaid = isinstance(event, ev.NodeRetried | ev.NodeFailed) and event.unpaid
    if run.status == "started" and (unpaid or unmade(run, event)):
        return _given_back(state, path, run)
    return lost(state, path, run)


def prompt_requested(state: State, event: ev.PromptRequested) -> State:
    state = session.prompt_requested(state, event)
    return call_asked(state, path_of(event), event.prompt_id) if event.prompt.get("tool") else state
