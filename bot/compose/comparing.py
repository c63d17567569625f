"""Comparison of rows with the journals after a start: the newest sessions before anything is served, the others
gradually while it is. A command for a session compares that session's rows by its claim; code that only reads rows
waits here for those it needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bot.compose.projections import OPEN, mend
from engine.journal.records import Head
from engine.run.engine import Engine
from prompt_state import question_row
from prompt_state.question_row import PromptState

AT_ONCE = 500
"""Number of sessions compared before anything is served, which takes some tenths of a second."""
SLICE = 25
"""Number of sessions compared while commits wait."""


class Comparing:
    """Compares each session that was open at the start once."""

    def __init__(self, engine: Engine, stored: Callable[..., Awaitable[Any]]) -> None:
        """`stored` calls a method over the store, and waits while that refuses."""
        self._engine = engine
        self._stored = stored
        self._compared: list[Head] = []
        """The last slice."""
        self.done = asyncio.Event()
        """Set once all are compared, or where another process has done it."""

    async def first(self, *, whole: bool) -> None:
        """Compare the newest sessions, or the `whole` store."""
        await self._some(AT_ONCE)
        while whole and not self.done.is_set():
            await self._some(AT_ONCE)

    async def rest(self) -> None:
        """Compare all others."""
        while not self.done.is_set():
            await self._some(SLICE)

    async def _some(self, count: int) -> None:
        self._compared = await self._stored("comparing rows", self._slice, self._compared, count)
        if not self._compared:
            self.done.set()

    def _slice(self, earlier: Sequence[Head], count: int) -> list[Head]:
        """Compare the sessions after an earlier slice, and at last leftover rows of ended ones. On the thread of the
        store."""
        store = self._engine.store
        # A session may have been deleted meanwhile; where all of a slice were, it begins again.
        before = next(
            (head.session_id for head in reversed(earlier) if store.sessions.head(head.session_id)), None
        )
        heads = store.sessions.heads(statuses=OPEN, limit=count, before=before)
        mend(
            store,
            self._engine.now(),
            heads or list(filter(None, map(store.sessions.head, store.locks.left_behind()))),
        )
        return heads

    async def of_thread(self, key: str | None) -> None:
        """Return once the sessions of a thread are compared, before its messages and clicks are interpreted."""
        if key is not None and not self.done.is_set():
            await self._stored("comparing rows", self._thread, key)

    def _thread(self, key: str) -> None:
        store = self._engine.store
        mend(store, self._engine.now(), store.sessions.heads(statuses=OPEN, thread_key=key, limit=None))

    async def prompt(self, prompt_id: str) -> PromptState | None:
        """Return a question, open or not. One without a row is looked up again once all are compared."""
        engine = self._engine
        found = await engine.writer.call(question_row.find, engine.store.prompts, prompt_id)
        if found is None and not self.done.is_set():
            await self.done.wait()
            found = await engine.writer.call(question_row.find, engine.store.prompts, prompt_id)
        return found
