"""The clocks of a session: of its questions (deadline, reminders, escalation), and of a thread out of reach. Pure.

The clocks of a question start when people can see it, and each is a durable timer with a time of its own. However
late a timer is noticed, it counts once: of many reminders that came due while nobody looked one is given, steps of an
escalation are taken each once and in their order, and where the deadline has passed too, only that counts.
While a session is being paused or held, or cannot reach anybody, its clocks are recorded and say nothing: steps that
came due are taken when it goes on.
"""

from __future__ import annotations

from engine.decide import question
from engine.decide.commands import Facts, Gone, Reachable, Unreachable
from engine.decide.step import Turn
from engine.forms.question import Question
from engine.journal import events as ev
from engine.journal.grammar import clock_id
from engine.journal.queries import asked_in_order
from engine.journal.state import QUIET, Asked, State, TimerRun
from engine.language import timestamps, working_hours
from engine.language.errors import AlreadyAnswered, ClockJumped, PromptClosed, PromptTimedOut

MOST_REPOSTS = 3
"""How often a question is shown again whose message somebody deleted."""

OPEN_PHASES = ("running", "waiting", "pausing", "held", "unreachable")
"""Phases in which answers and times still count."""

PURPOSES = ("deadline", "remind", "escalate")
"""The timers of an open question."""


def open_prompt(turn: Turn, prompt_id: str, nonce: str | None = None) -> Asked:
    """The prompt, if an answer still counts: its own deadline decides, whatever became of the timer.

    Raises `PromptClosed`, `PromptTimedOut` and `AlreadyAnswered`, in words for the late one, and `ClockJumped`.
    """
    prompt = turn.state.prompts.get(prompt_id)
    if prompt is None:
        raise PromptClosed("This question is not known here.")
    _refuse_closed(turn.state, prompt)
    if is_over(prompt.deadline, turn.facts):
        raise PromptTimedOut(question.timed_out(prompt.deadline))
    if nonce is not None and nonce != prompt.nonce:
        raise PromptClosed("This button belongs to an older copy of the question.")
    return prompt


def _refuse_closed(state: State, prompt: Asked) -> None:
    if prompt.status == "answered":
        raise AlreadyAnswered(question.already(prompt))
    if prompt.status == "expired":
        raise PromptTimedOut(question.timed_out(prompt.deadline or prompt.at))
    if prompt.status == "cancelled" or state.phase not in OPEN_PHASES:
        raise PromptClosed("This question was withdrawn.")


def is_over(moment: str | None, facts: Facts) -> bool:
    """Whether this time has come. Raises `ClockJumped` where only a clock says so that was just put forward."""
    if moment is None or facts.now < moment:
        return False
    if facts.clock_jumped:
        raise ClockJumped(
            f"The clock of this machine was put forward to {timestamps.told(facts.now)}, by which the time was over at "
            f"{timestamps.told(moment)}. The clock is looked at again in half a minute; please try again then."
        )
    return True


def _set(turn: Turn, prompt: Asked, word: str, due_at: str, purpose: str) -> None:
    timer_id = clock_id(turn.state, prompt, word)
    fields = {"due_at": due_at, "purpose": purpose, "prompt_id": prompt.prompt_id}
    turn.emit(ev.TimerSet, path=prompt.path, timer_id=timer_id, **fields)


def _hours(prompt: Asked) -> working_hours.Hours | None:
    return None if prompt.hours is None else working_hours.of(prompt.hours)


def start(turn: Turn, prompt: Asked) -> None:
    """People can see the prompt for the first time: its clocks start."""
    now = turn.facts.now
    working = _hours(prompt)
    timeout = prompt.timeout_seconds
    # The flow's own limit is for the calendar; what a question says of its clocks is for working time.
    deadline = (
        working_hours.after(now, timeout, working)
        if timeout is not None
        else timestamps.after(now, turn.flow.deadline)
    )
    _set_all(turn, prompt, deadline)


def _set_all(turn: Turn, prompt: Asked, deadline: str) -> None:
    """Set the clocks of a prompt, but those of the steps that were taken."""
    now, working = turn.facts.now, _hours(prompt)
    _set(turn, prompt, "deadline", deadline, "deadline")
    if prompt.remind_seconds is not None:
        _set(turn, prompt, "remind", working_hours.after(now, prompt.remind_seconds, working), "remind")
    for step, told in enumerate(prompt.escalate):
        if step not in prompt.escalated:
            due_at = working_hours.after(now, told["afterSeconds"], working)
            _set(turn, prompt, f"escalate{step}", due_at, "escalate")


