"""Questions for people, and timers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import asdict, replace

from engine.forms.question import Question
from engine.journal import events as ev
from engine.journal.folds.nodes import without
from engine.journal.grammar import (
    agent_around,
    clock_id,
    container_at,
    frame_at,
    no_path,
    path_of,
    run_at,
    same,
    timeout_id,
    wait_id,
)
from engine.journal.queries import (
    ELICIT,
    LISTING,
    OUTAGE,
    OUTCOME,
    TURN,
    agent_at,
    doomed,
    is_outage,
    rest_id,
    unanswered,
)
from engine.journal.state import AGAIN, ASKS, ON_FAILURE, RETRY, UNFINISHED, Asked, State, TimerRun, scope_of
from engine.language.actors import account_of, requester_of, seats
from engine.language.codec import Json
from engine.language.errors import MalformedJournal
from engine.nodes.types.registry import MISSING


def prompt_requested(state: State, event: ev.PromptRequested) -> State:
    path, question = path_of(event), event.question
    if question.number is not None:
        same(question.number, state.prompts_asked + 1, "number")
    if question.kind == "input":
        _asks_input(state, path, question)
    elif question.tool:
        _asks_about_call(state, path, question.tool)
    else:
        _asks_about_node(state, path, question.kind, question.scope)
    if event.prompt_id in state.prompts:
        raise MalformedJournal(f"prompt {event.prompt_id} was requested before")
    prompt = Asked(
        **asdict(question),
        prompt_id=event.prompt_id,
        path=path,
        status="requested",
        requested_at=event.timestamp,
    )
    run, nodes = state.nodes.get(path), state.nodes
    # What is asked about the edges behind a node is no question of the node, which has its outcome; nor is one that nothing
    # waits for.
    if run is not None and run.status in UNFINISHED and question.kind != LISTING:
        nodes = nodes.set(path, replace(run, prompt_id=event.prompt_id))
    return replace(
        state,
        nodes=nodes,
        prompts=state.prompts.set(event.prompt_id, prompt),
        open_prompts=state.open_prompts.set(event.prompt_id, None),
        prompts_asked=state.prompts_asked + 1,
    )


def _asks_input(state: State, path: str, question: Question) -> None:
    name = question.input_name
    same(path, f"inputs/{name}", "path")
    if state.inputs is not None or state.open_prompts:
        raise MalformedJournal("the flow has its inputs, or another one is being asked for")
    if name in state.given or any(prompt.path == path for prompt in state.prompts.values()):
        raise MalformedJournal(f"the input {name} is known")


def _asks_about_call(state: State, path: str, tool: dict[str, Json]) -> None:
    agent = state.containers[agent_around(state, path)].agent
    call = None if agent is None else agent.calls.get(path)
    if call is None or path in state.nodes or call.prompt_id in state.open_prompts:
        raise MalformedJournal(f"{path} is no tool call that people decide now")
    same(tool.get("toolUseId"), call.tool_use_id, "call")


def _asks_about_node(state: State, path: str, kind: str, scope: str | None) -> None:
    if kind == "limit" and path not in state.containers:
        _asks_about_edges(state, path)
        return
    run = run_at(state, path, *UNFINISHED)
    if kind == LISTING:
        agent_at(state, path)
        return
    if run.prompt_id in state.open_prompts:
        raise MalformedJournal(f"{path} has an open question already")
    if kind == run.type:
        if run.status != "started" or not state.owed:
            raise MalformedJournal(f"{path} asks when it begins, and once")
    elif kind == "failed":
        run_at(state, path, "failing")
        if path in state.containers:
            raise MalformedJournal(f"the `on_failure` of {path} is not over")
    elif kind == "interrupted":
        run_at(state, path, "interrupted")
    elif kind == ELICIT:
        if run_at(state, path, "interrupted").reason != ASKS:
            raise MalformedJournal(f"the server of {path} asks for nothing")
    elif kind == OUTCOME:
        agent = container_at(state, path).agent
        if agent is None or (agent.stuck is None) != (scope == OUTAGE):
            raise MalformedJournal(f"{path} is not stuck")
    elif container_at(state, path).kind == ON_FAILURE or run.status != "started":
        raise MalformedJournal(f"{path} has nothing to ask")


def _asks_about_edges(state: State, path: str) -> None:
    """A node has its outcome, and a loop edge that leaves it is used up."""
    frame, run = frame_at(state, scope_of(path)), state.nodes.get(path)
    if run is None or frame.graph is None or run.node_id not in frame.graph.ended:
        raise MalformedJournal(f"the edges that leave {path} are resolved, or it has no outcome yet")


def _open(state: State, event: ev.PromptEvent) -> Asked:
    prompt = state.prompts.get(event.prompt_id)
    if prompt is None or not prompt.open:
        raise MalformedJournal(f"prompt {event.prompt_id} is not open")
    same(event.path, prompt.path, "path")
    return prompt


def _new_key(state: State, key: str | None) -> None:
    if key in state.seen:
        raise MalformedJournal(f"{key} was taken before")


def with_prompt(state: State, prompt: Asked) -> State:
    return replace(state, prompts=state.prompts.set(prompt.prompt_id, prompt))


def prompt_shown(state: State, event: ev.PromptShown) -> State:
    prompt = _open(state, event)
    if event.shown == prompt.shown:
        raise MalformedJournal(f"prompt {event.prompt_id} was shown there before")
    return with_prompt(state, replace(prompt, status="shown", shown=event.shown))


def change_prompt(state: State, prompt: Asked, key: str) -> State:
    return replace(with_prompt(state, prompt), seen=state.seen.set(key, None))


def prompt_voted(state: State, event: ev.PromptVoted) -> State:
    prompt = _open(state, event)
    _new_key(state, event.key)
    if prompt.kind != "approval":
        raise MalformedJournal(f"prompt {event.prompt_id} is no approval, so nobody votes on it")
    vote = {"actor": event.actor, "vote": event.vote, "reason": event.reason, "at": event.timestamp}
    vote |= {"always": event.always} if event.always is not None else {}
    votes = (*votes_without(prompt, event.actor), vote)
    return change_prompt(state, replace(prompt, votes=votes), event.key)


def votes_without(prompt: Asked, actor: Mapping[str, Json]) -> tuple[dict[str, Json], ...]:
    """The votes of everybody else. Whoever stands in for somebody votes in that person's place, not beside them."""
    mine = seats(actor)
    return tuple(vote for vote in prompt.votes if not mine & seats(vote["actor"]))


