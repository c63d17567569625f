"""What happens in conversations with models: what is said, what tools were asked for and gave, what it used."""

from __future__ import annotations

from decimal import Decimal

from immutables import Map
from msgspec.structs import replace

from engine.journal import events as ev
from engine.journal.folds import containers, nodes, prompts
from engine.journal.folds.nodes import drop_passes, finish, without
from engine.journal.grammar import agent_around, path_of, run_at, same
from engine.journal.queries import (
    LISTING,
    PLAN,
    TURN,
    agent_at,
    agent_of,
    asks_for_more,
    cost_nothing,
    holds,
    rest_id,
)
from engine.journal.state import AgentRun, Asked, Call, Frame, NodeRun, Spent, State, scope_of
from engine.language.codec import Json, encode
from engine.language.errors import MalformedJournal
from engine.messages.files import files_in, kept, with_files


def with_agent(state: State, path: str, agent: AgentRun) -> State:
    container = replace(state.containers[path], agent=agent)
    return replace(state, containers=state.containers.set(path, container))


def _set_aside(run: NodeRun) -> tuple[str, int]:
    """The most that a model call may cost, and the most tokens that it may use."""
    told = run.input or {}
    return str(told.get("reserved") or 0), int(told.get("tokens") or 0)


def _settle(state: State, path: str, run: NodeRun, event: ev.AgentMessage | ev.AgentCompacted) -> State:
    amount, tokens = _set_aside(run)
    used = sum((event.usage or {}).values())
    # Of an interrupted answer the last count never came: the reservation stays, as something that may have been paid.
    cut = isinstance(event, ev.AgentMessage) and bool(event.interrupted)
    return _spend(
        state,
        path,
        turns=1,
        tokens=used,
        cost="0" if cut else event.cost or "0",
        unsure=amount if cut else "0",
        reserved=f"-{amount}",
        reserved_tokens=-tokens,
        unsure_tokens=max(0, tokens - used) if cut else 0,
    )


def _spend(state: State, path: str, **added: str | int) -> State:
    """The state with these amounts added to what the agent around a model call, and the session, have spent."""

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
        fresh = {name: getattr(agent, name) for name in ("lists", *_OF_OUTCOMES)}
        agent = replace(run.kept, final=False, corrections=0, **fresh)
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
    amount, tokens = _set_aside(run)
    return _spend(with_agent(state, owner, agent), path, reserved=amount, reserved_tokens=tokens)


def said_in(messages: Map[int, dict[str, Json]], role: str, blocks: list[Json]) -> Map[int, dict[str, Json]]:
    """The conversation with more said in it: by the one who spoke last, in the same message."""
    last = len(messages) - 1
    if last >= 0 and messages[last]["role"] == role:
        return messages.set(last, {"role": role, "content": [*messages[last]["content"], *blocks]})
    return messages.set(last + 1, {"role": role, "content": blocks})


def agent_opened(state: State, event: ev.AgentOpened) -> State:
    """What the call was made of, said with its outcome: the body once, and the files that had no digest before."""
    path = path_of(event)
    agent = agent_at(state, path)
    same(event.node_id, state.nodes[path].node_id, "agent")
    if event.turn is None:
        return with_agent(state, path, _opened_anew(state, path, agent, event))
    _answers(state, path, event.turn)
    if event.body is not None and agent.body is not None:
        raise MalformedJournal(f"the conversation of {path} was opened before")
    if event.body is None and agent.body is None:
        raise MalformedJournal(f"the conversation of {path} has no beginning")
    messages = agent.messages if event.files is None else _kept(agent.messages, event.files)
    body = agent.body if event.body is None else event.body
    drop = agent.drop or bool(event.drop)
    return with_agent(state, path, replace(agent, body=body, drop=drop, messages=messages))


def _opened_anew(state: State, path: str, agent: AgentRun, event: ev.AgentOpened) -> AgentRun:
    """People let a server's tools be offered as they are now."""
    offered = (
        prompt.listing
        for prompt in state.prompts.values()
        if (prompt.kind, prompt.path) == (LISTING, path) and (prompt.answer or {}).get("value") == "offer"
    )
    tools = (event.body or {}).get("tools") or []
    if not any(all(tool in tools for tool in listing["tools"]) for listing in offered if listing):
        raise MalformedJournal(f"nobody let the tools of {path} be offered as they are now")
    more = len(encode(event.body)) if agent.context else 0
    return replace(agent, body=event.body, drop=True, context=agent.context + more)


