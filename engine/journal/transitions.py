"""The session's state machine: a table, which the classes of the events make. An event that it does not list in a phase
is a failed lookup.

The diagram in docs/architecture.md is generated from this table (`mermaid()`); a test fails when it is stale.
"""

from __future__ import annotations

from engine.journal.events import EVENTS
from engine.journal.events.session import HELD
from engine.journal.phases import PHASES, Phase
from engine.language.errors import MalformedJournal

TRANSITIONS: dict[tuple[Phase, str], Phase] = {
    (before, name): later
    for name, phases in [
        *((kind.type, kind.phases) for kind in EVENTS.values()),
        ("flow:paused(held)", HELD),
    ]
    for before, later in phases.items()
}
"""(phase, event) → phase after it. What is not listed cannot happen."""


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
    for (before, event), later in sorted(TRANSITIONS.items(), key=lambda item: PHASES.index(item[0][0])):
        if before != later:
            grouped.setdefault((before, later), []).append(event)
    for (before, later), events in grouped.items():
        lines.append(f"    {before} --> {later}: {', '.join(events).replace(':', '#colon;')}")
    lines.append("    ended --> [*]")
    return "\n".join(lines)
