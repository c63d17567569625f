"""The state of a session and its fold.

`evolve` is the only way in which a state comes to be. States are values: an event gives a new one that shares
what did not change (persistent maps), so a step that fails to commit is undone by forgetting it.
The cost of an event does not depend on how much has completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from immutables import Map

from engine import events as ev
from engine.codec import Json, decode, encode
from engine.errors import MalformedJournal, NotJson
from engine.events import Event
from engine.machine import STATUS, Phase, Status, step

ROOT = ""
"""Path of the flow's own list of nodes."""

AGAIN = "again"
"""The answer that lets an interrupted node run once more; then also why that node is due."""


class NodeRun(NamedTuple):
    """One execution of a node. `input` is kept while it may have to run again, `output` once it completed."""

    node_id: str
    type: str
    position: int
    status: str
    """`started`, `interrupted`, `completed`, `failed` or `skipped`."""
    started_at: str | None = None
    ended_at: str | None = None
    epoch: int = 0
    attempt: int = 0
    crashes: int = 0
    input: Json = None
    output: Json = None
    error: dict[str, Json] | None = None
    reason: str | None = None


class PromptRun(NamedTuple):
    """A prompt of this session. `spec` is what `prompt:requested` said; `shown` where people see it."""

    prompt_id: str
    path: str
    kind: str
    status: str
    """`requested`, `shown`, `answered`, `expired` or `cancelled`."""
    spec: dict[str, Json]
    requested_at: str
    shown: dict[str, Json] | None = None
    answer: dict[str, Json] | None = None
    actor: dict[str, Json] | None = None
    at: str | None = None
    deadline: str | None = None

    @property
    def open(self) -> bool:
        """Whether an answer would still count."""
        return self.status in ("requested", "shown")


class TimerRun(NamedTuple):
    """A timer that is set."""

    timer_id: str
    path: str | None
    due_at: str
    purpose: str
    prompt_id: str | None


class Frame(NamedTuple):
    """Where a list of nodes stands: `position` is the index of the first node without an outcome."""

    position: int = 0


class State(NamedTuple):
    """All that is known of a session. Never changed in place."""

    session_id: str = ""
    flow_name: str = ""
    flow_digest: str = ""
    parent_session_id: str | None = None
    phase: Phase = "idle"
    outcome: Status | None = None
    seq: int = 0
    created_at: str = ""
    updated_at: str = ""
    actor: dict[str, Json] = {}
    thread: dict[str, Json] | None = None
    given: dict[str, Json] = {}
    inputs: dict[str, Json] | None = None
    nodes: Map[str, NodeRun] = Map()
    active: Map[str, None] = Map()
    """Paths of nodes that were started and have no final outcome."""
    frames: Map[str, Frame] = Map()
    prompts: Map[str, PromptRun] = Map()
    open_prompts: Map[str, None] = Map()
    timers: Map[str, TimerRun] = Map()
    messages: tuple[dict[str, Json], ...] = ()
    seen: Map[str, None] = Map()
    """Inbox keys of messages and answers that were taken."""
    paused_at: str | None = None
    pause_reason: str | None = None
    error: dict[str, Json] | None = None

    @property
    def status(self) -> Status:
        """`idle`, `running`, `paused`, `complete`, `failed` or `aborted`."""
        if self.phase == "ended":
            return self.outcome or "failed"
        return STATUS[self.phase]

    @property
    def ended(self) -> bool:
        """Whether the last event of the session has been written."""
        return self.phase == "ended"


# --- the fold --------------------------------------------------------------------------------------------


def evolve(state: State, event: Event) -> State:
    """The state after an event. Raises `MalformedJournal`, naming the event, for what cannot follow."""
    if event.seq != state.seq + 1:
        raise MalformedJournal(f"event {event.seq} ({event.type}) does not follow event {state.seq}")
    try:
        phase = step(state.phase, event.type)
        moved = _FOLDS[event.type](state, event)
    except MalformedJournal as error:
        raise MalformedJournal(f"event {event.seq} ({event.type}): {error}") from None
    return moved._replace(phase=phase, seq=event.seq, updated_at=event.timestamp)


def derive_state(events: Iterable[Event], start: State | None = None) -> State:
    """The fold over a whole journal, or over the events after a snapshot."""
    state = start if start is not None else State()
    for event in events:
        state = evolve(state, event)
    return state


