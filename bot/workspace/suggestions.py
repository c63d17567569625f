"""What the page offers to say by a click, for people who do not know yet what to write.

Suggestions are texts that whoever starts the workspace gives to it. A click posts the text as the person one acts
as, exactly as if they had typed it; the workspace does not know what it means to the app. They are not saved.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from bot.workspace.errors import WorkspaceError
from bot.workspace.state import Json, State


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A chip above the composer of `channel` (its name or id): `label` stands on it, `text` is what a click posts,
    `hint` says more to whoever points at it."""

    channel: str
    label: str
    text: str
    hint: str = ""


def checked(suggestions: Iterable[Suggestion], state: State) -> tuple[Suggestion, ...]:
    """The suggestions, once each can be offered. Raises WorkspaceError: an unknown channel, or nothing to post."""
    offered = tuple(suggestions)
    for suggestion in offered:
        state.channel(suggestion.channel)
        if not suggestion.label.strip() or not suggestion.text.strip():
            raise WorkspaceError("no_text", f"{suggestion} needs a label and a text")
    return offered


def shown(suggestions: Iterable[Suggestion], state: State, visible: Container[str]) -> list[Json]:
    """The suggestions for these channels (ids) as the page gets them."""
    placed = [(state.channel(suggestion.channel).id, suggestion) for suggestion in suggestions]
    return [
        {"channel": channel, "label": each.label, "text": each.text, "hint": each.hint}
        for channel, each in placed
        if channel in visible
    ]
