"""`decide` and `due`: what a command makes true, and what may start now. Pure.

A *turn* is one call of `decide`. It folds each event it writes, so that later parts of the turn see what earlier
ones made true; the caller's state is never touched. A command that was taken before yields no events; a command
that is refused raises and yields none either.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple

from engine import answers, clock
from engine import events as ev
from engine.codec import Json, clean_text, copy
from engine.commands import (
    Abort,
    Action,
    Answer,
    Begin,
    Claimed,
    Command,
    Due,
    Facts,
    Message,
    NodeBroke,
    NodeCut,
    NodeDone,
    Shown,
    Start,
)
from engine.errors import (
    AlreadyAnswered,
    EmptyMessage,
    NotAllowed,
    NotJson,
    PromptClosed,
    SaysoError,
    SessionEnded,
    SeveralPrompts,
)
from engine.evaluation import evaluate_condition, evaluate_config
from engine.events import Event
from engine.flow import Flow, Node, coerce_inputs
from engine.nodes.specs import node_types
from engine.state import AGAIN, ROOT, Frame, NodeRun, PromptRun, State, current_path, evolve

CRASHES_BEFORE_ASKING = 3
"""A node that was interrupted by this many crashes is never started again without a person's word."""

_MOST_STARTS_A_TURN = 200
"""Pure nodes run inside a turn; this bounds how long one turn can hold the event loop."""


class Work(NamedTuple):
    """One thing that may start: a node, for the first time or again after an interruption."""

    path: str
    again: bool = False


def due(flow: Flow, state: State) -> list[Work]:
    """What may start now, from the state alone. Costs what is open, not what is done."""
    if state.phase != "running" or state.inputs is None:
        return []
    again = [Work(path, True) for path in sorted(state.active) if _may_run_again(flow, state, path)]
    if again or state.active:
        return again
    position = state.frames.get(ROOT, Frame()).position
    return [Work(flow.nodes[position].id)] if position < len(flow.nodes) else []


def decide(flow: Flow, state: State, command: Command, facts: Facts) -> list[Event]:
    """The events that a command makes true, run to a fixpoint. Raises a `SaysoError` where it is refused."""
    return take_turn(flow, state, command, facts).events


def take_turn(flow: Flow, state: State, command: Command, facts: Facts) -> Turn:
    """The same, with the state after the events, for whoever would fold them again otherwise."""
    turn = Turn(flow, state, facts)
    _HANDLERS[type(command)](turn, command)
    turn.settle()
    return turn


class Turn:
    """The events of one `decide`, and the state after them."""

    def __init__(self, flow: Flow, state: State, facts: Facts) -> None:
        self.flow = flow
        self.state = state
        self.facts = facts
        self.events: list[Event] = []

    def emit(self, kind: Callable[..., Event], **fields: Any) -> None:
        """Write an event and fold it."""
        event = kind(seq=self.state.seq + 1, timestamp=self.facts.now, **fields)
        self.events.append(event)
        self.state = evolve(self.state, event)

    def new_id(self, prefix: str, salt: str) -> str:
        """An id that nobody can guess, the same for the same facts."""
        material = f"{self.facts.entropy}|{self.state.session_id}|{self.state.seq}|{salt}"
        return prefix + blake2b(material.encode(), digest_size=6).hexdigest()

    def ask(self, path: str, spec: dict[str, Json]) -> None:
        """Request a prompt: with a number that people can say, and a nonce that only its own buttons carry."""
        marked = {**spec, "number": len(self.state.prompts) + 1, "nonce": self.new_id("", f"nonce {path}")}
        self.emit(ev.PromptRequested, path=path, prompt_id=self.new_id("prompt-", path), prompt=marked)

    def permit(self, actor: Any, action: Action, prompt: PromptRun | None = None) -> None:
        """Raise `NotAllowed` with the policy's sentence unless this actor may do this."""
        reason = self.facts.policy(actor, action, self.state, prompt)
        if reason is not None:
            raise NotAllowed(reason)

    def wake(self, path: str | None, message: str | None = None) -> None:
        """Leave `waiting`, if that is where the session is."""
        if self.state.phase == "waiting":
            injected = 1 if message is not None else 0
            self.emit(ev.FlowResumed, path=path, node_id=path, message=message, injected_messages=injected)

    def settle(self) -> None:
        """Write what follows without any further command: questions about interruptions, the pause, the end."""
        if self.state.phase == "running":
            for path in sorted(self.state.active):
                _ask_if_interrupted(self, path)
            self._finish_or_pause()
        if self.state.phase == "finalizing" and not launched(self.state):
            self._close()

    def _finish_or_pause(self) -> None:
        state = self.state
        if due(self.flow, state) or state.active:
            if not _only_waits(self.flow, state):
                return
        elif state.inputs is not None:
            self.emit(ev.FlowCompleted)
            return
        path = current_path(state)
        self.emit(ev.FlowPaused, path=path, node_id=path, reason="waiting")

    def _close(self) -> None:
        for prompt_id in sorted(self.state.open_prompts):
            prompt = self.state.prompts[prompt_id]
            self.emit(
                ev.PromptCancelled,
                path=prompt.path,
                prompt_id=prompt_id,
                reason=f"the session is {self.state.outcome}",
            )
        self.emit(ev.SessionEnd, status=self.state.outcome)