def renewed(prompt: Asked, nonce: str, **changes: Any) -> Asked:
    """A question that is shown again: buttons of the copy before do not match any more."""
    return replace(prompt, nonce=nonce, generation=prompt.generation + 1, **changes)


def prompt_edited(state: State, event: ev.PromptEdited) -> State:
    prompt = _open(state, event)
    _new_key(state, event.key)
    if not prompt.editable or not set(event.before) <= set(prompt.editable):
        raise MalformedJournal(f"prompt {event.prompt_id} lets nobody change that")
    same(event.nonce != prompt.nonce, True, "nonce")
    editors = tuple(dict.fromkeys((*prompt.editors, str(event.actor.get("id")), *account_of(event.actor))))
    changes = {"values": event.values, "covers": event.covers, "editors": editors, "votes": ()}
    return change_prompt(state, renewed(prompt, event.nonce, **changes), event.key)


def prompt_handed(state: State, event: ev.PromptHanded) -> State:
    prompt = _open(state, event)
    _new_key(state, event.key)
    giver = str(event.actor.get("id"))
    excluded = [entry for entry in (*prompt.excluded, giver) if entry != event.to]
    moved = replace(
        with_people(state, prompt, [event.to]),
        excluded=tuple(dict.fromkeys(excluded)),
        handed=(*prompt.handed, {"by": event.actor, "to": event.to, "at": event.timestamp}),
        votes=votes_without(prompt, event.actor),
    )
    return change_prompt(state, moved, event.key)


