"""What people and time do to a session: answers, messages, presses, deadlines, the end. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from engine.decide import containers, edges, limits, prompt_timers, question
from engine.decide.approvals import vote
from engine.decide.behaviours import conversations
from engine.decide.commands import Abort, Answer, Due, EndRest, Hold, Message, Resume, Shown, Steer
from engine.decide.policy import ACTION_OF
from engine.decide.prompt_timers import OPEN_PHASES, is_over, open_prompt
from engine.decide.question import conclude
from engine.decide.step import Turn
from engine.forms import match_option
from engine.forms.question import takes_typed_choice
from engine.journal import events as ev
from engine.journal.queries import ELICIT, LISTING, OUTCOME, TURN, agent_of, agents_under_way, resting
from engine.journal.snapshot import current_path
from engine.journal.state import AGAIN, RETRY, Asked, State, in_finally
from engine.language.actors import Actor
from engine.language.codec import Json, clean_text, copy
from engine.language.errors import EmptyMessage, InvalidAnswer, SessionEnded, SessionRunning, SeveralPrompts


def _start_flow_or_ask(turn: Turn, values: dict[str, Json], missing: list[str]) -> None:
    if missing:
        name = missing[0]
        turn.ask(f"inputs/{name}", question.input_prompt(turn.flow, name))
    elif limits.queue_up(turn, values):
        turn.emit(ev.FlowStarted, flow_name=turn.flow.name, input=copy(values))


def answer(turn: Turn, command: Answer) -> None:
    if command.key in turn.state.seen:
        return
    prompt = open_prompt(turn, command.prompt_id, command.nonce)
    command = replace(command, actor=turn.permit(command.actor, ACTION_OF[prompt.kind], prompt))
    answer = question.check(
        turn.flow,
        prompt,
        value=command.value,
        text=command.text,
        values=command.values,
        files=command.files,
        words=command.reason,
    )
    if prompt.kind == "approval":
        decided = vote(turn, prompt, command, answer)
        if decided is None:
            return
        answer = decided
    elif command.always is not None:
        raise InvalidAnswer("Only the call of a tool can be allowed always. Nothing was decided.")
    _take_answer(turn, prompt, command, answer)


def _take_answer(turn: Turn, prompt: Asked, command: Answer, answer: dict[str, Json]) -> None:
    turn.emit(
        ev.PromptAnswered,
        path=prompt.path,
        prompt_id=prompt.prompt_id,
        actor=command.actor.record(),
        answer=answer,
        key=command.key,
    )
    turn.wake(prompt.path, question.summary(turn.state.prompts[prompt.prompt_id]))
    if prompt.kind == "interrupted":
        _interruption_resolved(turn, prompt, answer["value"], command)
    elif prompt.kind == "failed":
        _failure_resolved(turn, prompt, answer["value"], command)
    elif prompt.kind == "budget":
        conversations().cap_decided(turn, turn.state.prompts[prompt.prompt_id], answer["value"])
    elif prompt.kind == LISTING:
        conversations().listing_decided(turn, turn.state.prompts[prompt.prompt_id])
    elif prompt.kind == OUTCOME:
        conversations().outcome_decided(turn, turn.state.prompts[prompt.prompt_id], command.key)
    elif prompt.kind == limits.KIND:
        _limit_decided(turn, prompt, str(answer["value"]))
    elif prompt.tool:
        conversations().call_decided(turn, turn.state.prompts[prompt.prompt_id])
    elif prompt.kind not in ("input", ELICIT):
        conclude(turn, prompt.path, question.output(turn.state.prompts[prompt.prompt_id]))


def go_on_with_inputs(turn: Turn) -> None:
    """No question for an input is open: ask the next one, begin, or give up where nobody answered in time.

    What was given is checked already, and holds the defaults of the others.
    """
    known = dict(turn.state.given)
    for prompt in turn.state.prompts.values():
        if prompt.status == "expired":
            error: dict[str, Json] = {"type": "timeout", "message": f"nobody gave {prompt.path} in time"}
            turn.emit(ev.FlowFailed, path=prompt.path, error=error)
            return
        if prompt.answer is not None:
            known[prompt.input_name] = prompt.answer["value"]
    missing = [name for name in turn.flow.inputs if name not in known]
    _start_flow_or_ask(turn, {name: known[name] for name in turn.flow.inputs if name in known}, missing)


def _interruption_resolved(turn: Turn, prompt: Asked, choice: Json, command: Answer) -> None:
    run = turn.state.nodes[prompt.path]
    if choice == "done":
        absent = turn.flow.absent.get(run.type)
        if absent is not None:
            raise InvalidAnswer(
                f"What {run.node_id} gives once it is done is not known: {absent}. Put that right and restart sayso "
                "first, or abort the run. Nothing was decided."
            )
        if agent_of(turn.state, prompt.path) is not None and run.type != TURN:
            conversations().call_told(turn, turn.state.prompts[prompt.prompt_id])
        else:
            turn.complete(prompt.path, dict(turn.node(prompt.path).spec.unknown_output))
    elif choice == "skip":
        _skip(turn, prompt, "a person skipped it: its node type could not be used")
    elif choice != AGAIN:
        _end_by(turn, Abort(command.actor, f"after {run.node_id} was interrupted"))


def _skip(turn: Turn, prompt: Asked, reason: str) -> None:
    run = turn.state.nodes[prompt.path]
    fields = {"node_id": run.node_id, "node_type": run.type, "reason": reason}
    turn.emit(ev.NodeSkipped, path=prompt.path, **fields)


def _failure_resolved(turn: Turn, prompt: Asked, choice: Json, command: Answer) -> None:
    run = turn.state.nodes[prompt.path]
    if choice == "skip":
        _skip(turn, prompt, "a person skipped it after it failed")
    elif choice != RETRY:
        _end_by(turn, Abort(command.actor, f"after {run.node_id} failed"))


def _limit_decided(turn: Turn, prompt: Asked, decision: str) -> None:
    """How a loop, or a loop edge of a node that has ended, goes on at its limit."""
    container = turn.state.containers.get(prompt.path)
    if container is None:
        edges.limit_decided(turn, prompt, decision)
    else:
        containers.limit_decided(turn, prompt.path, decision, container.begun)


def message(turn: Turn, command: Message) -> None:
    if command.key in turn.state.seen:
        return
    text = _said(turn, command)
    asked = [prompt for prompt in _text_prompts(turn.state, text) if _may_answer(turn, command.actor, prompt)]
    # Of one that timed out the author is told, unless another question takes the message.
    takers = [prompt for prompt in asked if not is_over(prompt.deadline, turn.facts)] or asked[:1]
    if len(takers) > 1:
        names = ", ".join(f"{prompt.prompt_id} ({prompt.message[:40]})" for prompt in takers)
        raise SeveralPrompts(f"Several questions could take this message; name one of them: {names}")
    if takers:
        answer(turn, Answer(takers[0].prompt_id, command.actor, command.key, text=text))
        return
    steer(turn, Steer(text, command.actor, command.key))


def steer(turn: Turn, command: Steer) -> None:
    """A message that answers nothing, also where a question could take it. Of who may not steer, agents may overhear it."""
    if command.key in turn.state.seen:
        return
    names = ", ".join(str(file["name"]) for file in command.files)
    text = _said(turn, command, alone=not names)
    command, agents = replace(command, text=text), agents_under_way(turn.state)
    aside = command.aside or turn.facts.policy(command.actor, "steer", turn.state, None) is not None
    if aside and agents and conversations().overhear(turn, command):
        return
    turn.permit(command.actor, "steer")
    if command.aside:
        return
    record = command.actor.record()
    turn.emit(ev.SessionMessage, message=text or f"(files: {names})", actor=record, key=command.key)
    _tell_agents(turn, command)


def end_rest(turn: Turn, command: EndRest) -> None:
    """A person lets agents that rest listen no more."""
    if command.key not in turn.state.seen:
        turn.permit(command.actor, "steer")
        for path in agents_under_way(turn.state):
            if resting(turn.state, path):
                conversations().end_rest(turn, path)


def _said(turn: Turn, command: Message | Steer, *, alone: bool = True) -> str:
    """What a message says, where the session still takes any. One that came with files need not say anything."""
    text, _ = clean_text(command.text)
    if alone and not text.strip():
        raise EmptyMessage("The message is empty; a session goes on with a message that says something.")
    if turn.state.ended or turn.state.phase == "finalizing":
        raise SessionEnded(
            f"Session {turn.state.session_id} is {turn.state.status}; it takes no more messages."
        )
    return text if text.strip() else ""


def _tell_agents(turn: Turn, said: Steer) -> None:
    if said.to is not None or agents_under_way(turn.state):
        conversations().hear(turn, said)


def _text_prompts(state: State, text: str) -> list[Asked]:
    """The open questions that take this text: any, or one of their choices."""
    prompts = [state.prompts[prompt_id] for prompt_id in state.open_prompts]
    return [prompt for prompt in prompts if prompt.accepts_text or _is_choice(prompt, text)]


def _is_choice(prompt: Asked, text: str) -> bool:
    offers = takes_typed_choice(prompt)
    return offers and match_option(prompt.options, text, by_number=True) is not None


def _may_answer(turn: Turn, actor: Actor, prompt: Asked) -> bool:
    return turn.facts.policy(actor, ACTION_OF[prompt.kind], turn.state, prompt) is None


def shown(turn: Turn, command: Shown) -> None:
    """A prompt is in front of people: its clock starts. Shown again elsewhere moves the place, not the clock."""
    prompt = turn.state.prompts.get(command.prompt_id)
    if prompt is None or not prompt.open or prompt.shown == command.shown:
        return
    if turn.state.phase not in OPEN_PHASES:
        return
    turn.emit(ev.PromptShown, path=prompt.path, prompt_id=prompt.prompt_id, shown=command.shown)
    if prompt.deadline is None:
        prompt_timers.start(turn, prompt)


def timer_due(turn: Turn, command: Due) -> None:
    timer = turn.state.timers.get(command.timer_id)
    if timer is None or timer.due_at > turn.facts.now or turn.facts.clock_jumped:
        return
    if turn.state.phase not in OPEN_PHASES and not in_finally(timer.path or ""):
        return
    if timer.prompt_id is not None and timer.purpose in prompt_timers.PURPOSES:
        if prompt_timers.due(turn, timer):
            _expire(turn, turn.state.prompts[timer.prompt_id])
        return
    turn.emit(ev.TimerFired, path=timer.path, timer_id=timer.timer_id)
    if timer.purpose != "unreachable":
        turn.wake(timer.path)
        if timer.purpose == "wait":
            turn.complete(timer.path or "", {"until": timer.due_at})
        elif timer.purpose == "followUp":
            conversations().end_rest(turn, timer.path or "")


def _expire(turn: Turn, prompt: Asked) -> None:
    """Nobody answered in time: `on_timeout` decides, `fail` where nothing else is said."""
    outcome, target = prompt.on_timeout, prompt_timers.goto_of(prompt)
    turn.emit(ev.PromptExpired, path=prompt.path, prompt_id=prompt.prompt_id, outcome=outcome)
    turn.wake(prompt.path)
    if prompt.kind in ("input", LISTING, ELICIT):
        return
    if prompt.kind == "budget":
        conversations().cap_decided(turn, turn.state.prompts[prompt.prompt_id], "stop")
    elif prompt.kind == OUTCOME:
        conversations().outcome_decided(turn, turn.state.prompts[prompt.prompt_id], None)
    elif prompt.kind == limits.KIND:
        _limit_decided(turn, prompt, "fail")
    elif prompt.tool:
        conversations().call_decided(turn, turn.state.prompts[prompt.prompt_id])
    elif prompt.kind == "failed":
        turn.fail_for_good(prompt.path, turn.state.nodes[prompt.path].error or {})
    elif target is not None:
        turn.fail_for_good(prompt.path, _timed_out(prompt), target)
    elif outcome == "fail":
        turn.fail(prompt.path, _timed_out(prompt))
    else:
        conclude(turn, prompt.path, question.expired_output(turn.state.prompts[prompt.prompt_id], outcome))


def _timed_out(prompt: Asked) -> dict[str, Json]:
    return {"type": "timeout", "message": f"nobody answered {prompt.node_id} in time"}


def abort(turn: Turn, command: Abort) -> None:
    """End the session; one that is ending skips what is left of `finally`."""
    skips = turn.flow.finally_list is not None and not turn.state.finally_skipped
    if turn.state.phase != "finalizing" or not skips:
        _refuse_ended(turn.state)
    turn.permit(command.actor, "cancel")
    _end_by(turn, command)


def _end_by(turn: Turn, command: Abort) -> None:
    reason = None if command.reason is None else clean_text(command.reason)[0]
    turn.emit(ev.SessionAborted, reason=reason, actor=command.actor.record())


def hold(turn: Turn, command: Hold) -> None:
    """A person pauses the session. Whoever performs this has let what was running leave first."""
    _refuse_ended(turn.state)
    turn.permit(command.actor, "pause")
    if turn.state.phase == "held":
        return
    reason = clean_text(command.reason or "paused by a person")[0]
    told = {**turn.place(current_path(turn.state)), "reason": reason, "actor": command.actor.record()}
    if not command.waits:
        turn.emit(ev.FlowPaused, **told, held=True)
    elif turn.state.phase == "running":
        turn.emit(ev.FlowPausing, **told)


def resume(turn: Turn, command: Resume) -> None:
    """A person lets a held session go on."""
    if command.key in turn.state.seen:
        return
    _refuse_ended(turn.state)
    text, _ = clean_text(command.text)
    if not text.strip():
        raise EmptyMessage("The message is empty; a session goes on with a message that says something.")
    turn.permit(command.actor, "resume")
    if turn.state.phase != "held":
        raise SessionRunning(f"Session {turn.state.session_id} is not held; nothing was changed.")
    turn.emit(ev.FlowResumed, **turn.place(current_path(turn.state)), message=text, injected_messages=1)
    prompt_timers.catch_up(turn)
    turn.emit(ev.SessionMessage, message=text, actor=command.actor.record(), key=command.key)
    _tell_agents(turn, Steer(text, command.actor, command.key))


def _refuse_ended(state: State) -> None:
    if state.ended or state.phase == "finalizing":
        raise SessionEnded(f"Session {state.session_id} is {state.outcome} already; nothing was changed.")
