"""The grammar of histories: which event can follow in which state. Pure.

`decide` folds each event that it writes, and the fold asks these rules about each event that it reads: what is written
and what is believed is one and the same. So a journal in which an event is missing, stands twice, at another place, or
under another name, number or path is refused at the first event that cannot follow, with the reason.

Three things make a history:

* **The table** (`engine.journal.transitions`): which types of events there are in which phase.
* **The rules**, each at the head of the fold of its event (`engine.journal.folds`): what an event says of its place has
  to be what the state says of it. Ids, indexes, attempts, scopes and counts follow from what came before, and are
  compared. What the rules share stands here.
* **What is owed** (`OWES`): some events are followed by others in the same step. An answer is followed by the outcome
  of its node, a question that is shown by its deadline. Until all of that is there, nothing else can follow.

Each rule costs the same however long the history is, but for those of a pause and of the end, which look at all that is
open. What only the flow's text knows (that a list has no further node, what a node's type is) is not asked here, since
sessions outlive texts; `sayso verify` asks it too. A session that was forked begins with a part of another one's
history: what a fork leaves out is allowed to be missing there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from engine.journal import events as ev
from engine.journal.events import Event
from engine.journal.state import (
    AGAIN,
    FINALLY,
    QUIET,
    RETRY,
    ROOT,
    Asked,
    ContainerRun,
    Frame,
    Graph,
    NodeRun,
    Owed,
    State,
    TimerRun,
    scope_of,
)
from engine.language.errors import MalformedJournal
from engine.nodes.types.registry import mode_of


def path_of(event: Event) -> str:
    """The event's path. Raises `MalformedJournal` where it has none."""
    if event.path is None:
        raise MalformedJournal("has no path")
    return event.path


def no_path(event: Event) -> None:
    """Events about the whole session have no path."""
    if event.path is not None:
        raise MalformedJournal(f"it is about the session and has no path, but says {event.path}")


def same(said: Any, known: Any, what: str) -> None:
    """What an event says of its place is what the state says."""
    if said != known:
        raise MalformedJournal(f"its {what} is {known!r}, not {said!r}")


def frame_at(state: State, scope: str) -> Frame:
    """The pass at an address."""
    frame = state.frames.get(scope)
    if frame is None:
        raise MalformedJournal(f"nothing goes on in {scope or 'the flow'}")
    return frame


def run_at(state: State, path: str, *statuses: str) -> NodeRun:
    """The node at a path, which has to be in one of these statuses."""
    run = state.nodes.get(path)
    if run is None:
        raise MalformedJournal(f"{path} was never started")
    if run.status not in statuses:
        raise MalformedJournal(f"{path} is {run.status}, not {' or '.join(statuses)}")
    return run


def container_at(state: State, path: str) -> ContainerRun:
    """The container at a path that is under way."""
    container = state.containers.get(path)
    if container is None:
        raise MalformedJournal(f"{path} is no container that is under way")
    return container


def owner_of(state: State, path: str) -> str | None:
    """The path of the container whose pass a node stands in; None for the flow's own nodes."""
    return frame_at(state, scope_of(path)).owner


def agent_around(state: State, path: str) -> str:
    """The path of the agent whose model call or tool call this is."""
    frame = state.frames.get(scope_of(path))
    owner = None if frame is None else frame.owner
    if owner is None or state.containers[owner].agent is None:
        raise MalformedJournal(f"{path} is no model call and no tool call of an agent")
    return owner


def closed_prompt(state: State, run: NodeRun) -> Asked | None:
    """The question that was asked last about a node, which is not open, and whose answer is final."""
    prompt = None if run.prompt_id is None else state.prompts.get(run.prompt_id)
    if prompt is not None and (prompt.open):
        raise MalformedJournal(f"the question {prompt.prompt_id} about it is not decided")
    return prompt


def through(frame: Frame, where: str) -> None:
    """Every node of a pass has its outcome, as far as its list is not needed to know that."""
    if frame.running or frame.jumps:
        raise MalformedJournal(f"{where} is not over: a node of it runs, or a jump is to come")
    graph = frame.graph
    if graph is not None and (graph.ready or graph.ended or graph.again or _waiting(frame, graph)):
        raise MalformedJournal(f"{where} is not over: nodes of its graph have not run")


def _waiting(frame: Frame, graph: Graph) -> bool:
    return any(node_id not in frame.nodes for node_id in graph.gates)


def nothing_open(state: State) -> None:
    """Nothing of the flow is under way."""
    root = frame_at(state, ROOT)
    if state.active or state.open_prompts:
        paths = [*state.active, *(state.prompts[key].path for key in state.open_prompts)]
        raise MalformedJournal(f"{min(paths)} is open")
    if root.error is not None:
        raise MalformedJournal("a node has failed the flow")
    through(root, "the flow")


# --- ids ---------------------------------------------------------------------------------------------------


def clock_id(state: State, prompt: Asked, word: str) -> str:
    """The id of a timer of a question."""
    return f"{state.session_id}:{prompt.prompt_id}:{word}"


