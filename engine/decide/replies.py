"""Effects of people and time on a session: answers, messages, clicks, deadlines, the end. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from engine.decide import limits, prompt_timers, question
from engine.decide.approvals import vote
from engine.decide.commands import Abort, Answer, Due, EndRest, Hold, Message, Resume, Shown, Steer
from engine.decide.prompt_timers import OPEN_PHASES, is_over, open_prompt
from engine.decide.question import conclude
from engine.decide.step import Step
from engine.forms import match_option
from engine.forms.question import takes_typed_choice
from engine.journal import events as ev
from engine.journal.phases import in_words, standing
from engine.journal.queries import (
    ELICIT,
    LISTING,
    OUTCOME,
    TURN,
    agent_of,
    agents_under_way,
    has_failed,
    resting,
)
from engine.journal.snapshot import current_path
from engine.journal.state import AGAIN, RETRY, Asked, State, in_finally
from engine.language.codec import Json, clean_text, copy
from engine.language.errors import EmptyMessage, InvalidAnswer, SessionEnded, SessionRunning, SeveralPrompts


def answer(step: Step, command: Answer) -> None:
    if command.key in step.state.seen:
        return
    prompt = open_prompt(step, command.prompt_id, command.nonce)
    command = replace(command, actor=step.permit(command.actor, prompt.rules.action, prompt))
    answer = question.check(
        step.flow,
        prompt,
        value=command.value,
        text=command.text,
        values=command.values,
        files=command.files,
        words=command.reason,
    )
    if prompt.is_approval:
        decided = vote(step, prompt, command, answer)
        if decided is None:
            return
        answer = decided
    elif command.always is not None:
        raise InvalidAnswer("Only a tool call can be always allowed. Nothing was decided.")
    by = command.actor.record()
    step.emit_about(prompt, ev.PromptAnswered, actor=by, answer=answer, key=command.key)
    step.wake(prompt.path, question.summary(step.state.prompts[prompt.prompt_id]))
    _after(prompt).answered(step, step.state.prompts[prompt.prompt_id], command)


def go_on_with_inputs(step: Step) -> None:
    """Ask for the next missing input, begin the flow, or fail if nobody answered in time.

    What was given is checked already, and holds the defaults of the others.
    """
    known = dict(step.state.given)
    for prompt in step.state.prompts.values():
        if prompt.status == "expired":
            error: dict[str, Json] = {"type": "timeout", "message": f"nobody entered {prompt.path} in time"}
            step.emit(ev.FlowFailed, path=prompt.path, error=error)
            return
        if prompt.answer is not None:
            known[prompt.input_name] = prompt.answer["value"]
    missing = [name for name in step.flow.inputs if name not in known]
    values = {name: known[name] for name in step.flow.inputs if name in known}
    if missing:
        name = missing[0]
        step.ask(f"inputs/{name}", question.input_prompt(step.flow, name))
    elif limits.queue_up(step, values):
        step.emit(ev.FlowStarted, flow_name=step.flow.name, input=copy(values))


def message(step: Step, command: Message) -> None:
    if command.key in step.state.seen:
        return
    text = _said(step, command)
    asked = [
        prompt
        for prompt in map(step.state.prompts.__getitem__, step.state.open_prompts)
        if (
            prompt.accepts_text
            or (takes_typed_choice(prompt) and match_option(prompt.options, text, by_number=True) is not None)
        )
        and step.facts.policy(command.actor, prompt.rules.action, step.state, prompt) is None
    ]
    # An answer after the deadline gets an error, unless another question takes the message.
    takers = [prompt for prompt in asked if not is_over(prompt.deadline, step.facts)] or asked[:1]
    if len(takers) > 1:
        names = ", ".join(f"{prompt.prompt_id} ({prompt.message[:40]})" for prompt in takers)
        raise SeveralPrompts(f"Several questions could take this message; name one of them: {names}")
    if takers:
        answer(step, Answer(takers[0].prompt_id, command.actor, command.key, text=text))
        return
    steer(step, Steer(text, command.actor, command.key))


def steer(step: Step, command: Steer) -> None:
    """Record a message that answers no question, even if one is open. Agents may overhear people who may not steer."""
    if command.key in step.state.seen:
        return
    names = ", ".join(str(file["name"]) for file in command.files)
    text = _said(step, command, alone=not names)
    command, agents = replace(command, text=text), agents_under_way(step.state)
    aside = command.aside or step.facts.policy(command.actor, "steer", step.state, None) is not None
    if aside and agents and step.kinds["agent"].heard(step, command, aside=True):
        return
    step.permit(command.actor, "steer")
    if command.aside:
        return
    record = command.actor.record()
    step.emit(ev.SessionMessage, message=text or f"(files: {names})", actor=record, key=command.key)
    _tell_agents(step, command)


def end_rest(step: Step, command: EndRest) -> None:
    """A person lets agents that rest listen no more."""
    if command.key not in step.state.seen:
        step.permit(command.actor, "steer")
        for path in agents_under_way(step.state):
            if resting(step.state, path):
                _end_rest(step, path)


def _end_rest(step: Step, path: str) -> None:
    step.wake(path)
    step.close(path)


def _said(step: Step, command: Message | Steer, *, alone: bool = True) -> str:
    """Return the text of a message if the session still takes any. It may be empty only if files came with it."""
    text, _ = clean_text(command.text)
    if alone and not text.strip():
        raise EmptyMessage("The message is empty; write something to continue the session.")
    if step.state.ended or step.state.phase == "finalizing":
        raise SessionEnded(
            f"Session {step.state.session_id} is {step.state.status}; it accepts no more messages."
        )
    return text if text.strip() else ""


def _tell_agents(step: Step, said: Steer) -> None:
    if said.to is not None or agents_under_way(step.state):
        step.kinds["agent"].heard(step, said, aside=False)


def shown(step: Step, command: Shown) -> None:
    """A prompt is in front of people: its clock starts. Shown again elsewhere moves the place, not the clock."""
    prompt = step.state.prompts.get(command.prompt_id)
    if prompt is None or not prompt.open or prompt.shown == command.shown:
        return
    if step.state.phase not in OPEN_PHASES:
        return
    step.emit_about(prompt, ev.PromptShown, shown=command.shown)
    if prompt.deadline is None:
        prompt_timers.start(step, prompt)


def timer_due(step: Step, command: Due) -> None:
    timer = step.state.timers.get(command.timer_id)
    if timer is None or timer.due_at > step.facts.now or step.facts.clock_jumped:
        return
    if step.state.phase not in OPEN_PHASES and not in_finally(timer.path or ""):
        return
    if timer.prompt_id is not None and timer.purpose in prompt_timers.PURPOSES:
        if prompt_timers.due(step, timer):
            # Expired without an answer.
            prompt = step.state.prompts[timer.prompt_id]
            step.emit_about(prompt, ev.PromptExpired, outcome=prompt.on_timeout)
            step.wake(prompt.path)
            _after(prompt).expired(step, step.state.prompts[prompt.prompt_id])
        return
    step.emit(ev.TimerFired, path=timer.path, timer_id=timer.timer_id)
    if timer.purpose != "unreachable":
        step.wake(timer.path)
        if timer.purpose == "wait":
            step.complete(timer.path or "", {"until": timer.due_at})
        elif timer.purpose == "followUp":
            _end_rest(step, timer.path or "")


# --- effects of an answer or a timeout ---------------------------------------------------------------------


class _Question:
    """A question asked by a node, whose output is the answer."""

    def answered(self, step: Step, prompt: Asked, command: Answer) -> None:
        """The node completes, or fails where that rejects it."""
        conclude(step, prompt.path, question.output(prompt))

    def expired(self, step: Step, prompt: Asked) -> None:
        """Apply `on_timeout`, by default `fail`."""
        error: dict[str, Json] = {"type": "timeout", "message": f"nobody answered {prompt.node_id} in time"}
        outcome, target = prompt.on_timeout, prompt_timers.goto_of(prompt)
        if target is not None:
            step.fail_for_good(prompt.path, error, target)
        elif outcome == "fail":
            step.fail(prompt.path, error)
        else:
            conclude(step, prompt.path, question.expired_output(prompt, outcome))


class _Recorded(_Question):
    """An input of the flow, or an answer for a server: its reader finds it in the state."""

    def answered(self, step: Step, prompt: Asked, command: Answer) -> None:
        """Do nothing."""

    def expired(self, step: Step, prompt: Asked) -> None:
        """Do nothing."""


class _Interrupted(_Question):
    """Question about an interrupted node. To run it again takes no event."""

    def answered(self, step: Step, prompt: Asked, command: Answer) -> None:
        """Complete the node as done, or end the session."""
        run, choice = step.state.nodes[prompt.path], (prompt.answer or {})["value"]
        if choice == "done":
            if agent_of(step.state, prompt.path) is not None and run.type != TURN:
                step.around(prompt.path).decided(step, prompt)
            else:
                step.complete(prompt.path, dict(step.node(prompt.path).spec.unknown_output))
        elif choice != AGAIN:
            _end_by(step, Abort(command.actor, f"after {run.node_id} was interrupted"))


class _Failed(_Question):
    """Question about a failed node. To try it again takes no event."""

    def answered(self, step: Step, prompt: Asked, command: Answer) -> None:
        """Skip the node, or end the session."""
        choice = (prompt.answer or {})["value"]
        if choice == "skip":
            run = step.state.nodes[prompt.path]
            step.skip(prompt.path, run.node_id, run.type, "a person skipped it after it failed")
        elif choice != RETRY:
            _end_by(step, Abort(command.actor, f"after {step.state.nodes[prompt.path].node_id} failed"))

    def expired(self, step: Step, prompt: Asked) -> None:
        """Let the failure count."""
        step.fail_for_good(prompt.path, step.state.nodes[prompt.path].error or {})


class _OfHolder(_Question):
    """A question of a node that holds children: an agent, a loop, or the pass of a node whose loop edge is used up."""

    def answered(self, step: Step, prompt: Asked, command: Answer) -> None:
        """It continues as people said."""
        self.expired(step, prompt)

    def expired(self, step: Step, prompt: Asked) -> None:
        """It continues as it does without an answer, unless it has failed: it ran out of time while the session was held."""
        if has_failed(step.state, prompt.path):
            return
        container = step.state.containers.get(prompt.path)
        kind = step.around(prompt.path) if container is None else step.kinds[container.kind]
        kind.decided(step, prompt)


def _after(prompt: Asked) -> _Question:
    return _AFTER["tool" if prompt.tool else prompt.kind]


_AFTER: dict[str, _Question] = {
    "ask": _Question(),
    "approval": _Question(),
    "input": _Recorded(),
    ELICIT: _Recorded(),
    "interrupted": _Interrupted(),
    "failed": _Failed(),
    **dict.fromkeys(("tool", "budget", OUTCOME, LISTING, limits.KIND), _OfHolder()),
}


# --- the session as a whole --------------------------------------------------------------------------------


def abort(step: Step, command: Abort) -> None:
    """End the session; one that is ending skips the rest of `finally`."""
    skips = step.flow.finally_list is not None and not step.state.finally_skipped
    if step.state.phase != "finalizing" or not skips:
        _refuse_ended(step.state)
    step.permit(command.actor, "cancel")
    _end_by(step, command)


def _end_by(step: Step, command: Abort) -> None:
    reason = None if command.reason is None else clean_text(command.reason)[0]
    step.emit(ev.SessionAborted, reason=reason, actor=command.actor.record())


def hold(step: Step, command: Hold) -> None:
    """Pause the session; the caller has let running work leave first."""
    _refuse_ended(step.state)
    step.permit(command.actor, "pause")
    if step.state.phase == "held":
        return
    reason = clean_text(command.reason or "paused by a person")[0]
    path, actor = current_path(step.state), command.actor.record()
    if not command.waits:
        step.pause(path, reason, held=True, actor=actor)
    elif step.state.phase == "running":
        step.emit(ev.FlowPausing, **step.place(path), reason=reason, actor=actor)


def resume(step: Step, command: Resume) -> None:
    """A person lets a held session continue."""
    if command.key in step.state.seen:
        return
    _refuse_ended(step.state)
    text, _ = clean_text(command.text)
    if not text.strip():
        raise EmptyMessage("The message is empty; write something to continue the session.")
    step.permit(command.actor, "resume")
    if step.state.phase != "held":
        raise SessionRunning(f"Session {step.state.session_id} is not paused; nothing was changed.")
    step.emit(ev.FlowResumed, **step.place(current_path(step.state)), message=text, injected_messages=1)
    prompt_timers.catch_up(step)
    step.emit(ev.SessionMessage, message=text, actor=command.actor.record(), key=command.key)
    _tell_agents(step, Steer(text, command.actor, command.key))


def _refuse_ended(state: State) -> None:
    if state.ended or state.phase == "finalizing":
        word = in_words(standing(state.outcome or "", "ended", state.error))
        raise SessionEnded(f"Session {state.session_id} is {word} already; nothing was changed.")