def _kept(messages: Map[int, dict[str, Json]], read: list[dict[str, Json]]) -> Map[int, dict[str, Json]]:
    """The messages with the digests of the files in them that were only named."""
    left = iter(read)

    def known(block: Json) -> Json:
        return block if kept(block) else {**block, **next(left)}

    wanted = sum(
        not kept(block) for number in range(len(messages)) for block in files_in(messages[number]["content"])
    )
    same(len(read), wanted, "number of files")
    for number in range(len(messages)):
        content = messages[number]["content"]
        if any(not kept(block) for block in files_in(content)):
            messages = messages.set(number, {**messages[number], "content": with_files(content, known)})
    return messages


def agent_message(state: State, event: ev.AgentMessage) -> State:
    path = path_of(event)
    agent = agent_at(state, path)
    same(event.node_id, state.nodes[path].node_id, "agent")
    same(event.role, "assistant" if event.source == "model" else "user", "role")
    if event.source == "model":
        _answers(state, path, event.turn)
        _says_no_more_than(event, "turn")
        return _answered(state, path, event, event.turn or "")
    told = ("actor", "key") if event.source == "person" else ()
    if event.overheard and event.source != "person":
        raise MalformedJournal("only words of people are overheard")
    _says_no_more_than(event, *told)
    if event.source == "person" and event.key in agent.heard:
        raise MalformedJournal(f"the message {event.key} was heard before")
    if event.source != "person":
        _follows_an_answer(state, agent, path, event)
    agent = replace(
        agent,
        pending=(*agent.pending, *event.content),
        heard=(*agent.heard, event.key) if event.key and not event.overheard else agent.heard,
        final=agent.final and bool(event.overheard),
        corrections=agent.corrections + (event.source == "engine"),
    )
    state = with_agent(state, path, agent)
    if event.overheard:
        return replace(state, seen=state.seen.set(event.key or "", None))
    if event.source == "person":
        who = str((event.actor or {}).get("id"))
        state = with_agent(state, path, replace(agent, spoke=agent.spoke.set(who, event.timestamp)))
    return replace(state, timers=without(state.timers, rest_id(state, path)))


def _answered(state: State, path: str, event: ev.AgentMessage, turn: str) -> State:
    run = state.nodes[turn]
    state = _settle(state, turn, run, event)
    agent = agent_at(state, path)
    usage = event.usage or {}
    messages = agent.messages
    if event.content:
        messages = said_in(messages, "assistant", list(event.content))
    counted = (agent.context, agent.counted, agent.weighed)
    if not event.interrupted and (run.input or {}).get("purpose") != "compact":
        counted = (event.context or sum(usage.values()), len(messages), tuple(event.weighed or ()))
    said = [block["text"] for block in event.content if block["type"] == "text"]
    calls = any(block["type"] == "tool_use" for block in event.content)
    cut = agent.cut and "".join([agent.cut, *said])
    agent = replace(
        agent,
        messages=messages,
        usage={name: agent.usage.get(name, 0) + number for name, number in usage.items()},
        context=counted[0],
        counted=counted[1],
        weighed=counted[2],
        text="".join([agent.cut, *said]),
        plan=None if event.final else agent.plan,
        cut=cut if event.interrupted or (run.input or {}).get("cut") else "",
        container=event.container or agent.container,
        final=bool(event.final),
        alone={} if calls else agent.alone,
        unsigned=agent.unsigned or _no_summary(run, event),
    )
    return _turn_ends(with_agent(state, path, agent), turn, run, event.timestamp)


def _no_summary(run: NodeRun, event: ev.AgentMessage) -> bool:
    """Whether a summary was asked for and none came, which more room would not change."""
    asked = (run.input or {}).get("purpose") == "compact"
    return asked and not event.interrupted and event.stop_reason != "max_tokens"


def _says_no_more_than(event: ev.AgentMessage, *names: str) -> None:
    for name in ("turn", "actor", "key"):
        if (getattr(event, name) is not None) != (name in names):
            raise MalformedJournal(
                f"a message of the {event.source} has {' and '.join(names) or 'none of these'}: {name}"
            )
    if event.source != "model" and (event.interrupted or event.final):
        raise MalformedJournal("only the model's answers are interrupted, or the final ones")