def wait_id(state: State, path: str) -> str:
    """The id of the timer of a `wait`."""
    return f"{state.session_id}:{path}"


def retry_id(state: State, path: str, run: NodeRun) -> str:
    """The id of the timer after which a failed attempt is followed by the next one."""
    return f"{state.session_id}:{path}:retry{run.attempt}"


def timeout_id(state: State, path: str) -> str:
    """The id of the timer that bounds this attempt of a container."""
    return f"{state.session_id}:{path}:timeout{state.nodes[path].attempt}"


def pass_scope(path: str, run: NodeRun, container: ContainerRun, order: int) -> str:
    """The address of a pass of a container. Whatever is tried again as a whole runs anew: its nodes have paths, and so
    keys, of their own in each attempt."""
    base = path if run.attempt == 1 else f"{path}#{run.attempt}"
    if container.kind == "flow":
        return base
    return f"{base}[{quote(container.keys[order], safe='') if container.keys else order}]"


def failure_scope(path: str, run: NodeRun) -> str:
    """The address of the pass through what a node has under `on_failure`."""
    return f"{path}!{(run.handled or 0) + 1 if run.handled else ''}"


# --- what is owed ------------------------------------------------------------------------------------------


_COMPLETED = ("node:completed", "container:childCompleted", "agent:toolResult")
_FAILED = ("node:failing", "node:error", "agent:toolResult")
OUTCOME = (*_COMPLETED, *_FAILED)
"""What a node comes to whose question was answered, or whose time has come."""

_BEGUN = ("node:interrupted", *_FAILED)
_FIRST = {
    "pure": (*_COMPLETED, *_BEGUN),
    "prompt": ("prompt:requested", *_BEGUN),
    "timer": ("timer:set", *_BEGUN),
    "container": ("container:started", *_BEGUN),
}
"""What follows the start of a node at once, by the mode of its type; a process runs the others."""


def still_owed(state: State, event: Event) -> tuple[Owed, ...]:
    """What is owed after this event, of what was owed before it. Raises `MalformedJournal` where something else is."""
    first = state.owed[0]
    if event.timestamp != state.updated_at:
        raise MalformedJournal(
            f"it is of another time than the step that it is in: {_told(first)} is missing"
        )
    if event.type not in first.types:
        if event.type in _BETWEEN.get(first.types[0], ("flow:resumed",)):
            return state.owed
        raise MalformedJournal(f"before it {_told(first)} is missing")
    if first.path is not None and event.path != first.path:
        raise MalformedJournal(f"before it {_told(first)} is missing")
    if first.id is not None and first.id not in (getattr(event, name, None) for name in _IDS):
        raise MalformedJournal(f"before it {_told(first)} is missing")
    return state.owed[1:]


_IDS = ("timer_id", "prompt_id")
_BETWEEN = {"session:message": ("prompt:escalated",)}
"""What may stand before something that is owed; else it is that the session is woken by it."""


def _told(owed: Owed) -> str:
    what = " or ".join(owed.types)
    return f"{what} of {owed.id or owed.path}" if owed.id or owed.path else what


# --- nodes -------------------------------------------------------------------------------------------------------


def _started(state: State, event: ev.NodeStarted | ev.ChildStarted) -> tuple[Owed, ...]:
    types = _FIRST.get(mode_of(event.node_type))
    return () if types is None else (Owed(types, event.path),)


def _container_started(state: State, event: ev.ContainerStarted) -> tuple[Owed, ...]:
    told = event.agent or {"goesOn": True}
    return () if told.get("goesOn") else (Owed(("agent:message",), event.path),)


def _agent_opened(state: State, event: ev.AgentOpened) -> tuple[Owed, ...]:
    """The outcome of the call that it tells of."""
    return () if event.turn is None else (Owed(("agent:message", "agent:compacted"), event.path),)


def _agent_message(state: State, event: ev.AgentMessage) -> tuple[Owed, ...]:
    """The calls of tools that an answer has; of one that is none, and not the last one, what follows from that."""
    uses = sum(block.get("type") == "tool_use" for block in event.content) if event.source == "model" else 0
    container = state.containers[event.path or ""]
    heard = container.agent is not None and container.agent.pending
    settled = event.final or event.interrupted or heard or container.error is not None
    if event.source == "model" and not (uses or settled):
        return (Owed(("agent:outcome", "agent:message", "node:failing", "node:error"), event.path),)
    return tuple(Owed(("agent:toolRequested",), f"{event.turn}/tool[{number}]") for number in range(uses))


# --- questions ---------------------------------------------------------------------------------------------------


def _answered(state: State, event: ev.PromptAnswered) -> tuple[Owed, ...]:
    prompt = state.prompts[event.prompt_id]
    return _answer_owes(state, prompt, event.answer.get("value"))


