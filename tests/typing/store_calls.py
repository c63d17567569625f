"""The calls of the store are typed: mypy takes the right one, and refuses each wrong one with this code. Where it no longer
does, the remark is one that nothing needs, which mypy refuses too."""

from __future__ import annotations

from engine.journal.records import Head
from engine.storage.group_commit import Writer


async def head(writer: Writer) -> Head | None:
    """A method of the store gives what it gives."""
    return await writer.call(writer.store.sessions.head, "session-1")


async def wrong(writer: Writer) -> Head | None:
    """A misspelt name, a wrong argument, one that there is not, and a wrong result."""
    await writer.call(writer.store.sessions.hed, "session-1")  # type: ignore[attr-defined]
    await writer.call(writer.store.sessions.head, 17)  # type: ignore[arg-type]
    await writer.call(writer.store.sessions.head, "session-1", nonsense=True)  # type: ignore[call-arg]
    return await writer.call(writer.store.inbox.row, "key")  # type: ignore[arg-type]
