"""The rules of questions for people, and of timers. Pure."""

from __future__ import annotations

from collections.abc import Callable

from engine.forms.question import Question
from engine.journal import events as ev
from engine.journal.folds.agents import TURN
from engine.journal.grammar.common import (
    agent_around,
    clock_id,
    container_at,
    frame_at,
    no_path,
    path_of,
    run_at,
    same,
    timeout_id,
    undo_id,
    wait_id,
)
from engine.journal.queries import doomed
from engine.journal.state import ON_FAILURE, UNFINISHED, Asked, State, scope_of
from engine.language.codec import Json
from engine.language.errors import MalformedJournal
from engine.nodes.types.registry import MISSING

# --- a question is asked -----------------------------------------------------------------------------------------


def prompt_requested(state: State, event: ev.PromptRequested) -> None:
    path, question = path_of(event), event.question
    if question.number is not None:
        same(question.number, state.prompts_asked + 1, "number")
    if question.kind == "input":
        _asks_input(state, path, question)
    elif question.tool:
        _asks_about_call(state, path, question.tool)
    else:
        _asks_about_node(state, path, question.kind)


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


def _asks_about_node(state: State, path: str, kind: str) -> None:
    if kind == "limit" and path not in state.containers:
        _asks_about_edges(state, path)
        return
    run = run_at(state, path, *UNFINISHED)
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
    elif container_at(state, path).kind == ON_FAILURE or run.status != "started":
        raise MalformedJournal(f"{path} has nothing to ask")


def _asks_about_edges(state: State, path: str) -> None:
    """A node has its outcome, and a loop edge that leaves it is used up."""
    frame, run = frame_at(state, scope_of(path)), state.nodes.get(path)
    if run is None or frame.graph is None or run.node_id not in frame.graph.ended:
        raise MalformedJournal(f"the edges that leave {path} are resolved, or it has no outcome yet")


# --- a question is open ------------------------------------------------------------------------------------------


def _open(state: State, event: PromptEvent) -> Asked:
    prompt = state.prompts.get(event.prompt_id)
    if prompt is None or not prompt.open:
        raise MalformedJournal(f"prompt {event.prompt_id} is not open")
    same(event.path, prompt.path, "path")
    return prompt


def _new_key(state: State, key: str | None) -> None:
    if key in state.seen:
        raise MalformedJournal(f"{key} was taken before")


def prompt_shown(state: State, event: ev.PromptShown) -> None:
    prompt = _open(state, event)
    if event.shown == prompt.shown:
        raise MalformedJournal(f"prompt {event.prompt_id} was shown there before")


def prompt_voted(state: State, event: ev.PromptVoted) -> None:
    prompt = _open(state, event)
    _new_key(state, event.key)
    if prompt.kind != "approval":
        raise MalformedJournal(f"prompt {event.prompt_id} is no approval, so nobody votes on it")


def prompt_edited(state: State, event: ev.PromptEdited) -> None:
    prompt = _open(state, event)
    _new_key(state, event.key)
    if not prompt.editable or not set(event.before) <= set(prompt.editable):
        raise MalformedJournal(f"prompt {event.prompt_id} lets nobody change that")
    same(event.nonce != prompt.nonce, True, "nonce")


def prompt_handed(state: State, event: ev.PromptHanded) -> None:
    _open(state, event)
    _new_key(state, event.key)


def prompt_undone(state: State, event: ev.PromptUndone) -> None:
    prompt = state.prompts.get(event.prompt_id)
    _new_key(state, event.key)
    if prompt is None or undo_id(state, prompt) not in state.timers:
        raise MalformedJournal(f"prompt {event.prompt_id} has no answer that can be taken back")
    same(event.path, prompt.path, "path")


def prompt_answered(state: State, event: ev.PromptAnswered) -> None:
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


def _takes_more(prompt: Asked) -> bool:
    return bool(prompt.accepts_text or prompt.accepts_files)


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
    agree = sum(vote["vote"] == "approve" for vote in prompt.votes)
    if value == "approve" and agree < prompt.required:
        raise MalformedJournal(f"only {agree} of {prompt.required} approved")


