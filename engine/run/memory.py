"""Reads the notes that agents keep for later runs, and changes them for people: see `engine.decide.agents.memory`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from engine.decide.agents import listings, memory
from engine.journal.records import KeptRow
from engine.language.codec import Json
from engine.language.errors import SaysoError
from engine.storage.store import Store

if TYPE_CHECKING:
    from engine.models.turn_runner import Approved, SaidIn
    from engine.run.engine import Engine

Public = Callable[[str, str | None], Awaitable[bool]]
"""Check whether notes of one channel may be read in another one; None means no channel."""


class UnknownNote(SaysoError):
    """The note does not exist or has expired."""

    code = "unknown_note"


async def nowhere(noted_in: str, here: str | None) -> bool:
    """Return False: without channel facts, notes stay in their channel."""
    return False


def places(engine: Callable[[], Engine], said_in: SaidIn | None = None, public: Public = nowhere) -> SaidIn:
    """Return a reader for the places that a model call names: notes directly, messages by `said_in`."""

    async def read(place: Mapping[str, Json]) -> Sequence[str]:
        if "memory" not in place:
            return () if said_in is None else await said_in(place)
        found = await notes_of(engine(), [str(place["memory"])], place.get("channel"), public)
        return memory.lines(found)[-memory.MOST_NOTES :]

    return read


def descriptions(engine: Callable[[], Engine]) -> Approved:
    """Reads by which descriptions conversations may know the tools of an MCP server."""

    async def read(server: str) -> Sequence[Json]:
        found, scopes = engine(), [listings.scope_of(server)]
        return listings.approved(await found.writer.call(found.store.kept.rows, listings.LISTED, scopes))

    return read


async def notes_of(
    engine: Engine, scopes: Sequence[str] | None, channel: Json, public: Public
) -> list[KeptRow]:
    """The notes of these scopes, or of all, that may be read in a channel now, oldest first."""
    rows: list[KeptRow] = await engine.writer.call(engine.store.kept.rows, memory.NOTE, scopes)
    rows = [row for row in rows if memory.current(row, engine.now())]
    open_here = {name for name in memory.elsewhere(rows, channel) if await public(name, channel)}
    return [row for row in rows if memory.note(row).get("channel") in (None, channel, *open_here)]


def stored_note(store: Store, kept_id: str, now: str) -> KeptRow:
    """A note that holds. Raises `UnknownNote`, and `Corrupt` where its row was changed outside."""
    row = store.kept.row(kept_id)
    if row is None or row.kind != memory.NOTE or not memory.current(row, now):
        raise UnknownNote(f"There is no note {kept_id[:40]}, or it has expired or was deleted.")
    return row