def _session_started(state: State, event: ev.SessionStarted) -> State:
    return state._replace(
        session_id=event.session_id,
        flow_name=event.flow_name,
        flow_digest=event.flow_digest,
        parent_session_id=event.parent_session_id,
        given=event.given,
        actor=event.actor,
        thread=event.thread,
        created_at=event.timestamp,
    )


def _flow_started(state: State, event: ev.FlowStarted) -> State:
    if state.inputs is not None:
        raise MalformedJournal("the flow was started before")
    return state._replace(inputs=event.input, frames=state.frames.set(ROOT, Frame()))


def _flow_paused(state: State, event: ev.FlowPaused) -> State:
    return state._replace(paused_at=event.timestamp, pause_reason=event.reason)


def _flow_resumed(state: State, event: ev.FlowResumed) -> State:
    return state._replace(paused_at=None, pause_reason=None)


def _flow_completed(state: State, event: ev.FlowCompleted) -> State:
    return state._replace(outcome="complete")


def _flow_failed(state: State, event: ev.FlowFailed) -> State:
    return state._replace(outcome="failed", error=event.error)


def _session_message(state: State, event: ev.SessionMessage) -> State:
    entry = {"text": event.message, "by": event.actor, "at": event.timestamp}
    return state._replace(messages=(*state.messages, entry), seen=state.seen.set(event.key, None))


def _session_aborted(state: State, event: ev.SessionAborted) -> State:
    return state._replace(outcome="aborted", timers=Map(), error=None)


def _session_end(state: State, event: ev.SessionEnd) -> State:
    if event.status != state.outcome:
        raise MalformedJournal(f"the session ended as {state.outcome}, not as {event.status}")
    return state._replace(timers=Map())


def _path(event: Event) -> str:
    if event.path is None:
        raise MalformedJournal("has no path")
    return event.path


def _node_started(state: State, event: ev.NodeStarted) -> State:
    path = _path(event)
    before = state.nodes.get(path)
    if before is not None and before.status != "interrupted":
        raise MalformedJournal(f"{path} was started before and is {before.status}")
    run = NodeRun(
        node_id=event.node_id,
        type=event.node_type,
        position=event.node_index,
        status="started",
        started_at=before.started_at if before else event.timestamp,
        epoch=event.epoch,
        attempt=event.attempt,
        crashes=before.crashes if before else 0,
        input=event.input,
    )
    return state._replace(nodes=state.nodes.set(path, run), active=state.active.set(path, None))


def _unfinished(state: State, path: str) -> NodeRun:
    run = state.nodes.get(path)
    if run is None or run.status not in ("started", "interrupted"):
        raise MalformedJournal(f"{path} is not running")
    return run


def _finish(state: State, path: str, run: NodeRun) -> State:
    """A node got its final outcome: it leaves the active ones and its list moves on."""
    frame = state.frames.get(ROOT, Frame())
    frames = state.frames.set(ROOT, Frame(max(frame.position, run.position + 1)))
    active = state.active.delete(path) if path in state.active else state.active
    return state._replace(nodes=state.nodes.set(path, run), active=active, frames=frames)


def _node_completed(state: State, event: ev.NodeCompleted) -> State:
    path = _path(event)
    run = _unfinished(state, path)
    return _finish(
        state,
        path,
        run._replace(status="completed", output=event.output, input=None, ended_at=event.timestamp),
    )


def _node_failed(state: State, event: ev.NodeFailed) -> State:
    path = _path(event)
    run = _unfinished(state, path)
    return _finish(
        state, path, run._replace(status="failed", error=event.error, input=None, ended_at=event.timestamp)
    )


def _node_skipped(state: State, event: ev.NodeSkipped) -> State:
    path = _path(event)
    if path in state.nodes:
        raise MalformedJournal(f"{path} was started, so it cannot be skipped")
    index = state.frames.get(ROOT, Frame()).position
    run = NodeRun(
        event.node_id, event.node_type, index, "skipped", reason=event.reason, ended_at=event.timestamp
    )
    return _finish(state, path, run)


def _node_interrupted(state: State, event: ev.NodeInterrupted) -> State:
    path = _path(event)
    run = state.nodes.get(path)
    if run is None or run.status != "started":
        raise MalformedJournal(f"{path} is not running")
    crashes = run.crashes + (event.reason == "crash")
    run = run._replace(status="interrupted", crashes=crashes, reason=event.reason)
    return state._replace(nodes=state.nodes.set(path, run))