# --- what a state allows -----------------------------------------------------------------------------------


def launched(state: State) -> list[str]:
    """Paths of nodes that a process is executing right now (or was, when it died)."""
    return [
        path
        for path in state.active
        if state.nodes[path].status == "started" and node_types()[state.nodes[path].type].mode == "run"
    ]


def _open_prompt_at(state: State, path: str) -> PromptRun | None:
    for prompt_id in state.open_prompts:
        if state.prompts[prompt_id].path == path:
            return state.prompts[prompt_id]
    return None


def _may_run_again(flow: Flow, state: State, path: str) -> bool:
    run = state.nodes[path]
    if run.status != "interrupted" or _open_prompt_at(state, path):
        return False
    return run.reason == AGAIN or not _must_ask(flow, run)


def _must_ask(flow: Flow, run: NodeRun) -> bool:
    policy = flow.nodes[run.position].crash_policy(run.input)
    return policy == "ask" or run.crashes >= CRASHES_BEFORE_ASKING


def _only_waits(flow: Flow, state: State) -> bool:
    """Whether every unfinished node waits for a person or a timer, and there is at least one such wait."""
    if due(flow, state):
        return False
    for path in state.active:
        run = state.nodes[path]
        if _open_prompt_at(state, path) is None and not (
            run.status == "started" and node_types()[run.type].mode == "timer"
        ):
            return False
    return bool(state.active or state.open_prompts)


# --- commands ----------------------------------------------------------------------------------------------


def _start(turn: Turn, command: Start) -> None:
    values, missing = coerce_inputs(turn.flow, command.given)
    if turn.state.seq:
        return
    reason_state = turn.state._replace(
        session_id=command.session_id,
        flow_name=turn.flow.name,
        actor=command.actor.record(),
        thread=command.thread,
    )
    reason = turn.facts.policy(command.actor, "start", reason_state, None)
    if reason is not None:
        raise NotAllowed(reason)
    turn.emit(
        ev.SessionStarted,
        session_id=command.session_id,
        flow_name=turn.flow.name,
        flow_digest=turn.flow.digest,
        given=values,
        actor=command.actor.record(),
        thread=command.thread,
        parent_session_id=command.parent_session_id,
    )
    _start_flow_or_ask(turn, values, missing)


def _start_flow_or_ask(turn: Turn, values: dict[str, Json], missing: list[str]) -> None:
    if missing:
        name = missing[0]
        turn.ask(f"inputs/{name}", answers.input_prompt(turn.flow, name))
    else:
        turn.emit(ev.FlowStarted, flow_name=turn.flow.name, input=copy(values))


def _claimed(turn: Turn, command: Claimed) -> None:
    for path in launched(turn.state):
        run = turn.state.nodes[path]
        if run.epoch < turn.facts.epoch:
            turn.emit(ev.NodeInterrupted, path=path, node_id=run.node_id, reason="crash")


def _begin(turn: Turn, command: Begin) -> None:
    for _ in range(_MOST_STARTS_A_TURN):
        work = due(turn.flow, turn.state)
        if not work:
            return
        for item in work:
            if item.again:
                _start_again(turn, item.path)
            else:
                _start_node(turn, turn.flow.nodes[turn.state.frames[ROOT].position])


def _start_again(turn: Turn, path: str) -> None:
    """Run an interrupted node once more: same path, same key, and the input that was evaluated the first time."""
    run = turn.state.nodes[path]
    turn.emit(
        ev.NodeStarted,
        path=path,
        node_id=run.node_id,
        node_type=run.type,
        node_index=run.position,
        input=run.input,
        epoch=turn.facts.epoch,
        attempt=run.attempt + 1,
    )


