"""Clocks of a session: of its questions (deadline, reminders, escalation), and of an unreachable thread. Pure.

The clocks of a question start when people can see it, and each is a durable timer with a time of its own. However late
a timer is noticed, it counts once: of several overdue reminders one is sent, overdue escalation steps are each taken
once and in order, and after the deadline only the deadline counts. While a session is being paused, held or
unreachable, its clocks are recorded without effect: overdue steps are taken when it continues.
"""

from __future__ import annotations

from engine.decide import question
from engine.decide.commands import Facts, Gone, Reachable, Unreachable
from engine.decide.step import Step
from engine.forms.question import Question
from engine.journal import events as ev
from engine.journal.grammar import clock_id
from engine.journal.queries import asked_in_order
from engine.journal.state import QUIET, Asked, State, TimerRun
from engine.language import timestamps, working_hours
from engine.language.errors import AlreadyAnswered, ClockJumped, PromptClosed, PromptTimedOut

MOST_REPOSTS = 3
"""Number of times that a question is posted again after its message was deleted."""

OPEN_PHASES = ("running", "waiting", "pausing", "held", "unreachable")
"""Phases in which answers and times still count."""

PURPOSES = ("deadline", "remind", "escalate")
"""The timers of an open question."""


def open_prompt(step: Step, prompt_id: str, nonce: str | None = None) -> Asked:
    """The prompt, if an answer still counts: its own deadline decides, whatever became of the timer.

    Raises `PromptClosed`, `PromptTimedOut` and `AlreadyAnswered`, in words for the late one, and `ClockJumped`.
    """
    prompt = step.state.prompts.get(prompt_id)
    if prompt is None:
        raise PromptClosed("There is no such question here.")
    if prompt.status == "answered":
        raise AlreadyAnswered(question.already(prompt))
    if prompt.status == "expired":
        raise PromptTimedOut(question.timed_out(prompt.deadline or prompt.at))
    if prompt.status == "cancelled" or step.state.phase not in OPEN_PHASES:
        raise PromptClosed("This question was withdrawn.")
    if is_over(prompt.deadline, step.facts):
        raise PromptTimedOut(question.timed_out(prompt.deadline))
    if nonce is not None and nonce != prompt.nonce:
        raise PromptClosed("This button belongs to an older copy of the question.")
    return prompt


def is_over(moment: str | None, facts: Facts) -> bool:
    """True if this time has come. Raises `ClockJumped` if only a clock that was just put forward says so."""
    if moment is None or facts.now < moment:
        return False
    if facts.clock_jumped:
        raise ClockJumped(
            f"The clock of this machine jumped to {timestamps.told(facts.now)}, which is past the deadline "
            f"{timestamps.told(moment)}. The clock is checked again in half a minute; please try again "
            "then."
        )
    return True


def _set(step: Step, prompt: Asked, word: str, due_at: str, purpose: str) -> None:
    timer_id = clock_id(step.state, prompt, word)
    step.set_timer(prompt.path, timer_id, due_at, purpose, prompt.prompt_id)


def _hours(prompt: Asked) -> working_hours.Hours | None:
    return None if prompt.hours is None else working_hours.of(prompt.hours)


def start(step: Step, prompt: Asked) -> None:
    """People can see the prompt for the first time: its clocks start."""
    now = step.facts.now
    working = _hours(prompt)
    timeout = prompt.timeout_seconds
    # The flow's own limit is calendar time; the clocks of a question count working time.
    deadline = (
        working_hours.after(now, timeout, working)
        if timeout is not None
        else timestamps.after(now, step.flow.deadline)
    )
    # Set the clocks of a prompt, but those of the steps that were taken.
    now, working = step.facts.now, _hours(prompt)
    _set(step, prompt, "deadline", deadline, "deadline")
    if prompt.remind_seconds is not None:
        _set(step, prompt, "remind", working_hours.after(now, prompt.remind_seconds, working), "remind")
    for level, told in enumerate(prompt.escalate):
        if level not in prompt.escalated:
            due_at = working_hours.after(now, told["afterSeconds"], working)
            _set(step, prompt, f"escalate{level}", due_at, "escalate")