def _follows_an_answer(state: State, agent: AgentRun, path: str, event: ev.AgentMessage) -> None:
    """A conversation begins with what the flow asks. An agent that was stopped in the middle of an answer is told to go
    on, one whose answer cannot be used what is wrong with it."""
    if state.owed and event.source == "prompt" and not agent.messages:
        return
    last = agent.messages[len(agent.messages) - 1] if agent.messages else {"role": "user"}
    whole = agent.counted == len(agent.messages)
    # An answer of thoughts alone stands nowhere: then the last message is not the model's.
    again = state.nodes[path].attempt > 1
    cut = last["role"] == "assistant" and (again or not whole)
    fits = whole and agent.messages if event.source == "engine" else cut and not state.owed
    if asks_for_more(agent.pending) or agent.order or not fits:
        raise MalformedJournal(f"nothing has to be said to {path} now by the {event.source}")


def _answers(state: State, path: str, turn: str | None) -> None:
    """The outcome of a model call that is under way."""
    run = run_at(state, turn or "", "started")
    if run.type != TURN or agent_around(state, turn or "") != path:
        raise MalformedJournal(f"{turn} is no model call of {path}")


def agent_compacted(state: State, event: ev.AgentCompacted) -> State:
    path = path_of(event)
    agent = agent_at(state, path)
    same(event.node_id, state.nodes[path].node_id, "agent")
    _answers(state, path, event.turn)
    same((state.nodes[event.turn].input or {}).get("purpose"), "compact", "purpose")
    same(event.replaced, len(agent.messages), "number of messages")
    run = state.nodes[event.turn]
    state = _settle(state, event.turn, run, event)
    agent = agent_at(state, path)
    usage = event.usage or {}
    agent = replace(
        agent,
        messages=_summed(event),
        plain=min(agent.plain, 1),
        usage={name: agent.usage.get(name, 0) + number for name, number in usage.items()},
        context=0,
        counted=0,
        weighed=(),
        compacts=None,
    )
    return _turn_ends(with_agent(state, path, agent), event.turn, run, event.timestamp)


def _summed(event: ev.AgentCompacted) -> Map[int, dict[str, Json]]:
    """The conversation from here on: a summary that the API has signed is the model's, and the first that is sent."""
    said: list[dict[str, Json]] = [{"role": "user", "content": event.content}]
    if event.block is not None:
        said.insert(0, {"role": "assistant", "content": [event.block]})
    return Map(dict(enumerate(said)))


_OF_OUTCOMES = ("stuck", "alone", "compacts", "resends", "cut")
"""What holds of a conversation until its model calls have an answer to go on with."""


def _turn_ends(state: State, path: str, run: NodeRun, at: str) -> State:
    return finish(state, path, replace(run, status="completed", input=None, saved=None, ended_at=at))


def agent_tool_requested(state: State, event: ev.AgentToolRequested) -> State:
    """It is owed by the answer, whose block it repeats."""
    path = path_of(event)
    if not state.owed:
        raise MalformedJournal(f"no answer asks for {path}")
    scope = scope_of(path)
    owner = agent_around(state, scope)
    agent = agent_at(state, owner)
    same(event.node_id, state.nodes[owner].node_id, "agent")
    blocks = [
        block for block in agent.messages[len(agent.messages) - 1]["content"] if block["type"] == "tool_use"
    ]
    block = blocks[len(agent.order)]
    same((event.tool_use_id, event.name, event.input), (block["id"], block["name"], block["input"]), "call")
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
    call = agent.calls.get(path)
    if call is None:
        raise MalformedJournal(f"{path} is no tool call that waits for its result")
    same((event.node_id, event.tool_use_id), (state.nodes[owner].node_id, call.tool_use_id), "call")
    if call.prompt_id in state.open_prompts:
        raise MalformedJournal(f"the question {call.prompt_id} about it is not decided")
    _has_result(state, path, event)
    block: dict[str, Json] = {
        "type": "tool_result",
        "tool_use_id": event.tool_use_id,
        "content": event.content,
        **({"is_error": True} if event.is_error else {}),
    }
    plan = agent.plan
    if call.name == PLAN and not event.is_error:
        plan = {"turn": plan["turn"] if plan else scope_of(path), "input": call.input}
    agent = replace(
        agent,
        calls=agent.calls.delete(path),
        results=agent.results.set(event.tool_use_id, block),
        plan=plan,
    )
    state = with_agent(state, owner, agent)
    run = state.nodes.get(path)
    if run is None or path not in state.active:
        return state
    if path in state.containers:
        state = drop_passes(state, path)
    run = replace(run, input=None, saved=None, error=event.error, ended_at=event.timestamp)
    return finish(state, path, replace(run, status="failed" if event.error else "completed"))


