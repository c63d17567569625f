"""Facts of a session, in the past tense: a closed union, tagged by wire names that we own.

May import: `state`, `queries`, `grammar` and what else of `journal` reads no events.

Wire names and fields are those of the pause/resume and event-sourced-containers specifications, in camelCase.
Every event has `seq` (1, 2, 3, ... within its session) and `timestamp` (UTC, ISO-8601); events that have a
place have `path`. An event that was once written is never rewritten: readers upcast.

The class of an event has its rules: the phases in which it can happen, `fold`, which refuses it where it cannot follow
before it says what it changes, and `owes`, the events that follow in the same step. What several events share stands
in the module of those that they are about; nothing changes a state in place.

Reading an event checks every field. Making one checks nothing but its names: mypy does the rest. What a node, a model or
a person brings into an event is refused by `engine.language.codec` when the event is written, if it is not JSON.

Pure: no clock, chance, network, disk, thread or log, so a crash does not reach it.
"""

# ruff: noqa: F403

from functools import cache

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder

from engine.journal.events import agents, containers, grants, nodes, prompts, session, timers
from engine.journal.events.agents import *
from engine.journal.events.base import SCHEMA_VERSION as SCHEMA_VERSION
from engine.journal.events.base import Event as Event
from engine.journal.events.base import NodeEvent as NodeEvent
from engine.journal.events.base import PromptEvent as PromptEvent
from engine.journal.events.containers import *
from engine.journal.events.grants import *
from engine.journal.events.nodes import *
from engine.journal.events.prompts import *
from engine.journal.events.session import *
from engine.journal.events.timers import *
from engine.language.codec import decode
from engine.language.errors import MalformedJournal, NotJson, SchemaTooNew

EVENTS: dict[str, type[Event]] = {
    kind.type: kind
    for module in (session, nodes, containers, agents, prompts, grants, timers)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind.__module__ == module.__name__
    if "phases" in vars(kind)
}
"""The class of each event, by its name on the wire, in the order of these modules."""


class _Named(Struct):
    """The part of an event that says what it is."""

    type: str


_named = Decoder(_Named)


@cache
def _decoder(name: str) -> Decoder[Event]:
    # One for each: making one for all of them takes longer than reading most journals.
    return Decoder(EVENTS[name])


def decode_event(data: bytes) -> Event:
    """The event that these bytes are. Raises `SchemaTooNew` for an event or a field that this release does not know, and
    `MalformedJournal`, naming the event, for anything else that it does not write."""
    try:
        return _decoder(_named.decode(data).type).decode(data)
    except (DecodeError, UnicodeDecodeError, RecursionError, KeyError) as error:
        raise _refusal(data, error) from error


def _refusal(data: bytes, error: Exception) -> MalformedJournal | SchemaTooNew:
    """Why bytes are no event."""
    try:
        fields = decode(data)
    except NotJson as no_json:
        return MalformedJournal(f"not an event of schema {SCHEMA_VERSION}: {no_json}")
    name = fields.get("type") if isinstance(fields, dict) else None
    if not isinstance(name, str):
        return MalformedJournal(f"not an event of schema {SCHEMA_VERSION}: it has no type")
    kind = EVENTS.get(name)
    if kind is None:
        return SchemaTooNew(f"This release does not know the event {name!r}: a newer one wrote it.")
    unknown = fields.keys() - {"type", *kind.__struct_encode_fields__}
    if unknown and isinstance(error, ValidationError):
        told = f"{name} has no field {', '.join(sorted(unknown))}"
        return SchemaTooNew(f"This release does not know all of an event ({told}): a newer one wrote it.")
    return MalformedJournal(
        f"not an event of schema {SCHEMA_VERSION}: event {fields.get('seq')} ({name}): {error}"
    )