def _start_node(turn: Turn, node: Node) -> None:
    try:
        if not evaluate_condition(node, turn.state):
            turn.emit(
                ev.NodeSkipped, path=node.id, node_id=node.id, node_type=node.type, reason="its `if` is false"
            )
            return
        config = evaluate_config(node, turn.state)
    except SaysoError as error:
        _node_started(turn, node, None)
        _fail_node(turn, node.id, {"type": error.code, "message": str(error)})
        return
    _node_started(turn, node, config)
    _PERFORM[node.spec.mode](turn, node, config)


def _node_started(turn: Turn, node: Node, config: Json) -> None:
    turn.emit(
        ev.NodeStarted,
        path=node.id,
        node_id=node.id,
        node_type=node.type,
        node_index=node.index,
        input=config,
        epoch=turn.facts.epoch,
    )


def _perform_pure(turn: Turn, node: Node, config: Json) -> None:
    if node.type == "fail":
        _fail_node(turn, node.id, {"type": "fail", "message": config["message"]})
    else:
        turn.emit(ev.NodeCompleted, path=node.id, node_id=node.id, output=config)


def _perform_prompt(turn: Turn, node: Node, config: Json) -> None:
    turn.ask(node.id, answers.node_prompt(node, config))


def _perform_timer(turn: Turn, node: Node, config: Json) -> None:
    due_at = config["until"] if config.get("until") else clock.after(turn.facts.now, config["for"])
    try:
        due_at = clock.to_text(clock.from_text(due_at))
    except ValueError as error:
        _fail_node(turn, node.id, {"type": "config", "message": f"node {node.id}: until: {error}"})
        return
    turn.emit(
        ev.TimerSet,
        path=node.id,
        timer_id=f"{turn.state.session_id}:{node.id}",
        due_at=due_at,
        purpose="wait",
    )


def _perform_elsewhere(turn: Turn, node: Node, config: Json) -> None:
    """A process launches it (`run`), or an outbox row carries it (`delivery`): the outcome comes as a command."""


_PERFORM: dict[str, Callable[[Turn, Node, Json], None]] = {
    "pure": _perform_pure,
    "prompt": _perform_prompt,
    "timer": _perform_timer,
    "run": _perform_elsewhere,
    "delivery": _perform_elsewhere,
}


def _current_run(turn: Turn, path: str, attempt: int) -> NodeRun | None:
    """The run that an outcome belongs to, or None when the outcome is late and changes nothing."""
    run = turn.state.nodes.get(path)
    if run is None or run.status != "started" or run.attempt != attempt or turn.state.phase == "ended":
        return None
    # What waits for a person or a time has no outcome that somebody else could report.
    return run if node_types()[run.type].mode in ("run", "delivery") else None


def _node_done(turn: Turn, command: NodeDone) -> None:
    run = _current_run(turn, command.path, command.attempt)
    if run is None:
        return
    try:
        output = copy(command.output)
    except NotJson as error:
        _fail_node(
            turn, command.path, {"type": error.code, "message": f"node {run.node_id}: output: {error}"}
        )
        return
    turn.emit(ev.NodeCompleted, path=command.path, node_id=run.node_id, output=output)


def _node_broke(turn: Turn, command: NodeBroke) -> None:
    if _current_run(turn, command.path, command.attempt) is not None:
        _fail_node(turn, command.path, command.error)


def _node_cut(turn: Turn, command: NodeCut) -> None:
    run = _current_run(turn, command.path, command.attempt)
    if run is None:
        return
    if command.reason == "cut" or _must_ask(turn.flow, run):
        turn.emit(ev.NodeInterrupted, path=command.path, node_id=run.node_id, reason=command.reason)
        return
    told = command.message or {"timeout": "it ran out of time"}.get(command.reason, "the connection was lost")
    _fail_node(turn, command.path, {"type": command.reason, "message": f"node {run.node_id}: {told}"})


def _fail_node(turn: Turn, path: str, error: dict[str, Json]) -> None:
    """A node failed for good: `on_error` says whether the flow goes on."""
    run, error = turn.state.nodes[path], _storable(error)
    turn.emit(ev.NodeFailed, path=path, node_id=run.node_id, error=error, attempt=run.attempt)
    if turn.state.phase == "running" and turn.flow.nodes[run.position].on_error == "fail":
        turn.emit(ev.FlowFailed, path=path, error=error)