def prompt_expired(state: State, event: ev.PromptExpired) -> None:
    prompt = _open(state, event)
    same(event.outcome, prompt.on_timeout, "outcome")
    if not state.owed:
        raise MalformedJournal(f"the deadline of prompt {event.prompt_id} is not over")


def prompt_reminded(state: State, event: ev.PromptReminded) -> None:
    prompt = _open(state, event)
    same(event.count, prompt.reminders + 1, "count")
    if not state.owed:
        raise MalformedJournal(f"it is not time to remind of prompt {event.prompt_id}")


def prompt_escalated(state: State, event: ev.PromptEscalated) -> None:
    prompt = _open(state, event)
    steps = prompt.escalate
    waits = clock_id(state, prompt, f"escalate{event.step}") in state.timers
    if not 0 <= event.step < len(steps) or waits or prompt.deadline is None or event.step in prompt.escalated:
        raise MalformedJournal(f"it is not time for step {event.step} of prompt {event.prompt_id}")
    told = steps[event.step]
    same((event.to, bool(event.may_answer)), (told["to"], bool(told.get("mayAnswer"))), "people")


def prompt_reposted(state: State, event: ev.PromptReposted) -> None:
    if _open(state, event).shown is None:
        raise MalformedJournal(f"prompt {event.prompt_id} is shown nowhere")


def prompt_cancelled(state: State, event: ev.PromptCancelled) -> None:
    """At the end, where a container around it is given up, or where nobody has to be asked any more."""
    prompt = _open(state, event)
    run = state.nodes.get(prompt.path)
    container = state.containers.get(prompt.path)
    failed = container is not None and container.error is not None
    missing = run is not None and run.status == "interrupted" and run.reason == MISSING
    if not (state.phase == "finalizing" or failed or missing or _given_up(state, prompt.path)):
        raise MalformedJournal(f"prompt {event.prompt_id} still waits for its answer")


def _given_up(state: State, path: str) -> bool:
    return scope_of(path) in state.frames and doomed(state, path)


# --- timers ------------------------------------------------------------------------------------------------------


def timer_set(state: State, event: ev.TimerSet) -> None:
    if event.timer_id in state.timers:
        raise MalformedJournal(f"timer {event.timer_id} is set already")
    if event.purpose in ("wait", "timeout"):
        _TIMES_A_NODE[event.purpose](state, event)
    elif event.purpose == "unreachable":
        _times_the_thread(state, event)
    else:
        _times_a_question(state, event)


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


_TIMES_A_NODE: dict[str, Callable[[State, ev.TimerSet], None]] = {"wait": _waits, "timeout": _times_out}


def _times_the_thread(state: State, event: ev.TimerSet) -> None:
    no_path(event)
    if not state.owed or not event.timer_id.startswith(f"{state.session_id}:unreachable") or event.prompt_id:
        raise MalformedJournal("no thread was lost just now")


def _times_a_question(state: State, event: ev.TimerSet) -> None:
    prompt = state.prompts.get(event.prompt_id or "")
    if prompt is None or event.purpose == "retry":
        raise MalformedJournal(f"there is no question {event.prompt_id}, or it is not timed like this")
    same(event.path, prompt.path, "path")
    if event.purpose == "undo":
        same((event.timer_id, prompt.status), (undo_id(state, prompt), "answered"), "timer")
    elif not prompt.open:
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


def timer_fired(state: State, event: ev.TimerFired) -> None:
    timer = state.timers.get(event.timer_id)
    if timer is None:
        raise MalformedJournal(f"timer {event.timer_id} is not set")
    if event.path != timer.path:
        same(event.path, timer.path, "path")
    # Whoever speaks to an agent does not wait for its next try.
    spoken_to = timer.purpose == "retry" and state.nodes[timer.path or ""].type == TURN
    if event.timestamp < timer.due_at and not spoken_to:
        raise MalformedJournal(f"timer {event.timer_id} is not due before {timer.due_at}")


PromptEvent = (
    ev.PromptShown
    | ev.PromptVoted
    | ev.PromptEdited
    | ev.PromptHanded
    | ev.PromptAnswered
    | ev.PromptReminded
    | ev.PromptEscalated
    | ev.PromptReposted
    | ev.PromptExpired
    | ev.PromptCancelled
)
