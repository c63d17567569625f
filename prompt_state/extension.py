"""PromptState as the engine commits it: a pure extension (`engine.engine.Extension`)."""

from __future__ import annotations

from collections.abc import Sequence

from engine.events import Event
from engine.state import State
from engine.storage.port import Row
from prompt_state.model import Owner, project


def projection(before: State, after: State, events: Sequence[Event]) -> Sequence[Row]:
    """The rows of prompts that a step changed, written with the events that they follow from."""
    return project(Owner(after.session_id, after.thread, after.actor), after.prompts, events, after.seq)
