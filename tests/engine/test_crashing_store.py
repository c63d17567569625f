"""`engine.testing.CrashingStore`: what a dead process can still do."""

from __future__ import annotations

import pytest

from engine.language.errors import Fenced
from engine.storage.open import open_store
from engine.storage.store import Store
from engine.testing import CrashingStore

READS = {
    "alive",
    "changed",
    "check_chain",
    "close",
    "compact",
    "counts",
    "dated",
    "dead_letters",
    "derived",
    "disclose",
    "enclose",
    "ended",
    "file",
    "flow",
    "form",
    "generation",
    "give_up",
    "grants",
    "head",
    "heads",
    "holds",
    "inbox",
    "inbox_row",
    "journal",
    "kept",
    "kept_row",
    "lane",
    "lanes",
    "lease",
    "listen",
    "load",
    "locks",
    "mark",
    "marks",
    "members",
    "note_trouble",
    "opening",
    "orphans",
    "outbox",
    "outbox_of",
    "outbox_row",
    "peers",
    "prompt",
    "prompts",
    "register",
    "serve_beside",
    "served",
    "serving",
    "shared",
    "sign",
    "spend",
    "spent",
    "stale",
    "stirred",
    "suspended",
    "timers",
    "troubles",
    "try_serving",
    "unlease",
    "unplaced",
}
"""What writes no row."""


@pytest.mark.parametrize(
    "name",
    sorted(name for name in vars(Store) if name[0] != "_" and name not in READS | {"commit"}),
)
def test_a_dead_process_writes_nothing(name: str) -> None:
    """Whatever changes a row is refused from the crash on, and was not before."""
    store = CrashingStore(open_store("memory:"))
    assert callable(getattr(store, name))
    store.dead = True
    with pytest.raises(Fenced, match="dead"):
        getattr(store, name)
