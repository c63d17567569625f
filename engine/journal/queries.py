"""Queries on a state: running, waiting and failed work. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Protocol

from engine.forms.question import Question
from engine.journal.phases import REJECTED
from engine.journal.state import ROOT, AgentRun, Asked, Frame, NodeRun, State, below, in_finally, scope_of
from engine.language.actors import requester_of, seats
from engine.language.codec import Json
from engine.language.errors import MalformedJournal
from engine.nodes.types.registry import END, mode_of

DEAD = "no edge that leads to it was taken"
"""Skip reason of an unreachable node; its own edges are then dead."""

TURN = "turn"
"""The type of the nodes that are model calls."""


PLAN = "plan"
"""The tool by which an agent states and ticks its steps."""

LISTING = "listing"
"""Kind of a question about tools whose server describes them differently now. Nothing waits for it."""


ELICIT = "elicit"
"""The kind of a question that an MCP server asks in the middle of a call."""

OUTCOME = "outcome"
"""The kind of a question about a model call without an answer to continue with."""

OUTAGE = "outage"
"""Scope of a question that blocks nothing: the call is retried meanwhile."""


ASKED_OR_RUN = "asked or run"
"""Mode of a call that may need a question, depending on its rule: it needs room for either."""


def completed(state: State, frame: Frame, node_id: str) -> bool:
    """True if a node of a pass has completed."""
    path = frame.nodes.get(node_id)
    return path is not None and state.nodes[path].status == "completed"


def ended_at(state: State) -> NodeRun | None:
    """The `end` at which the flow ended, where one did."""
    runs = (state.nodes[path] for path in state.frames[ROOT].nodes.values()) if ROOT in state.frames else ()
    return next((run for run in runs if run.type == END and run.status == "completed"), None)


def has_failed(state: State, path: str) -> bool:
    """True if the container of this node has failed, even if its children have not ended yet."""
    container = state.containers.get(path)
    return container is not None and container.error is not None


def doomed(state: State, path: str) -> bool:
    """True if a container around this node has failed, so that nothing new may start here."""
    return given_up(state, scope_of(path))


def given_up(state: State, scope: str) -> bool:
    """The same of a pass."""
    while scope != ROOT:
        frame = state.frames.get(scope)
        if frame is None or frame.owner is None:
            return frame is None
        if state.containers[frame.owner].error is not None:
            return True
        scope = scope_of(frame.owner)
    return False


def is_launched(run: NodeRun) -> bool:
    """True if a process is executing a node."""
    return run.status == "started" and mode_of(run.type) == "run"


def interrupted(state: State) -> list[str]:
    """Return the paths of nodes with unknown outcome or due to run again, in their order."""
    # Most often whatever is in progress is being executed, or a container.
    if len(state.active) == len(state.launched) + len(state.containers):
        return []
    nodes = state.nodes
    return sorted([path for path in state.active if nodes[path].status == "interrupted"])


def launched_below(state: State, path: str) -> bool:
    """True if a process is executing something inside this container."""
    return any(inner != path and below(path, inner) for inner in state.launched)


def pending(state: State) -> bool:
    """True if the session has requested a lock and not got it."""
    return state.lock is not None and state.lock.acquired_at is None


def asked_in_order(state: State) -> list[str]:
    """The ids of the open prompts in the order in which they were asked; ids are random."""
    return sorted(state.open_prompts, key=lambda prompt_id: int(state.prompts[prompt_id].number or 0))


def open_prompt_at(state: State, path: str) -> Asked | None:
    """The open prompt that the node at this path waits for."""
    for prompt_id in state.open_prompts:
        if state.prompts[prompt_id].path == path and state.prompts[prompt_id].rules.waits:
            return state.prompts[prompt_id]
    return None


def held_up(state: State, path: str) -> bool:
    """True if the agent at this path continues only once people have answered."""
    prompt = open_prompt_at(state, path)
    return prompt is not None and not is_outage(prompt)


def unanswered(saved: Json) -> Json:
    """The next question of those that a call of an MCP server left with; None once all have an answer."""
    return next((ask for ask in saved["asks"] if ask["key"] not in saved["answers"]), None)


def is_outage(prompt: Question) -> bool:
    """True if a question only reports that a provider is away, and the options meanwhile."""
    return prompt.kind == OUTCOME and prompt.scope == OUTAGE


# --- people ----------------------------------------------------------------------------------------------


def asked_people(state: State, prompt: Asked) -> list[str]:
    """Return the people who may answer a prompt, as entries of `approvers` or `who`; for a question about a step those
    beside the owner."""
    if prompt.is_approval:
        return list(prompt.approvers or ())
    if prompt.who is not None or prompt.rules.owners:
        return list(prompt.who or ())
    return ["requester"] if requester_of(state.actor) else ["channel"]


def votes_without(prompt: Asked, actor: Mapping[str, Json]) -> tuple[dict[str, Json], ...]:
    """Return the votes of everybody else. A stand-in votes in the place of the absent person, not beside them."""
    mine = seats(actor)
    return tuple(vote for vote in prompt.votes if not mine & seats(vote["actor"]))


def people_among(entries: list[str]) -> list[str]:
    """The people and groups of an escalation: those that are told in a direct message too, and no channels."""
    told = [entry.removeprefix("dm:") for entry in entries]
    return [
        entry
        for entry in told
        if "@" in entry or entry == "requester" or entry[:1] in "UW" or entry.startswith("rota:")
    ]


# --- agents ------------------------------------------------------------------------------------------------


def agent_at(state: State, path: str) -> AgentRun:
    """The conversation of the agent at a path."""
    container = state.containers.get(path)
    if container is None or container.agent is None:
        raise MalformedJournal(f"{path} is not a running agent")
    return container.agent


def agent_of(state: State, path: str) -> str | None:
    """Return the path of the agent that this model call or tool call belongs to; None for any other node."""
    frame = state.frames.get(scope_of(path))
    if frame is None or frame.owner is None:
        return None
    container = state.containers.get(frame.owner)
    return frame.owner if container is not None and container.agent is not None else None


def agents_under_way(state: State) -> list[str]:
    """The paths of the agents that take words, the one that began last at the end."""
    if state.ended or state.phase == "finalizing":
        return []
    found = [
        (state.nodes[path].started_at or "", path)
        for path, container in state.containers.items()
        if container.agent is not None and container.error is None and path in state.active
    ]
    return [path for _, path in sorted(found)]


def resting(state: State, path: str) -> bool:
    """True if this is an agent that has answered and listens for follow-ups."""
    return rest_id(state, path) in state.timers


def rest_id(state: State, path: str) -> str:
    """The id of the timer until which an agent that has answered listens."""
    return f"{state.session_id}:{path}:followUp"


def holds(agent: AgentRun) -> bool:
    """True if the last answer has an open tool call of the provider: it goes back with the results of tools, or
    unchanged, and people's messages come in a later message."""
    last = agent.messages[len(agent.messages) - 1] if agent.messages else {"role": "user"}
    return last["role"] == "assistant" and bool(open_tools(last["content"]))