def due(step: Step, timer: TimerRun) -> bool:
    """Take everything that is due of an open prompt's clocks. True if its deadline has passed."""
    prompt = step.state.prompts[timer.prompt_id or ""]
    # Steps in their order, the reminder last.
    found = [
        other
        for other in step.state.timers.values()
        if other.prompt_id == prompt.prompt_id
        and other.purpose in PURPOSES
        and other.due_at <= step.facts.now
    ]
    found.sort(key=lambda timer: (timer.purpose == "remind", timer.due_at, _level(timer)))
    for late in found:
        if late.purpose == "deadline":
            step.emit(ev.TimerFired, path=late.path, timer_id=late.timer_id)
            return True
    for late in found:
        step.emit(ev.TimerFired, path=late.path, timer_id=late.timer_id)
        if late.purpose == "remind":
            # Remind the people asked, and schedule the next reminder from now, however late this one is.
            prompt = step.state.prompts[prompt.prompt_id]
            if step.state.phase not in QUIET:
                reminders = prompt.reminders + 1
                step.emit(ev.PromptReminded, path=prompt.path, prompt_id=prompt.prompt_id, count=reminders)
            again = working_hours.after(step.facts.now, prompt.remind_seconds or 0, _hours(prompt))
            if prompt.deadline is None or again < prompt.deadline:
                _set(step, prompt, "remind", again, "remind")
        elif step.state.phase not in QUIET:
            _escalate(step, prompt.prompt_id, _level(late))
    return False


def _level(timer: TimerRun) -> int:
    return int(timer.timer_id.rpartition("escalate")[2]) if timer.purpose == "escalate" else -1


def _escalate(step: Step, prompt_id: str, level: int) -> None:
    prompt = step.state.prompts[prompt_id]
    told = prompt.escalate[level]
    step.emit(
        ev.PromptEscalated,
        path=prompt.path,
        prompt_id=prompt_id,
        step=level,
        to=told["to"],
        may_answer=True if told.get("mayAnswer") else None,
    )


def catch_up(step: Step) -> None:
    """Take the escalation steps that came due while the session was silent."""
    for prompt_id in asked_in_order(step.state):
        prompt = step.state.prompts[prompt_id]
        if prompt.deadline is None:
            continue
        for level in range(len(prompt.escalate)):
            waits = clock_id(step.state, prompt, f"escalate{level}") in step.state.timers
            if not waits and level not in prompt.escalated:
                _escalate(step, prompt_id, level)


# --- out of reach ------------------------------------------------------------------------------------------


def gone(step: Step, command: Gone) -> None:
    """Somebody deleted the message of an open prompt. It is shown again, but not forever."""
    prompt = step.state.prompts.get(command.prompt_id)
    if prompt is None or not prompt.open or (prompt.shown or {}).get("ts") != command.ts:
        return
    if step.state.phase not in ("running", "waiting", *QUIET) or prompt.reposts >= MOST_REPOSTS:
        return
    nonce = step.new_id("", f"nonce {prompt.path} {prompt.reposts}")
    step.emit_about(prompt, ev.PromptReposted, nonce=nonce)


def unreachable(step: Step, command: Unreachable) -> None:
    """Record that the session's thread takes no posts. A session that is held, ending or over is unchanged."""
    if step.state.phase not in ("running", "waiting"):
        return
    step.emit(ev.SessionUnreachable, reason=command.reason)
    due_at = timestamps.after(step.facts.now, step.flow.deadline)
    timer_id = f"{step.state.session_id}:unreachable{step.state.seq}"
    step.set_timer(None, timer_id, due_at, "unreachable")


def reachable(step: Step, command: Reachable) -> None:
    """Resume a session whose thread takes posts again."""
    if step.state.phase == "unreachable":
        step.emit(ev.SessionReachable)
        catch_up(step)


def out_of_reach_for_good(state: State) -> bool:
    """True if the session stayed unreachable until its deadline."""
    return state.phase == "unreachable" and not any(
        timer.purpose == "unreachable" for timer in state.timers.values()
    )


def goto_of(prompt: Question) -> str | None:
    """Return the node to which a question leads on timeout, or None."""
    outcome = prompt.on_timeout
    return outcome.removeprefix("goto:") if outcome.startswith("goto:") else None
