"""The fold of what happens to a session as a whole: its start, pauses, locks, messages and end."""

from __future__ import annotations

from immutables import Map
from msgspec.structs import replace

from engine.journal import events as ev
from engine.journal.code_digests import noted_flow
from engine.journal.grammar.common import frame_at
from engine.journal.state import AGAIN, FINALLY, ROOT, Frame, LockRun, State
from engine.language.errors import MalformedJournal


def session_started(state: State, event: ev.SessionStarted) -> State:
    return replace(
        state,
        session_id=event.session_id,
        flow_name=event.flow_name,
        flow_digest=event.flow_digest,
        parent_session_id=event.parent_session_id,
        given=event.given,
        actor=event.actor,
        thread=event.thread,
        created_at=event.timestamp,
    )


def flow_started(state: State, event: ev.FlowStarted) -> State:
    return replace(noted_flow(state, event), inputs=event.input, frames=state.frames.set(ROOT, Frame()))


def flow_paused(state: State, event: ev.FlowPaused) -> State:
    return replace(state, paused_at=event.timestamp, pause_reason=event.reason, pausing=None)


def flow_pausing(state: State, event: ev.FlowPausing) -> State:
    return replace(state, pausing={"reason": event.reason, "actor": event.actor})


def flow_resumed(state: State, event: ev.FlowResumed) -> State:
    return replace(state, paused_at=None, pause_reason=None)


def flow_completed(state: State, event: ev.FlowCompleted) -> State:
    return replace(state, outcome="complete")


def flow_failed(state: State, event: ev.FlowFailed) -> State:
    return replace(state, outcome="failed", error=event.error)


def flow_migrated(state: State, event: ev.FlowMigrated) -> State:
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
    return replace(state, flow_digest=event.flow_digest, inputs=inputs, frames=frames, nodes=nodes)


def lock_requested(state: State, event: ev.LockRequested) -> State:
    if state.lock is not None:
        raise MalformedJournal(f"the session asked for lock {state.lock.name} before")
    return replace(state, lock=LockRun(event.name, event.on_conflict, event.timestamp))


def lock_acquired(state: State, event: ev.LockAcquired) -> State:
    if state.lock is None or state.lock.name != event.name or state.lock.acquired_at is not None:
        raise MalformedJournal(f"the session does not wait for lock {event.name}")
    return replace(state, lock=replace(state.lock, acquired_at=event.timestamp))


def session_message(state: State, event: ev.SessionMessage) -> State:
    entry = {"text": event.message, "by": event.actor, "at": event.timestamp}
    return replace(
        state,
        messages=(*state.messages, entry),
        pending=(*state.pending, (event.key, event.message)),
        seen=state.seen.set(event.key, None),
    )


def flow_finalizing(state: State, event: ev.FlowFinalizing) -> State:
    return replace(
        state,
        outcome=event.outcome,
        error=event.error,
        timers=Map(),
        messages=(),
        pending=(),
        frames=state.frames.set(FINALLY, Frame(event.list_id)),
    )


def session_aborted(state: State, event: ev.SessionAborted) -> State:
    if state.phase == "finalizing":
        outcome = "aborted" if state.outcome == "complete" else state.outcome
        return replace(state, outcome=outcome, timers=Map(), finally_skipped=True)
    return replace(state, outcome="aborted", timers=Map(), pending=(), error=None)


def session_unreachable(state: State, event: ev.SessionUnreachable) -> State:
    return replace(state, paused_at=event.timestamp, pause_reason=event.reason)


def session_reachable(state: State, event: ev.SessionReachable) -> State:
    timers = state.timers
    for timer_id, timer in timers.items():
        if timer.purpose == "unreachable":
            timers = timers.delete(timer_id)
    return replace(state, paused_at=None, pause_reason=None, timers=timers)


def session_end(state: State, event: ev.SessionEnd) -> State:
    return replace(state, timers=Map(), pending=())
