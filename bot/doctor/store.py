"""Checks of what is stored: whether it is as new as what was acknowledged, and, in depth, every session of it."""

from __future__ import annotations

from collections.abc import Iterator

from bot.compose.projections import differences
from bot.compose.suspension import may_repeat
from bot.doctor.findings import Check
from engine.journal.events import decode_event
from engine.journal.fold import derive_state
from engine.language.errors import SaysoError
from engine.storage.port import Store


def check_freshness(store: Store) -> Iterator[Check]:
    """Whether the store takes writes, is suspended, and what its sessions may do a second time."""
    for trouble in store.troubles():
        hint = "It tries again by itself. Is something else writing (a backup, an open `sqlite3` shell)? Is the disk full?"
        yield Check("storage", "fail", trouble, hint)
    reason = store.suspended()
    if reason is None:
        yield Check("freshness", "ok", "the database is as new as its anchor says")
        return
    standing = [f"{head.session_id} ({head.flow_name}): {stands}" for head, stands in may_repeat(store)]
    text = "\n".join([f"suspended, so nothing runs: {reason}", *standing])
    hint = "What the sessions above did after that moment may be done a second time. Look, then: sayso store release"
    yield Check("freshness", "fail", text, hint if standing else "To let it go on: sayso store release")


def check_deep(store: Store) -> Iterator[Check]:
    """Every journal verified and folded, every row that follows from one compared with it."""
    reason = None if store.suspended() else store.stale()
    if reason is not None:
        yield Check("rows", "fail", reason, "The store is suspended when it is opened next.")
    heads = store.heads(limit=None)
    bad = [text for head in heads if (text := _broken(store, head.session_id)) is not None]
    hint = "A session that does not verify is set aside when it is taken up."
    yield Check(
        "journals",
        "fail" if bad else "ok",
        "\n".join(bad) or f"{len(heads)} verify and fold",
        hint if bad else None,
    )
    found = [str(difference) for difference in differences(store)]
    hint = "They are written anew when the bot starts."
    yield Check(
        "derived",
        "fail" if found else "ok",
        "\n".join(found) or "timers, locks, prompts and messages are as the journals say",
        hint if found else None,
    )


def _broken(store: Store, session_id: str) -> str | None:
    try:
        derive_state(decode_event(row) for row in store.journal(session_id))
    except SaysoError as error:
        return f"{session_id}: {error}"
    return None
