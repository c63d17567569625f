"""PromptState as the engine commits it: a pure extension (`engine.run.active.Extension`)."""

from __future__ import annotations

from collections.abc import Sequence

from engine.journal.events import Event, TimerFired
from engine.journal.records import Row
from engine.journal.state import State
from prompt_state.question_row import project


def projection(before: State, after: State, events: Sequence[Event]) -> Sequence[Row]:
    """The rows of prompts that a step changed, written with the events that they follow from."""
    over = {
        timer.prompt_id
        for event in events
        if isinstance(event, TimerFired) and (timer := before.timers.get(event.timer_id)) is not None
        if timer.purpose == "undo" and timer.prompt_id is not None
    }
    return project(after, events, also=over)
