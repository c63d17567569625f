"""The fold of a session's journal: `evolve` is the only way in which a state comes to be.

States are values: an event gives a new one that shares what did not change (persistent maps), so a step that fails to
commit is undone by forgetting it. The cost of an event does not depend on how much has completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from engine.journal.events import Event
from engine.journal.folds.agents import (
    agent_budget,
    agent_compacted,
    agent_message,
    child_started,
    container_completed,
    container_started,
    node_failed,
    node_interrupted,
    node_retried,
    prompt_requested,
    tool_requested,
    tool_result,
)
from engine.journal.folds.containers import (
    edge_resolved,
    iteration_completed,
    iteration_started,
    loop_iterated,
)
from engine.journal.folds.nodes import node_completed, node_failing, node_skipped, node_started
from engine.journal.folds.prompts import (
    prompt_answered,
    prompt_cancelled,
    prompt_edited,
    prompt_escalated,
    prompt_expired,
    prompt_handed,
    prompt_reminded,
    prompt_reposted,
    prompt_shown,
    prompt_undone,
    prompt_voted,
    timer_fired,
    timer_set,
)
from engine.journal.folds.session import (
    flow_completed,
    flow_failed,
    flow_finalizing,
    flow_migrated,
    flow_paused,
    flow_pausing,
    flow_resumed,
    flow_started,
    lock_acquired,
    lock_requested,
    session_aborted,
    session_end,
    session_message,
    session_reachable,
    session_started,
    session_unreachable,
)
from engine.journal.grammar.owed import OWES, still_owed
from engine.journal.grammar.rules import RULES
from engine.journal.state import State
from engine.journal.transitions import step
from engine.language.errors import MalformedJournal


def evolve(state: State, event: Event) -> State:
    """The state after an event. Raises `MalformedJournal`, naming the event, for what cannot follow."""
    if event.seq != state.seq + 1:
        raise MalformedJournal(f"event {event.seq} ({event.type}) does not follow event {state.seq}")
    try:
        phase = step(state.phase, event.transition)
        owed = still_owed(state, event) if state.owed else ()
        kind = event.type
        RULES[kind](state, event)
        moved = _FOLDS[kind](state, event)
    except MalformedJournal as error:
        raise MalformedJournal(f"event {event.seq} ({event.type}): {error}") from None
    owes = OWES.get(kind)
    if owes is not None:
        owed = owes(state, event) + owed
    return replace(moved, phase=phase, seq=event.seq, updated_at=event.timestamp, owed=owed)


def derive_state(events: Iterable[Event], start: State | None = None) -> State:
    """The fold over a whole journal, or over the events after a snapshot."""
    state = start if start is not None else State()
    for event in events:
        state = evolve(state, event)
    return state


_FOLDS: dict[str, Callable[[State, Any], State]] = {
    "session:start": session_started,
    "flow:started": flow_started,
    "flow:paused": flow_paused,
    "flow:pausing": flow_pausing,
    "flow:resumed": flow_resumed,
    "flow:finalizing": flow_finalizing,
    "flow:completed": flow_completed,
    "flow:failed": flow_failed,
    "flow:migrated": flow_migrated,
    "lock:requested": lock_requested,
    "lock:acquired": lock_acquired,
    "session:message": session_message,
    "session:abort": session_aborted,
    "session:unreachable": session_unreachable,
    "session:reachable": session_reachable,
    "session:end": session_end,
    "node:started": node_started,
    "node:completed": node_completed,
    "node:failing": node_failing,
    "node:error": node_failed,
    "node:retried": node_retried,
    "node:skipped": node_skipped,
    "node:interrupted": node_interrupted,
    "edge:resolved": edge_resolved,
    "loop:iterate": loop_iterated,
    "container:childStarted": child_started,
    "container:childCompleted": node_completed,
    "container:started": container_started,
    "container:iterationStarted": iteration_started,
    "container:iterationCompleted": iteration_completed,
    "container:completed": container_completed,
    "agent:message": agent_message,
    "agent:toolRequested": tool_requested,
    "agent:toolResult": tool_result,
    "agent:compacted": agent_compacted,
    "agent:budget": agent_budget,
    "prompt:requested": prompt_requested,
    "prompt:shown": prompt_shown,
    "prompt:voted": prompt_voted,
    "prompt:edited": prompt_edited,
    "prompt:handed": prompt_handed,
    "prompt:undone": prompt_undone,
    "prompt:answered": prompt_answered,
    "prompt:reminded": prompt_reminded,
    "prompt:escalated": prompt_escalated,
    "prompt:reposted": prompt_reposted,
    "prompt:expired": prompt_expired,
    "prompt:cancelled": prompt_cancelled,
    "timer:set": timer_set,
    "timer:fired": timer_fired,
}
