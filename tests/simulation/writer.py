"""The writer of a store without a thread of its own."""

from __future__ import annotations

from typing import Any, Protocol

from engine.language.errors import StorageError
from engine.storage.group_commit import Writer
from engine.storage.store import Store
from tests.simulation.timeline import SimLoop


class Process(Protocol):
    """What a writer runs in."""

    loop: SimLoop

    def delay(self) -> float:
        """How long something takes now."""

    def lives(self, what: str) -> bool:
        """Whether the process is still alive after this point. Here it may die."""


class InlineWriter(Writer):
    """The writer on the loop instead of on a thread of its own: same queue, same group commit, same order."""

    def __init__(self, life: Process, store: Store) -> None:
        super().__init__(store)
        self._life = life
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
            self._life.loop.call_later(self._life.delay(), self._carry_out)

    def go_on(self) -> None:
        """Carry out what waited while the process was frozen."""
        if self._jobs:
            self._life.loop.call_soon(self._carry_out)

    def _carry_out(self) -> None:
        while self._jobs:
            if not self._life.lives("before a commit"):
                return
            self._next(self._jobs)
            if not self._life.lives("after a commit"):
                return
