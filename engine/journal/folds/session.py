"""The fold of what happens to a session as a whole (start, pauses, locks, messages, end), and of questions
for people and timers.
"""

from __future__ import annotations

from typing import Any

from immutables import Map
from msgspec.structs import asdict, replace

from engine.journal import events as ev
from engine.journal.folds.nodes import without
from engine.journal.grammar.common import container_at, frame_at, path_of, run_at
from engine.journal.queries import noted_flow
from engine.journal.state import (
    AGAIN,
    FINALLY,
    RETRY,
    ROOT,
    UNFINISHED,
    Asked,
    Frame,
    LockRun,
    State,
    TimerRun,
)
from engine.language.codec import Json
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


# --- questions and timers ----------------------------------------------------------------------------------


def prompt_requested(state: State, event: ev.PromptRequested) -> State:
    if event.prompt_id in state.prompts:
        raise MalformedJournal(f"prompt {event.prompt_id} was requested before")
    prompt = Asked(
        **asdict(event.question),
        prompt_id=event.prompt_id,
        path=path_of(event),
        status="requested",
        requested_at=event.timestamp,
    )
    run = state.nodes.get(prompt.path)
    # What is asked about the edges behind a node is no question of the node, which has its outcome.
    asks = run is not None and run.status in UNFINISHED
    nodes = (
        state.nodes.set(prompt.path, replace(run, prompt_id=event.prompt_id)) if run and asks else state.nodes
    )
    return replace(
        state,
        nodes=nodes,
        prompts=state.prompts.set(event.prompt_id, prompt),
        open_prompts=state.open_prompts.set(event.prompt_id, None),
        prompts_asked=state.prompts_asked + 1,
    )


def with_prompt(state: State, prompt: Asked) -> State:
    return replace(state, prompts=state.prompts.set(prompt.prompt_id, prompt))


def prompt_shown(state: State, event: ev.PromptShown) -> State:
    prompt = replace(state.prompts[event.prompt_id], status="shown", shown=event.shown)
    return with_prompt(state, prompt)


def change_prompt(state: State, prompt: Asked, key: str) -> State:
    return replace(state, prompts=state.prompts.set(prompt.prompt_id, prompt), seen=state.seen.set(key, None))


def prompt_voted(state: State, event: ev.PromptVoted) -> State:
    prompt = state.prompts[event.prompt_id]
    vote = {"actor": event.actor, "vote": event.vote, "reason": event.reason, "at": event.timestamp}
    votes = (*votes_without(prompt, event.actor.get("id")), vote)
    return change_prompt(state, replace(prompt, votes=votes), event.key)


def votes_without(prompt: Asked, actor_id: Json) -> tuple[dict[str, Json], ...]:
    """The votes of everybody else."""
    return tuple(vote for vote in prompt.votes if vote["actor"].get("id") != actor_id)


def renewed(prompt: Asked, nonce: str, **changes: Any) -> Asked:
    """A question that is shown again: buttons of the copy before do not match any more."""
    return replace(prompt, nonce=nonce, generation=prompt.generation + 1, **changes)


def prompt_edited(state: State, event: ev.PromptEdited) -> State:
    prompt = state.prompts[event.prompt_id]
    editors = tuple(dict.fromkeys((*prompt.editors, str(event.actor.get("id")))))
    changes = {"values": event.values, "covers": event.covers, "editors": editors, "votes": ()}
    return change_prompt(state, renewed(prompt, event.nonce, **changes), event.key)


def prompt_handed(state: State, event: ev.PromptHanded) -> State:
    prompt = state.prompts[event.prompt_id]
    giver = str(event.actor.get("id"))
    excluded = [entry for entry in (*prompt.excluded, giver) if entry != event.to]
    moved = replace(
        with_people(state, prompt, [event.to]),
        excluded=tuple(dict.fromkeys(excluded)),
        handed=(*prompt.handed, {"by": event.actor, "to": event.to, "at": event.timestamp}),
        votes=votes_without(prompt, giver),
    )
    return change_prompt(state, moved, event.key)


def asked_people(state: State, prompt: Asked) -> list[str]:
    """Who may answer a prompt, as entries of `approvers` or `who`; for a question about a step those beside the owner."""
    if prompt.kind == "approval":
        return list(prompt.approvers or ())
    if prompt.who is not None or prompt.kind in ("interrupted", "failed"):
        return list(prompt.who or ())
    return ["channel"] if state.actor.get("id") is None else ["requester"]


def with_people(state: State, prompt: Asked, more: list[str]) -> Asked:
    """A question that these may answer too."""
    people = tuple(dict.fromkeys([*asked_people(state, prompt), *more]))
    return replace(prompt, approvers=people) if prompt.kind == "approval" else replace(prompt, who=people)


