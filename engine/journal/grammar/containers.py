"""The rules of graphs, jumps and containers, and of conversations with models. Pure."""

from __future__ import annotations

from engine.journal import events as ev
from engine.journal.folds.agents import TURN, agent_at, agent_of
from engine.journal.grammar.common import (
    agent_around,
    container_at,
    frame_at,
    pass_scope,
    path_of,
    run_at,
    same,
    through,
)
from engine.journal.state import (
    COLLECT,
    ON_FAILURE,
    AgentRun,
    Asked,
    ContainerRun,
    Frame,
    Graph,
    State,
    scope_of,
)
from engine.language.errors import MalformedJournal

# --- graphs and jumps --------------------------------------------------------------------------------------------


def edge_resolved(state: State, event: ev.EdgeResolved) -> None:
    frame = frame_at(state, event.scope)
    if event.path is None:
        _graph_begins(frame, event)
        return
    graph = frame.graph
    if graph is None or event.node_id is None or event.node_id not in graph.ended:
        raise MalformedJournal(f"the edges of {event.node_id} are resolved already, or it has no outcome yet")
    same(event.path, frame.nodes[event.node_id], "path")
    if (event.jump, event.limit, event.error).count(None) < 2:
        raise MalformedJournal("a pass jumps, goes on at a limit, or fails")
    if event.limit is not None and event.limit not in frame.nodes:
        raise MalformedJournal(f"a loop leads back, and {event.limit} did not run")
    if any(state.prompts[key].path == event.path for key in state.open_prompts):
        raise MalformedJournal(f"people are asked about the loop edge that leaves {event.node_id}")
    if event.jump is not None and event.jump not in frame.nodes:
        raise MalformedJournal(f"a loop leads back, and {event.jump} did not run")
    _ready(frame, graph, event)


def _graph_begins(frame: Frame, event: ev.EdgeResolved) -> None:
    told = (event.node_id, event.taken, event.jump or event.limit, event.error)
    if frame.graph is not None or frame.nodes:
        raise MalformedJournal(f"{event.scope or 'the flow'} has begun before")
    if told != (None, None, None, None) or not event.ready:
        raise MalformedJournal("a pass begins with the nodes that may start, and nothing else")


def _ready(frame: Frame, graph: Graph, event: ev.EdgeResolved) -> None:
    """Each node that may start now has an edge that leads there and is taken, and is not on its way yet."""
    taken = event.taken or {}
    for node_id in event.ready:
        led = taken.get(node_id) or graph.gates.get(node_id, (0, 0))[1]
        if node_id not in taken or not led:
            raise MalformedJournal(f"no edge that is taken leads to {node_id}")
        if node_id in graph.ready or (node_id in frame.nodes and node_id not in graph.again):
            raise MalformedJournal(f"{node_id} is on its way already")


def loop_iterate(state: State, event: ev.LoopIterate) -> None:
    path = path_of(event)
    frame = frame_at(state, scope_of(path))
    same(path, frame.nodes.get(event.edge_from), "path")
    if (event.edge_from, event.edge_to) not in frame.jumps:
        raise MalformedJournal(f"no jump from {event.edge_from} to {event.edge_to} is decided")
    same(event.iteration, frame.loops.get(f"{event.edge_from}>{event.edge_to}", 0) + 1, "iteration")
    target = frame.nodes.get(event.edge_to)
    if target is not None:
        same(event.position, state.nodes[target].position, "position")
    if frame.graph is None:
        _no_reset(frame, event)
    else:
        _resets(state, frame, frame.graph, event)


def _no_reset(frame: Frame, event: ev.LoopIterate) -> None:
    if event.reset is not None or event.carried is not None or frame.running:
        raise MalformedJournal("a jump in a list waits for what runs, and resets nothing")


def _resets(state: State, frame: Frame, graph: Graph, event: ev.LoopIterate) -> None:
    """All that gets another visit has ended, the target with it."""
    again = event.reset or []
    if event.edge_to not in again or len(set(again)) < len(again):
        raise MalformedJournal(f"{event.edge_to} gets another visit, and what comes after it, each once")
    for node_id in again:
        path = frame.nodes.get(node_id)
        if path is None or node_id in graph.again or node_id in graph.ended or path in state.active:
            raise MalformedJournal(f"{node_id} has not ended, so it gets no other visit")
    for node_id in event.carried or {}:
        if node_id not in again or node_id == event.edge_to:
            raise MalformedJournal(f"{node_id} gets no other visit, so nothing counts on for it")


# --- containers --------------------------------------------------------------------------------------------------


