"""The session's state machine: a table that is built from the event classes. An event that is not listed for a phase is
refused.

The diagram in docs/architecture.md is generated from this table; a test fails when it is stale.
"""

from __future__ import annotations

from engine.journal.events import EVENTS
from engine.journal.events.session import HELD
from engine.journal.phases import Phase
from engine.language.errors import MalformedJournal

TRANSITIONS: dict[tuple[Phase, str], Phase] = {
    (before, name): later
    for name, phases in [*((kind.type, kind.phases) for kind in EVENTS.values()), ("flow:paused(held)", HELD)]
    for before, later in phases.items()
}
"""(phase, event) → phase after it. What is not listed cannot happen."""


def step(phase: Phase, event: str) -> Phase:
    """Return the phase after an event. Raises `MalformedJournal` if the table has no such transition."""
    try:
        return TRANSITIONS[phase, event]
    except KeyError:
        raise MalformedJournal(f"{event} cannot happen while the session is {phase}") from None
