"""What follows a model call that has no answer to go on with."""

from __future__ import annotations

from msgspec.structs import replace

from engine.journal import events as ev
from engine.journal.folds.agents import with_agent
from engine.journal.grammar import path_of, run_at, same
from engine.journal.queries import OUTCOME, TURN, agent_at, agent_of
from engine.journal.state import RETRY, AgentRun, Asked, State
from engine.language.codec import Json
from engine.language.errors import MalformedJournal


def agent_outcome(state: State, event: ev.AgentOutcome) -> State:
    path = path_of(event)
    run = run_at(state, path, "started")
    same(event.node_id, run.node_id, "agent")
    agent = agent_at(state, path)
    if agent.calls or agent.final:
        raise MalformedJournal(f"{path} has tool calls without a result, or its last answer")
    _says_what_it_does(event)
    if agent.stuck is not None and not state.owed:
        raise MalformedJournal(f"{path} is stuck already, and nobody said how it goes on")
    due = state.owed or _failing_turns(state, path) or _spoken_over(state, path, agent, event)
    if event.how != "ask" and not due:
        raise MalformedJournal(f"nothing has to be put right in {path}")
    if event.how == "ask":
        return with_agent(state, path, replace(agent, stuck=event.error))
    if event.actor is None:
        alone = {**agent.alone, event.how: agent.alone.get(event.how, 0) + 1}
        agent = replace(agent, alone=alone)
    else:
        prompt = state.prompts.get(run.prompt_id or "")
        if prompt is None or prompt.kind != OUTCOME or prompt.open:
            raise MalformedJournal("nobody said how it goes on")
        if event.how != "stop":
            _as_told(prompt, run.input.get("retry_with") or {}, event)
        agent = replace(agent, alone={}, corrections=0)
    state = with_agent(state, path, _gone_on(agent, event))
    if event.how == "stop":
        container = state.containers[path]
        container = replace(container, error=container.error or event.error)
        return replace(state, containers=state.containers.set(path, container))
    return _made_again(state, path)


_NEEDS = {
    "ask": ("error",),
    "stop": ("error",),
    "room": ("max_tokens",),
    "model": ("model",),
    "go_on": ("content", "text"),
    "said": ("content",),
}
_MAY = {
    "again": ("text",),
    "room": ("text",),
    "model": ("error", "text"),
    "compact": ("brief", "max_tokens", "text"),
    "resend": ("text",),
    "go_on": ("key",),
    "said": ("key",),
}
"""What an outcome says beside who said so, by `how`."""

_CHANGES = ("model", "max_tokens", "plain")
"""What a call differs in that a person has made again."""


def _spoken_over(state: State, path: str, agent: AgentRun, event: ev.AgentOutcome) -> bool:
    """Whether an answer has just ended during which people spoke, and nothing followed: it owes nothing, since their words
    may be all that follows."""
    attempt = state.nodes[path].attempt
    scope = path if attempt == 1 else f"{path}#{attempt}"
    last = state.nodes.get(f"{scope}/turn[{len(state.frames[scope].nodes)}]")
    texts = [block["text"] for block in agent.pending if block["type"] == "text"]
    spoken = bool(texts) and all(text.startswith(("<message", "<overheard")) for text in texts)
    ended = last is not None and (last.status, last.ended_at) == ("completed", event.timestamp)
    return event.actor is None and spoken and ended


def _says_what_it_does(event: ev.AgentOutcome) -> None:
    needs, may = _NEEDS.get(event.how, ()), _MAY.get(event.how, ())
    if event.actor is not None and event.how != "stop":
        may = (*may, *_CHANGES)
    for name in ("error", "brief", "content", "text", "key", *_CHANGES):
        told = getattr(event, name) is not None
        if (told and name not in (*needs, *may)) or (not told and name in needs):
            raise MalformedJournal(f"{event.how} says {', '.join(needs) or 'nothing'}: {name}")
    if _more_for_summary(event) and event.text is not None:
        raise MalformedJournal("more room for a summary leaves what was cut as it is")


_ABOUT = {
    "resend": ("pause_turn",),
    "compact": ("summary", "context_too_long", "model_context_window_exceeded"),
}
"""What a question is about that people answer in this way, where not every question can be."""


def _as_told(prompt: Asked, retry_with: dict[str, Json], event: ev.AgentOutcome) -> None:
    """*Other model* takes the one that was chosen, *Try again* what the flow says, and words change nothing."""
    answer = prompt.answer or {}
    value = answer.get("value")
    same(event.how == "model", value == "model", "model")
    if prompt.scope not in _ABOUT.get(event.how, (prompt.scope,)):
        raise MalformedJournal(f"{event.how} answers no question about {prompt.scope}")
    told = {"model": answer.get("words")} if value == "model" else retry_with if value == RETRY else {}
    changes = (told.get("model"), told.get("max_tokens"), True if told.get("thinking") else None)
    same((event.model, event.max_tokens, event.plain), changes, "changes")


def _more_for_summary(event: ev.AgentOutcome) -> bool:
    return event.how == "compact" and event.max_tokens is not None and event.actor is None


def _gone_on(agent: AgentRun, event: ev.AgentOutcome) -> AgentRun:
    """The conversation as it goes on: what is said to the model stands in its next call."""
    compacts = ("brief" if event.brief else "all") if event.how == "compact" else agent.compacts
    return replace(
        agent,
        stuck=None,
        model=event.model or agent.model,
        max_tokens=event.max_tokens or agent.max_tokens,
        compacts=compacts,
        resends=event.how == "resend",
        plain=len(agent.messages) if event.plain else agent.plain,
        cut=agent.cut if _more_for_summary(event) else event.text or "",
        pending=(*agent.pending, *(event.content or ())),
        heard=(*agent.heard, event.key) if event.key else agent.heard,
    )


def _made_again(state: State, owner: str) -> State:
    """The state in which the model call that failed begins again, where one did."""
    for path in _failing_turns(state, owner):
        run = replace(state.nodes[path], status="interrupted", reason=RETRY)
        state = replace(state, nodes=state.nodes.set(path, run))
    return state


def _failing_turns(state: State, owner: str) -> list[str]:
    found = [path for path in state.active if state.nodes[path].type == TURN]
    return [
        path for path in found if state.nodes[path].status == "failing" and agent_of(state, path) == owner
    ]