def asked_people(state: State, prompt: Asked) -> list[str]:
    """Who may answer a prompt, as entries of `approvers` or `who`; for a question about a step those beside the owner."""
    if prompt.kind == "approval":
        return list(prompt.approvers or ())
    if prompt.who is not None or prompt.kind in ("interrupted", "failed"):
        return list(prompt.who or ())
    return ["requester"] if requester_of(state.actor) else ["channel"]


def with_people(state: State, prompt: Asked, more: list[str]) -> Asked:
    """A question that these may answer too."""
    people = tuple(dict.fromkeys([*asked_people(state, prompt), *more]))
    return replace(prompt, approvers=people) if prompt.kind == "approval" else replace(prompt, who=people)


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
    prompt = _open(state, event)
    options = [option["value"] for option in prompt.options]
    value = event.answer.get("value")
    if options and value not in options and not _takes_more(prompt):
        raise MalformedJournal(f"prompt {event.prompt_id} offers {', '.join(map(str, options))}, not {value}")
    if prompt.kind == "approval":
        same(event.answer.get("values") or {}, prompt.values, "values")
    voted = prompt.votes[-1] if prompt.votes else None
    if prompt.kind != "approval" or not (voted or prompt.required > 1):
        _new_key(state, event.key)
    else:
        _decided_by_votes(prompt, event, value)
    seen = state.seen.set(event.key, None) if event.key else state.seen
    answered = replace(
        prompt,
        status="answered",
        answer=event.answer,
        actor=event.actor,
        at=event.timestamp,
        answer_key=event.key,
    )
    closed = replace(close_prompt(state, answered), seen=seen)
    if prompt.kind == "failed" and value == RETRY:
        run = replace(run_at(closed, prompt.path, *UNFINISHED), status="interrupted", reason=RETRY)
        return replace(closed, nodes=closed.nodes.set(prompt.path, run))
    if prompt.kind == ELICIT:
        return _told_server(closed, prompt, event.answer)
    if prompt.kind != "interrupted" or value != AGAIN:
        return closed
    run = replace(run_at(closed, prompt.path, *UNFINISHED), reason=AGAIN)
    return replace(closed, nodes=closed.nodes.set(prompt.path, run))


def _told_server(state: State, prompt: Asked, answer: Mapping[str, Json]) -> State:
    """What people said is kept for the call, which goes on once nothing more is asked."""
    run = run_at(state, prompt.path, "interrupted")
    told = {"action": answer["value"], **({"values": answer["values"]} if answer.get("values") else {})}
    key = unanswered(run.saved)["key"]
    saved = {**run.saved, "answers": {**run.saved["answers"], key: told}}
    run = replace(run, saved=saved, reason=AGAIN if unanswered(saved) is None else ASKS)
    return replace(state, nodes=state.nodes.set(prompt.path, run))


def _takes_more(prompt: Asked) -> bool:
    return bool(prompt.accepts_text or prompt.accepts_files or (prompt.kind == ELICIT and prompt.fields))


def _decided_by_votes(prompt: Asked, event: ev.PromptAnswered, value: Json) -> None:
    """Where several decide, the vote that decides stands before the answer, and all votes stand in it."""
    last = prompt.votes[-1] if prompt.votes else {}
    same(
        (last.get("actor"), last.get("vote"), last.get("at")),
        (event.actor, value, event.timestamp),
        "last vote",
    )
    votes = list(prompt.votes) if len(prompt.votes) > 1 else None
    same(event.answer.get("votes"), votes, "votes")
    agree = sum((vote["vote"], vote["reason"]) == (value, last.get("reason")) for vote in prompt.votes)
    if value == "approve":
        agree = sum(vote["vote"] == "approve" for vote in prompt.votes)
    if value != "reject" and agree < prompt.required:
        raise MalformedJournal(f"only {agree} of {prompt.required} agree")