def due(turn: Turn, timer: TimerRun) -> bool:
    """A timer of an open prompt is due: with it, all that is due of its clocks. True where its deadline is over."""
    prompt = turn.state.prompts[timer.prompt_id or ""]
    found = _due_now(turn, prompt)
    for late in found:
        if late.purpose == "deadline":
            turn.emit(ev.TimerFired, path=late.path, timer_id=late.timer_id)
            return True
    for late in found:
        turn.emit(ev.TimerFired, path=late.path, timer_id=late.timer_id)
        if late.purpose == "remind":
            _remind(turn, prompt.prompt_id)
        elif turn.state.phase not in QUIET:
            _escalate(turn, prompt.prompt_id, _step(late))
    return False


def _due_now(turn: Turn, prompt: Asked) -> list[TimerRun]:
    """The timers of a prompt whose time has come: steps in their order, the reminder last."""
    found = [
        timer
        for timer in turn.state.timers.values()
        if timer.prompt_id == prompt.prompt_id
        and timer.purpose in PURPOSES
        and timer.due_at <= turn.facts.now
    ]
    return sorted(found, key=lambda timer: (timer.purpose == "remind", timer.due_at, _step(timer)))


def _step(timer: TimerRun) -> int:
    return int(timer.timer_id.rpartition("escalate")[2]) if timer.purpose == "escalate" else -1


def _remind(turn: Turn, prompt_id: str) -> None:
    """Tell those who are asked once more, and set the time of the next one: counted from now, however late this is."""
    prompt = turn.state.prompts[prompt_id]
    if turn.state.phase not in QUIET:
        turn.emit(ev.PromptReminded, path=prompt.path, prompt_id=prompt_id, count=prompt.reminders + 1)
    again = working_hours.after(turn.facts.now, prompt.remind_seconds or 0, _hours(prompt))
    if prompt.deadline is None or again < prompt.deadline:
        _set(turn, prompt, "remind", again, "remind")


def _escalate(turn: Turn, prompt_id: str, step: int) -> None:
    prompt = turn.state.prompts[prompt_id]
    told = prompt.escalate[step]
    turn.emit(
        ev.PromptEscalated,
        path=prompt.path,
        prompt_id=prompt_id,
        step=step,
        to=told["to"],
        may_answer=True if told.get("mayAnswer") else None,
    )


def catch_up(turn: Turn) -> None:
    """The session goes on: steps that came due while it told nobody anything are taken now."""
    for prompt_id in asked_in_order(turn.state):
        prompt = turn.state.prompts[prompt_id]
        if prompt.deadline is None:
            continue
        for step in range(len(prompt.escalate)):
            waits = clock_id(turn.state, prompt, f"escalate{step}") in turn.state.timers
            if not waits and step not in prompt.escalated:
                _escalate(turn, prompt_id, step)


# --- out of reach ------------------------------------------------------------------------------------------


def gone(turn: Turn, command: Gone) -> None:
    """Somebody deleted the message of an open prompt. It is shown again, but not for ever."""
    prompt = turn.state.prompts.get(command.prompt_id)
    if prompt is None or not prompt.open or (prompt.shown or {}).get("ts") != command.ts:
        return
    if turn.state.phase not in ("running", "waiting", *QUIET) or prompt.reposts >= MOST_REPOSTS:
        return
    nonce = turn.new_id("", f"nonce {prompt.path} {prompt.reposts}")
    turn.emit(ev.PromptReposted, path=prompt.path, prompt_id=prompt.prompt_id, nonce=nonce)


def unreachable(turn: Turn, command: Unreachable) -> None:
    """Nothing can be posted in the session's thread. A session that is held, ends or has ended stays what it is."""
    if turn.state.phase not in ("running", "waiting"):
        return
    turn.emit(ev.SessionUnreachable, reason=command.reason)
    due_at = timestamps.after(turn.facts.now, turn.flow.deadline)
    timer_id = f"{turn.state.session_id}:unreachable{turn.state.seq}"
    turn.emit(ev.TimerSet, timer_id=timer_id, due_at=due_at, purpose="unreachable")


def reachable(turn: Turn, command: Reachable) -> None:
    """The thread can be posted in again: the session goes on by itself."""
    if turn.state.phase == "unreachable":
        turn.emit(ev.SessionReachable)
        catch_up(turn)


def out_of_reach_for_good(state: State) -> bool:
    """Whether the session has reached nobody until its deadline."""
    return state.phase == "unreachable" and not any(
        timer.purpose == "unreachable" for timer in state.timers.values()
    )


def goto_of(prompt: Question) -> str | None:
    """Where a question leads that nobody answers in time, if that is a node."""
    outcome = prompt.on_timeout
    return outcome.removeprefix("goto:") if outcome.startswith("goto:") else None
