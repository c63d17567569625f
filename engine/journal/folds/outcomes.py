"""What follows a model call that has no answer to go on with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from immutables import Map
from msgspec.structs import replace

from engine.journal import events as ev
from engine.journal.folds.agents import said_in, with_agent
from engine.journal.grammar import path_of, run_at, same
from engine.journal.queries import OUTCOME, TURN, agent_at, agent_of
from engine.journal.state import RETRY, AgentRun, NodeRun, State
from engine.language.codec import Json
from engine.language.errors import MalformedJournal
from engine.messages.files import FILE_BLOCK


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
    if event.actor is None and event.how in _WORDS:
        raise MalformedJournal(f"nobody said {event.how}")
    if event.actor is None:
        alone = {**agent.alone, event.how: agent.alone.get(event.how, 0) + 1}
        agent = replace(agent, alone=alone)
    else:
        _was_asked(state, run, event)
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
    "answer": ("text",),
}
_MAY = {
    "again": ("text",),
    "room": ("content", "text"),
    "model": ("error", "text"),
    "compact": ("brief", "max_tokens", "text"),
    "resend": ("text",),
    "plain": ("text",),
    "go_on": ("key",),
    "said": ("key",),
    "answer": ("content",),
}
"""What an outcome says beside who said so, by `how`."""


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
    for name in ("error", "model", "max_tokens", "brief", "content", "text", "key"):
        told = getattr(event, name) is not None
        if (told and name not in (*needs, *may)) or (not told and name in needs):
            raise MalformedJournal(f"{event.how} says {', '.join(needs) or 'nothing'}: {name}")
    if _more_for_summary(event) and event.text is not None:
        raise MalformedJournal("more room for a summary leaves what was cut as it is")


def _more_for_summary(event: ev.AgentOutcome) -> bool:
    return event.how == "compact" and event.max_tokens is not None


_WORDS = ("plain", "over")
"""What only a person's word does, and only this word."""


def _was_asked(state: State, run: NodeRun, event: ev.AgentOutcome) -> None:
    prompt = state.prompts.get(run.prompt_id or "")
    if prompt is None or prompt.kind != OUTCOME or prompt.open:
        raise MalformedJournal("nobody said how it goes on")
    said = (prompt.answer or {}).get("value")
    if event.how in _WORDS or said in _WORDS:
        same(event.how, said, "word")


def _gone_on(agent: AgentRun, event: ev.AgentOutcome) -> AgentRun:
    """The conversation as it goes on: what is said to the model stands in its next call."""
    if event.how == "over":
        return _anew(agent)
    said, messages = event.content or [], agent.messages
    if event.how == "answer":
        messages = said_in(messages, "assistant", said) if said else messages
        said = []
    compacts = ("brief" if event.brief else "all") if event.how == "compact" else agent.compacts
    return replace(
        agent,
        stuck=None,
        messages=messages,
        model=event.model or agent.model,
        max_tokens=event.max_tokens or agent.max_tokens,
        compacts=compacts,
        resends=event.how == "resend",
        plain=len(messages) if event.how == "plain" else agent.plain,
        cut=agent.cut if _more_for_summary(event) else "" if event.how == "answer" else event.text or "",
        text=event.text or "" if event.how == "answer" else agent.text,
        final=event.how == "answer",
        plan=None if event.how == "answer" else agent.plan,
        pending=(*agent.pending, *said),
        heard=(*agent.heard, event.key) if event.key else agent.heard,
    )


def _anew(agent: AgentRun) -> AgentRun:
    """The conversation as it began, behind a summary that the model gave of it where there is one, with what people have said
    to it since: model calls and tools may all be made again."""
    number = range(len(agent.messages))
    begun = next(at for at in number if agent.messages[at]["role"] == "user") + 1
    later = [agent.messages[at] for at in number[begun:]]
    words = [block for message in later if message["role"] == "user" for block in message["content"]]
    return replace(
        agent,
        **{name: getattr(AgentRun(), name) for name in _OF_A_CONVERSATION},
        messages=Map({at: agent.messages[at] for at in number[:begun]}),
        pending=(*_of_people(words), *agent.pending),
        plain=min(agent.plain, begun),
    )


def _of_people(blocks: Iterable[Json]) -> Iterator[Json]:
    """What people said to it, with the files that they gave."""
    theirs = False
    for block in blocks:
        if block["type"] != FILE_BLOCK:
            theirs = str(block.get("text") or "").startswith("<message ")
        if theirs:
            yield block


_OF_A_CONVERSATION = (
    *("stuck", "order", "results", "context", "counted", "weighed"),
    *("text", "container", "compacts", "resends", "cut"),
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