def container_started(state: State, event: ev.ContainerStarted) -> None:
    path = path_of(event)
    run = run_at(state, path, "started")
    same((event.node_id, event.kind), (run.node_id, run.type), "container")
    if not state.owed or path in state.containers:
        raise MalformedJournal(f"container {path} was started before")
    _SAYS[event.kind](event)
    if event.kind == "foreach":
        same(event.items, (run.input or {}).get("items"), "items")


def _says(event: ev.ContainerStarted, *names: str) -> None:
    """It says of what it goes through exactly this."""
    for name in ("total", "items", "keys", "inputs", "agent"):
        if (getattr(event, name) is not None) != (name in names):
            raise MalformedJournal(
                f"a {event.kind} says {' and '.join(names) or 'nothing'} of what it goes through"
            )


def _foreach(event: ev.ContainerStarted) -> None:
    _says(event, "items", "total")
    same(event.total, len(event.items or []), "total")


def _loop(event: ev.ContainerStarted) -> None:
    _says(event)


def _parallel(event: ev.ContainerStarted) -> None:
    _says(event, "keys", "total")
    if not event.keys or event.total not in (COLLECT, len(event.keys)):
        raise MalformedJournal(f"its total is not the number of its branches, {len(event.keys or [])}")


def _switch(event: ev.ContainerStarted) -> None:
    _says(event, "keys", "total")
    same((event.total, len(event.keys or []) < 2), (len(event.keys or []), True), "total")


def _flow(event: ev.ContainerStarted) -> None:
    _says(event, "inputs", "total")
    same(event.total, 1, "total")


def _agent(event: ev.ContainerStarted) -> None:
    _says(event, "agent")
    told = event.agent or {}
    if not all(isinstance(told.get(name), str) for name in ("model", "turnList", "toolList")):
        raise MalformedJournal("an agent has a model, and lists of its model calls and tools")


_SAYS = {
    "foreach": _foreach,
    "loop": _loop,
    "parallel": _parallel,
    "switch": _switch,
    "flow": _flow,
    "agent": _agent,
}


def iteration_started(state: State, event: ev.IterationStarted) -> None:
    path = path_of(event)
    container = container_at(state, path)
    if container.kind in ("agent", ON_FAILURE) or container.error is not None:
        raise MalformedJournal(f"{path} goes through no list, or is being given up")
    same(event.index, container.begun, "index")
    # A flow that a model called as a tool has the tool's id in the flow, and the call's in the conversation.
    if agent_of(state, path) is None:
        same(event.node_id, container.node_id, "container")
    if container.begun >= _passes(container):
        raise MalformedJournal(f"{path} has {container.begun} passes, and all of them have begun")
    if container.running >= _at_once(state, path, container):
        raise MalformedJournal(
            f"{path} has {container.running} passes under way, and no room for another one"
        )
    same(event.key, container.keys[event.index] if container.keys else None, "key")
    scope = pass_scope(path, state.nodes[path], container, event.index)
    if event.scope != scope:
        same(event.scope, scope, "scope")


def _passes(container: ContainerRun) -> float:
    """How many passes a container has; a loop only its condition knows."""
    if container.kind == "loop":
        return float("inf")
    return len(container.keys) if container.keys is not None else container.total or 0


def _at_once(state: State, path: str, container: ContainerRun) -> float:
    """How many passes of a container may be under way."""
    if container.kind == "parallel":
        return float("inf")
    return int((state.nodes[path].input or {}).get("concurrency") or 1) if container.kind == "foreach" else 1


def iteration_completed(state: State, event: ev.IterationCompleted) -> None:
    path = path_of(event)
    container, frame = container_at(state, path), frame_at(state, event.scope)
    if frame.owner != path or container.agent is not None:
        raise MalformedJournal(f"{event.scope} is no pass of {path}")
    same((event.node_id, event.index), (container.node_id, frame.order), "place")
    if container.error is not None:
        raise MalformedJournal(f"{path} is being given up")
    # A pass of a `foreach` that came to its end can fail with what it was to contribute.
    collects = container.kind == "foreach" and frame.error is None
    if not collects:
        same((event.error, event.collected), (frame.error, None), "error")
    if frame.error is None:
        through(frame, event.scope)
        same(event.unreached, None, "nodes that it did not come to")
    elif frame.running or any(node_id in frame.nodes for node_id in event.unreached or ()):
        raise MalformedJournal(f"{event.scope} is not over, or came to what it says that it did not come to")