def prompt_expired(state: State, event: ev.PromptExpired) -> State:
    prompt = _open(state, event)
    same(event.outcome, prompt.on_timeout, "outcome")
    if not state.owed:
        raise MalformedJournal(f"the deadline of prompt {event.prompt_id} is not over")
    closed = close_prompt(state, replace(prompt, status="expired", at=event.timestamp))
    return _told_server(closed, prompt, {"value": "cancel"}) if prompt.kind == ELICIT else closed


def prompt_reminded(state: State, event: ev.PromptReminded) -> State:
    prompt = _open(state, event)
    same(event.count, prompt.reminders + 1, "count")
    if not state.owed:
        raise MalformedJournal(f"it is not time to remind of prompt {event.prompt_id}")
    return with_prompt(state, replace(prompt, reminders=event.count))


def prompt_escalated(state: State, event: ev.PromptEscalated) -> State:
    prompt = _open(state, event)
    steps = prompt.escalate
    waits = clock_id(state, prompt, f"escalate{event.step}") in state.timers
    if not 0 <= event.step < len(steps) or waits or prompt.deadline is None or event.step in prompt.escalated:
        raise MalformedJournal(f"it is not time for step {event.step} of prompt {event.prompt_id}")
    told = steps[event.step]
    same((event.to, bool(event.may_answer)), (told["to"], bool(told.get("mayAnswer"))), "people")
    prompt = replace(prompt, escalated=(*prompt.escalated, event.step))
    if event.may_answer:
        prompt = with_people(state, prompt, people_among(event.to))
    return with_prompt(state, prompt)


def people_among(entries: list[str]) -> list[str]:
    """The people and groups of an escalation: those that are told in a direct message too, and no channels."""
    told = [entry.removeprefix("dm:") for entry in entries]
    return [
        entry
        for entry in told
        if "@" in entry or entry == "requester" or entry[:1] in "UW" or entry.startswith("rota:")
    ]


def prompt_reposted(state: State, event: ev.PromptReposted) -> State:
    prompt = _open(state, event)
    if prompt.shown is None:
        raise MalformedJournal(f"prompt {event.prompt_id} is shown nowhere")
    again = {"status": "requested", "shown": None, "reposts": prompt.reposts + 1}
    return with_prompt(state, renewed(prompt, event.nonce, **again))


def prompt_cancelled(state: State, event: ev.PromptCancelled) -> State:
    """At the end, where a container around it is given up, or where nobody has to be asked any more."""
    prompt = _open(state, event)
    run = state.nodes.get(prompt.path)
    container = state.containers.get(prompt.path)
    failed = container is not None and container.error is not None
    missing = run is not None and run.status == "interrupted" and run.reason == MISSING
    over = is_outage(prompt) or prompt.kind == LISTING or _given_up(state, prompt.path)
    if not (state.phase == "finalizing" or failed or missing or over):
        raise MalformedJournal(f"prompt {event.prompt_id} still waits for its answer")
    return close_prompt(state, replace(prompt, status="cancelled", at=event.timestamp))


def _given_up(state: State, path: str) -> bool:
    return scope_of(path) in state.frames and doomed(state, path)


def timer_set(state: State, event: ev.TimerSet) -> State:
    if event.timer_id in state.timers:
        raise MalformedJournal(f"timer {event.timer_id} is set already")
    _SETS.get(event.purpose, _times_a_question)(state, event)
    timer = TimerRun(event.timer_id, event.path, event.due_at, event.purpose, event.prompt_id)
    timers = state.timers
    if event.purpose == "followUp":
        # The time that an agent has is for its work, and it rests.
        timers = without(timers, timeout_id(state, event.path or ""))
    state = replace(state, timers=timers.set(event.timer_id, timer))
    if event.prompt_id is None:
        return state
    if event.purpose != "deadline":
        return state
    prompt = replace(state.prompts[event.prompt_id], deadline=event.due_at)
    return with_prompt(state, prompt)


