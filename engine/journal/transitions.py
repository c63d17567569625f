"""The session's state machine: a table. An event that the table does not list in a phase is a failed lookup.

The diagram in docs/architecture.md is generated from this table (`mermaid()`); a test fails when it is stale.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from engine.language.errors import MalformedJournal

Phase: TypeAlias = Literal[
    "idle", "running", "waiting", "pausing", "held", "unreachable", "finalizing", "ended"
]
Status: TypeAlias = Literal["idle", "running", "paused", "complete", "failed", "aborted"]

ENDED: tuple[Status, ...] = ("complete", "failed", "aborted")
"""Statuses after which a session takes no more commands."""

PHASES: tuple[Phase, ...] = get_args(Phase)

_ANY_OPEN = (
    "prompt:shown",
    "prompt:voted",
    "prompt:edited",
    "prompt:handed",
    "prompt:answered",
    "prompt:expired",
    "prompt:reposted",
    "timer:set",
    "timer:fired",
    "session:message",
    "agent:message",
    "agent:toolResult",
    "agent:budget",
    "agent:outcome",
    "grant:given",
    "grant:used",
    "grant:revoked",
    "grant:expired",
)
_CLOCKS = ("prompt:reminded", "prompt:escalated")
"""What a clock says to people; not while the session is held or cannot reach them."""
_ENDING = ("timer:set", "timer:fired", "flow:finalizing", "flow:completed", "flow:failed", "session:abort")
_OUTCOMES = (
    "node:completed",
    "node:failing",
    "node:error",
    "node:skipped",
    "edge:resolved",
    "container:childCompleted",
    "container:completed",
    "agent:opened",
    "agent:toolRequested",
    "agent:compacted",
)
_WORK = (
    "node:started",
    "node:completed",
    "node:failing",
    "node:error",
    "node:retried",
    "node:skipped",
    "edge:resolved",
    "loop:iterate",
    "container:childStarted",
    "container:childCompleted",
    "container:started",
    "container:iterationStarted",
    "container:iterationCompleted",
    "container:completed",
    "node:interrupted",
    "prompt:cancelled",
    "agent:opened",
    "agent:message",
    "agent:toolRequested",
    "agent:toolResult",
    "agent:compacted",
    "agent:outcome",
)


def _stay(phase: Phase, events: tuple[str, ...]) -> dict[tuple[Phase, str], Phase]:
    return {(phase, event): phase for event in events}


TRANSITIONS: dict[tuple[Phase, str], Phase] = {
    ("idle", "session:start"): "running",
    ("running", "lock:requested"): "running",
    ("running", "lock:acquired"): "running",
    ("running", "flow:started"): "running",
    **_stay("running", _WORK + _ANY_OPEN + _CLOCKS + ("prompt:requested",)),
    ("running", "flow:paused"): "waiting",
    ("running", "flow:finalizing"): "finalizing",
    ("running", "flow:completed"): "finalizing",
    ("running", "flow:failed"): "finalizing",
    ("running", "session:abort"): "finalizing",
    **_stay("waiting", _ANY_OPEN + _CLOCKS),
    ("waiting", "flow:resumed"): "running",
    ("waiting", "session:abort"): "finalizing",
    ("waiting", "flow:migrated"): "waiting",
    ("held", "flow:migrated"): "held",
    # What waited for a node type goes on at once, as what the new text has there.
    ("running", "flow:migrated"): "running",
    ("held", "prompt:cancelled"): "held",
    ("running", "flow:pausing"): "pausing",
    **_stay("pausing", _WORK + _ANY_OPEN + ("prompt:requested", "lock:acquired")),
    ("pausing", "flow:paused(held)"): "held",
    ("pausing", "flow:finalizing"): "finalizing",
    ("pausing", "flow:completed"): "finalizing",
    ("pausing", "flow:failed"): "finalizing",
    ("pausing", "session:abort"): "finalizing",
    ("running", "flow:paused(held)"): "held",
    ("waiting", "flow:paused(held)"): "held",
    **_stay("held", _ANY_OPEN + _OUTCOMES + ("node:interrupted", "node:retried")),
    ("held", "lock:acquired"): "held",
    ("held", "flow:resumed"): "running",
    ("running", "session:unreachable"): "unreachable",
    ("waiting", "session:unreachable"): "unreachable",
    **_stay("unreachable", _ANY_OPEN + _OUTCOMES + ("node:interrupted", "node:retried", "lock:acquired")),
    ("unreachable", "session:reachable"): "running",
    ("unreachable", "flow:paused(held)"): "held",
    ("unreachable", "flow:finalizing"): "finalizing",
    ("unreachable", "flow:failed"): "finalizing",
    ("unreachable", "session:abort"): "finalizing",
    ("held", "session:abort"): "finalizing",
    **_stay(
        "finalizing",
        (*_WORK, *_ENDING),
    ),
    ("finalizing", "session:end"): "ended",
}
"""(phase, event) → phase after it. What is not listed cannot happen."""

STATUS: dict[Phase, Status] = {
    "idle": "idle",
    "running": "running",
    "waiting": "paused",
    "pausing": "running",
    "held": "paused",
    "unreachable": "paused",
    "finalizing": "running",
}
"""What a phase is called outside; an ended session is `complete`, `failed` or `aborted`."""


def step(phase: Phase, event: str) -> Phase:
    """The phase after an event. Raises `MalformedJournal` where the table has no such transition."""
    try:
        return TRANSITIONS[phase, event]
    except KeyError:
        raise MalformedJournal(f"{event} cannot happen while the session is {phase}") from None


def mermaid() -> str:
    """The table as a Mermaid state diagram: only what changes the phase."""
    lines = ["stateDiagram-v2", "    [*] --> idle"]
    grouped: dict[tuple[Phase, Phase], list[str]] = {}
    for (before, event), later in TRANSITIONS.items():
        if before != later:
            grouped.setdefault((before, later), []).append(event)
    for (before, later), events in grouped.items():
        lines.append(f"    {before} --> {later}: {', '.join(events).replace(':', '#colon;')}")
    lines.append("    ended --> [*]")
    return "\n".join(lines)