def _prompt_requested(state: State, event: ev.PromptRequested) -> State:
    if event.prompt_id in state.prompts:
        raise MalformedJournal(f"prompt {event.prompt_id} was requested before")
    kind = event.prompt.get("kind")
    if not isinstance(kind, str):
        raise MalformedJournal(f"prompt {event.prompt_id} is of no kind")
    prompt = PromptRun(
        prompt_id=event.prompt_id,
        path=_path(event),
        kind=kind,
        status="requested",
        spec=event.prompt,
        requested_at=event.timestamp,
    )
    return state._replace(
        prompts=state.prompts.set(event.prompt_id, prompt),
        open_prompts=state.open_prompts.set(event.prompt_id, None),
    )


def _open_prompt(state: State, prompt_id: str) -> PromptRun:
    prompt = state.prompts.get(prompt_id)
    if prompt is None or not prompt.open:
        raise MalformedJournal(f"prompt {prompt_id} is not open")
    return prompt


def _prompt_shown(state: State, event: ev.PromptShown) -> State:
    prompt = _open_prompt(state, event.prompt_id)._replace(status="shown", shown=event.shown)
    return state._replace(prompts=state.prompts.set(event.prompt_id, prompt))


def _close_prompt(state: State, prompt: PromptRun) -> State:
    timers = state.timers
    for timer_id, timer in state.timers.items():
        if timer.prompt_id == prompt.prompt_id:
            timers = timers.delete(timer_id)
    return state._replace(
        prompts=state.prompts.set(prompt.prompt_id, prompt),
        open_prompts=state.open_prompts.delete(prompt.prompt_id),
        timers=timers,
    )


def _prompt_answered(state: State, event: ev.PromptAnswered) -> State:
    prompt = _open_prompt(state, event.prompt_id)
    seen = state.seen.set(event.key, None) if event.key else state.seen
    answered = prompt._replace(status="answered", answer=event.answer, actor=event.actor, at=event.timestamp)
    closed = _close_prompt(state, answered)._replace(seen=seen)
    if prompt.kind != "interrupted" or event.answer.get("value") != AGAIN:
        return closed
    run = _unfinished(closed, prompt.path)._replace(reason=AGAIN)
    return closed._replace(nodes=closed.nodes.set(prompt.path, run))


def _prompt_expired(state: State, event: ev.PromptExpired) -> State:
    prompt = _open_prompt(state, event.prompt_id)
    return _close_prompt(state, prompt._replace(status="expired", at=event.timestamp))


def _prompt_cancelled(state: State, event: ev.PromptCancelled) -> State:
    prompt = _open_prompt(state, event.prompt_id)
    return _close_prompt(state, prompt._replace(status="cancelled", at=event.timestamp))


def _timer_set(state: State, event: ev.TimerSet) -> State:
    timer = TimerRun(event.timer_id, event.path, event.due_at, event.purpose, event.prompt_id)
    state = state._replace(timers=state.timers.set(event.timer_id, timer))
    if event.purpose != "deadline" or event.prompt_id is None:
        return state
    prompt = _open_prompt(state, event.prompt_id)._replace(deadline=event.due_at)
    return state._replace(prompts=state.prompts.set(event.prompt_id, prompt))


def _timer_fired(state: State, event: ev.TimerFired) -> State:
    if event.timer_id not in state.timers:
        raise MalformedJournal(f"timer {event.timer_id} is not set")
    return state._replace(timers=state.timers.delete(event.timer_id))


_FOLDS: dict[str, Callable[[State, Any], State]] = {
    "session:start": _session_started,
    "flow:started": _flow_started,
    "flow:paused": _flow_paused,
    "flow:resumed": _flow_resumed,
    "flow:completed": _flow_completed,
    "flow:failed": _flow_failed,
    "session:message": _session_message,
    "session:abort": _session_aborted,
    "session:end": _session_end,
    "node:started": _node_started,
    "node:completed": _node_completed,
    "node:error": _node_failed,
    "node:skipped": _node_skipped,
    "node:interrupted": _node_interrupted,
    "prompt:requested": _prompt_requested,
    "prompt:shown": _prompt_shown,
    "prompt:answered": _prompt_answered,
    "prompt:expired": _prompt_expired,
    "prompt:cancelled": _prompt_cancelled,
    "timer:set": _timer_set,
    "timer:fired": _timer_fired,
}


# --- the state as one JSON document (SessionState) ---------------------------------------------------------


