"""Reading PromptState back: the same way after a restart as at any other time, since nothing is kept in memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from engine.journal.records import PromptRow
from engine.language.errors import SchemaTooNew
from prompt_state.errors import MalformedPrompt
from prompt_state.question_row import OPEN_STATUSES, PromptState


class PromptReader(Protocol):
    """The part of `engine.storage.port.Store` that is needed here."""

    def prompt(self, prompt_id: str) -> PromptRow | None: ...

    def prompts(
        self,
        *,
        thread_key: str | None = None,
        session_id: str | None = None,
        statuses: Sequence[str] = (),
        limit: int | None = 500,
    ) -> list[PromptRow]: ...


def find(store: PromptReader, prompt_id: str) -> PromptState | None:
    """One prompt by its id, open or closed."""
    row = store.prompt(prompt_id)
    return None if row is None else read(row)


def of_thread(store: PromptReader, thread_key: str) -> list[PromptState]:
    """All prompts of a thread, oldest first, closed ones too: a reply may name one of them."""
    return _known(store.prompts(thread_key=thread_key, limit=None))


def waiting(
    store: PromptReader, *, thread_key: str | None = None, session_id: str | None = None
) -> list[PromptState]:
    """The open prompts of a thread, of a session, or of all of them: what the conversations wait for."""
    return _known(
        store.prompts(thread_key=thread_key, session_id=session_id, statuses=OPEN_STATUSES, limit=None)
    )


def _known(rows: Sequence[PromptRow]) -> list[PromptState]:
    """The prompts of these rows but those of a newer release, whose sessions are left to it too."""
    found = []
    for row in rows:
        with suppress(SchemaTooNew):
            found.append(read(row))
    return found


def read(row: PromptRow) -> PromptState:
    """The prompt of a row. Raises `MalformedPrompt` when the row and its body are not the same prompt."""
    state = PromptState.from_bytes(row.body)
    columns = (row.prompt_id, row.session_id, row.thread_key, row.status, row.deadline)
    if columns != (state.prompt_id, state.session_id, state.thread_key, state.status, state.deadline):
        raise MalformedPrompt(f"prompt {row.prompt_id}: the row's columns and its body do not agree")
    return state
