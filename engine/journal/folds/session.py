"""What happens to a session as a whole: its start, pauses, lock, messages and end."""

from __future__ import annotations

from collections.abc import Collection

from immutables import Map
from msgspec.structs import replace

from engine.journal import events as ev
from engine.journal.grammar import frame_at, no_path, nothing_open, same, through
from engine.journal.queries import pending
from engine.journal.state import AGAIN, FINALLY, ROOT, Frame, LockRun, State, in_finally, scope_of
from engine.language.codec import Json
from engine.language.errors import MalformedJournal


def session_started(state: State, event: ev.SessionStarted) -> State:
    no_path(event)
    if not event.session_id or event.session_id == event.parent_session_id:
        raise MalformedJournal("a session has an id of its own")
    return replace(
        state,
        session_id=event.session_id,
        flow_name=event.flow_name,
        flow_digest=event.flow_digest,
        parent_session_id=event.parent_session_id,
        flow_revision=event.flow_revision,
        given=event.given,
        actor=event.actor,
        thread=event.thread,
        created_at=event.timestamp,
    )


def flow_started(state: State, event: ev.FlowStarted) -> State:
    no_path(event)
    same(event.flow_name, state.flow_name, "flow")
    _has_inputs(state)
    # A fork asks anew for the lock that its parent had when its flow started.
    if pending(state) and state.parent_session_id is None:
        raise MalformedJournal("the session waits for its lock")
    known = {**state.given, **_answered(state)}
    for name, value in event.input.items():
        if name not in known:
            raise MalformedJournal(f"nobody gave the input {name}")
        same(value, known[name], f"input {name}")
    return replace(state, inputs=event.input, frames=state.frames.set(ROOT, Frame()))


def _answered(state: State) -> dict[str, object]:
    prompts = [prompt for prompt in state.prompts.values() if prompt.kind == "input"]
    return {prompt.input_name: (prompt.answer or {}).get("value") for prompt in prompts}


def _has_inputs(state: State) -> None:
    if state.inputs is not None or state.open_prompts:
        raise MalformedJournal("the flow was started before, or an input is being asked for")


def lock_requested(state: State, event: ev.LockRequested) -> State:
    no_path(event)
    _has_inputs(state)
    if state.lock is not None:
        raise MalformedJournal(f"the session asked for lock {state.lock.name} before")
    return replace(state, lock=LockRun(event.name, event.on_conflict, event.timestamp))


def lock_acquired(state: State, event: ev.LockAcquired) -> State:
    no_path(event)
    if state.lock is None or state.lock.name != event.name or state.lock.acquired_at is not None:
        raise MalformedJournal(f"the session does not wait for lock {event.name}")
    return replace(state, lock=replace(state.lock, acquired_at=event.timestamp))


def session_message(state: State, event: ev.SessionMessage) -> State:
    no_path(event)
    if event.key in state.seen:
        raise MalformedJournal(f"the message {event.key} was taken before")
    entry = {"text": event.message, "by": event.actor, "at": event.timestamp}
    return replace(
        state,
        messages=(*state.messages, entry),
        pending=(*state.pending, (event.key, event.message)),
        seen=state.seen.set(event.key, None),
    )


def flow_migrated(state: State, event: ev.FlowMigrated) -> State:
    no_path(event)
    if event.flow_digest == state.flow_digest:
        raise MalformedJournal("the session goes on with that text already")
    for path in event.nodes:
        if path not in state.nodes:
            raise MalformedJournal(f"{path} is not known")
    frames, nodes = state.frames, state.nodes
    for scope, position in event.frames.items():
        frames = frames.set(scope, replace(frame_at(state, scope), position=position))
    for path, position in event.nodes.items():
        nodes = nodes.set(path, replace(nodes[path], position=position))
    for path in event.anew or ():
        if path not in event.nodes or nodes[path].status != "interrupted":
            raise MalformedJournal(f"{path} does not wait for its node type")
        nodes = nodes.set(path, replace(nodes[path], reason=AGAIN, input=None))
    inputs = state.inputs if event.input is None else event.input
    text = {"flow_digest": event.flow_digest, "flow_revision": None}
    return replace(state, **text, inputs=inputs, frames=frames, nodes=nodes)


def flow_paused(state: State, event: ev.FlowPaused) -> State:
    """Nothing runs, and something is waited for."""
    _stands(state, event)
    if (event.held, event.actor is None) not in ((None, True), (True, False)):
        raise MalformedJournal("a person holds a session; it waits by itself")
    # Releases before `flow:pausing` held a session at once, and wrote then how what ran had left.
    if not event.held:
        _nothing_runs(state.launched)
        if not (state.open_prompts or state.timers or pending(state)):
            raise MalformedJournal("it waits for nothing")
    return replace(state, paused_at=event.timestamp, pause_reason=event.reason, pausing=None)


def flow_pausing(state: State, event: ev.FlowPausing) -> State:
    _stands(state, event)
    return replace(state, pausing={"reason": event.reason, "actor": event.actor})


def flow_resumed(state: State, event: ev.FlowResumed) -> State:
    _stands(state, event)
    return replace(state, paused_at=None, pause_reason=None)