def current_path(state: State) -> str | None:
    """Where the session stands: the oldest open wait, else the oldest unfinished node, else None."""
    waits = [state.prompts[prompt_id] for prompt_id in state.open_prompts]
    if waits:
        return min(waits, key=lambda prompt: (prompt.requested_at, prompt.path)).path
    runs = [(state.nodes[path].started_at or "", path) for path in state.active]
    return min(runs)[1] if runs else None


def to_json(state: State) -> dict[str, Json]:
    """The state as the specifications name it (`SessionState`), with what they forgot. Outputs stand once.

    Everything is in an order of its own: maps have none, and equal states shall look the same in every process.
    """
    place = current_path(state)
    runs = sorted(state.nodes.items(), key=lambda item: (item[1].position, item[0]))
    run = state.nodes.get(place) if place else None
    return {
        "schemaVersion": ev.SCHEMA_VERSION,
        "sessionId": state.session_id,
        "parentSessionId": state.parent_session_id,
        "flowName": state.flow_name,
        "flowDigest": state.flow_digest,
        "status": state.status,
        "phase": state.phase,
        "outcome": state.outcome,
        "seq": state.seq,
        "createdAt": state.created_at,
        "updatedAt": state.updated_at,
        "actor": state.actor,
        "thread": state.thread,
        "given": state.given,
        "inputs": state.inputs,
        "currentNodeId": run.node_id if run else place,
        "currentNodeIndex": run.position if run else state.frames.get(ROOT, Frame()).position,
        "outputs": {path: run.output for path, run in runs if run.status == "completed"},
        "nodes": {path: _node_json(run) for path, run in runs},
        "frames": {path: {"position": frame.position} for path, frame in sorted(state.frames.items())},
        "containerStack": [],
        "loopCounters": {},
        "prompts": {key: prompt._asdict() for key, prompt in sorted(state.prompts.items(), key=_by_number)},
        "timers": {key: timer._asdict() for key, timer in sorted(state.timers.items())},
        "pendingMessages": list(state.messages),
        "seen": sorted(state.seen),
        "pausedAt": state.paused_at,
        "pauseReason": state.pause_reason,
        "error": state.error,
    }


def _by_number(item: tuple[str, PromptRun]) -> tuple[int, str]:
    return item[1].spec.get("number") or 0, item[0]


def _node_json(run: NodeRun) -> dict[str, Json]:
    fields = run._asdict()
    del fields["output"]
    return {name: value for name, value in fields.items() if value is not None}


def from_json(data: Json) -> State:
    """The state of such a document. Raises `MalformedJournal` when it is none that this release writes."""
    try:
        if data["schemaVersion"] != ev.SCHEMA_VERSION:
            raise MalformedJournal(
                f"snapshot of schema {data['schemaVersion']}; this release reads {ev.SCHEMA_VERSION}"
            )
        outputs = data["outputs"]
        nodes = Map({path: NodeRun(**run, output=outputs.get(path)) for path, run in data["nodes"].items()})
        prompts = Map({key: PromptRun(**prompt) for key, prompt in data["prompts"].items()})
        return State(
            session_id=data["sessionId"],
            parent_session_id=data["parentSessionId"],
            flow_name=data["flowName"],
            flow_digest=data["flowDigest"],
            phase=data["phase"],
            outcome=data["outcome"],
            seq=data["seq"],
            created_at=data["createdAt"],
            updated_at=data["updatedAt"],
            actor=data["actor"],
            thread=data["thread"],
            given=data["given"],
            inputs=data["inputs"],
            nodes=nodes,
            active=Map(
                {path: None for path, run in nodes.items() if run.status in ("started", "interrupted")}
            ),
            frames=Map({path: Frame(**frame) for path, frame in data["frames"].items()}),
            prompts=prompts,
            open_prompts=Map({key: None for key, prompt in prompts.items() if prompt.open}),
            timers=Map({key: TimerRun(**timer) for key, timer in data["timers"].items()}),
            messages=tuple(data["pendingMessages"]),
            seen=Map(dict.fromkeys(data["seen"])),
            paused_at=data["pausedAt"],
            pause_reason=data["pauseReason"],
            error=data["error"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise MalformedJournal(f"not a session state: {error!r}") from error


def to_bytes(state: State) -> bytes:
    """The state as a snapshot row holds it."""
    return encode(to_json(state))


def from_bytes(data: bytes) -> State:
    """The state of a snapshot row. Raises `MalformedJournal`."""
    try:
        return from_json(decode(data))
    except NotJson as error:
        raise MalformedJournal(str(error)) from error