def _has_result(state: State, path: str, event: ev.AgentToolResult) -> None:
    run = state.nodes.get(path)
    if event.error is not None and not event.is_error:
        raise MalformedJournal(f"{path} failed, so its result is an error")
    if run is None:
        if event.error is not None or not (event.is_error or _answered_in_place(state, path)):
            raise MalformedJournal(f"{path} has a result and was never started")
        return
    if run.prompt_id in state.open_prompts:
        raise MalformedJournal(f"{path} has a result without an answer")
    if event.error is None and (run.status == "retrying" or path in state.containers):
        raise MalformedJournal(f"{path} is not over")


def _answered_in_place(state: State, path: str) -> bool:
    call = agent_at(state, agent_of(state, path) or "").calls.get(path)
    prompt = state.prompts.get((call.prompt_id if call is not None else None) or "")
    return prompt is not None and (prompt.answer or {}).get("value") == "answer"


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
    """A person let it go on at a cap: what the question said is what holds."""
    path = path_of(event)
    run = run_at(state, path, "started")
    same(event.node_id, run.node_id, "agent")
    prompt = state.prompts.get(run.prompt_id or "")
    if prompt is None or prompt.kind != "budget" or (prompt.answer or {}).get("value") != "raise":
        raise MalformedJournal(f"nobody let {path} go on at its cap")
    same((event.scope, event.caps), (prompt.scope, prompt.caps), "cap")
    caps = state.caps if event.scope == "flow" else agent_at(state, path).caps
    if all(caps.get(name) == cap for name, cap in event.caps.items()) and not _raised_by_another(
        state, prompt
    ):
        raise MalformedJournal(f"{path} was let go on at its cap before")
    if event.scope == "flow":
        return replace(state, caps={**state.caps, **event.caps})
    agent = agent_at(state, path)
    return with_agent(state, path, replace(agent, caps={**agent.caps, **event.caps}))


def _raised_by_another(state: State, prompt: Asked) -> bool:
    """Whether the flow's cap was raised by the same amount for another agent that was at it."""
    return prompt.scope == "flow" and any(
        other is not prompt
        and other.kind == "budget"
        and (other.answer or {}).get("value") == "raise"
        and (other.scope, other.caps) == ("flow", prompt.caps)
        for other in state.prompts.values()
    )


def container_started(state: State, event: ev.ContainerStarted) -> State:
    state = containers.container_started(state, event)
    return state if event.agent is None else agent_begins(state, path_of(event), event)


def container_completed(state: State, event: ev.ContainerCompleted) -> State:
    path = path_of(event)
    container = state.containers.get(path)
    agent = None if container is None else container.agent
    state = containers.container_completed(state, event)
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
    return _lost(nodes.node_failed(state, event), state, event)


def node_failing(state: State, event: ev.NodeFailing) -> State:
    return _lost(nodes.node_failing(state, event), state, event)


def node_retried(state: State, event: ev.NodeRetried) -> State:
    return _lost(nodes.node_retried(state, event), state, event)


def node_interrupted(state: State, event: ev.NodeInterrupted) -> State:
    return _lost(nodes.node_interrupted(state, event), state, event)


def _lost(
    state: State, before: State, event: ev.NodeFailed | ev.NodeFailing | ev.NodeRetried | ev.NodeInterrupted
) -> State:
    """A model call has no answer. Nobody knows what it cost, so all that was set aside counts, unless nothing was sent
    or nothing has to be paid for."""
    path = path_of(event)
    run = before.nodes[path]
    if run.type != TURN or run.status != "started":
        return state
    amount, tokens = _set_aside(run)
    given_back: dict[str, str | int] = {"reserved": f"-{amount}", "reserved_tokens": -tokens}
    if cost_nothing(run, event):
        return _spend(state, path, **given_back)
    return _spend(state, path, unsure=amount, unsure_tokens=tokens, **given_back)


def prompt_requested(state: State, event: ev.PromptRequested) -> State:
    state = prompts.prompt_requested(state, event)
    return call_asked(state, path_of(event), event.prompt_id) if event.prompt.get("tool") else state
