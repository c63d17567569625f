"""The writer of a store without its thread: what a test stores is stored without two changes of threads for each call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.language.errors import StorageError
from engine.storage.group_commit import Writer
from engine.storage.store import Store


class InlineWriter(Writer):
    """The writer on the loop instead of on a thread of its own: same queue, same group commit, same order."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._jobs: list[Any] = []

    def start(self) -> None:
        """Take calls from now on."""
        self._ended = None

    def close(self) -> None:
        """Take no more calls."""
        self._ended = StorageError("The writer was closed; nothing was stored.")

    def _submit(self, job: Any) -> None:
        if self._ended is not None:
            raise self._ended
        self._jobs.append(job)
        if len(self._jobs) == 1:
            asyncio.get_running_loop().call_soon(self._carry_out)

    def _carry_out(self) -> None:
        while self._jobs:
            self._next(self._jobs)


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines of this process have no thread for what they store, unless they are given a writer."""
    monkeypatch.setattr("engine.run.engine.Writer", InlineWriter)