def _waits(state: State, event: ev.TimerSet) -> None:
    path = path_of(event)
    same((event.timer_id, event.prompt_id), (wait_id(state, path), None), "timer")
    if run_at(state, path, "started").type != "wait" or not state.owed:
        raise MalformedJournal(f"{path} waits for no time, or does so already")


def _times_out(state: State, event: ev.TimerSet) -> None:
    path = path_of(event)
    container = container_at(state, path)
    same((event.timer_id, event.prompt_id), (timeout_id(state, path), None), "timer")
    if container.begun or container.kind == ON_FAILURE:
        raise MalformedJournal(f"{path} has begun, so that its time is set already")


def _rests(state: State, event: ev.TimerSet) -> None:
    path = path_of(event)
    agent = container_at(state, path).agent
    same((event.timer_id, event.prompt_id), (rest_id(state, path), None), "timer")
    if agent is None or not agent.final or agent.calls or "/" in path:
        raise MalformedJournal(f"{path} has not given its last answer, so it does not rest")


def _times_the_thread(state: State, event: ev.TimerSet) -> None:
    no_path(event)
    if not state.owed or not event.timer_id.startswith(f"{state.session_id}:unreachable") or event.prompt_id:
        raise MalformedJournal("no thread was lost just now")


def _times_a_question(state: State, event: ev.TimerSet) -> None:
    prompt = state.prompts.get(event.prompt_id or "")
    if prompt is None or event.purpose == "retry":
        raise MalformedJournal(f"there is no question {event.prompt_id}, or it is not timed like this")
    same(event.path, prompt.path, "path")
    if not prompt.open:
        raise MalformedJournal(f"prompt {prompt.prompt_id} is not open")
    else:
        _is_clock(state, prompt, event)
    if not state.owed and not (event.purpose == "remind" and prompt.deadline is not None):
        raise MalformedJournal(f"nothing happened that timer {event.timer_id} follows from")


def _is_clock(state: State, prompt: Asked, event: ev.TimerSet) -> None:
    """Which step of an escalation it is, only what is owed says."""
    word = event.timer_id.rpartition("escalate")[2]
    name = f"escalate{word}" if event.purpose == "escalate" else event.purpose
    same(event.timer_id, clock_id(state, prompt, name), "timer")
    if event.purpose == "remind" and prompt.remind_seconds is None:
        raise MalformedJournal(f"nobody is reminded of prompt {prompt.prompt_id}")


_SETS: dict[str, Callable[[State, ev.TimerSet], None]] = {
    "wait": _waits,
    "timeout": _times_out,
    "unreachable": _times_the_thread,
    "followUp": _rests,
}
"""What sets a timer by its purpose, where that is no question."""


def timer_fired(state: State, event: ev.TimerFired) -> State:
    timer = state.timers.get(event.timer_id)
    if timer is None:
        raise MalformedJournal(f"timer {event.timer_id} is not set")
    if event.path != timer.path:
        same(event.path, timer.path, "path")
    # Whoever speaks to an agent does not wait for its next try.
    spoken_to = timer.purpose == "retry" and state.nodes[timer.path or ""].type == TURN
    if event.timestamp < timer.due_at and not spoken_to:
        raise MalformedJournal(f"timer {event.timer_id} is not due before {timer.due_at}")
    state = replace(state, timers=state.timers.delete(event.timer_id))
    if timer.purpose == "timeout" and timer.path is not None:
        container = container_at(state, timer.path)
        message = f"node {container.node_id}: it ran out of time"
        container = replace(container, error=container.error or {"type": "timeout", "message": message})
        return replace(state, containers=state.containers.set(timer.path, container))
    if timer.purpose != "retry" or timer.path is None:
        return state
    run = replace(run_at(state, timer.path, *UNFINISHED), status="interrupted", reason=RETRY)
    return replace(state, nodes=state.nodes.set(timer.path, run))
