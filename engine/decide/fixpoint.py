"""The end of a step: write what follows without any further command, up to the pause and the end. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from engine.decide import containers, limits, prompt_timers, question, replies
from engine.decide.due import due, due_in, may_run_again, must_ask, only_waits
from engine.decide.step import Step
from engine.journal import events as ev
from engine.journal.phases import Status, in_words
from engine.journal.queries import asked_in_order, doomed, interrupted, open_prompt_at
from engine.journal.snapshot import current_path
from engine.journal.state import AGAIN, ASKS, FINALLY, LEFT, RETRY, ROOT, Frame, State, in_finally
from engine.language.codec import Json


def run_to_fixpoint(step: Step) -> None:
    """Write what follows: passes and containers, questions about interruptions, the pause, the end."""
    if step.state is step.at_fixpoint:
        return
    if step.state.phase == "running" and step.state.inputs is None and not step.state.open_prompts:
        replies.go_on_with_inputs(step)
    if step.state.phase in ("running", "pausing"):
        containers.progress(step)
        for path in interrupted(step.state):
            _ask_if_interrupted(step, path)
        for prompt in [step.state.prompts[each] for each in asked_in_order(step.state)]:
            if not prompt.rules.waits and prompt.path not in step.state.containers:
                step.withdraw(prompt, "the agent has ended")
        _finish_or_pause(step)
    if step.state.phase == "unreachable":
        # A deadline that passes while the session is unreachable ends it.
        root = step.state.frames.get(ROOT)
        if root is not None and root.error is not None:
            end_flow(step, "failed", _failed_at(step.state, root), root.error)
        elif prompt_timers.out_of_reach_for_good(step.state):
            reason = step.state.pause_reason or ""
            message = f"the thread could not be reached before the deadline ({reason})"
            end_flow(step, "failed", None, {"type": "unreachable", "message": message})
    if step.state.phase == "finalizing":
        _finalize(step)
    step.at_fixpoint = step.state


def _finish_or_pause(step: Step) -> None:
    state = step.state
    root = state.frames.get(ROOT)
    if root is not None and root.error is not None:
        end_flow(step, "failed", _failed_at(state, root), root.error)
    elif state.phase == "pausing":
        _hold_or_complete(step)
    elif limits.pending(state):
        # The next command tells whether the session got its lock or waits.
        return
    elif state.active or state.open_prompts or due_in(step):
        if only_waits(state) and not due_in(step):
            _pause(step)
    elif state.inputs is not None:
        end_flow(step, "complete")
    else:
        _pause(step)


def _hold_or_complete(step: Step) -> None:
    """Hold the session once its running work has left, or complete it if no work is left."""
    state = step.state
    if state.launched:
        return
    waits = state.active or state.open_prompts
    if (
        state.inputs is not None
        and not waits
        and not due(step.flow, replace(state, phase="running"), step.kinds)
    ):
        end_flow(step, "complete")
        return
    told = state.pausing or {}
    step.pause(current_path(state), told["reason"], held=True, actor=told["actor"])


def _failed_at(state: State, frame: Frame) -> str | None:
    """Return the path of the node whose failure failed the pass."""
    return next((path for path in frame.nodes.values() if state.nodes[path].error == frame.error), None)


def end_flow(
    step: Step, outcome: Status, path: str | None = None, error: dict[str, Json] | None = None
) -> None:
    """End the flow; once it has begun, its `finally` runs before the end is written."""
    list_id = step.flow.finally_list
    if (
        list_id is not None
        and step.state.inputs is not None
        and step.state.phase in ("running", "pausing", "unreachable")
        and not limits.pending(step.state)
    ):
        step.emit(ev.FlowFinalizing, path=path, outcome=outcome, list_id=list_id, error=error)
    elif outcome == "failed":
        step.emit(ev.FlowFailed, path=path, error=error or {})
    elif outcome == "complete":
        step.emit(ev.FlowCompleted)


def _pause(step: Step) -> None:
    step.pause(current_path(step.state), "waiting")


def _finalize(step: Step) -> None:
    """End the session: let running nodes of the flow end, withdraw questions, run `finally`, and close."""
    if not all(map(in_finally, step.state.launched)):
        return
    outcome = step.state.outcome or "complete"
    why = f"the run {'was ' if outcome == 'aborted' else ''}{in_words(outcome)}"
    for prompt_id in asked_in_order(step.state):
        step.withdraw(step.state.prompts[prompt_id], why)
    list_id = step.flow.finally_list
    # `finally` runs under the lock: a session that never got it has nothing to clean up.
    skipped = step.state.finally_skipped or step.state.inputs is None or limits.pending(step.state)
    if list_id is not None and not skipped:
        if step.state.outcome == "aborted" and FINALLY not in step.state.frames:
            step.emit(ev.FlowFinalizing, outcome="aborted", list_id=list_id)
        if not _finally_is_over(step):
            return
    if step.state.launched:
        return
    if FINALLY in step.state.frames:
        # A flow that completed has failed when its `finally` failed.
        frame = step.state.frames[FINALLY]
        state = step.state
        if state.outcome == "failed":
            step.emit(ev.FlowFailed, path=_failed_at(state, state.frames[ROOT]), error=state.error or {})
        elif state.outcome == "complete" and frame.error is not None:
            step.emit(ev.FlowFailed, path=_failed_at(state, frame), error=frame.error)
        elif state.outcome == "complete":
            step.emit(ev.FlowCompleted)
    step.emit(ev.SessionEnd, status=step.state.outcome)


def _finally_is_over(step: Step) -> bool:
    """Continue `finally`; True once it has ended. Sessions that end without one, or over their limit, have none."""
    if FINALLY not in step.state.frames:
        return True
    for path in interrupted(step.state):
        run = step.state.nodes[path]
        if in_finally(path) and not may_run_again(step.flow, step.state, path):
            node = step.node(path)  # a tool call has its id of the flow: the model knows no `tool[0]`
            message = f"node {node.id}: it was interrupted; its outcome is unknown"
            if run.reason == ASKS:
                message = (
                    f"node {node.id}: its server asks people for something, and `finally` cannot ask people"
                )
            if not doomed(step.state, path):
                step.fail(path, {"type": "interrupted", "message": message})
    containers.progress(step)
    return containers.is_over(step, step.state.frames[FINALLY])


# --- interruptions -----------------------------------------------------------------------------------------


def _ask_if_interrupted(step: Step, path: str) -> None:
    """An interrupted node that must not simply run again becomes a question."""
    run = step.state.nodes[path]
    if open_prompt_at(step.state, path) or doomed(step.state, path):
        return
    if run.reason in (AGAIN, LEFT, RETRY) or not must_ask(step.flow, step.state, path):
        return
    node = step.node(path)
    if run.reason == ASKS:
        step.ask(path, question.elicited_prompt(node, run))
        return
    step.ask(path, question.interrupted_prompt(node, run))