def container_completed(state: State, event: ev.ContainerCompleted) -> None:
    path = path_of(event)
    container = container_at(state, path)
    same(event.node_id, container.node_id, "container")
    if container.kind == ON_FAILURE:
        over = not container.running or container.error is not None
    elif container.agent is not None:
        agent = container.agent
        over = container.error is None and agent.final and not agent.calls
    elif event.limit is not None and (container.kind != "loop" or event.limit != container.begun):
        over = False
    else:
        begun = container.kind == "loop" or container.begun == _passes(container)
        over = container.error is None and begun and not container.running
    if not over:
        raise MalformedJournal(f"container {path} is not over")


# --- conversations with models -----------------------------------------------------------------------------


def agent_message(state: State, event: ev.AgentMessage) -> None:
    path = path_of(event)
    agent = agent_at(state, path)
    same(event.node_id, state.nodes[path].node_id, "agent")
    same(event.role, "assistant" if event.source == "model" else "user", "role")
    if event.source == "model":
        _answers(state, path, event.turn)
        _says_no_more_than(event, "turn")
        return
    told = ("actor", "key") if event.source == "person" else ()
    _says_no_more_than(event, *told)
    if event.source == "person" and event.key in agent.heard:
        raise MalformedJournal(f"the message {event.key} was heard before")
    if event.source != "person":
        _follows_an_answer(state, agent, path, event)


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
    if state.owed and event.source == "prompt":
        return
    last = agent.messages[len(agent.messages) - 1] if agent.messages else {"role": "user"}
    whole = agent.counted == len(agent.messages)
    # An answer of thoughts alone stands nowhere: then the last message is not the model's.
    again = state.nodes[path].attempt > 1
    cut = last["role"] == "assistant" and (again or not whole)
    if state.owed or agent.pending or agent.order or not (whole if event.source == "engine" else cut):
        raise MalformedJournal(f"nothing has to be said to {path} now by the {event.source}")


def _answers(state: State, path: str, turn: str | None) -> None:
    """The outcome of a model call that is under way."""
    run = run_at(state, turn or "", "started")
    if run.type != TURN or agent_around(state, turn or "") != path:
        raise MalformedJournal(f"{turn} is no model call of {path}")


def agent_compacted(state: State, event: ev.AgentCompacted) -> None:
    path = path_of(event)
    agent = agent_at(state, path)
    same(event.node_id, state.nodes[path].node_id, "agent")
    _answers(state, path, event.turn)
    same((state.nodes[event.turn].input or {}).get("purpose"), "compact", "purpose")
    same(event.replaced, len(agent.messages), "number of messages")


def agent_tool_requested(state: State, event: ev.AgentToolRequested) -> None:
    """It is owed by the answer, whose block it repeats."""
    path = path_of(event)
    if not state.owed:
        raise MalformedJournal(f"no answer asks for {path}")
    owner = agent_around(state, scope_of(path))
    agent = agent_at(state, owner)
    same(event.node_id, state.nodes[owner].node_id, "agent")
    blocks = [
        block for block in agent.messages[len(agent.messages) - 1]["content"] if block["type"] == "tool_use"
    ]
    block = blocks[len(agent.order)]
    same((event.tool_use_id, event.name, event.input), (block["id"], block["name"], block["input"]), "call")


def agent_tool_result(state: State, event: ev.AgentToolResult) -> None:
    path = path_of(event)
    owner = agent_around(state, path)
    call = agent_at(state, owner).calls.get(path)
    if call is None:
        raise MalformedJournal(f"{path} is no tool call that waits for its result")
    same((event.node_id, event.tool_use_id), (state.nodes[owner].node_id, call.tool_use_id), "call")
    if call.prompt_id in state.open_prompts:
        raise MalformedJournal(f"the question {call.prompt_id} about it is not decided")
    _has_result(state, path, event)


def _has_result(state: State, path: str, event: ev.AgentToolResult) -> None:
    run = state.nodes.get(path)
    if event.error is not None and not event.is_error:
        raise MalformedJournal(f"{path} failed, so its result is an error")
    if run is None:
        if event.error is not None or not event.is_error:
            raise MalformedJournal(f"{path} has a result and was never started")
        return
    if run.prompt_id in state.open_prompts:
        raise MalformedJournal(f"{path} has a result without an answer")
    if event.error is None and (run.status == "retrying" or path in state.containers):
        raise MalformedJournal(f"{path} is not over")


def agent_budget(state: State, event: ev.AgentBudget) -> None:
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


def _raised_by_another(state: State, prompt: Asked) -> bool:
    """Whether the flow's cap was raised by the same amount for another agent that was at it."""
    return prompt.scope == "flow" and any(
        other is not prompt
        and other.kind == "budget"
        and (other.answer or {}).get("value") == "raise"
        and (other.scope, other.caps) == ("flow", prompt.caps)
        for other in state.prompts.values()
    )
