"""The rules of conversations with models. Pure."""

from __future__ import annotations

from engine.journal import events as ev
from engine.journal.folds.agents import TURN, agent_at
from engine.journal.grammar.common import agent_around, path_of, run_at, same
from engine.journal.state import AgentRun, Asked, State, scope_of
from engine.language.errors import MalformedJournal


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