def _stands(state: State, event: ev.FlowPaused | ev.FlowPausing | ev.FlowResumed) -> None:
    """It says where the session stands."""
    path = event.path
    run = state.nodes.get(path or "")
    # Releases before wrote the path as the node's id too.
    if event.node_id not in (path, path if run is None else run.node_id):
        same(event.node_id, path, "node")
    # A tool call that people are asked about is no node yet, but the model call is.
    if path is not None and not (
        path in state.nodes or scope_of(path) in state.nodes or path.startswith("inputs/")
    ):
        raise MalformedJournal(f"the session does not stand at {path}")


def session_unreachable(state: State, event: ev.SessionUnreachable) -> State:
    no_path(event)
    return replace(state, paused_at=event.timestamp, pause_reason=event.reason)


def session_reachable(state: State, event: ev.SessionReachable) -> State:
    no_path(event)
    timers = state.timers
    for timer_id, timer in timers.items():
        if timer.purpose == "unreachable":
            timers = timers.delete(timer_id)
    return replace(state, paused_at=None, pause_reason=None, timers=timers)


def flow_finalizing(state: State, event: ev.FlowFinalizing) -> State:
    if FINALLY in state.frames:
        raise MalformedJournal("what runs at the end began before")
    if state.phase == "finalizing":
        same((event.outcome, state.outcome), ("aborted", "aborted"), "outcome")
        _nothing_runs([path for path in state.launched if not in_finally(path)])
    elif event.outcome == "complete":
        nothing_open(state)
    elif event.outcome == "failed" and event.error is not None:
        _has_failed(state, event.path, event.error)
    else:
        raise MalformedJournal("a flow that is not ended by a person is complete, or failed with an error")
    if (event.error is None) != (event.outcome != "failed") or (event.path and not event.error):
        raise MalformedJournal("a flow has an error, at a path, exactly where it failed")
    return replace(
        state,
        outcome=event.outcome,
        error=event.error,
        timers=Map(),
        messages=(),
        pending=(),
        frames=state.frames.set(FINALLY, Frame(event.list_id)),
    )


def _nothing_runs(running: Collection[str]) -> None:
    if running:
        raise MalformedJournal(f"{min(running)} runs")


def flow_completed(state: State, event: ev.FlowCompleted) -> State:
    no_path(event)
    if state.phase == "finalizing":
        same(state.outcome, "complete", "outcome")
        _finally_over(state)
        if state.frames[FINALLY].error is not None:
            raise MalformedJournal("`finally` has failed, and so has the flow")
    else:
        nothing_open(state)
    return replace(state, outcome="complete")


def flow_failed(state: State, event: ev.FlowFailed) -> State:
    if state.phase == "finalizing":
        _finally_over(state)
        scope = ROOT if state.outcome == "failed" else FINALLY
        error = state.error if state.outcome == "failed" else state.frames[FINALLY].error
        if state.outcome not in ("failed", "complete") or error is None:
            raise MalformedJournal(f"the flow is {state.outcome}")
        same(event.error, error, "error")
        _failed_at(state, scope, event.path, error)
    else:
        _has_failed(state, event.path, event.error)
    return replace(state, outcome="failed", error=event.error)


def _has_failed(state: State, path: str | None, error: dict[str, Json]) -> None:
    """A node has failed the flow, or something around all nodes: their number, an input, the lock, the thread."""
    root = state.frames.get(ROOT)
    if root is None:
        return
    if root.error is not None:
        same(error, root.error, "error")
        _failed_at(state, ROOT, path, error)
    elif error.get("type") not in AROUND_NODES:
        raise MalformedJournal("no node has failed the flow")


AROUND_NODES = ("limit", "unreachable")
"""What fails a flow although no node of it has failed."""


def _failed_at(state: State, scope: str, path: str | None, error: dict[str, Json]) -> None:
    """The path is that of a node that failed so, if it was a node."""
    failed = [at for at in state.frames[scope].nodes.values() if state.nodes[at].error == error]
    if path not in failed and (path is not None or failed) and error.get("type") not in AROUND_NODES:
        raise MalformedJournal(f"{path} did not fail the flow")


def _finally_over(state: State) -> None:
    """What runs at the end is over; a person can have skipped the rest of it."""
    frame = frame_at(state, FINALLY)
    _nothing_runs(state.launched)
    if frame.error is None and not state.finally_skipped:
        through(frame, FINALLY)


def session_aborted(state: State, event: ev.SessionAborted) -> State:
    no_path(event)
    if state.finally_skipped:
        raise MalformedJournal("what runs at the end is skipped already")
    if state.phase == "finalizing":
        outcome = "aborted" if state.outcome == "complete" else state.outcome
        return replace(state, outcome=outcome, timers=Map(), finally_skipped=True)
    return replace(state, outcome="aborted", timers=Map(), pending=(), error=None)


def session_end(state: State, event: ev.SessionEnd) -> State:
    no_path(event)
    if event.status != state.outcome:
        raise MalformedJournal(f"the session ended as {state.outcome}, not as {event.status}")
    if state.open_prompts:
        raise MalformedJournal(f"the question {min(state.open_prompts)} is open")
    _nothing_runs(state.launched)
    said = FINALLY in state.frames and event.status != "aborted"
    if not state.owed and (said or event.status == "complete"):
        raise MalformedJournal("nothing says what became of the flow")
    if event.status == "aborted" and FINALLY in state.frames:
        _finally_over(state)
    return replace(state, timers=Map(), pending=())
