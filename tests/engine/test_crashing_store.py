"""`engine.testing.CrashingStore`: what a dead process can still do."""

from __future__ import annotations

import pytest

from engine.language.errors import Fenced
from engine.storage.open import open_store
from engine.storage.store import Store
from engine.testing import CrashingStore

READS = {
    "": {
        "agenda", "alive", "changed", "claimable", "close", "compact", "counts", "dated", "derived", "disclose", "enclose", "file", "generation",
        "hears", "holds", "impatient", "leave", "listen", "members", "near", "note_trouble", "peers", "pooled", "register",
        "serve_beside", "served", "serving", "shared", "sign", "stale", "suspended", "troubles", "try_serving", "watch",
    },
    "flows": {"form", "text"},
    "inbox": {"dead_letters", "lane", "row", "rows"},
    "kept": {"row", "rows"},
    "lanes": {"claim", "mine", "of", "others", "owner", "take"},
    "locks": {"grants", "left_behind", "rows", "unplaced"},
    "marks": {"rows", "ts"},
    "outbox": {"due", "of", "row"},
    "prompts": {"row", "rows"},
    "sessions": {"any_in", "check_chain", "claimable", "ended", "ending", "head", "heads", "journal", "load", "opening", "orphans", "stirred"},
    "spend": {"on", "rows"},
    "timers": {"of", "rows"},
}  # fmt: skip
"""What writes no row, by the parts of the store."""
WITHIN = {
    "flows": {"pin"},
    "inbox": {"empty_row", "receive", "take"},
    "kept": {"put"},
    "lanes": {"arrive", "arrive_for", "arrive_next"},
    "locks": {"drop", "put", "take"},
    "outbox": {"put"},
    "prompts": {"put"},
    "sessions": {"apply", "forget", "set_aside"},
    "spend": {"put", "settle"},
    "timers": {"drop", "put"},
}
"""What writes inside a transaction that somebody else has begun."""


def methods(part: str) -> list[tuple[str, str]]:
    """The methods of a part, or of the store itself, that begin a transaction in which something is written."""
    kind = type(getattr(open_store("memory:"), part)) if part else Store
    return [
        (part, name)
        for name in sorted(vars(kind))
        if name[0] != "_" and name not in READS[part] | WITHIN.get(part, set()) | {"commit"}
    ]


@pytest.mark.parametrize(("part", "name"), [found for part in READS for found in methods(part)])
def test_a_dead_process_writes_nothing(part: str, name: str) -> None:
    """Whatever changes a row is refused from the crash on, and was not before."""
    store = CrashingStore(open_store("memory:"))
    place = getattr(store, part) if part else store
    assert callable(getattr(place, name))
    store.dead = True
    with pytest.raises(Fenced, match="dead"):
        getattr(place, name)