def _storable(error: dict[str, Json]) -> dict[str, Json]:
    """The error as it can be journaled: a failure with details that are no JSON is a failure all the same."""
    try:
        copied: dict[str, Json] = copy(error)
        return copied
    except NotJson:
        kept = {name: clean_text(str(error.get(name)))[0] for name in ("type", "message")}
        return {**kept, "details": None}


# --- people ------------------------------------------------------------------------------------------------


_ACTIONS: dict[str, Action] = {
    "ask": "answer",
    "input": "answer",
    "approval": "decide",
    "interrupted": "resolve",
}


def _answer(turn: Turn, command: Answer) -> None:
    if command.key in turn.state.seen:
        return
    prompt = turn.state.prompts.get(command.prompt_id)
    if prompt is None:
        raise PromptClosed("This question is not known here.")
    _refuse_closed(turn.state, prompt)
    if command.nonce is not None and command.nonce != prompt.spec["nonce"]:
        raise PromptClosed("This button belongs to an older copy of the question.")
    turn.permit(command.actor, _ACTIONS[prompt.kind], prompt)
    answer = answers.check(turn.flow, prompt, value=command.value, text=command.text)
    _take_answer(turn, prompt, command, answer)


def _refuse_closed(state: State, prompt: PromptRun) -> None:
    if prompt.status == "answered":
        actor = prompt.actor or {}
        who = actor.get("name") or actor.get("id")
        raise AlreadyAnswered(f"Already answered by {who} at {prompt.at}: {answers.summary(prompt)}.")
    if prompt.status == "expired":
        raise PromptClosed(f"The time to answer was over at {prompt.at}.")
    if prompt.status == "cancelled" or state.phase not in ("running", "waiting"):
        raise PromptClosed("This question was withdrawn.")


def _take_answer(turn: Turn, prompt: PromptRun, command: Answer, answer: dict[str, Json]) -> None:
    turn.emit(
        ev.PromptAnswered,
        path=prompt.path,
        prompt_id=prompt.prompt_id,
        actor=command.actor.record(),
        answer=answer,
        key=command.key,
    )
    turn.wake(prompt.path, answers.summary(turn.state.prompts[prompt.prompt_id]))
    if prompt.kind == "input":
        _input_answered(turn)
    elif prompt.kind == "interrupted":
        _interruption_resolved(turn, prompt, answer["value"], command)
    else:
        output = answers.output(turn.state.prompts[prompt.prompt_id])
        turn.emit(ev.NodeCompleted, path=prompt.path, node_id=prompt.spec["nodeId"], output=output)


def _input_answered(turn: Turn) -> None:
    """Go on with the inputs; what was given is checked already, and holds the defaults of the others."""
    known = dict(turn.state.given)
    for prompt in turn.state.prompts.values():
        if prompt.kind == "input" and prompt.answer is not None:
            known[prompt.spec["input"]["name"]] = prompt.answer["value"]
    missing = [name for name in turn.flow.inputs if name not in known]
    _start_flow_or_ask(turn, {name: known[name] for name in turn.flow.inputs if name in known}, missing)


def _interruption_resolved(turn: Turn, prompt: PromptRun, choice: Json, command: Answer) -> None:
    run = turn.state.nodes[prompt.path]
    if choice == "done":
        output = dict(node_types()[run.type].unknown_output)
        turn.emit(ev.NodeCompleted, path=prompt.path, node_id=run.node_id, output=output)
    elif choice != AGAIN:
        _end_by(turn, Abort(command.actor, f"after {run.node_id} was interrupted"))


def _ask_if_interrupted(turn: Turn, path: str) -> None:
    """An interrupted node that must not simply run again becomes a question."""
    run = turn.state.nodes[path]
    if run.status != "interrupted" or _open_prompt_at(turn.state, path):
        return
    if run.reason == AGAIN or not _must_ask(turn.flow, run):
        return
    turn.ask(path, answers.interrupted_prompt(turn.flow.nodes[run.position], run))


