"""How a turn ends: what follows without any further command is written, to the pause and the end. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from engine.decide import containers, limits, prompt_timers, question, replies
from engine.decide.behaviours import conversations
from engine.decide.due import due, due_in, may_run_again, must_ask, only_waits
from engine.decide.step import Turn
from engine.journal import events as ev
from engine.journal.queries import LISTING, asked_in_order, doomed, interrupted, open_prompt_at
from engine.journal.snapshot import current_path
from engine.journal.state import AGAIN, ASKS, FINALLY, LEFT, RETRY, ROOT, Frame, State, in_finally
from engine.journal.transitions import Status
from engine.language.codec import Json
from engine.nodes.types.registry import MISSING


def run_to_fixpoint(turn: Turn) -> None:
    """Write what follows: passes and containers, questions about interruptions, the pause, the end."""
    if turn.state is turn.at_fixpoint:
        return
    if turn.state.phase == "running" and turn.state.inputs is None and not turn.state.open_prompts:
        replies.go_on_with_inputs(turn)
    if turn.state.phase in ("running", "pausing"):
        containers.progress(turn)
        for path in interrupted(turn.state):
            _ask_if_interrupted(turn, path)
        if any(turn.state.prompts[each].kind == LISTING for each in turn.state.open_prompts):
            conversations().listings_idle(turn)
        _finish_or_pause(turn)
    if turn.state.phase == "unreachable":
        _give_up_unreached(turn)
    if turn.state.phase == "finalizing":
        _finalize(turn)
    turn.at_fixpoint = turn.state


def _give_up_unreached(turn: Turn) -> None:
    """A session that reaches nobody ends where a deadline has failed it; everything else waits until it does."""
    root = turn.state.frames.get(ROOT)
    if root is not None and root.error is not None:
        end_flow(turn, "failed", _failed_at(turn.state, root), root.error)
    elif prompt_timers.out_of_reach_for_good(turn.state):
        reason = turn.state.pause_reason or ""
        message = f"the thread could not be posted in until the deadline was over ({reason})"
        end_flow(turn, "failed", None, {"type": "unreachable", "message": message})


def _finish_or_pause(turn: Turn) -> None:
    state = turn.state
    root = state.frames.get(ROOT)
    if root is not None and root.error is not None:
        end_flow(turn, "failed", _failed_at(state, root), root.error)
    elif state.phase == "pausing":
        _hold_or_complete(turn)
    elif limits.pending(state):
        # Whether it goes on or waits follows from who else wants the lock: the next command says so.
        return
    elif state.active or state.open_prompts or due_in(turn):
        if only_waits(turn.flow, state):
            _pause(turn)
    elif state.inputs is not None:
        end_flow(turn, "complete")
    else:
        _pause(turn)


def _hold_or_complete(turn: Turn) -> None:
    """What was told to leave has left: the session is held, or completes, where that was all there was to do."""
    state = turn.state
    if state.launched:
        return
    waits = state.active or state.open_prompts
    if state.inputs is not None and not waits and not due(turn.flow, replace(state, phase="running")):
        end_flow(turn, "complete")
        return
    turn.emit(ev.FlowPaused, **turn.place(current_path(state)), held=True, **(state.pausing or {}))


def _failed_at(state: State, frame: Frame) -> str | None:
    """The node whose failure a pass failed with."""
    return next((path for path in frame.nodes.values() if state.nodes[path].error == frame.error), None)


def end_flow(
    turn: Turn, outcome: Status, path: str | None = None, error: dict[str, Json] | None = None
) -> None:
    """The flow is over; what its file has under `finally` comes before that is said, once it has begun."""
    list_id = turn.flow.finally_list
    if (
        list_id is not None
        and turn.state.inputs is not None
        and turn.state.phase in ("running", "pausing", "unreachable")
        and not limits.pending(turn.state)
    ):
        turn.emit(ev.FlowFinalizing, path=path, outcome=outcome, list_id=list_id, error=error)
    elif outcome == "failed":
        turn.emit(ev.FlowFailed, path=path, error=error or {})
    elif outcome == "complete":
        turn.emit(ev.FlowCompleted)


def _pause(turn: Turn) -> None:
    turn.emit(ev.FlowPaused, **turn.place(current_path(turn.state)), reason="waiting")


def _finalize(turn: Turn) -> None:
    """End the session: what still runs of the flow ends, questions are withdrawn, `finally` runs, and that was it."""
    if not all(map(in_finally, turn.state.launched)):
        return
    _withdraw_prompts(turn)
    list_id = turn.flow.finally_list
    # What runs at the end runs under the lock: without it there is nothing to clean up that this session did.
    skipped = turn.state.finally_skipped or turn.state.inputs is None or limits.pending(turn.state)
    if list_id is not None and not skipped:
        if turn.state.outcome == "aborted" and FINALLY not in turn.state.frames:
            turn.emit(ev.FlowFinalizing, outcome="aborted", list_id=list_id)
        if not _finally_is_over(turn):
            return
    if turn.state.launched:
        return
    if FINALLY in turn.state.frames:
        _say_outcome(turn, turn.state.frames[FINALLY])
    turn.emit(ev.SessionEnd, status=turn.state.outcome)


def _finally_is_over(turn: Turn) -> bool:
    """Carry on with `finally`. A session that completed or failed without one, or whose limit is reached, has none."""
    if FINALLY not in turn.state.frames:
        return True
    for path in interrupted(turn.state):
        run = turn.state.nodes[path]
        if in_finally(path) and not may_run_again(turn.flow, turn.state, path):
            node = turn.node(path)  # a tool call has its id of the flow: the model knows no `tool[0]`
            message = f"node {node.id}: it was interrupted; whether it had its effect is not known"
            if run.reason == ASKS:
                message = f"node {node.id}: its server asks people for something, and `finally` asks nobody"
            elif run.reason == MISSING:
                message = f"node {node.id}: {turn.flow.why_missing(node)}, and `finally` asks nobody"
            if not doomed(turn.state, path):
                turn.fail(path, {"type": "interrupted", "message": message})
    containers.progress(turn)
    return containers.is_over(turn, turn.state.frames[FINALLY])


def _say_outcome(turn: Turn, frame: Frame) -> None:
    """A flow that completed has failed when its `finally` failed; any other outcome stays what it was."""
    state = turn.state
    if state.outcome == "failed":
        turn.emit(ev.FlowFailed, path=_failed_at(state, state.frames[ROOT]), error=state.error or {})
    elif state.outcome == "complete" and frame.error is not None:
        turn.emit(ev.FlowFailed, path=_failed_at(state, frame), error=frame.error)
    elif state.outcome == "complete":
        turn.emit(ev.FlowCompleted)


def _withdraw_prompts(turn: Turn) -> None:
    for prompt_id in asked_in_order(turn.state):
        reason = f"the session is {turn.state.outcome}"
        prompt = turn.state.prompts[prompt_id]
        turn.emit(ev.PromptCancelled, path=prompt.path, prompt_id=prompt_id, reason=reason)


# --- interruptions -----------------------------------------------------------------------------------------


def _ask_if_interrupted(turn: Turn, path: str) -> None:
    """An interrupted node that must not simply run again becomes a question."""
    run = turn.state.nodes[path]
    if open_prompt_at(turn.state, path) or doomed(turn.state, path):
        return
    if run.reason in (AGAIN, LEFT, RETRY) or not must_ask(turn.flow, turn.state, path):
        return
    node = turn.node(path)
    if run.reason == ASKS:
        turn.ask(path, question.elicited_prompt(node, run))
        return
    turn.ask(path, question.interrupted_prompt(node, run, turn.flow.why_missing(node)))
