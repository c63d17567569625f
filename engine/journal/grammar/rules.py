"""The rule of each type of event; see the package. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.journal.grammar import agents, containers, nodes, prompts, session
from engine.journal.state import State

RULES: dict[str, Callable[[State, Any], None]] = {
    "session:start": session.session_started,
    "flow:started": session.flow_started,
    "flow:paused": session.flow_paused,
    "flow:pausing": session.flow_pausing,
    "flow:resumed": session.flow_resumed,
    "flow:finalizing": session.flow_finalizing,
    "flow:completed": session.flow_completed,
    "flow:failed": session.flow_failed,
    "flow:migrated": session.flow_migrated,
    "lock:requested": session.lock_requested,
    "lock:acquired": session.lock_acquired,
    "session:message": session.session_message,
    "session:abort": session.session_aborted,
    "session:unreachable": session.session_unreachable,
    "session:reachable": session.session_reachable,
    "session:end": session.session_end,
    "node:started": nodes.node_started,
    "node:completed": nodes.node_completed,
    "node:failing": nodes.node_failing,
    "node:error": nodes.node_failed,
    "node:retried": nodes.node_retried,
    "node:skipped": nodes.node_skipped,
    "node:interrupted": nodes.node_interrupted,
    "edge:resolved": containers.edge_resolved,
    "loop:iterate": containers.loop_iterated,
    "container:childStarted": nodes.child_started,
    "container:childCompleted": nodes.child_completed,
    "container:started": containers.container_started,
    "container:iterationStarted": containers.iteration_started,
    "container:iterationCompleted": containers.iteration_completed,
    "container:completed": containers.container_completed,
    "agent:message": agents.agent_message,
    "agent:toolRequested": agents.tool_requested,
    "agent:toolResult": agents.tool_result,
    "agent:compacted": agents.agent_compacted,
    "agent:budget": agents.agent_budget,
    "prompt:requested": prompts.prompt_requested,
    "prompt:shown": prompts.prompt_shown,
    "prompt:voted": prompts.prompt_voted,
    "prompt:edited": prompts.prompt_edited,
    "prompt:handed": prompts.prompt_handed,
    "prompt:undone": prompts.prompt_undone,
    "prompt:answered": prompts.prompt_answered,
    "prompt:reminded": prompts.prompt_reminded,
    "prompt:escalated": prompts.prompt_escalated,
    "prompt:reposted": prompts.prompt_reposted,
    "prompt:expired": prompts.prompt_expired,
    "prompt:cancelled": prompts.prompt_cancelled,
    "timer:set": prompts.timer_set,
    "timer:fired": prompts.timer_fired,
}
"""Each raises `MalformedJournal` with the reason why the event cannot follow."""
