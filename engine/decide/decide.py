"""`decide`: turn a command into events. Pure.

A command that was already used yields no events; a refused command raises and yields none either. `run_to_fixpoint`
(`engine.decide.fixpoint`) ends every step: it writes what follows without any further command.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from msgspec.structs import replace

from engine.decide import approvals, commands, limits, prompt_timers, replies
from engine.decide.begin import begin
from engine.decide.commands import Command, Facts
from engine.decide.due import must_ask
from engine.decide.fixpoint import run_to_fixpoint
from engine.decide.question import refuse_long
from engine.decide.step import Kinds, Step
from engine.flow import Flow, coerce_inputs
from engine.forms.question import Question
from engine.journal import events as ev
from engine.journal.events import Event
from engine.journal.state import ASKS, LEFT, NodeRun, State
from engine.language.actors import Actor
from engine.language.errors import NotAllowed, SaysoError
from engine.nodes.types.registry import mode_of


def decide(flow: Flow, state: State, command: Command, facts: Facts, kinds: Kinds) -> list[Event]:
    """Return the events of a command, run to a fixpoint. Raises a `SaysoError` if it is refused."""
    step = Step(flow, state, facts, kinds)
    carry_out(step, command)
    return step.events


def carry_out(step: Step, command: Command) -> None:
    """Carry out a command within a step, after its earlier events, for callers that want the resulting state. A refused
    command writes nothing."""
    state, events = step.state, len(step.events)
    for name in _from_people(type(command)):
        given = getattr(command, name)
        refuse_long(given.record() if isinstance(given, Actor) else given)
    try:
        _HANDLERS[type(command)](step, command)
        run_to_fixpoint(step)
    except SaysoError:
        step.rewind(state, events)
        raise


_SAID = frozenset({"text", "reason", "to", "value", "values", "always", "files", "actor"})
"""Fields of commands that hold text from people."""


@cache
def _from_people(kind: type[Command]) -> tuple[str, ...]:
    """Return those fields of a type of command."""
    return tuple(name for name in kind.__struct_fields__ if name in _SAID)


def starters(flow: Flow) -> Question | None:
    """Return the policy's question for who may start a flow, or None if the flow does not restrict it."""
    return None if flow.allowed_to_start is None else Question(kind="start", who=tuple(flow.allowed_to_start))


def _start(step: Step, command: commands.Start) -> None:
    values, _ = coerce_inputs(step.flow, command.given)
    if step.state.seq:
        return
    asked = replace(
        step.state,
        session_id=command.session_id,
        flow_name=step.flow.name,
        actor=command.actor.record(),
        thread=command.thread,
    )
    reason = step.facts.policy(command.actor, "start", asked, starters(step.flow))
    if reason is not None:
        raise NotAllowed(reason)
    step.emit(
        ev.SessionStarted,
        session_id=command.session_id,
        flow_name=step.flow.name,
        flow_digest=step.flow.digest,
        given=values,
        actor=command.actor.record(),
        thread=command.thread,
        parent_session_id=command.parent_session_id,
        flow_revision=command.flow_revision,
    )


def _claimed(step: Step, command: commands.Claimed) -> None:
    for path in sorted(step.state.launched):
        run = step.state.nodes[path]
        if run.epoch < step.facts.epoch:
            step.interrupt(path, "crash")


# --- outcomes of nodes -------------------------------------------------------------------------------------


def _current_run(step: Step, path: str, attempt: int) -> NodeRun | None:
    """Return the run that an outcome belongs to, or None if the outcome is late and changes nothing."""
    run = step.state.nodes.get(path)
    if run is None or run.status != "started" or run.attempt != attempt or step.state.phase == "ended":
        return None
    # A node that waits for a person or a time has no outcome to report from outside.
    return run if mode_of(run.type) in ("run", "delivery") else None


def _node_done(step: Step, command: commands.NodeDone) -> None:
    if _current_run(step, command.path, command.attempt) is not None:
        step.complete(command.path, command.output)


def _node_broke(step: Step, command: commands.NodeBroke) -> None:
    if _current_run(step, command.path, command.attempt) is not None:
        step.break_(command.path, command.error)


def _node_cut(step: Step, command: commands.NodeCut) -> None:
    run = _current_run(step, command.path, command.attempt)
    if run is None:
        return
    if command.reason in ("cut", LEFT, ASKS) or must_ask(step.flow, step.state, command.path):
        saved = command.saved if command.reason in (LEFT, ASKS) else None
        step.interrupt(command.path, command.reason, saved)
        return
    told = command.message or {"timeout": "it ran out of time"}.get(command.reason, "the connection was lost")
    step.break_(command.path, {"type": command.reason, "message": f"node {run.node_id}: {told}"})


_HANDLERS: dict[type, Callable[[Step, Any], None]] = {
    commands.Start: _start,
    commands.Claimed: _claimed,
    commands.Begin: begin,
    commands.NodeDone: _node_done,
    commands.NodeBroke: _node_broke,
    commands.NodeCut: _node_cut,
    commands.Answer: replies.answer,
    commands.Edit: approvals.edit,
    commands.HandOver: approvals.hand_over,
    commands.Revoke: approvals.revoke,
    commands.Message: replies.message,
    commands.Steer: replies.steer,
    commands.EndRest: replies.end_rest,
    commands.Shown: replies.shown,
    commands.Due: replies.timer_due,
    commands.Gone: prompt_timers.gone,
    commands.Unreachable: prompt_timers.unreachable,
    commands.Reachable: prompt_timers.reachable,
    commands.LockGranted: limits.granted,
    commands.LockQueued: limits.queued,
    commands.Abort: replies.abort,
    commands.Hold: replies.hold,
    commands.Resume: replies.resume,
}
