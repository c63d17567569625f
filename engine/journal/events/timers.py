"""Events of timers."""

from collections.abc import Callable
from typing import Literal

from msgspec.structs import replace

from engine.journal.events.base import ALWAYS, ANY_OUTCOME, Event
from engine.journal.events.prompts import with_prompt
from engine.journal.grammar import clock_id, container_at, run_at, same, timeout_id, wait_id
from engine.journal.passes import without
from engine.journal.queries import TURN, rest_id
from engine.journal.state import ON_FAILURE, QUIET, RETRY, UNFINISHED, Owed, State, TimerRun
from engine.language.errors import MalformedJournal


class TimerSet(Event, tag="timer:set", phases=ALWAYS):
    """A durable timer: fires once, at or after `due_at` (UTC, ISO-8601), also after a restart."""

    timer_id: str
    due_at: str
    purpose: Literal["wait", "deadline", "retry", "timeout", "remind", "escalate", "unreachable", "followUp"]
    prompt_id: str | None = None

    def fold(self, state: State) -> State:
        if self.timer_id in state.timers:
            raise MalformedJournal(f"timer {self.timer_id} is set already")
        _SETS.get(self.purpose, _times_a_question)(state, self)
        timer = TimerRun(self.timer_id, self.path, self.due_at, self.purpose, self.prompt_id)
        timers = state.timers
        if self.purpose == "followUp":
            # The time that an agent has is for its work, and it rests.
            timers = without(timers, timeout_id(state, self.path or ""))
        state = replace(state, timers=timers.set(self.timer_id, timer))
        if self.prompt_id is None:
            return state
        if self.purpose != "deadline":
            return state
        prompt = replace(state.prompts[self.prompt_id], deadline=self.due_at)
        return with_prompt(state, prompt)


class TimerFired(Event, tag="timer:fired", phases=ALWAYS):
    """The timer fired; a timer that is no longer set changes nothing."""

    timer_id: str

    def fold(self, state: State) -> State:
        timer = state.timers.get(self.timer_id)
        if timer is None:
            raise MalformedJournal(f"timer {self.timer_id} is not set")
        if self.path != timer.path:
            same(self.path, timer.path, "path")
        # A message to an agent makes its next try due at once.
        spoken_to = timer.purpose == "retry" and state.nodes[timer.path or ""].type == TURN
        if self.timestamp < timer.due_at and not spoken_to:
            raise MalformedJournal(f"timer {self.timer_id} is not due before {timer.due_at}")
        state = replace(state, timers=state.timers.delete(self.timer_id))
        if timer.purpose == "timeout" and timer.path is not None:
            container = container_at(state, timer.path)
            message = f"node {container.node_id}: it ran out of time"
            container = replace(container, error=container.error or {"type": "timeout", "message": message})
            return replace(state, containers=state.containers.set(timer.path, container))
        if timer.purpose != "retry" or timer.path is None:
            return state
        run = replace(run_at(state, timer.path, *UNFINISHED), status="interrupted", reason=RETRY)
        return replace(state, nodes=state.nodes.set(timer.path, run))

    def owes(self, before: State) -> tuple[Owed, ...]:
        timer = before.timers[self.timer_id]
        match timer.purpose:
            case "wait":
                return (Owed(ANY_OUTCOME, timer.path),)
            case "deadline":
                return (Owed(("prompt:expired",), timer.path, timer.prompt_id),)
            case "followUp":
                return (Owed(("container:completed",), timer.path),)
            case "remind" | "escalate":
                if before.phase in QUIET:
                    return ()
                types = ("prompt:reminded",) if timer.purpose == "remind" else ("prompt:escalated",)
                return (Owed(types, timer.path, timer.prompt_id),)
            case _:
                return ()


def _waits(state: State, event: TimerSet) -> None:
    path = event.at
    same((event.timer_id, event.prompt_id), (wait_id(state, path), None), "timer")
    if run_at(state, path, "started").type != "wait" or not state.owed:
        raise MalformedJournal(f"{path} does not wait for a time, or already does")


def _times_out(state: State, event: TimerSet) -> None:
    path = event.at
    container = container_at(state, path)
    same((event.timer_id, event.prompt_id), (timeout_id(state, path), None), "timer")
    if container.begun or container.kind == ON_FAILURE:
        raise MalformedJournal(f"{path} has begun, so its time is already set")


def _rests(state: State, event: TimerSet) -> None:
    path = event.at
    agent = container_at(state, path).agent
    same((event.timer_id, event.prompt_id), (rest_id(state, path), None), "timer")
    if agent is None or not agent.final or agent.calls or "/" in path:
        raise MalformedJournal(f"{path} has not given its last answer, so it does not listen")


def _times_the_thread(state: State, event: TimerSet) -> None:
    event.no_path()
    if not state.owed or not event.timer_id.startswith(f"{state.session_id}:unreachable") or event.prompt_id:
        raise MalformedJournal("no thread became unreachable just now")


def _times_a_question(state: State, event: TimerSet) -> None:
    prompt = state.prompts.get(event.prompt_id or "")
    if prompt is None or event.purpose == "retry":
        raise MalformedJournal(f"there is no question {event.prompt_id}, or it has no such timer")
    same(event.path, prompt.path, "path")
    if not prompt.open:
        raise MalformedJournal(f"prompt {prompt.prompt_id} is not open")
    else:
        # Only the id has the step of an escalation, and an owed event names the id.
        word = event.timer_id.rpartition("escalate")[2]
        name = f"escalate{word}" if event.purpose == "escalate" else event.purpose
        same(event.timer_id, clock_id(state, prompt, name), "timer")
        if event.purpose == "remind" and prompt.remind_seconds is None:
            raise MalformedJournal(f"prompt {prompt.prompt_id} has no reminders")
    if not state.owed and not (event.purpose == "remind" and prompt.deadline is not None):
        raise MalformedJournal(f"nothing happened that sets timer {event.timer_id}")


_SETS: dict[str, Callable[[State, TimerSet], None]] = {
    "wait": _waits,
    "timeout": _times_out,
    "unreachable": _times_the_thread,
    "followUp": _rests,
}
"""Checks for setting a timer, by its purpose; those of questions are separate."""