def _message(turn: Turn, command: Message) -> None:
    if command.key in turn.state.seen:
        return
    text, _ = clean_text(command.text)
    if not text.strip():
        raise EmptyMessage("The message is empty; a session goes on with a message that says something.")
    if turn.state.ended or turn.state.phase == "finalizing":
        raise SessionEnded(
            f"Session {turn.state.session_id} is {turn.state.status}; it takes no more messages."
        )
    takers = [prompt for prompt in _text_prompts(turn.state) if _may_answer(turn, command.actor, prompt)]
    if len(takers) > 1:
        names = ", ".join(f"{prompt.prompt_id} ({prompt.spec['message'][:40]})" for prompt in takers)
        raise SeveralPrompts(f"Several questions could take this message; name one of them: {names}")
    if takers:
        _answer(turn, Answer(takers[0].prompt_id, command.actor, command.key, text=text))
        return
    turn.permit(command.actor, "steer")
    answers.refuse_long(text)
    turn.emit(ev.SessionMessage, message=text, actor=command.actor.record(), key=command.key)


def _text_prompts(state: State) -> list[PromptRun]:
    prompts = [state.prompts[prompt_id] for prompt_id in state.open_prompts]
    return [prompt for prompt in prompts if prompt.spec["acceptsText"]]


def _may_answer(turn: Turn, actor: Any, prompt: PromptRun) -> bool:
    return turn.facts.policy(actor, _ACTIONS[prompt.kind], turn.state, prompt) is None


def _shown(turn: Turn, command: Shown) -> None:
    """A prompt is in front of people: its clock starts. Shown again elsewhere moves the place, not the clock."""
    prompt = turn.state.prompts.get(command.prompt_id)
    if prompt is None or not prompt.open or prompt.shown == command.shown:
        return
    if turn.state.phase not in ("running", "waiting"):
        return
    turn.emit(ev.PromptShown, path=prompt.path, prompt_id=prompt.prompt_id, shown=command.shown)
    if prompt.deadline is None:
        seconds = prompt.spec.get("timeoutSeconds") or turn.flow.deadline
        turn.emit(
            ev.TimerSet,
            path=prompt.path,
            timer_id=f"{turn.state.session_id}:{prompt.prompt_id}:deadline",
            due_at=clock.after(turn.facts.now, seconds),
            purpose="deadline",
            prompt_id=prompt.prompt_id,
        )


def _timer_due(turn: Turn, command: Due) -> None:
    timer = turn.state.timers.get(command.timer_id)
    if timer is None or timer.due_at > turn.facts.now or turn.state.phase not in ("running", "waiting"):
        return
    turn.emit(ev.TimerFired, path=timer.path, timer_id=timer.timer_id)
    if timer.prompt_id is None:
        turn.wake(timer.path)
        run = turn.state.nodes[timer.path or ""]
        turn.emit(ev.NodeCompleted, path=timer.path, node_id=run.node_id, output={"until": timer.due_at})
    else:
        _expire(turn, turn.state.prompts[timer.prompt_id])


def _expire(turn: Turn, prompt: PromptRun) -> None:
    """Nobody answered in time: `on_timeout` decides, `fail` where nothing else is said."""
    outcome = prompt.spec.get("onTimeout") or "fail"
    turn.emit(ev.PromptExpired, path=prompt.path, prompt_id=prompt.prompt_id, outcome=outcome)
    turn.wake(prompt.path)
    if prompt.kind == "input":
        error: dict[str, Json] = {"type": "timeout", "message": f"nobody gave {prompt.path} in time"}
        turn.emit(ev.FlowFailed, path=prompt.path, error=error)
    elif outcome == "fail":
        message = f"nobody answered {prompt.spec['nodeId']} in time"
        _fail_node(turn, prompt.path, {"type": "timeout", "message": message})
    else:
        output = answers.expired_output(turn.state.prompts[prompt.prompt_id], outcome)
        turn.emit(ev.NodeCompleted, path=prompt.path, node_id=prompt.spec["nodeId"], output=output)


def _abort(turn: Turn, command: Abort) -> None:
    if turn.state.ended or turn.state.phase == "finalizing":
        raise SessionEnded(
            f"Session {turn.state.session_id} is {turn.state.outcome} already; nothing was changed."
        )
    turn.permit(command.actor, "cancel")
    _end_by(turn, command)


def _end_by(turn: Turn, command: Abort) -> None:
    reason = None if command.reason is None else clean_text(command.reason)[0]
    turn.emit(ev.SessionAborted, reason=reason, actor=command.actor.record())


_HANDLERS: dict[type, Callable[[Turn, Any], None]] = {
    Start: _start,
    Claimed: _claimed,
    Begin: _begin,
    NodeDone: _node_done,
    NodeBroke: _node_broke,
    NodeCut: _node_cut,
    Answer: _answer,
    Message: _message,
    Shown: _shown,
    Due: _timer_due,
    Abort: _abort,
}