def prompt_undone(state: State, event: ev.PromptUndone) -> State:
    prompt = state.prompts[event.prompt_id]
    again = renewed(
        prompt,
        event.nonce,
        status="requested" if prompt.shown is None else "shown",
        answer=None,
        actor=None,
        at=None,
        undo_until=None,
    )
    state = close_prompt(state, again)
    opened = replace(state, open_prompts=state.open_prompts.set(prompt.prompt_id, None))
    return change_prompt(opened, again, event.key)


def close_prompt(state: State, prompt: Asked) -> State:
    timers = state.timers
    for timer_id, timer in state.timers.items():
        if timer.prompt_id == prompt.prompt_id:
            timers = timers.delete(timer_id)
    return replace(
        state,
        prompts=state.prompts.set(prompt.prompt_id, prompt),
        open_prompts=without(state.open_prompts, prompt.prompt_id),
        timers=timers,
    )


def prompt_answered(state: State, event: ev.PromptAnswered) -> State:
    prompt = state.prompts[event.prompt_id]
    seen = state.seen.set(event.key, None) if event.key else state.seen
    answered = replace(prompt, status="answered", answer=event.answer, actor=event.actor, at=event.timestamp)
    closed = replace(close_prompt(state, answered), seen=seen)
    if prompt.kind == "failed" and event.answer.get("value") == RETRY:
        run = replace(run_at(closed, prompt.path, *UNFINISHED), status="interrupted", reason=RETRY)
        return replace(closed, nodes=closed.nodes.set(prompt.path, run))
    if prompt.kind != "interrupted" or event.answer.get("value") != AGAIN:
        return closed
    run = replace(run_at(closed, prompt.path, *UNFINISHED), reason=AGAIN)
    return replace(closed, nodes=closed.nodes.set(prompt.path, run))


def prompt_reminded(state: State, event: ev.PromptReminded) -> State:
    prompt = state.prompts[event.prompt_id]
    prompt = replace(prompt, reminders=event.count)
    return with_prompt(state, prompt)


def prompt_escalated(state: State, event: ev.PromptEscalated) -> State:
    prompt = state.prompts[event.prompt_id]
    prompt = replace(prompt, escalated=(*prompt.escalated, event.step))
    if event.may_answer:
        prompt = with_people(state, prompt, people_among(event.to))
    return with_prompt(state, prompt)


def people_among(entries: list[str]) -> list[str]:
    """The people and groups of an escalation: those that are told in a direct message too, and no channels."""
    told = [entry.removeprefix("dm:") for entry in entries]
    return [entry for entry in told if "@" in entry or entry == "requester" or entry[:1] in "UW"]


def prompt_reposted(state: State, event: ev.PromptReposted) -> State:
    prompt = state.prompts[event.prompt_id]
    again = {"status": "requested", "shown": None, "reposts": prompt.reposts + 1}
    prompt = renewed(prompt, event.nonce, **again)
    return with_prompt(state, prompt)


def prompt_expired(state: State, event: ev.PromptExpired) -> State:
    prompt = state.prompts[event.prompt_id]
    return close_prompt(state, replace(prompt, status="expired", at=event.timestamp))


def prompt_cancelled(state: State, event: ev.PromptCancelled) -> State:
    prompt = state.prompts[event.prompt_id]
    return close_prompt(state, replace(prompt, status="cancelled", at=event.timestamp))


def timer_set(state: State, event: ev.TimerSet) -> State:
    timer = TimerRun(event.timer_id, event.path, event.due_at, event.purpose, event.prompt_id)
    state = replace(state, timers=state.timers.set(event.timer_id, timer))
    if event.prompt_id is None:
        return state
    if event.purpose == "undo":
        return set_undo(state, event.prompt_id, event.due_at)
    if event.purpose != "deadline":
        return state
    prompt = replace(state.prompts[event.prompt_id], deadline=event.due_at)
    return with_prompt(state, prompt)


def set_undo(state: State, prompt_id: str, until: str | None) -> State:
    return with_prompt(state, replace(state.prompts[prompt_id], undo_until=until))


def timer_fired(state: State, event: ev.TimerFired) -> State:
    timer = state.timers[event.timer_id]
    state = replace(state, timers=state.timers.delete(event.timer_id))
    if timer.purpose == "undo" and timer.prompt_id is not None:
        return set_undo(state, timer.prompt_id, None)
    if timer.purpose == "timeout" and timer.path is not None:
        container = container_at(state, timer.path)
        message = f"node {container.node_id}: it ran out of time"
        container = replace(container, error=container.error or {"type": "timeout", "message": message})
        return replace(state, containers=state.containers.set(timer.path, container))
    if timer.purpose != "retry" or timer.path is None:
        return state
    run = replace(run_at(state, timer.path, *UNFINISHED), status="interrupted", reason=RETRY)
    return replace(state, nodes=state.nodes.set(timer.path, run))