def _answer_owes(state: State, prompt: Asked, value: object) -> tuple[Owed, ...]:
    if prompt.kind in ("interrupted", "failed"):
        return _resolved(prompt, value)
    if prompt.kind == "budget":
        return _at_cap(state, prompt, value)
    if prompt.kind == "listing":
        return (Owed(("agent:opened",), prompt.path),) if value == "offer" else ()
    if prompt.kind == "outcome":
        return (Owed(("agent:outcome",), prompt.path),)
    if prompt.kind == "limit":
        return _at_limit(state, prompt, value)
    if prompt.tool:
        return () if value == "approve" else (Owed(("agent:toolResult",), prompt.path),)
    run = state.nodes.get(prompt.path)
    return () if run is None or run.type != prompt.kind else (Owed(OUTCOME, prompt.path),)


def _resolved(prompt: Asked, value: object) -> tuple[Owed, ...]:
    if value in (AGAIN, RETRY):
        return ()
    if value == "done":
        return (Owed(_COMPLETED, prompt.path),)
    return (Owed(("node:skipped",), prompt.path),) if value == "skip" else (Owed(("session:abort",)),)


def _at_cap(state: State, prompt: Asked, value: object) -> tuple[Owed, ...]:
    if value != "raise":
        return (Owed(_FAILED, prompt.path),)
    # Who lets an agent past the cap of a day lets that session past it, not its forks.
    left_out = prompt.scope == "day" and state.parent_session_id is not None
    return () if left_out else (Owed(("agent:budget",), prompt.path),)


def _at_limit(state: State, prompt: Asked, value: object) -> tuple[Owed, ...]:
    """How a loop goes on at its limit, or what follows a node whose loop edge is used up."""
    if prompt.path not in state.containers:
        return (Owed(("edge:resolved",), prompt.path),)
    if value == AGAIN:
        return ()
    return (Owed(("container:completed",) if value == "continue" else _FAILED, prompt.path),)


def _expired(state: State, event: ev.PromptExpired) -> tuple[Owed, ...]:
    prompt = state.prompts[event.prompt_id]
    if prompt.kind in ("interrupted", "failed"):
        return (Owed(_FAILED, prompt.path),)
    return _answer_owes(state, prompt, None)


def _shown(state: State, event: ev.PromptShown) -> tuple[Owed, ...]:
    prompt = state.prompts[event.prompt_id]
    return () if prompt.deadline is not None else _clocks(state, prompt)


def _clocks(state: State, prompt: Asked) -> tuple[Owed, ...]:
    return tuple(
        Owed(("timer:set",), prompt.path, clock_id(state, prompt, word)) for word in _clock_words(prompt)
    )


def _clock_words(prompt: Asked) -> Iterator[str]:
    yield "deadline"
    if prompt.remind_seconds is not None:
        yield "remind"
    for step in range(len(prompt.escalate)):
        if step not in prompt.escalated:
            yield f"escalate{step}"


# --- timers ------------------------------------------------------------------------------------------------------


def _fired(state: State, event: ev.TimerFired) -> tuple[Owed, ...]:
    timer = state.timers[event.timer_id]
    match timer.purpose:
        case "wait":
            return (Owed(OUTCOME, timer.path),)
        case "deadline":
            return (Owed(("prompt:expired",), timer.path, timer.prompt_id),)
        case "followUp":
            return (Owed(("container:completed",), timer.path),)
        case "remind" | "escalate":
            return _told_people(state, timer)
        case _:
            return ()


def _told_people(state: State, timer: TimerRun) -> tuple[Owed, ...]:
    if state.phase in QUIET:
        return ()
    types = ("prompt:reminded",) if timer.purpose == "remind" else ("prompt:escalated",)
    return (Owed(types, timer.path, timer.prompt_id),)


# --- the session -------------------------------------------------------------------------------------------------


def _resumed(state: State, event: ev.FlowResumed) -> tuple[Owed, ...]:
    return (Owed(("session:message",)),) if state.phase == "held" and event.message is not None else ()


def _unreachable(state: State, event: ev.SessionUnreachable) -> tuple[Owed, ...]:
    return (Owed(("timer:set",)),)


def _aborted(state: State, event: ev.SessionAborted) -> tuple[Owed, ...]:
    """What runs leaves first; then the end follows at once."""
    return () if state.launched else (Owed(_END),)


_END = ("prompt:cancelled", "flow:finalizing", "flow:failed", "session:end")


def _completed(state: State, event: ev.FlowCompleted) -> tuple[Owed, ...]:
    return (Owed(("session:end",)),)


def _failed(state: State, event: ev.FlowFailed) -> tuple[Owed, ...]:
    return (Owed(("session:end",)),) if FINALLY in state.frames else ()


OWES: dict[str, Callable[[State, Any], tuple[Owed, ...]]] = {
    "node:started": _started,
    "container:childStarted": _started,
    "container:started": _container_started,
    "agent:opened": _agent_opened,
    "agent:message": _agent_message,
    "prompt:shown": _shown,
    "prompt:answered": _answered,
    "prompt:expired": _expired,
    "timer:fired": _fired,
    "flow:resumed": _resumed,
    "session:abort": _aborted,
    "flow:completed": _completed,
    "flow:failed": _failed,
    "session:unreachable": _unreachable,
}
"""What each type of event owes, by the state before it."""