def tool_is_open(agent: AgentRun) -> bool:
    """True also if the results of tools follow it by now: nothing else may, not even a summary."""
    last = agent.messages[len(agent.messages) - 1] if agent.messages else {"role": "user"}
    before = agent.messages.get(len(agent.messages) - 2)
    behind = last["role"] == "user" and before is not None and bool(open_tools(before["content"]))
    return holds(agent) or behind


def open_tools(content: Sequence[Json]) -> list[Json]:
    """Return the provider's tool calls in an answer that have no result there."""
    ended = {block.get("tool_use_id") for block in content}
    return [block for block in content if block["type"] == "server_tool_use" and block["id"] not in ended]


def is_overheard(block: Json) -> bool:
    """True if a block is overheard text, which is data."""
    return bool(block["type"] == "text" and block["text"].startswith("<overheard"))


def asks_for_more(pending: Sequence[Json]) -> bool:
    """True if messages received meanwhile keep an agent from ending: overheard ones do not."""
    texts = [block for block in pending if block["type"] == "text"]
    return any(not is_overheard(block) for block in texts)


# --- rejections ------------------------------------------------------------------------------------------


class Ended(Protocol):
    """Outcome of a node, as the state or the tree of a session has it."""

    @property
    def type(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def output(self) -> Json: ...
    @property
    def error(self) -> Mapping[str, Json] | None: ...


def is_rejection(error: Mapping[str, Json] | None) -> bool:
    """True if an error means that people, or the timeout of an approval, rejected it."""
    return (error or {}).get("type") == REJECTED


def is_rejected(run: Ended) -> bool:
    """True if a node is a rejected approval, whatever followed, or has failed with one inside it."""
    if run.status == "completed":
        said = run.output.get("decision") if isinstance(run.output, dict) else None
        return run.type == "approval" and said == "reject"
    return run.status in ("failed", "failing") and is_rejection(run.error)


def verdict(told: Mapping[str, Json] | None) -> str:
    """A rejection in words: `rejected by ben: too risky`. `told` is the output of the approval, or its error."""
    return ": ".join(filter(None, verdict_and_reason(told)))


def verdict_and_reason(told: Mapping[str, Json] | None) -> tuple[str, str]:
    """The two parts of `verdict`; the reason may be empty."""
    told = told or {}
    names = [str(person.get("name") or person.get("id")) for person in told.get("by") or ()]
    if not names:
        return REJECTED, "nobody decided in time"
    return f"{REJECTED} by {' and '.join(names)}", str(told.get("reason") or "")


def alive(state: State, address: str) -> bool:
    """True if nodes may still begin at this place: while a session ends, only `finally` does."""
    return state.phase != "finalizing" or (in_finally(address) and not state.finally_skipped)


def next_try(session_id: str) -> str:
    """The id of the session that tries this one again: there is one."""
    return f"session-{blake2b(f'again|{session_id}'.encode(), digest_size=5).hexdigest()}"


def is_retry(session_id: str, parent_id: str | None) -> bool:
    """True if a session tries its parent again; other sessions with a parent are forks."""
    return parent_id is not None and session_id == next_try(parent_id)
