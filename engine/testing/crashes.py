"""`CrashingStore`, a store whose process dies at a commit, to test the process that comes after it.

for number in range(1, commits + 1):
    store = CrashingStore(open_store(url), after=nth(number))
    ...  # run until the store is dead, then continue over the same database with another store
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from engine.journal.events import Event, decode_event
from engine.journal.records import Commit, Lost
from engine.language.errors import Fenced
from engine.storage.store import PartResult, Store

Crash: TypeAlias = Callable[[Sequence[Commit]], bool]
"""Returns True if the process dies at the commits of this batch."""

_DEAD = "this process is dead"
WRITES = {
    "": ("bind", "consume", "quarantine", "sweep", "unsuspend"),
    "flows": ("keep_form",),
    "inbox": ("decide_letter", "empty", "ingest"),
    "lanes": ("let_go", "wake_forgotten"),
    "marks": ("move",),
    "outbox": ("attempt", "finish", "give_notice"),
    "sessions": ("delete", "release"),
}
"""Methods that change the store beside `commit`, by its parts; shared ones first."""


def never(batch: Sequence[Commit]) -> bool:
    """At none."""
    return False


def nth(number: int) -> Crash:
    """At the commit with this number, counted from one."""
    left = number

    def crash(batch: Sequence[Commit]) -> bool:
        nonlocal left
        left -= 1
        return left == 0

    return crash


class CrashingStore:
    """A store that serves one process: from its crash on nothing is written and no session is claimed.

    The process dies `before` or `after` the commits at which these say so; unless `heard`, it does not learn that the
    last one was stored. What it does then changes nothing, so it can be closed in order.
    """

    def __init__(
        self, inner: Store, *, before: Crash = never, after: Crash = never, heard: bool = True
    ) -> None:
        self.inner = inner
        self.dead = False
        self.commits: list[list[Event]] = []
        """The events of each commit."""
        self.batches = 0
        """Number of batches so far, the last one included."""
        self._before, self._after, self._heard = before, after, heard

    @property
    def store(self) -> Store:
        """This, as the store that it is."""
        return cast(Store, self)

    def commit(self, batch: Sequence[Commit]) -> list[PartResult]:
        """Commit, unless the process is dead, or dies here."""
        self.batches += not self.dead
        self.dead = self.dead or self._before(batch)
        if self.dead:
            return _dead(batch)
        outcomes = self.inner.commit(batch)
        written = [commit.events for commit in batch if commit.events]
        self.commits += [[decode_event(row) for row in events] for events in written]
        self.dead = self._after(batch)
        return _dead(batch) if self.dead and not self._heard else outcomes

    def __getattr__(self, name: str) -> Any:
        if self.dead and name in WRITES[""]:
            raise Fenced(_DEAD)
        found = getattr(self.inner, name)
        return _CrashingPart(self, found, WRITES[name]) if name in WRITES else found


class _CrashingPart:
    """A part of a store that serves one process."""

    def __init__(self, store: CrashingStore, inner: object, writes: Sequence[str]) -> None:
        self._store, self._inner, self._writes = store, inner, writes

    def __getattr__(self, name: str) -> Any:
        if self._store.dead and name in self._writes:
            raise Fenced(_DEAD)
        return getattr(self._inner, name)


def _dead(batch: Sequence[object]) -> list[PartResult]:
    return [Lost(Fenced(_DEAD)) for _ in batch]
