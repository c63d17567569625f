"""The terminal as a frontend: questions are put by whoever follows the session, messages and events are printed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from bot.config.session_files import SessionFiles
from bot.rendering.deliveries import as_plain, given_files
from engine.journal.events import Event
from engine.journal.state import Asked, State
from engine.language.codec import Json
from engine.nodes.runtime.folder import FileRefused
from engine.nodes.types.registry import node_types
from engine.run.frontend import Message, NotDelivered

SHOWN: dict[str, Json] = {"terminal": True}
"""Where a prompt is, when it is on a terminal."""


class Lines(Protocol):
    """What prints."""

    def narrate(self, state: State, event: Event) -> None:
        """A committed event; `state` is the session's state after it, or later."""

    def message(self, text: str) -> None:
        """The text of a `message` node."""


class TerminalFrontend:
    """Shows a session on a terminal. A second time something is printed again, which is harmless there."""

    def __init__(self, lines: Lines, files: SessionFiles | None = None) -> None:
        self._lines = lines
        self._files = files

    async def ask(self, state: State, asked: Asked, key: str) -> dict[str, Json]:
        """The question is put when it is its turn: one at a time is in front of a person."""
        return SHOWN

    async def close(self, state: State, asked: Asked) -> None:
        """What was printed stays; `observe` says what became of it."""

    async def deliver(self, message: Message, key: str) -> dict[str, Json]:
        """Print a message. As in Slack it fails where a file of it cannot be read."""
        try:
            for path in [file.path for file in given_files(message.config) if file.path]:
                if self._files is not None:
                    await asyncio.to_thread(self._files.read, message.session_id, path)
        except FileRefused as error:
            raise NotDelivered(f"The message could not be posted. {error}") from error
        self._lines.message(as_plain(message.config))
        return dict(node_types()["message"].unknown_output)

    def observe(self, state: State, events: Sequence[Event]) -> None:
        """Narrate what happened."""
        for event in events:
            self._lines.narrate(state, event)
